//! Permits for running calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most calls of one connection once half of all places are taken. So a caller with many calls on
/// few connections leaves half of the places to others.
const FEW: usize = 4;

/// The places for calls.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    all: usize,
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        let all = all.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(all)), all }
    }

    /// A place for a call of the connection that counts its calls in `of_connection`, if there is
    /// one.
    pub(super) fn take(&self, of_connection: Arc<AtomicUsize>) -> Option<CallPermit> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        let before = of_connection.fetch_add(1, Ordering::Relaxed);
        let place = CallPermit { of_connection, _permit: permit };
        (before < FEW || self.free.available_permits() >= self.all / 2).then_some(place)
    }
}

/// A place for a call, released when dropped.
#[derive(Debug)]
pub(super) struct CallPermit {
    of_connection: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.of_connection.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_calls_on_one_connection_leave_half_of_the_places() {
        let places = Places::new(16);
        let (greedy, other): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let take = |connection: &Arc<AtomicUsize>| places.take(Arc::clone(connection));
        let taken: Vec<CallPermit> = std::iter::from_fn(|| take(&greedy)).collect();
        assert_eq!(taken.len(), 8);
        let mut others: Vec<CallPermit> = std::iter::from_fn(|| take(&other)).collect();
        assert_eq!(others.len(), 4);
        // Connections with few calls get all remaining places.
        while others.len() < 8 {
            others.extend(take(&Arc::default()));
        }
        assert!(take(&Arc::default()).is_none());
        drop(taken);
        assert_eq!(greedy.load(Ordering::Relaxed), 0);
        assert!(take(&other).is_none() && take(&greedy).is_some());
    }

    #[test]
    fn a_single_place_is_for_whoever_comes() {
        let places = Places::new(1);
        let place = places.take(Arc::default());
        assert!(place.is_some() && places.take(Arc::default()).is_none());
        drop(place);
        assert!(places.take(Arc::default()).is_some());
    }
}
