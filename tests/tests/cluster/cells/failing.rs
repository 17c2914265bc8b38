//! Store cells that hang or die under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{ExperimentName, UploadStatus};
use bandana_tests::harness::three_arms;
use bandana_tests::page;
use bandana_tests::postgres::Postgres;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::site::{Databases, submit};
use crate::{PATIENCE, Replica, ask, block_on, poll_until};

type Alone = fn() -> anyhow::Result<()>;

pub(super) const ALL: &[(&str, Alone)] = &[
    ("a_store_cell_that_hangs_or_dies_holds_up_only_its_own_uploads", hangs_and_dies),
    ("replicas_start_without_a_store_cell_and_learn_of_a_pause_when_it_is_back", back),
    ("a_database_that_refuses_commits_is_told_and_tried_again", refuses),
];

const WORKERS: u128 = 8;

/// Uploads from several workers. Each sends an upload until it is answered with a verdict, but goes on
/// with the next ones meanwhile.
struct Load {
    workers: JoinSet<anyhow::Result<u64>>,
    accepted: Arc<AtomicU64>,
    turned_away: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    fn start(replicas: &[Replica], experiment: &Specification, day: Day) -> Self {
        let mut workers = JoinSet::new();
        let (accepted, turned_away) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let is_over = Arc::new(AtomicBool::new(false));
        for (worker, replica) in (0..WORKERS).zip(replicas.iter().cycle()) {
            let mut device = replica.device.clone();
            let (experiment, accepted) = (experiment.clone(), Arc::clone(&accepted));
            let (turned_away, is_over) = (Arc::clone(&turned_away), Arc::clone(&is_over));
            workers.spawn(async move {
                let mut uploaded = 0;
                let mut again: Vec<u128> = Vec::new();
                let mut next = worker << 64;
                while !(is_over.load(Ordering::Relaxed) && again.is_empty()) {
                    // Every third time one that was turned away.
                    let number = match again.pop() {
                        Some(number) if next % 3 == 0 || is_over.load(Ordering::Relaxed) => number,
                        other => {
                            again.extend(other);
                            next += 1;
                            uploaded += 1;
                            next
                        }
                    };
                    let request =
                        bandana_tests::harness::upload(number, &experiment, day, &[(0, true)])?;
                    match device.submit_upload(request).await {
                        Ok(told) => {
                            let status = told.into_inner().status();
                            let counts = [UploadStatus::Accepted, UploadStatus::Duplicate];
                            ensure!(counts.contains(&status), "{status:?}");
                            accepted.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(status) => {
                            may_come_again(&status)?;
                            turned_away.fetch_add(1, Ordering::Relaxed);
                            again.insert(0, number);
                            next += 1;
                            uploaded += 1;
                            again.push(next);
                        }
                    }
                }
                Ok(uploaded)
            });
        }
        Self { workers, accepted, turned_away, is_over }
    }

    /// Waits until this many more uploads were counted, and any number or some were turned away.
    async fn until(&self, more: u64, turned_away: u64) -> anyhow::Result<()> {
        let now =
            || (self.accepted.load(Ordering::Relaxed), self.turned_away.load(Ordering::Relaxed));
        let begin = now();
        let are_there = async || Ok(now().0 >= begin.0 + more && now().1 >= begin.1 + turned_away);
        let waited = poll_until("uploads are not answered", are_there).await;
        waited.with_context(|| format!("from {begin:?} to {:?}", now()))
    }

    /// Ends when all uploads were answered, and returns their number.
    async fn end(mut self) -> anyhow::Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut uploaded = 0;
        while let Some(worker) = tokio::time::timeout(PATIENCE, self.workers.join_next()).await? {
            uploaded += worker??;
        }
        Ok(uploaded)
    }
}

fn may_come_again(status: &Status) -> anyhow::Result<()> {
    ensure!(matches!(status.code(), Code::Unavailable | Code::ResourceExhausted), "{status}");
    Ok(())
}

