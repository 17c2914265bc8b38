//! Uploads at a rate while the server has something else to do: does it make them wait?

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::limits::ARMS_MAX;
use serde::Serialize;
use tokio::process::Command;
use tokio::time::Instant;

use super::Servers;
use super::reference::{Caller, Measured, at_rate, in_flight};

/// Number of designs so far, of which each has a name.
static DESIGNS: AtomicU64 = AtomicU64::new(0);

/// Coordinates of the actions of a trusted design.
const DIMENSION: usize = 16;

/// What the server has to do beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Nothing,
    /// Copies of its store, one after the other.
    Backup,
    /// Exports of the experiment, one after the other.
    Export,
    /// Policies of an experiment with 1,024 arms.
    Policy,
    /// Designs of trusted experiments with 1,024 actions, one after the other.
    Design,
}

impl Work {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 5] =
        [Self::Nothing, Self::Backup, Self::Export, Self::Policy, Self::Design];

    /// Its name in tables and as JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Backup => "backups",
            Self::Export => "exports",
            Self::Policy => "policies of 1,024 arms",
            Self::Design => "designs of 1,024 actions",
        }
    }
}

/// Latencies beside one kind of work, as stable JSON: these fields, and no others.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    beside: &'static str,
    /// How often it was done; of policies, the uploads that ask for them.
    times: u64,
    answered_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    longest_ms: f64,
    /// The file of the log, which stays as long as the log has ever been.
    log_mib: f64,
}

/// The rows as a table.
pub fn table(rows: &[Row]) -> String {
    let mut table = format!(
        "{:<26} {:>6} {:>10} {:>10} {:>10} {:>10} {:>11} {:>8}\n",
        "beside", "times", "uploads/s", "median ms", "p99 ms", "p99.9 ms", "longest ms", "log MiB"
    );
    for row in rows {
        let line = format!(
            "{:<26} {:>6} {:>10.0} {:>10.2} {:>10.2} {:>10.2} {:>11.2} {:>8.1}",
            row.beside,
            row.times,
            row.answered_per_second,
            row.p50_ms,
            row.p99_ms,
            row.p999_ms,
            row.longest_ms,
            row.log_mib
        );
        writeln!(table, "{line}").ok();
    }
    table
}

/// Uploads at a rate, for this time, beside one kind of work. `program` has the commands of an
/// operator.
///
/// # Errors
/// When a call or a command fails.
pub async fn beside(
    work: Work,
    servers: &Servers,
    program: &Path,
    (rate, connections, time): (f64, usize, Duration),
) -> anyhow::Result<Row> {
    let mut callers = Vec::with_capacity(connections);
    for device in servers.connect(connections).await? {
        let make = servers.uploads(&device, 1).await?;
        callers.push(Caller::upload(device, make));
    }
    let end = Instant::now() + time;
    let (measured, times) = tokio::try_join!(
        at_rate(callers, rate, time),
        again_and_again(work, servers, program, end)
    )?;
    Ok(row(work, times, &measured, servers.log_bytes()?))
}

fn row(work: Work, times: u64, measured: &Measured, log_bytes: u64) -> Row {
    Row {
        beside: work.name(),
        times,
        answered_per_second: measured.calls_per_second(),
        p50_ms: measured.quantile_ms(0.5),
        p99_ms: measured.quantile_ms(0.99),
        p999_ms: measured.quantile_ms(0.999),
        longest_ms: measured.longest_ms(),
        log_mib: log_bytes as f64 / f64::from(1 << 20),
    }
}

/// Has the work done until the end. Returns how often it was, as [`Row`] counts it.
async fn again_and_again(
    work: Work,
    servers: &Servers,
    program: &Path,
    end: Instant,
) -> anyhow::Result<u64> {
    let folder = tempfile::tempdir().context("can't create a directory")?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    let url = &servers.only_server()?.operator_url;
    let store = servers.directory().context("a server of our own is needed")?.display().to_string();
    let actions = file("actions.csv");
    if work == Work::Design {
        std::fs::write(&actions, actions_csv()).context("can't write the actions")?;
    }
    if work == Work::Policy {
        let device = servers.connect(1).await?.into_iter().next().context("no connection")?;
        let make = servers.uploads_of_another(ARMS_MAX).await?;
        let time = end.saturating_duration_since(Instant::now());
        return Ok(in_flight(vec![Caller::upload(device, make)], 1, time).await?.calls());
    }
    let mut times = 0;
    while Instant::now() < end {
        let name = format!("design-{}", DESIGNS.fetch_add(1, Ordering::Relaxed));
        let out = file(&format!("out-{times}.csv"));
        let experiment = servers.experiment_id();
        let command: &[&str] = match work {
            Work::Nothing | Work::Policy => return Ok(0),
            Work::Backup => &["backup", "--data-dir", &store, "--out", &out],
            Work::Export => {
                &["experiment", "export", &experiment, "--out", &out, "--operator-url", url]
            }
            Work::Design => &[
                "trusted",
                "create",
                &name,
                "--rewards-are-disclosed",
                "--rho",
                "1",
                "--algorithm",
                "adac-gope",
                "--actions",
                &actions,
                "--operator-url",
                url,
            ],
        };
        run(program, command).await?;
        std::fs::remove_file(&out).ok();
        times += 1;
    }
    Ok(times)
}

async fn run(program: &Path, command: &[&str]) -> anyhow::Result<()> {
    let mut ran = Command::new(program);
    ran.args(command).stdin(Stdio::null()).kill_on_drop(true);
    let output = ran.output().await.with_context(|| format!("can't run {}", program.display()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {}: {complaint}", program.display(), command.join(" "));
    Ok(())
}

/// Vectors of norm 1 in all directions, the same each time.
fn actions_csv() -> String {
    let mut csv = String::new();
    for action in 0..ARMS_MAX {
        let angle = |place: usize| (action * DIMENSION + place) as f64 * 1.618_034;
        let vector: Vec<f64> = (0..DIMENSION).map(|place| angle(place).sin()).collect();
        let norm = vector.iter().map(|value| value * value).sum::<f64>().sqrt() * 1.000_001;
        let values: Vec<String> = vector.iter().map(|value| (value / norm).to_string()).collect();
        csv.push_str(&values.join(","));
        csv.push('\n');
    }
    csv
}
