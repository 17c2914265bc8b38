//! Errors of private queries.

use thiserror::Error;

use crate::noise::{LatticeError, RatioError};

/// The reason why a question has no answer. The budget is not charged for it. Messages name
/// columns, sizes and parameters, and never a value of the data.
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
    /// A δ of a search for names out of range.
    #[error("delta is {0}; to find names, it must be above 0 and at most 0.001")]
    SelectionDelta(f64),
    /// A probability of failure out of range.
    #[error("beta is {0}; it must be a number above 0 and below 1")]
    Beta(f64),
    /// An error bound out of range.
    #[error("alpha is {0}; it must be a number above 0 and below 1, as a share of the rows")]
    Alpha(f64),
    /// A share of the rows that no quantile has.
    #[error("the quantile is {0}; it must be a number from 0 to 1, as a share of the rows")]
    Quantile(f64),
    /// The parts (ε, δ) of a guarantee are too small for any ρ.
    #[error("no rho of 0.000000001 or more keeps within epsilon {epsilon} and delta {delta}")]
    NoRho {
        /// ε.
        epsilon: f64,
        /// δ.
        delta: f64,
    },
    /// A Gaussian release from a budget of pure ε.
    #[error(
        "the data set's budget is in pure epsilon, and a price in rho can't keep that; pay with epsilon. \
         What only rho can pay for, such as a synthetic table, needs a data set that was registered with a \
         budget in rho"
    )]
    NotPure,
    /// A question that can't be paid for in ε.
    #[error(
        "{what} is paid with rho, not with epsilon, and so from a data set whose budget is in rho"
    )]
    NeedsRho {
        /// The mechanism.
        what: &'static str,
    },
    /// A price split into too many parts.
    #[error(
        "the price is too small to be shared by {parts} releases; a billionth is the least part"
    )]
    TooManyParts {
        /// The number of parts.
        parts: u64,
    },
    /// A question of too many parts.
    #[error(
        "the question has {parts} counts, sums or predicates, and one has at most {most}; ask several"
    )]
    TooManyQueries {
        /// The number of parts.
        parts: usize,
        /// The largest number of parts.
        most: usize,
    },
    /// A price split among too many rows of a person.
    #[error(
        "the price is too small for data with {rows} rows of each person; a billionth is the least for one"
    )]
    PriceOfRows {
        /// The largest number of rows of each person.
        rows: u32,
    },
    /// Synthetic data from data with several rows of each person.
    #[error(
        "rows of people are not made up: ask for counts, histograms, sums, means, choices or sessions of a \
         data set that says whose row it is"
    )]
    RowsOfPeople,
    /// A parameter of the noise that can't be represented.
    #[error(transparent)]
    Noise(#[from] RatioError),
    /// A value that can't be put on the lattice.
    #[error(transparent)]
    Lattice(#[from] LatticeError),
    /// A choice without candidates.
    #[error("there are no candidates to choose from")]
    NoCandidates,
    /// Different numbers of utilities and weights.
    #[error(
        "there are {candidates} candidates and {weights} weights; give one weight for each \
         candidate"
    )]
    Weights {
        /// Number of candidates.
        candidates: usize,
        /// Number of weights.
        weights: usize,
    },
    /// A sensitivity of zero.
    #[error(
        "no row can change this answer, so it is public and nothing is asked; change the conditions or the column"
    )]
    Insensitive,
    /// A set of no queries.
    #[error("there is no query; give at least one")]
    NoQueries,
    /// A universe without elements.
    #[error("the universe is empty; give at least one column, and each at least one value")]
    EmptyUniverse,
    /// A histogram with too many cells.
    #[error(
        "these columns have {cells} combinations of values, and at most {most} are possible here; name \
         fewer columns, count ranges of their values, or register them with larger steps"
    )]
    TooManyCells {
        /// Number of cells.
        cells: u128,
        /// Maximum number of cells.
        most: usize,
    },
    /// A choice among too many values.
    #[error(
        "column {column} has {values} values, and a value is chosen among at most {most}; count ranges of it, \
         or register such data with larger steps, such as 0..1000000:100"
    )]
    TooManyValues {
        /// The column.
        column: String,
        /// The number of its values.
        values: usize,
        /// Maximum number of values.
        most: usize,
    },
    /// An invalid domain.
    #[error("column {column}: {what}")]
    Domain {
        /// The column.
        column: String,
        /// The problem.
        what: &'static str,
    },
    /// An unknown column.
    #[error("there is no column {column:?}; the columns are {known}")]
    NoColumn {
        /// The requested column.
        column: String,
        /// The known columns.
        known: String,
    },
    /// A predicate about a column outside the session's universe.
    #[error(
        "a predicate is about column {column:?}, which is outside the universe; it has {known}"
    )]
    OutsideUniverse {
        /// The column.
        column: String,
        /// The columns of the universe.
        known: String,
    },
    /// A predicate about a value outside its column's domain.
    #[error("column {column} can't have the value {value:?}: {domain}")]
    OutsideDomain {
        /// The column.
        column: String,
        /// The requested value.
        value: String,
        /// The domain.
        domain: String,
    },
    /// A predicate over a different universe.
    #[error(
        "the predicate is about {found} cells, and the universe has {expected}; make it for the \
         same columns"
    )]
    OtherUniverse {
        /// Cells of the predicate's universe.
        found: usize,
        /// Cells of the expected universe.
        expected: usize,
    },
    /// An invalid predicate.
    #[error(
        "{text:?} is no predicate; write conditions such as `age=30..39,city=Bonn|Ulm`, or `*` for \
         all rows"
    )]
    Predicate {
        /// The text.
        text: String,
    },
    /// A sum over a column without integers.
    #[error("column {column} has no numbers; sums, means and quantiles need them")]
    NotNumbers {
        /// The column.
        column: String,
    },
    /// A sum that may not fit its number.
    #[error(
        "the sum of column {column}, or of the squares of a variance, over {rows} rows may lie beyond 2^62, \
         more than an answer can hold; ask for the mean alone, or add a condition on the column"
    )]
    SumTooLarge {
        /// The column.
        column: String,
        /// The number of rows.
        rows: u64,
    },
    /// Weights for a mechanism that has none.
    #[error(
        "report noisy max has no weights; leave them out, or choose by the exponential mechanism"
    )]
    WeightsOfNoisyMax,
    /// Weights for the ends of an interval.
    #[error("an interval of a quantile takes no weights; leave out the weights or the interval")]
    WeightsOfInterval,
    /// An interval of a choice that is no quantile.
    #[error("only a quantile has an interval; ask for a quantile, or leave out the interval")]
    IntervalOfMostCommon,
    /// A way to choose that this version does not know.
    #[error("there is no chooser {0}; 1 is the exponential mechanism, and 2 report noisy max")]
    Chooser(i32),
    /// Data without rows.
    #[error("the data set has no rows")]
    NoRows,
    /// Too many rows.
    #[error("the data set has more than {most} rows")]
    TooManyRows {
        /// Maximum number of rows.
        most: usize,
    },
    /// Too many candidates to weigh.
    #[error(
        "a synthetic database of {rows} rows over {cells} cells with {predicates} predicates has \
         too many candidates to weigh; use fewer columns, rows or predicates"
    )]
    TooManyCandidates {
        /// Rows of the synthetic database.
        rows: u32,
        /// Cells.
        cells: usize,
        /// Predicates.
        predicates: usize,
    },
    /// An invalid size of a synthetic table.
    #[error("{0}")]
    Synthetic(&'static str),
    /// A price too small for the releases that it must pay for.
    #[error("the price is too small to be shared by all that it must pay for; pay more")]
    TooLittle,
    /// Pieces that are no interval.
    #[error("pieces must cover an interval within 2^62, each beginning right after the one before")]
    Pieces,
    /// Losses that a grid can't hold.
    #[error("the losses need a common step above 0, and at most 65536 steps")]
    LossGrid,
    /// Halfspaces of too many dimensions.
    #[error("halfspaces over {{0,1}}^{0} can't be listed; 1 to 4 dimensions can")]
    Dimensions(u32),
    /// A session without updates left.
    #[error(
        "the session has used all of its {updates} updates and answers no more; open another one, for \
         more queries or with more updates"
    )]
    SessionExhausted {
        /// Its total number of updates.
        updates: u32,
    },
    /// Invalid parameters of a session.
    #[error("{0}")]
    Session(&'static str),
}
