//! Several server processes on one database, which all die now and then.
//!
//! It fails when an upload that was acknowledged is not counted exactly once, when one is
//! refused for good, or when a replica shows an older policy than before. The size comes
//! from `BANDANA_CLUSTER_UPLOADS`.

#![expect(clippy::print_stderr, reason = "a harness of its own says what it skips")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    self, CreateExperimentRequest, EstimatesRequest, ExperimentName, GetExperimentRequest,
    SelectArmRequest, UploadStatus,
};
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::postgres::{Postgres, query};
use libtest_mimic::{Arguments, Trial};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const REPLICAS: usize = 3;
const SEED: u64 = 3;
const WORKERS: usize = 24;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(1);

type Case = fn(&Postgres) -> anyhow::Result<()>;

const CASES: &[(&str, Case)] = &[
    ("what_one_replica_is_told_the_others_know", know_each_other),
    ("a_replica_that_is_stopped_gives_up_its_lease", resignation),
    ("replicas_and_database_die_and_nothing_is_lost_or_doubled", deaths),
];

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::from_args();
    let server = if arguments.list { None } else { Postgres::start()?.map(Arc::new) };
    let is_missing = server.is_none() && !arguments.list;
    if is_missing {
        eprintln!("no PostgreSQL is installed: what concerns it is skipped");
    }
    let trial = |(name, case): &(&str, Case)| {
        let (server, case) = (server.clone(), *case);
        let run = move || -> Result<(), libtest_mimic::Failed> {
            let server = server.as_deref().ok_or("no server")?;
            Ok(case(server).map_err(|error| format!("{error:?}"))?)
        };
        Trial::test(*name, run).with_ignored_flag(is_missing)
    };
    // One after the other: the second one stops the database.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    let conclusion = libtest_mimic::run(&arguments, CASES.iter().map(trial).collect());
    drop(server);
    conclusion.exit()
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

async fn ask(url: &str, sql: &'static str) -> anyhow::Result<Vec<Vec<String>>> {
    let url = url.to_owned();
    tokio::task::spawn_blocking(move || query(&url, sql)).await?
}

