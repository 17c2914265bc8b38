//! `bandana backup`.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use bandana_store::{Backup as Copying, BackupError, BackupProgress, Verification};
use clap::{Args, ValueHint};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::store_source::{Found, StoreSource};
use super::verification_view::VerificationView;
use super::{say, say_json};
use crate::views::failure::Failure;

const FIELDS: &str = "\
Fields with --json: file, bytes. Later versions may add fields. No field changes its meaning.

To restore: put the file into an empty directory under the name bandana.sqlite3, and start a server \
with that directory as --data-dir. Configuration, certificates, keys and the files of tokens and \
app keys are not part of the store.

Exit codes: 0 the backup is complete, 6 the store is damaged, 7 there is none, 1 anything else, 2 \
wrong command line. Only after 0 is there a file of that name.";

/// Copy the store of a running server.
///
/// The copy has everything that was committed at one moment. It is checked as `bandana verify`
/// checks a store, and gets its name only after that. The server takes uploads in the meantime. A
/// file that exists is not overwritten. SIGINT and SIGTERM end the backup and leave no file.
///
/// If your server uses PostgreSQL, back up the database with its own tools, such as pg_dump.
#[derive(Debug, Args)]
#[command(after_long_help = FIELDS)]
pub(super) struct Backup {
    /// File to write.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
    #[command(flatten)]
    store: StoreSource,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct BackupView {
    file: String,
    bytes: u64,
}

pub(super) fn run(backup: &Backup) -> anyhow::Result<()> {
    let directory = match backup.store.find()? {
        Found::Directory(directory) => directory,
        Found::Database(settings) => {
            let words = format!(
                "the store is the database {}: back it up with its own tools, such as pg_dump or \
                 continuous archiving; `bandana backup` is for data directories",
                settings.url
            );
            return Err(Failure::Incomplete(words).into());
        }
    };
    // Signals are handled from here on: an interrupted run must not leave a partial file.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (file, verification) = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("can't wait for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("can't wait for SIGINT")?;
        let copying = Arc::new(Copying::begin(&directory, &backup.out)?);
        let work = copy_and_check(&copying)?;
        let verification = tokio::select! {
            verification = work => verification.context("the copying thread panicked")??,
            _ = terminate.recv() => return abandon(&copying),
            _ = interrupt.recv() => return abandon(&copying),
        };
        // The copying thread drops its reference before it sends the outcome.
        let copying = Arc::into_inner(copying).context("the backup is still being written")?;
        anyhow::Ok((copying, verification))
    })?;
    if !verification.is_sound() {
        let view = VerificationView::new(directory.display().to_string(), &verification);
        let words = format!(
            "the store in {} is damaged ({}), so there is no backup; `bandana verify` tells more",
            directory.display(),
            view.count()
        );
        return Err(Failure::Damaged(words).into());
    }
    let bytes = file.publish()?;
    let view = BackupView { file: backup.out.display().to_string(), bytes };
    if backup.json {
        return say_json(&view);
    }
    say(&format!("{}: {bytes} bytes, complete and checked\n", view.file))
}

/// Discards the partial backup. The thread ends with the process and creates no files of its own.
fn abandon<T>(copying: &Copying) -> anyhow::Result<T> {
    copying.discard();
    anyhow::bail!("interrupted; nothing was left of the backup")
}

/// Copies and checks on a separate thread, so that signals are handled meanwhile.
fn copy_and_check(
    copying: &Arc<Copying>,
) -> anyhow::Result<oneshot::Receiver<Result<Verification, BackupError>>> {
    let (done, work) = oneshot::channel();
    let copying = Arc::clone(copying);
    std::thread::Builder::new().name("backup".to_owned()).spawn(move || {
        let mut meter = Meter::new();
        let outcome = copying.copy(|progress| meter.show(progress));
        meter.say("checking");
        let outcome = outcome.and_then(|()| copying.check());
        meter.clear();
        drop(copying);
        // The receiver may have been interrupted.
        done.send(outcome).ok();
    })?;
    Ok(work)
}

/// Progress display, for a terminal only.
struct Meter {
    is_watched: bool,
}

impl Meter {
    fn new() -> Self {
        Self { is_watched: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, BackupProgress { copied, total }: BackupProgress) {
        let mebibytes = |bytes: u64| bytes >> 20;
        let percent = copied.saturating_mul(100).checked_div(total).unwrap_or(100);
        self.say(&format!("copied {} of {} MiB, {percent}%", mebibytes(copied), mebibytes(total)));
    }

    fn say(&mut self, what: &str) {
        if self.is_watched {
            let mut stderr = std::io::stderr();
            // A failure to display progress is harmless.
            write!(stderr, "\r\u{1b}[K{what}").and_then(|()| stderr.flush()).ok();
        }
    }

    fn clear(&mut self) {
        self.say("");
    }
}
