//! The price of store cells: processor time of an upload, the wait of others while one hangs, and
//! the age of policies. Figures of one run are compared with each other.
//!
//! `BANDANA_CELLS_ROUNDS` makes it long: so many rounds, with up to eight store cells.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::load::Database;
use bandana_examples::process_usage::processor_time;
use bandana_shared::identity::{Day, UploadId};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::UploadStatus;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_store::{Generation, Holder, Routes, StoreCell};
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::postgres::Postgres;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tonic::transport::Channel;

use super::site::{Databases, submit};
use crate::{Replica, block_on, poll_until, until_learnt};

/// Uploads in flight: for all store cells together, or for each. They have this many connections.
const IN_FLIGHT: usize = 64;
const CONNECTIONS: usize = 8;

/// Uploads a second while a store cell hangs: far below what the machine can do, so that waits do
/// not come from the load itself.
const RATE: u32 = 400;

/// The flag that turns the rate limit of a connection off.
const NO_LIMIT: [&str; 2] = ["--limit-uploads-per-second-per-connection", "0"];

/// The extent of a run.
struct Extent {
    rounds: usize,
    cells: Vec<usize>,
    seconds: Duration,
    policies: u64,
}

impl Extent {
    fn of_run() -> anyhow::Result<Self> {
        let rounds = std::env::var("BANDANA_CELLS_ROUNDS").ok();
        let Some(rounds) = rounds else {
            let (cells, seconds) = (vec![1, 2], Duration::from_secs(1));
            return Ok(Self { rounds: 1, cells, seconds, policies: 2 });
        };
        let (cells, seconds) = (vec![1, 2, 4, 8], Duration::from_secs(6));
        Ok(Self { rounds: rounds.parse()?, cells, seconds, policies: 20 })
    }
}

/// Database servers: one for the home, and one for each store cell.
struct Servers {
    servers: Vec<Postgres>,
}

impl Servers {
    fn start(cells: usize) -> anyhow::Result<Self> {
        let servers = (0..=cells).map(|_| Postgres::start()).collect::<Result<_, _>>()?;
        Ok(Self { servers })
    }

    /// New databases, with this number of store cells.
    fn databases(&self, cells: usize) -> anyhow::Result<Databases> {
        let urls = self.servers.iter().take(cells + 1).map(Postgres::database);
        let mut urls = urls.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Databases { home: urls.remove(0), cells: urls })
    }
}

/// A replica without a rate limit, an experiment there, and connections.
struct Under {
    replica: Replica,
    experiment: Specification,
    day: Day,
    ways: Vec<DeviceClient<Channel>>,
}

impl Under {
    async fn start(databases: &Databases) -> anyhow::Result<Self> {
        let list = databases.list();
        let flags = [&NO_LIMIT[..], &["--store-cells", &list]].concat();
        let mut replica = Replica::start_with(&flags, &databases.home).await?;
        let experiment = replica.create(three_arms("load")).await?;
        let day = replica.day("load").await?;
        let mut ways = Vec::new();
        for _ in 0..CONNECTIONS {
            ways.push(DeviceClient::connect(replica.process.device_url.clone()).await?);
        }
        Ok(Self { replica, experiment, day, ways })
    }
}

/// Numbers of uploads in no order.
fn scattered(number: u128) -> u128 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// Microseconds of processor time of an upload, and uploads a second.
#[derive(Clone, Copy)]
struct Cost {
    replica: f64,
    databases: f64,
    rate: f64,
}

