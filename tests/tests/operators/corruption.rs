//! A corrupted database file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{ListAuditEntriesRequest, UploadStatus as S};
use bandana_tests::harness::{create, submit_one, tallies, three_arms, upload};
use bandana_tests::test_clock::TestClock;
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinSet;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const TODAY: Day = Day::new(20_000);

/// Page size of the database, in bytes.
const PAGE: u64 = 4096;

/// Uploads of the first day, which has expired, and of the second.
const UPLOADS: u128 = 600;

/// An orderly closed store, and the clock of its server.
struct Store {
    folder: TempDir,
    clock: TestClock,
    experiment: Specification,
}

impl Store {
    async fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let clock = TestClock::at(TODAY, folder.path())?;
        let server = clock.serve(PROGRAM, &folder.path().join("data")).await?;
        let (mut device, mut operator) = server.clients().await?;
        let experiment = create(&mut operator, three_arms("damage")).await?;
        assert_eq!(submit_one(&mut device, &experiment, TODAY, 0).await?, S::Accepted);
        // The window moves by a day at a time, with a checkpoint.
        clock.set(TODAY.forward(1))?;
        let day = TODAY.forward(1);
        let mut calls = JoinSet::new();
        for number in 1..=UPLOADS {
            let (mut device, request) =
                (device.clone(), upload(number, &experiment, day, &[(0, true)])?);
            calls.spawn(async move { device.submit_upload(request).await });
        }
        while let Some(answer) = calls.join_next().await {
            assert_eq!(answer??.into_inner().status(), S::Accepted);
        }
        drop((device, operator));
        server.stop().await?;
        Ok(Self { folder, clock, experiment })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("data/bandana.sqlite3")
    }

    /// A directory with a copy of the database.
    fn copy(&self) -> anyhow::Result<TempDir> {
        let copy = tempfile::tempdir()?;
        std::fs::copy(self.file(), copy.path().join("bandana.sqlite3"))?;
        Ok(copy)
    }

    /// The error output of a server that can't start, or the number of uploads that it would count
    /// again.
    async fn outcome(&self, data_dir: &Path) -> anyhow::Result<Result<usize, String>> {
        let server = match self.clock.serve(PROGRAM, data_dir).await {
            Ok(server) => server,
            Err(said) => return Ok(Err(format!("{said:#}"))),
        };
        let (mut device, mut operator) = server.clients().await?;
        let mut again = 0;
        for number in [1, UPLOADS / 2, UPLOADS] {
            let day = TODAY.forward(1);
            let status = submit_one(&mut device, &self.experiment, day, number).await?;
            again += usize::from(status != S::Duplicate);
        }
        assert_eq!(tallies(&mut operator, &self.experiment).await?[0].0, 601);
        server.stop().await?;
        Ok(Ok(again))
    }
}

fn overwrite(directory: &Path, page: u64, byte: u8) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).open(directory.join("bandana.sqlite3"))?;
    Ok(file.write_all_at(&vec![byte; usize::try_from(PAGE)?], page * PAGE)?)
}

/// Asserts that a server has ended because this directory's database is damaged, and has reported
/// that.
fn assert_damaged(directory: &TempDir, code: Option<i32>, log: &str) {
    assert_eq!(code, Some(6), "{log}");
    let file = directory.path().join("bandana.sqlite3");
    let named =
        format!("the database file {} is damaged; restore it from a backup", file.display());
    assert!(log.contains(&named), "{log}");
}

#[tokio::test]
async fn a_page_of_garbage_is_noticed_before_anything_is_counted_again() -> anyhow::Result<()> {
    let store = Store::new().await?;
    let pages = File::open(store.file())?.metadata()?.len() / PAGE;
    let (mut noticed, mut harmless) = (0, 0);
    for page in 0..pages {
        let copy = store.copy()?;
        overwrite(copy.path(), page, 0xa5)?;
        match store.outcome(copy.path()).await? {
            Err(said) => {
                noticed += 1;
                let file = copy.path().join("bandana.sqlite3");
                let named = format!("the database file {} is damaged", file.display());
                assert!(said.contains(&named), "page {page}: {said}");
            }
            // Tables that are not loaded at the start, and unused pages.
            Ok(again) => {
                assert_eq!(again, 0, "page {page}");
                harmless += 1;
            }
        }
    }
    assert!(noticed >= 5 && harmless < pages / 2, "{noticed} noticed, {harmless} harmless");
    Ok(())
}

