//! The README's five minutes, as they stand there, against a real server.

use anyhow::{Context as _, ensure};
use bandana_tests::browser::Browser;
use bandana_tests::steps::{Shell, chapters};

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

#[tokio::test]
async fn five_minutes_end_with_the_best_arm() -> anyhow::Result<()> {
    let chapters = chapters(&std::fs::read_to_string(PAGE)?)?;
    let tour = chapters.iter().find(|chapter| chapter.title == "Five minutes");
    let steps = &tour.context("the README has no tour")?.steps;
    let (installing, steps) = steps.split_at_checked(2).context("too few steps")?;
    let installing: Vec<_> = installing.iter().map(|step| &step.command[..]).collect();
    ensure!(installing == INSTALLING, "{installing:?}");
    let (end, steps) = steps.split_last().context("no steps")?;
    ensure!(end.command.starts_with("kill \"$server\""), "the last step is {:?}", end.command);

    let mut shell = Shell::start(&PROGRAMS, &[], &[])?;
    shell.run_all(steps).await?;
    // In the browser that the page speaks of.
    if let Some(browser) = Browser::start().await? {
        browser.open(&format!("http://127.0.0.1:{}/", shell.port(7302)?)).await?;
        browser.until("document.body.innerText.includes('button-colour')").await?;
        browser.quit().await?;
    }
    shell.run(end).await?;
    shell.end().await
}
