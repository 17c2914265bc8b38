//! The load generator, as run by hand and by scripts.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_load-generator");

/// All fields of the result.
const FIELDS: [&str; 13] = [
    "acknowledged",
    "fsync_per_second",
    "p50_ms",
    "p999_ms",
    "p99_ms",
    "refused",
    "reports",
    "reports_per_second",
    "seconds",
    "server_cpu_seconds",
    "uploads",
    "uploads_per_cpu_second",
    "uploads_per_second",
];

fn generator(json: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["--connections", "2", "--in-flight", "8", "--json"]).arg(json).args(flags);
    command.clean_environment();
    command
}

/// The numbers of a result, in the order of [`FIELDS`].
fn result(json: &Path) -> anyhow::Result<Vec<f64>> {
    let result: Value = serde_json::from_slice(&std::fs::read(json)?)?;
    let fields = result.as_object().context("not an object")?;
    let mut names: Vec<_> = fields.keys().map(String::as_str).collect();
    names.sort_unstable();
    ensure!(names == FIELDS, "{names:?}");
    let numbers = FIELDS.iter().map(|name| fields[*name].as_f64());
    numbers.collect::<Option<_>>().with_context(|| format!("not all are numbers: {result}"))
}

#[test]
fn every_acknowledged_upload_is_in_the_result_and_counted() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("load.json");
    let flags = ["--seconds", "1", "--reports-per-upload", "7", "--lose", "0.1", "--repeat", "0.1"];
    let output = generator(&json, &flags).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let numbers = result(&json)?;
    let [acknowledged, syncs, p50, p999, p99, refused, reports, ..] = numbers[..] else {
        anyhow::bail!("{numbers:?}")
    };
    ensure!(acknowledged > 0.0 && refused == 0.0 && syncs > 0.0, "{numbers:?}");
    ensure!((reports - 7.0 * acknowledged).abs() < 0.5, "{numbers:?}");
    ensure!(0.0 < p50 && p50 <= p99 && p99 <= p999, "{numbers:?}");
    Ok(())
}

#[tokio::test]
async fn an_interrupted_load_on_a_running_server_has_a_result() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("load.json");
    // This program can be a server too.
    let server = AggregatorProcess::start(PROGRAM.as_ref(), &folder.path().join("data")).await?;
    let urls = ["--server", &server.device_url, "--operator-url", &server.operator_url];
    let mut command = generator(&json, &urls);
    command.args(["--seconds", "3600"]).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut load = command.spawn()?;
    let mut lines = BufReader::new(load.stderr.take().context("no standard error")?).lines();
    // The first line comes with the first acknowledged upload.
    let first = lines.next().context("nothing was said")??;
    ensure!(first.contains("acknowledged"), "{first}");
    let process = Pid::from_raw(i32::try_from(load.id())?).context("no process")?;
    kill_process(process, Signal::INT)?;
    let told: Vec<String> = lines.collect::<Result<_, _>>()?;
    ensure!(load.wait()?.success(), "{told:?}");
    let numbers = result(&json)?;
    ensure!(numbers.iter().all(|number| number.is_finite()), "{numbers:?}");
    server.stop().await
}
