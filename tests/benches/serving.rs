//! The benchmark measures the throughput of a real aggregator process, in total and per second of
//! its processor time ("per core"). It compares the results with goals and with a reference
//! measurement of this machine.
//!
//! `cargo bench -p bandana-tests --bench serving`

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bandana_examples::load::syncs_per_second;
use bandana_examples::process_usage::processor_time;
use bandana_shared::identity::{CellIndex, UploadId};
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{self, SelectArmRequest, UploadRequest, UploadStatus};
use bandana_store::{Delta, GroupRow, SqliteStore};
use bandana_tests::harness::{Aggregator, three_arms, upload};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Number of calls in flight, and of the connections that they share.
const IN_FLIGHT: u64 = 64;
const CONNECTIONS: u64 = 8;

const UNARY_UPLOADS: u64 = 100_000;
const BULK_UPLOADS: u64 = 2_000;
const BULK_REPORTS: u64 = 10_000;
const SELECTIONS: u64 = 200_000;
const IDS: u64 = 10_000_000;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("{:44} {:>14} {:>14}   goal", "", "per second", "per core");
    runtime.block_on(serving())?;
    start_after_kill()
}

fn row(name: &str, per_second: f64, per_core: f64, goal: &str) {
    println!("{name:44} {per_second:>14.0} {per_core:>14.0}   {goal}");
}

async fn serving() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let arms = (0..20).map(|i| v1::Arm { label: format!("arm {i}"), retired: false }).collect();
    let message = v1::Specification { arms, ..three_arms("bench") };
    let experiment = aggregator.create(message).await?;
    let day = aggregator.day(&experiment).await?;
    let process = aggregator.process.id()?;
    let devices = connect(&aggregator).await?;
    let syncs = syncs_per_second(aggregator.data_dir())?;
    println!("reference: {syncs:.0} appends of 4 KiB with fdatasync per second on this disk");

    let unary: Vec<UploadRequest> = (0..UNARY_UPLOADS)
        .map(|n| upload(u128::from(n), &experiment, day, &[(usize::try_from(n % 20)?, n % 3 == 0)]))
        .collect::<anyhow::Result<_>>()?;
    let used = load(&devices, process, Arc::new(unary), submit).await?;
    let (per_second, per_core) = used.rates(UNARY_UPLOADS);
    row("durable uploads of 1 report", per_second, per_core, ">= 25,000/s, >= 50,000 per core");

    let reports: Vec<(usize, bool)> = (0..BULK_REPORTS)
        .map(|n| Ok((usize::try_from(n % 20)?, n % 3 == 0)))
        .collect::<anyhow::Result<_>>()?;
    let bulk: Vec<UploadRequest> = (0..BULK_UPLOADS)
        .map(|n| upload(u128::from(n) | 1 << 100, &experiment, day, &reports))
        .collect::<anyhow::Result<_>>()?;
    let used = load(&devices, process, Arc::new(bulk), submit).await?;
    let (per_second, per_core) = used.rates(BULK_UPLOADS * BULK_REPORTS);
    row("reports in durable uploads of 10,000", per_second, per_core, ">= 5,000,000 per core");

    let selections =
        vec![SelectArmRequest { experiment_id: "bench".to_owned(), ..Default::default() }];
    let selections: Vec<_> =
        selections.into_iter().cycle().take(usize::try_from(SELECTIONS)?).collect();
    let used = load(&devices, process, Arc::new(selections), select).await?;
    let (per_second, per_core) = used.rates(SELECTIONS);
    let p99 = used.percentile_99.as_secs_f64() * 1e3;
    row("SelectArm, 20 arms", per_second, per_core, ">= 85,000 per core");
    println!(
        "{:44} {p99:>11.2} ms {:>14}   <= 1 ms",
        "SelectArm, 99th percentile at 64 in flight", ""
    );
    aggregator.process.stop().await
}

async fn connect(aggregator: &Aggregator) -> anyhow::Result<Vec<DeviceClient<Channel>>> {
    let endpoint = Endpoint::from_shared(aggregator.process.device_url.clone())?.tcp_nodelay(true);
    let mut devices = Vec::new();
    for _ in 0..CONNECTIONS {
        devices.push(DeviceClient::new(endpoint.connect().await?));
    }
    Ok(devices)
}

