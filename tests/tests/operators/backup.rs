//! Backups of a running server: complete or absent, and usable for a restart.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::wire::v1::UploadStatus as S;
use bandana_tests::harness::{Aggregator, keep_uploading, submit_one, tallies, three_arms};
use bandana_tests::watched_server::WatchedServer;
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).clean_environment().stdin(Stdio::null()).kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program, and returns its exit code and output.
async fn run(arguments: &[&str]) -> anyhow::Result<(Option<i32>, String, String)> {
    let output = command(arguments).output().await?;
    told(output)
}

fn told(output: Output) -> anyhow::Result<(Option<i32>, String, String)> {
    let Output { status, stdout, stderr } = output;
    Ok((status.code(), String::from_utf8(stdout)?, String::from_utf8(stderr)?))
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path in UTF-8")
}

fn names(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let entries = std::fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// A closed store with one experiment.
async fn store() -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    let (_, mut operator) = server.clients().await?;
    bandana_tests::harness::create(&mut operator, three_arms("kept")).await?;
    drop(operator);
    server.stop().await?;
    Ok(folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_restored_and_counts_on_exactly() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("restored")).await?;
    let day = aggregator.day(&experiment).await?;
    let mut acknowledgements = keep_uploading(&aggregator.device, &experiment, day);
    let mut before = BTreeSet::new();
    while before.len() < 200 {
        let (number, status) = acknowledgements.recv().await.context("all workers failed")?;
        assert_eq!(status, S::Accepted);
        before.insert(number);
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("backup.sqlite3");
    let data_dir = text(aggregator.data_dir())?.to_owned();
    let (code, said, errors) =
        run(&["backup", "--data-dir", &data_dir, "--out", text(&file)?, "--json"]).await?;
    assert_eq!(code, Some(0), "{errors}");
    let said: Value = serde_json::from_str(&said)?;
    let metadata = std::fs::metadata(&file)?;
    assert_eq!(said["bytes"].as_u64(), Some(metadata.len()));
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    // Uploads acknowledged during the backup may or may not be in it.
    let mut after = BTreeSet::new();
    while after.len() < 100 {
        let (number, status) = acknowledgements.recv().await.context("all workers failed")?;
        assert_eq!(status, S::Accepted);
        after.insert(number);
    }
    let (code, _, errors) = run(&["verify", "--data-dir", &data_dir]).await?;
    assert_eq!(code, Some(0), "{errors}");
    aggregator.process.kill().await?;
    while let Some((number, status)) = acknowledgements.recv().await {
        assert_eq!(status, S::Accepted);
        after.insert(number);
    }
    let (code, _, errors) = run(&["verify", text(&file)?]).await?;
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(names(folder.path())?, BTreeSet::from(["backup.sqlite3".to_owned()]));

    let restored = tempfile::tempdir()?;
    std::fs::copy(&file, restored.path().join("bandana.sqlite3"))?;
    let server = WatchedServer::start(PROGRAM, restored.path(), &[]).await?;
    let (mut device, mut operator) = server.clients().await?;
    let held = tallies(&mut operator, &experiment).await?[0];
    let all = (before.len() + after.len()) as u64;
    assert!((before.len() as u64..=all + 16).contains(&held.0) && held.0 == held.1, "{held:?}");
    for number in &before {
        assert_eq!(submit_one(&mut device, &experiment, day, *number).await?, S::Duplicate);
    }
    // Uploads that the backup lacks count once when they are sent again.
    let mut counted = held.0;
    for (round, number) in [0, 1].iter().flat_map(|round| after.iter().map(move |n| (round, n))) {
        match submit_one(&mut device, &experiment, day, *number).await? {
            S::Accepted if *round == 0 => counted += 1,
            status => assert_eq!(status, S::Duplicate, "round {round}"),
        }
    }
    assert!(counted > held.0, "nothing was acknowledged after the backup");
    assert_eq!(tallies(&mut operator, &experiment).await?[0], (counted, counted));
    drop((device, operator));
    server.stop().await?;
    let (code, _, errors) = run(&["verify", text(restored.path())?]).await?;
    assert_eq!(code, Some(0), "{errors}");
    Ok(())
}

#[tokio::test]
async fn a_file_that_exists_is_left_alone() -> anyhow::Result<()> {
    let (store, folder) = (store().await?, tempfile::tempdir()?);
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "precious")?;
    let nowhere = folder.path().join("nowhere/backup");
    for (out, said) in [(&taken, "is not overwritten"), (&nowhere, "can't write")] {
        let arguments = ["backup", "--data-dir", text(store.path())?, "--out", text(out)?];
        let (code, _, errors) = run(&arguments).await?;
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains(said) && errors.contains(text(out)?), "{errors}");
    }
    assert_eq!(std::fs::read_to_string(&taken)?, "precious");
    assert_eq!(names(folder.path())?, BTreeSet::from(["taken".to_owned()]));
    Ok(())
}