/// Has whoever holds the lease keep it for long, however little time it gets. Tells who.
async fn keep_lease(url: &str) -> anyhow::Result<String> {
    let keep = "UPDATE lease SET expires = now() + interval '1 hour' WHERE expires > now()
        RETURNING holder";
    let kept = async {
        loop {
            if let [row] = &ask(url, keep).await?[..] {
                return anyhow::Ok(row[0].clone());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, kept).await.context("nobody takes the lease")?
}

/// Waits until a policy knows so many reports, without being asked for one.
async fn until_learnt(url: &str, reports: &str) -> anyhow::Result<()> {
    let computed = async {
        while ask(url, "SELECT policy_reports FROM experiment").await? != [[reports]] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, computed).await.context("nobody took the lease")?
}

/// The way of devices to a replica, and the newest policy that its process has shown on it.
type DeviceWay = (DeviceClient<Channel>, Arc<AtomicU64>);

/// A replica, and ways to it that connect when they are used.
struct Replica {
    process: AggregatorProcess,
    device: DeviceClient<Channel>,
    newest: Arc<AtomicU64>,
    operator: OperatorClient<Channel>,
}

impl Replica {
    async fn start(url: &str) -> anyhow::Result<Self> {
        let process = AggregatorProcess::start_replica(PROGRAM.as_ref(), url).await?;
        let channel = |url: &str| {
            let endpoint = Endpoint::from_shared(url.to_owned())?.timeout(Duration::from_secs(15));
            anyhow::Ok(endpoint.connect_lazy())
        };
        let device = DeviceClient::new(channel(&process.device_url)?);
        let operator = OperatorClient::new(channel(&process.operator_url)?);
        Ok(Self { process, device, newest: Arc::default(), operator })
    }

    fn device_way(&self) -> DeviceWay {
        (self.device.clone(), Arc::clone(&self.newest))
    }

    async fn create(&mut self, message: v1::Specification) -> anyhow::Result<Specification> {
        let request = CreateExperimentRequest {
            specification: Some(message),
            learner: v1::Learner::LdpTs.into(),
            ..Default::default()
        };
        let created = self.operator.create_experiment(request).await?.into_inner();
        let created = created.specification.context("an answer without specification")?;
        Ok(Specification::try_from(&created)?)
    }

    async fn day(&mut self, name: &str) -> anyhow::Result<Day> {
        let request = GetExperimentRequest { experiment_id: name.to_owned(), ..Default::default() };
        Ok(Day::new(self.device.get_experiment(request).await?.into_inner().server_day))
    }

    /// Has a policy computed, and tells its version and the reports that it knows.
    async fn refresh(&mut self, name: &str) -> anyhow::Result<(u64, u64)> {
        let request = ExperimentName { experiment_id: name.to_owned() };
        let answer = self.operator.refresh_policy(request).await?.into_inner();
        Ok((answer.policy_version, answer.reports))
    }

    /// For each arm, the reports and the ones among them.
    async fn tallies(&mut self, name: &str) -> anyhow::Result<Vec<(u64, u64)>> {
        let request = EstimatesRequest { experiment_id: name.to_owned(), ..Default::default() };
        let estimates = self.operator.get_estimates(request).await?.into_inner();
        Ok(estimates.arms.iter().map(|arm| (arm.reports, arm.ones)).collect())
    }
}

fn know_each_other(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let mut replicas = vec![Replica::start(&url).await?];
        let holder = keep_lease(&url).await?;
        for _ in 1..REPLICAS {
            replicas.push(Replica::start(&url).await?);
        }
        let [one, two, three] = &mut replicas[..] else { anyhow::bail!("not three") };
        let name = "known".to_owned();
        // Nobody waits between a change at one and a call at another.
        let experiment = one.create(three_arms("known")).await?;
        let day = two.day("known").await?;
        let request = upload(1, &experiment, day, &[(0, true)])?;
        let told = three.device.submit_upload(request.clone()).await?.into_inner();
        ensure!(told.status() == UploadStatus::Accepted, "{told:?}");
        let told = one.device.submit_upload(request).await?.into_inner();
        ensure!(told.status() == UploadStatus::Duplicate, "{told:?}");
        let unknown = SelectArmRequest { experiment_id: "unknown".to_owned() };
        let refused = two.device.select_arm(unknown).await.err().context("selected")?;
        ensure!(refused.code() == Code::NotFound, "{refused}");
        let mut stranger = upload(2, &experiment, day, &[(0, true)])?;
        stranger.digest = vec![9; 16].into();
        let told = two.device.submit_upload(stranger).await?.into_inner();
        ensure!(told.status() == UploadStatus::UnknownSpecification, "{told:?}");

        let (first, reports) = two.refresh("known").await?;
        ensure!(reports == 1, "{reports} reports");
        let request = upload(3, &experiment, day, &[(1, true)])?;
        one.device.submit_upload(request).await?;
        let (second, reports) = three.refresh("known").await?;
        ensure!(second > first && reports == 2, "{first}, {second}: {reports} reports");

        // Whoever decides on what is not so any more hears what is so.
        let pause = ExperimentName { experiment_id: name.clone() };
        one.operator.pause_experiment(pause.clone()).await?;
        let refused = two.operator.pause_experiment(pause.clone()).await.err().context("twice")?;
        ensure!(refused.code() == Code::FailedPrecondition, "{refused}");
        ensure!(refused.message().contains("is paused"), "{refused}");
        let request = upload(4, &experiment, day, &[(1, true)])?;
        let told = three.device.submit_upload(request).await?.into_inner();
        ensure!(told.status() == UploadStatus::Paused, "{told:?}");

        // Who computes the policies dies; another goes on without being asked.
        two.operator.resume_experiment(pause).await?;
        let lapse = "UPDATE lease SET expires = now() + interval '5 seconds' RETURNING holder";
        let held = ask(&url, lapse).await?;
        ensure!(held == [[holder.as_str()]], "{held:?} and not {holder}");
        for replica in replicas.drain(..REPLICAS - 1) {
            replica.process.kill().await?;
        }
        let [last] = &mut replicas[..] else { anyhow::bail!("not one") };
        let request = upload(5, &experiment, day, &[(2, true)])?;
        last.device.submit_upload(request).await?;
        until_learnt(&url, "3").await?;
        let held = ask(&url, "SELECT holder FROM lease").await?;
        ensure!(held != [[holder.as_str()]], "the holder is not among the dead");
        for replica in replicas {
            replica.process.stop().await?;
        }
        Ok(())
    })
}

