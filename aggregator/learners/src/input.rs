//! The input of a learner: evidence of each arm, and what bounds its weights.

use bandana_shared::alphabet::Alphabet;
use bandana_shared::channel::Channel;
use bandana_shared::sample::Sample;
use bandana_shared::tally::Tally;

/// What is known of one arm: private bits by their value, and selections whose
/// report has not come yet.
///
/// Counts are real numbers: those of a discounted tally are no whole ones, and
/// pending selections are often estimated. A report of more than two symbols counts as
/// a part of a one and a part of a zero, by where its symbol lies between the first and the
/// last; such evidence has a spread besides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    ones: f64,
    zeros: f64,
    pending: f64,
    /// Sum of the squared deviations from the mean. `None`: of bits, where it follows from
    /// the mean.
    squares: Option<f64>,
}

/// What a spread is taken to be before there are reports, and for how many reports that
/// counts. With less, arms whose first reports happen to agree would be held for certain.
const VARIANCE_BEFORE: f64 = 0.2;
const REPORTS_BEFORE: f64 = 3.0;

impl Evidence {
    /// Evidence of so many ones and zeros; what is not a positive number counts as 0.
    pub fn new(ones: f64, zeros: f64) -> Self {
        Self { ones: count(ones), zeros: count(zeros), pending: 0.0, squares: None }
    }

    /// Evidence of more than two symbols, before there are reports.
    pub fn of_levels() -> Self {
        Self { squares: Some(0.0), ..Self::default() }
    }

    /// What a tally of these symbols says.
    pub fn of(tally: &Tally, alphabet: Alphabet) -> Self {
        Self::of_counts(&tally.counts(alphabet).map(|count| count as f64), alphabet)
    }

    /// What counts of these symbols say, which need not be whole numbers.
    pub fn of_counts(counts: &(impl Iterator<Item = f64> + Clone), alphabet: Alphabet) -> Self {
        let nothing = if alphabet == Alphabet::BITS { Self::default() } else { Self::of_levels() };
        let Some(sample) = Sample::of_counts(counts, alphabet) else { return nothing };
        let positions = alphabet.symbols().map(|symbol| alphabet.position(symbol));
        let placed = || positions.clone().zip(counts.clone());
        Self {
            ones: placed().map(|(position, count)| position * count).sum(),
            zeros: placed().map(|(position, count)| (1.0 - position) * count).sum(),
            pending: 0.0,
            squares: nothing.squares.map(|_| sample.squares()),
        }
    }

    /// The same with so many selections not yet reported.
    #[must_use]
    pub fn with_pending(self, pending: f64) -> Self {
        Self { pending: count(pending), ..self }
    }

    /// Bits that are 1.
    pub fn ones(self) -> f64 {
        self.ones
    }

    /// Bits that are 0.
    pub fn zeros(self) -> f64 {
        self.zeros
    }

    /// All bits.
    pub fn reports(self) -> f64 {
        self.ones + self.zeros
    }

    /// Selections not yet reported.
    pub fn pending(self) -> f64 {
        self.pending
    }

    /// Reports that have come or are to come.
    pub fn selections(self) -> f64 {
        self.reports() + self.pending
    }

    /// Share of ones; `None` without reports.
    pub fn mean(self) -> Option<f64> {
        (self.reports() > 0.0).then(|| self.ones / self.reports())
    }

    /// The variance of a report, estimated with a bias towards a large one; `None` for
    /// bits.
    pub fn variance(self) -> Option<f64> {
        let squares = self.squares? + VARIANCE_BEFORE * REPORTS_BEFORE;
        Some(squares / (self.reports() + REPORTS_BEFORE))
    }

    /// As many bits, with the same mean, as say as much about it: with n reports of the
    /// variance v, n m (1 - m)/v, and never fewer than n. For learners that know bits only.
    #[must_use]
    pub fn as_bits(self) -> Self {
        let Some(variance) = self.variance() else { return self };
        // A mean of 0 or 1 has been seen so often only.
        let mean = (self.ones + 1.0) / (self.reports() + 2.0);
        let factor = (mean * (1.0 - mean) / variance).max(1.0);
        Self { ones: factor * self.ones, zeros: factor * self.zeros, squares: None, ..self }
    }

    /// Counts one report, which was pending if anything was.
    pub fn add_bit(&mut self, bit: bool) {
        *(if bit { &mut self.ones } else { &mut self.zeros }) += 1.0;
        self.pending = (self.pending - 1.0).max(0.0);
    }

    /// Counts one report of a symbol that lies at this `position`, from 0 for the first to
    /// 1 for the last one.
    pub fn add_level(&mut self, position: f64) {
        let before = self.mean().unwrap_or(position);
        self.ones += position;
        self.zeros += 1.0 - position;
        let after = self.mean().unwrap_or(position);
        let squares = self.squares.unwrap_or(0.0) + (position - before) * (position - after);
        self.squares = Some(squares);
        self.pending = (self.pending - 1.0).max(0.0);
    }

    /// Counts one selection.
    pub fn add_pending(&mut self) {
        self.pending += 1.0;
    }
}

