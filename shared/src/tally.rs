//! Tallies: counts of reports.

use std::iter::Sum;
use std::ops::AddAssign;

use thiserror::Error;

use crate::alphabet::{Alphabet, Symbol};

/// The number of reports of an arm, and the number for each symbol. For bits, that is the number of
/// ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    reports: u64,
    /// Counts of the symbols 1, 2 and so on; the other reports are 0.
    counts: [u64; OTHERS],
}

/// Number of symbols other than 0.
const OTHERS: usize = Alphabet::MAX as usize - 1;

impl Tally {
    /// The largest number of reports, `2^62`: sums of two tallies and their
    /// products with a 64-bit floor never overflow.
    pub const REPORTS_MAX: u64 = 1 << 62;

    /// No reports.
    pub const EMPTY: Self = Self { reports: 0, counts: [0; OTHERS] };

    /// A tally of bits, if the numbers can be counts of one set of reports.
    ///
    /// # Errors
    /// [`TallyError`] when there are more ones than reports, or more reports
    /// than [`Self::REPORTS_MAX`].
    pub fn new(reports: u64, ones: u64) -> Result<Self, TallyError> {
        Self::with_symbols(reports, [(Symbol::from(true), ones)])
    }

    /// A tally of `reports` reports, with the given counts of symbols. The other reports are 0.
    /// Several counts of one symbol are added.
    ///
    /// # Errors
    /// [`TallyError`] when there are more symbols than reports, or more reports than
    /// [`Self::REPORTS_MAX`].
    pub fn with_symbols(
        reports: u64,
        counts: impl IntoIterator<Item = (Symbol, u64)>,
    ) -> Result<Self, TallyError> {
        let mut tally = Self { reports, ..Self::EMPTY };
        let mut others = 0_u64;
        for (symbol, count) in counts {
            others = others.saturating_add(count);
            if let Some(place) = usize::from(symbol.get()).checked_sub(1) {
                tally.counts[place] = tally.counts[place].saturating_add(count);
            }
        }
        if others <= reports && reports <= Self::REPORTS_MAX {
            Ok(tally)
        } else {
            Err(TallyError { reports, others })
        }
    }

    /// The tally of a single bit.
    pub fn of_bit(bit: bool) -> Self {
        Self::of_symbol(bit.into())
    }

    /// The tally of a single report.
    pub fn of_symbol(symbol: Symbol) -> Self {
        let mut tally = Self { reports: 1, ..Self::EMPTY };
        if let Some(place) = usize::from(symbol.get()).checked_sub(1) {
            tally.counts[place] = 1;
        }
        tally
    }

    /// Number of reports.
    pub fn reports(self) -> u64 {
        self.reports
    }

    /// Number of reports with this symbol.
    pub fn count(&self, symbol: Symbol) -> u64 {
        match usize::from(symbol.get()).checked_sub(1) {
            Some(place) => self.counts[place],
            None => self.reports - self.counts.iter().sum::<u64>(),
        }
    }

    /// Number of reports with each symbol, in the order of the symbols.
    pub fn counts(&self, alphabet: Alphabet) -> impl ExactSizeIterator<Item = u64> + Clone {
        alphabet.symbols().map(|symbol| self.count(symbol))
    }

    /// Number of ones.
    pub fn ones(self) -> u64 {
        self.counts[0]
    }

    /// Number of zeros.
    pub fn zeros(self) -> u64 {
        self.count(Symbol::from(false))
    }

    /// Whether a symbol outside the alphabet occurs.
    pub fn exceeds(&self, alphabet: Alphabet) -> bool {
        self.counts[usize::from(alphabet.len()) - 1..].iter().any(|count| *count > 0)
    }

    /// The symbols from 2 on that occur, each with its number of reports. Tallies of bits have
    /// none.
    pub fn beyond_bits(&self) -> impl Iterator<Item = (Symbol, u64)> {
        let numbered = (2..).zip(&self.counts[1..]);
        numbered
            .filter_map(|(number, count)| Some((Symbol::new(number)?, *count)))
            .filter(|(_, count)| *count > 0)
    }

    /// The tally without `others`, which must be among these reports.
    ///
    /// ```
    /// use bandana_shared::tally::Tally;
    /// let (all, some) = (Tally::new(10, 4)?, Tally::new(3, 1)?);
    /// assert_eq!(all.without(&some), Tally::new(7, 3)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn without(mut self, others: &Self) -> Self {
        self.reports = self.reports.saturating_sub(others.reports);
        for (count, less) in self.counts.iter_mut().zip(others.counts) {
            *count = count.saturating_sub(less);
        }
        self
    }

    /// Share of ones, or `None` without reports.
    pub fn private_mean(self) -> Option<f64> {
        (self.reports > 0).then(|| self.ones() as f64 / self.reports as f64)
    }
}

/// Reports beyond [`Tally::REPORTS_MAX`], which no sum of real uploads reaches, are left out.
impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let reports = self.reports + other.reports;
        if reports > Self::REPORTS_MAX {
            return;
        }
        self.reports = reports;
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
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
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error(
    "{others} reports of some symbols among {reports} reports is not a tally; expected at most as \
     many, and at most 2^62 reports"
)]
pub struct TallyError {
    reports: u64,
    others: u64,
}

crate::debug_says!(TallyError);
