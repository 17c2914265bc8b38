//! The files of a running store: moved, replaced, overwritten, truncated, or opened by other
//! programs.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{GetExperimentRequest, UploadStatus};
use bandana_store::{SqliteError, SqliteStore, StoreError, verify_directory};
use bandana_tests::harness::{create, keep_uploading, submit_one, tallies, three_arms};
use bandana_tests::watched_server::WatchedServer;
use rusqlite::Connection;
use rusqlite::backup::Progress;
use rustix::process::Signal;

use super::{DATABASE, PROGRAM, bandana, names, serve_in_vain};

/// A mishap to the files of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slip {
    Removed,
    Replaced,
    LogRemoved,
    DirectoryMoved,
}

impl Slip {
    /// Causes the mishap, and returns the location of the store for a restart.
    fn make(
        self,
        data: &Path,
        spare: &Path,
    ) -> anyhow::Result<impl Fn() -> anyhow::Result<PathBuf>> {
        let (database, saved) = (data.join(DATABASE), spare.join("saved"));
        match self {
            Self::Removed | Self::Replaced => fs::hard_link(&database, &saved)?,
            Self::LogRemoved | Self::DirectoryMoved => {}
        }
        match self {
            Self::Removed => fs::remove_file(&database)?,
            Self::Replaced => fs::rename(spare.join("other").join(DATABASE), &database)?,
            Self::LogRemoved => fs::remove_file(data.join("bandana.sqlite3-wal"))?,
            Self::DirectoryMoved => fs::rename(data, spare.join("moved"))?,
        }
        let (data, spare) = (data.to_owned(), spare.to_owned());
        Ok(move || match self {
            Self::Removed | Self::Replaced => {
                fs::rename(spare.join("saved"), data.join(DATABASE))?;
                Ok(data.clone())
            }
            Self::LogRemoved => Ok(data.clone()),
            Self::DirectoryMoved => Ok(spare.join("moved")),
        })
    }
}

async fn acknowledges_nothing_after(slip: Slip) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (data, spare) = (folder.path().join("data"), folder.path().join("spare"));
    fs::create_dir(&spare)?;
    let other = spare.join("other").to_string_lossy().into_owned();
    ensure!(bandana(&["init", "--data-dir", &other])?.status.success());
    let server = WatchedServer::start(PROGRAM, &data, &[]).await?;
    let (mut device, mut operator) = server.clients().await?;
    let experiment = create(&mut operator, three_arms("slip")).await?;
    let experiment_id = experiment.experiment_id().to_string();
    let request = GetExperimentRequest { experiment_id };
    let day = Day::new(device.get_experiment(request).await?.into_inner().server_day);
    let mut acknowledgements = keep_uploading(&device, &experiment, day);
    let mut acknowledged = 0_u64;
    while acknowledged < 500 {
        let (_, status) = acknowledgements.recv().await.context("the server has ended")?;
        assert_eq!(status, UploadStatus::Accepted);
        acknowledged += 1;
    }
    let find = slip.make(&data, &spare)?;
    // Uploads from now on are not in the store that the next start finds.
    for number in 0..50 {
        let answer = submit_one(&mut device, &experiment, day, u128::MAX - number).await;
        ensure!(answer.is_err(), "{slip:?}: upload {number} was acknowledged: {answer:?}");
    }
    while let Some((_, status)) = acknowledgements.recv().await {
        assert_eq!(status, UploadStatus::Accepted);
        acknowledged += 1;
    }
    let (code, log) = server.ended().await?;
    ensure!(code == Some(1), "{slip:?}: {code:?}: {log}");
    ensure!(log.contains("is not the file any more that this server has open"), "{slip:?}: {log}");

    // All earlier acknowledged uploads are there, once the files are back in place.
    let data = find()?;
    let verification = verify_directory(&data)?;
    ensure!(verification.is_sound(), "{slip:?}: {:?}", verification.findings);
    let server = WatchedServer::start(PROGRAM, &data, &[]).await?;
    let (_, mut operator) = server.clients().await?;
    let counted = tallies(&mut operator, &experiment).await?[0].0;
    // Uploads committed to a moved file were not acknowledged.
    ensure!(counted >= acknowledged, "{slip:?}: {counted} of {acknowledged}");
    server.stop().await.map(drop)
}

pub(crate) async fn nothing_is_acknowledged_once_the_database_is_removed() -> anyhow::Result<()> {
    acknowledges_nothing_after(Slip::Removed).await
}

pub(crate) async fn nothing_is_acknowledged_once_the_database_is_replaced() -> anyhow::Result<()> {
    acknowledges_nothing_after(Slip::Replaced).await
}

pub(crate) async fn nothing_is_acknowledged_once_the_log_is_removed() -> anyhow::Result<()> {
    acknowledges_nothing_after(Slip::LogRemoved).await
}

