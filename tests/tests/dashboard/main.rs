//! The dashboard, in a browser.
//!
//! Each test drives a Chromium of its own, and is skipped where there is none unless
//! `BANDANA_REQUIRE_BROWSER` is 1.

mod alarms;
mod content;
mod keyboard;
mod sign_in;
mod strangers;
mod trusted;

use anyhow::ensure;
use serde_json::Value;
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const SKIPPED: &str = "skipped: there is no chromedriver";

/// What a command prints with `--json`, of the server with this URL.
async fn printed(url: &str, arguments: &[&str]) -> anyhow::Result<Value> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--json").env_clear().env("BANDANA_OPERATOR_URL", url);
    let output = command.output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {}: {errors}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What was done to an experiment, the latest first, as `bandana audit` has it.
async fn actions(url: &str, experiment: &str) -> anyhow::Result<Vec<String>> {
    let audit = printed(url, &["audit", experiment]).await?;
    let entries = audit["entries"].as_array().cloned().unwrap_or_default();
    Ok(entries.iter().filter_map(|entry| Some(entry["action"].as_str()?.to_owned())).collect())
}
