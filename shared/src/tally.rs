//! Sums of private bits.

use std::iter::Sum;
use std::ops::AddAssign;

use thiserror::Error;

/// How many reports an arm has, and how many of their bits are 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    reports: u64,
    ones: u64,
}

impl Tally {
    /// The largest number of reports, `2^62`: sums of two tallies and their
    /// products with a 64-bit floor never overflow.
    pub const REPORTS_MAX: u64 = 1 << 62;

    /// No reports.
    pub const EMPTY: Self = Self { reports: 0, ones: 0 };

    /// Checks that the numbers can be counts of one set of reports.
    ///
    /// # Errors
    /// [`TallyError`] when there are more ones than reports, or more reports
    /// than [`Self::REPORTS_MAX`].
    pub fn new(reports: u64, ones: u64) -> Result<Self, TallyError> {
        if ones <= reports && reports <= Self::REPORTS_MAX {
            Ok(Self { reports, ones })
        } else {
            Err(TallyError { reports, ones })
        }
    }

    /// The tally of a single bit.
    pub fn of_bit(bit: bool) -> Self {
        Self { reports: 1, ones: u64::from(bit) }
    }

    /// Number of reports.
    pub fn reports(self) -> u64 {
        self.reports
    }

    /// Number of ones among them.
    pub fn ones(self) -> u64 {
        self.ones
    }

    /// Number of zeros among them.
    pub fn zeros(self) -> u64 {
        self.reports - self.ones
    }

    /// Share of ones; `None` without reports.
    pub fn private_mean(self) -> Option<f64> {
        (self.reports > 0).then(|| self.ones as f64 / self.reports as f64)
    }
}

/// Saturates at [`Tally::REPORTS_MAX`], which no sum of real uploads reaches.
impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.reports = (self.reports + other.reports).min(Self::REPORTS_MAX);
        self.ones = (self.ones + other.ones).min(self.reports);
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::EMPTY, |mut total, tally| {
            total += tally;
            total
        })
    }
}

/// Counts that contradict each other.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{ones} ones among {reports} reports is not a tally; expected ones <= reports <= 2^62")]
pub struct TallyError {
    reports: u64,
    ones: u64,
}
