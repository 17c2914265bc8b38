//! The end of a connection whose other end still sends.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// How long the other end has to hear the last words and to close.
const LONGEST: Duration = Duration::from_secs(1);

/// Bytes that are dropped at once.
const CHUNK: usize = 4096;

/// Waits, once everything is said, until the other end closes. Closing a socket while
/// there is something to read resets the connection, and a reset takes with it what the
/// other end has not read yet: the word that a stream was cut off.
#[derive(Debug, Default)]
pub(super) struct DrainOnClose {
    alarm: Option<Pin<Box<Sleep>>>,
}

impl DrainOnClose {
    /// Whether the other end had its time. It begins with the first call.
    pub(super) fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(LONGEST)));
        alarm.as_mut().poll(context).is_ready()
    }

    /// Ready when the connection can be closed. What comes in is read and dropped.
    pub(super) fn poll(
        &mut self,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let is_late = self.is_over(context);
        let mut dropped = [0; CHUNK];
        loop {
            let mut buffer = ReadBuf::new(&mut dropped);
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                // Not before what has come is read: it may be this process that was held up,
                // and what lies unread would reset the connection.
                Poll::Pending if is_late => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                // An error is an end as well: everything was said.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}
