//! The input of a learner: evidence of each arm, and limits on its weights.

use bandana_shared::alphabet::Alphabet;
use bandana_shared::channel::Channel;
use bandana_shared::sample::Sample;
use bandana_shared::tally::Tally;

/// The evidence on one arm: private bits by their value, and pending selections.
///
/// Counts are real numbers. Those of a discounted tally are fractional, and pending selections are
/// often estimated. A report of more than two symbols counts partly as a one and partly as a zero,
/// by the position of its symbol between the first and the last. Such evidence also has a variance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    ones: f64,
    zeros: f64,
    pending: f64,
    /// Sum of the squared deviations from the mean. `None` for bits, where it follows from the
    /// mean.
    squares: Option<f64>,
}

/// Prior variance, and the number of reports that the prior weighs. With a smaller weight, arms
/// whose first reports agree by chance would be taken for certain.
const VARIANCE_BEFORE: f64 = 0.2;
const REPORTS_BEFORE: f64 = 3.0;

/// The lowest mean that a lowered arm is taken to have.
const LOWEST: f64 = 1e-3;

impl Evidence {
    /// Evidence with these counts of ones and zeros. Counts that are not positive numbers become 0.
    pub fn new(ones: f64, zeros: f64) -> Self {
        Self { ones: count(ones), zeros: count(zeros), pending: 0.0, squares: None }
    }

    /// Empty evidence for more than two symbols.
    pub fn of_levels() -> Self {
        Self { squares: Some(0.0), ..Self::default() }
    }

    /// The evidence in a tally of these symbols.
    pub fn of(tally: &Tally, alphabet: Alphabet) -> Self {
        Self::of_counts(&tally.counts(alphabet).map(|count| count as f64), alphabet)
    }

    /// The evidence in counts of these symbols, which may be fractional.
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

    /// Replaces the number of pending selections.
    #[must_use]
    pub fn with_pending(self, pending: f64) -> Self {
        Self { pending: count(pending), ..self }
    }

    /// Adds a prior: this number of reports with this mean, and with the variance of the evidence.
    #[must_use]
    pub fn with_prior(self, mean: f64, reports: f64) -> Self {
        let reports = count(reports);
        let variance = self.variance().unwrap_or_default();
        Self {
            ones: self.ones + reports * mean,
            zeros: self.zeros + reports * (1.0 - mean),
            squares: self.squares.map(|squares| squares + reports * variance),
            ..self
        }
    }

    /// Evidence whose posterior has the same variance, and a mean that is lower by this much.
    #[must_use]
    pub(super) fn lowered(self, by: f64) -> Self {
        if self.squares.is_some() {
            // What deviates from the mean deviates as much.
            let ones = count(self.ones - by * self.reports());
            return Self { ones, zeros: self.reports() - ones, ..self };
        }
        // The posterior of bits is Beta(1 + ones, 1 + zeros).
        let all = self.reports() + 2.0;
        let mean = (self.ones + 1.0) / all;
        let lower = (mean - by).max(LOWEST);
        let weight = lower * (1.0 - lower) * (all + 1.0) / (mean * (1.0 - mean)) - 1.0;
        let (ones, zeros) = (lower * weight - 1.0, (1.0 - lower) * weight - 1.0);
        Self { ones: count(ones), zeros: count(zeros), ..self }
    }

    /// Number of bits that are 1.
    pub fn ones(self) -> f64 {
        self.ones
    }

    /// Number of bits that are 0.
    pub fn zeros(self) -> f64 {
        self.zeros
    }

    /// Number of reports.
    pub fn reports(self) -> f64 {
        self.ones + self.zeros
    }

    /// Number of pending selections.
    pub fn pending(self) -> f64 {
        self.pending
    }

    /// Number of selections: reports received or pending.
    pub fn selections(self) -> f64 {
        self.reports() + self.pending
    }

    /// Share of ones, or `None` without reports.
    pub fn mean(self) -> Option<f64> {
        (self.reports() > 0.0).then(|| self.ones / self.reports())
    }

    /// The variance of a report, estimated with an upward bias, or `None` for bits.
    pub fn variance(self) -> Option<f64> {
        let squares = self.squares? + VARIANCE_BEFORE * REPORTS_BEFORE;
        Some(squares / (self.reports() + REPORTS_BEFORE))
    }

    /// The variance of the reports; `None` for bits, and without reports.
    pub(super) fn empirical_variance(self) -> Option<f64> {
        self.squares.filter(|_| self.reports() > 0.0).map(|squares| squares / self.reports())
    }

