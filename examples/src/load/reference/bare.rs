//! A bare server: tonic's health service and nothing else, in a process of its own.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::server::health_reporter;

use crate::server_process::ServerProcess;

/// A running bare server.
#[derive(Debug)]
pub(super) struct BareServer {
    process: ServerProcess,
    pub(super) url: String,
}

impl BareServer {
    pub(super) async fn start(program: &Path) -> anyhow::Result<Self> {
        let mut process = ServerProcess::spawn("bare server", program, &[OsStr::new("bare")])?;
        let url = process.url("bare").await?;
        Ok(Self { process, url })
    }

    pub(super) fn id(&self) -> anyhow::Result<u32> {
        self.process.id()
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.process.stop().await
    }
}

/// Serves until a signal ends it; the address is printed.
///
/// # Errors
/// When no port can be opened.
#[expect(clippy::print_stdout, reason = "whoever has started it reads the address")]
pub async fn serve() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no port")?;
    println!("bare={}", listener.local_addr()?);
    let (_reporter, health) = health_reporter();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let end = async move { terminate.recv().await.unwrap_or_default() };
    Server::builder().add_service(health).serve_with_incoming_shutdown(incoming, end).await?;
    Ok(())
}