pub(crate) async fn nothing_is_acknowledged_once_the_directory_is_moved() -> anyhow::Result<()> {
    acknowledges_nothing_after(Slip::DirectoryMoved).await
}

pub(crate) async fn a_server_that_nobody_calls_notices_too() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    fs::remove_file(folder.path().join(DATABASE))?;
    let (code, log) = server.ended().await?;
    ensure!(code == Some(1) && log.contains(DATABASE), "{code:?}: {log}");
    Ok(())
}

pub(crate) fn a_store_is_opened_once_whatever_becomes_of_the_lock_file() -> anyhow::Result<()> {
    let parent = tempfile::tempdir()?;
    let (folder, other) = (parent.path().join("store"), parent.path().join("other"));
    let _open = SqliteStore::open(&folder)?;
    fs::remove_file(folder.join("bandana.lock"))?;
    fs::create_dir(&other)?;
    // A copy of the directory by links has the same database.
    fs::hard_link(folder.join(DATABASE), other.join(DATABASE))?;
    for directory in [&folder, &other] {
        let again = SqliteStore::open_existing(directory);
        ensure!(
            matches!(again, Err(StoreError::Sqlite(SqliteError::Locked { .. }))),
            "{}: {again:?}",
            directory.display()
        );
    }
    Ok(())
}

pub(crate) async fn files_of_a_store_are_for_their_owner() -> anyhow::Result<()> {
    let parent = tempfile::tempdir()?;
    let data = parent.path().join("data");
    ensure!(bandana(&["init", "--data-dir", data.to_str().context("UTF-8")?])?.status.success());
    let server = WatchedServer::start(PROGRAM, &data, &[]).await?;
    let mode = |path: &Path| anyhow::Ok(fs::metadata(path)?.permissions().mode() & 0o777);
    assert_eq!(mode(&data)?, 0o700);
    let found = names(&data)?;
    ensure!(found.len() >= 5, "{found:?}");
    for (name, _) in found {
        assert_eq!(mode(&data.join(&name))?, 0o600, "{}", name.display());
    }
    let log = server.stop().await?;
    ensure!(!log.contains("can read the store"), "{log}");
    // Permissions of stores of earlier versions.
    fs::set_permissions(data.join(DATABASE), fs::Permissions::from_mode(0o644))?;
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755))?;
    let log = WatchedServer::start(PROGRAM, &data, &[]).await?.stop().await?;
    ensure!(log.contains("not only its owner can read the store"), "{log}");
    Ok(())
}

pub(crate) async fn a_server_whose_lock_is_removed_ends() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    fs::remove_file(folder.path().join("bandana.lock"))?;
    let (code, log) = server.ended().await?;
    ensure!(code == Some(1) && log.contains("bandana.lock"), "{code:?}: {log}");
    Ok(())
}

/// Damage to a file that stays in place.
#[derive(Clone, Copy, Debug)]
enum Overwriting {
    Garbage,
    Zeros,
    /// Truncated to half its length.
    Cut,
    /// Truncated to length 0.
    Emptied,
}

impl Overwriting {
    const ALL: [Self; 4] = [Self::Garbage, Self::Zeros, Self::Cut, Self::Emptied];

    fn make(self, path: &Path) -> anyhow::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        let length = file.metadata()?.len();
        ensure!(length > 0, "{} is empty", path.display());
        let bytes = usize::try_from(length)?;
        match self {
            Self::Garbage => file.write_all_at(&vec![0xa5; bytes], 0)?,
            Self::Zeros => file.write_all_at(&vec![0; bytes], 0)?,
            Self::Cut => file.set_len(length / 2)?,
            Self::Emptied => file.set_len(0)?,
        }
        Ok(())
    }
}

/// A server with an experiment, for which it has acknowledged ten reports.
async fn with_reports(data: &Path) -> anyhow::Result<(WatchedServer, Specification, Day)> {
    let server = WatchedServer::start(PROGRAM, data, &[]).await?;
    let (mut device, mut operator) = server.clients().await?;
    let experiment = create(&mut operator, three_arms("written")).await?;
    let experiment_id = experiment.experiment_id().to_string();
    let request = GetExperimentRequest { experiment_id };
    let day = Day::new(device.get_experiment(request).await?.into_inner().server_day);
    for number in 0..10 {
        let status = submit_one(&mut device, &experiment, day, number).await?;
        assert_eq!(status, UploadStatus::Accepted);
    }
    Ok((server, experiment, day))
}

