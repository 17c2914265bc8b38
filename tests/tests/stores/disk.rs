//! A disk that is full, read-only, or corrupts data.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::Transport;
use bandana_client::{Acceptance, Bandana, Budget, Clock, Consent, SystemClock, Timestamp};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::Day;
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{GetExperimentRequest, UploadStatus};
use bandana_tests::add_async;
use bandana_tests::disk::Disk;
use bandana_tests::harness::{create, keep_uploading, submit_one, tallies, three_arms};
use bandana_tests::suite::Suite;
use bandana_tests::watched_server::WatchedServer;
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const PATIENCE: Duration = Duration::from_mins(1);

/// The id of the unprivileged user.
const NOBODY: u32 = 65_534;

/// Adds the tests.
pub(crate) fn add(suite: &mut Suite) {
    add_async!(suite, "disk";
        a_file_that_can_not_grow_ends_the_server_and_loses_nothing,
        a_full_disk_ends_the_server_and_loses_nothing,
        a_server_does_not_start_where_files_can_not_grow,
        a_server_does_not_start_on_a_full_disk_or_one_that_can_not_be_written,
        a_directory_without_permission_is_named,
        devices_keep_what_a_full_disk_did_not_take,
    );
}

/// The program, with files limited to this number of 512-byte blocks.
fn with_small_files(blocks: u32) -> Command {
    let mut command = Command::new("/bin/sh");
    // Without the signal, a write beyond the limit fails as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, PROGRAM]).clean_environment();
    command
}

/// Starts a server that fails to start, and returns its output.
async fn start_in_vain(mut command: Command, data_dir: &Path) -> anyhow::Result<String> {
    let addresses = ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    command
        .args(["serve", "--init", "--data-dir"])
        .arg(data_dir)
        .args(addresses)
        .kill_on_drop(true);
    let output = command.stdin(Stdio::null()).clean_environment().output();
    let output = tokio::time::timeout(PATIENCE, output).await??;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1), "{}: {said}", output.status);
    Ok(said)
}

async fn today(server: &WatchedServer, experiment: &Specification) -> anyhow::Result<Day> {
    let experiment_id = experiment.experiment_id().to_string();
    let request = GetExperimentRequest { experiment_id };
    let (mut device, _) = server.clients().await?;
    Ok(Day::new(device.get_experiment(request).await?.into_inner().server_day))
}

/// Uploads until the server started by `command` ends by itself. Checks that all acknowledged
/// uploads are there once the server has room. Returns its output.
async fn upload_until_it_fails(
    command: Command,
    data_dir: &Path,
    make_room: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let server = WatchedServer::launch(command, data_dir, &[], "info").await?;
    let (device, mut operator) = server.clients().await?;
    let experiment = create(&mut operator, three_arms("full")).await?;
    let day = today(&server, &experiment).await?;
    let mut acknowledgements = keep_uploading(&device, &experiment, day);
    let mut acknowledged = Vec::new();
    // Ends when all workers have failed, since the server has ended.
    while let Some((number, status)) = acknowledgements.recv().await {
        assert_eq!(status, UploadStatus::Accepted);
        acknowledged.push(number);
    }
    let (code, log) = server.ended().await?;
    assert_eq!(code, Some(1), "{log}");
    assert!(!log.contains("draining"), "it goes on after a failed commit: {log}");
    assert!(!acknowledged.is_empty());

    make_room()?;
    let server = WatchedServer::start(PROGRAM, data_dir, &[]).await?;
    let (mut device, mut operator) = server.clients().await?;
    let counted = tallies(&mut operator, &experiment).await?[0].0;
    // Each worker may have missed one answer to an upload committed just before.
    let least = acknowledged.len() as u64;
    assert!((least..=least + 16).contains(&counted), "{counted} of {least}");
    for number in acknowledged {
        let status = submit_one(&mut device, &experiment, day, number).await?;
        assert_eq!(status, UploadStatus::Duplicate);
    }
    assert_eq!(submit_one(&mut device, &experiment, day, u128::MAX).await?, UploadStatus::Accepted);
    assert_eq!(tallies(&mut operator, &experiment).await?[0].0, counted + 1);
    server.stop().await?;
    Ok(log)
}

async fn a_file_that_can_not_grow_ends_the_server_and_loses_nothing() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let log = upload_until_it_fails(with_small_files(1024), folder.path(), || Ok(())).await?;
    for part in
        ["limits of file size", "while committing", folder.path().to_str().context("UTF-8")?]
    {
        assert!(log.contains(part), "{part:?} is not in {log}");
    }
    Ok(())
}

async fn a_full_disk_ends_the_server_and_loses_nothing() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let disk = Disk::new(folder.path().join("disk"), "1m")?;
    let data_dir = disk.path().join("data");
    let mut command = Command::new(PROGRAM);
    command.clean_environment();
    let log = upload_until_it_fails(command, &data_dir, || disk.change("size=64m")).await?;
    for part in ["is full; make room", data_dir.to_str().context("UTF-8")?] {
        assert!(log.contains(part), "{part:?} is not in {log}");
    }
    Ok(())
}

