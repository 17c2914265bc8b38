//! An app that embeds Bandana, on a host without an async runtime: offline first, then online,
//! restarted, out of budget, opted out. It prints the steps of the ledger and the outbox, and fails
//! if a report was lost or counted twice.
//!
//! The server is this same program, called with `serve`. The example advances a clock manually, so
//! that hours pass at once; a real app does not.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bandana_client::grpc::AppKey;
use bandana_client::{Bandana, Choice, Experiment, Reporting, Status};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::embedding::{
    self, EXPERIMENT, Line, ServerPlace, TurnedClock, UNTIL_RELEASED, reaction,
};
use bandana_shared::wire::v1::Estimates;
use clap::Parser;
use tokio::runtime::Runtime;

/// Timeout of the background work of the app's thread.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval of polling for state without notifications.
const GLANCE: Duration = Duration::from_millis(5);

/// Play an app with Bandana in it: offline, online, restarted, out of budget, opted out.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Directory for the files of app and server, which must be new or empty. Without it, a
    /// temporary directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// File for the table as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Key of the app, if the aggregator asks for one. The one that this program starts does not.
    #[arg(long, value_name = "KEY", value_parser = AppKey::new)]
    app_key: Option<AppKey>,
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "serve") {
        return bandana_aggregator::cli::main(std::env::args_os());
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("embedded-app: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let temporary = tempfile::tempdir().context("can't create a temporary directory")?;
    let directory = arguments.dir.clone().unwrap_or_else(|| temporary.path().to_owned());
    let mut stage = Stage::new(&directory, arguments.app_key.clone())?;
    println!("{}", Line::HEAD);
    let app = stage.first_start()?;
    let server = stage.start_server()?;
    stage.online(&app, &server)?;
    stage.stop_server(server)?;
    let app = stage.offline(app)?;
    let server = stage.start_server()?;
    let app = stage.send_what_waits(app)?;
    stage.spend_the_rest(&app)?;
    stage.withdraw(app)?;
    let estimates = stage.runtime.block_on(embedding::estimates(&server))?;
    stage.stop_server(server)?;
    stage.conclude(&estimates)?;
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&stage.lines)? + "\n";
        std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// One run of the app.
struct App {
    bandana: Bandana,
    headline: Experiment,
}

/// State that persists while app and server come and go.
struct Stage {
    /// For the server's process; the app needs no runtime.
    runtime: Runtime,
    server: ServerPlace,
    directory: PathBuf,
    clock: Arc<TurnedClock>,
    app_key: Option<AppKey>,
    lines: Vec<Line>,
    /// Private bits made, and uploads with a final answer, over all past runs of the app.
    made: u64,
    settled: u64,
}

impl Stage {
    fn new(directory: &Path, app_key: Option<AppKey>) -> anyhow::Result<Self> {
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            server: ServerPlace::new(directory.join("server"))?,
            directory: directory.join("app"),
            clock: TurnedClock::new(),
            app_key,
            lines: Vec::new(),
            made: 0,
            settled: 0,
        })
    }

    fn first_start(&mut self) -> anyhow::Result<App> {
        let app = self.start_app()?;
        until(|| app.bandana.status().statistics.fetches_failed > 0)
            .context("the app does not ask for the experiment")?;
        self.show(&app, "first start, no server in reach");
        Ok(app)
    }

    fn online(&mut self, app: &App, server: &AggregatorProcess) -> anyhow::Result<()> {
        self.runtime.block_on(embedding::create(server))?;
        self.pass(app, Duration::from_mins(1));
        let mut choice = app.headline.draw();
        until(|| {
            if choice.assignment().is_none() {
                choice = app.headline.draw();
            }
            choice.assignment().is_some()
        })
        .context("no policy came")?;
        choice.reward(reaction(choice.label_or("")));
        self.note("a server is there: an arm comes", Some(&choice), &app.bandana.status());
        for _ in 0..2 {
            self.show(app, "online");
        }
        self.pass(app, UNTIL_RELEASED);
        until(|| is_idle(&app.bandana.status())).context("the reports are not sent")?;
        self.note("two hours on: sent", None, &app.bandana.status());
        Ok(())
    }

    /// Runs without a server, across a restart.
    fn offline(&mut self, app: App) -> anyhow::Result<App> {
        for _ in 0..3 {
            self.show(&app, "the server is away: offline");
        }
        let failed = app.bandana.status().statistics.fetches_failed;
        self.pass(&app, UNTIL_RELEASED);
        let waits = |status: &Status| status.waiting_reports == 3;
        until(|| {
            let status = app.bandana.status();
            waits(&status) && status.statistics.fetches_failed > failed
        })
        .context("the reports are not made")?;
        self.note("two hours on: they wait", None, &app.bandana.status());
        let last = app.headline.draw();
        self.note("one more, no reaction yet", Some(&last), &app.bandana.status());
        let id = last.assignment().context("no arm")?.id();
        drop(last);
        self.end_app(app)?;
        let app = self.start_app()?;
        self.note("the app was restarted", None, &app.bandana.status());
        let resumed = app.bandana.assignment(id).context("the assignment is gone")?;
        resumed.reward(reaction(resumed.label()));
        drop(resumed);
        self.show(&app, "the cached policy is there");
        Ok(app)
    }

    /// Runs with the server back: due reports are sent before the app ends.
    fn send_what_waits(&mut self, app: App) -> anyhow::Result<App> {
        self.pass(&app, UNTIL_RELEASED);
        // What the outage has gathered leaves one by one, each within its delay.
        let mut polls = 0_u32;
        until(|| {
            polls += 1;
            if polls.is_multiple_of(40) {
                self.pass(&app, Duration::from_mins(10));
            }
            is_idle(&app.bandana.status())
        })
        .context("not everything was sent")?;
        let status = self.end_app(app)?;
        self.note("the server is back, the app ends", None, &status);
        self.start_app()
    }

    fn spend_the_rest(&mut self, app: &App) -> anyhow::Result<()> {
        self.pass(app, Duration::ZERO);
        for _ in 0..2 {
            self.show(app, "the week's budget is spent");
        }
        ensure!(is_idle(&app.bandana.status()), "an assignment without budget reports");
        self.pass(app, Duration::from_hours(7 * 24));
        self.show(app, "a week later");
        Ok(())
    }

    fn withdraw(&mut self, app: App) -> anyhow::Result<()> {
        app.bandana.opt_out()?;
        self.note("the user opts out: all deleted", None, &app.bandana.status());
        self.show(&app, "arms stop");
        self.end_app(app)?;
        let app = self.start_app()?;
        self.show(&app, "restarted: still out, debits kept");
        self.end_app(app)?;
        Ok(())
    }

    fn conclude(&self, estimates: &Estimates) -> anyhow::Result<()> {
        println!("\nthe server counted, of {} reports that were made:", self.made);
        for arm in &estimates.arms {
            println!("{:10} {:>3} reports, {:>3} ones", arm.label, arm.reports, arm.ones);
        }
        embedding::check(self.made, self.settled, estimates)
    }

    /// Shows a headline that the app chooses, and records the reader's reaction.
    fn show(&mut self, app: &App, event: &str) {
        let choice: Choice = app.headline.draw();
        choice.reward(reaction(choice.label_or("")));
        self.note(event, Some(&choice), &app.bandana.status());
    }

    fn note(&mut self, event: &str, choice: Option<&Choice>, status: &Status) {
        let line = Line::new(event, choice, status);
        println!("{line}");
        self.lines.push(line);
    }

    fn pass(&self, app: &App, time: Duration) {
        self.clock.forward(time);
        app.bandana.wake();
    }

    fn start_server(&self) -> anyhow::Result<AggregatorProcess> {
        self.runtime.block_on(self.server.start())
    }

    fn stop_server(&self, server: AggregatorProcess) -> anyhow::Result<()> {
        self.runtime.block_on(server.stop())
    }

    fn start_app(&self) -> anyhow::Result<App> {
        let (url, key) = (self.server.url(), self.app_key.as_ref());
        let app = embedding::app(&url, &self.directory, &self.clock, key)?;
        let bandana = app.start()?;
        let reporting = bandana.status().reporting;
        if let Reporting::StorageUnusable(error) = reporting {
            return Err(error).context("the directory can't be used");
        }
        let headline = bandana.experiment(EXPERIMENT)?;
        Ok(App { bandana, headline })
    }

    /// Sends due reports and ends the app; returns its last status.
    fn end_app(&mut self, app: App) -> anyhow::Result<Status> {
        ensure!(app.bandana.shutdown(PATIENCE), "the app did not end in time");
        let status = app.bandana.status();
        self.made += status.statistics.reports_made;
        self.settled += status.statistics.uploads_accepted + status.statistics.uploads_duplicate;
        // The directory is released with the last handle.
        drop(app);
        Ok(status)
    }
}

/// Whether nothing is left to send.
fn is_idle(status: &Status) -> bool {
    status.open_assignments == 0 && status.waiting_reports == 0
}

/// Waits for background work of the app's thread.
fn until(mut condition: impl FnMut() -> bool) -> anyhow::Result<()> {
    for _ in 0..PATIENCE.as_millis() / GLANCE.as_millis() {
        if condition() {
            return Ok(());
        }
        std::thread::sleep(GLANCE);
    }
    bail!("nothing happened within {} seconds", PATIENCE.as_secs())
}
