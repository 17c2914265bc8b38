//! Every program at its smallest, with all that it can be asked for.

use std::process::Command;

use anyhow::ensure;
use bandana_examples::environment::CleanEnvironment as _;
use serde_json::Value;

const USERS: &str = env!("CARGO_BIN_EXE_simulated-users");
const LOAD: &str = env!("CARGO_BIN_EXE_load-generator");

/// The result of a program as text, which has each of these texts. Each of these programs ends with
/// an error when something acknowledged is not counted, or counted twice.
fn run(program: &str, flags: &str, wanted: &[&str]) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("result.json");
    let mut command = Command::new(program);
    command.args(flags.split_whitespace()).arg("--json").arg(&json).clean_environment();
    let output = command.current_dir(folder.path()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = std::fs::read_to_string(json)?;
    for text in wanted {
        ensure!(result.contains(text), "no {text}: {result}");
    }
    for entry in std::fs::read_dir(folder.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "svg") {
            ensure!(std::fs::read_to_string(&path)?.contains("</svg>"), "{}", path.display());
        }
    }
    Ok(serde_json::from_str(&result)?)
}

fn users(flags: &str, wanted: &[&str]) -> anyhow::Result<()> {
    let small = "--users 2000 --refresh 200 --seed 1 --plot plot.svg ";
    run(USERS, &(small.to_owned() + flags), wanted).map(drop)
}

#[test]
fn users_report_directly() -> anyhow::Result<()> {
    users("", &["\"reports_accepted\": 2000", "\"duplicates\": 0", "\"users\": 2000"])
}

#[test]
fn users_report_through_a_relay() -> anyhow::Result<()> {
    users("--relay", &["\"reports_accepted\": 2000"])
}

#[test]
fn users_report_in_batches() -> anyhow::Result<()> {
    users("--relay --shuffle 20", &["\"shuffle_batch\": 20"])
}

#[test]
fn users_come_back_in_segments_with_a_metric() -> anyhow::Result<()> {
    users("--visits 3 --segments 2 --metrics 1", &["\"users\": 2000"])
}

#[test]
fn users_of_a_log_give_the_means_over_all_users() -> anyhow::Result<()> {
    // Green is better in both segments, and was mostly logged in the one where rewards are low.
    let rows = |segment, blue, green, most_are_blue| {
        (0..100).map(move |n| {
            let is_green = (n % 10 == 0) == most_are_blue;
            let (arm, reward) = if is_green { ("green", green) } else { ("blue", blue) };
            format!("{arm},{reward},{segment}\n")
        })
    };
    let rows: String = rows("ios", 0.8, 1.0, true).chain(rows("web", 0.0, 0.2, false)).collect();
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log.csv");
    std::fs::write(&log, "arm,reward,segment\n".to_owned() + &rows)?;
    let flags = format!("--users 2000 --refresh 200 --seed 1 --log {}", log.display());
    let result = run(USERS, &flags, &["\"impressions\": 200"])?;
    let means = ["green", "blue"].map(|label| {
        let arms = result["arms"].as_array().into_iter().flatten();
        arms.filter(|arm| arm["label"] == label).find_map(|arm| arm["true_mean"].as_f64())
    });
    let is = |mean: Option<f64>, exact: f64| mean.is_some_and(|mean| (mean - exact).abs() < 1e-9);
    ensure!(is(means[0], 0.6) && is(means[1], 0.4), "{means:?}");
    Ok(())
}

#[test]
fn users_disclose_rewards_to_every_algorithm() -> anyhow::Result<()> {
    for algorithm in ["adac-ucb", "lazy-release", "adac-gope", "adac-oful"] {
        let flags = format!("--algorithm {algorithm} --users 500");
        let result = run(env!("CARGO_BIN_EXE_trusted-users"), &flags, &[])?;
        ensure!(result["rewards"] == 500, "{result}");
    }
    Ok(())
}

#[test]
fn load_goes_through_a_relay() -> anyhow::Result<()> {
    run(LOAD, "--seconds 1 --relay", &["\"relay_cpu_seconds\": "]).map(drop)
}

#[test]
fn load_is_compared_with_a_bare_server() -> anyhow::Result<()> {
    run(LOAD, "--reference --rounds 1 --seconds 1", &["\"call\": \"SubmitUploads\""]).map(drop)
}

#[test]
fn load_comes_at_a_rate() -> anyhow::Result<()> {
    run(LOAD, "--open-loop upload --seconds 1", &["\"p999_ms\""]).map(drop)
}

#[test]
fn load_is_measured_beside_other_work() -> anyhow::Result<()> {
    let flags = "--stalls --rounds 1 --seconds 1 --rate 500";
    run(LOAD, flags, &["\"beside\": \"backups\""]).map(drop)
}

#[test]
fn a_server_grows() -> anyhow::Result<()> {
    let flags = "--experiments 1,20 --arms 16 --ids 2000 --days 1,30 --devices 50 --seconds 1";
    run(env!("CARGO_BIN_EXE_growth-study"), flags, &["\"devices\": 50"]).map(drop)
}

#[test]
fn queries_are_asked_of_every_mechanism() -> anyhow::Result<()> {
    let flags = "--people 20000 --queries 1000 --epsilon 2 --updates 100 --threshold 0.05 \
                 --plot queries.svg";
    let names = ["\"multiplicative weights\"", "nothing was spent", "\"weights, rho\""];
    run(env!("CARGO_BIN_EXE_private-queries"), flags, &names).map(drop)
}

#[test]
fn apps_embed_the_client() -> anyhow::Result<()> {
    let spent = ["\"reason\": \"no report: WindowSpent\""];
    run(env!("CARGO_BIN_EXE_embedded-app"), "", &spent)?;
    let app =
        Command::new(env!("CARGO_BIN_EXE_embedded-app-async")).clean_environment().output()?;
    ensure!(app.status.success(), "{}", String::from_utf8_lossy(&app.stderr));
    Ok(())
}
