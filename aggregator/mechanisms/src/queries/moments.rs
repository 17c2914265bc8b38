//! Means and variances, from the number of rows, the sum of their distances from the middle of a range, and the
//! sum of the squares of these.
//!
//! Distances d are in halves of a unit, so that they lie in -W..W, for a range of width W. A changed row moves
//! the three numbers together, and they share its loss. A row that stays moves d by at most 2 W, d² by at most
//! W², and not the number of rows. One that begins or ceases to count moves them by at most W, W² and 1. With
//! shares f, q and c of the loss, for the ranges 2 W, W² and 1, all is paid if
//!
//! | loss | a row stays, from u W to v W | one begins to count |
//! |---|---|---|
//! | ε | f abs(u - v)/2 + q abs(u² - v²) <= 1 | f/2 + q + c <= 1 |
//! | ρ | f (u - v)²/4 + q (u² - v²)² <= 1 | f/4 + q + c <= 1 |
//!
//! The first are largest at u = 1. With f = q = s they are s (1 - v)(3/2 + v), which is at most 25/16 s, at v = -1/4;
//! and s (1 - v)² (1/4 + (1 + v)²), which is below 4/3 s. Without squares, they are at most f. A test tries all
//! pairs of 801 distances.
//!
//! A wide sum is rounded down to steps, of which a row moves it by N at most. Then a change that moves it by a
//! part x of its range moves it by less than x N + 1 steps, a part of x + 1/N. As x <= 1 and f, q <= 1, either loss
//! grows by 3/N at most for each of two sums, by 6/N in all. The shares are that much smaller.

use rand::Rng;

use super::QueryError;
use super::price::{Price, of_each};
use super::rows::Rows;
use super::selection::Selection;
use super::sums::{SUM_MAX, SumNoise, admitted, described};
use crate::noise::Ratio;

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
    fn map(self, each: impl Fn(f64) -> f64) -> Self {
        Self { value: each(self.value), low: each(self.low), high: each(self.high) }
    }

    fn within(self, low: f64, high: f64) -> Self {
        self.map(|value| value.clamp(low, high))
    }

    /// The same with ends that are further away.
    fn widened(self, by: f64) -> Self {
        Self { low: self.low - by, high: self.high + by, ..self }
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

/// The range of values that the rows can have which count: public, as columns and predicates are.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: i64,
    high: i64,
}

impl Range {
    fn width(self) -> u64 {
        self.high.abs_diff(self.low)
    }

    /// Twice its middle.
    fn ends(self) -> i128 {
        i128::from(self.low) + i128::from(self.high)
    }
}

/// The parts of the price of the sum of distances, of that of squares, and of the number of rows, inverted.
fn shares(price: Price, (variance, all): (bool, bool)) -> Result<[Ratio; 3], QueryError> {
    let (f, q, c) = match (price, variance, all) {
        (_, false, true) => ((1, 1), (1, 1), (1, 1)),
        (Price::Pure(_), false, false) => ((1, 1), (1, 1), (2, 1)),
        (Price::Pure(_), true, true) => ((25, 16), (25, 16), (1, 1)),
        (Price::Pure(_), true, false) => ((5, 2), (5, 2), (5, 2)),
        (Price::Concentrated(_), false, false) => ((1, 1), (1, 1), (4, 3)),
        (Price::Concentrated(_), true, true) => ((4, 3), (4, 3), (1, 1)),
        (Price::Concentrated(_), true, false) => ((9, 4), (9, 4), (9, 4)),
    };
    let ratio = |(n, d)| Ratio::new(n, d);
    Ok([ratio(f)?, ratio(q)?, ratio(c)?])
}

