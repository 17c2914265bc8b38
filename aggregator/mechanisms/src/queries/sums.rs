//! Sums of columns, of their powers, and of the rows that are added up.

use std::collections::BTreeMap;
use std::fmt;

use rand::Rng;

use super::QueryError;
use super::gaussian::GaussianMechanism;
use super::price::{Price, of_each};
use super::questions::{Answer, NoisyNumber, check_parts, signed};
use super::rows::Rows;
use super::selection::Selection;
use super::universe::{Column, decimal};
use crate::noise::{DiscreteGaussian, DiscreteLaplace, Ratio, STEPS_MAX};

/// The terms of a sum: the values of a column of integers, or the squares of their distances from a
/// number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The column.
    pub column: String,
    /// Whether squares are added up.
    pub squared: bool,
    /// The number that is subtracted from each value first, in units of the column's last decimal.
    /// It is public, and must not depend on the rows.
    pub about: i64,
}

impl Term {
    /// The values of this column, as they are.
    pub fn values(column: &str) -> Self {
        Self { column: column.to_owned(), squared: false, about: 0 }
    }

    /// What a value adds; `None`: too much for 128 bits.
    fn of(&self, value: i64) -> Option<i128> {
        let distance = i128::from(value) - i128::from(self.about);
        if self.squared { distance.checked_mul(distance) } else { Some(distance) }
    }

    /// The least and the most that numbers of a column add which lie in one of these ranges, by their ends.
    /// (0, 0) without a range; `None`: too much for 128 bits.
    fn of_ranges(&self, ranges: &[(i64, i64)], step: i64) -> Option<(i128, i128)> {
        let mut found: Option<(i128, i128)> = None;
        for &(low, high) in ranges {
            // A square is least next to the number that is subtracted.
            let about = self.about.clamp(low, high);
            let below =
                i128::from(about) - (i128::from(about) - i128::from(low)) % i128::from(step);
            let above = (below + i128::from(step)).min(i128::from(high));
            let between = [below, above].map(|value| i64::try_from(value).ok());
            for value in [Some(low), Some(high)].into_iter().chain(between).flatten() {
                let added = self.of(value)?;
                let (least, most) = found.unwrap_or((added, added));
                found = Some((least.min(added), most.max(added)));
            }
        }
        Some(found.unwrap_or_default())
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, squared, about } = self;
        match (squared, about) {
            (false, 0) => write!(f, "{column}"),
            (false, about) => write!(f, "{column} - {about}"),
            (true, 0) => write!(f, "{column}^2"),
            (true, about) => write!(f, "({column} - {about})^2"),
        }
    }
}

/// Characters of a predicate that the label of a sum has. There may be many sums.
const LABEL_MAX: usize = 200;

/// The ranges of numbers of a column that a predicate admits, by their ends.
pub(super) fn admitted(place: usize, column: &Column, selection: &Selection) -> Vec<(i64, i64)> {
    let units = |(low, high)| Some((column.units(low)?, column.units(high)?));
    if selection.names(place) {
        selection.ranges(place).filter_map(units).collect()
    } else {
        column.range().into_iter().collect()
    }
}

/// One sum over the rows that meet a predicate.
struct Part<'a> {
    label: String,
    decimals: u32,
    /// The column and what is added of it; `None`: each row adds 1.
    added: Option<(usize, &'a Column, &'a Term)>,
    /// What is taken from the number that each row adds, and added to the sum for all rows.
    base: i128,
    /// The part of the sum that no row changes.
    public: i64,
    /// The most by which one row changes the sum.
    width: u64,
}

