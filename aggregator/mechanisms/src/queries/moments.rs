//! Means and variances from sums with noise.

use super::questions::NoisyNumber;

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
    pub fn with_decimals(self, decimals: u32) -> Self {
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

/// The number of rows, and the sum of the distances of their values from a number near the middle of their
/// range. Values are in units of the last decimal of their column.
#[derive(Clone, Copy, Debug)]
pub struct Moments<'a> {
    /// The number of rows.
    pub rows: &'a NoisyNumber,
    /// The sum of value - `about`.
    pub first: &'a NoisyNumber,
    /// The number from which distances are measured.
    pub about: i64,
    /// The lowest and the highest value.
    pub range: (i64, i64),
}

impl Moments<'_> {
    /// The mean. Its interval holds whenever the bounds of both sums do, and there is a row.
    ///
    /// ```
    /// use bandana_mechanisms::queries::{moments::Moments, questions::NoisyNumber};
    /// let number = |value, accuracy| NoisyNumber { label: String::new(), value, accuracy, decimals: 0 };
    /// // Ten rows, off by at most two, whose ages lie 30 above 50 in all, off by at most six.
    /// let (rows, first) = (number(10, 2), number(30, 6));
    /// let mean = Moments { rows: &rows, first: &first, about: 50, range: (18, 99) }.mean();
    /// assert_eq!((mean.value, mean.low, mean.high), (53.0, 52.0, 54.5));
    /// ```
    pub fn mean(self) -> Estimate {
        let about = self.about as f64;
        let Estimate { value, low, high } = self.distance();
        Estimate { value: value + about, low: low + about, high: high + about }
    }

    /// The mean square of the distances from the mean, given the sum of the squares of the distances from
    /// `about`. Its interval holds whenever the bounds of all three sums do, and there is a row.
    pub fn variance(self, second: &NoisyNumber) -> Estimate {
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

/// The whole number in the middle of a range, from which sums of distances have the least noise.
pub fn middle((lowest, highest): (i64, i64)) -> i64 {
    i64::midpoint(lowest, highest)
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
            let about = middle(range) + rng.random_range(-2..3);
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
            let moments = Moments { rows: &rows, first: &first, about, range };
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