pub(super) fn answer<R: Rng + ?Sized>(
    rows: &Rows,
    (name, predicate, variance): (&str, &str, bool),
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Moments, QueryError> {
    let (place, column) = rows.schema().find(name)?;
    let selection = Selection::of_rows(predicate, rows.schema())?;
    let (first, last) =
        column.range().ok_or_else(|| QueryError::NotNumbers { column: name.to_owned() })?;
    let ranges = admitted(place, column, &selection);
    let range = Range {
        low: ranges.iter().map(|(low, _)| *low).min().unwrap_or(first),
        high: ranges.iter().map(|(_, high)| *high).max().unwrap_or(last),
    };
    let (all, width) = (selection.is_all(), range.width());
    if selection.is_none() || all && width == 0 {
        return Err(QueryError::Insensitive);
    }
    let too_large = || QueryError::SumTooLarge { column: name.to_owned(), rows: rows.count() };
    let power = if variance { 2 } else { 1 };
    let largest =
        u128::from(width).checked_pow(power).ok_or_else(too_large)?.max(u128::from(width));
    if largest.saturating_mul(2 * u128::from(rows.count().max(1))) > SUM_MAX {
        return Err(too_large());
    }
    let squared = u64::try_from(u128::from(width).pow(power)).map_err(|_| too_large())?;
    // A range of one value has no sums, and nothing but the rows is asked for.
    let widths = [2 * width, if variance { squared } else { 0 }, u64::from(!all)];
    let noises = noises(widths, price, shares(price, (variance, all))?)?;
    let noisy = noises.iter().flatten().count() as u64;
    let each = of_each(beta, noisy)?;
    let exact = sums(rows.moments(place, &selection), (first, column.step()), range);
    let [sum, squares, count] = std::array::from_fn(|i| {
        let (value, accuracy) = noises[i]
            .map_or((exact[i], 0), |noise| (noise.release(exact[i], rng), noise.quantile(each)));
        let (value, accuracy) = (value as f64, accuracy as f64);
        // Numbers beyond 2^53 are rounded.
        let rounded = Estimate { value, low: value - accuracy, high: value + accuracy };
        if accuracy == 0.0 { rounded } else { rounded.widened((value.abs() + accuracy) * ROUNDING) }
    });
    let found = Distances { sum, squares, rows: count, range };
    let decimals = libm::pow(10.0, f64::from(column.decimals()));
    Ok(Moments {
        label: described(name, column, predicate),
        mean: found.mean(decimals),
        variance: variance.then(|| found.variance(decimals)),
        rows: count.within(0.0, f64::MAX),
    })
}

/// The noise of each sum, by the most that a row moves it; `None`: it has none.
fn noises(
    widths: [u64; 3],
    price: Price,
    shares: [Ratio; 3],
) -> Result<[Option<SumNoise>; 3], QueryError> {
    let of = |parts: [Ratio; 3]| -> Result<[Option<SumNoise>; 3], QueryError> {
        let noise = |i: usize| {
            (widths[i] > 0).then(|| SumNoise::new(widths[i], parts[i], price)).transpose()
        };
        Ok([noise(0)?, noise(1)?, noise(2)?])
    };
    let fewest = |noises: &[Option<SumNoise>; 3]| {
        noises.iter().flatten().filter_map(SumNoise::rounded).min()
    };
    let noises = of(shares)?;
    if fewest(&noises).is_none() {
        return Ok(noises);
    }
    let [f, q, c] = shares;
    let smaller = Ratio::new(STEPS_LEAST + 6, STEPS_LEAST)?;
    let noises = of([f.times(smaller)?, q.times(smaller)?, c.times(smaller)?])?;
    if fewest(&noises).is_none_or(|steps| steps >= STEPS_LEAST) {
        return Ok(noises);
    }
    // So few steps that each sum has an equal part, whatever rows move together.
    let noisy = widths.iter().filter(|width| **width > 0).count() as u64;
    of([Ratio::whole(noisy)?; 3])
}

/// The steps that a row must be able to move each rounded sum by, so that the sums share a loss.
const STEPS_LEAST: u64 = 1 << 10;

/// The sums of distances and of their squares, and the number of rows, from the number, the sum of codes and the
/// sum of the squares of codes. A code c is the number l + s c, for the lowest number l and the step s.
///
/// The sums are within 2^62, as was checked, so what wraps around on the way to them does no harm.
fn sums([rows, codes, squares]: [i128; 3], (lowest, step): (i64, i64), range: Range) -> [i64; 3] {
    let (at, by) = (2 * i128::from(lowest) - range.ends(), 2 * i128::from(step));
    let first = at.wrapping_mul(rows).wrapping_add(by.wrapping_mul(codes));
    let second = at.wrapping_mul(at).wrapping_mul(rows);
    let mixed = at.wrapping_mul(by).wrapping_mul(2).wrapping_mul(codes);
    let second = second.wrapping_add(mixed).wrapping_add(by.wrapping_mul(by).wrapping_mul(squares));
    [first, second, rows].map(|sum| i64::try_from(sum).unwrap_or(i64::MAX))
}

/// More than floating point rounds in a few operations, as a part of the largest number in them.
const ROUNDING: f64 = 1.0 / (1_u64 << 50) as f64;

/// What is known of the distances: their sum, that of their squares, and the number of rows.
#[derive(Clone, Copy, Debug)]
struct Distances {
    sum: Estimate,
    squares: Estimate,
    rows: Estimate,
    range: Range,
}

impl Distances {
    /// The mean, where units have this number in 1. Its interval holds whenever those of the sums do, and there
    /// is a row.
    fn mean(self, units: f64) -> Estimate {
        let Range { low, high } = self.range;
        let middle = self.range.ends() as f64;
        let mean = self.distance().map(|distance| f64::midpoint(middle, distance) / units);
        let largest = (middle.abs() + self.range.width() as f64) / units;
        mean.widened(largest * ROUNDING)
            .within(outwards(low, false) / units, outwards(high, true) / units)
    }

    /// The mean square of the distances from the mean, in the same way.
    fn variance(self, units: f64) -> Estimate {
        let squares = self.squares.within(0.0, f64::MAX).over(self.rows);
        let mean = self.distance().square();
        let variance = Estimate {
            value: squares.value - mean.value,
            low: squares.low - mean.high,
            high: squares.high - mean.low,
        };
        // Half of the rows at either end.
        let most = (self.range.width() as f64).powi(2);
        let variance = variance.widened(most * ROUNDING).within(0.0, most);
        variance.map(|variance| variance / 4.0 / units / units)
    }

    /// The mean of the distances.
    fn distance(self) -> Estimate {
        let most = self.range.width() as f64;
        self.sum.over(self.rows).within(-most, most)
    }
}

/// The nearest float on one side of a whole number.
fn outwards(number: i64, up: bool) -> f64 {
    let near = number as f64;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 2^63")]
    let exact = near as i128;
    match exact.cmp(&i128::from(number)) {
        std::cmp::Ordering::Less if up => near.next_up(),
        std::cmp::Ordering::Greater if !up => near.next_down(),
        _ => near,
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;
    use crate::queries::price::{ConcentratedLoss, PureLoss};

    #[test]
    fn the_shares_pay_for_every_change_of_a_row_and_hardly_more() {
        let pure = Price::Pure(PureLoss::new(1.0).unwrap());
        let concentrated = Price::Concentrated(ConcentratedLoss::new(1.0).unwrap());
        for (price, variance, all) in
            [(pure, false), (pure, true), (concentrated, false), (concentrated, true)]
                .into_iter()
                .flat_map(|(price, variance)| [(price, variance, false), (price, variance, true)])
        {
            let parts = shares(price, (variance, all)).unwrap().map(|part| 1.0 / part.to_f64());
            let w = 400_i64;
            // The distance and its square of a row that counts; nothing of one that does not.
            let moved = |row: Option<i64>| row.map_or([0, 0, 0], |d| [d, d * d, 1]);
            let widths = [2 * w, w * w, 1].map(i64::unsigned_abs);
            let absent = if all { vec![] } else { vec![None] };
            let every: Vec<_> = absent.into_iter().chain((-w..=w).map(Some)).collect();
            // Sums that are rounded to steps of so many, at worst.
            for step in [1, 8, 100] {
                let steps =
                    |number: u64, i: usize| if i == 2 { number } else { number.div_ceil(step) };
                let mut most: f64 = 0.0;
                for one in &every {
                    for other in &every {
                        let loss = |i: usize| {
                            let is_asked = i == 0 || i == 1 && variance || i == 2 && !all;
                            let by = steps(moved(*one)[i].abs_diff(moved(*other)[i]), i) as f64;
                            let by = by / steps(widths[i], i) as f64;
                            let by = if matches!(price, Price::Pure(_)) { by } else { by * by };
                            if is_asked { parts[i] * by } else { 0.0 }
                        };
                        most = most.max(loss(0) + loss(1) + loss(2));
                    }
                }
                let rounded = if step == 1 { 0.0 } else { 6.0 / steps(widths[0], 0) as f64 };
                let bounds = 0.96..=1.0 + rounded + 1e-12;
                assert!(bounds.contains(&most), "{most} {variance} {all} {step} {price:?}");
            }
        }
    }

    #[test]
    fn a_wide_mean_has_hardly_more_noise_for_its_range_than_a_narrow_one() {
        let price = Price::Concentrated(ConcentratedLoss::new(0.5).unwrap());
        let part = |width: u64| {
            let shares = shares(price, (false, false)).unwrap();
            let noises = noises([2 * width, 0, 1], price, shares).unwrap();
            assert_eq!(noises[0].unwrap().rounded().is_some(), width > 1 << 40);
            let [sum, rows] = [0, 2].map(|i| noises[i].unwrap().quantile(1e-6) as f64);
            [sum / width as f64, rows]
        };
        let (narrow, wide) = (part(1 << 20), part(1 << 50));
        assert!(wide[0] < narrow[0] * 1.01, "{wide:?} {narrow:?}");
        assert!(wide[1] <= narrow[1] + 1.0, "{wide:?} {narrow:?}");
    }

    #[test]
    fn intervals_hold_whenever_those_of_their_sums_do() {
        let mut rng = ChaCha20Rng::seed_from_u64(9);
        for large in [0, 0, 0, 1 << 53, i64::MAX - 40, i64::MIN + 40] {
            for _ in 0..5_000 {
                let range = Range {
                    low: rng.random_range(-5..5) + large,
                    high: rng.random_range(5..30) + large,
                };
                let values: Vec<i64> = (0..rng.random_range(1..40))
                    .map(|_| rng.random_range(range.low..=range.high))
                    .collect();
                let codes =
                    |power| values.iter().map(|v| i128::from(v - range.low).pow(power)).sum();
                let n = values.len() as f64;
                let exact = sums([codes(0), codes(1), codes(2)], (range.low, 1), range);
                let distance = |value: &i64| 2 * i128::from(*value) - range.ends();
                let of_power = |power| values.iter().map(|v| distance(v).pow(power)).sum::<i128>();
                assert_eq!(exact.map(i128::from), [of_power(1), of_power(2), of_power(0)]);
                let [sum, squares, rows] = exact.map(|exact| {
                    let accuracy = f64::from(rng.random_range(0..30_u32));
                    let value = exact as f64 + rng.random_range(-accuracy..=accuracy).round();
                    Estimate { value, low: value - accuracy, high: value + accuracy }
                });
                let found = Distances { sum, squares, rows, range };
                let mean = of_power(1) as f64 / n / 2.0;
                let variance = of_power(2) as f64 / n / 4.0 - mean * mean;
                let Estimate { value, low, high } = found.variance(1.0);
                assert!(low - 1e-9 <= variance && variance <= high + 1e-9, "{variance} {found:?}");
                assert!(low <= value && value <= high, "{found:?}");
                // The ends of the mean, exactly, as the distances beyond 2^53 are.
                let Estimate { value, low, high } = found.mean(1.0);
                let total = values.iter().copied().map(i128::from).sum::<i128>();
                #[expect(clippy::cast_possible_truncation, reason = "the floor and the ceiling")]
                let (floor, ceiling) = (low.floor() as i128, high.ceil() as i128);
                let rows = i128::try_from(values.len()).unwrap();
                assert!(floor * rows <= total && total <= ceiling * rows, "{low} {high} {found:?}");
                assert!(low <= value && value <= high, "{found:?}");
            }
        }
    }
}
