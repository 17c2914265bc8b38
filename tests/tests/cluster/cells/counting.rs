//! Uploads that count once, wherever they are, and changes that every store cell respects.

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::{ExperimentName, UploadStatus};
use bandana_tests::harness::three_arms;
use bandana_tests::postgres::{Postgres, query};

use super::Case;
use super::site::{Databases, submit};
use crate::block_on;

pub(super) const ALL: &[(&str, Case)] = &[
    ("an_upload_counts_once_over_any_number_of_store_cells", once),
    ("a_pause_a_stop_and_a_deletion_hold_in_every_store_cell", states),
    ("verify_names_the_store_cell_that_is_damaged", damaged),
];

const UPLOADS: u128 = 120;

fn once(server: &Postgres) -> anyhow::Result<()> {
    for cells in [1, 2, 4] {
        let databases = Databases::new(server, cells)?;
        block_on(async {
            let mut first = databases.replica().await?;
            let mut other = databases.replica().await?;
            let experiment = first.create(three_arms("once")).await?;
            let day = other.day("once").await?;
            for number in 0..UPLOADS {
                let told = submit(&first, &experiment, day, number).await?;
                ensure!(told == UploadStatus::Accepted, "{number}: {told:?}");
                let told = submit(&other, &experiment, day, number).await?;
                ensure!(told == UploadStatus::Duplicate, "{number}: {told:?}");
            }
            for replica in [&mut first, &mut other] {
                let counted = u128::from(replica.tallies("once").await?[0].0);
                ensure!(counted == UPLOADS, "{counted} with {cells} store cells");
                let (_, learnt) = replica.refresh("once").await?;
                ensure!(u128::from(learnt) == UPLOADS, "{learnt} with {cells} store cells");
            }
            // One that starts later knows it from the start.
            let mut late = databases.replica().await?;
            let counted = u128::from(late.tallies("once").await?[0].0);
            ensure!(counted == UPLOADS, "{counted} at a replica that started later");
            for replica in [first, other, late] {
                replica.process.stop().await?;
            }
            anyhow::Ok(())
        })?;
        let (home, counts) = databases.ids()?;
        ensure!(home == 0 && counts.iter().all(|ids| *ids > 0), "{home}, {counts:?}");
        ensure!(u128::from(counts.iter().sum::<u64>()) == UPLOADS, "{counts:?}");
        let verified = databases.verify()?;
        ensure!(verified.is_sound() && verified.warnings.is_empty(), "{verified:?}");
    }
    Ok(())
}

fn states(server: &Postgres) -> anyhow::Result<()> {
    let databases = Databases::new(server, 4)?;
    block_on(async {
        let mut one = databases.replica().await?;
        let mut two = databases.replica().await?;
        let experiment = one.create(three_arms("states")).await?;
        let day = two.day("states").await?;
        let name = || ExperimentName { experiment_id: "states".to_owned() };
        let all = async |replica: &crate::Replica, from: u128, expected: UploadStatus| {
            for number in from..from + 40 {
                let told = submit(replica, &experiment, day, number).await?;
                ensure!(told == expected, "{number}: {told:?}, not {expected:?}");
            }
            anyhow::Ok(())
        };
        all(&two, 0, UploadStatus::Accepted).await?;
        // No wait between a change at one replica and uploads to another.
        for _ in 0..3 {
            one.operator.pause_experiment(name()).await?;
            all(&two, 100, UploadStatus::Paused).await?;
            all(&two, 0, UploadStatus::Duplicate).await?;
            two.operator.resume_experiment(name()).await?;
        }
        all(&one, 100, UploadStatus::Accepted).await?;
        let counted = one.tallies("states").await?[0].0;
        ensure!(counted == 80, "{counted} after a pause");
        one.operator.stop_experiment(name()).await?;
        all(&two, 200, UploadStatus::Stopped).await?;
        all(&two, 100, UploadStatus::Duplicate).await?;
        two.operator.archive_experiment(name()).await?;
        one.operator.delete_experiment(name()).await?;
        // Nothing is left in the cells but the numbers of reports whose ids are kept.
        let ones = databases.each("SELECT COALESCE(sum(ones), 0) FROM tally")?;
        ensure!(ones == [0; 4], "{ones:?}");
        let reports = databases.each("SELECT COALESCE(sum(reports), 0) FROM tally")?;
        ensure!(reports.iter().sum::<u64>() == 80, "{reports:?}");
        let told = submit(&two, &experiment, day, 300).await?;
        ensure!(told == UploadStatus::Stopped, "{told:?}");
        for replica in [one, two] {
            replica.process.stop().await?;
        }
        anyhow::Ok(())
    })?;
    let verified = databases.verify()?;
    ensure!(verified.is_sound(), "{:?}", verified.findings);
    Ok(())
}

fn damaged(server: &Postgres) -> anyhow::Result<()> {
    let databases = Databases::new(server, 3)?;
    block_on(async {
        let mut replica = databases.replica().await?;
        let experiment = replica.create(three_arms("damaged")).await?;
        let day = replica.day("damaged").await?;
        for number in 0..30 {
            submit(&replica, &experiment, day, number).await?;
        }
        replica.process.stop().await
    })?;
    ensure!(databases.verify()?.is_sound());
    // Damage that no trigger sees.
    let damage = "SET session_replication_role = replica; UPDATE tally SET ones = ones - 1";
    query(&databases.cells[1], damage)?;
    let found: Vec<_> = databases.verify()?.findings.iter().map(ToString::to_string).collect();
    let first = found.first().context("nothing was found")?;
    ensure!(found.iter().all(|found| found.starts_with("store cell 2: ")), "{found:?}");
    ensure!(first.contains("tally"), "{first}");
    query(&databases.cells[1], &damage.replace("- 1", "+ 1"))?;
    ensure!(databases.verify()?.is_sound());
    // An id of another cell, as it was written there.
    let id = &query(&databases.cells[0], "SELECT id FROM upload LIMIT 1")?[0][0];
    let day = &query(&databases.cells[0], "SELECT max(day) FROM upload")?[0][0];
    query(&databases.cells[2], &format!("INSERT INTO upload VALUES ({day}, '{id}')"))?;
    let found: Vec<_> = databases.verify()?.findings.iter().map(ToString::to_string).collect();
    let expected = "1 ids that belong to other store cells";
    let is_found = |found: &String| found.starts_with("store cell 3: ") && found.contains(expected);
    ensure!(found.iter().any(is_found), "{found:?}");
    Ok(())
}
