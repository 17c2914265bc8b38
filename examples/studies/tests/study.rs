//! Every study at its smallest: it ends, and its result and picture are whole.

use std::process::Command;

use anyhow::{Context as _, ensure};

/// Runs a study with a plot and JSON, and requires this text in the JSON.
fn run(study: &str, flags: &str, field: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (plot, json) = (folder.path().join("plot.svg"), folder.path().join("result.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_study"));
    command.arg(study).args(flags.split_whitespace()).arg("--json").arg(&json);
    // A table of figures without a picture.
    if study != "synthetic" {
        command.arg("--plot").arg(&plot);
    }
    let output = command.current_dir(folder.path()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = std::fs::read_to_string(json)?;
    ensure!(result.contains(field), "no {field}: {result}");
    if study != "synthetic" {
        let picture = std::fs::read_to_string(plot).context("no picture")?;
        ensure!(picture.contains("</svg>"), "{study} draws half a picture");
    }
    Ok(())
}

#[test]
fn regret_of_all_learners() -> anyhow::Result<()> {
    let flags = "--horizon 2000 --trials 5 --threads 2 --learners all --epsilon 1 \
                 --trials-file trials.jsonl";
    run("regret", flags, "\"learner\": \"rand-ada-kl\"")
}

#[test]
fn visits() -> anyhow::Result<()> {
    run("visits", "--users 1000 --trials 3 --threads 2", "\"epsilon_spent\"")
}

#[test]
fn segments() -> anyhow::Result<()> {
    run("segments", "--users 20000 --trials 2 --threads 2", "\"shrunk towards the others\"")
}

#[test]
fn contexts() -> anyhow::Result<()> {
    run("context", "--users 20000 --trials 2 --threads 2", "\"last_policy\"")
}

#[test]
fn synthetic_tables() -> anyhow::Result<()> {
    run("synthetic", "--rows 2000 --trials 1", "\"reported\"")
}

#[test]
fn decisions() -> anyhow::Result<()> {
    let flags = "--horizon 20000 --trials 5 --threads 2 --epsilon 5";
    run("decision", flags, "\"learner\": \"top-two\"")
}

#[test]
fn curators() -> anyhow::Result<()> {
    let flags = "--horizon 20000 --trials 5 --threads 2 \
                 --algorithm adac-ucb,lazy-release,adac-gope,adac-oful";
    run("curator", flags, "\"price_of_privacy\"")
}
