//! Several server processes that share one database and follow each other's changes, and databases
//! that hang.

#![expect(clippy::print_stderr, reason = "it says what it measures")]

mod cells;
mod deaths;
mod hanging;
mod harm;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::create_experiment_request::Memory;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    self, AddArmRequest, CreateExperimentRequest, EstimatesRequest, ExperimentName,
    GetExperimentRequest, ListAuditEntriesRequest, RetireArmRequest, SelectArmRequest,
    UploadStatus,
};
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::postgres::{Postgres, Shared, query};
use bandana_tests::suite::Suite;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const REPLICAS: usize = 3;

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

type Case = fn(&Postgres) -> anyhow::Result<()>;

const CASES: &[(&str, Case)] = &[
    ("what_one_replica_is_told_the_others_know", know_each_other),
    ("what_one_replica_has_made_possible_another_does", go_on_elsewhere),
    ("what_one_replica_forgets_the_others_forget", forget_together),
    ("every_replica_rings_for_what_all_have_heard", ring_together),
    ("a_guardrail_pauses_once_on_all_replicas", harm::pause_together),
    ("a_replica_that_is_stopped_gives_up_its_lease", resignation),
    ("a_replica_that_meets_a_damaged_row_says_so_by_its_exit_code", damage),
    ("estimates_include_what_was_acknowledged_by_whoever_tells_them", own_uploads),
];

fn main() -> ExitCode {
    let mut suite = Suite::from_args();
    let postgres = Shared::default();
    for (name, case) in CASES {
        let server = postgres.clone();
        suite.add(*name, move || case(server.server()?));
    }
    // It stops the database.
    suite.add("replicas_and_database_die_and_nothing_is_lost_or_doubled", || {
        deaths::deaths(&Postgres::start()?)
    });
    hanging::add(&mut suite, &postgres);
    cells::add(&mut suite, &postgres);
    let conclusion = suite.run();
    // The database server must end before the process does.
    drop(postgres);
    conclusion.exit_code()
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

async fn ask(url: &str, sql: &'static str) -> anyhow::Result<Vec<Vec<String>>> {
    let url = url.to_owned();
    tokio::task::spawn_blocking(move || query(&url, sql)).await?
}

/// Extends the lease of its current holder, even if that gets little processor time. Returns the
/// holder.
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

/// Looks again and again until something is so. `what` is said if it never is.
async fn poll_until(
    what: &'static str,
    mut is_so: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let waiting = async {
        while !is_so().await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, waiting).await.context(what)?
}

/// Waits, without a request, until a policy is based on this number of reports.
async fn until_learnt(url: &str, reports: &str) -> anyhow::Result<()> {
    let of_policy = "SELECT policy_reports FROM experiment";
    poll_until("nobody took the lease", async || Ok(ask(url, of_policy).await? == [[reports]]))
        .await
}

/// Connection of devices to a replica, and the newest policy version that its process has shown.
type DeviceWay = (DeviceClient<Channel>, Arc<AtomicU64>);

/// A replica, and lazy connections to it.
struct Replica {
    process: AggregatorProcess,
    device: DeviceClient<Channel>,
    newest: Arc<AtomicU64>,
    operator: OperatorClient<Channel>,
}

impl Replica {
    async fn start(url: &str) -> anyhow::Result<Self> {
        Self::start_with(&[], url).await
    }

    async fn start_with(flags: &[&str], url: &str) -> anyhow::Result<Self> {
        Self::start_program(PROGRAM.as_ref(), flags, url).await
    }

    async fn start_program(program: &Path, flags: &[&str], url: &str) -> anyhow::Result<Self> {
        let process = AggregatorProcess::start_replica_with(flags, program, url).await?;
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
        let request = GetExperimentRequest { experiment_id: name.to_owned() };
        Ok(Day::new(self.device.get_experiment(request).await?.into_inner().server_day))
    }

    /// Requests a new policy, and returns its version and its number of reports.
    async fn refresh(&mut self, name: &str) -> anyhow::Result<(u64, u64)> {
        let request = ExperimentName { experiment_id: name.to_owned() };
        let answer = self.operator.refresh_policy(request).await?.into_inner();
        Ok((answer.policy_version, answer.reports))
    }

    /// For each arm, the number of reports, and of ones among them.
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
        // No wait between a change at one replica and a call at another.
        let experiment = one.create(three_arms("known")).await?;
        let day = two.day("known").await?;
        let request = upload(1, &experiment, day, &[(0, true)])?;
        let told = three.device.submit_upload(request.clone()).await?.into_inner();
        ensure!(told.status() == UploadStatus::Accepted, "{told:?}");
        let told = one.device.submit_upload(request).await?.into_inner();
        ensure!(told.status() == UploadStatus::Duplicate, "{told:?}");
        let unknown =
            SelectArmRequest { experiment_id: "unknown".to_owned(), ..Default::default() };
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

        // A replica that decides on outdated state learns the current one.
        let pause = ExperimentName { experiment_id: name.clone() };
        one.operator.pause_experiment(pause.clone()).await?;
        let refused = two.operator.pause_experiment(pause.clone()).await.err().context("twice")?;
        ensure!(refused.code() == Code::FailedPrecondition, "{refused}");
        ensure!(refused.message().contains("is paused"), "{refused}");
        let request = upload(4, &experiment, day, &[(1, true)])?;
        let told = three.device.submit_upload(request).await?.into_inner();
        ensure!(told.status() == UploadStatus::Paused, "{told:?}");

        // The replica that computes policies is killed; another one takes over by itself.
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

/// One replica reads the damaged row when it counts an upload, the other on a query.
fn damage(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let mut counts = Replica::start(&url).await?;
        let mut asked = Replica::start(&url).await?;
        let experiment = counts.create(three_arms("damaged")).await?;
        let day = asked.day("damaged").await?;
        ask(&url, "SET session_replication_role = replica; UPDATE audit SET caller = 'nobody'")
            .await?;
        let question = ListAuditEntriesRequest::default();
        let told = asked.operator.list_audit_entries(question).await;
        ensure!(told.is_err(), "{told:?}");
        ensure!(asked.process.wait().await?.code() == Some(6));
        ask(&url, "SET session_replication_role = replica; UPDATE experiment SET state = 'paused'")
            .await?;
        let request = upload(1, &experiment, day, &[(0, true)])?;
        let unanswered = counts.device.submit_upload(request).await;
        ensure!(unanswered.is_err(), "{unanswered:?}");
        ensure!(counts.process.wait().await?.code() == Some(6));
        Ok(())
    })
}

