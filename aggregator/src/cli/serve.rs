//! `bandana serve`.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::settings_arguments::Source;
use crate::clock::Clock;
use crate::server::{Server, ServerSettings};

/// Run the aggregator until SIGTERM or SIGINT.
///
/// SIGHUP reads certificates, keys, tokens and app keys again.
///
/// When both services listen, their addresses are printed to standard output,
/// one `device=ADDRESS` and one `operator=ADDRESS` line.
#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    source: Source,
}

pub(super) fn run(serve: Serve, clock: Arc<dyn Clock>) -> anyhow::Result<()> {
    let (configuration, _) = serve.source.load()?;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A host program may have set up its own subscriber.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.with_ansi(std::io::stderr().is_terminal()).try_init().ok();
    super::descriptors::allow(configuration.limits.connections);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve_until_signal(configuration.into(), clock));
    // Connections that did not end in time are not waited for.
    runtime.shutdown_background();
    outcome
}

async fn serve_until_signal(settings: ServerSettings, clock: Arc<dyn Clock>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("can't wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("can't wait for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("can't wait for SIGHUP")?;
    let server = Server::bind(settings, clock).await?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "device={}", server.device_address()?)?;
    writeln!(stdout, "operator={}", server.operator_address()?)?;
    stdout.flush()?;
    drop(stdout);
    let reloader = server.reloader();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reloader.reload();
        }
    });
    let signalled = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(server.run(signalled).await?)
}
