//! A budget of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared budget of bytes, of which parts are held and released. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    bytes: usize,
    held: AtomicUsize,
}

impl Budget {
    /// A budget of this many bytes, all free.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Counted { bytes, held: AtomicUsize::new(0) }))
    }

    /// The total number of bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The number of bytes held now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Whether more than three quarters of the budget are held.
    pub fn is_scarce(&self) -> bool {
        self.held() > self.0.bytes / 4 * 3
    }

    /// Holds this many bytes, if they are free.
    pub fn hold(&self, bytes: usize) -> Option<Hold> {
        self.take(bytes).then(|| Hold { budget: self.clone(), bytes: AtomicUsize::new(bytes) })
    }

    /// Holds this many bytes, even beyond the budget, since they are already in use.
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

/// Bytes held until dropped.
#[derive(Debug)]
pub struct Hold {
    budget: Budget,
    bytes: AtomicUsize,
}

impl Hold {
    /// Holds this many more bytes, and returns whether they were free.
    pub fn grow(&self, bytes: usize) -> bool {
        let fits = self.budget.take(bytes);
        if fits {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Releases all but this many bytes.
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
        // This method does not grow a hold.
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