#[tokio::test]
async fn an_interrupted_backup_leaves_nothing() -> anyhow::Result<()> {
    let (store, folder) = (store().await?, tempfile::tempdir()?);
    // This connection excludes other readers.
    let held = Connection::open(store.path().join("bandana.sqlite3"))?;
    held.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    held.execute_batch("BEGIN EXCLUSIVE")?;
    let out = folder.path().join("backup");
    for signal in [Signal::INT, Signal::TERM] {
        let arguments = ["backup", "--data-dir", text(store.path())?, "--out", text(&out)?];
        let child = command(&arguments).spawn()?;
        let begun = async {
            while names(folder.path())?.is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, begun).await??;
        let process = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        kill_process(process.context("it has ended")?, signal)?;
        let (code, _, errors) =
            told(tokio::time::timeout(PATIENCE, child.wait_with_output()).await??)?;
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains("interrupted; nothing was left"), "{errors}");
        assert!(names(folder.path())?.is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn a_backup_that_can_not_grow_leaves_nothing() -> anyhow::Result<()> {
    let (store, folder) = (store().await?, tempfile::tempdir()?);
    let out = folder.path().join("backup");
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let output = Command::new("/bin/sh")
        .args(["-c", script, PROGRAM, "backup", "--data-dir"])
        .args([store.path(), Path::new("--out"), &out])
        .clean_environment()
        .stdin(Stdio::null())
        .output()
        .await?;
    let (code, _, errors) = told(output)?;
    assert_eq!(code, Some(1), "{errors}");
    let named = format!("can't copy the store to {}; nothing was left of it", out.display());
    assert!(errors.contains(&named), "{errors}");
    assert!(names(folder.path())?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_damaged_store_is_told_and_not_backed_up() -> anyhow::Result<()> {
    let (store, folder) = (store().await?, tempfile::tempdir()?);
    let file = store.path().join("bandana.sqlite3");
    Connection::open(&file)?.execute_batch(
        "INSERT INTO tally (experiment, day, arm, reports, ones) VALUES (1, 20000, 2, 6, 1)",
    )?;
    let data_dir = text(store.path())?;
    let out = folder.path().join("backup");
    let (code, _, errors) = run(&["backup", "--data-dir", data_dir, "--out", text(&out)?]).await?;
    assert_eq!(code, Some(6), "{errors}");
    assert!(errors.contains("findings), so there is no backup"), "{errors}");
    assert!(names(folder.path())?.is_empty());

    let (code, said, errors) = run(&["verify", data_dir, "--json"]).await?;
    assert_eq!(code, Some(6), "{errors}");
    let said: Value = serde_json::from_str(&said)?;
    // The finding names the row, and its correct value.
    let findings = said["findings"].as_array().context("no findings")?;
    let finding = findings.iter().find(|finding| finding["kind"] == "tally");
    let finding = finding.with_context(|| format!("no tally differs: {findings:?}"))?;
    let expected = serde_json::json!({
        "kind": "tally", "experiment_id": "kept", "day": "2024-10-04", "arm": 2, "reports": 6,
        "ones": 1, "expected_reports": 0, "expected_ones": 0, "message": finding["message"],
    });
    assert_eq!((&said["sound"], finding), (&Value::Bool(false), &expected));
    let (code, said, errors) = run(&["verify", data_dir]).await?;
    assert_eq!(code, Some(6), "{errors}");
    for line in ["experiment", "kept"] {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let found = said.lines().map(words).find(|words| words.first().is_some_and(|w| w == line));
        let found = found.with_context(|| format!("{line} begins no line of {said}"))?;
        ensure!(
            line != "kept" || found[1..] == ["2024-10-04", "2", "6", "0", "+6", "1", "0", "+1"]
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_command_without_a_store_of_its_own_says_what_to_do() -> anyhow::Result<()> {
    let empty = tempfile::tempdir()?;
    let out: PathBuf = empty.path().join("backup");
    let database = "postgres://bandana:secret@database.example/bandana";
    let (code, _, errors) = run(&["backup", "--store", database, "--out", text(&out)?]).await?;
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("pg_dump") && !errors.contains("secret"), "{errors}");
    for arguments in [
        &["backup", "--data-dir", text(empty.path())?, "--out", text(&out)?][..],
        &["verify", text(empty.path())?],
    ] {
        let (code, _, errors) = run(arguments).await?;
        assert_eq!(code, Some(7), "{errors}");
        assert!(errors.contains("there is no store in"), "{errors}");
    }
    assert!(names(empty.path())?.is_empty());
    Ok(())
}