impl From<Tally> for Evidence {
    fn from(tally: Tally) -> Self {
        Self::new(tally.ones() as f64, tally.zeros() as f64)
    }
}

fn count(count: f64) -> f64 {
    if count.is_finite() { count.max(0.0) } else { 0.0 }
}

/// All that a learner decides from.
#[derive(Clone, Debug)]
pub struct LearnerInput {
    /// One entry for each arm, retired ones too.
    pub arms: Vec<Evidence>,
    /// Whether the arm is in play, one entry for each.
    pub active: Vec<bool>,
    /// The channel that all reports went through.
    pub channel: Channel,
    /// Least share of the traffic for every arm in play.
    pub floor_weight: f64,
    /// Selections that the policy will serve before there is another.
    pub ahead: f64,
    /// Whether the arm is in its burn-in, one entry for each. Empty: none is.
    pub burning_in: Vec<bool>,
    /// Share of the traffic that is spread evenly over the arms in play.
    pub holdout_share: f64,
}

impl LearnerInput {
    /// What these tallies say, with nothing pending and no floor weight.
    pub fn new(tallies: &[Tally], active: &[bool], channel: impl Into<Channel>) -> Self {
        let channel = channel.into();
        let arms = tallies.iter().map(|tally| Evidence::of(tally, channel.alphabet()));
        Self::of(arms.collect(), active, channel)
    }

    /// The same of what is known of each arm.
    pub fn of(arms: Vec<Evidence>, active: &[bool], channel: Channel) -> Self {
        Self {
            arms,
            active: active.to_vec(),
            channel,
            floor_weight: 0.0,
            ahead: 0.0,
            burning_in: Vec::new(),
            holdout_share: 0.0,
        }
    }

    /// The same with selections not yet reported, one number for each arm. Arms
    /// that the slice does not reach have none.
    #[must_use]
    pub fn with_pending(mut self, pending: &[f64]) -> Self {
        for (arm, pending) in self.arms.iter_mut().zip(pending) {
            *arm = arm.with_pending(*pending);
        }
        self
    }

    /// The same for a policy that will serve so many selections.
    #[must_use]
    pub fn with_ahead(mut self, ahead: f64) -> Self {
        self.ahead = count(ahead);
        self
    }

    /// The same with a least share for every arm in play.
    #[must_use]
    pub fn with_floor_weight(mut self, floor_weight: f64) -> Self {
        self.floor_weight = floor_weight;
        self
    }

    /// The same with arms whose traffic the learner does not decide about yet.
    #[must_use]
    pub fn with_burning_in(mut self, burning_in: Vec<bool>) -> Self {
        self.burning_in = burning_in;
        self
    }

    /// The same with a share of the traffic that is spread evenly.
    #[must_use]
    pub fn with_holdout_share(mut self, holdout_share: f64) -> Self {
        self.holdout_share = holdout_share;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_shared::alphabet::Symbol;

    #[test]
    fn levels_are_counted_one_by_one_as_in_a_tally() {
        let alphabet = Alphabet::new(5).unwrap();
        let said = [4, 4, 1, 0, 3, 2, 4, 4, 1];
        let mut evidence = Evidence::of_levels();
        let mut tally = Tally::EMPTY;
        for number in said {
            let symbol = Symbol::new(number).unwrap();
            evidence.add_level(alphabet.position(symbol));
            tally += Tally::of_symbol(symbol);
        }
        let summed = Evidence::of(&tally, alphabet);
        assert_eq!((evidence.ones(), evidence.zeros()), (summed.ones(), summed.zeros()));
        // The mean is 23/36, the sum of the squares 79/16 - 9 (23/36)^2.
        let variance = (79.0 / 16.0 - 9.0 * (23.0_f64 / 36.0).powi(2) + 0.6) / 12.0;
        for found in [evidence, summed] {
            assert!((found.variance().unwrap() - variance).abs() < 1e-12);
        }
    }

    #[test]
    fn narrow_levels_are_worth_more_bits_and_bits_are_worth_themselves() {
        let bits = Evidence::new(30.0, 10.0);
        assert_eq!(bits.as_bits(), bits);
        let three = Alphabet::new(3).unwrap();
        // All in the middle: the variance of a bit is .25, theirs .6/103.
        let narrow = Evidence::of_counts(&[0.0, 100.0, 0.0].into_iter(), three).as_bits();
        assert_eq!((narrow.mean(), narrow.variance()), (Some(0.5), None));
        assert!((narrow.reports() - 100.0 * 0.25 * 103.0 / 0.6).abs() < 1e-6);
        // At the ends only they are bits.
        let wide = Evidence::of_counts(&[50.0, 0.0, 50.0].into_iter(), three).as_bits();
        assert!((100.0..104.0).contains(&wide.reports()), "{wide:?}");
        // One end has been seen, and no certainty follows.
        let all = Evidence::of_counts(&[0.0, 0.0, 100.0].into_iter(), three).as_bits();
        assert!((100.0..200.0).contains(&all.reports()), "{all:?}");
    }
}
