//! Users who disclose rewards, as the program is run by hand and by scripts.

use std::process::Command;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_trusted-users");

/// Runs it, and reads its result.
fn result(flags: &[&str]) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("result.json");
    let mut command = Command::new(PROGRAM);
    command.args(flags).arg("--json").arg(&json).env_clear();
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout)?;
    ensure!(said.contains("the best was played by"), "{said}");
    Ok(serde_json::from_slice(&std::fs::read(&json)?)?)
}

#[test]
fn every_algorithm_learns_from_its_users() -> anyhow::Result<()> {
    // With so little noise, who learns nothing would play the best a fifth or a tenth of the time.
    for (algorithm, least) in [("adac-ucb", 0.5), ("lazy-release", 0.5), ("adac-oful", 0.4)] {
        let flags = ["--algorithm", algorithm, "--users", "1000", "--rho", "100"];
        let result = result(&flags)?;
        assert_eq!(result["rewards"], 1000);
        assert!(result["releases"].as_u64() > Some(1), "{result}");
        let late = result["best_share_late"].as_f64().context("no share")?;
        assert!(late > least, "{algorithm}: {result}");
    }
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
