//! One question about a data set, and its answer.

use rand::Rng;

use super::QueryError;
use super::cells::CellSet;
use super::counting::CountingMechanism;
use super::exponential::ExponentialMechanism;
use super::gaussian::GaussianMechanism;
use super::halfspaces::{halfspaces, vc_dimension};
use super::laplace::LaplaceMechanism;
use super::marginals::{ReleasedTable, SyntheticTable};
use super::noisy_max::NoisyMax;
use super::price::{LossShape, Measure, Price, check_beta, of_each};
use super::rows::Rows;
use super::selection::Selection;
use super::synthetic::{SyntheticRelease, rows_for};
use crate::noise::{DiscreteGaussian, DiscreteLaplace, Ratio, STEPS_MAX};

/// Maximum number of counts, columns or candidates in one question.
pub const PARTS_MAX: usize = 10_000;

/// A question. Predicates are text, in the syntax of [`Selection`].
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// The number of rows that satisfy each predicate.
    Counts {
        /// The predicates.
        predicates: Vec<String>,
    },
    /// The number of rows with each combination of values of these columns.
    Histogram {
        /// The columns.
        columns: Vec<String>,
    },
    /// The sum of each of these columns of integers.
    Sums {
        /// The columns.
        columns: Vec<String>,
    },
    /// A choice of one value of a column.
    Choice {
        /// The column.
        column: String,
        /// The criterion of the choice.
        aim: Aim,
        /// The mechanism of the choice.
        chooser: Chooser,
    },
    /// A synthetic database.
    Synthetic {
        /// The database's columns.
        columns: Vec<String>,
        /// The class of predicates that the database preserves.
        class: Class,
        /// The size of the database.
        size: Size,
    },
    /// A synthetic table, paid with ρ.
    Table {
        /// Its columns; all, without any.
        columns: Vec<String>,
        /// Its size, and what it preserves.
        table: SyntheticTable,
    },
}

impl Question {
    /// The charge for an answer to a budget of this measure, in billionths, rounded up.
    ///
    /// # Errors
    /// [`QueryError::NotPure`] for ρ from a budget of ε.
    pub fn charge(&self, price: Price, measure: Measure) -> Result<u64, QueryError> {
        let shape = match self {
            Self::Choice { chooser: Chooser::Exponential(_), .. } | Self::Synthetic { .. } => {
                ExponentialMechanism::LOSS
            }
            Self::Choice { chooser: Chooser::NoisyMax, .. } => NoisyMax::LOSS,
            Self::Counts { .. }
            | Self::Histogram { .. }
            | Self::Sums { .. }
            | Self::Table { .. } => LossShape::Symmetric,
        };
        price.nanos(measure, shape)
    }
}

/// The criterion of a choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// The most common value.
    MostCommon,
    /// The quantile of this rank: the value that this share of the rows, 0 to 1, is at or below.
    Quantile(f64),
}

/// The mechanism of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chooser {
    /// The exponential mechanism, with a weight for each value or a uniform base measure.
    Exponential(Option<Vec<u32>>),
    /// Report noisy max.
    NoisyMax,
}

/// A class of predicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// All halfspaces, of columns with two values each.
    Halfspaces,
    /// These predicates.
    Predicates(Vec<String>),
}

/// The size of a synthetic database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// This number of rows.
    Rows(u32),
    /// As many rows as are needed for some database whose error is at most this share.
    ForError(f64),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Numbers in the order of the question. With probability 1 - β, the error of none exceeds its
    /// own bound.
    Numbers(Vec<NoisyNumber>),
    /// A value.
    Value {
        /// The value.
        value: String,
        /// A bound on the shortfall below the best value, in rows, with probability 1 - β.
        shortfall: u64,
    },
    /// A database.
    Database {
        /// Its columns.
        columns: Vec<String>,
        /// Its rows.
        rows: Vec<Vec<String>>,
        /// A bound on the error of every predicate of the class, as a share of rows, with
        /// probability 1 - β.
        accuracy: f64,
    },
    /// A table.
    Table(ReleasedTable),
}