fn resignation(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let mut first = Replica::start(&url).await?;
        // Were it not given up, nobody else would have it before the test gives up.
        let holder = keep_lease(&url).await?;
        let mut next = Replica::start(&url).await?;
        let experiment = first.create(three_arms("resigned")).await?;
        let day = first.day("resigned").await?;
        first.process.stop().await?;
        let held = ask(&url, "SELECT holder FROM lease WHERE expires > now()").await?;
        ensure!(held != [[holder.as_str()]], "who has ended still holds the lease");
        next.device.submit_upload(upload(1, &experiment, day, &[(0, true)])?).await?;
        until_learnt(&url, "1").await?;
        next.process.stop().await
    })
}

/// The uploads that are still to be acknowledged, and what was seen on the way.
struct Load {
    devices: Mutex<Vec<DeviceWay>>,
    waiting: Mutex<Vec<u128>>,
    acknowledged: Mutex<HashSet<u128>>,
    sent: AtomicUsize,
    duplicates: AtomicUsize,
    policies: AtomicUsize,
}

impl Load {
    fn devices(&self) -> Vec<DeviceWay> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn done(&self) -> usize {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Fetches the policy from a replica, which must not be older than one that was there
    /// before.
    async fn fetch_policy(
        &self,
        device: &mut DeviceClient<Channel>,
        newest: &AtomicU64,
    ) -> anyhow::Result<()> {
        let before = newest.load(Ordering::SeqCst);
        let experiment_id = "deaths".to_owned();
        let request = GetExperimentRequest { experiment_id, ..Default::default() };
        // The server may be gone for now.
        let Ok(answer) = device.get_experiment(request).await else { return Ok(()) };
        let version = answer.into_inner().policy.context("an answer without a policy")?.version;
        ensure!(version >= before, "one process: {version} came after {before}");
        newest.fetch_max(version, Ordering::SeqCst);
        self.policies.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Sends uploads to whichever replica until all are acknowledged. Answers are lost,
    /// uploads repeated although they were acknowledged, and none comes in order.
    async fn work(
        &self,
        seed: u64,
        experiment: &Specification,
        day: Day,
        total: usize,
    ) -> anyhow::Result<()> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        while self.done() < total {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(number) = next else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let devices = self.devices();
            let (mut device, newest) = devices[random.random_range(0..devices.len())].clone();
            if random.random_range(0..4_u32) == 0 {
                self.fetch_policy(&mut device, &newest).await?;
            }
            self.sent.fetch_add(1, Ordering::Relaxed);
            let calling = device.submit_upload(upload(number, experiment, day, &reports(number))?);
            let patience = match random.random_range(0..8_u32) {
                0 => Duration::from_millis(random.random_range(0..5)),
                _ => PATIENCE,
            };
            let told = tokio::time::timeout(patience, calling).await;
            let mut again = true;
            match told {
                Ok(Ok(answer)) => {
                    let status = answer.into_inner().status();
                    let is_duplicate = status == UploadStatus::Duplicate;
                    ensure!(is_duplicate || status == UploadStatus::Accepted, "{status:?}");
                    self.duplicates.fetch_add(usize::from(is_duplicate), Ordering::Relaxed);
                    let mut done = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
                    done.insert(number);
                    again = random.random_range(0..10_u32) == 0;
                }
                // The server or the database is gone for now.
                Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(_) => {}
            }
            if again {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let place = random.random_range(0..=waiting.len());
                waiting.insert(place, number);
            }
        }
        Ok(())
    }
}

/// The reports of an upload: one of the first arm for each, and for each its own pattern of
/// others, so that one for another would show.
fn reports(number: u128) -> Vec<(usize, bool)> {
    let mut reports = vec![(0, number.is_multiple_of(2))];
    reports.extend((0..number % 7).map(|_| (1, number.is_multiple_of(3))));
    reports.extend((0..number % 5).map(|_| (2, number.is_multiple_of(11))));
    reports
}

/// Checks that all replicas know every report, exactly once.
async fn check(replicas: &mut [Replica], total: usize, mut newest: u64) -> anyhow::Result<()> {
    let mut expected = vec![(0, 0); 3];
    for (arm, bit) in (0..total as u128).flat_map(reports) {
        expected[arm].0 += 1;
        expected[arm].1 += u64::from(bit);
    }
    let all: u64 = expected.iter().map(|(reports, _)| reports).sum();
    for replica in replicas {
        let (version, reports) = replica.refresh("deaths").await?;
        ensure!(version >= newest && reports == all, "{version}, {newest}; {reports}, {all}");
        newest = version;
        let tallies = replica.tallies("deaths").await?;
        ensure!(tallies == expected, "{tallies:?} and not {expected:?}");
    }
    Ok(())
}

fn deaths(server: &Postgres) -> anyhow::Result<()> {
    let total = std::env::var("BANDANA_CLUSTER_UPLOADS").ok();
    let total: usize = total.map_or(Ok(600), |text| text.parse())?;
    let url = server.database()?;
    block_on(async {
        let mut replicas = Vec::new();
        for _ in 0..REPLICAS {
            replicas.push(Replica::start(&url).await?);
        }
        let experiment = replicas[0].create(three_arms("deaths")).await?;
        let day = replicas[1].day("deaths").await?;
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut numbers: Vec<u128> = (0..total as u128).collect();
        numbers.shuffle(&mut random);
        let load = Arc::new(Load {
            devices: Mutex::new(replicas.iter().map(Replica::device_way).collect()),
            waiting: Mutex::new(numbers),
            acknowledged: Mutex::default(),
            sent: AtomicUsize::new(0),
            duplicates: AtomicUsize::new(0),
            policies: AtomicUsize::new(0),
        });
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS as u64 {
            let (load, experiment) = (Arc::clone(&load), experiment.clone());
            workers.spawn(async move { load.work(worker, &experiment, day, total).await });
        }
        // Deaths come with progress, not with time.
        let mut newest = 0;
        for death in 1..=8 {
            let reached = async {
                while load.done() < total * death / 10 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            tokio::time::timeout(PATIENCE * 10, reached).await.context("no progress")?;
            if death % 4 == 0 {
                server.crash()?;
                tokio::time::sleep(Duration::from_millis(200)).await;
                server.resume()?;
                continue;
            }
            let place = random.random_range(0..REPLICAS);
            replicas.remove(place).process.kill().await?;
            replicas.insert(place, Replica::start(&url).await?);
            let devices = replicas.iter().map(Replica::device_way).collect();
            *load.devices.lock().unwrap_or_else(PoisonError::into_inner) = devices;
            if let Ok((version, _)) = replicas[(place + 1) % REPLICAS].refresh("deaths").await {
                ensure!(version >= newest, "{version} came after {newest}");
                newest = version;
            }
        }
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        check(&mut replicas, total, newest).await?;
        let (sent, told) = (&load.sent, &load.duplicates);
        let (sent, told) = (sent.load(Ordering::Relaxed), told.load(Ordering::Relaxed));
        ensure!(sent > total && told > 0, "{sent} calls, {told} duplicates: nothing was repeated");
        ensure!(load.policies.load(Ordering::Relaxed) > 0, "no policy was fetched");
        let names = ask(&url, "SELECT count(*) FROM upload").await?;
        ensure!(names == [[total.to_string()]], "{names:?}");
        for replica in replicas {
            replica.process.stop().await?;
        }
        Ok(())
    })
}
