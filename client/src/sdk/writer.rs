//! The writer: a thread that makes the writes of a driver, since a disk may be slow.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use tokio::sync::oneshot;

use super::Shared;

/// A thread that lives as long as this.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None`: the operating system has no thread to give.
    orders: Option<Sender<oneshot::Sender<()>>>,
}

impl Writer {
    pub(super) fn start(shared: &Arc<Shared>) -> Self {
        let (orders, received) = channel::<oneshot::Sender<()>>();
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("bandana-disk".to_owned());
        let started = thread.spawn(move || {
            for done in received {
                shared.write_pending();
                // The driver may have ended.
                done.send(()).ok();
            }
        });
        Self { orders: started.ok().map(|_| orders) }
    }

    /// Makes the pending writes, after one that is under way. A write that has begun is completed,
    /// even if this future is dropped.
    ///
    /// Without the thread, or if it ended by a panic of the app's clock, the write blocks the
    /// caller.
    pub(super) async fn write(&self, shared: &Shared) {
        let (done, is_done) = oneshot::channel();
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send(done).is_ok());
        if !sent || is_done.await.is_err() {
            shared.write_pending();
        }
    }
}
