//! A primary that hangs, is replaced, or has recovered without its standby: what a failover looks like to
//! replicas whose URL names several hosts.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::UploadStatus as S;
use bandana_tests::harness::tallies;
use bandana_tests::postgres::{Postgres, query};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::Case;
use super::frozen::{Alone, wait_for_standby};
use super::site::{PATIENCE, Site, block_on, submit};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_host_that_says_nothing_does_not_keep_replicas_from_the_others", silent_host),
    ("replicas_leave_a_former_primary_whose_commits_hang", former_primary),
    ("an_upload_that_only_a_recovered_primary_has_is_not_acknowledged", recovered),
];

/// The time in which an upload is sent again and again while nobody may acknowledge it. Without a commit
/// of its own it would be, after half of it.
const REFUSED: Duration = Duration::from_secs(8);

/// A URL that names the servers with these sockets, in this order.
fn several(url: &str, sockets: &[PathBuf]) -> anyhow::Result<String> {
    let (database, _) = url.split_once("?host=").context("no socket")?;
    let folders = sockets.iter().map(|socket| {
        Ok(socket.parent().context("no folder")?.to_str().context("an odd folder")?.to_owned())
    });
    let folders: Vec<String> = folders.collect::<anyhow::Result<_>>()?;
    Ok(format!("{database}?host={}", folders.join("&host=")))
}

/// Sends an upload again until it is acknowledged.
async fn insist(
    site: &Site,
    experiment: &Specification,
    day: Day,
    number: u128,
) -> anyhow::Result<()> {
    let acknowledged = async {
        loop {
            match submit(&site.device, experiment, day, number).await {
                Ok(S::Accepted | S::Duplicate) => return Ok(()),
                Err(status) if status.code() == Code::Unavailable => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                told => anyhow::bail!("{told:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, acknowledged).await.context("never acknowledged")?
}

fn silent_host(server: &Postgres) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join(".s.PGSQL.5432");
    // The system accepts connections for it, as for a stopped process.
    let _silent = UnixListener::bind(&socket)?;
    let url = several(&server.database()?, &[socket, server.socket()])?;
    block_on(async {
        let mut site = Site::start(&url, &[]).await?;
        let experiment = site.create("several").await?;
        let day = site.day("several").await?;
        insist(&site, &experiment, day, 0).await?;
        site.until_ready(true, PATIENCE).await?;
        site.process.stop().await
    })
}

/// A server with the data of this one, which is down meanwhile.
fn copied(server: &Postgres) -> anyhow::Result<Postgres> {
    server.crash()?;
    let copy = |data: &Path| {
        std::fs::remove_dir_all(data)?;
        let copied = Command::new("cp").arg("-a").arg(server.data()).arg(data).status()?;
        ensure!(copied.success(), "cp ended with {copied}");
        Ok(())
    };
    let next = Postgres::start_with("-c listen_addresses=''", copy)?;
    server.resume()?;
    Ok(next)
}

/// The first of two hosts answers, but commits nothing: its standby has been promoted.
fn former_primary(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    let name = url.split(['/', '?']).nth(3).context("no name")?.to_owned();
    let _alone = Alone(&url);
    block_on(async {
        let mut site = Site::start(&url, &[]).await?;
        let experiment = site.create("former").await?;
        let day = site.day("former").await?;
        insist(&site, &experiment, day, 0).await?;
        site.process.stop().await?;
        // The standby has the experiment and one upload.
        let next = tokio::task::block_in_place(|| copied(server))?;
        tokio::task::block_in_place(|| next.crash())?;
        let both = several(&url, &[server.socket(), next.socket()])?;
        let mut site = Site::start(&both, &[]).await?;
        let on = |server: &Postgres| {
            let count = "SELECT count(*) FROM upload";
            let rows = tokio::task::block_in_place(|| query(&server.url(&name), count))?;
            Ok::<u64, anyhow::Error>(rows.first().context("no row")?[0].parse()?)
        };
        insist(&site, &experiment, day, 1).await?;
        tokio::task::block_in_place(|| next.resume())?;
        ensure!((on(server)?, on(&next)?) == (2, 1), "it has not counted at the first");
        tokio::task::block_in_place(|| wait_for_standby(&url, "promoted"))?;
        // The setting takes effect some time after it was made: uploads until then go to the first.
        let begin = Instant::now();
        for number in 2.. {
            insist(&site, &experiment, day, number).await?;
            if on(&next)? >= 3 {
                break;
            }
            ensure!(begin.elapsed() < PATIENCE, "it has not left the first");
        }
        // All connections have left it: operators see what the second host has.
        let sees = async {
            let expected = on(&next)?;
            while tallies(&mut site.operator, &experiment)
                .await
                .ok()
                .is_none_or(|arms| arms[0].0 != expected)
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, sees).await.context("operators see the first")??;
        site.process.stop().await
    })
}

/// A primary is killed while an upload waits for the standby. After it has recovered, everyone sees the
/// upload, but the standby still lacks it.
fn recovered(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    let _alone = Alone(&url);
    block_on(async {
        let mut site = Site::start(&url, &[]).await?;
        let experiment = site.create("recovered").await?;
        let day = site.day("recovered").await?;
        insist(&site, &experiment, day, 0).await?;
        tokio::task::block_in_place(|| wait_for_standby(&url, "nobody"))?;
        let waits = async {
            // The setting may take effect after an upload.
            for number in 1.. {
                if let Err(status) = submit(&site.device, &experiment, day, number).await {
                    return (number, status);
                }
            }
            (0, Status::internal("never"))
        };
        let (number, status) = tokio::time::timeout(PATIENCE, waits).await?;
        ensure!(status.code() == Code::Unavailable, "{status}");
        site.process.kill().await?;
        tokio::task::block_in_place(|| server.crash().and_then(|()| server.resume()))?;
        let count = "SELECT count(*) FROM upload";
        let rows = tokio::task::block_in_place(|| query(&url, count))?;
        ensure!(rows == [[(number + 1).to_string()]], "{rows:?}");
        // A replica that is new has not noticed that commits hang.
        let mut site = Site::start(&url, &[]).await?;
        let begin = Instant::now();
        while begin.elapsed() < REFUSED {
            let told = submit(&site.device, &experiment, day, number).await;
            let status = told.err().context("acknowledged, although no standby has it")?;
            ensure!(status.code() == Code::Unavailable, "{status}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::task::block_in_place(|| wait_for_standby(&url, ""))?;
        insist(&site, &experiment, day, number).await?;
        let counted = tallies(&mut site.operator, &experiment).await?[0].0;
        ensure!(u128::from(counted) == number + 1, "{counted}");
        site.process.stop().await
    })
}
