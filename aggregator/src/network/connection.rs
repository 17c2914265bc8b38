//! One connection, in the clear or not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::place::Place;
use super::protocol::{Ahead, Protocol};

/// A connection. It ends itself when its other end is silent for too long.
#[derive(Debug)]
pub struct Connection {
    way: Way,
    silence: Silence,
    /// What was read ahead, to find out about the protocol.
    ahead: Ahead,
    /// Gives its place to another connection when this is dropped.
    _place: Place,
}

#[derive(Debug)]
enum Way {
    Clear(TcpStream),
    // Boxed: the state of TLS takes a kilobyte.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Who is at the other end, as far as TLS has shown.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The certificate (DER) that the other end has proved to have the key of.
    pub certificate: Option<Arc<[u8]>>,
}

impl Connection {
    pub(super) fn clear(stream: TcpStream, idle: Duration, place: Place) -> Self {
        Self::new(Way::Clear(stream), idle, place)
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>, idle: Duration, place: Place) -> Self {
        Self::new(Way::Tls(Box::new(stream)), idle, place)
    }

    fn new(way: Way, idle: Duration, place: Place) -> Self {
        Self { way, silence: Silence::new(idle), ahead: Ahead::default(), _place: place }
    }

    /// Finds out which protocol the other end speaks, from its first words.
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
        Ok(protocol)
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        let Way::Tls(stream) = &self.way else { return Peer::default() };
        let certificates = stream.get_ref().1.peer_certificates();
        let certificate = certificates.and_then(<[_]>::first);
        Peer { certificate: certificate.map(|certificate| certificate.as_ref().into()) }
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
        let read = match &mut this.way {
            Way::Clear(stream) => Pin::new(stream).poll_read(context, buffer),
            Way::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if read.is_ready() {
            this.silence.broken();
            return read;
        }
        ready!(this.silence.poll_too_long(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().way {
            Way::Clear(stream) => Pin::new(stream).poll_write(context, bytes),
            Way::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().way {
            Way::Clear(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Way::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.way {
            Way::Clear(stream) => stream.is_write_vectored(),
            Way::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().way {
            Way::Clear(stream) => Pin::new(stream).poll_flush(context),
            Way::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().way {
            Way::Clear(stream) => Pin::new(stream).poll_shutdown(context),
            Way::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Measures how long nothing has been heard. The alarm is moved when it goes off, not
/// with every read: reads are frequent, and moving it takes a lock of the runtime.
#[derive(Debug)]
struct Silence {
    longest: Duration,
    heard: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl Silence {
    fn new(longest: Duration) -> Self {
        let alarm = Box::pin(tokio::time::sleep(longest));
        Self { longest, heard: Instant::now(), alarm }
    }

    fn broken(&mut self) {
        self.heard = Instant::now();
    }

    /// Ready when it has lasted for too long.
    fn poll_too_long(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.alarm.as_mut().poll(context));
            let end = self.heard + self.longest;
            if end <= Instant::now() {
                return Poll::Ready(());
            }
            self.alarm.as_mut().reset(end);
        }
    }
}