#[tokio::test]
async fn damage_that_is_met_later_ends_the_server_without_an_answer() -> anyhow::Result<()> {
    let store = Store::new().await?;
    let copy = store.copy()?;
    let server = store.clock.serve(PROGRAM, copy.path()).await?;
    let (mut device, _) = server.clients().await?;
    let today = TODAY.forward(1);
    assert_eq!(submit_one(&mut device, &store.experiment, today, 7_000).await?, S::Accepted);
    // Changes a number in a row that the next upload adds to.
    let other = Connection::open(copy.path().join("bandana.sqlite3"))?;
    other.execute_batch("UPDATE tally SET reports = reports + 1 WHERE day = 20001")?;
    drop(other);
    let unanswered = submit_one(&mut device, &store.experiment, today, 7_001).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    let (code, log) = server.ended().await?;
    assert_damaged(&copy, code, &log);

    // An earlier backup is intact, and the device sends later uploads again.
    let backup = store.copy().context("a backup")?;
    let server = store.clock.serve(PROGRAM, backup.path()).await?;
    let (mut device, _) = server.clients().await?;
    let status = submit_one(&mut device, &store.experiment, today, 7_001).await?;
    assert_eq!(status, S::Accepted);
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn damage_that_a_start_or_a_question_meets_ends_the_server_too() -> anyhow::Result<()> {
    let store = Store::new().await?;
    let copy = store.copy()?;
    let server = store.clock.serve(PROGRAM, copy.path()).await?;
    let (_, mut operator) = server.clients().await?;
    let question = ListAuditEntriesRequest { limit: 1, ..Default::default() };
    operator.list_audit_entries(question.clone()).await?;
    let other = Connection::open(copy.path().join("bandana.sqlite3"))?;
    // Corruption on disk bypasses triggers.
    let trigger = "SELECT sql FROM sqlite_schema WHERE name = 'audit_is_not_changed'";
    let trigger: String = other.query_row(trigger, [], |row| row.get(0))?;
    other.execute_batch(&format!(
        "DROP TRIGGER audit_is_not_changed; UPDATE audit SET caller = 'nobody'; {trigger}"
    ))?;
    drop(other);
    let told = operator.list_audit_entries(question).await;
    assert!(told.is_err(), "{told:?}");
    let (code, log) = server.ended().await?;
    assert_damaged(&copy, code, &log);

    let serve =
        ["serve", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0", "--data-dir"];
    let mut command = Command::new(PROGRAM);
    command.args(serve).arg(copy.path()).clean_environment().kill_on_drop(true);
    let output = command.stdin(Stdio::null()).output().await?;
    assert_damaged(&copy, output.status.code(), &String::from_utf8(output.stderr)?);
    Ok(())
}

/// A disk without room for the note beside the database must not prevent uploads that have room.
#[tokio::test]
async fn uploads_are_acknowledged_where_their_number_can_not_be_noted() -> anyhow::Result<()> {
    let store = Store::new().await?;
    let data = store.folder.path().join("data");
    let note = data.join("bandana.sqlite3-acknowledged");
    std::fs::remove_file(&note)?;
    // A regular file that can be read, and not written.
    symlink("/proc/version", &note)?;
    let day = TODAY.forward(1);
    for number in [UPLOADS + 1, UPLOADS + 2] {
        let server = store.clock.serve(PROGRAM, &data).await?;
        let (mut device, mut operator) = server.clients().await?;
        assert_eq!(submit_one(&mut device, &store.experiment, day, number).await?, S::Accepted);
        assert_eq!(submit_one(&mut device, &store.experiment, day, number).await?, S::Duplicate);
        let counted = tallies(&mut operator, &store.experiment).await?[0].0;
        assert_eq!(u128::from(counted), number + 1);
        drop((device, operator));
        let log = server.stop().await?;
        assert!(
            log.contains("the note beside the store of what is acknowledged can't be written"),
            "{log}"
        );
    }
    Ok(())
}
