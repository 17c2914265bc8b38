//! A connection, with TLS or without.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::deadlines::{Deadlines, End};
use super::drain_on_close::DrainOnClose;
use super::listener::ConnectionLimits;
use super::permit::ConnectionPermit;
use super::protocol::{Ahead, Protocol};
use crate::peer::Calling;
use crate::peer::{Peer, PeerState};
use crate::shutdown::ShutdownSignal;

/// A connection. It closes itself when the peer is silent for too long, does not begin in time, or
/// does not take an answer. It also does so when the server shuts down and no call is running.
#[derive(Debug)]
pub struct Connection {
    way: Way,
    deadlines: Deadlines,
    calling: Arc<Calling>,
    /// Whether the peer reads too slowly for the last answer to be written. Nothing is read from it
    /// meanwhile, as each call would add to the pending answers; so the peer counts as silent.
    is_stalled: bool,
    /// The bytes read ahead, to detect the protocol.
    ahead: Ahead,
    /// Whether everything has been written and the write side is shut down.
    is_over: bool,
    linger: DrainOnClose,
    /// The peer's address, if the service asks for it.
    address: Option<IpAddr>,
    /// Releases its place to another connection when dropped.
    place: ConnectionPermit,
}

#[derive(Debug)]
enum Way {
    Clear(TcpStream),
    // In a box, since the state of TLS takes a kilobyte.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    pub(super) fn clear(
        stream: TcpStream,
        limits: &ConnectionLimits,
        ending: Option<ShutdownSignal>,
        place: ConnectionPermit,
    ) -> Self {
        Self::over(Way::Clear(stream), limits, ending, place)
    }

    pub(super) fn tls(
        stream: TlsStream<TcpStream>,
        limits: &ConnectionLimits,
        ending: Option<ShutdownSignal>,
        place: ConnectionPermit,
    ) -> Self {
        Self::over(Way::Tls(Box::new(stream)), limits, ending, place)
    }

    fn over(
        way: Way,
        limits: &ConnectionLimits,
        ending: Option<ShutdownSignal>,
        place: ConnectionPermit,
    ) -> Self {
        let calling = Arc::new(Calling::new(limits.answer_time));
        place.seat().with_calls(&calling);
        let seat = Arc::clone(place.seat());
        let deadlines = Deadlines::new(limits, Arc::clone(&calling), seat, ending);
        Self {
            way,
            deadlines,
            calling,
            is_stalled: false,
            ahead: Ahead::default(),
            is_over: false,
            linger: DrainOnClose::default(),
            address: None,
            place,
        }
    }

    /// Tells the service the peer's address.
    pub(super) fn with_address(self, address: Option<IpAddr>) -> Self {
        Self { address, ..self }
    }

    /// Records whether the peer takes the written data. A task that waits for that may never read,
    /// so the deadline for silence is polled here too.
    fn written(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.is_stalled && written.is_ready() {
            // Reading was postponed without registering the task's waker.
            context.waker().wake_by_ref();
        }
        self.is_stalled = written.is_pending();
        if !self.is_stalled {
            self.deadlines.written(match &written {
                Poll::Ready(Ok(bytes)) => *bytes,
                _ => 0,
            });
            return written;
        }
        if ready!(self.deadlines.poll(context)) == End::NotTaken {
            self.place.not_taken();
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ready with the result for the reader when the connection has to end.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.deadlines.poll(context)) {
            // As if the peer had closed it.
            End::Idle => return Poll::Ready(Ok(())),
            End::NotTaken => self.place.not_taken(),
            End::Silent | End::Displaced => {}
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Detects the peer's protocol from its first bytes.
    pub(super) async fn protocol(&mut self) -> io::Result<Protocol> {
        let mut ahead = Ahead::default();
        let protocol = loop {
            if let Some(protocol) = ahead.protocol() {
                break protocol;
            }
            match self.read(ahead.room()).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => ahead.heard(bytes),
            }
        };
        self.ahead = ahead;
        self.place.seat().begin();
        Ok(protocol)
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        let calling = Arc::clone(&self.calling);
        let certificates = match &self.way {
            Way::Tls(stream) => stream.get_ref().1.peer_certificates(),
            Way::Clear(_) => None,
        };
        let certificate = certificates.and_then(<[_]>::first);
        let certificate = certificate.map(|certificate| certificate.as_ref().into());
        let address = self.address;
        Peer::new(PeerState { certificate, address, calling, ..PeerState::default() })
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(ahead) = this.ahead.next(buffer.remaining()) {
            buffer.put_slice(ahead);
            return Poll::Ready(Ok(()));
        }
        if !this.is_stalled {
            let before = buffer.filled().len();
            let read = match &mut this.way {
                Way::Clear(stream) => Pin::new(stream).poll_read(context, buffer),
                Way::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            };
            if read.is_ready() {
                this.deadlines.heard(buffer.filled().len() - before);
                return read;
            }
        }
        this.poll_end(context)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.way {
            Way::Clear(stream) => Pin::new(stream).poll_write(context, bytes),
            Way::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        this.written(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.way {
            Way::Clear(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Way::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        };
        this.written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.way {
            Way::Clear(stream) => stream.is_write_vectored(),
            Way::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = match &mut this.way {
            Way::Clear(stream) => Pin::new(stream).poll_flush(context),
            Way::Tls(stream) => Pin::new(stream).poll_flush(context),
        };
        this.written(flushed.map_ok(|()| 0), context).map_ok(|_| ())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_over {
            let said = match &mut this.way {
                Way::Clear(stream) => Pin::new(stream).poll_shutdown(context),
                Way::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            };
            // A peer that reads nothing is not waited for either.
            if said.is_pending() && this.linger.is_over(context) {
                return Poll::Ready(Ok(()));
            }
            ready!(said)?;
            this.is_over = true;
        }
        let stream = match &mut this.way {
            Way::Clear(stream) => stream,
            Way::Tls(stream) => stream.get_mut().0,
        };
        this.linger.poll(stream, context)
    }
}
