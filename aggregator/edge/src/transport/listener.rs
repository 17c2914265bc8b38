//! The listener, which makes connections from a listening socket.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;
use tokio_stream::wrappers::ReceiverStream;

use super::connection::Connection;
use super::permit::ConnectionPermit;
use super::places::Places;
use super::protocol::Protocol;
use crate::shutdown::ShutdownSignal;
use crate::telemetry::metrics::ConnectionMetrics;
use crate::tls::Tls;

/// The least time between two log lines about closed connections.
const BETWEEN_LINES: Duration = Duration::from_mins(1);

/// Most connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// The bytes that the operating system buffers in each direction of a connection; it may use twice
/// as many. By default it would buffer megabytes for a peer that does not read.
const SOCKET_BYTES: u32 = 128 * 1024;

/// The pause after the operating system could not accept a connection. The missing resource
/// (descriptors, memory) is not there at once, and retrying without a pause would use the processor
/// time needed to end other connections.
const PAUSE: Duration = Duration::from_millis(100);

/// The limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most open connections; a further one displaces one that does nothing, or is closed.
    pub connections: usize,
    /// Most concurrent calls of one connection; further ones wait.
    pub streams_per_connection: u32,
    /// Most bytes of the headers of a call; calls with more are refused.
    pub header_bytes: u32,
    /// Most concurrent computations of TLS handshakes; further ones wait. A handshake that waits
    /// for the peer is not counted.
    pub handshakes: usize,
    /// The time from the connection to the end of its handshake, and from there to the end of
    /// HTTP/2's preface or of an HTTP/1.1 request's head.
    pub handshake_time: Duration,
    /// The silence of the peer after which a connection ends.
    pub idle_time: Duration,
    /// The time from an answer until it is taken; the limit may be exceeded by half.
    pub answer_time: Duration,
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    tls: Option<Arc<Tls>>,
    limits: ConnectionLimits,
    metrics: ConnectionMetrics,
    ending: Option<ShutdownSignal>,
    tells_addresses: bool,
}

/// The connections that a listener accepts.
pub type Connections = ReceiverStream<Result<Connection, Infallible>>;

/// Connections by protocol.
#[derive(Debug)]
pub struct Incoming {
    /// HTTP/2 connections, which gRPC uses.
    pub http2: Connections,
    /// HTTP/1.1 connections.
    pub http1: Connections,
}

/// The channels for accepted connections.
struct Outlets {
    http2: mpsc::Sender<Result<Connection, Infallible>>,
    http1: mpsc::Sender<Result<Connection, Infallible>>,
}

impl Listener {
    /// Listens at `address`. Must be called within a runtime.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn bind(
        address: SocketAddr,
        tls: Option<Arc<Tls>>,
        limits: ConnectionLimits,
    ) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        #[cfg(unix)]
        socket.set_reuseaddr(true)?;
        // Accepted sockets inherit the sizes.
        socket.set_send_buffer_size(SOCKET_BYTES)?;
        socket.set_recv_buffer_size(SOCKET_BYTES)?;
        socket.bind(address)?;
        let (socket, metrics) = (socket.listen(BACKLOG)?, ConnectionMetrics::default());
        Ok(Self { socket, tls, limits, metrics, ending: None, tells_addresses: false })
    }

    /// Counts connections in these metrics.
    #[must_use]
    pub fn counted(self, metrics: ConnectionMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// Tells the service the address of each peer.
    #[must_use]
    pub fn with_addresses(self) -> Self {
        Self { tells_addresses: true, ..self }
    }

    /// Ends connections without running calls when the server shuts down.
    #[must_use]
    pub fn until(self, ending: ShutdownSignal) -> Self {
        Self { ending: Some(ending), ..self }
    }

    /// The bound address.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Connections after their handshake, by protocol. A peer that sends nothing within the
    /// handshake time has no protocol. Dropping either stream ends accepting.
    pub fn incoming(self) -> Incoming {
        let ((http2, second), (http1, first)) = (mpsc::channel(1), mpsc::channel(1));
        tokio::spawn(self.accept(Outlets { http2, http1 }));
        Incoming { http2: ReceiverStream::new(second), http1: ReceiverStream::new(first) }
    }

    async fn accept(self, outlets: Outlets) {
        let outlets = Arc::new(outlets);
        let places = Places::new(self.limits.connections);
        let counted = self.metrics.displaced.clone();
        let mut looking = pin!(places.look_after(|| {
            counted.inc();
        }));
        let handshakes = Arc::new(Semaphore::new(self.limits.handshakes));
        let (mut told_full, mut is_failing) = (None::<Instant>, false);
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = outlets.http2.closed() => return,
                () = &mut looking => return,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    // The error may last, and is logged once.
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
            let place = places.take();
            if place.is_none() {
                self.tell_full(&mut told_full);
            }
            let queued = place.is_none().then(|| places.queue());
            let setup = Setup {
                tls: self.tls.clone(),
                limits: self.limits,
                ending: self.ending.clone(),
                handshakes: Arc::clone(&handshakes),
            };
            let (outlets, metrics) = (Arc::clone(&outlets), self.metrics.clone());
            let address = self.tells_addresses.then(|| address.ip());
            let places = Arc::clone(&places);
            tokio::spawn(async move {
                let place = match (place, queued) {
                    (None, Some(queued)) => queued.wait().await,
                    (place, _) => place,
                };
                let Some(place) = place else {
                    metrics.refused.inc();
                    return;
                };
                let place = ConnectionPermit::taken(place, &places, metrics.clone());
                let handed = setup.hand_over(stream, place, address, &outlets).await;
                if let Err(error) = handed {
                    metrics.handshakes_failed.inc();
                    tracing::debug!(%error, "a connection did not come about");
                }
            });
        }
    }
}