/// A changed row moves a sum by at most the width W of what one row adds. Without a predicate every row is
/// added up, and W is the width of the column's range; the lowest value of all rows is public. With one, a
/// row can also leave or enter the sum, so 0 is one of the values, and only values that the predicate
/// admits count. Each of k sums is a release of its own for an equal part of the price: Laplace noise of
/// scale k W/ε, or Gaussian noise of variance k W²/(2 ρ). Columns have units that can't be compared, so
/// all have the same noise relative to their width. A sum that no row changes is public, and has no noise.
/// Values are integers, which need no rounding. A sum that may lie beyond 2^62 is refused, as rows and
/// range say.
pub(super) fn answer<R: Rng + ?Sized>(
    rows: &Rows,
    (terms, predicate, counted): (&[Term], &str, bool),
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Answer, QueryError> {
    check_parts(terms.len() + usize::from(counted))?;
    let selection = Selection::of_rows(predicate, rows.schema())?;
    let mut parts = Vec::new();
    if counted {
        let is_public = selection.is_all();
        let public = if is_public { signed(rows.count()) } else { 0 };
        let (label, width) = ("rows".to_owned(), u64::from(!is_public));
        parts.push(Part { label, decimals: 0, added: None, base: 0, public, width });
    }
    for term in terms {
        let (place, column) = rows.schema().find(&term.column)?;
        parts.push(part(rows.count(), term, (place, column), (predicate, &selection))?);
    }
    let noisy = parts.iter().filter(|part| part.width > 0).count() as u64;
    if noisy == 0 {
        return Err(QueryError::Insensitive);
    }
    let each = of_each(beta, noisy)?;
    let noise = |part: &Part<'_>| {
        let parts = Ratio::whole(noisy)?;
        (part.width > 0).then(|| SumNoise::new(part.width, parts, price)).transpose()
    };
    let noises: Vec<Option<SumNoise>> = parts.iter().map(noise).collect::<Result<_, _>>()?;
    // Each column is read once.
    let mut moments = BTreeMap::new();
    let mut numbers = Vec::new();
    for (part, noise) in parts.into_iter().zip(noises) {
        let Part { decimals, public, .. } = part;
        numbers.push(match noise {
            None => NoisyNumber { label: part.label, value: public, accuracy: 0, decimals },
            Some(noise) => {
                let exact = match part.added {
                    None => signed(rows.selected(&selection)),
                    Some((place, column, term)) => {
                        let moments =
                            moments.entry(place).or_insert_with(|| rows.moments(place, &selection));
                        above_public(column, *moments, term, part.base)
                    }
                };
                let value = public.saturating_add(noise.release(exact, rng));
                NoisyNumber { label: part.label, value, accuracy: noise.quantile(each), decimals }
            }
        });
    }
    Ok(Answer::Numbers(numbers))
}

/// What a sum has beyond its public part, from the number of rows, the sum of their codes and of the squares
/// of these. A code c is the number l + s c, for the lowest number l and the step s.
///
/// The sum is within 2^62, as was checked, so what wraps around on the way to it does no harm.
fn above_public(column: &Column, [rows, sum, squares]: [i128; 3], term: &Term, base: i128) -> i64 {
    let (lowest, _) = column.range().unwrap_or_default();
    let (step, distance) = (i128::from(column.step()), i128::from(lowest) - i128::from(term.about));
    let all = |one: i128| rows.wrapping_mul(one);
    let added = if term.squared {
        let mixed = distance.wrapping_mul(2 * step).wrapping_mul(sum);
        let squares = (step * step).wrapping_mul(squares);
        all(distance.wrapping_mul(distance)).wrapping_add(mixed).wrapping_add(squares)
    } else {
        all(distance).wrapping_add(step.wrapping_mul(sum))
    };
    i64::try_from(added.wrapping_sub(all(base))).unwrap_or(i64::MAX)
}

/// What is added up, and of which rows.
pub(super) fn described(what: &str, column: &Column, predicate: &str) -> String {
    let clamped = if column.is_clamped() {
        let (lowest, highest) = column.range().unwrap_or_default();
        let text = |units| decimal(units, column.decimals());
        format!(" clamped to {}..{}", text(lowest), text(highest))
    } else {
        String::new()
    };
    let of_rows = if predicate.is_empty() {
        String::new()
    } else {
        let kept: String = predicate.chars().take(LABEL_MAX).collect();
        let more = if kept.len() < predicate.len() { "..." } else { "" };
        format!(" where {kept}{more}")
    };
    format!("{what}{clamped}{of_rows}")
}

fn part<'a>(
    rows: u64,
    term: &'a Term,
    (place, column): (usize, &'a Column),
    (predicate, selection): (&str, &Selection),
) -> Result<Part<'a>, QueryError> {
    let not_numbers = || QueryError::NotNumbers { column: term.column.clone() };
    column.range().ok_or_else(not_numbers)?;
    let too_large = || QueryError::SumTooLarge { column: term.column.clone(), rows };
    let ranges = admitted(place, column, selection);
    let (mut low, mut high) = term.of_ranges(&ranges, column.step()).ok_or_else(too_large)?;
    let is_all = selection.is_all();
    if !is_all {
        (low, high) = (low.min(0), high.max(0));
    }
    // The sum, and what it has beyond its public part.
    let largest = low.unsigned_abs().max(high.unsigned_abs()).max(high.abs_diff(low));
    let most = largest.checked_mul(u128::from(rows).max(1)).ok_or_else(too_large)?;
    if most > SUM_MAX {
        return Err(too_large());
    }
    let base = if is_all { low } else { 0 };
    let public = i64::try_from(base * i128::from(rows)).map_err(|_| too_large())?;
    let width = u64::try_from(high.abs_diff(low)).map_err(|_| too_large())?;
    let label = described(&term.to_string(), column, predicate);
    let decimals = column.decimals() * if term.squared { 2 } else { 1 };
    Ok(Part { label, decimals, added: Some((place, column, term)), base, public, width })
}

