//! From a listening socket to connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

use super::connection::Connection;
use crate::security::Tls;

/// Wait after the operating system could not accept a connection: what it lacks
/// (descriptors, memory) is not there at once, and trying without a pause would use up
/// the processor that could end other connections.
const PAUSE: Duration = Duration::from_millis(100);

/// What connections may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Open ones at the same time; further ones are closed at once.
    pub connections: usize,
    /// Calls of one connection at the same time; further ones wait.
    pub streams_per_connection: u32,
    /// Bytes of the headers of a call; calls with more are refused.
    pub header_bytes: u32,
    /// Handshakes of TLS at the same time; further ones wait.
    pub handshakes: usize,
    /// From the connection to the end of its handshake, and from there to the end of the
    /// first words of HTTP/2.
    pub handshake_time: Duration,
    /// Silence of the other end after which a connection ends.
    pub idle_time: Duration,
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    tls: Option<Arc<Tls>>,
    limits: ConnectionLimits,
}

impl Listener {
    /// Listens at `address`.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<Arc<Tls>>,
        limits: ConnectionLimits,
    ) -> io::Result<Self> {
        Ok(Self { socket: TcpListener::bind(address).await?, tls, limits })
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// When the operating system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Connections whose handshake is over. When this is dropped, no more are accepted.
    pub fn incoming(self) -> ReceiverStream<Result<Connection, Infallible>> {
        let (ready, incoming) = mpsc::channel(1);
        tokio::spawn(self.accept(ready));
        ReceiverStream::new(incoming)
    }

    async fn accept(self, ready: mpsc::Sender<Result<Connection, Infallible>>) {
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let handshakes = Arc::new(Semaphore::new(self.limits.handshakes));
        let (mut is_full, mut is_failing) = (false, false);
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = ready.closed() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    // It may last, and is told once.
                    if !is_failing {
                        tracing::error!(%error, "can't accept connections; trying again");
                    }
                    is_failing = true;
                    sleep(PAUSE).await;
                    continue;
                }
            };
            if is_failing {
                tracing::info!("connections are accepted again");
                is_failing = false;
            }
            let place = Arc::clone(&places).try_acquire_owned();
            // One line when it begins: a flood of connections is not one of the log.
            if place.is_err() && !is_full {
                let connections = self.limits.connections;
                tracing::warn!(connections, "all connections are taken; further ones are closed");
            }
            is_full = place.is_err();
            let Ok(place) = place else { continue };
            let setup = Setup {
                tls: self.tls.clone(),
                limits: self.limits,
                handshakes: Arc::clone(&handshakes),
            };
            let ready = ready.clone();
            tokio::spawn(async move {
                if let Some(connection) = setup.connection(stream, place).await {
                    // The server may have ended meanwhile.
                    ready.send(Ok(connection)).await.ok();
                }
            });
        }
    }
}

/// Whether an error says nothing about the next connection.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::TimedOut
    )
}

/// What makes a connection of an accepted stream.
struct Setup {
    tls: Option<Arc<Tls>>,
    limits: ConnectionLimits,
    handshakes: Arc<Semaphore>,
}

impl Setup {
    async fn connection(
        self,
        stream: TcpStream,
        place: OwnedSemaphorePermit,
    ) -> Option<Connection> {
        // Answers are small, and must not wait for each other.
        stream.set_nodelay(true).ok()?;
        let Some(tls) = self.tls else {
            return Some(Connection::clear(stream, &self.limits, place));
        };
        let handshake = async {
            let _turn = self.handshakes.acquire().await.map_err(io::Error::other)?;
            TlsAcceptor::from(tls.config()).accept(stream).await
        };
        match timeout(self.limits.handshake_time, handshake).await {
            Ok(Ok(stream)) => Some(Connection::tls(stream, &self.limits, place)),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!("a handshake took too long");
                None
            }
        }
    }
}
