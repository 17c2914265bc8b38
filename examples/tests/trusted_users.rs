//! Users who disclose rewards, as the program is run by hand and by scripts.

use std::process::Command;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_trusted-users");

/// Runs the program, and parses its result.
fn result(flags: &[&str]) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("result.json");
    let mut command = Command::new(PROGRAM);
    command.args(flags).arg("--json").arg(&json).clean_environment();
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout)?;
    ensure!(said.contains("the best was played by"), "{said}");
    Ok(serde_json::from_slice(&std::fs::read(&json)?)?)
}

/// A run with so little noise that every algorithm learns.
fn learned(algorithm: &str) -> anyhow::Result<Value> {
    let result = result(&["--algorithm", algorithm, "--users", "1000", "--rho", "100"])?;
    ensure!(result["rewards"] == 1000, "{result}");
    ensure!(result["releases"].as_u64() > Some(1), "{result}");
    Ok(result)
}

#[test]
fn the_server_learns_from_its_users() -> anyhow::Result<()> {
    for algorithm in ["adac-ucb", "lazy-release"] {
        let result = learned(algorithm)?;
        let arms = result["arms"].as_array().context("no arms")?;
        let pay = |arm: &Value| Some(arm["plays"].as_f64()? * arm["true_mean"].as_f64()?);
        let mean = arms.iter().filter_map(pay).sum::<f64>() / 1000.0;
        // Uniform play yields 0.5. The two best arms are not always distinguished by then.
        assert!(mean > 0.55, "{algorithm}: {result}");
    }
    let result = learned("adac-oful")?;
    let late = result["best_share_late"].as_f64().context("no share")?;
    // There are ten actions.
    assert!(late > 0.4, "{result}");
    Ok(())
}

#[tokio::test]
async fn users_reach_a_server_that_runs_already() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = AggregatorProcess::start(PROGRAM.as_ref(), &folder.path().join("data")).await?;
    let urls = ["--server", &server.device_url, "--operator-url", &server.operator_url];
    let flags = [&["--algorithm", "adac-gope", "--users", "300", "--rho", "1"], &urls[..]].concat();
    let result = result(&flags)?;
    let arms = result["arms"].as_array().context("no arms")?;
    let plays: u64 = arms.iter().filter_map(|arm| arm["plays"].as_u64()).sum();
    assert_eq!((plays, arms.len(), &result["rewards"]), (300, 10, &300.into()));
    server.stop().await
}
