//! The body of a request, which must arrive in time, within the budget, and completely.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body as HttpBody, Frame, SizeHint};
use prost::bytes::Bytes;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use super::layer::{HoldingLayer, UnderBudget, beyond_budget, broken_off};

/// The number of copies of a request's bytes in memory, while it is assembled and decoded.
const COPIES: usize = 3;

/// A body that must arrive completely, and within its time limit if it has one.
pub(super) struct RequestBody {
    body: Body,
    /// None: a stream, with a time limit of its own.
    time: Option<Duration>,
    /// Set when the body is first waited for: most bodies arrive with their headers.
    alarm: Option<Pin<Box<Sleep>>>,
    call: Arc<UnderBudget>,
    layer: HoldingLayer,
}

impl RequestBody {
    pub(super) fn new(
        body: Body,
        time: Option<Duration>,
        call: Arc<UnderBudget>,
        layer: HoldingLayer,
    ) -> Self {
        Self { body, time, alarm: None, call, layer }
    }

    /// Charges the received bytes. A stream is read no faster than it is processed, and holds its
    /// window from the start.
    fn hold(&self, frame: &Frame<Bytes>) -> Result<(), Status> {
        let (Some(data), Some(_)) = (frame.data_ref(), self.time) else { return Ok(()) };
        if self.call.hold.grow(COPIES * data.len()) { Ok(()) } else { Err(beyond_budget()) }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Pending => {}
            Poll::Ready(Some(Err(_))) => {
                // The peer knows the reason.
                this.layer.count_broken_off();
                this.call.break_off();
                return Poll::Ready(Some(Err(broken_off())));
            }
            Poll::Ready(Some(Ok(frame))) => {
                return Poll::Ready(Some(this.hold(&frame).map(|()| frame)));
            }
            Poll::Ready(None) => return Poll::Ready(None),
        }
        let Some(time) = this.time else { return Poll::Pending };
        let alarm = this.alarm.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(alarm.as_mut().poll(context));
        let message = format!("the request was not sent within {} seconds", time.as_secs());
        Poll::Ready(Some(Err(Status::deadline_exceeded(message))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
