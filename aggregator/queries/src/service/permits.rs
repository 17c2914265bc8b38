//! Permits for blocking work: a number for all callers, and a smaller one for each.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use bandana_edge::status::GOING_DOWN;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// The permits of one kind of work.
#[derive(Debug)]
pub(super) struct QueryPermits {
    all: Arc<Semaphore>,
    of_each: usize,
    callers: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A permit, released when dropped.
#[derive(Debug)]
pub(super) struct QueryPermit {
    _own: OwnedSemaphorePermit,
    _common: OwnedSemaphorePermit,
}

impl QueryPermits {
    pub(super) fn new(all: usize, of_each: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of_each, callers: Mutex::default() }
    }

    /// Waits for a permit, first within the caller's own share, so that callers that wait for
    /// themselves delay no others.
    pub(super) async fn take(&self, caller: &impl Display) -> Result<QueryPermit, Status> {
        let down = |_| Status::unavailable(GOING_DOWN);
        let own = self.own(caller.to_string()).acquire_owned().await.map_err(down)?;
        let common = Arc::clone(&self.all).acquire_owned().await.map_err(down)?;
        Ok(QueryPermit { _own: own, _common: common })
    }

    fn own(&self, caller: String) -> Arc<Semaphore> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        // A caller with a permit, or waiting for one, holds its share.
        callers.retain(|_, share| Arc::strong_count(share) > 1);
        Arc::clone(callers.entry(caller).or_insert_with(|| Arc::new(Semaphore::new(self.of_each))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn a_caller_has_its_share_and_leaves_the_rest_to_others() {
        let places = QueryPermits::new(3, 2);
        let take = |caller: &'static str| places.take(&caller).now_or_never().map(Result::unwrap);
        let (one, two) = (take("anna").unwrap(), take("anna").unwrap());
        assert!(take("anna").is_none());
        let three = take("ben").unwrap();
        assert!(take("ben").is_none() && take("cem").is_none());
        drop(one);
        assert!(take("ben").is_some());
        let four = take("anna").unwrap();
        assert!(take("cem").is_none());
        drop((two, three, four));
        assert!(take("cem").is_some());
        assert_eq!(places.callers.lock().unwrap().len(), 1, "who has gone is forgotten");
    }
}
