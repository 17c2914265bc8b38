//! A choice of one value of a column, and an interval of a quantile.
//!
//! A value v has the quantile of rank t when at least t rows are at or below it, and at most t - 1 rows
//! below it. The utility of v is how many rows are missing to that, negated. A choice has a utility of at
//! least -r, except with probability β'. So a choice for rank t - r has at most t - 1 rows below it: it is no
//! greater than the quantile. A choice for rank t + r has at least t rows at or below it: it is no less. The
//! two are the ends of an interval that has the quantile.

use rand::Rng;

use super::QueryError;
use super::exponential::ExponentialMechanism;
use super::noisy_max::NoisyMax;
use super::price::{LossShape, Price, PureLoss, of_each};
use super::questions::{Answer, signed};
use super::rows::Rows;
use super::selection::Selection;
use super::universe::VALUES_MAX;

/// The criterion of a choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// The most common value.
    MostCommon,
    /// The quantile of this rank, 0 to 1: the least value that this share of the rows is at or below.
    Quantile(f64),
    /// The same, and an interval that has the quantile. These are three choices: each has a third of the
    /// price.
    IntervalOfQuantile(f64),
}

/// The mechanism of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chooser {
    /// The exponential mechanism, with a weight for each value or a uniform base measure.
    Exponential(Option<Vec<u32>>),
    /// Report noisy max.
    NoisyMax,
}

impl Chooser {
    /// The shape of its loss.
    pub(super) fn shape(&self) -> LossShape {
        match self {
            Self::Exponential(_) => ExponentialMechanism::LOSS,
            Self::NoisyMax => NoisyMax::LOSS,
        }
    }

    /// The same among some of so many values only.
    fn among(&self, candidates: &[usize], values: usize) -> Result<Self, QueryError> {
        Ok(match self {
            Self::Exponential(Some(weights)) if weights.len() != values => {
                return Err(QueryError::Weights { candidates: values, weights: weights.len() });
            }
            Self::Exponential(Some(weights)) => {
                let some = candidates.iter().filter_map(|&value| weights.get(value).copied());
                Self::Exponential(Some(some.collect()))
            }
            other => other.clone(),
        })
    }

    /// The place of the chosen utility. A changed row moves each by at most `unit`.
    fn choose<R: Rng + ?Sized>(
        &self,
        (utilities, unit): (&[i64], u64),
        loss: PureLoss,
        rng: &mut R,
    ) -> Result<usize, QueryError> {
        match self {
            Self::Exponential(weights) => {
                ExponentialMechanism::new(unit, loss)?.choose(utilities, weights.as_deref(), rng)
            }
            Self::NoisyMax => NoisyMax::new(unit, loss)?.choose(utilities, rng),
        }
    }

    /// The bound on how far the chosen utility is below the greatest, with probability 1 - `beta`.
    fn shortfall(
        &self,
        (candidates, unit): (usize, u64),
        loss: PureLoss,
        beta: f64,
    ) -> Result<u64, QueryError> {
        let candidates = candidates as u64;
        match self {
            Self::Exponential(None) => {
                ExponentialMechanism::new(unit, loss)?.shortfall(candidates, beta)
            }
            // The bound is for the worst case: the best value has the least weight.
            Self::Exponential(Some(weights)) => {
                let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
                let least = weights.iter().filter(|&&weight| weight > 0).min();
                let least = least.copied().map_or(0.0, f64::from);
                let mechanism = ExponentialMechanism::new(unit, loss)?;
                mechanism.shortfall_of_share(least / total.max(1) as f64, beta)
            }
            Self::NoisyMax => NoisyMax::new(unit, loss)?.shortfall(candidates, beta),
        }
    }
}

