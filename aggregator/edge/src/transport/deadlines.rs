//! Deadlines of a connection: for its first bytes, for silence, for answers that are not taken, and
//! for the server's shutdown.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::listener::ConnectionLimits;
use super::places::Seat;
use crate::peer::Calling;
use crate::shutdown::ShutdownSignal;

/// The number of bytes with which every HTTP/2 connection begins (RFC 9113, section 3.4); no
/// HTTP/1.1 request is shorter.
const PREFACE_BYTES: usize = 24;

/// The time for the peer to close the connection, when the server shuts down and no call is
/// running.
const GOODBYE: Duration = Duration::from_millis(500);

/// The reason why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer was silent for too long.
    Silent,
    /// An answer was not taken.
    NotTaken,
    /// The server shuts down, and no call is running.
    Idle,
    /// Another connection needs the place.
    Displaced,
}

/// Determines when a connection has to end. The timer is moved when it fires, and for earlier
/// deadlines, but not with every read: reads are frequent, and moving it takes a lock of the
/// runtime.
pub(super) struct Deadlines {
    longest: Duration,
    heard: Instant,
    /// The missing bytes of the preface, and the deadline for them.
    missing: usize,
    begun_by: Instant,
    alarm: Pin<Box<Sleep>>,
    calling: Arc<Calling>,
    seat: Arc<Seat>,
    /// None: the shutdown has begun, or no signal was given.
    ending: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// During shutdown: the time of the last write.
    said: Option<Instant>,
}

impl fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadlines").field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl Deadlines {
    pub(super) fn new(
        limits: &ConnectionLimits,
        calling: Arc<Calling>,
        seat: Arc<Seat>,
        ending: Option<ShutdownSignal>,
    ) -> Self {
        let now = Instant::now();
        let (longest, opening) = (limits.idle_time, limits.handshake_time);
        Self {
            longest,
            heard: now,
            missing: PREFACE_BYTES,
            begun_by: now + opening,
            alarm: Box::pin(tokio::time::sleep(opening.min(longest))),
            calling,
            seat,
            ending: ending.map(|ending| Box::pin(ending.wait()) as Pin<Box<_>>),
            said: None,
        }
    }

    /// Records received bytes.
    pub(super) fn heard(&mut self, bytes: usize) {
        self.seat.heard(bytes);
        self.missing = self.missing.saturating_sub(bytes);
        self.heard = Instant::now();
        self.said = self.said.map(|_| self.heard);
    }

    /// Records a write of so many bytes.
    pub(super) fn written(&mut self, bytes: usize) {
        self.seat.written(bytes);
        self.said = self.said.map(|_| Instant::now());
    }

    /// The time at which silence ends the connection.
    fn end_of_silence(&self) -> Instant {
        let end = self.heard + self.longest;
        if self.missing > 0 { end.min(self.begun_by) } else { end }
    }

    /// The time at which the idle connection may end.
    fn end_of_idleness(&self) -> Option<Instant> {
        let said = self.said?;
        if self.missing > 0 {
            return Some(said);
        }
        (self.calling.under_way() == 0).then(|| said + GOODBYE)
    }

    /// Ready when the connection has to end.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        if self.seat.poll_displaced(context).is_ready() {
            return Poll::Ready(End::Displaced);
        }
        if self.ending.as_mut().is_some_and(|ending| ending.as_mut().poll(context).is_ready()) {
            self.ending = None;
            self.said = Some(Instant::now());
        }
        loop {
            let now = Instant::now();
            let (silence, idleness) = (self.end_of_silence(), self.end_of_idleness());
            if self.calling.is_overdue() {
                return Poll::Ready(End::NotTaken);
            }
            if silence <= now {
                return Poll::Ready(End::Silent);
            }
            if idleness.is_some_and(|end| end <= now) {
                return Poll::Ready(End::Idle);
            }
            let look = self.calling.look_every().map(|after| now + after);
            let next = [idleness, look].into_iter().flatten().fold(silence, Instant::min);
            if next < self.alarm.deadline() || self.alarm.is_elapsed() {
                self.alarm.as_mut().reset(next);
            }
            ready!(self.alarm.as_mut().poll(context));
        }
    }
}
