//! Attacks a server on this host, and measures the cost to it.
//!
//! `attack answers PROCESS ADDRESS EXPERIMENT CONNECTIONS CALLS`: requests an experiment, this
//! number of times on each connection, and reads no answer. Prints the memory of the server's
//! process before, while the answers wait, and after.
//!
//! `attack requests ADDRESS SECONDS`: aborts uploads, at the maximum rate, and prints their number.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_tests::attacks::{begin_requests, take_no_answers};
use bandana_tests::process_usage::{memory_high_water, memory_now};
use tokio::time::Instant;

/// Time that answers wait, and that the server has to release memory.
const WHILE: Duration = Duration::from_secs(5);

#[tokio::main]
pub(super) async fn run(arguments: &[String]) -> anyhow::Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["answers", process, address, experiment, connections, calls] => {
            let (connections, calls) = (connections.parse()?, calls.parse()?);
            answers(process.parse()?, here(address)?, experiment, connections, calls).await
        }
        ["requests", address, seconds] => {
            let mut broken = 0_u64;
            let end = Instant::now() + Duration::from_secs(seconds.parse()?);
            while Instant::now() < end {
                let path = "/bandana.v1.Device/SubmitUpload";
                drop(begin_requests(here(address)?, path, 100).await?);
                broken += 100;
            }
            println!("{broken} requests were broken off");
            Ok(())
        }
        _ => anyhow::bail!("usage: attack answers PROCESS ADDRESS EXPERIMENT CONNECTIONS CALLS"),
    }
}

/// The address, if it is on this host.
fn here(address: &str) -> anyhow::Result<&str> {
    ensure!(address.starts_with("127.") || address.starts_with("[::1]"), "not on this host");
    Ok(address)
}

async fn answers(
    process: u32,
    address: &str,
    experiment: &str,
    connections: usize,
    calls: u32,
) -> anyhow::Result<()> {
    let mebibytes = |bytes: u64| bytes / 1024 / 1024;
    println!("before: {} MiB", mebibytes(memory_now(process)?));
    let begin = Instant::now();
    let untaken = take_no_answers(address, experiment, connections, calls).await?;
    println!(
        "after {:.1} s: {} answers wait, {} calls were refused, {} connections were closed",
        begin.elapsed().as_secs_f64(),
        untaken.waiting,
        untaken.refused,
        untaken.closed,
    );
    tokio::time::sleep(WHILE).await;
    let now = memory_now(process).context("the server has ended")?;
    println!("while they wait: {} MiB", mebibytes(now));
    drop(untaken);
    tokio::time::sleep(WHILE).await;
    let now = memory_now(process).context("the server has ended")?;
    println!("closed: {} MiB", mebibytes(now));
    println!("most: {} MiB", mebibytes(memory_high_water(process)?));
    Ok(())
}