pub(crate) async fn nothing_is_acknowledged_once_a_file_is_written_over() -> anyhow::Result<()> {
    let files = [DATABASE, "bandana.sqlite3-wal"];
    for (file, how) in files.into_iter().flat_map(|file| Overwriting::ALL.map(|how| (file, how))) {
        let folder = tempfile::tempdir()?;
        let (server, experiment, day) = with_reports(folder.path()).await?;
        let (mut device, _) = server.clients().await?;
        how.make(&folder.path().join(file))?;
        let answer = submit_one(&mut device, &experiment, day, 100).await;
        ensure!(answer.is_err(), "{file} {how:?}: it was acknowledged: {answer:?}");
        let (code, log) = server.ended().await?;
        ensure!(code == Some(6), "{file} {how:?}: {code:?}: {log}");
        ensure!(log.contains("is damaged; restore it from a backup"), "{file} {how:?}: {log}");
    }
    Ok(())
}

pub(crate) async fn a_server_that_nobody_calls_notices_what_is_written_over_it()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, ..) = with_reports(folder.path()).await?;
    // The restore of a backup under a running server.
    let backup = folder.path().join("backup.sqlite3").to_string_lossy().into_owned();
    let data = folder.path().to_string_lossy().into_owned();
    ensure!(bandana(&["backup", "--data-dir", &data, "--out", &backup])?.status.success());
    let file = OpenOptions::new().write(true).open(folder.path().join(DATABASE))?;
    file.write_all_at(&fs::read(backup)?, 0)?;
    let (code, log) = server.ended().await?;
    ensure!(code == Some(6) && log.contains("was written over"), "{code:?}: {log}");
    Ok(())
}

/// sqlite3's `.restore`, which is an ordinary transaction.
pub(crate) async fn nothing_is_acknowledged_once_another_program_has_restored_a_backup()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, experiment, day) = with_reports(folder.path()).await?;
    let (mut device, _) = server.clients().await?;
    let backup = folder.path().join("backup.sqlite3");
    let (data, out) = (folder.path().to_string_lossy(), backup.to_string_lossy());
    ensure!(bandana(&["backup", "--data-dir", &data, "--out", &out])?.status.success());
    for number in 10..15 {
        let status = submit_one(&mut device, &experiment, day, number).await?;
        assert_eq!(status, UploadStatus::Accepted);
    }
    let mut other = Connection::open(folder.path().join(DATABASE))?;
    other.restore("main", &backup, None::<fn(Progress)>)?;
    let answer = submit_one(&mut device, &experiment, day, 100).await;
    ensure!(answer.is_err(), "it was acknowledged: {answer:?}");
    let (code, log) = server.ended().await?;
    ensure!(code == Some(6) && log.contains("another program has written"), "{code:?}: {log}");
    drop(other);
    let (code, said) = serve_in_vain(&["--data-dir", &data])?;
    ensure!(code == Some(6), "{code:?}: {said}");
    ensure!(said.contains("what was acknowledged is missing"), "{said}");
    Ok(())
}

pub(crate) async fn a_program_that_takes_nothing_away_ends_no_server() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, experiment, day) = with_reports(folder.path()).await?;
    let (mut device, _) = server.clients().await?;
    let other = Connection::open(folder.path().join(DATABASE))?;
    for (number, statement) in [(10, "PRAGMA wal_checkpoint(TRUNCATE)"), (11, "VACUUM")] {
        other.execute_batch(statement)?;
        let status = submit_one(&mut device, &experiment, day, number).await?;
        assert_eq!(status, UploadStatus::Accepted, "{statement}");
    }
    drop(other);
    server.stop().await?;
    let verification = verify_directory(folder.path())?;
    ensure!(verification.findings.is_empty(), "{:?}", verification.findings);
    Ok(())
}

pub(crate) async fn what_was_acknowledged_is_missed_when_its_log_is_gone() -> anyhow::Result<()> {
    for how in Overwriting::ALL.map(Some).into_iter().chain([None]) {
        let folder = tempfile::tempdir()?;
        let (server, ..) = with_reports(folder.path()).await?;
        server.signal(Signal::KILL)?;
        server.ended().await?;
        let log = folder.path().join("bandana.sqlite3-wal");
        match how {
            Some(how) => how.make(&log)?,
            None => fs::remove_file(&log)?,
        }
        let data = folder.path().to_str().context("UTF-8")?;
        let verification = verify_directory(folder.path())?;
        let found = format!("{:?}", verification.findings);
        ensure!(found.contains("what was acknowledged is missing"), "{how:?}: {found}");
        // On every request.
        for _ in 0..2 {
            let (code, said) = serve_in_vain(&["--data-dir", data])?;
            ensure!(code == Some(6), "{how:?}: {code:?}: {said}");
            ensure!(said.contains("what was acknowledged is missing"), "{how:?}: {said}");
        }
        let sealed = bandana(&["seal", "--data-dir", data])?;
        ensure!(sealed.status.success(), "{}", String::from_utf8_lossy(&sealed.stderr));
        let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
        server.stop().await?;
    }
    Ok(())
}
