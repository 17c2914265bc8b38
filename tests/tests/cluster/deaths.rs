//! Replicas and their database are killed under load, and no upload is lost or counted twice.
//!
//! It fails when an upload that was acknowledged is not counted exactly once, when an upload is
//! finally refused, or when a replica's policy is older than before. The size comes from
//! `BANDANA_CLUSTER_UPLOADS`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::load::{Load, Manners};
use bandana_shared::wire::v1::GetExperimentRequest;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::postgres::Postgres;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{DeviceWay, PATIENCE, REPLICAS, Replica, ask, block_on};

const SEED: u64 = 3;
const WORKERS: usize = 24;

/// Lost answers, repeated uploads, and random replicas for all calls.
const MANNERS: Manners = Manners { lose: 0.125, repeat: 0.1, wander: true, seed: SEED };

/// Connections to the replicas, and the policies fetched over them.
#[derive(Default)]
struct Policies {
    ways: Mutex<Vec<DeviceWay>>,
    fetched: AtomicU64,
}

impl Policies {
    fn replace(&self, replicas: &[Replica]) {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        *ways = replicas.iter().map(Replica::device_way).collect();
    }

    /// Fetches policies from the replicas in turn. The policies of one process must not get older.
    async fn follow(self: Arc<Self>) -> anyhow::Result<()> {
        for turn in 0_usize.. {
            let way = {
                let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
                ways[turn % ways.len()].clone()
            };
            self.fetch(way).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Whether the policies were fetched all the time.
    async fn check(&self, following: JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
        ensure!(!following.is_finished(), "{:?}", following.await);
        following.abort();
        ensure!(self.fetched.load(Ordering::Relaxed) > 0, "no policy was fetched");
        Ok(())
    }

    async fn fetch(&self, (mut device, newest): DeviceWay) -> anyhow::Result<()> {
        let before = newest.load(Ordering::SeqCst);
        let experiment_id = "deaths".to_owned();
        let request = GetExperimentRequest { experiment_id };
        // The server may be down.
        let Ok(answer) = device.get_experiment(request).await else { return Ok(()) };
        let version = answer.into_inner().policy.context("an answer without a policy")?.version;
        ensure!(version >= before, "one process: {version} came after {before}");
        newest.fetch_max(version, Ordering::SeqCst);
        self.fetched.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The reports of an upload: one report of the first arm, and a pattern that depends on the number,
/// so that mixed-up uploads are detected.
fn reports(number: u128) -> Vec<(usize, bool)> {
    let mut reports = vec![(0, number.is_multiple_of(2))];
    reports.extend((0..number % 7).map(|_| (1, number.is_multiple_of(3))));
    reports.extend((0..number % 5).map(|_| (2, number.is_multiple_of(11))));
    reports
}

fn devices(replicas: &[Replica]) -> Vec<DeviceClient<Channel>> {
    replicas.iter().map(|replica| replica.device.clone()).collect()
}

fn is_unavailable(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Status>().is_some_and(|status| status.code() == Code::Unavailable)
}

/// Checks that all replicas count every report exactly once.
async fn check(replicas: &mut [Replica], total: usize, mut newest: u64) -> anyhow::Result<()> {
    let mut expected = vec![(0, 0); 3];
    for (arm, bit) in (0..total as u128).flat_map(reports) {
        expected[arm].0 += 1;
        expected[arm].1 += u64::from(bit);
    }
    let all: u64 = expected.iter().map(|(reports, _)| reports).sum();
    for replica in replicas {
        let refreshed = async {
            loop {
                match replica.refresh("deaths").await {
                    // The database has just restarted.
                    Err(error) if is_unavailable(&error) => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    refreshed => return refreshed,
                }
            }
        };
        let (version, reports) = tokio::time::timeout(PATIENCE, refreshed).await??;
        ensure!(version >= newest && reports == all, "{version}, {newest}; {reports}, {all}");
        newest = version;
        let tallies = replica.tallies("deaths").await?;
        ensure!(tallies == expected, "{tallies:?} and not {expected:?}");
    }
    Ok(())
}

pub(crate) fn deaths(server: &Postgres) -> anyhow::Result<()> {
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
        let make = move |number| {
            let number = numbers[usize::try_from(number)?];
            upload(number, &experiment, day, &reports(number))
        };
        let load = Load::new(devices(&replicas), total as u64, MANNERS, Box::new(make));
        let mut workers = load.start(WORKERS);
        let policies = Arc::new(Policies::default());
        policies.replace(&replicas);
        let following = tokio::spawn(Arc::clone(&policies).follow());
        // Kills are triggered by progress, not by time.
        let mut newest = 0;
        for death in 1..=8 {
            let reached = async {
                while load.acknowledged() < (total * death / 10) as u64 {
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
            load.replace(devices(&replicas));
            policies.replace(&replicas);
            if let Ok((version, _)) = replicas[(place + 1) % REPLICAS].refresh("deaths").await {
                ensure!(version >= newest, "{version} came after {newest}");
                newest = version;
            }
        }
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        check(&mut replicas, total, newest).await?;
        let (acknowledged, refused) = (load.acknowledged(), load.refused());
        let complaints = load.complaints();
        ensure!(
            acknowledged == total as u64 && refused == 0,
            "{acknowledged} acknowledged, {refused} refused: {complaints:?}"
        );
        let (sent, told) = (load.calls(), load.duplicates());
        ensure!(
            sent > total as u64 && told > 0,
            "{sent} calls, {told} duplicates: nothing was repeated"
        );
        policies.check(following).await?;
        let names = ask(&url, "SELECT count(*) FROM upload").await?;
        ensure!(names == [[total.to_string()]], "{names:?}");
        for replica in replicas {
            replica.process.stop().await?;
        }
        Ok(())
    })
}