/// The most that a sum may be.
pub(super) const SUM_MAX: u128 = STEPS_MAX.unsigned_abs() as u128;

/// The noise of one of several sums.
#[derive(Clone, Copy, Debug)]
enum Noise {
    Laplace(DiscreteLaplace),
    Gaussian(DiscreteGaussian),
}

impl Noise {
    fn new(width: u64, parts: Ratio, price: Price) -> Result<Self, QueryError> {
        let width = Ratio::whole(width)?;
        match price {
            Price::Pure(loss) => {
                let scale = width.times(parts)?.over(loss.ratio()?)?;
                Ok(Self::Laplace(DiscreteLaplace::new(scale)))
            }
            Price::Concentrated(loss) => {
                let mechanism = GaussianMechanism::new(width.times(width)?.times(parts)?, loss)?;
                Ok(Self::Gaussian(mechanism.noise()))
            }
        }
    }

    fn release<R: Rng + ?Sized>(self, value: i64, rng: &mut R) -> i64 {
        match self {
            Self::Laplace(noise) => noise.release(value, rng),
            Self::Gaussian(noise) => noise.release(value, rng),
        }
    }

    fn quantile(self, beta: f64) -> u64 {
        match self {
            Self::Laplace(noise) => noise.quantile(beta),
            Self::Gaussian(noise) => noise.quantile(beta),
        }
    }
}

/// A sum is rounded down to a multiple of a power of two, and has noise in these steps. The power is the
/// least whose noise can be drawn: 1, but for the widest sums.
///
/// # Privacy
/// A changed row moves a sum by at most its width, so it moves the rounded sum by at most so many steps,
/// rounded up.
#[derive(Clone, Copy, Debug)]
pub(super) struct SumNoise {
    noise: Noise,
    /// The logarithm of the power.
    shift: u32,
    /// The most steps by which one row moves the rounded sum.
    steps: u64,
}

impl SumNoise {
    /// The noise of a sum that one row moves by at most `width`, for one of so many parts of a price.
    pub(super) fn new(width: u64, parts: Ratio, price: Price) -> Result<Self, QueryError> {
        let mut shift = 0;
        loop {
            let steps = width.div_ceil(1 << shift);
            match Noise::new(steps, parts, price) {
                Err(QueryError::Noise(_)) if steps > 1 => shift += 1,
                noise => return Ok(Self { noise: noise?, shift, steps }),
            }
        }
    }

    /// The most steps by which one row moves the rounded sum; `None`: it is not rounded.
    pub(super) fn rounded(&self) -> Option<u64> {
        (self.shift > 0).then_some(self.steps)
    }

    pub(super) fn release<R: Rng + ?Sized>(self, value: i64, rng: &mut R) -> i64 {
        let steps = self.noise.release(value >> self.shift, rng);
        steps.saturating_mul(1 << self.shift).saturating_add((1 << self.shift) / 2)
    }

