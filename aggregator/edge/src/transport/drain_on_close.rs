//! The end of a connection whose peer still sends.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// The time for the peer to receive the last bytes and to close.
const LONGEST: Duration = Duration::from_secs(1);

/// The size of the buffer for dropped bytes.
const CHUNK: usize = 4096;

/// Waits, after the last write, until the peer closes. Closing a socket with unread data resets the
/// connection. A reset discards data that the peer has not read yet, such as the notice that a
/// stream was cut off.
#[derive(Debug, Default)]
pub(super) struct DrainOnClose {
    alarm: Option<Pin<Box<Sleep>>>,
}

impl DrainOnClose {
    /// Whether the peer's time is over. The time begins with the first call.
    pub(super) fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(LONGEST)));
        alarm.as_mut().poll(context).is_ready()
    }

    /// Ready when the connection can be closed. Received data is read and dropped.
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
                // Only after received data was read: this process may have been delayed, and unread
                // data would reset the connection.
                Poll::Pending if is_late => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                // An error is an end as well: everything was written.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}
