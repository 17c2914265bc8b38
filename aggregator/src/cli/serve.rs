//! `bandana serve`.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::settings_arguments::Source;
use super::until_signal::until_signal;
use crate::clock::Clock;
use crate::server::{Server, ServerSettings};
use crate::store::Presence;

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
    let telemetry = configuration.telemetry.clone();
    let presence = if serve.init { Presence::Optional } else { Presence::Required };
    until_signal(&telemetry, async |signalled| {
        super::descriptors::allow(configuration.limits.connections);
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
