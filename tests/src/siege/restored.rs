//! The end of a round on a directory: its store is replaced, and a backup restored.

use std::time::Duration;

use anyhow::Context as _;
use bandana_shared::identity::Day;
use bandana_shared::wire::v1::{
    ExperimentName, ExperimentState, ListDataSetsRequest, UploadRequest, UploadStatus,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::checks::counted;
use super::disclosers::{experiments, named};
use super::figures::{Figures, Group};
use super::round::{Books, Ground, Plan, way_to};
use super::server::Server;
use super::trouble::Backup;
use super::uploaders::tally;
use super::ways::Way;
use crate::harness::upload;

/// Uploads of each device that are sent again.
const AGAIN: usize = 100;

/// Checks that a server notices when its store is replaced, and what a restored one promises.
///
/// # Errors
/// When that can't be done.
pub(super) async fn check(
    ground: &mut Ground,
    books: &Books,
    backup: &Backup,
    day: Day,
    figures: &Figures,
    plan: &Plan,
) -> anyhow::Result<()> {
    replace(ground, books, backup, day, figures).await?;
    let folder = ground.folder().join("restored");
    std::fs::create_dir(&folder)?;
    std::fs::copy(&backup.file, folder.join("bandana.sqlite3"))?;
    let store = folder.to_str().context("an odd name")?.to_owned();
    let arguments = vec!["--data-dir".to_owned(), store.clone()];
    let mut server =
        Server::new("restored".to_owned(), &plan.program, arguments, ground.folder(), 0).await?;
    server.start(&[]).await?;
    figures.add(Group::Trouble, "backups restored", 1);
    resume(&mut way_to(&server)?, books).await?;
    check_uploads(&mut way_to(&server)?, books, backup, figures, plan).await?;
    check_spent(&mut way_to(&server)?, figures).await?;
    if let Err(error) = server.stop().await {
        figures.wrong(format!("{error:#}"));
    }
    let (code, said) = ground.custodian.run(&["verify", "--data-dir", &store]).await?;
    if code != Some(0) {
        figures.wrong(format!("verify of a restored store ended with {code:?}: {said}"));
    }
    Ok(())
}

/// Puts the backup in the place of the store while the server runs.
async fn replace(
    ground: &mut Ground,
    books: &Books,
    backup: &Backup,
    day: Day,
    figures: &Figures,
) -> anyhow::Result<()> {
    let store = std::path::PathBuf::from(&ground.custodian.store[1]);
    let server = &mut ground.site.servers[0];
    server.start(&[]).await?;
    let mut way = way_to(server)?;
    let beside = store.join("older");
    std::fs::copy(&backup.file, &beside)?;
    std::fs::rename(&beside, store.join("bandana.sqlite3"))?;
    figures.add(Group::Trouble, "stores replaced", 1);
    let experiment = books.experiments.first().context("no experiment")?;
    let told = way.device.submit_upload(upload(1, experiment, day, &[(0, true)])?).await;
    if let Ok(answer) = told {
        figures.wrong(format!("an upload into a replaced store was answered {answer:?}"));
    }
    match tokio::time::timeout(Duration::from_secs(30), server.ended()).await {
        Ok(Ok(status)) if status.code() == Some(1) => Ok(()),
        other => {
            figures.wrong(format!("a server whose store was replaced ended with {other:?}"));
            server.kill().await.ok();
            Ok(())
        }
    }
}

/// A backup may have been made during a pause.
async fn resume(way: &mut Way, books: &Books) -> anyhow::Result<()> {
    for experiment in &books.experiments {
        let name = ExperimentName { experiment_id: experiment.experiment_id().to_string() };
        let status = way.operator.get_experiment_status(name.clone()).await?.into_inner();
        if status.state() == ExperimentState::Paused {
            way.operator.resume_experiment(name).await?;
        }
    }
    Ok(())
}

/// What was acknowledged before the backup counts no more, and what came after it counts once.
async fn check_uploads(
    way: &mut Way,
    books: &Books,
    backup: &Backup,
    figures: &Figures,
    plan: &Plan,
) -> anyhow::Result<()> {
    let mut expected = counted(way, books).await?;
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
    for book in &books.uploads {
        for _ in 0..AGAIN.min(book.last.len()) {
            let upload = &book.last[random.random_range(0..book.last.len())];
            match submit(way, &upload.request).await? {
                UploadStatus::Duplicate => {
                    figures.add(Group::Honest, "uploads known to a restored store", 1);
                }
                UploadStatus::Accepted if upload.at > backup.begun => {
                    figures.add(Group::Honest, "uploads new to a restored store", 1);
                    tally(&mut expected, upload.experiment, &upload.reports);
                }
                other => figures.wrong(format!("a restored store answered {other:?}")),
            }
            let again = submit(way, &upload.request).await?;
            if again != UploadStatus::Duplicate {
                figures.wrong(format!("a restored store answered {again:?} the second time"));
            }
        }
    }
    let counted = counted(way, books).await?;
    if counted != expected {
        figures.wrong(format!("restored: expected were {expected:?}, counted {counted:?}"));
    }
    Ok(())
}

async fn submit(way: &mut Way, request: &UploadRequest) -> anyhow::Result<UploadStatus> {
    Ok(way.device.submit_upload(request.clone()).await?.into_inner().status())
}

/// Nothing is left to spend in a restored store, and no reward to release.
async fn check_spent(way: &mut Way, figures: &Figures) -> anyhow::Result<()> {
    let listed = way.curator.list_data_sets(ListDataSetsRequest::default()).await?.into_inner();
    for set in listed.data_sets {
        if set.spent_nanos != set.budget_nanos {
            figures.wrong(format!("restored: {set:?} can be asked"));
        }
    }
    for experiment in experiments() {
        let name = named(&experiment.experiment_id);
        let status = way.trusted_operator.get_trusted_status(name).await?.into_inner();
        if status.state() != ExperimentState::Stopped {
            figures.wrong(format!("restored: {status:?} goes on"));
        }
    }
    Ok(())
}
