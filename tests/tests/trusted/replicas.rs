//! Replicas that accept disclosures to one experiment leave its commits to one of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_shared::wire::v1::{DisclosureStatus as S, disclose_request};
use bandana_tests::page::{self, Samples};
use bandana_tests::postgres::{Postgres, query};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tonic::Code;

use super::{PATIENCE, PROGRAM, Ways, disclosure, named, run, ucb};

const REPLICAS: usize = 3;

/// Number of disclosures in flight at each replica.
const WORKERS: u128 = 12;

/// Timeout of a call, after which the disclosure is sent to another replica.
const CALL: Duration = Duration::from_secs(5);

const EXPERIMENT: &str = "headlines";

/// A database and its replicas, with an experiment of three arms.
struct Replicas {
    database: Postgres,
    url: String,
    processes: Vec<AggregatorProcess>,
    ways: Vec<Ways>,
    day: u32,
}

impl Replicas {
    async fn start() -> anyhow::Result<Self> {
        // The database server starts on a separate thread.
        let start = || {
            let server = Postgres::start()?;
            anyhow::Ok((server.database()?, server))
        };
        let (url, database) = tokio::task::spawn_blocking(start).await??;
        let (processes, ways) = (Vec::new(), Vec::new());
        let mut this = Self { database, url, processes, ways, day: 0 };
        for replica in 0..REPLICAS {
            this.add().await?;
            if replica == 0 {
                this.ways[0].create(EXPERIMENT, ucb(3)).await?;
            }
            this.day = this.ways[replica].day(EXPERIMENT).await?;
        }
        Ok(this)
    }

    async fn add(&mut self) -> anyhow::Result<()> {
        let process = AggregatorProcess::start_replica(Path::new(PROGRAM), &self.url).await?;
        self.ways.push(Ways::of(&process).await?);
        self.processes.push(process);
        Ok(())
    }

    fn signal(&self, replica: usize, signal: Signal) -> anyhow::Result<()> {
        let id = i32::try_from(self.processes[replica].id()?)?;
        Ok(kill_process(Pid::from_raw(id).context("no process has id 0")?, signal)?)
    }

    /// The sum of a metric over all replicas.
    async fn metric(&self, name: &str) -> anyhow::Result<u64> {
        let mut sum = 0;
        for process in &self.processes {
            let address = process.operator_url.strip_prefix("http://").context("a URL")?;
            let shown = page::get(address, "/metrics", &[]).await?;
            sum += Samples::parse(&shown.body)?.count(name)?;
        }
        Ok(sum)
    }

    async fn ask(&self, sql: &'static str) -> anyhow::Result<Vec<Vec<String>>> {
        let url = self.url.clone();
        tokio::task::spawn_blocking(move || query(&url, sql)).await?
    }

