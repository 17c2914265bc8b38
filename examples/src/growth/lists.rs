//! Times of the lists that operators see: by the command, and on the dashboard.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::Instant;

use crate::environment::CleanEnvironment as _;

/// How often each is measured; the median is told.
const ROUNDS: usize = 3;

/// The times of `experiment list` and of all pages of the dashboard's list.
pub(super) async fn times(
    program: &Path,
    operator_url: &str,
    experiments: usize,
) -> anyhow::Result<(Duration, Duration)> {
    let (mut commands, mut pages) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let mut command = Command::new(program);
        command.args(["experiment", "list", "--json", "--operator-url", operator_url]);
        let output = command.clean_environment().output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        commands.push(begin.elapsed());
        let begin = Instant::now();
        let listed = dashboard(operator_url).await?;
        pages.push(begin.elapsed());
        ensure!(listed >= experiments, "the dashboard lists {listed} of {experiments}");
    }
    commands.sort_unstable();
    pages.sort_unstable();
    Ok((commands[ROUNDS / 2], pages[ROUNDS / 2]))
}

/// Reads all pages, and returns the number of experiments.
async fn dashboard(operator_url: &str) -> anyhow::Result<usize> {
    let address = operator_url.strip_prefix("http://").context("not a plain address")?;
    let (mut listed, mut token) = (0, String::new());
    loop {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!(
            "GET /api/experiments?page_token={token} HTTP/1.1\r\nhost: {address}\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        let page: Value = serde_json::from_str(body)?;
        listed += page["experiments"].as_array().context("no list")?.len();
        match page["next_page_token"].as_str() {
            None | Some("") => return Ok(listed),
            Some(next) => next.clone_into(&mut token),
        }
    }
}
