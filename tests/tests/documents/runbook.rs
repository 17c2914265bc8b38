//! The runbook's steps, run as written against real servers: each chapter is a test.
//!
//! [`bandana_tests::steps`] defines the syntax of commands and expectations. Each chapter follows
//! on a rehearsal: the one on PostgreSQL if it speaks of `$DATABASE`, and then it needs a database
//! server. The steps call curl and openssl besides.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bandana_tests::postgres::Shared;
use bandana_tests::steps::{Chapter, Shell, chapters};
use bandana_tests::suite::Suite;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbook.md");

const PROGRAMS: [(&str, &str); 2] = [
    ("bandana", env!("CARGO_BIN_EXE_aggregator-under-test")),
    ("simulated-users", env!("CARGO_BIN_EXE_aggregator-under-test")),
];

const IN_A_DIRECTORY: &str = "Rehearse in a directory";
const ON_POSTGRES: &str = "Rehearse on PostgreSQL";

/// The first words of blocks that are not run: tests have no systemd.
const SHOWN: [&str; 1] = ["systemctl"];

/// The required chapters.
const CHAPTERS: [&str; 15] = [
    "Back up",
    "Restore",
    "Upgrade",
    "Rotate operators' tokens",
    "Rotate certificates",
    "Rotate the keys of apps",
    "Rotate the keys that sign",
    "Rotate the database's password",
    "Lose a replica",
    "Lose the database",
    "A full disk",
    "No store",
    "No room for ids",
    "A poisoned experiment",
    "An alarm goes off",
];

/// Adds a test for each chapter.
pub(crate) fn add(suite: &mut Suite, postgres: &Shared) -> anyhow::Result<()> {
    let chapters = Arc::new(chapters(&std::fs::read_to_string(PAGE)?)?);
    for title in CHAPTERS {
        let (chapters, server) = (Arc::clone(&chapters), postgres.clone());
        suite.add(format!("runbook::{title}"), move || rehearse(&chapters, title, &server));
    }
    suite.add("runbook::no step is left out", move || none_left_out(&chapters));
    Ok(())
}

fn needs_database(chapter: &Chapter) -> bool {
    chapter.steps.iter().any(|step| step.command.contains("$DATABASE"))
}

fn chapter<'a>(chapters: &'a [Chapter], title: &str) -> anyhow::Result<&'a Chapter> {
    let found = chapters.iter().find(|chapter| chapter.title == title);
    found.with_context(|| format!("the runbook has no chapter {title:?}"))
}

fn rehearse(chapters: &[Chapter], title: &str, postgres: &Shared) -> anyhow::Result<()> {
    let wanted = chapter(chapters, title)?;
    let (before, folders, variables) = if needs_database(wanted) {
        let server = postgres.server()?;
        let variables = [("DATABASE", server.database()?), ("SPARE", server.database()?)];
        (chapter(chapters, ON_POSTGRES)?, vec![server.programs()], variables.to_vec())
    } else {
        (chapter(chapters, IN_A_DIRECTORY)?, Vec::new(), Vec::new())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut shell = Shell::start(&PROGRAMS, &folders, &variables)?;
        shell.run_all(&before.steps).await?;
        shell.run_all(&wanted.steps).await?;
        shell.end().await
    })
}

/// Checks that every chapter is run, and that only blocks of [`SHOWN`] are not.
fn none_left_out(chapters: &[Chapter]) -> anyhow::Result<()> {
    let titles: Vec<_> = chapters.iter().map(|chapter| &chapter.title[..]).collect();
    let known: Vec<_> = [IN_A_DIRECTORY, ON_POSTGRES].into_iter().chain(CHAPTERS).collect();
    ensure!(titles == known, "chapters are {titles:?}");
    for chapter in chapters {
        ensure!(!chapter.steps.is_empty(), "{:?} has no steps", chapter.title);
    }
    let page = std::fs::read_to_string(PAGE)?;
    let blocks = page.split("```console\n").skip(1);
    let shown: Vec<_> = blocks.filter_map(|block| block.split_whitespace().next()).collect();
    ensure!(shown == SHOWN, "blocks that are not run begin with {shown:?}");
    Ok(())
}
