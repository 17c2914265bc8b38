//! Samples: statistics of the reports of an arm, for any alphabet.

use crate::alphabet::Alphabet;
use crate::tally::Tally;

/// Number, mean and spread of reports, each symbol scaled to 0..=1: the first symbol is 0, the last
/// one 1. For bits the mean is the share of ones.
///
/// ```
/// use bandana_shared::{alphabet::{Alphabet, Symbol}, sample::Sample, tally::Tally};
/// // Of four reports of three levels, two have symbol 1 and one has symbol 2.
/// let of = |number| Symbol::new(number).unwrap();
/// let tally = Tally::with_symbols(4, [(of(1), 2), (of(2), 1)])?;
/// let sample = Sample::of(&tally, Alphabet::new(3)?).unwrap();
/// assert_eq!((sample.reports(), sample.mean(), sample.squares()), (4.0, 0.5, 0.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    reports: f64,
    mean: f64,
    squares: f64,
}

impl Sample {
    /// The sample of a tally; `None` without reports.
    pub fn of(tally: &Tally, alphabet: Alphabet) -> Option<Self> {
        Self::of_counts(&tally.counts(alphabet).map(|count| count as f64), alphabet)
    }

    /// The sample of counts that need not be whole numbers, one for each symbol.
    pub fn of_counts(
        counts: &(impl Iterator<Item = f64> + Clone),
        alphabet: Alphabet,
    ) -> Option<Self> {
        let placed = || alphabet.symbols().map(|s| alphabet.position(s)).zip(counts.clone());
        let reports: f64 = counts.clone().sum();
        let mean = placed().map(|(position, count)| position * count).sum::<f64>() / reports;
        let square = |(position, count): (f64, f64)| count * (position - mean) * (position - mean);
        let squares = placed().map(square).sum();
        (reports > 0.0).then_some(Self { reports, mean, squares })
    }

    /// Number of reports.
    pub fn reports(self) -> f64 {
        self.reports
    }

    /// Mean of the scaled symbols, in 0..=1.
    pub fn mean(self) -> f64 {
        self.mean
    }

    /// Sum of the squared deviations from the mean.
    pub fn squares(self) -> f64 {
        self.squares
    }
}
