//! `bandana serve`.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::settings_arguments::Source;
use crate::clock::Clock;
use crate::server::{Server, ServerSettings};
use crate::store::Presence;
use crate::telemetry::Logging;

/// Run the aggregator until SIGTERM or SIGINT.
///
/// SIGHUP reads certificates, keys, tokens and app keys again.
///
/// When the store has been read and both services take calls, their addresses are printed to standard output,
/// one `device=ADDRESS` and one `operator=ADDRESS` line.
#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    source: Source,
    /// Make a store if there is none, for a first start and for trying things out.
    ///
    /// Without it a server ends with exit code 7 where there is no store: its disk may not be
    /// mounted, and a new store would know nothing of what devices report on. Leave it out of
    /// whatever starts the server by itself; `bandana init` is for the first time.
    #[arg(long)]
    init: bool,
}

pub(super) fn run(serve: Serve, clock: Arc<dyn Clock>) -> anyhow::Result<()> {
    let (configuration, _) = serve.source.load()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let logging = {
        // The trace exporter runs in this runtime.
        let _entered = runtime.enter();
        Logging::start(&configuration.telemetry)?
    };
    super::descriptors::allow(configuration.limits.connections);
    let presence = if serve.init { Presence::Optional } else { Presence::Required };
    let settings = ServerSettings { presence, ..configuration.into() };
    let outcome = runtime.block_on(serve_until_signal(settings, clock));
    logging.end();
    // Connections that remain open after the deadline are dropped.
    runtime.shutdown_background();
    outcome
}

async fn serve_until_signal(settings: ServerSettings, clock: Arc<dyn Clock>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("can't wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("can't wait for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("can't wait for SIGHUP")?;
    let server = Server::bind(settings, clock)?;
    let (device, operator) = (server.device_address()?, server.operator_address()?);
    let ready = move || {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "device={device}")?;
        writeln!(stdout, "operator={operator}")?;
        stdout.flush()
    };
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
    Ok(server.run(signalled, ready).await?)
}