/// What `/readyz` and the alarm of an experiment say.
async fn told(replica: &mut Replica, name: &str) -> anyhow::Result<(u16, String, Vec<String>)> {
    let address = replica.process.operator_url.strip_prefix("http://").context("an odd URL")?;
    let page = page::get(address, "/readyz", &[]).await?;
    let request = ExperimentName { experiment_id: name.to_owned() };
    let status = replica.operator.get_experiment_status(request).await?.into_inner();
    let alarms = status.alarms.into_iter().filter(|alarm| alarm.name == "store-cell-down");
    Ok((page.status, page.body, alarms.map(|alarm| alarm.message).collect()))
}

async fn until_named(replica: &mut Replica, name: &str, cell: Option<u32>) -> anyhow::Result<()> {
    let expected = match cell {
        Some(cell) => format!("ready\nstore cell {cell} is not ready\n"),
        None => "ready\n".to_owned(),
    };
    let words = cell.map(|cell| format!("store cell {cell} can't be used"));
    poll_until("the store cell is not named", async || {
        // Without the home, the alarms are not known.
        let (status, page, alarms) = told(replica, name).await.unwrap_or_default();
        let rings = match (&words, &alarms[..]) {
            (Some(words), [alarm]) => alarm.contains(words),
            (None, []) => true,
            _ => false,
        };
        Ok(status == 200 && page == expected && rings)
    })
    .await
}

fn hangs_and_dies() -> anyhow::Result<()> {
    let home = Postgres::start()?;
    let servers = [Postgres::start()?, Postgres::start()?];
    let cells = servers.iter().map(Postgres::database).collect::<Result<_, _>>()?;
    let databases = Databases { home: home.database()?, cells };
    block_on(async {
        let mut replicas = vec![databases.replica().await?, databases.replica().await?];
        let experiment = replicas[0].create(three_arms("hangs")).await?;
        let day = replicas[1].day("hangs").await?;
        let load = Load::start(&replicas, &experiment, day);
        load.until(200, 0).await?;

        let frozen = servers[1].freeze()?;
        // The others are counted, and those of the cell are turned away.
        load.until(200, 20).await?;
        for replica in &mut replicas {
            until_named(replica, "hangs", Some(2)).await?;
        }
        // Each replica keeps what it read last.
        let before = replicas[1].tallies("hangs").await?[0].0;
        let (_, learnt) = replicas[1].refresh("hangs").await?;
        ensure!(learnt >= before, "{learnt} reports, and {before} before");
        load.until(100, 0).await?;
        poll_until("the others are not read", async || {
            Ok(replicas[1].tallies("hangs").await?[0].0 >= before + 100)
        })
        .await?;
        drop(frozen);
        for replica in &mut replicas {
            until_named(replica, "hangs", None).await?;
        }

        tokio::task::block_in_place(|| servers[0].crash())?;
        load.until(100, 20).await?;
        until_named(&mut replicas[1], "hangs", Some(1)).await?;
        tokio::task::block_in_place(|| servers[0].resume())?;
        until_named(&mut replicas[1], "hangs", None).await?;
        load.until(200, 0).await?;

        // Without the home, uploads are counted in the store cells.
        let frozen = home.freeze()?;
        load.until(300, 0).await?;
        drop(frozen);
        for replica in &mut replicas {
            until_named(replica, "hangs", None).await?;
        }

        let uploaded = load.end().await?;
        // What another replica has acknowledged is read at the next poll.
        for replica in &mut replicas {
            poll_until("not all are counted", async || {
                let counted = replica.tallies("hangs").await?[0].0;
                ensure!(counted <= uploaded, "{counted} of {uploaded} are counted");
                Ok(counted == uploaded)
            })
            .await?;
        }
        for replica in replicas {
            replica.process.stop().await?;
        }
        let (at_home, ids) = databases.ids()?;
        ensure!((at_home, ids.iter().sum::<u64>()) == (0, uploaded), "{ids:?} of {uploaded}");
        let verified = databases.verify()?;
        ensure!(verified.is_sound(), "{:?}", verified.findings);
        Ok(())
    })
}

/// Makes a database refuse the uploads that it is given, as one whose disk is full.
const REFUSE: &str = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON tally FOR EACH STATEMENT EXECUTE FUNCTION refuse()";

