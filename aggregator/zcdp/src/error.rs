//! Errors of trusted-mode algorithms.

use thiserror::Error;

/// The reason for a refusal. No budget was spent and the state is unchanged.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ZcdpError {
    /// A ρ for which noise can't be represented.
    #[error(
        "rho is {rho}; it must be a finite number above 0, from 1e-7 to 1e6: choose a larger \
         one for less noise, or a smaller one for more privacy"
    )]
    Rho {
        /// The given value.
        rho: f64,
    },
    /// A reward out of its range, or not a number.
    #[error(
        "a reward is not in the declared range {low} to {high}: change the range or the reward"
    )]
    Reward {
        /// Lower end of the range.
        low: f64,
        /// Upper end of the range.
        high: f64,
    },
    /// Too few arms or actions.
    #[error("there are {count} arms; expected 2 to {max}")]
    Arms {
        /// Number of arms or actions.
        count: usize,
        /// Maximum number.
        max: usize,
    },
    /// An unknown arm.
    #[error("there is no arm {arm}; they are numbered from 0 to {last}")]
    NoSuchArm {
        /// The given index.
        arm: usize,
        /// The last valid index.
        last: usize,
    },
    /// A vector in place of an index.
    #[error("the experiment has numbered arms; expected a number, found a vector")]
    NotAVector,
    /// An index in place of a vector.
    #[error("the experiment has vectors; expected the vector that was played, found a number")]
    NotANumber,
    /// A horizon of 0.
    #[error("the horizon is 0; expected at least one round")]
    Horizon,
    /// A parameter out of range.
    #[error("{name} is {value}; expected {expected}")]
    Parameter {
        /// The parameter's name.
        name: &'static str,
        /// The given value.
        value: f64,
        /// The permitted values.
        expected: &'static str,
    },
    /// Vectors of different lengths.
    #[error("action {action} has {found} coordinates; expected {expected}, as many as the others")]
    Dimension {
        /// Number of the action.
        action: usize,
        /// Its number of coordinates.
        found: usize,
        /// The expected number.
        expected: usize,
    },
    /// A coordinate that is not a number.
    #[error("action {action} has a coordinate that is not a finite number")]
    NotFinite {
        /// Number of the action.
        action: usize,
    },
    /// A zero vector.
    #[error("action {action} is zero; such an action teaches nothing: leave it out")]
    Zero {
        /// Number of the action.
        action: usize,
    },
    /// A vector that is too long.
    #[error("action {action} has the norm {norm}; expected at most 1: divide all by the largest")]
    Norm {
        /// Number of the action.
        action: usize,
        /// Its Euclidean norm.
        norm: f64,
    },
    /// Vectors that don't span their space.
    #[error(
        "the actions span {rank} of {dimension} dimensions; expected all: drop coordinates that \
         depend on others, or add an action"
    )]
    Dependent {
        /// Dimension of the span.
        rank: usize,
        /// Dimension of the space.
        dimension: usize,
    },
    /// A statistic is due and must be released first.
    #[error("a statistic is due: give its noise before more rewards")]
    NoiseDue,
    /// No statistic is due.
    #[error("no statistic is due; noise is given to one that is, once")]
    NothingDue,
    /// Noise of the wrong length.
    #[error("there are {found} numbers of noise; expected {expected}")]
    NoiseLength {
        /// The given length.
        found: usize,
        /// The expected length.
        expected: usize,
    },
    /// More rewards than the sums can hold.
    #[error("more than {max} rewards; start a new experiment")]
    Full {
        /// Maximum number of rewards.
        max: u64,
    },
    /// A matrix that is numerically singular.
    #[error("the actions are so nearly dependent that arithmetic fails; rescale or drop some")]
    Singular,
}
