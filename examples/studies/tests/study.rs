//! Every study at its smallest: it ends, and its result and picture are whole. And what takes longer than a
//! unit test may.

use std::process::Command;

use anyhow::{Context as _, ensure};
use bandana_studies::verdicts::instance::VerdictInstance;
use bandana_studies::verdicts::trial::{self, VerdictRun};

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
    run("synthetic", "--rows 2000 --trials 1", "\"reported\"")?;
    run("synthetic", "--wide --rows 1000 --trials 1 --ways 1", "\"reported\"")
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

/// Of so few runs, more than this many that are wrong at a level of 5% have a probability below 1e-3.
const RUNS: u64 = 12;
const WRONG_MAX: usize = 4;

#[test]
fn verdicts_are_right_where_sums_over_all_users_are_not() -> anyhow::Result<()> {
    let mut pooled = 0;
    for instance in VerdictInstance::all() {
        let (even, odd) = std::thread::scope(|scope| {
            let of = |first| {
                let instance = &instance;
                let seeds = (first..RUNS).step_by(2);
                scope.spawn(move || seeds.map(|seed| trial::run(instance, seed)).collect())
            };
            let (even, odd) = (of(0), of(1));
            (even.join(), odd.join())
        });
        let mut runs: Vec<VerdictRun> = Vec::new();
        for half in [even, odd] {
            let half: anyhow::Result<Vec<VerdictRun>> =
                half.map_err(|_| anyhow::anyhow!("a run has panicked"))?;
            runs.extend(half?);
        }
        let count = |of: fn(&VerdictRun) -> bool| runs.iter().filter(|run| of(run)).count();
        let wrong =
            [count(|run| run.is_wrong), count(|run| run.has_missed), count(|run| run.has_harm)];
        ensure!(wrong.iter().all(|wrong| *wrong <= WRONG_MAX), "{}: {wrong:?}", instance.name);
        pooled += count(|run| run.is_wrong_pooled);
    }
    ensure!(pooled >= 4 * 12, "{pooled} wrong verdicts by sums");
    Ok(())
}
