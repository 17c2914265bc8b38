//! One question about a data set, and its answer.

use rand::Rng;

use super::QueryError;
use super::cells::CellSet;
use super::choices;
pub use super::choices::{Aim, Chooser};
use super::counting::CountingMechanism;
use super::exponential::ExponentialMechanism;
use super::gaussian::GaussianMechanism;
use super::halfspaces::{halfspaces, vc_dimension};
use super::laplace::LaplaceMechanism;
use super::marginals::{ReleasedTable, SyntheticTable};
use super::moments::{self, Moments};
use super::price::{LossShape, Measure, Price, check_beta};
use super::rows::Rows;
use super::selection::Selection;
use super::sensitivity::of_counts;
use super::sums;
pub use super::sums::Term;
use super::synthetic::{SyntheticRelease, rows_for};
use super::universe::quoted;
use crate::noise::Ratio;

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
        /// The predicate of the rows that count. If it is empty, all do.
        predicate: String,
    },
    /// Sums over rows.
    Sums {
        /// The term of each sum, in their order.
        terms: Vec<Term>,
        /// The predicate of the rows that are added up. If it is empty, all are.
        predicate: String,
        /// Whether the number of these rows is asked for too. It comes first.
        counted: bool,
    },
    /// The mean of a column of numbers.
    Mean {
        /// The column.
        column: String,
        /// The predicate of the rows that count. If it is empty, all do.
        predicate: String,
        /// Whether the variance is asked for too.
        variance: bool,
    },
    /// A choice of one value of a column.
    Choice {
        /// The column.
        column: String,
        /// The predicate of the rows that count. If it is empty, all do.
        predicate: String,
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
        /// Its columns, or all columns if there are none.
        columns: Vec<String>,
        /// Its size, and the marginals that it preserves.
        table: SyntheticTable,
    },
}

impl Question {
    /// A histogram of all rows.
    pub fn histogram(columns: Vec<String>) -> Self {
        Self::Histogram { columns, predicate: String::new() }
    }

    /// The sums of columns, over all rows.
    pub fn sums<S: AsRef<str>>(columns: &[S]) -> Self {
        let terms = columns.iter().map(|column| Term::values(column.as_ref())).collect();
        Self::Sums { terms, predicate: String::new(), counted: false }
    }

    /// A choice by all rows.
    pub fn choice(column: &str, aim: Aim, chooser: Chooser) -> Self {
        Self::Choice { column: column.to_owned(), predicate: String::new(), aim, chooser }
    }

    /// The charge for an answer to a budget of this measure, in billionths, rounded up.
    ///
    /// # Errors
    /// [`QueryError::NotPure`] for ρ from a budget of ε.
    pub fn charge(&self, price: Price, measure: Measure) -> Result<u64, QueryError> {
        price.nanos(measure, self.shape())
    }

    /// The shape of the loss of its answer.
    fn shape(&self) -> LossShape {
        match self {
            Self::Choice { chooser, .. } => chooser.shape(),
            Self::Synthetic { .. } => ExponentialMechanism::LOSS,
            Self::Counts { .. }
            | Self::Histogram { .. }
            | Self::Sums { .. }
            | Self::Mean { .. }
            | Self::Table { .. } => LossShape::Symmetric,
        }
    }
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
    /// The number of rows with which some database has at most this error, as a share of rows.
    ForError(f64),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Numbers in the order of the question. With probability 1 - β, every error is within its own
    /// bound.
    Numbers(Vec<NoisyNumber>),
    /// A mean.
    Moments(Moments),
    /// A value.
    Value {
        /// The value.
        value: String,
        /// A bound on the shortfall below the best value, in rows, with probability 1 - β.
        shortfall: u64,
        /// The ends of an interval that has the quantile, if it was asked for. With probability 1 - β,
        /// this and the bound on the shortfall hold.
        interval: Option<(String, String)>,
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
    /// The number, in units of the last of its decimals.
    pub value: i64,
    /// The bound on its error, in the same units.
    pub accuracy: u64,
    /// The number of its decimals.
    pub decimals: u32,
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
    let price = rows.schema().price_of_row(price)?;
    match question {
        Question::Synthetic { .. } | Question::Table { .. } if rows.schema().people().is_some() => {
            Err(QueryError::RowsOfPeople)
        }
        Question::Counts { predicates } => counts(rows, predicates, price, beta, rng),
        Question::Histogram { columns, predicate } => {
            histogram(rows, (columns, predicate), price, beta, rng)
        }
        Question::Sums { terms, predicate, counted } => {
            sums::answer(rows, (terms, predicate, *counted), price, beta, rng)
        }
        Question::Mean { column, predicate, variance } => {
            let asked = (column.as_str(), predicate.as_str(), *variance);
            moments::answer(rows, asked, price, beta, rng).map(Answer::Moments)
        }
        Question::Choice { column, predicate, aim, chooser } => {
            choices::answer(rows, (column, predicate), (*aim, chooser), price, beta, rng)
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
    let selections: Vec<Selection> = predicates
        .iter()
        .map(|text| Selection::parse(text, rows.schema()))
        .collect::<Result<_, _>>()?;
    let mechanism = CountingMechanism::new(of_counts(&selections, rows.schema()), price)?;
    let accuracy = mechanism.accuracy(predicates.len() as u64, beta)?;
    let exact: Vec<i64> =
        selections.iter().map(|selection| signed(rows.selected(selection))).collect();
    let noisy = mechanism.release(&exact, rng);
    let number = |(label, value): (&String, i64)| {
        let label = label.clone();
        NoisyNumber { label, value, accuracy, decimals: 0 }
    };
    Ok(Answer::Numbers(predicates.iter().zip(noisy).map(number).collect()))
}

/// A changed row takes 1 from one cell and gives it to another: 2 in L1 norm, sqrt(2) in L2 norm,
/// for any number of cells. With a predicate it may do only one of the two.
fn histogram<R: Rng + ?Sized>(
    rows: &Rows,
    (columns, predicate): (&[String], &str),
    price: Price,
    beta: f64,
    rng: &mut R,
) -> Result<Answer, QueryError> {
    if columns.is_empty() {
        return Err(QueryError::NoQueries);
    }
    let too_many = |cells| QueryError::TooManyCells { cells, most: PARTS_MAX };
    let universe = rows.schema().universe(columns).map_err(|error| match error {
        QueryError::TooManyCells { cells, .. } => too_many(cells),
        other => other,
    })?;
    let selection = Selection::of_rows(predicate, rows.schema())?;
    if universe.cells() > PARTS_MAX {
        return Err(too_many(universe.cells() as u128));
    }
    let cells = universe.cells() as u64;
    let (released, accuracy) = {
        let exact = || -> Vec<i64> {
            rows.histogram_of(&universe, &selection).into_iter().map(signed).collect()
        };
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
        // As a predicate has it.
        let parts = columns.map(|(column, code)| {
            format!("{}={}", quoted(column.name()), quoted(&column.value(code)))
        });
        parts.collect::<Vec<_>>().join(",")
    };
    let number = |(cell, value)| NoisyNumber { label: label(cell), value, accuracy, decimals: 0 };
    Ok(Answer::Numbers(released.into_iter().enumerate().map(number).collect()))
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
    let loss = price.epsilon(ExponentialMechanism::LOSS)?;
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

pub(super) fn check_parts(parts: usize) -> Result<(), QueryError> {
    match parts {
        0 => Err(QueryError::NoQueries),
        1..=PARTS_MAX => Ok(()),
        _ => Err(QueryError::TooManyQueries { parts, most: PARTS_MAX }),
    }
}

pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
