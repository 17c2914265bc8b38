//! Private queries about people who trust the server.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::queries::contest::{Outcome, Settings, play};
use bandana_examples::queries::promises::{self, Kept};
use bandana_examples::queries::tour::{Stop, tour};
use bandana_examples::queries::{people, picture};
use bandana_mechanisms::queries::counting::{accuracy, queries_within};
use bandana_mechanisms::queries::price::{Price, PureLoss};
use bandana_studies::picture::PictureFile;
use clap::Parser;
use serde::Serialize;

/// Ask private queries about people who trust the server.
///
/// The program invents people and gives them to a real aggregator in another process. It asks
/// everything that there is to ask. Then private multiplicative weights and noise on every answer
/// compete over many adaptive queries.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Number of people.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    people: u32,
    /// Number of queries in the contest.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..))]
    queries: u64,
    /// Budget of each contestant.
    #[arg(long, default_value_t = 1.0)]
    epsilon: f64,
    /// Most updates of the session.
    #[arg(long, default_value_t = 150)]
    updates: u32,
    /// Threshold of the session, as a share of the people.
    #[arg(long, default_value_t = 0.025)]
    threshold: f64,
    /// Number of sessions of each kind. Their errors are compared with their promise.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Seed of the people and of the contest. The server's noise does not follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File for the plot. It is SVG or PNG, by the end of its name.
    #[arg(long, value_name = "FILE", default_value = "private-queries.svg")]
    plot: PictureFile,
    /// File for the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Result {
    epsilon: f64,
    seed: u64,
    tour: Vec<Stop>,
    contest: Outcome,
    promises: Vec<Kept>,
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "serve") {
        return bandana_aggregator::cli::main(std::env::args_os());
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("private-queries: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { people: count, queries, epsilon, updates, threshold, seed, .. } = *arguments;
    let people = people::invent(count, seed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stops = runtime.block_on(serve_and_ask(&people))?;
    println!("{count} people, asked through a server with a budget of epsilon = 4:\n");
    for Stop { question, answer, price_nanos } in &stops {
        let price = *price_nanos as f64 * 1e-9;
        println!("{question}\n    {answer}; epsilon {price:.2}");
    }
    let contest = play(&people, Settings { queries, epsilon, updates, threshold, seed })?;
    report(epsilon, &contest)?;
    let promises = promises::compare(arguments.sessions, seed)?;
    report_promises(arguments.sessions, &promises)?;
    picture::write(&arguments.plot, epsilon, &contest)?;
    println!("\nplot: {}", arguments.plot);
    if let Some(path) = &arguments.json {
        let result = Result { epsilon, seed, tour: stops, contest, promises };
        let text = serde_json::to_string_pretty(&result)? + "\n";
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

async fn serve_and_ask(
    people: &bandana_mechanisms::queries::rows::Rows,
) -> anyhow::Result<Vec<Stop>> {
    let directory = tempfile::tempdir()?;
    let data_sets = directory.path().join("data-sets");
    std::fs::create_dir(&data_sets)?;
    people::write(people, &data_sets.join(people::FILE))?;
    let flag = data_sets.to_str().context("the temporary directory has an odd name")?;
    let program = std::env::current_exe()?;
    let store = directory.path().join("store");
    let server = AggregatorProcess::start_with(&["--data-sets", flag], &program, &store).await?;
    let stops = tour(&server.operator_url).await?;
    server.stop().await?;
    Ok(stops)
}

/// The probability that this share of the sessions or a larger one breaks promises that each hold with
/// probability 95 %.
fn chance_of_broken(share: f64, sessions: u32) -> f64 {
    let of_number = |broken: u32| {
        let ways = (0..broken).map(|n| f64::from(sessions - n) / f64::from(broken - n));
        ways.product::<f64>()
            * 0.05_f64.powf(broken.into())
            * 0.95_f64.powf((sessions - broken).into())
    };
    let broken =
        (0..=sessions).filter(|broken| f64::from(*broken) >= share * f64::from(sessions) - 0.5);
    broken.map(of_number).sum()
}

fn report_promises(sessions: u32, promises: &[Kept]) -> anyhow::Result<()> {
    println!(
        "\n1000 adaptive queries about 100000 rows in 820 cells, epsilon = 2 or the rho that it costs, \
         {sessions} sessions\nof each kind; the largest error of a session, in rows:"
    );
    for Kept { name, promise, mean_largest, largest, broken, updates } in promises {
        println!(
            "    {name:20} promised {promise:6.0}, mean {mean_largest:6.0}, largest {largest:6.0} \
             ({updates:.0} updates)"
        );
        let chance = chance_of_broken(*broken, sessions);
        ensure!(chance >= 1e-6, "{name}: {broken} of the sessions broke their promise");
    }
    Ok(())
}

fn report(epsilon: f64, contest: &Outcome) -> anyhow::Result<()> {
    let price = Price::Pure(PureLoss::new(epsilon)?);
    let one_percent = contest.rows as f64 / 100.0;
    let planned = queries_within(one_percent, price, 0.05)?;
    println!(
        "\nWith Laplace noise, epsilon = {epsilon} is enough for {planned} counts with errors of at \
         most 1 %."
    );
    println!(
        "{} adaptive queries over {} cells, epsilon = {epsilon} for all ({} updates):",
        contest.queries, contest.cells, contest.updates
    );
    for contestant in &contest.contestants {
        let ended = match contestant.answered {
            all if all == contest.queries => String::new(),
            answered => format!("; its updates were used up after {answered}"),
        };
        println!(
            "    {:24} mean error {:8.4} %, largest {:8.4} %{ended}",
            contestant.name,
            100.0 * contestant.mean_error,
            100.0 * contestant.largest_error
        );
    }
    let [weights, laplace, ..] = &contest.contestants[..] else {
        return Err(anyhow::anyhow!("nobody has played"));
    };
    let [one, all] = [1, contest.queries].map(|counts| accuracy(counts, price, 0.05));
    let (one, all) = (one?, all?);
    if weights.answered < contest.queries
        || weights.mean_error >= laplace.mean_error
        || contest.rows < 100 * one
    {
        println!("\n{}", too_few(contest, one, all));
    }
    Ok(())
}

/// What few people mean, or few updates: the noise does not shrink with the people. `one` and `all` are
/// the errors, in people, that one count and all of them keep within by Laplace noise.
fn too_few(contest: &Outcome, one: u64, all: u64) -> String {
    format!(
        "Noise hides one person, among {} as among millions: a count is off by up to {one} people, each \
         of {} counts by up to {all}. Errors of 1 % of the people take {} people for one count, and {} \
         for all; multiplicative weights take fewer if their session has updates enough (--updates, \
         --threshold).",
        contest.rows,
        contest.queries,
        100 * one,
        100 * all,
    )
}
