//! Answers that grow with what was counted, and the memory that they take.

use std::path::Path;

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{self, DailyTally, ExportTalliesRequest};
use bandana_tests::harness::{create, three_arms};
use bandana_tests::page;
use bandana_tests::process_usage::{memory_high_water, memory_now};
use bandana_tests::watched_server::WatchedServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Arms of the experiment, and the days on which all of them have reports.
const ARMS: u32 = 1024;
const DAYS: u32 = 365;

/// Viewers at the same time: as many as there are places.
const VIEWERS: usize = 4;

/// Bytes that each viewer takes, which is less than a hundredth of the answer.
const TAKEN_BYTES: u64 = 200_000;

/// What the server may grow by for all viewers: some pages of the answers, which would be 50 MB each
/// as a whole, and the allocator's slack.
const GROWTH_BYTES: u64 = 48 << 20;

/// A server with an experiment of the most arms that has run for a year.
async fn server_with_a_year(folder: &Path) -> anyhow::Result<WatchedServer> {
    let server = WatchedServer::start(PROGRAM, folder, &[]).await?;
    let (_, mut operator) = server.clients().await?;
    let arm = |number| v1::Arm { label: format!("arm {number}"), retired: false };
    let arms = (0..ARMS).map(arm).collect();
    create(&mut operator, v1::Specification { arms, ..three_arms("colours") }).await?;
    drop(operator);
    server.stop().await?;
    rusqlite::Connection::open(folder.join("bandana.sqlite3"))?.execute_batch(&format!(
        "WITH RECURSIVE arms (arm) AS (SELECT 0 UNION ALL SELECT arm + 1 FROM arms LIMIT {ARMS}),
             days (day) AS (SELECT 19000 UNION ALL SELECT day + 1 FROM days LIMIT {DAYS})
         INSERT INTO tally (experiment, day, arm, reports, ones)
         SELECT 1, day, arm, 30, 10 + (day + arm) % 10 FROM days, arms"
    ))?;
    bandana_store::seal_directory(folder)?;
    WatchedServer::start(PROGRAM, folder, &["--limit-memory-mib", "128"]).await
}

/// Asks for a page until there is a place, and takes the beginning of the answer.
async fn view(address: &str, path: &str) -> anyhow::Result<TcpStream> {
    loop {
        let mut stream = TcpStream::connect(address).await?;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut taken = Vec::new();
        (&mut stream).take(TAKEN_BYTES).read_to_end(&mut taken).await?;
        if taken.starts_with(b"HTTP/1.1 200") {
            ensure!(taken.len() as u64 == TAKEN_BYTES, "{path}: {} bytes", taken.len());
            return Ok(stream);
        }
        let text = String::from_utf8_lossy(&taken);
        ensure!(text.starts_with("HTTP/1.1 429"), "{path}: {text}");
    }
}

/// Opens an export, and takes its beginning.
async fn export(address: &str) -> anyhow::Result<Streaming<DailyTally>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let endpoint =
        endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    let channel: Channel = endpoint.connect().await?;
    let request =
        ExportTalliesRequest { experiment_id: "colours".to_owned(), ..Default::default() };
    let mut stream = OperatorClient::new(channel).export_tallies(request).await?.into_inner();
    for _ in 0..ARMS {
        stream.message().await?.context("an export without an end")?;
    }
    Ok(stream)
}

#[tokio::test]
async fn viewers_of_a_year_of_the_most_arms_take_the_memory_of_some_days() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = server_with_a_year(folder.path()).await?;
    let before = memory_now(server.id()?)?;
    for path in [
        "/api/experiments/colours/over-time",
        "/api/experiments/colours/export?what=over-time",
        "/api/experiments/colours/export?what=over-time&format=json",
        "/api/experiments/colours/export?what=tallies",
        "/api/experiments/colours/export?what=tallies&format=json",
        "/api/experiments/colours/tallies",
    ] {
        let mut viewers = Vec::new();
        for _ in 0..VIEWERS {
            viewers.push(view(&server.operator, path).await?);
        }
        let growth = memory_high_water(server.id()?)?.saturating_sub(before);
        ensure!(growth < GROWTH_BYTES, "{path}: {growth} bytes");
        let full = page::get(&server.operator, path, &[]).await?;
        ensure!(full.status == 429, "{path}: {} for one viewer too many", full.status);
    }
    // The server notices in a moment that viewers are gone.
    let mut exports = Vec::new();
    for _ in 0..VIEWERS {
        exports.push(loop {
            match export(&server.operator).await {
                Err(error) if error.to_string().contains("are under way") => {}
                opened => break opened?,
            }
        });
    }
    // One of them takes it all.
    let mut rows = ARMS;
    let mut last = exports.pop().context("an export")?;
    while let Some(DailyTally { day, arm, reports, .. }) = last.message().await? {
        ensure!((day, arm, reports) == (19_000 + rows / ARMS, rows % ARMS, 30), "row {rows}");
        rows += 1;
    }
    ensure!(rows == ARMS * DAYS, "{rows} rows");
    let growth = memory_high_water(server.id()?)?.saturating_sub(before);
    ensure!(growth < GROWTH_BYTES, "exports: {growth} bytes");
    drop((exports, last));
    server.stop().await?;
    Ok(())
}
