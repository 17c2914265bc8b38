//! `bandana serve`.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::clock::SystemClock;
use crate::ingest::WriterSettings;
use crate::server::{Server, ServerSettings};

/// Run the aggregator until SIGTERM or SIGINT.
///
/// When both services listen, their addresses are printed to standard output,
/// one `device=ADDRESS` and one `operator=ADDRESS` line.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Directory of the store; created when missing.
    #[arg(long, env = "BANDANA_DATA_DIR")]
    data_dir: PathBuf,
    /// Address for devices.
    #[arg(long, env = "BANDANA_LISTEN", default_value = "127.0.0.1:7301")]
    listen: SocketAddr,
    /// Address for operators; loopback only.
    #[arg(long, env = "BANDANA_OPERATOR_LISTEN", default_value = "127.0.0.1:7302")]
    operator_listen: SocketAddr,
    /// Seconds from the signal to the end, at most.
    #[arg(long, env = "BANDANA_DRAIN_DEADLINE", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    drain_deadline: u64,
    /// Days whose uploads are taken, today included.
    #[arg(long, env = "BANDANA_REPLAY_WINDOW_DAYS", default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=365))]
    replay_window_days: u32,
    /// Upload ids to remember at most, about 40 bytes of memory each.
    #[arg(long, env = "BANDANA_IDS_MAX", default_value_t = 50_000_000,
          value_parser = clap::value_parser!(u32).range(1..))]
    ids_max: u32,
}

pub(super) fn run(serve: Serve) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A host program may have set up its own subscriber.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.with_ansi(std::io::stderr().is_terminal()).try_init().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve_until_signal(serve));
    // Connections that did not end in time are not waited for.
    runtime.shutdown_background();
    outcome
}

async fn serve_until_signal(serve: Serve) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("can't wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("can't wait for SIGINT")?;
    let settings = ServerSettings {
        data_dir: serve.data_dir,
        listen: serve.listen,
        operator_listen: serve.operator_listen,
        drain_deadline: Duration::from_secs(serve.drain_deadline),
        writer: WriterSettings {
            replay_window_days: serve.replay_window_days,
            ids_max: usize::try_from(serve.ids_max)?,
        },
    };
    let server = Server::bind(settings, Arc::new(SystemClock::new())).await?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "device={}", server.device_address()?)?;
    writeln!(stdout, "operator={}", server.operator_address()?)?;
    stdout.flush()?;
    drop(stdout);
    let signalled = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(server.run(signalled).await?)
}
