//! The notifier wakes a task that waits for work.

use std::sync::{Mutex, PoisonError};
use std::task::Waker;
#[cfg(feature = "grpc")]
use std::{future::poll_fn, task::Poll};

use crate::process;

/// Wakes one waiting task. A wake without a waiting task ends the next wait.
#[derive(Debug)]
pub(crate) struct Notifier {
    state: Mutex<State>,
    /// The process that waits. In a copy of it the lock may be held for ever.
    process: u32,
}

impl Default for Notifier {
    fn default() -> Self {
        Self { state: Mutex::default(), process: process::id() }
    }
}

#[derive(Debug, Default)]
struct State {
    woken: bool,
    waker: Option<Waker>,
}

impl Notifier {
    /// Ends the current or the next wait.
    pub(crate) fn wake(&self) {
        if process::id() != self.process {
            return;
        }
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.woken = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for [`Self::wake`].
    #[cfg(feature = "grpc")]
    pub(crate) async fn woken(&self) {
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::take(&mut state.woken) {
                return Poll::Ready(());
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