fn refuses() -> anyhow::Result<()> {
    let server = Postgres::start()?;
    let (alone, databases) = (server.database()?, Databases::new(&server, 2)?);
    block_on(async {
        let mut number = 0;
        let mut submitting = async |replica: &Replica, experiment: &Specification, day| {
            number += 1;
            submit(replica, experiment, day, number).await.is_ok()
        };
        // The only database: the replica is not ready, until uploads may be tried again.
        let mut replica = Replica::start(&alone).await?;
        let experiment = replica.create(three_arms("full")).await?;
        let day = replica.day("full").await?;
        ensure!(submitting(&replica, &experiment, day).await);
        ask(&alone, REFUSE).await?;
        poll_until("it stays ready", async || {
            let counted = submitting(&replica, &experiment, day).await;
            ensure!(!counted, "an upload was acknowledged");
            Ok(told(&mut replica, "full").await?.0 == 503)
        })
        .await?;
        ask(&alone, "DROP TRIGGER refuse ON tally").await?;
        // No upload comes, since it is not ready.
        poll_until("it stays unready", async || Ok(told(&mut replica, "full").await?.0 == 200))
            .await?;
        ensure!(submitting(&replica, &experiment, day).await);
        replica.process.stop().await?;

        // A store cell is named, and the others go on.
        let mut replica = databases.replica().await?;
        let experiment = replica.create(three_arms("full")).await?;
        let day = replica.day("full").await?;
        ask(&databases.cells[1], REFUSE).await?;
        let expected = "ready\nstore cell 2 is not ready\n";
        poll_until("it is not named", async || {
            submitting(&replica, &experiment, day).await;
            let (status, page, alarms) = told(&mut replica, "full").await?;
            let is_told = alarms.iter().any(|alarm| alarm.contains("refuses to commit"));
            Ok(status == 200 && page == expected && is_told)
        })
        .await?;
        ask(&databases.cells[1], "DROP TRIGGER refuse ON tally").await?;
        poll_until("it stays named", async || {
            submitting(&replica, &experiment, day).await;
            Ok(told(&mut replica, "full").await?.1 == "ready\n")
        })
        .await?;
        replica.process.stop().await
    })
}

fn back() -> anyhow::Result<()> {
    let home = Postgres::start()?;
    let servers = [Postgres::start()?, Postgres::start()?];
    let cells = servers.iter().map(Postgres::database).collect::<Result<_, _>>()?;
    let databases = Databases { home: home.database()?, cells };
    block_on(async {
        let mut first = databases.replica().await?;
        let experiment = first.create(three_arms("back")).await?;
        let day = first.day("back").await?;
        for number in 0..40 {
            submit(&first, &experiment, day, number).await?;
        }
        tokio::task::block_in_place(|| servers[0].crash())?;
        // A replica that starts meanwhile takes the uploads of the other cell.
        let mut late = databases.replica().await?;
        until_named(&mut late, "back", Some(1)).await?;
        let (mut counted, mut turned_away) = (0, 0);
        for number in 100..140 {
            match submit(&late, &experiment, day, number).await {
                Ok(UploadStatus::Accepted) => counted += 1,
                Ok(other) => anyhow::bail!("{other:?}"),
                Err(error) => {
                    may_come_again(error.downcast_ref().context("no status")?)?;
                    turned_away += 1;
                }
            }
        }
        ensure!(counted > 0 && turned_away > 0, "{counted}, {turned_away}");
        // The cell can't be told about the pause before it is back.
        first.operator.pause_experiment(ExperimentName { experiment_id: "back".into() }).await?;
        tokio::task::block_in_place(|| servers[0].resume())?;
        for number in 200..240 {
            let told = submit(&late, &experiment, day, number).await;
            ensure!(!matches!(told, Ok(UploadStatus::Accepted)), "{number} was counted in a pause");
        }
        until_named(&mut late, "back", None).await?;
        for number in 200..240 {
            let told = submit(&late, &experiment, day, number).await?;
            ensure!(told == UploadStatus::Paused, "{told:?}");
        }
        // The tallies of the cell are there again.
        poll_until("tallies are missing", async || {
            Ok(late.tallies("back").await?[0].0 == 40 + counted)
        })
        .await?;
        for replica in [first, late] {
            replica.process.stop().await?;
        }
        Ok(())
    })
}