/// Each step is at a different replica than the step that made it possible.
fn go_on_elsewhere(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let mut replicas = Vec::new();
        for _ in 0..REPLICAS {
            replicas.push(Replica::start(&url).await?);
        }
        let [one, two, three] = &mut replicas[..] else { anyhow::bail!("not three") };
        for round in 0..5 {
            let id = format!("round-{round}");
            one.create(three_arms(&id)).await?;
            let name = ExperimentName { experiment_id: id.clone() };
            // All replicas know the current state.
            two.day(&id).await?;
            three.day(&id).await?;
            one.operator.pause_experiment(name.clone()).await?;
            two.operator.resume_experiment(name.clone()).await?;
            let label = "mauve".to_owned();
            three.operator.add_arm(AddArmRequest { experiment_id: id.clone(), label }).await?;
            let request = RetireArmRequest { experiment_id: id, arm: 3 };
            one.operator.retire_arm(request).await?;
            two.operator.stop_experiment(name.clone()).await?;
            three.operator.archive_experiment(name.clone()).await?;
            one.operator.delete_experiment(name).await?;
        }
        for round in 0..5 {
            let id = format!("draft-{round}");
            let draft = CreateExperimentRequest {
                specification: Some(three_arms(&id)),
                learner: v1::Learner::LdpTs.into(),
                draft: true,
                ..Default::default()
            };
            let status = one.operator.create_experiment(draft).await?.into_inner();
            // All replicas know that the experiment is a draft.
            let name = ExperimentName { experiment_id: id.clone() };
            for replica in [&mut *two, &mut *three] {
                replica.operator.get_experiment_status(name.clone()).await?;
            }
            two.operator.start_experiment(name).await?;
            let day = three.day(&id).await?;
            let message = status.specification.context("no specification")?;
            let experiment = Specification::try_from(&message)?;
            let request = upload(u128::from(round + 1_u32), &experiment, day, &[(0, true)])?;
            // A final refusal would lose the upload.
            let told = one.device.submit_upload(request).await?.into_inner();
            ensure!(told.status() == UploadStatus::Accepted, "{told:?}");
        }
        for replica in replicas {
            replica.process.stop().await?;
        }
        Ok(())
    })
}