    /// The error is at most this, except with probability `beta`.
    pub(super) fn quantile(self, beta: f64) -> u64 {
        let steps = self.noise.quantile(beta);
        steps.saturating_mul(1 << self.shift).saturating_add((1 << self.shift) / 2)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;
    use crate::queries::price::PureLoss;
    use crate::queries::universe::Schema;

    /// All data sets of this many rows.
    fn data_sets(schema: &Schema, count: usize) -> Vec<Rows> {
        let universe = schema.universe::<&str>(&[]).unwrap();
        let cells = universe.cells();
        let data_set = |mut number: usize| {
            let mut rows = Rows::new(schema.clone());
            for _ in 0..count {
                rows.push(&universe.codes(number % cells)).unwrap();
                number /= cells;
            }
            rows
        };
        (0..cells.pow(u32::try_from(count).unwrap())).map(data_set).collect()
    }

    #[test]
    fn a_changed_row_moves_a_sum_by_its_width_and_no_more() {
        let schema = Schema::parse(&["a:-2..3", "city:x|y"]).unwrap();
        for predicate in ["", "*", "city=x", "a=1..3", "a=-2|3,city=y", "a=1,a=2"] {
            let selection = Selection::of_rows(predicate, &schema).unwrap();
            for (squared, about) in [(false, 0), (true, 0), (false, 2), (true, 2), (true, -7)] {
                let term = Term { column: "a".to_owned(), squared, about };
                let all = data_sets(&schema, 2);
                let column = &schema.columns()[0];
                let part = part(2, &term, (0, column), (predicate, &selection)).unwrap();
                let sum = |rows: &Rows| {
                    let above = above_public(column, rows.moments(0, &selection), &term, part.base);
                    i128::from(part.public) + i128::from(above)
                };
                let sums: Vec<i128> = all.iter().map(sum).collect();
                let mut most = 0;
                for (rows, sum) in all.iter().zip(&sums) {
                    let added = |row: usize| {
                        let code = rows.codes(0)[row];
                        let value = term.of(i64::from(code) - 2).unwrap();
                        let holds = selection
                            .holds(|place| rows.codes(place).get(row).copied().map(u32::from));
                        if holds { value } else { 0 }
                    };
                    assert_eq!(*sum, added(0) + added(1), "{term} where {predicate:?}");
                    for (other, other_sum) in all.iter().zip(&sums) {
                        let is_row =
                            |row: usize| (0..2).all(|p| rows.codes(p)[row] == other.codes(p)[row]);
                        if is_row(0) || is_row(1) {
                            most = most.max((sum - other_sum).unsigned_abs());
                            for shift in 0..5 {
                                let steps = ((sum >> shift) - (other_sum >> shift)).unsigned_abs();
                                assert!(steps <= u128::from(part.width.div_ceil(1 << shift)));
                            }
                        }
                    }
                }
                assert_eq!(most, u128::from(part.width), "{term} where {predicate:?}");
            }
        }
    }

    #[test]
    fn a_sum_has_the_width_of_what_its_ranges_admit() {
        for (column, step) in [("a:-9..12:3", 3), ("a:-9..12", 1), ("a:5..5", 1)] {
            let schema = Schema::parse(&[column]).unwrap();
            let column = &schema.columns()[0];
            let (lowest, highest) = column.range().unwrap();
            let numbers: Vec<i64> = (lowest..=highest).step_by(step).collect();
            for (first, &low) in numbers.iter().enumerate() {
                for &high in &numbers[first..] {
                    let text = format!("a={low}..{high}|{highest}");
                    let selection = Selection::of_rows(&text, &schema).unwrap();
                    let ranges = admitted(0, column, &selection);
                    let all = || (low..=high).step_by(step).chain([highest]);
                    for (squared, about) in (-15..15).flat_map(|a| [(false, a), (true, a)]) {
                        let term = Term { column: "a".to_owned(), squared, about };
                        let added = || all().map(|number| term.of(number).unwrap());
                        let expected = added().min().zip(added().max());
                        let found = term.of_ranges(&ranges, column.step());
                        assert_eq!(found, expected, "{term} where {text}");
                    }
                }
            }
        }
    }

    #[test]
    fn sums_that_do_not_fit_are_refused_whatever_is_taken_from_them() {
        let column = format!("a:{}..{}", i64::MAX - 9, i64::MAX);
        let schema = Schema::parse(&[&column, "b:-4..4"]).unwrap();
        let mut rows = Rows::new(schema);
        rows.push(&[0, 8]).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let price = Price::Pure(PureLoss::new(1.0).unwrap());
        let mut ask = |column: &str, squared, about| {
            let term = Term { column: column.to_owned(), squared, about };
            answer(&rows, (&[term], "", false), price, 0.05, &mut rng)
        };
        for (column, squared, about) in [
            ("a", false, 0),
            ("a", true, i64::MIN),
            ("a", false, i64::MIN),
            ("b", true, i64::MIN),
            ("b", false, i64::MAX),
            ("b", true, 1 << 40),
        ] {
            let refused = QueryError::SumTooLarge { column: column.to_owned(), rows: 1 };
            assert_eq!(ask(column, squared, about), Err(refused), "{column} {squared} {about}");
        }
        for (column, squared, about) in
            [("a", true, i64::MAX - 5), ("b", true, 1 << 29), ("b", false, 1 << 60)]
        {
            assert!(ask(column, squared, about).is_ok(), "{column} {squared} {about}");
        }
    }
}