impl Listener {
    /// Logs that all places are taken. A flood of connections must not flood the log.
    fn tell_full(&self, told: &mut Option<Instant>) {
        if told.is_none_or(|told| told.elapsed() >= BETWEEN_LINES) {
            let connections = self.limits.connections;
            tracing::warn!(
                connections,
                "all connections are taken; further ones replace idle ones, or are closed"
            );
            *told = Some(Instant::now());
        }
    }
}

/// Whether an error affects one connection only.
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

/// Turns an accepted stream into a connection.
struct Setup {
    tls: Option<Arc<Tls>>,
    limits: ConnectionLimits,
    ending: Option<ShutdownSignal>,
    handshakes: Arc<Semaphore>,
}

impl Setup {
    async fn hand_over(
        self,
        stream: TcpStream,
        place: ConnectionPermit,
        address: Option<IpAddr>,
        outlets: &Outlets,
    ) -> io::Result<()> {
        let handshake_time = self.limits.handshake_time;
        let seat = Arc::clone(place.seat());
        let beginning = async {
            let mut connection = self.connection(stream, place).await?.with_address(address);
            let outlet = match connection.protocol().await? {
                Protocol::Http1 => &outlets.http1,
                Protocol::Http2 => &outlets.http2,
            };
            io::Result::Ok((connection, outlet))
        };
        let displaced = poll_fn(|context| seat.poll_displaced(context));
        let beginning = async {
            tokio::select! {
                begun = beginning => begun,
                () = displaced => Err(io::ErrorKind::TimedOut.into()),
            }
        };
        let (connection, outlet) = timeout(handshake_time, beginning).await??;
        // The server may have ended meanwhile.
        outlet.send(Ok(connection)).await.ok();
        Ok(())
    }

    async fn connection(
        self,
        stream: TcpStream,
        place: ConnectionPermit,
    ) -> io::Result<Connection> {
        // Answers are small, and must not be delayed by Nagle's algorithm.
        stream.set_nodelay(true)?;
        let Some(tls) = self.tls else {
            return Ok(Connection::clear(stream, &self.limits, self.ending, place));
        };
        // A silent peer must not occupy a handshake permit, neither before its first message nor
        // after.
        let greeted = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let turn = self.handshakes.acquire().await.map_err(io::Error::other)?;
        let mut handshake = pin!(greeted.into_stream(tls.config()));
        let computed = poll_fn(|context| Poll::Ready(handshake.as_mut().poll(context))).await;
        drop(turn);
        let stream = match computed {
            Poll::Ready(stream) => stream?,
            Poll::Pending => handshake.await?,
        };
        Ok(Connection::tls(stream, &self.limits, self.ending, place))
    }
}
