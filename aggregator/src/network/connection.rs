//! One connection, in the clear or not.

use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::linger::Linger;
use super::listener::ConnectionLimits;
use super::place::Place;
use super::protocol::{Ahead, Protocol};
use crate::gates::Limiters;

/// Bytes with which every connection of HTTP/2 begins (RFC 9113, section 3.4); no request
/// of HTTP/1.1 is shorter.
const PREFACE_BYTES: usize = 24;

/// A connection. It ends itself when its other end is silent for too long, or does not
/// begin in time.
#[derive(Debug)]
pub struct Connection {
    way: Way,
    silence: Silence,
    /// Whether the other end reads too little for the last answer to be written. Nothing
    /// is read from it meanwhile, as each call would add to what waits; so it is silent.
    is_stalled: bool,
    /// What was read ahead, to find out about the protocol.
    ahead: Ahead,
    /// Whether everything has been said.
    is_over: bool,
    linger: Linger,
    /// Gives its place to another connection when this is dropped.
    _place: Place,
}

#[derive(Debug)]
enum Way {
    Clear(TcpStream),
    // Boxed: the state of TLS takes a kilobyte.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Who is at the other end, as far as TLS has shown, and what it may do.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The certificate (DER) that the other end has proved to have the key of.
    pub certificate: Option<Arc<[u8]>>,
    /// Counts what it sends, if somebody does.
    pub limiters: Arc<OnceLock<Arc<Limiters>>>,
    /// Its calls under way.
    pub calls: Arc<AtomicUsize>,
}

impl Connection {
    pub(super) fn clear(stream: TcpStream, limits: &ConnectionLimits, place: Place) -> Self {
        Self::over(Way::Clear(stream), limits, place)
    }

    pub(super) fn tls(
        stream: TlsStream<TcpStream>,
        limits: &ConnectionLimits,
        place: Place,
    ) -> Self {
        Self::over(Way::Tls(Box::new(stream)), limits, place)
    }

    fn over(way: Way, limits: &ConnectionLimits, place: Place) -> Self {
        let silence = Silence::new(limits.handshake_time, limits.idle_time);
        Self {
            way,
            silence,
            is_stalled: false,
            ahead: Ahead::default(),
            is_over: false,
            linger: Linger::default(),
            _place: place,
        }
    }

    /// Notes whether the other end takes what is written. Whoever waits for that may never
    /// come to read, so silence ends the connection from here too.
    fn written<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if self.is_stalled && written.is_ready() {
            // Reading was put off without anybody to wake its task.
            context.waker().wake_by_ref();
        }
        self.is_stalled = written.is_pending();
        if self.is_stalled {
            ready!(self.silence.poll_too_long(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
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
        let certificate = certificate.map(|certificate| certificate.as_ref().into());
        Peer { certificate, ..Peer::default() }
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
                this.silence.broken(buffer.filled().len() - before);
                return read;
            }
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
        this.written(flushed, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_over {
            let said = match &mut this.way {
                Way::Clear(stream) => Pin::new(stream).poll_shutdown(context),
                Way::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            };
            // Who reads nothing is not waited for either.
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

/// Measures how long nothing has been heard. The alarm is moved when it goes off, not
/// with every read: reads are frequent, and moving it takes a lock of the runtime.
#[derive(Debug)]
struct Silence {
    longest: Duration,
    heard: Instant,
    /// Bytes of the preface that are missing, and by when they must come.
    missing: usize,
    begun_by: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl Silence {
    /// At most this long, after a preface that comes within `opening`.
    fn new(opening: Duration, longest: Duration) -> Self {
        let now = Instant::now();
        let begun_by = now + opening;
        let alarm = Box::pin(tokio::time::sleep(opening.min(longest)));
        Self { longest, heard: now, missing: PREFACE_BYTES, begun_by, alarm }
    }

    fn broken(&mut self, bytes: usize) {
        self.missing = self.missing.saturating_sub(bytes);
        self.heard = Instant::now();
    }

    fn end(&self) -> Instant {
        let end = self.heard + self.longest;
        if self.missing > 0 { end.min(self.begun_by) } else { end }
    }

    /// Ready when it has lasted for too long.
    fn poll_too_long(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.alarm.as_mut().poll(context));
            let end = self.end();
            if end <= Instant::now() {
                return Poll::Ready(());
            }
            self.alarm.as_mut().reset(end);
        }
    }
}
