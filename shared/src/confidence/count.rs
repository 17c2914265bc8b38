//! Counts of reports that are scaled to 0..=1.

use crate::alphabet::Alphabet;
use crate::tally::Tally;

/// The number of reports, and the sum of their symbols, each scaled to 0..=1. For bits that is the
/// number of ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Number of reports.
    pub reports: f64,
    /// Sum of the scaled symbols.
    pub sum: f64,
}

/// Reports up to which a logarithm of evidence is precise to a thousandth.
const REPORTS_PRECISE: f64 = 1e12;

impl Count {
    /// The count of a tally.
    pub fn of(tally: &Tally, alphabet: Alphabet) -> Self {
        let place = |(symbol, count): (_, u64)| alphabet.position(symbol) * count as f64;
        let sum = alphabet.symbols().zip(tally.counts(alphabet)).map(place).sum();
        Self { reports: tally.reports() as f64, sum }
    }

    /// Mean of the scaled symbols; 1/2 without reports.
    pub fn mean(self) -> f64 {
        if self.reports > 0.0 { self.sum / self.reports } else { 0.5 }
    }

    /// The largest variance that reports with this mean can have, smoothed for few of them.
    pub(super) fn variance(self) -> f64 {
        let mean = (self.sum + 1.0) / (self.reports + 2.0);
        mean * (1.0 - mean)
    }

    /// The same mean, of as many fewer reports as `most` exceed the number beyond which floating-point
    /// numbers are too coarse. Fewer reports say less.
    pub(super) fn shrunk(self, most: f64) -> Self {
        let factor = (REPORTS_PRECISE / most).min(1.0);
        Self { reports: factor * self.reports, sum: factor * self.sum }
    }

    /// The same mean, of so many reports more.
    pub(super) fn grown_by(self, more: f64) -> Self {
        Self { reports: self.reports + more, sum: self.sum + more * self.mean() }
    }
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.reports += more.reports;
        self.sum += more.sum;
    }
}
