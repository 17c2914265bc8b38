//! A database that hangs: completely, on one connection, or during commits.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::{
    ExperimentName, ListAuditEntriesRequest, ListDataSetsRequest, UploadStatus as S,
};
use bandana_tests::harness::{create, tallies, three_arms};
use bandana_tests::postgres::{Postgres, query};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::Case;
use super::site::{PATIENCE, Site, block_on, submit};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_database_that_hangs_is_noticed_and_nobody_waits_for_it", hangs),
    ("a_database_that_reads_and_does_not_commit_is_noticed", does_not_commit),
    ("one_connection_that_hangs_holds_up_nobody_for_long", one_connection),
];

/// Far beyond the time to detect a hang, and below the statement timeout.
const NOTICED: Duration = Duration::from_secs(9);

/// Number of calls of each kind while the database hangs. If each waited for the statement timeout,
/// the test would exceed its time limit.
const CALLS: u128 = 8;

/// Makes calls that need the database, in sequence, and checks that all are refused at once.
async fn refused_at_once(site: &Site) -> anyhow::Result<()> {
    let mut operator = site.operator.clone();
    let mut curator = site.curator.clone();
    let name = || ExperimentName { experiment_id: "hangs".to_owned() };
    let calls = async {
        for _ in 0..CALLS {
            let told: [Result<(), Status>; 5] = [
                operator.pause_experiment(name()).await.map(drop),
                operator.refresh_policy(name()).await.map(drop),
                operator.list_audit_entries(ListAuditEntriesRequest::default()).await.map(drop),
                curator.list_data_sets(ListDataSetsRequest::default()).await.map(drop),
                create(&mut operator, three_arms("another"))
                    .await
                    .map(drop)
                    .map_err(|error| error.downcast().unwrap_or(Status::internal("no status"))),
            ];
            for told in told {
                let status = told.err().context("it was done")?;
                ensure!(status.code() == Code::Unavailable, "{status}");
                ensure!(!status.message().contains("may have"), "{status}");
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, calls).await.context("calls wait for the database")?
}

fn hangs(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let mut site = Site::start(&url, &[]).await?;
        let experiment = site.create("hangs").await?;
        let day = site.day("hangs").await?;
        ensure!(submit(&site.device, &experiment, day, 0).await? == S::Accepted);
        ensure!(site.is_ready().await?);
        let frozen = server.freeze()?;
        let begin = Instant::now();
        // Under way when the hang is detected.
        let mut under_way = JoinSet::new();
        for number in 1..=CALLS {
            let (device, experiment) = (site.device.clone(), experiment.clone());
            under_way.spawn(async move { submit(&device, &experiment, day, number).await });
        }
        site.until_ready(false, NOTICED).await?;
        eprintln!("503 after {:.2} s", begin.elapsed().as_secs_f64());
        while let Some(told) = under_way.join_next().await {
            let status = told?.err().context("nothing can be committed")?;
            ensure!(status.code() == Code::Unavailable, "{status}");
        }
        eprintln!(
            "uploads under way were turned away after {:.2} s",
            begin.elapsed().as_secs_f64()
        );
        let waits = async {
            for number in 1..=100 {
                let status = submit(&site.device, &experiment, day, number).await.err();
                let status = status.context("nothing can be committed")?;
                ensure!(status.code() == Code::Unavailable, "{status}");
            }
            anyhow::Ok(())
        };
        let begin = Instant::now();
        tokio::time::timeout(PATIENCE, waits).await.context("uploads wait")??;
        eprintln!("100 uploads were turned away in {:.2} s", begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        refused_at_once(&site).await?;
        eprintln!("{} operators' calls in {:.2} s", 5 * CALLS, begin.elapsed().as_secs_f64());
        ensure!(!site.is_ready().await?);

        drop(frozen);
        let begin = Instant::now();
        site.until_ready(true, PATIENCE).await?;
        eprintln!("200 after {:.2} s", begin.elapsed().as_secs_f64());
        for number in 0..=CALLS {
            let told = submit(&site.device, &experiment, day, number).await?;
            ensure!(matches!(told, S::Accepted | S::Duplicate), "{told:?}");
        }
        let counted = tallies(&mut site.operator, &experiment).await?[0].0;
        ensure!(u128::from(counted) == CALLS + 1, "{counted}");
        site.process.stop().await
    })
}

/// Makes commits wait for a standby of this name.
pub(super) fn wait_for_standby(url: &str, name: &str) -> anyhow::Result<()> {
    query(url, &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"))?;
    query(url, "SELECT pg_reload_conf()").map(drop)
}

/// Dropping this ends the wait of commits for a standby.
pub(super) struct Alone<'a>(pub(super) &'a str);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // A failure would show in the next test.
        wait_for_standby(self.0, "").ok();
    }
}

fn does_not_commit(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    let _alone = Alone(&url);
    block_on(async {
        let mut site = Site::start(&url, &[]).await?;
        let experiment = site.create("standby").await?;
        let day = site.day("standby").await?;
        ensure!(submit(&site.device, &experiment, day, 0).await? == S::Accepted);
        // From now on every commit waits for a standby that does not exist.
        tokio::task::block_in_place(|| wait_for_standby(&url, "nobody"))?;
        let told = async {
            // The setting may take effect after an upload.
            for number in 1.. {
                if let Err(status) = submit(&site.device, &experiment, day, number).await {
                    return (number, status);
                }
            }
            (0, Status::internal("never"))
        };
        let (number, status) = tokio::time::timeout(PATIENCE, told).await?;
        ensure!(status.code() == Code::Unavailable, "{status}");
        let begin = Instant::now();
        site.until_ready(false, NOTICED).await?;
        eprintln!("503 {:.2} s after the first upload", begin.elapsed().as_secs_f64());
        let waits = async {
            for _ in 0..100 {
                ensure!(submit(&site.device, &experiment, day, number).await.is_err());
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, waits).await.context("uploads wait")??;

        tokio::task::block_in_place(|| wait_for_standby(&url, ""))?;
        site.until_ready(true, PATIENCE).await?;
        let told = submit(&site.device, &experiment, day, number).await?;
        ensure!(matches!(told, S::Accepted | S::Duplicate), "{told:?}");
        let counted = tallies(&mut site.operator, &experiment).await?[0].0;
        ensure!(u128::from(counted) == number + 1, "{counted} of {number}");
        site.process.stop().await
    })
}

fn one_connection(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let mut site = Site::start(&url, &[]).await?;
        let experiment = site.create("one").await?;
        let day = site.day("one").await?;
        ensure!(submit(&site.device, &experiment, day, 0).await? == S::Accepted);
        // The connection that has committed the upload.
        let find = "SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND query LIKE '%INSERT INTO upload (day%'";
        let found = tokio::task::block_in_place(|| query(&url, find))?;
        let backend = found.first().context("no connection commits")?[0].parse()?;
        let backend = Pid::from_raw(backend).context("no process")?;
        kill_process(backend, Signal::STOP)?;
        let told = tokio::time::timeout(NOTICED, submit(&site.device, &experiment, day, 1)).await;
        kill_process(backend, Signal::CONT)?;
        // Through another connection.
        ensure!(told.context("it waits for the connection")?? == S::Accepted);
        ensure!(site.is_ready().await?);
        site.process.stop().await
    })
}
