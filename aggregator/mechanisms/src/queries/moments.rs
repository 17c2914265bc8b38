//! Means and variances from sums with noise.

use rand::Rng;

use super::QueryError;
use super::price::Price;
use super::questions::{Answer, NoisyNumber};
use super::rows::Rows;
use super::selection::Selection;
use super::sums::{self, Term, admitted};

/// A number with an interval. The interval holds whenever those of the numbers that it is computed
/// from hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Estimate {
    /// Converts from units of the last decimal, with this number of decimals, to numbers.
    #[must_use]
    fn with_decimals(self, decimals: u32) -> Self {
        let units = libm::pow(10.0, f64::from(decimals));
        let number = |value: f64| value / units;
        Self { value: number(self.value), low: number(self.low), high: number(self.high) }
    }

    fn of(number: &NoisyNumber) -> Self {
        let (value, accuracy) = (number.value as f64, number.accuracy as f64);
        Self { value, low: value - accuracy, high: value + accuracy }
    }

    fn within(self, low: f64, high: f64) -> Self {
        let clamp = |value: f64| value.clamp(low, high);
        Self { value: clamp(self.value), low: clamp(self.low), high: clamp(self.high) }
    }

    /// The quotient by a number of rows, of which there is at least one.
    fn over(self, rows: Self) -> Self {
        let rows = rows.within(1.0, f64::MAX);
        let ends = [self.low, self.high].map(|end| [end / rows.low, end / rows.high]).concat();
        let low = ends.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { value: self.value / rows.value, low, high }
    }

    fn square(self) -> Self {
        let ends = [self.low * self.low, self.high * self.high];
        let low = if self.low <= 0.0 && 0.0 <= self.high { 0.0 } else { ends[0].min(ends[1]) };
        Self { value: self.value * self.value, low, high: ends[0].max(ends[1]) }
    }
}

/// The mean of a column over the rows that meet a predicate, with its variance, if that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// The column, and the rows that count.
    pub label: String,
    /// The mean.
    pub mean: Estimate,
    /// The mean square of the distances from the mean.
    pub variance: Option<Estimate>,
    /// The number of rows that count.
    pub rows: Estimate,
}

/// Sums of distances from the middle of the range that the predicate leaves of the column: these have the
/// least noise. It is public, as columns and predicates are.
pub(super) fn answer<R: Rng + ?Sized>(
    rows: &Rows,
    (name, predicate, variance): (&str, &str, bool),
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Moments, QueryError> {
    let (place, column) = rows.schema().find(name)?;
    let ranges = admitted(place, column, &Selection::of_rows(predicate, rows.schema())?);
    let ends =
        ranges.iter().map(|(low, _)| *low).min().zip(ranges.iter().map(|(_, high)| *high).max());
    // Without a range no row counts, or there are no numbers, which is refused.
    let range = ends.or(column.range()).unwrap_or_default();
    let about = i64::midpoint(range.0, range.1);
    let term = |squared| Term { column: name.to_owned(), squared, about };
    let terms: Vec<Term> =
        [false, true].map(term).into_iter().take(1 + usize::from(variance)).collect();
    let answer = sums::answer(rows, (&terms, predicate, true), price, beta, rng)?;
    let Answer::Numbers(numbers) = answer else { return Err(QueryError::NoQueries) };
    let [count, first, more @ ..] = &numbers[..] else { return Err(QueryError::NoQueries) };
    let sums = MomentSums { rows: count, first, about, range };
    let decimals = column.decimals();
    Ok(Moments {
        label: first.label.replacen(&format!(" - {about}"), "", 1),
        mean: sums.mean().with_decimals(decimals),
        variance: more.first().map(|second| sums.variance(second).with_decimals(2 * decimals)),
        rows: Estimate::of(count).within(0.0, f64::MAX),
    })
}

/// The number of rows, and the sum of the distances of their values from a number near the middle of their
/// range. Values are in units of the last decimal of their column.
#[derive(Clone, Copy, Debug)]
struct MomentSums<'a> {
    /// The number of rows.
    rows: &'a NoisyNumber,
    /// The sum of value - `about`.
    first: &'a NoisyNumber,
    /// The number from which distances are measured.
    about: i64,
    /// The lowest and the highest value.
    range: (i64, i64),
}

impl MomentSums<'_> {
    /// The mean. Its interval holds whenever the bounds of both sums do, and there is a row.
    fn mean(self) -> Estimate {
        let about = self.about as f64;
        let Estimate { value, low, high } = self.distance();
        Estimate { value: value + about, low: low + about, high: high + about }
    }

    /// The mean square of the distances from the mean, given the sum of the squares of the distances from
    /// `about`. Its interval holds whenever the bounds of all three sums do, and there is a row.
    fn variance(self, second: &NoisyNumber) -> Estimate {
        let squares = Estimate::of(second).within(0.0, f64::MAX).over(Estimate::of(self.rows));
        let mean = self.distance().square();
        let variance = Estimate {
            value: squares.value - mean.value,
            low: squares.low - mean.high,
            high: squares.high - mean.low,
        };
        // Half of the rows at either end.
        let half = (self.range.1 as f64 - self.range.0 as f64) / 2.0;
        variance.within(0.0, half * half)
    }

    /// The mean less `about`.
    fn distance(self) -> Estimate {
        let about = self.about as f64;
        let (low, high) = (self.range.0 as f64 - about, self.range.1 as f64 - about);
        Estimate::of(self.first).over(Estimate::of(self.rows)).within(low, high)
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    #[test]
    fn intervals_hold_whenever_the_bounds_of_their_sums_do() {
        let mut rng = ChaCha20Rng::seed_from_u64(9);
        for _ in 0..20_000 {
            let range = (rng.random_range(-5..5), rng.random_range(5..30));
            let about = i64::midpoint(range.0, range.1) + rng.random_range(-2..3);
            let values: Vec<i64> =
                (0..rng.random_range(1..40)).map(|_| rng.random_range(range.0..=range.1)).collect();
            let mut noisy = |exact: i64| {
                let accuracy = rng.random_range(0..30_u64);
                let reach = i64::try_from(accuracy).unwrap();
                let value = exact + rng.random_range(-reach..=reach);
                NoisyNumber { label: String::new(), value, accuracy, decimals: 0 }
            };
            let rows = noisy(i64::try_from(values.len()).unwrap());
            let first = noisy(values.iter().map(|value| value - about).sum());
            let second = noisy(values.iter().map(|value| (value - about).pow(2)).sum());
            let moments = MomentSums { rows: &rows, first: &first, about, range };
            let n = values.len() as f64;
            let mean = values.iter().sum::<i64>() as f64 / n;
            let variance = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / n;
            for (exact, found) in [(mean, moments.mean()), (variance, moments.variance(&second))] {
                let Estimate { value, low, high } = found;
                assert!(
                    low <= exact + 1e-9 && exact <= high + 1e-9,
                    "{exact} {found:?} {moments:?}"
                );
                assert!(low <= value && value <= high, "{found:?}");
            }
        }
    }
}