pub(super) fn answer<R: Rng + ?Sized>(
    rows: &Rows,
    (name, predicate): (&str, &str),
    (aim, chooser): (Aim, &Chooser),
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Answer, QueryError> {
    let (place, column) = rows.schema().find(name)?;
    let (values, most) = (column.values(), VALUES_MAX);
    if values > most {
        return Err(QueryError::TooManyValues { column: name.to_owned(), values, most });
    }
    let selection = Selection::of_rows(predicate, rows.schema())?;
    let (choices, share) = match aim {
        Aim::MostCommon => (1, None),
        Aim::Quantile(share) => (1, Some(share)),
        Aim::IntervalOfQuantile(share) => (3, Some(share)),
    };
    if let Some(share) = share {
        if column.range().is_none() {
            return Err(QueryError::NotNumbers { column: name.to_owned() });
        }
        if !(0.0..=1.0).contains(&share) {
            return Err(QueryError::Quantile(share));
        }
    }
    if choices > 1 && matches!(chooser, Chooser::Exponential(Some(_))) {
        return Err(QueryError::WeightsOfInterval);
    }
    if selection.is_none() {
        return Err(QueryError::Insensitive);
    }
    let loss = price.part(choices)?.epsilon(chooser.shape())?;
    let beta = of_each(beta, choices.into())?;
    // Only what the condition on the column leaves is a candidate. It is public.
    let candidates: Vec<usize> = (0..values)
        .filter(|&value| u32::try_from(value).is_ok_and(|code| selection.holds_of(place, code)))
        .collect();
    if candidates.len() == 1 {
        return Err(QueryError::Insensitive);
    }
    let chooser = &chooser.among(&candidates, values)?;
    let value = |place: usize| {
        let code = candidates.get(place).copied().unwrap_or(usize::MAX);
        column.value(u32::try_from(code).unwrap_or(u32::MAX))
    };
    let all = rows.frequencies(place, &selection);
    let frequencies: Vec<i64> =
        candidates.iter().filter_map(|&value| all.get(value).copied()).collect();
    let goal = share.map(|share| {
        if selection.is_all() {
            Goal::rank(wanted_rank(rows.count(), share))
        } else {
            Goal::share(&frequencies, share)
        }
    });
    let interval = match goal {
        Some(goal) if choices > 1 => {
            let (low, high) = ends(&frequencies, goal, (chooser, loss, beta), rng)?;
            Some((value(low), value(high)))
        }
        _ => None,
    };
    let (utilities, unit) = match goal {
        Some(goal) => (goal.utilities(&frequencies), goal.unit),
        // A changed row changes a frequency by at most 1.
        None => (frequencies, 1),
    };
    let chosen = chooser.choose((&utilities, unit), loss, rng)?;
    let shortfall = chooser.shortfall((utilities.len(), unit), loss, beta)?.div_ceil(unit);
    // No value is missed by more than all rows, whose number is public.
    let shortfall = shortfall.min(rows.count());
    Ok(Answer::Value { value: value(chosen), shortfall, interval })
}

/// The ends of an interval that has the value of a goal, as the module says.
fn ends<R: Rng + ?Sized>(
    frequencies: &[i64],
    goal: Goal,
    (chooser, loss, beta): (&Chooser, PureLoss, f64),
    rng: &mut R,
) -> Result<(usize, usize), QueryError> {
    let (unit, last) = (goal.unit, frequencies.len().saturating_sub(1));
    let shift = signed(chooser.shortfall((frequencies.len() + 1, unit), loss, beta)?);
    let strict = Goal { most: goal.least - 1, ..goal };
    let below = strict.moved(-shift).utilities_from_below(frequencies);
    let above = goal.moved(shift).utilities_to_above(frequencies);
    let low = chooser.choose((&below, unit), loss, rng)?.saturating_sub(1);
    let high = chooser.choose((&above, unit), loss, rng)?.min(last);
    // Only ends that miss can cross.
    Ok((low.min(high), low.max(high)))
}

/// What a value fulfils whose rank is wanted, in parts of a row.
#[derive(Clone, Copy, Debug)]
struct Goal {
    /// The parts of a row, which a changed row moves a utility by at most.
    unit: u64,
    /// The least number of rows at or below the value.
    least: i64,
    /// The most rows below it.
    most: i64,
}

/// The parts that a row has in [`Goal::share`], so that shares have six decimals.
const SHARE_PARTS: i64 = 1_000_000;

impl Goal {
    /// The value of rank t among rows whose number is public. A changed row changes the number of rows
    /// below a value, and at or below it, by at most 1.
    fn rank(t: i64) -> Self {
        Self { unit: 1, least: t, most: t - 1 }
    }

    /// The quantile of a share s = a/b of rows whose number n is not public. A row adds a or a - b to s n -
    /// (rows at or below a value), -a or b - a to (rows below it) - s n, or, if it does not count, 0 to both:
    /// so a changed row moves either by at most b parts, one row.
    #[expect(clippy::cast_possible_truncation, reason = "a share of at most 1")]
    fn share(frequencies: &[i64], share: f64) -> Self {
        let rows: i64 = frequencies.iter().sum();
        let wanted = (share * SHARE_PARTS as f64).round() as i64 * rows;
        Self { unit: SHARE_PARTS.unsigned_abs(), least: wanted, most: wanted }
    }

    fn moved(self, by: i64) -> Self {
        Self { least: self.least.saturating_add(by), most: self.most.saturating_add(by), ..self }
    }

    /// The utility of each value.
    fn utilities(self, frequencies: &[i64]) -> Vec<i64> {
        let unit = signed(self.unit);
        let mut below = 0;
        let utility = |&here: &i64| {
            let before = below * unit;
            below += here;
            -(self.least - below * unit).max(before - self.most).max(0)
        };
        frequencies.iter().map(utility).collect()
    }

    /// The same, after that of a place below all values, where too few rows are the only fault.
    fn utilities_from_below(self, frequencies: &[i64]) -> Vec<i64> {
        let mut utilities = self.utilities(frequencies);
        utilities.insert(0, -self.least.max(0));
        utilities
    }

    /// The same, before that of a place above all values, where too many rows are the only fault.
    fn utilities_to_above(self, frequencies: &[i64]) -> Vec<i64> {
        let rows = frequencies.iter().sum::<i64>() * signed(self.unit);
        let mut utilities = self.utilities(frequencies);
        utilities.push(-(rows - self.most).max(0));
        utilities
    }
}

/// The rank of a quantile, 1 to n.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number of rows"
)]
fn wanted_rank(rows: u64, share: f64) -> i64 {
    signed(((rows as f64 * share).ceil() as u64).clamp(1, rows.max(1)))
}

