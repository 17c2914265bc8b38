//! The README's five minutes, as they stand there, against a real server.

use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use bandana_tests::add_async;
use bandana_tests::browser::Browser;
use bandana_tests::steps::{Shell, Step, chapters};
use bandana_tests::suite::Suite;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");

const PROGRAMS: [(&str, &str); 2] = [
    ("bandana", env!("CARGO_BIN_EXE_aggregator-under-test")),
    ("simulated-users", env!("CARGO_BIN_EXE_users-under-test")),
];

/// What `.ci/run` does as it stands there. It makes the programs that are here already.
const INSTALLING: [&str; 2] = [
    "cargo install --path aggregator --locked",
    "cargo install --path examples --locked --bin simulated-users",
];

fn main() -> ExitCode {
    let mut suite = Suite::from_args();
    add_async!(suite;
        five_minutes_end_with_the_best_arm,
        the_browser_shows_the_experiment_of_the_five_minutes,
    );
    suite.run().exit_code()
}

/// The steps from the server's start on.
fn five_minutes() -> anyhow::Result<Vec<Step>> {
    let chapters = chapters(&std::fs::read_to_string(PAGE)?)?;
    let tour = chapters.iter().find(|chapter| chapter.title == "Five minutes");
    let steps = &tour.context("the README has no tour")?.steps;
    let (installing, steps) = steps.split_at_checked(2).context("too few steps")?;
    let installing: Vec<_> = installing.iter().map(|step| &step.command[..]).collect();
    ensure!(installing == INSTALLING, "{installing:?}");
    Ok(steps.to_vec())
}

async fn five_minutes_end_with_the_best_arm() -> anyhow::Result<()> {
    let steps = five_minutes()?;
    let end = steps.last().context("no steps")?;
    ensure!(end.command.starts_with("kill \"$server\""), "the last step is {:?}", end.command);
    let mut shell = Shell::start(&PROGRAMS, &[], &[])?;
    shell.run_all(&steps).await?;
    shell.end().await
}

async fn the_browser_shows_the_experiment_of_the_five_minutes() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let steps = five_minutes()?;
    // It is there before anybody takes part.
    let before = steps.iter().take_while(|step| !step.command.contains("simulated-users"));
    let mut shell = Shell::start(&PROGRAMS, &[], &[])?;
    for step in before {
        shell.run(step).await?;
    }
    browser.open(&format!("http://127.0.0.1:{}/", shell.port(7302)?)).await?;
    browser.until("document.body.innerText.includes('button-colour')").await?;
    browser.quit().await?;
    shell.end().await
}