async fn cost(databases: &Databases, in_flight: usize, seconds: Duration) -> anyhow::Result<Cost> {
    let under = Under::start(databases).await?;
    let mut families = Vec::new();
    for url in std::iter::once(&databases.home).chain(&databases.cells) {
        families.push(Database::find(url).await?);
    }
    let process = under.replica.process.id()?;
    let used = || {
        let databases = families.iter().map(|family| family.processor_time());
        anyhow::Ok((processor_time(process)?, databases.sum::<anyhow::Result<Duration>>()?))
    };
    let (counted, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut workers = JoinSet::new();
    for worker in 0..in_flight {
        let mut way = under.ways[worker % CONNECTIONS].clone();
        let worker = u128::try_from(worker)?;
        let (experiment, day) = (under.experiment.clone(), under.day);
        let (counted, is_over) = (Arc::clone(&counted), Arc::clone(&is_over));
        workers.spawn(async move {
            for number in 0_u128.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let number = scattered(worker << 64 | number);
                let request = upload(number, &experiment, day, &[(0, true)])?;
                let told = way.submit_upload(request).await?.into_inner().status();
                ensure!(told == UploadStatus::Accepted, "{told:?}");
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    // The first uploads make partitions and prepare statements.
    tokio::time::sleep(seconds / 4).await;
    let (begin, before, first) = (Instant::now(), used()?, counted.load(Ordering::Relaxed));
    tokio::time::sleep(seconds).await;
    let (after, last) = (used()?, counted.load(Ordering::Relaxed));
    let (took, uploads) = (begin.elapsed(), last - first);
    is_over.store(true, Ordering::Relaxed);
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    under.replica.process.stop().await?;
    ensure!(uploads > 0, "nothing was counted");
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let uploads = uploads as f64;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / uploads;
    Ok(Cost {
        replica: each(after.0.saturating_sub(before.0)),
        databases: each(after.1.saturating_sub(before.1)),
        rate: uploads / took.as_secs_f64(),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the processor time of an upload for each number of store cells.
pub(super) fn costs() -> anyhow::Result<()> {
    let Extent { rounds, cells, seconds, .. } = Extent::of_run()?;
    let servers = Servers::start(cells.iter().copied().max().unwrap_or(1))?;
    let mut all: BTreeMap<(bool, usize), Vec<Cost>> = BTreeMap::new();
    for _ in 0..rounds {
        for &cells in &cells {
            for is_each in [false, true] {
                let in_flight = IN_FLIGHT * if is_each { cells } else { 1 };
                let databases = servers.databases(cells)?;
                let cost = block_on(cost(&databases, in_flight, seconds))?;
                all.entry((is_each, cells)).or_default().push(cost);
            }
        }
    }
    let of = |costs: &[Cost], of: fn(&Cost) -> f64| median(costs.iter().map(of).collect());
    let one = of(&all[&(false, 1)], |cost| cost.replica + cost.databases);
    for ((is_each, cells), costs) in &all {
        let whose = if *is_each { "each" } else { "all" };
        let [replica, databases] =
            [of(costs, |cost| cost.replica), of(costs, |cost| cost.databases)];
        let (both, rate) =
            (of(costs, |cost| cost.replica + cost.databases), of(costs, |cost| cost.rate));
        eprintln!(
            "{cells} store cells, {IN_FLIGHT} in flight for {whose}: {replica:.1} us of the replica \
             + {databases:.1} us of databases, {:.2} of one cell; {rate:.0} uploads a second",
            both / one
        );
    }
    Ok(())
}

/// The 99th percentile of the waits of uploads that belong to no store cell but these, in
/// milliseconds, when all come at a steady rate.
async fn waits(
    under: &Under,
    routes: &Routes,
    hangs: Option<StoreCell>,
    (first, seconds): (u128, Duration),
) -> anyhow::Result<f64> {
    let mut pace = interval(Duration::from_secs(1) / RATE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    let begin = Instant::now();
    for number in first.. {
        if begin.elapsed() >= seconds {
            break;
        }
        let due = pace.tick().await;
        let number = scattered(number);
        let request = upload(number, &under.experiment, under.day, &[(0, true)])?;
        let mut way = under.ways[usize::try_from(number % 8)? % CONNECTIONS].clone();
        let holder = routes.holder(under.day, UploadId::new(number.to_be_bytes()));
        let is_other = hangs.is_none_or(|cell| holder != Holder::Cell(cell));
        calls.spawn(async move {
            let told = way.submit_upload(request).await;
            if !is_other {
                return Ok(None);
            }
            let told = told?.into_inner().status();
            ensure!(told == UploadStatus::Accepted, "{told:?}");
            Ok(Some(due.elapsed().as_secs_f64() * 1e3))
        });
    }
    let mut waits = Vec::new();
    while let Some(call) = calls.join_next().await {
        waits.extend(call??);
    }
    waits.sort_by(f64::total_cmp);
    waits.get(waits.len() * 99 / 100).copied().context("no upload")
}

/// Prints how long other uploads wait while a store cell hangs. All of them are counted.
pub(super) fn hang() -> anyhow::Result<()> {
    const CELLS: usize = 4;
    let Extent { rounds, seconds, .. } = Extent::of_run()?;
    let servers = Servers::start(CELLS)?;
    let databases = servers.databases(CELLS)?;
    let cells = (1..).map_while(StoreCell::new).take(CELLS).collect();
    let routes = Routes::new(vec![Generation { from: Day::new(0), cells }], None);
    let frozen = StoreCell::new(2);
    block_on(async {
        let mut under = Under::start(&databases).await?;
        waits(&under, &routes, None, (0, seconds)).await?;
        let (mut calm, mut others) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            let first = u128::try_from(round)? << 32;
            calm.push(waits(&under, &routes, frozen, (first, seconds)).await?);
            let hanging = tokio::task::block_in_place(|| servers.servers[2].freeze())?;
            others.push(waits(&under, &routes, frozen, (first + (1 << 24), seconds)).await?);
            drop(hanging);
            // Until all store cells count again.
            let again = first + (1 << 28);
            for number in again..again + 64 {
                let upload = scattered(number);
                poll_until("an upload is not counted", async || {
                    let told = submit(&under.replica, &under.experiment, under.day, upload).await;
                    Ok(told.is_ok())
                })
                .await?;
            }
        }
        let ratios = calm.iter().zip(&others).map(|(calm, others)| others / calm).collect();
        eprintln!(
            "99th percentile of uploads to other store cells: {:.2} ms, while one hangs {:.2} ms; \
             the ratio is {:.2}",
            median(calm),
            median(others),
            median(ratios)
        );
        let counted = under.replica.tallies("load").await?[0].0;
        let (_, ids) = databases.ids()?;
        ensure!(counted == ids.iter().sum::<u64>(), "{counted}, {ids:?}");
        under.replica.process.stop().await
    })
}

/// Prints the time from an acknowledged upload to a policy that has learnt of it.
pub(super) fn policies() -> anyhow::Result<()> {
    let Extent { cells, policies, .. } = Extent::of_run()?;
    let servers = Servers::start(cells.iter().copied().max().unwrap_or(1))?;
    for &cells in &cells {
        let databases = servers.databases(cells)?;
        block_on(async {
            let under = Under::start(&databases).await?;
            let mut ages = Vec::new();
            for number in 1..=policies {
                let told =
                    submit(&under.replica, &under.experiment, under.day, number.into()).await?;
                ensure!(told == UploadStatus::Accepted, "{told:?}");
                let begin = Instant::now();
                until_learnt(&databases.home, &number.to_string()).await?;
                ages.push(begin.elapsed().as_secs_f64());
            }
            let most = ages.iter().copied().fold(0.0, f64::max);
            eprintln!(
                "with {cells} store cells a policy has a report after {:.2} s, {most:.2} s at most",
                median(ages)
            );
            under.replica.process.stop().await
        })?;
    }
    Ok(())
}
