//! An app that embeds Bandana, on a host with a tokio runtime: it chooses, rewards, sends and shuts
//! down, and fails if a report was lost or counted twice.
//!
//! The server is this same program, called with `serve`. The example advances a clock manually, so
//! that hours pass at once; a real app does not.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bandana_client::grpc::AppKey;
use bandana_client::{Choice, Experiment};
use bandana_examples::embedding::{
    self, EXPERIMENT, Line, ServerPlace, TurnedClock, UNTIL_RELEASED, reaction,
};
use clap::Parser;

/// Play an app with Bandana in it, on a host with a tokio runtime.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Key of the app, if the aggregator asks for one. The one that this program starts does not.
    #[arg(long, value_name = "KEY", value_parser = AppKey::new)]
    app_key: Option<AppKey>,
}

/// Timeout of the app's background work.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval of polling for a policy, whose arrival has no notification.
const GLANCE: Duration = Duration::from_millis(5);

/// Number of readers of the app. The budget has room for more.
const READERS: u64 = 5;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "serve") {
        return bandana_aggregator::cli::main(std::env::args_os());
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("embedded-app-async: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let directory = tempfile::tempdir().context("can't create a temporary directory")?;
    let place = ServerPlace::new(directory.path().join("server"))?;
    let server = place.start().await?;
    embedding::create(&server).await?;

    // The app: a handle for all callers, a driver for the runtime.
    let clock = TurnedClock::new();
    let (app, key) = (directory.path().join("app"), arguments.app_key.as_ref());
    let ready = embedding::app(&place.url(), &app, &clock, key)?;
    let (bandana, driver) = ready.driver();
    let headline = bandana.experiment(EXPERIMENT)?;

    println!("{}", Line::HEAD);
    let note = |event: &str, choice: Option<&Choice>| {
        println!("{}", Line::new(event, choice, &bandana.status()));
    };
    // Before the driver works there is no policy.
    note("start", Some(&headline.draw()));
    let work = tokio::spawn(driver.run());
    let mut choice = first_arm(&headline).await?;
    for reader in 1..=READERS {
        choice.reward(reaction(choice.label_or("")));
        note("a reader comes", Some(&choice));
        if reader < READERS {
            choice = headline.draw();
        }
    }
    clock.forward(UNTIL_RELEASED);
    note("two hours on", None);

    // Due reports are sent before the driver ends, including those due by the advanced clock.
    bandana.begin_shutdown(PATIENCE);
    work.await?;
    note("shut down", None);

    let status = bandana.status();
    ensure!(status.waiting_reports == 0, "not everything was sent: {status:?}");
    let estimates = embedding::estimates(&server).await?;
    server.stop().await?;
    println!("\nthe server counted {} reports", estimates.reports);
    let statistics = status.statistics;
    let settled = statistics.uploads_accepted + statistics.uploads_duplicate;
    ensure!(statistics.reports_made == READERS, "{statistics:?}");
    embedding::check(statistics.reports_made, settled, &estimates)
}

/// Polls until there is a policy; a real app would show its default meanwhile.
async fn first_arm(headline: &Experiment) -> anyhow::Result<Choice> {
    for _ in 0..PATIENCE.as_millis() / GLANCE.as_millis() {
        let choice = headline.draw();
        if choice.assignment().is_some() {
            return Ok(choice);
        }
        tokio::time::sleep(GLANCE).await;
    }
    bail!("no policy came within {} seconds", PATIENCE.as_secs())
}
