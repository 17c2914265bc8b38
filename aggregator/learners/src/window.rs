//! Evidence for rewards that drift: old reports count less, or no more.
//!
//! Tallies are kept by day, so what counts is a function of them, and a restart
//! changes nothing. Days are counted back from the newest one that has reports, not from
//! today: a clock that is wrong forgets nothing, and neither does a pause. Confidence
//! sequences are for all reports alike: they never look at this.

use std::collections::BTreeMap;
use std::fmt;

use bandana_shared::alphabet::Alphabet;
use bandana_shared::identity::Day;
use bandana_shared::tally::Tally;
use thiserror::Error;

use super::input::Evidence;

/// The tallies of every arm, by day.
pub type Days = BTreeMap<Day, Vec<Tally>>;

/// How much reports of past days count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Memory {
    /// As much as those of the newest day, for ever.
    #[default]
    Everything,
    /// As much as those of the newest day for so many days, that one among them, and then not at
    /// all: SW-UCB of Garivier and Moulines, "On Upper-Confidence Bound Policies for
    /// Switching Bandit Problems" (2011), with its window in days.
    Days(u32),
    /// This factor less for every day that has passed, in 0..1: their discounted UCB,
    /// and discounted Thompson sampling of Raj and Kalyani (2017, arXiv 1707.09727).
    Discount(f64),
}

impl Memory {
    /// Days that count at most, ten years.
    pub const DAYS_MAX: u32 = 3650;

    /// A sliding window.
    ///
    /// # Errors
    /// [`MemoryError::Days`] unless it has 1 to [`Self::DAYS_MAX`] days.
    pub fn days(days: u32) -> Result<Self, MemoryError> {
        let valid = (1..=Self::DAYS_MAX).contains(&days);
        if valid { Ok(Self::Days(days)) } else { Err(MemoryError::Days) }
    }

    /// Whether old reports count as much as new ones.
    pub fn is_everything(self) -> bool {
        self == Self::Everything
    }

    /// Days that count, the newest one among them.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number, and too large a one is cut"
    )]
    pub fn reach(self) -> u32 {
        match self {
            Self::Everything => u32::MAX,
            Self::Days(days) => days,
            Self::Discount(factor) => {
                let days = libm::ceil(libm::log(NEGLIGIBLE) / libm::log(factor));
                (days as u32).clamp(1, Self::DAYS_MAX)
            }
        }
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
            _ if days >= self.reach() => 0.0,
            Self::Everything | Self::Days(_) => 1.0,
            Self::Discount(factor) => libm::pow(factor, f64::from(days)),
        }
    }

    /// What the tallies of some days say of each of so many arms. Nothing of an arm that a
    /// day does not reach.
    pub fn evidence(self, days: &Days, arms: usize, alphabet: Alphabet) -> Vec<Evidence> {
        let newest = days.last_key_value().map_or(0, |(day, _)| day.get());
        let weighted = |(day, tallies)| (self.weight(newest - Day::get(day)), tallies);
        let days: Vec<(f64, &Vec<Tally>)> =
            days.iter().map(|(day, tallies)| weighted((*day, tallies))).collect();
        let arm = |arm: usize| {
            let count = |symbol| {
                let of_day = |(weight, tallies): &(f64, &Vec<Tally>)| {
                    tallies.get(arm).map_or(0.0, |tally| weight * tally.count(symbol) as f64)
                };
                days.iter().map(of_day).sum::<f64>()
            };
            Evidence::of_counts(&alphabet.symbols().map(count), alphabet)
        };
        (0..arms).map(arm).collect()
    }

    /// Forgets the days that count no more.
    pub fn prune(self, days: &mut Days) {
        let Some((newest, _)) = days.last_key_value() else { return };
        let newest = newest.get();
        days.retain(|day, _| newest - day.get() < self.reach());
    }
}

/// For people, to follow the name of a learner: nothing, or what it forgets.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => Ok(()),
            Self::Days(1) => f.write_str(" on the last day with reports"),
            Self::Days(days) => write!(f, " on the last {days} days"),
            Self::Discount(factor) => write!(f, " with a discount of {factor} per day"),
        }
    }
}

/// What a report counts when it counts no more.
const NEGLIGIBLE: f64 = 1e-12;

/// A memory that makes no sense.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// No day at all, or more than count.
    #[error("a window has 1 to {} days; leave it out to keep all", Memory::DAYS_MAX)]
    Days,
    /// Not between 0 and 1.
    #[error("a discount per day must lie between 0 and 1, such as 0.9; leave it out to keep all")]
    Discount,
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact values are meant")]
mod tests {
    use super::*;

    #[test]
    fn old_reports_count_less() {
        let of = |n, ones| vec![Tally::new(n, ones).unwrap()];
        let days: Days = [(10, of(100, 90)), (12, of(8, 4)), (13, of(2, 0))]
            .map(|(day, tallies)| (Day::new(day), tallies))
            .into();
        let evidence = |memory: Memory| {
            let evidence = memory.evidence(&days, 1, Alphabet::BITS)[0];
            (evidence.ones(), evidence.zeros())
        };
        assert_eq!(evidence(Memory::Everything), (94.0, 16.0));
        assert_eq!(evidence(Memory::days(2).unwrap()), (4.0, 6.0));
        assert_eq!(evidence(Memory::discount(0.5).unwrap()), (13.25, 5.25));
        // An arm that the days know nothing of.
        assert_eq!(Memory::Days(2).evidence(&days, 2, Alphabet::BITS)[1], Evidence::default());
        let mut pruned = days.clone();
        Memory::Days(2).prune(&mut pruned);
        assert!(pruned.keys().map(|day| day.get()).eq([12, 13]));
        assert_eq!(
            Memory::Days(2).evidence(&pruned, 1, Alphabet::BITS),
            Memory::Days(2).evidence(&days, 1, Alphabet::BITS)
        );
    }

    #[test]
    fn what_counts_no_more_is_out_of_reach() {
        for factor in [0.001, 0.5, 0.9, 0.99] {
            let memory = Memory::discount(factor).unwrap();
            let reach = memory.reach();
            assert!(memory.weight(reach - 1) > 0.99 * NEGLIGIBLE);
            assert_eq!(memory.weight(reach), 0.0);
        }
        assert_eq!(Memory::discount(0.999_999).unwrap().reach(), Memory::DAYS_MAX);
    }

    #[test]
    fn senseless_memories_are_refused() {
        assert_eq!(Memory::days(0), Err(MemoryError::Days));
        assert_eq!(Memory::days(3651), Err(MemoryError::Days));
        for factor in [0.0, 1.0, -0.5, f64::NAN] {
            assert_eq!(Memory::discount(factor), Err(MemoryError::Discount));
        }
    }
}