#[cfg(test)]
mod tests {
    use crate::noise::secure_generator;

    use super::*;

    #[test]
    fn quantiles_are_where_their_rank_is() {
        // Values 0 1 1 3 3 3.
        let frequencies = [1, 2, 0, 3];
        let best = |t| {
            let utilities = Goal::rank(t).utilities(&frequencies);
            utilities.iter().position(|&utility| utility == 0).unwrap()
        };
        assert_eq!([1, 2, 3, 4, 6].map(best), [0, 1, 1, 3, 3]);
        assert_eq!(Goal::rank(3).utilities(&frequencies), [-2, 0, -1, -1]);
        assert_eq!((wanted_rank(6, 0.5), wanted_rank(6, 0.0), wanted_rank(6, 1.0)), (3, 1, 6));
    }

    #[test]
    fn a_changed_row_moves_each_utility_by_one_row_at_most() {
        // Of three rows, each has one of three values, or does not count.
        let rows = |number: usize| [number % 4, number / 4 % 4, number / 16];
        let frequencies_of = |rows: &[usize]| {
            let mut frequencies = [0; 3];
            rows.iter().filter(|row| **row < 3).for_each(|row| frequencies[*row] += 1);
            frequencies
        };
        for share in [0.0, 0.1, 0.5, 0.75, 1.0] {
            let utilities = |rows: &[usize], by: i64| {
                let frequencies = frequencies_of(rows);
                let goal = Goal::share(&frequencies, share);
                let strict = Goal { most: goal.least - 1, ..goal };
                [
                    goal.utilities(&frequencies),
                    strict.moved(-by).utilities_from_below(&frequencies),
                    goal.moved(by).utilities_to_above(&frequencies),
                ]
                .concat()
            };
            for by in [0, 1, 400_000, 1_000_000, 2_300_000] {
                let mut most = 0;
                for one in (0..64).map(rows) {
                    for other in (0..64).map(rows) {
                        let pairs = one.iter().zip(&other);
                        if pairs.filter(|(one, other)| one != other).count() == 1 {
                            let moved = utilities(&one, by).into_iter().zip(utilities(&other, by));
                            most = most.max(moved.map(|(a, b)| a.abs_diff(b)).max().unwrap());
                        }
                    }
                }
                assert!((500_000..=1_000_000).contains(&most), "{share}: {most}");
            }
        }
        // As a rank of all rows: 0 1 1 3 3 3 has its third of six at 1.
        let frequencies = [1, 2, 0, 3];
        let utilities = Goal::share(&frequencies, 0.5).utilities(&frequencies);
        assert_eq!(utilities, [-2_000_000, 0, 0, 0]);
        let utilities = Goal::share(&frequencies, 0.4).utilities(&frequencies);
        assert_eq!(utilities, [-1_400_000, 0, -600_000, -600_000]);
    }

