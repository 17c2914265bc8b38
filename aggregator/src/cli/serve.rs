//! `bandana serve`.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::Context as _;
use bandana_edge::clock::Clock;
use bandana_edge::program::{allow_connections, until_signal};
use bandana_store::Presence;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::settings_arguments::Source;
use crate::server::{Server, ServerSettings};

/// Run the aggregator until SIGTERM or SIGINT.
///
/// On SIGHUP, it reads certificates, keys, tokens and app keys again.
///
/// Once it has read the store and takes calls, it prints its addresses to standard output: one
/// `device=ADDRESS` line and one `operator=ADDRESS` line.
#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    source: Source,
    /// Make a store if there is none, for a first start and for trying things out.
    ///
    /// Without this flag, a server ends with exit code 7 if there is no store. The disk may not be
    /// mounted, and a new store would not know your experiments. So leave this flag out of the
    /// service that starts the server, and run `bandana init` once instead.
    #[arg(long)]
    init: bool,
}

pub(super) fn run(serve: Serve, clock: Arc<dyn Clock>) -> anyhow::Result<()> {
    let (configuration, _) = serve.source.load()?;
    let telemetry = configuration.telemetry.clone();
    let presence = if serve.init { Presence::Optional } else { Presence::Required };
    until_signal(&telemetry, async |signalled| {
        allow_connections(configuration.limits.connections);
        let settings = ServerSettings { presence, ..configuration.into() };
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
        Ok(server.run(signalled, ready).await?)
    })
}
