//! Errors of private queries.

use thiserror::Error;

use crate::noise::{LatticeError, RatioError};

/// Why a question has no answer. Nothing is spent on it. Messages name columns, sizes and
/// parameters, and never a value of the data.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum QueryError {
    /// An ε out of range.
    #[error("epsilon is {0}; it must be a number from 0.000000001 to 32")]
    Epsilon(f64),
    /// A ρ out of range.
    #[error("rho is {0}; it must be a number from 0.000000001 to 512")]
    Rho(f64),
    /// A δ out of range.
    #[error("delta is {0}; it must be a number above 0 and below 1")]
    Delta(f64),
    /// A probability of failure out of range.
    #[error("beta is {0}; it must be a number above 0 and below 1")]
    Beta(f64),
    /// An error bound out of range.
    #[error("alpha is {0}; it must be a number above 0 and below 1, as a share of the rows")]
    Alpha(f64),
    /// The parts of a guarantee are too small.
    #[error("no rho of 0.000000001 or more keeps within epsilon {epsilon} and delta {delta}")]
    NoRho {
        /// ε.
        epsilon: f64,
        /// δ.
        delta: f64,
    },
    /// A Gaussian release from a budget of pure ε.
    #[error(
        "the data set's budget is pure epsilon, which no Gaussian release keeps; pay with epsilon, \
         or register a data set with a budget of rho"
    )]
    NotPure,
    /// A question that has no answer at that kind of price.
    #[error("{what} is paid with epsilon, not with rho")]
    NeedsEpsilon {
        /// The mechanism.
        what: &'static str,
    },
    /// A budget that is split too far.
    #[error("epsilon is too small to be shared by {parts} releases; a billionth is the least part")]
    TooManyParts {
        /// How many.
        parts: u64,
    },
    /// A parameter of the noise that can't be represented.
    #[error(transparent)]
    Noise(#[from] RatioError),
    /// A value that can't be put on the lattice.
    #[error(transparent)]
    Lattice(#[from] LatticeError),
    /// A choice among nothing.
    #[error("there are no candidates to choose from")]
    NoCandidates,
    /// Utilities and weights don't go together.
    #[error("{candidates} candidates with {weights} weights; give each candidate one")]
    Weights {
        /// Candidates.
        candidates: usize,
        /// Weights.
        weights: usize,
    },
    /// A sensitivity of nothing.
    #[error("the sensitivity is 0; it must be at least 1")]
    Insensitive,
    /// No query at all.
    #[error("there is no query; give at least one")]
    NoQueries,
    /// A universe without elements.
    #[error("the universe is empty; give at least one column, and each at least one value")]
    EmptyUniverse,
    /// A histogram beyond memory.
    #[error(
        "these columns have {cells} combinations of values, and a histogram may have at most \
         {most}; name fewer columns, or narrower domains"
    )]
    TooManyCells {
        /// Cells.
        cells: u128,
        /// Most cells.
        most: usize,
    },
    /// A domain that is not one.
    #[error("column {column}: {what}")]
    Domain {
        /// The column.
        column: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A column that there is not.
    #[error("there is no column {column:?}; the columns are {known}")]
    NoColumn {
        /// What was asked for.
        column: String,
        /// What there is.
        known: String,
    },
    /// A column that the session's histogram does not have.
    #[error(
        "a predicate is about column {column:?}, which is outside the universe; it has {known}"
    )]
    OutsideUniverse {
        /// The column.
        column: String,
        /// What there is.
        known: String,
    },
    /// A predicate about a value that its column can't have.
    #[error("column {column} can't have the value {value:?}: {domain}")]
    OutsideDomain {
        /// The column.
        column: String,
        /// The value that was asked about.
        value: String,
        /// Values that it can have.
        domain: String,
    },
    /// A predicate of another universe.
    #[error("a predicate over {found} cells was asked of a universe of {expected}")]
    OtherUniverse {
        /// Cells of the predicate.
        found: usize,
        /// Cells of the universe.
        expected: usize,
    },
    /// Text that is no predicate.
    #[error(
        "{text:?} is no predicate; write conditions such as `age=30..39,city=Bonn|Ulm`, or `*` for \
         all rows"
    )]
    Predicate {
        /// The text.
        text: String,
    },
    /// A sum of something that is not a number.
    #[error("column {column} has no numbers; sums and quantiles need a column of integers")]
    NotNumbers {
        /// The column.
        column: String,
    },
    /// Data without rows.
    #[error("the data set has no rows")]
    NoRows,
    /// Too much data.
    #[error("the data set has more than {most} rows")]
    TooManyRows {
        /// Most rows.
        most: usize,
    },
    /// More candidates than can be weighed.
    #[error(
        "a synthetic database of {rows} rows over {cells} cells with {predicates} predicates is \
         one of too many candidates to weigh; use fewer columns, rows or predicates"
    )]
    TooManyCandidates {
        /// Rows of the synthetic database.
        rows: u32,
        /// Cells.
        cells: usize,
        /// Predicates.
        predicates: usize,
    },
    /// Halfspaces of too many dimensions.
    #[error("halfspaces over {{0,1}}^{0} can't be listed; 1 to 4 dimensions can")]
    Dimensions(u32),
    /// A session that has used up its updates.
    #[error(
        "the session has used all of its {updates} updates and answers nothing more; open another \
         one, with a higher threshold or more updates"
    )]
    SessionExhausted {
        /// How many it had.
        updates: u32,
    },
    /// Parameters of a session that make no sense.
    #[error("{0}")]
    Session(&'static str),
}