async fn a_server_does_not_start_where_files_can_not_grow() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let said = start_in_vain(with_small_files(8), folder.path()).await?;
    assert!(said.contains("limits of file size"), "{said}");
    Ok(())
}

async fn a_server_does_not_start_on_a_full_disk_or_one_that_can_not_be_written()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let disk = Disk::new(folder.path().join("disk"), "40k")?;
    let data_dir = disk.path().join("data");
    let named = data_dir.display().to_string();
    let said = start_in_vain(Command::new(PROGRAM), &data_dir).await?;
    assert!(said.contains("is full; make room") && said.contains(&named), "{said}");
    disk.change("size=64m")?;
    WatchedServer::start(PROGRAM, &data_dir, &[]).await?.stop().await?;
    disk.change("ro")?;
    let said = start_in_vain(Command::new(PROGRAM), &data_dir).await?;
    let cause = format!("the data directory {named} can't be used: Read-only file system");
    assert!(said.contains(&cause), "{said}");
    Ok(())
}

async fn a_directory_without_permission_is_named() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(PROGRAM);
    if rustix::process::geteuid().is_root() {
        // Root may write anywhere. An unprivileged user may not be able to read the build
        // directory.
        let copy = folder.path().join("bandana");
        std::fs::copy(PROGRAM, &copy)?;
        command = Command::new(copy);
        command.uid(NOBODY).gid(NOBODY);
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555))?;
    let said = start_in_vain(command, folder.path()).await?;
    let cause = format!("{} can't be used: Permission denied", folder.path().display());
    assert!(said.contains(&cause), "{said}");
    Ok(())
}

/// The system's clock, ahead by this time.
#[derive(Debug, Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock.now().after(Duration::from_secs(self.0.load(Ordering::SeqCst)))
    }
}

/// An app's client, whose clock advances by an hour with each call.
struct App {
    directory: PathBuf,
    clock: Arc<Ahead>,
}

impl App {
    /// Makes this number of choices, sends due reports, and returns the number of waiting reports.
    fn visit(&self, url: &str, choices: usize) -> anyhow::Result<usize> {
        let nats = PrivacyLoss::new;
        let bandana = Bandana::builder()
            .transport(Transport::to(url)?)
            .directory(&self.directory)
            .accept(
                Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
                    .least_release_delay(Duration::ZERO),
            )
            .budget(Budget::new(nats(1000.0)?, 7, nats(1000.0)?)?)
            .consent(Consent::Given)
            .clock(Arc::<Ahead>::clone(&self.clock))
            .start()?;
        let experiment = bandana.experiment("kept")?;
        for _ in 0..choices {
            let choice = experiment.draw();
            ensure!(choice.assignment().is_some(), "{choice:?}");
            choice.reward(1.0);
        }
        self.clock.0.fetch_add(3600, Ordering::SeqCst);
        ensure!(bandana.shutdown(PATIENCE), "the driver does not end");
        let status = bandana.status();
        Ok(status.waiting_reports + status.open_assignments)
    }
}

async fn devices_keep_what_a_full_disk_did_not_take() -> anyhow::Result<()> {
    const REPORTS: usize = 30;
    let folder = tempfile::tempdir()?;
    let data_dir = folder.path().join("data");
    let server = WatchedServer::start(PROGRAM, &data_dir, &[]).await?;
    let (_, mut operator) = server.clients().await?;
    let mut message = three_arms("kept");
    message.attribution_window_seconds = 60;
    let experiment = create(&mut operator, message).await?;
    drop(operator);
    let (address, url) = (server.device.clone(), format!("http://{}", server.device));
    let (directory, clock) = (folder.path().join("app"), Arc::default());
    let app = Arc::new(App { directory, clock });
    let visit = async |choices| {
        let (app, url) = (Arc::clone(&app), url.clone());
        tokio::task::spawn_blocking(move || app.visit(&url, choices)).await?
    };
    // The app has received the experiment.
    assert_eq!(visit(0).await?, 0);
    server.stop().await?;

    // A limit so small that a few commits fill the log.
    let at = ["--listen", &address];
    let server = WatchedServer::launch(with_small_files(64), &data_dir, &at, "info").await?;
    let left = visit(REPORTS).await?;
    let (code, log) = server.ended().await?;
    assert_eq!(code, Some(1), "{log}");
    assert!(!log.contains("draining"), "it goes on after a failed commit: {log}");
    assert!((1..REPORTS).contains(&left), "{left} of {REPORTS} wait");

    let server = WatchedServer::start(PROGRAM, &data_dir, &at).await?;
    for _ in 0..10 {
        if visit(0).await? == 0 {
            break;
        }
    }
    assert_eq!(visit(0).await?, 0);
    let (_, mut operator) = server.clients().await?;
    let counted = tallies(&mut operator, &experiment).await?.iter().map(|arm| arm.0).sum::<u64>();
    assert_eq!(counted, REPORTS as u64);
    server.stop().await?;
    Ok(())
}
