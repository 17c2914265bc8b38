//! Sums of columns, of their powers, and of the rows that are added up.

use std::fmt;

use rand::Rng;

use super::QueryError;
use super::gaussian::GaussianMechanism;
use super::price::{Price, of_each};
use super::questions::{Answer, NoisyNumber, check_parts, signed};
use super::rows::Rows;
use super::selection::Selection;
use super::universe::decimal;
use crate::noise::{DiscreteGaussian, DiscreteLaplace, Ratio, STEPS_MAX};

/// What a sum adds up: the values of a column of integers, or the squares of their distances from a
/// number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The column.
    pub column: String,
    /// Whether squares are added up.
    pub squared: bool,
    /// The number that is taken from each value first, in units of the column's last decimal. It is public,
    /// and must not depend on the rows.
    pub about: i64,
}

impl Term {
    /// The values of this column, as they are.
    pub fn values(column: &str) -> Self {
        Self { column: column.to_owned(), squared: false, about: 0 }
    }

    fn of(&self, value: i128) -> i128 {
        let distance = value - i128::from(self.about);
        if self.squared { distance * distance } else { distance }
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

/// The index of a column, and how much a row with each of its codes adds.
type Added<'a> = (usize, Box<dyn Fn(u16) -> i128 + 'a>);

/// One sum over the rows that meet a predicate: what each value adds, and how wide that is.
struct Part<'a> {
    label: String,
    decimals: u32,
    /// `None`: each row adds 1.
    added: Option<Added<'a>>,
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
        parts.push(Part { label, decimals: 0, added: None, public, width });
    }
    for term in terms {
        parts.push(part(rows, term, (predicate, &selection))?);
    }
    let noisy = parts.iter().filter(|part| part.width > 0).count() as u64;
    if noisy == 0 {
        return Err(QueryError::Insensitive);
    }
    let each = of_each(beta, noisy)?;
    let noises: Vec<Option<SumNoise>> = parts
        .iter()
        .map(|part| (part.width > 0).then(|| SumNoise::new(part.width, noisy, price)).transpose())
        .collect::<Result<_, _>>()?;
    let mut numbers = Vec::new();
    for (part, noise) in parts.into_iter().zip(noises) {
        let Part { label, decimals, added, public, .. } = part;
        numbers.push(match noise {
            None => NoisyNumber { label, value: public, accuracy: 0, decimals },
            Some(noise) => {
                let exact = above_public(rows, added, &selection);
                let value = public.saturating_add(noise.release(exact, rng));
                NoisyNumber { label, value, accuracy: noise.quantile(each), decimals }
            }
        });
    }
    Ok(Answer::Numbers(numbers))
}

/// What a sum has beyond its public part.
fn above_public(rows: &Rows, added: Option<Added<'_>>, selection: &Selection) -> i64 {
    let Some((place, added)) = added else { return signed(rows.selected(selection)) };
    let frequencies = rows.frequencies(place, selection);
    let each =
        frequencies.iter().zip(0..=u16::MAX).map(|(&rows, code)| i128::from(rows) * added(code));
    // Within 2^62, as was checked.
    i64::try_from(each.sum::<i128>()).unwrap_or(i64::MAX)
}

fn part<'a>(
    rows: &'a Rows,
    term: &'a Term,
    (predicate, selection): (&str, &Selection),
) -> Result<Part<'a>, QueryError> {
    let (place, column) = rows.schema().find(&term.column)?;
    let not_numbers = || QueryError::NotNumbers { column: term.column.clone() };
    column.range().ok_or_else(not_numbers)?;
    let last = u16::try_from(column.values() - 1).unwrap_or(u16::MAX);
    let codes = (0..=last).filter(|&code| selection.holds_of(place, code));
    let of_code = move |code: u16| term.of(i128::from(column.units(code).unwrap_or_default()));
    let mut range: Option<(i128, i128)> = None;
    for code in codes {
        let value = of_code(code);
        range = Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))));
    }
    // No row can meet the predicate.
    let (mut low, mut high) = range.unwrap_or_default();
    let is_all = selection.is_all();
    if !is_all {
        (low, high) = (low.min(0), high.max(0));
    }
    let too_large = || QueryError::SumTooLarge { column: term.column.clone(), rows: rows.count() };
    let largest = low.unsigned_abs().max(high.unsigned_abs());
    let most = largest.checked_mul(u128::from(rows.count()).max(1)).ok_or_else(too_large)?;
    if most > u128::from(STEPS_MAX.unsigned_abs()) {
        return Err(too_large());
    }
    let base = if is_all { low } else { 0 };
    let public = i64::try_from(base * i128::from(rows.count())).map_err(|_| too_large())?;
    let width = u64::try_from(high - low).map_err(|_| too_large())?;
    let clamped = match column.range().filter(|_| column.is_clamped()) {
        Some((low, high)) => {
            let text = |units| decimal(units, column.decimals());
            format!(" clamped to {}..{}", text(low), text(high))
        }
        None => String::new(),
    };
    let of_rows = if is_all { String::new() } else { format!(" where {predicate}") };
    Ok(Part {
        label: format!("{term}{clamped}{of_rows}"),
        decimals: column.decimals() * if term.squared { 2 } else { 1 },
        added: Some((place, Box::new(move |code| of_code(code) - base))),
        public,
        width,
    })
}

/// The noise of one of several sums.
#[derive(Clone, Copy)]
enum SumNoise {
    Laplace(DiscreteLaplace),
    Gaussian(DiscreteGaussian),
}

impl SumNoise {
    fn new(width: u64, columns: u64, price: Price) -> Result<Self, QueryError> {
        let width = Ratio::whole(width)?;
        let parts = Ratio::whole(columns)?;
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

#[cfg(test)]
mod tests {
    use super::*;
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
                let part_of =
                    |place: usize| part(&all[place], &term, (predicate, &selection)).unwrap();
                let sums: Vec<i128> = all
                    .iter()
                    .enumerate()
                    .map(|(place, rows)| {
                        let part = part_of(place);
                        let above = above_public(rows, part.added, &selection);
                        i128::from(part.public) + i128::from(above)
                    })
                    .collect();
                let mut most = 0;
                for (rows, sum) in all.iter().zip(&sums) {
                    let added = |row: usize| {
                        let code = rows.codes(0)[row];
                        let value = term.of(i128::from(code) - 2);
                        let holds = selection.holds(|place| Some(rows.codes(place)[row]));
                        if holds { value } else { 0 }
                    };
                    assert_eq!(*sum, added(0) + added(1), "{term} where {predicate:?}");
                    for (other, other_sum) in all.iter().zip(&sums) {
                        let is_row =
                            |row: usize| (0..2).all(|p| rows.codes(p)[row] == other.codes(p)[row]);
                        if is_row(0) || is_row(1) {
                            most = most.max((sum - other_sum).unsigned_abs());
                        }
                    }
                }
                let width = u128::from(part_of(0).width);
                assert_eq!(most, width, "{term} where {predicate:?}");
            }
        }
    }
}