    /// The equivalent number of bits, with the same mean and as much information about it. With n
    /// reports of mean m and variance v it is n m (1 - m)/v, and never fewer than n. It is for
    /// learners that use bits only.
    #[must_use]
    pub fn as_bits(self) -> Self {
        let Some(variance) = self.variance() else { return self };
        // Smoothed: a mean of exactly 0 or 1 is evidence of few reports only.
        let mean = (self.ones + 1.0) / (self.reports() + 2.0);
        let factor = (mean * (1.0 - mean) / variance).max(1.0);
        Self { ones: factor * self.ones, zeros: factor * self.zeros, squares: None, ..self }
    }

    /// Counts a report, and removes one pending selection if there is any.
    pub fn add_bit(&mut self, bit: bool) {
        *(if bit { &mut self.ones } else { &mut self.zeros }) += 1.0;
        self.pending = (self.pending - 1.0).max(0.0);
    }

    /// Counts a report of a symbol at this `position`, from 0 for the first to 1 for the last one.
    pub fn add_level(&mut self, position: f64) {
        let before = self.mean().unwrap_or(position);
        self.ones += position;
        self.zeros += 1.0 - position;
        let after = self.mean().unwrap_or(position);
        let squares = self.squares.unwrap_or(0.0) + (position - before) * (position - after);
        self.squares = Some(squares);
        self.pending = (self.pending - 1.0).max(0.0);
    }

    /// Counts a selection.
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

/// The complete input of a learner.
#[derive(Clone, Debug)]
pub struct LearnerInput {
    /// The evidence of each arm, retired ones included.
    pub arms: Vec<Evidence>,
    /// For each arm, whether it is in play.
    pub active: Vec<bool>,
    /// The channel of all reports.
    pub channel: Channel,
    /// Minimum share of the traffic for every arm in play.
    pub floor_weight: f64,
    /// Number of selections that the policy will serve.
    pub ahead: f64,
    /// For each arm, whether it is in its burn-in. If empty, no arm is.
    pub burning_in: Vec<bool>,
    /// Share of the traffic that is spread evenly over the arms in play.
    pub holdout_share: f64,
}

impl LearnerInput {
    /// The input for these tallies, without pending selections or floor weight.
    pub fn new(tallies: &[Tally], active: &[bool], channel: impl Into<Channel>) -> Self {
        let channel = channel.into();
        let arms = tallies.iter().map(|tally| Evidence::of(tally, channel.alphabet()));
        Self::of(arms.collect(), active, channel)
    }

    /// The input for this evidence, without floor weight.
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

    /// Sets the pending selections of each arm. Arms beyond the end of the slice have none.
    #[must_use]
    pub fn with_pending(mut self, pending: &[f64]) -> Self {
        for (arm, pending) in self.arms.iter_mut().zip(pending) {
            *arm = arm.with_pending(*pending);
        }
        self
    }

    /// Sets the number of selections that the policy will serve.
    #[must_use]
    pub fn with_ahead(mut self, ahead: f64) -> Self {
        self.ahead = count(ahead);
        self
    }

    /// Sets the minimum share for every arm in play.
    #[must_use]
    pub fn with_floor_weight(mut self, floor_weight: f64) -> Self {
        self.floor_weight = floor_weight;
        self
    }

    /// Sets the arms in their burn-in, whose traffic the learner does not decide about yet.
    #[must_use]
    pub fn with_burning_in(mut self, burning_in: Vec<bool>) -> Self {
        self.burning_in = burning_in;
        self
    }

    /// Sets the share of the traffic that is spread evenly.
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
        // All symbols in the middle: the variance of a bit is .25, theirs .6/103.
        let narrow = Evidence::of_counts(&[0.0, 100.0, 0.0].into_iter(), three).as_bits();
        assert_eq!((narrow.mean(), narrow.variance()), (Some(0.5), None));
        assert!((narrow.reports() - 100.0 * 0.25 * 103.0 / 0.6).abs() < 1e-6);
        // Symbols at the ends only are equivalent to bits.
        let wide = Evidence::of_counts(&[50.0, 0.0, 50.0].into_iter(), three).as_bits();
        assert!((100.0..104.0).contains(&wide.reports()), "{wide:?}");
        // Only one end occurred, which gives no certainty.
        let all = Evidence::of_counts(&[0.0, 0.0, 100.0].into_iter(), three).as_bits();
        assert!((100.0..200.0).contains(&all.reports()), "{all:?}");
    }
}