/// A number with noise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoisyNumber {
    /// The part of the question that it answers.
    pub label: String,
    /// The number.
    pub value: i64,
    /// The bound on its error.
    pub accuracy: u64,
}

/// Answers a question at a price. The caller must debit the price before it sends the answer.
/// Errors depend on the question and on public facts only, not on the rows.
///
/// # Errors
/// [`QueryError`].
pub fn answer<R: Rng + ?Sized>(
    rows: &Rows,
    question: &Question,
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Answer, QueryError> {
    check_beta(beta)?;
    match question {
        Question::Counts { predicates } => counts(rows, predicates, price, beta, rng),
        Question::Histogram { columns } => histogram(rows, columns, price, beta, rng),
        Question::Sums { columns } => sums(rows, columns, price, beta, rng),
        Question::Choice { column, aim, chooser } => {
            choice(rows, column, *aim, chooser, price, beta, rng)
        }
        Question::Synthetic { columns, class, size } => {
            synthetic(rows, columns, class, *size, price, beta, rng)
        }
        Question::Table { columns, table } => {
            let price = price.concentrated("a synthetic table")?;
            table.release(rows, columns, price, beta, rng).map(Answer::Table)
        }
    }
}

fn counts<R: Rng + ?Sized>(
    rows: &Rows,
    predicates: &[String],
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Answer, QueryError> {
    check_parts(predicates.len())?;
    let queries = predicates.len() as u64;
    let mechanism = CountingMechanism::new(queries, price)?;
    let accuracy = mechanism.accuracy(queries, beta)?;
    let selections: Vec<Selection> = predicates
        .iter()
        .map(|text| Selection::parse(text, rows.schema()))
        .collect::<Result<_, _>>()?;
    let exact: Vec<i64> =
        selections.iter().map(|selection| signed(rows.selected(selection))).collect();
    let noisy = mechanism.release(&exact, rng);
    let number = |(label, value): (&String, i64)| {
        let label = label.clone();
        NoisyNumber { label, value, accuracy }
    };
    Ok(Answer::Numbers(predicates.iter().zip(noisy).map(number).collect()))
}

/// A changed row takes 1 from one cell and gives it to another: 2 in L1 norm, sqrt(2) in L2 norm,
/// for any number of cells.
fn histogram<R: Rng + ?Sized>(
    rows: &Rows,
    columns: &[String],
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Answer, QueryError> {
    if columns.is_empty() {
        return Err(QueryError::NoQueries);
    }
    let universe = rows.schema().universe(columns)?;
    if universe.cells() > PARTS_MAX {
        let cells = universe.cells() as u128;
        return Err(QueryError::TooManyCells { cells, most: PARTS_MAX });
    }
    let cells = universe.cells() as u64;
    let (released, accuracy) = {
        let exact = || -> Vec<i64> { rows.histogram(&universe).into_iter().map(signed).collect() };
        match price {
            Price::Pure(loss) => {
                let mechanism = LaplaceMechanism::new(2, loss)?;
                (mechanism.release(&exact(), rng), mechanism.accuracy(cells, beta)?)
            }
            Price::Concentrated(loss) => {
                let mechanism = GaussianMechanism::new(Ratio::whole(2)?, loss)?;
                (mechanism.release(&exact(), rng), mechanism.accuracy(cells, beta)?)
            }
        }
    };
    let label = |cell: usize| {
        let columns = universe.schema().columns().iter().zip(universe.codes(cell));
        let parts =
            columns.map(|(column, code)| format!("{}={}", column.name(), column.value(code)));
        parts.collect::<Vec<_>>().join(",")
    };
    let number = |(cell, value)| NoisyNumber { label: label(cell), value, accuracy };
    Ok(Answer::Numbers(released.into_iter().enumerate().map(number).collect()))
}

/// A changed row moves the sum of a column by at most the width W of its range. Each of k columns is
/// a release of its own for an equal part of the price: Laplace noise of scale k W/ε, or Gaussian
/// noise of variance k W²/(2 ρ). Columns have units that can't be compared, so all have the same
/// noise relative to their width. A column of one value has a public sum, without noise. Values are
/// integers, which need no rounding, and are summed as their distances from the lowest one, below
/// 2^43 in all; the rest of the sum is public. A column whose sum may lie beyond 2^62 is refused, as
/// rows and range say.
fn sums<R: Rng + ?Sized>(
    rows: &Rows,
    columns: &[String],
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Answer, QueryError> {
    check_parts(columns.len())?;
    let mut parts = Vec::new();
    for name in columns {
        let (place, column) = rows.schema().find(name)?;
        let range = column.range();
        let (lowest, highest) =
            range.ok_or_else(|| QueryError::NotNumbers { column: name.clone() })?;
        let largest = u128::from(lowest.unsigned_abs().max(highest.unsigned_abs()));
        if largest * u128::from(rows.count()) > u128::from(STEPS_MAX.unsigned_abs()) {
            return Err(QueryError::SumTooLarge { column: name.clone(), rows: rows.count() });
        }
        parts.push((place, lowest, highest.abs_diff(lowest)));
    }
    let noisy = parts.iter().filter(|(_, _, width)| *width > 0).count() as u64;
    if noisy == 0 {
        return Err(QueryError::Insensitive);
    }
    let each = of_each(beta, noisy)?;
    let noises: Vec<Option<SumNoise>> = parts
        .iter()
        .map(|&(_, _, width)| (width > 0).then(|| SumNoise::new(width, noisy, price)).transpose())
        .collect::<Result<_, _>>()?;
    let above = |place: usize| -> i64 {
        rows.frequencies(place)
            .into_iter()
            .zip(0..)
            .map(|(n, distance): (i64, i64)| n * distance)
            .sum()
    };
    let mut numbers = Vec::new();
    for ((label, &(place, lowest, _)), noise) in columns.iter().zip(&parts).zip(noises) {
        let (public, label) = (signed(rows.count()) * lowest, label.clone());
        numbers.push(match noise {
            None => NoisyNumber { label, value: public, accuracy: 0 },
            Some(noise) => {
                let value = public.saturating_add(noise.release(above(place), rng));
                NoisyNumber { label, value, accuracy: noise.quantile(each) }
            }
        });
    }
    Ok(Answer::Numbers(numbers))
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

fn choice<R: Rng + ?Sized>(
    rows: &Rows,
    name: &str,
    aim: Aim,
    chooser: &Chooser,
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Answer, QueryError> {
    let loss = price.pure("a choice")?;
    let (place, column) = rows.schema().find(name)?;
    let utilities = match aim {
        // A changed row changes a frequency by at most 1.
        Aim::MostCommon => rows.frequencies(place),
        Aim::Quantile(share) => {
            if column.range().is_none() {
                return Err(QueryError::NotNumbers { column: name.to_owned() });
            }
            if !(0.0..=1.0).contains(&share) {
                return Err(QueryError::Alpha(share));
            }
            ranks(&rows.frequencies(place), wanted_rank(rows.count(), share))
        }
    };
    let candidates = utilities.len() as u64;
    let (chosen, shortfall) = match chooser {
        Chooser::Exponential(weights) => {
            let mechanism = ExponentialMechanism::new(1, loss)?;
            // The bound is for the worst case: the best value has the least weight.
            let shortfall = match weights {
                None => mechanism.shortfall(candidates, beta)?,
                Some(weights) => {
                    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
                    let least = weights.iter().filter(|&&weight| weight > 0).min();
                    let least = least.copied().map_or(0.0, f64::from);
                    mechanism.shortfall_of_share(least / total.max(1) as f64, beta)?
                }
            };
            (mechanism.choose(&utilities, weights.as_deref(), rng)?, shortfall)
        }
        Chooser::NoisyMax => {
            let mechanism = NoisyMax::new(1, loss)?;
            (mechanism.choose(&utilities, rng)?, mechanism.shortfall(candidates, beta)?)
        }
    };
    let value = column.value(u16::try_from(chosen).unwrap_or(u16::MAX));
    Ok(Answer::Value { value, shortfall })
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

/// The utility of each value as one of rank t: the negative of max(t - rows at or below it, rows
/// below it + 1 - t, 0). A changed row changes either number of rows by at most 1.
fn ranks(frequencies: &[i64], t: i64) -> Vec<i64> {
    let mut below = 0;
    let utility = |&here: &i64| {
        let missing = (t - below - here).max(below + 1 - t).max(0);
        below += here;
        -missing
    };
    frequencies.iter().map(utility).collect()
}

fn synthetic<R: Rng + ?Sized>(
    rows: &Rows,
    columns: &[String],
    class: &Class,
    size: Size,
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Answer, QueryError> {
    let loss = price.pure("a synthetic database")?;
    if columns.is_empty() {
        return Err(QueryError::EmptyUniverse);
    }
    let universe = rows.schema().universe(columns)?;
    let cells = universe.cells();
    let (predicates, dimension): (Vec<CellSet>, _) = match class {
        Class::Predicates(texts) => {
            check_parts(texts.len())?;
            let sets = texts.iter().map(|text| universe.select(text));
            (sets.collect::<Result<_, _>>()?, None)
        }
        Class::Halfspaces => {
            let binary = |column: &super::universe::Column| column.values() == 2;
            let columns = universe.schema().columns();
            if let Some(other) = columns.iter().find(|column| !binary(column)) {
                let what = "halfspaces need columns with two values each";
                return Err(QueryError::Domain { column: other.name().to_owned(), what });
            }
            let dimensions = u32::try_from(columns.len()).unwrap_or(u32::MAX);
            // The first column is the highest digit of a cell; the class is the same for any
            // order of the digits.
            (halfspaces(dimensions)?, Some(vc_dimension(dimensions)))
        }
    };
    let size = match size {
        Size::Rows(rows) => rows,
        Size::ForError(alpha) => rows_for(alpha, cells, predicates.len(), dimension)?,
    };
    let release = SyntheticRelease::new(cells, size, predicates, loss)?;
    let accuracy = release.error_of_best() + release.accuracy(rows.count(), beta)?;
    let database = release.choose(&rows.histogram(&universe), rng)?;
    let row = |cell: usize| -> Vec<String> {
        let columns = universe.schema().columns().iter().zip(universe.codes(cell));
        columns.map(|(column, code)| column.value(code)).collect()
    };
    let mut released = Vec::new();
    for (cell, count) in database.into_iter().enumerate() {
        released.extend((0..count).map(|_| row(cell)));
    }
    Ok(Answer::Database { columns: columns.to_vec(), rows: released, accuracy })
}

fn check_parts(parts: usize) -> Result<(), QueryError> {
    match parts {
        0 => Err(QueryError::NoQueries),
        1..=PARTS_MAX => Ok(()),
        _ => Err(QueryError::TooManyParts { parts: parts as u64 }),
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_where_their_rank_is() {
        // Values 0 1 1 3 3 3.
        let frequencies = [1, 2, 0, 3];
        let best = |t| {
            let utilities = ranks(&frequencies, t);
            utilities.iter().position(|&utility| utility == 0).unwrap()
        };
        assert_eq!([1, 2, 3, 4, 6].map(best), [0, 1, 1, 3, 3]);
        assert_eq!(ranks(&frequencies, 3), [-2, 0, -1, -1]);
        assert_eq!((wanted_rank(6, 0.5), wanted_rank(6, 0.0), wanted_rank(6, 1.0)), (3, 1, 6));
    }
}