    /// Checks that this number of disclosures counts, each once, and ends.
    async fn end(mut self, expected: u64) -> anyhow::Result<()> {
        let rows = self.ask("SELECT count(*) FROM trusted_disclosure").await?;
        ensure!(rows == [[expected.to_string()]], "{rows:?}, and {expected} were acknowledged");
        let agree = async {
            for ways in &mut self.ways {
                while ways.released(EXPERIMENT).await?.rewards != expected {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, agree).await.context("they never agree")??;
        // Batches in flight contain rewards, and all of them are erased.
        self.ways[0].trusted.stop_trusted_experiment(named(EXPERIMENT)).await?;
        let left = self.ask("SELECT count(*) FROM trusted_handover WHERE handed <> ''").await?;
        ensure!(left == [["0"]], "{left:?}");
        let (code, said) = run(&["verify", "--store", &self.url]).await?;
        ensure!(code == Some(0), "{said}");
        for process in self.processes {
            process.stop().await?;
        }
        let database = self.database;
        tokio::task::spawn_blocking(move || drop(database)).await?;
        Ok(())
    }
}

/// Continuous disclosures to each replica by several workers, until stopped. A disclosure without
/// an answer is sent to the next replica.
struct Load {
    workers: JoinSet<anyhow::Result<()>>,
    /// Number of acknowledged disclosures, by the replica to which each was first sent.
    acknowledged: Arc<[AtomicU64; REPLICAS]>,
    counted: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    fn start(replicas: &Replicas) -> Self {
        let acknowledged = Arc::new([const { AtomicU64::new(0) }; REPLICAS]);
        let (counted, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS * REPLICAS as u128 {
            let (ways, day) = (replicas.ways.clone(), replicas.day);
            let (acknowledged, counted) = (Arc::clone(&acknowledged), Arc::clone(&counted));
            let is_over = Arc::clone(&is_over);
            workers.spawn(async move {
                let first = usize::try_from(worker)? % REPLICAS;
                for number in (worker << 64).. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    if disclose(&ways, first, number, day).await? == S::Counted {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    acknowledged[first].fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        Self { workers, acknowledged, counted, is_over }
    }

    /// Waits for this number of further acknowledged disclosures at each of these replicas.
    async fn until_more(&self, more: u64, of: &[usize]) -> anyhow::Result<()> {
        let count = |replica: usize| self.acknowledged[replica].load(Ordering::Relaxed);
        let before: Vec<u64> = (0..REPLICAS).map(count).collect();
        let more = async {
            while of.iter().any(|replica| count(*replica) < before[*replica] + more) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, more).await.context("they do not go on")
    }

    /// Stops, and returns the number of acknowledged disclosures, and of those reported as new.
    async fn stop(mut self) -> anyhow::Result<(u64, u64)> {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(worker) = self.workers.join_next().await {
            worker??;
        }
        let all = self.acknowledged.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        Ok((all, self.counted.load(Ordering::Relaxed)))
    }
}

/// Sends the same disclosure to one replica after the other, until one has decided.
async fn disclose(ways: &[Ways], first: usize, number: u128, day: u32) -> anyhow::Result<S> {
    let arm = u32::try_from(number % 3)?;
    let request = disclosure(EXPERIMENT, number, disclose_request::Played::Arm(arm), 0.5, day);
    for attempt in 0..1000 {
        let mut ways = ways[(first + attempt) % ways.len()].clone();
        match tokio::time::timeout(CALL, ways.send(request.clone())).await {
            Ok(Ok(told)) => {
                let status = told.status();
                ensure!(matches!(status, S::Counted | S::Duplicate), "{told:?}");
                return Ok(status);
            }
            Ok(Err(status)) if status.code() == Code::Unavailable => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // The replica's process was killed meanwhile.
            Ok(Err(status)) if status.code() == Code::Unknown => {}
            Ok(Err(status)) => return Err(status.into()),
            Err(_) => {}
        }
    }
    anyhow::bail!("nobody decides about {number}")
}

pub(crate) async fn commits_are_left_to_one_replica_and_do_not_collide() -> anyhow::Result<()> {
    let replicas = Replicas::start().await?;
    let load = Load::start(&replicas);
    // Each replica detects that it is not alone.
    load.until_more(30, &[0, 1, 2]).await?;
    let commits_before = replicas.metric("bandana_trusted_commits_total").await?;
    let collisions_before = replicas.metric("bandana_trusted_collisions_total").await?;
    load.until_more(200, &[0, 1, 2]).await?;
    let (acknowledged, counted) = load.stop().await?;
    // Each disclosure was sent once, and answered.
    ensure!(acknowledged == counted, "{counted} of {acknowledged} were counted");
    ensure!(replicas.metric("bandana_disclosures_total{outcome=\"counted\"}").await? == counted);
    let commits = replicas.metric("bandana_trusted_commits_total").await? - commits_before;
    let collisions = replicas.metric("bandana_trusted_collisions_total").await? - collisions_before;
    let handed_over = replicas.metric("bandana_disclosures_handed_over_total").await?;
    // If all replicas committed, most commits would be retried.
    ensure!(collisions * 5 < commits, "{collisions} collisions, {commits} commits");
    // Two of the replicas received at least 200 each.
    ensure!(handed_over > 200, "{handed_over} of {acknowledged} were handed over");
    let released = replicas.metric("bandana_trusted_releases_total").await?;
    let told = replicas.ways[0].clone().status(EXPERIMENT).await?.releases;
    // Replicas other than the last leader learn of releases with a delay.
    ensure!(released >= told, "{told} releases are shown, and {released} were made");
    replicas.end(acknowledged).await
}

pub(crate) async fn whoever_leads_is_stopped_or_dies_and_each_disclosure_counts_once()
-> anyhow::Result<()> {
    let mut replicas = Replicas::start().await?;
    let load = Load::start(&replicas);
    load.until_more(30, &[0, 1, 2]).await?;
    // One of them leads.
    for stopped in 0..REPLICAS {
        replicas.signal(stopped, Signal::STOP)?;
        let others: Vec<usize> = (0..REPLICAS).filter(|replica| *replica != stopped).collect();
        let goes_on = load.until_more(30, &others).await;
        replicas.signal(stopped, Signal::CONT)?;
        goes_on?;
        load.until_more(30, &[0, 1, 2]).await?;
    }
    for _ in 1..REPLICAS {
        replicas.processes.remove(0).kill().await?;
        replicas.ways.remove(0);
        load.until_more(30, &[0, 1, 2]).await?;
    }
    let (acknowledged, counted) = load.stop().await?;
    ensure!(counted <= acknowledged, "{counted} of {acknowledged} were counted");
    replicas.end(acknowledged).await
}