    /// Every pair of ends that the bound allows has the quantile between them, by brute force.
    #[test]
    fn whatever_is_within_the_bound_has_the_quantile_between_its_ends() {
        for number in 0..4_i64.pow(4) {
            let frequencies: Vec<i64> = (0..4).map(|place| number / 4_i64.pow(place) % 4).collect();
            let rows: i64 = frequencies.iter().sum();
            let upto = |value: usize| frequencies[..=value].iter().sum::<i64>();
            let shares = [0.0, 0.2, 0.5, 1.0].map(|share| Goal::share(&frequencies, share));
            let ranks = (1..=rows).map(Goal::rank);
            for goal in shares.into_iter().chain(ranks).filter(|_| rows > 0) {
                let unit = signed(goal.unit);
                let quantile = (0..4).position(|value| upto(value) * unit >= goal.least).unwrap();
                let strict = Goal { most: goal.least - 1, ..goal };
                for shortfall in [0, 1, unit / 2, unit, 2 * unit, 9 * unit] {
                    let below = strict.moved(-shortfall).utilities_from_below(&frequencies);
                    let above = goal.moved(shortfall).utilities_to_above(&frequencies);
                    for (utilities, is_low) in [(below, true), (above, false)] {
                        assert_eq!(utilities.iter().max(), Some(&0), "{frequencies:?} {goal:?}");
                        for (place, utility) in utilities.into_iter().enumerate() {
                            let value = if is_low { place.saturating_sub(1) } else { place };
                            let holds = if is_low { value <= quantile } else { quantile <= value };
                            assert!(
                                holds || utility < -shortfall,
                                "{frequencies:?} {goal:?} {place}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn intervals_of_quantiles_hold_at_their_level_and_are_not_wide() {
        let frequencies: Vec<i64> = (0..100).map(|value| 20 + value % 7).collect();
        let upto = |value: usize| frequencies[..=value].iter().sum::<i64>();
        let rows = upto(99);
        let mut rng = secure_generator().unwrap();
        for chooser in [Chooser::Exponential(None), Chooser::NoisyMax] {
            for share in [0.0, 0.01, 0.5, 1.0] {
                let goal = Goal::share(&frequencies, share);
                let quantile =
                    (0..100).position(|value| upto(value) * SHARE_PARTS >= goal.least).unwrap();
                let (mut missed, mut width) = (0, 0);
                for _ in 0..300 {
                    let how = (&chooser, PureLoss::new(0.2).unwrap(), 0.05);
                    let (low, high) = ends(&frequencies, goal, how, &mut rng).unwrap();
                    missed += usize::from(quantile < low || high < quantile);
                    width += high - low;
                }
                // Each end misses with a probability of at most .05: 30 are expected at most, and 62 or
                // more have a probability below 10^-7.
                assert!(missed < 62, "{share}: {missed} of 300, {rows} rows");
                assert!(width / 300 <= 14, "{share}: {width}");
            }
        }
    }
}