async fn submit(mut device: DeviceClient<Channel>, request: UploadRequest) -> anyhow::Result<()> {
    let answer = device.submit_upload(request).await?.into_inner();
    anyhow::ensure!(answer.status() == UploadStatus::Accepted, "{}", answer.message);
    Ok(())
}

async fn select(
    mut device: DeviceClient<Channel>,
    request: SelectArmRequest,
) -> anyhow::Result<()> {
    device.select_arm(request).await?;
    Ok(())
}

/// Time that calls took.
struct Used {
    wall: Duration,
    processor: Duration,
    percentile_99: Duration,
}

impl Used {
    fn rates(&self, count: u64) -> (f64, f64) {
        let per = |time: Duration| count as f64 / time.as_secs_f64();
        (per(self.wall), per(self.processor))
    }
}

/// Makes all calls, with [`IN_FLIGHT`] in flight.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
async fn load<R, F>(
    devices: &[DeviceClient<Channel>],
    process: u32,
    requests: Arc<Vec<R>>,
    call: fn(DeviceClient<Channel>, R) -> F,
) -> anyhow::Result<Used>
where
    R: Clone + Send + Sync + 'static,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let (before, start) = (processor_time(process)?, Instant::now());
    let next = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for device in devices.iter().cycle().take(usize::try_from(IN_FLIGHT)?) {
        let (device, requests, next) = (device.clone(), Arc::clone(&requests), Arc::clone(&next));
        workers.spawn(async move {
            let mut latencies = Vec::new();
            while let Some(request) =
                requests.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed))?)
            {
                let sent = Instant::now();
                call(device.clone(), request.clone()).await?;
                latencies.push(sent.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(worker) = workers.join_next().await {
        latencies.extend(worker??);
    }
    let wall = start.elapsed();
    latencies.sort_unstable();
    let percentile_99 = latencies[latencies.len() * 99 / 100];
    Ok(Used { wall, processor: processor_time(process)?.saturating_sub(before), percentile_99 })
}

/// Fills a store with realistic ids, and opens it as a server does at its start.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn start_after_kill() -> anyhow::Result<()> {
    const GROUP: u64 = 10_000;
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    let specification = bandana_shared::specification::Specification::first(
        bandana_shared::identity::ExperimentId::new("ids")?,
        bandana_shared::epsilon::Epsilon::new(1.0)?,
        bandana_shared::rewards::Rewards::binary(),
        bandana_shared::curve::Mechanism::Linear,
        vec![bandana_shared::specification::Arm::new("only")?],
        bandana_shared::specification::ReleaseTiming::IMMEDIATE,
    )?;
    let learner = bandana_learners::Learner::LdpTs;
    let config = bandana_learners::LearnerConfig::new(learner);
    let entry = bandana_store::AuditEntry {
        at: bandana_shared::identity::UnixSeconds::new(0),
        caller: String::new(),
        action: bandana_store::AuditAction::Create,
        experiment: specification.experiment_id().clone(),
        detail: String::new(),
    };
    let running = bandana_store::ExperimentState::Running;
    let experiment = store.create_experiment(&specification, config, running, &entry)?;
    let day = bandana_shared::identity::Day::new(20_000);
    for group in 0..IDS / GROUP {
        let tally = Tally::new(GROUP, GROUP / 2)?;
        // A bijection that looks random.
        let id = |n: u64| u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let ids = (0..GROUP).map(|n| UploadId::new(id(group * GROUP + n).to_be_bytes()));
        let mut ids: Vec<_> = ids.collect();
        ids.sort_unstable();
        let deltas = vec![Delta { experiment, revision: None, cell: CellIndex::new(0)?, tally }];
        store.commit_group(&[GroupRow { day, ids, deltas }])?;
    }
    drop(store);
    let start = Instant::now();
    let store = SqliteStore::open(directory.path())?;
    store.experiments()?;
    let seen = store.seen_ids()?;
    let seconds = start.elapsed().as_secs_f64();
    anyhow::ensure!(seen.len() as u64 == IDS, "{} ids", seen.len());
    println!(
        "{:44} {seconds:>12.2} s {:>14}   <= 1 s",
        "start with 10 million ids in the window", ""
    );
    Ok(())
}
