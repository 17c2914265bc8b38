//! Evidence for rewards that drift: old reports count less, or not at all.
//!
//! Tallies are kept by day. The evidence is a function of them, so a restart changes nothing. Days
//! are counted back from the newest day with reports, not from today. So neither a wrong clock nor
//! a pause causes forgetting. Confidence sequences weigh all reports equally and ignore this
//! memory.

use std::collections::BTreeMap;
use std::fmt;

use bandana_shared::alphabet::Alphabet;
use bandana_shared::identity::Day;
use bandana_shared::tally::Tally;
use thiserror::Error;

use super::input::Evidence;

/// The tallies of every arm, by day.
pub type Days = BTreeMap<Day, Vec<Tally>>;

/// The weight of reports of past days.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Memory {
    /// All reports weigh the same for ever.
    #[default]
    Everything,
    /// Reports weigh the same for this many days, the newest day included, and then nothing: SW-UCB
    /// of Garivier and Moulines, "On Upper-Confidence Bound Policies for Switching Bandit Problems"
    /// (2011), with its window in days.
    Days(u32),
    /// The weight is multiplied by this factor, in 0..1, for every day that has passed: discounted
    /// UCB of Garivier and Moulines, and discounted Thompson sampling of Raj and Kalyani (2017,
    /// arXiv 1707.09727).
    Discount(f64),
}

impl Memory {
    /// Maximum number of days in a window: ten years.
    pub const DAYS_MAX: u32 = 3650;

    /// Number of days whose tallies an unlimited memory keeps apart: eight weeks.
    pub const DAYS_APART: usize = 56;

    /// A sliding window.
    ///
    /// # Errors
    /// [`MemoryError::Days`] unless it has 1 to [`Self::DAYS_MAX`] days.
    pub fn days(days: u32) -> Result<Self, MemoryError> {
        let valid = (1..=Self::DAYS_MAX).contains(&days);
        if valid { Ok(Self::Days(days)) } else { Err(MemoryError::Days) }
    }

    /// Whether old reports weigh as much as new ones.
    pub fn is_everything(self) -> bool {
        self == Self::Everything
    }

    /// Number of days with weight, the newest day included.
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

    /// A discount per day.
    ///
    /// # Errors
    /// [`MemoryError::Discount`] unless it lies strictly between 0 and 1.
    pub fn discount(factor: f64) -> Result<Self, MemoryError> {
        let valid = factor > 0.0 && factor < 1.0;
        if valid { Ok(Self::Discount(factor)) } else { Err(MemoryError::Discount) }
    }

    /// The weight of a report after `days` days.
    pub fn weight(self, days: u32) -> f64 {
        match self {
            _ if days >= self.reach() => 0.0,
            Self::Everything | Self::Days(_) => 1.0,
            Self::Discount(factor) => libm::pow(factor, f64::from(days)),
        }
    }

    /// The evidence of each of `arms` arms in the tallies of these days. If a day has no tally of
    /// an arm, the arm has no evidence from that day.
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

    /// Drops the days without weight. An unlimited memory keeps all: the newest
    /// [`Self::DAYS_APART`] apart, and the earlier ones added up under the first of them.
    pub fn prune(self, days: &mut Days) {
        if self.is_everything() {
            while days.len() > Self::DAYS_APART + 1 {
                let Some((first, sums)) = days.pop_first() else { return };
                let Some((_, second)) = days.pop_first() else { return };
                days.insert(first, sum(sums, &second));
            }
            return;
        }
        let Some((newest, _)) = days.last_key_value() else { return };
        let newest = newest.get();
        days.retain(|day, _| newest - day.get() < self.reach());
    }
}

/// The sums of two lists of tallies.
fn sum(mut tallies: Vec<Tally>, others: &[Tally]) -> Vec<Tally> {
    tallies.resize(tallies.len().max(others.len()), Tally::EMPTY);
    for (tally, other) in tallies.iter_mut().zip(others) {
        *tally += *other;
    }
    tallies
}

/// Formats the memory in words, to follow a learner's name; empty if unlimited.
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

/// Weight below which a report no longer counts.
const NEGLIGIBLE: f64 = 1e-12;

/// An invalid memory.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// The number of days is 0 or too large.
    #[error("a window has 1 to {} days; leave it out to keep all", Memory::DAYS_MAX)]
    Days,
    /// The discount is not strictly between 0 and 1.
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
        // An arm without tallies.
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
    fn an_unlimited_memory_keeps_the_sum_of_what_it_keeps_not_apart() {
        let mut days = Days::new();
        for day in 1..=100 {
            days.insert(Day::new(day), vec![Tally::new(u64::from(day), 1).unwrap()]);
            Memory::Everything.prune(&mut days);
        }
        let numbers: Vec<u32> = days.keys().map(|day| day.get()).collect();
        assert_eq!(numbers, [1].into_iter().chain(45..=100).collect::<Vec<u32>>());
        assert_eq!(days[&Day::new(1)], [Tally::new(990, 44).unwrap()]);
        // A late report.
        days.insert(Day::new(40), vec![Tally::EMPTY, Tally::new(2, 2).unwrap()]);
        Memory::Everything.prune(&mut days);
        assert_eq!(days[&Day::new(1)][1], Tally::new(2, 2).unwrap());
        assert_eq!(days.len(), Memory::DAYS_APART + 1);
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