fn forget_together(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let mut replicas = [Replica::start(&url).await?, Replica::start(&url).await?];
        let request = CreateExperimentRequest {
            specification: Some(three_arms("forgets")),
            learner: v1::Learner::LdpTs.into(),
            memory: Some(Memory::WindowDays(1)),
            ..Default::default()
        };
        let created = replicas[0].operator.create_experiment(request).await?.into_inner();
        let message = created.specification.context("an answer without specification")?;
        let experiment = Specification::try_from(&message)?;
        let today = replicas[1].day("forgets").await?;
        // Yesterday the first arm was better, with three times as many reports; today the second
        // one is.
        for (number, day, liked, reports) in [(1, today.back(1), 0, 9000), (2, today, 1, 3000)] {
            let of = |report: usize| {
                (report % 3, (report / 3) % 10 < 3 + 4 * usize::from(report % 3 == liked))
            };
            let reports: Vec<_> = (0..reports).map(of).collect();
            let request = upload(number, &experiment, day, &reports)?;
            let replica = &mut replicas[liked];
            let told = replica.device.submit_upload(request).await?.into_inner();
            ensure!(told.status() == UploadStatus::Accepted, "{told:?}");
        }
        for replica in &mut replicas {
            ensure!(replica.refresh("forgets").await?.1 == 12_000);
            let request =
                EstimatesRequest { experiment_id: "forgets".to_owned(), ..Default::default() };
            let estimates = replica.operator.get_estimates(request).await?.into_inner();
            let liked = &estimates.arms[1];
            ensure!(liked.weight > 0.99 && liked.reports == 4000, "{estimates:?}");
        }
        for replica in replicas {
            replica.process.stop().await?;
        }
        Ok(())
    })
}

fn ring_together(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let mut replicas = [Replica::start(&url).await?, Replica::start(&url).await?];
        let request = CreateExperimentRequest {
            specification: Some(three_arms("skewed")),
            learner: v1::Learner::LdpTs.into(),
            burn_in_reports: 100_000,
            holdout_share: 0.5,
            ..Default::default()
        };
        let created = replicas[0].operator.create_experiment(request).await?.into_inner();
        let message = created.specification.context("an answer without specification")?;
        let experiment = Specification::try_from(&message)?;
        let today = replicas[1].day("skewed").await?;
        // Six of every eight reports are of one arm. Each replica receives half of them.
        for (number, replica) in (1..).zip(&mut replicas) {
            let reports: Vec<_> =
                (0..400).map(|report| ([0, 0, 0, 0, 0, 0, 1, 2][report % 8], true)).collect();
            let request = upload(number, &experiment, today, &reports)?;
            let told = replica.device.submit_upload(request).await?.into_inner();
            ensure!(told.status() == UploadStatus::Accepted, "{told:?}");
        }
        for replica in &mut replicas {
            ensure!(replica.refresh("skewed").await?.1 == 800);
            let name = ExperimentName { experiment_id: "skewed".to_owned() };
            let status = replica.operator.get_experiment_status(name).await?.into_inner();
            ensure!((status.burn_in_reports, status.holdout_share) == (100_000, 0.5), "{status:?}");
            let rung: Vec<_> = status.alarms.iter().map(|alarm| &alarm.name[..]).collect();
            ensure!(rung == ["sample-ratio-mismatch"], "{rung:?}");
            ensure!(status.alarms[0].message.contains("75.0% of 800 reports"), "{status:?}");
        }
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
        // If the lease were not given up, no other replica would get it within the test's timeout.
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

fn own_uploads(server: &Postgres) -> anyhow::Result<()> {
    const UPLOADS: u128 = 12;
    let url = server.database()?;
    block_on(async {
        let mut replicas = [Replica::start(&url).await?, Replica::start(&url).await?];
        let experiment = replicas[0].create(three_arms("own")).await?;
        let day = replicas[1].day("own").await?;
        for number in 0..UPLOADS {
            let place = usize::from(number % 3 == 0);
            let replica = &mut replicas[place];
            let request = upload(number, &experiment, day, &[(0, true)])?;
            let told = replica.device.submit_upload(request).await?.into_inner();
            ensure!(told.status() == UploadStatus::Accepted, "{told:?}");
            // No wait between an upload and a query.
            let counted = replica.tallies("own").await?[0].0;
            ensure!(u128::from(counted) == number + 1, "{counted} after {}", number + 1);
            let name = ExperimentName { experiment_id: "own".to_owned() };
            let status = replica.operator.get_experiment_status(name).await?.into_inner();
            ensure!(u128::from(status.reports) == number + 1, "{status:?}");
        }
        for replica in replicas {
            replica.process.stop().await?;
        }
        Ok(())
    })
}
