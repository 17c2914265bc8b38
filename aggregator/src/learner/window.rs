//! Evidence for rewards that drift: old reports count less, or no more.
//!
//! Tallies are kept by day, so what counts is a function of them, and a restart
//! changes nothing. Confidence sequences are for all reports alike: they never look
//! at this.

use bandana_shared::identity::Day;
use bandana_shared::tally::Tally;
use thiserror::Error;

use super::situation::Evidence;

/// How much reports of past days count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// As much as those of today, for ever.
    Everything,
    /// As much as those of today for so many days, today among them, and then not at
    /// all: SW-UCB of Garivier and Moulines, "On Upper-Confidence Bound Policies for
    /// Switching Bandit Problems" (2011), with its window in days.
    Days(u32),
    /// This factor less for every day that has passed, in 0..1: their discounted UCB,
    /// and discounted Thompson sampling of Raj and Kalyani (2017, arXiv 1707.09727).
    Discount(f64),
}

impl Memory {
    /// A sliding window.
    ///
    /// # Errors
    /// [`MemoryError::Days`] for 0 days.
    pub fn days(days: u32) -> Result<Self, MemoryError> {
        if days > 0 { Ok(Self::Days(days)) } else { Err(MemoryError::Days) }
    }

    /// A discount for each day.
    ///
    /// # Errors
    /// [`MemoryError::Discount`] unless it lies strictly between 0 and 1.
    pub fn discount(factor: f64) -> Result<Self, MemoryError> {
        let valid = factor > 0.0 && factor < 1.0;
        if valid { Ok(Self::Discount(factor)) } else { Err(MemoryError::Discount) }
    }

    /// How much a report counts after so many days.
    pub fn weight(self, days: u32) -> f64 {
        match self {
            Self::Everything => 1.0,
            Self::Days(window) => f64::from(u8::from(days < window)),
            Self::Discount(factor) => libm::pow(factor, f64::from(days)),
        }
    }

    /// What an arm's tallies of some days say today. Days after today count as today.
    pub fn evidence(self, tallies: impl IntoIterator<Item = (Day, Tally)>, today: Day) -> Evidence {
        let (mut ones, mut zeros) = (0.0, 0.0);
        for (day, tally) in tallies {
            let weight = self.weight(today.get().saturating_sub(day.get()));
            ones += weight * tally.ones() as f64;
            zeros += weight * tally.zeros() as f64;
        }
        Evidence::new(ones, zeros)
    }
}

/// A memory that makes no sense.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// No day at all.
    #[error("a window of 0 days would forget everything; it has at least 1 day")]
    Days,
    /// Not between 0 and 1.
    #[error("a discount per day must lie between 0 and 1, such as 0.9; leave it out to keep all")]
    Discount,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: u32) -> Day {
        Day::new(number)
    }

    #[test]
    fn old_reports_count_less() {
        let of = |n, ones| Tally::new(n, ones).unwrap();
        let days = [(day(10), of(100, 90)), (day(12), of(8, 4)), (day(13), of(2, 0))];
        let evidence = |memory: Memory| {
            let evidence = memory.evidence(days, day(13));
            (evidence.ones(), evidence.zeros())
        };
        assert_eq!(evidence(Memory::Everything), (94.0, 16.0));
        assert_eq!(evidence(Memory::days(2).unwrap()), (4.0, 6.0));
        assert_eq!(evidence(Memory::discount(0.5).unwrap()), (13.25, 5.25));
        // A clock that was set back does not make reports count more.
        assert_eq!(Memory::Discount(0.5).evidence(days, day(0)), Evidence::new(94.0, 16.0));
    }

    #[test]
    fn senseless_memories_are_refused() {
        assert_eq!(Memory::days(0), Err(MemoryError::Days));
        for factor in [0.0, 1.0, -0.5, f64::NAN] {
            assert_eq!(Memory::discount(factor), Err(MemoryError::Discount));
        }
    }
}
