//! Bytes that may be held at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes, of which parts are held and given back. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    bytes: usize,
    held: AtomicUsize,
}

impl Budget {
    /// So many bytes, of which none are held yet.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Counted { bytes, held: AtomicUsize::new(0) }))
    }

    /// All bytes, held or not.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Whether more than three quarters are held.
    pub fn is_scarce(&self) -> bool {
        self.held() > self.0.bytes / 4 * 3
    }

    /// Holds so many bytes, if there are so many.
    pub fn hold(&self, bytes: usize) -> Option<Hold> {
        self.take(bytes).then(|| Hold { budget: self.clone(), bytes: AtomicUsize::new(bytes) })
    }

    /// Holds so many bytes, even if there are none left: they are in use already.
    pub fn hold_anyway(&self, bytes: usize) -> Hold {
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        Hold { budget: self.clone(), bytes: AtomicUsize::new(bytes) }
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.0.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.0.bytes;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.0.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub struct Hold {
    budget: Budget,
    bytes: AtomicUsize,
}

impl Hold {
    /// Holds so many bytes more, and tells whether there were so many.
    pub fn grow(&self, bytes: usize) -> bool {
        let fits = self.budget.take(bytes);
        if fits {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Gives back all but so many bytes.
    pub fn shrink_to(&self, bytes: usize) {
        let before = self.bytes.fetch_min(bytes, Ordering::Relaxed);
        self.budget.give_back(before.saturating_sub(bytes));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.budget.give_back(*self.bytes.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_comes_back_and_there_is_never_more_than_all() {
        let budget = Budget::new(100);
        let first = budget.hold(60).unwrap();
        assert!(budget.hold(41).is_none() && !budget.is_scarce());
        assert!(first.grow(40) && !first.grow(1) && budget.is_scarce());
        assert_eq!(budget.held(), 100);
        first.shrink_to(10);
        // It can't grow this way.
        first.shrink_to(50);
        assert_eq!(budget.held(), 10);
        let anyway = budget.hold_anyway(1000);
        assert!(budget.hold(1).is_none());
        drop((first, anyway));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let budget = Budget::new(usize::MAX);
        let hold = budget.hold(usize::MAX);
        assert!(hold.is_some());
        drop(hold);
        assert_eq!(budget.held(), 0);
    }
}
