//! Errors of trusted-mode algorithms.

use thiserror::Error;

/// Why something was refused. Nothing was spent and no state changed.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ZcdpError {
    /// A ρ that no noise can be made for.
    #[error(
        "rho is {rho}; it must be a finite number above 0, from 1e-7 to 1e6: choose a larger \
         one for less noise, or a smaller one for more privacy"
    )]
    Rho {
        /// The value that was given.
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
    #[error("{count} arms; expected 2 to {max}")]
    Arms {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// An arm that does not exist.
    #[error("there is no arm {arm}; they are numbered from 0 to {last}")]
    NoSuchArm {
        /// The number that was given.
        arm: usize,
        /// The last one there is.
        last: usize,
    },
    /// A vector where a number should be.
    #[error("the experiment has numbered arms; expected a number, found a vector")]
    NotAVector,
    /// A number where a vector should be.
    #[error("the experiment has vectors; expected the vector that was played, found a number")]
    NotANumber,
    /// A horizon without a round.
    #[error("the horizon is 0; expected at least one round")]
    Horizon,
    /// A parameter out of range.
    #[error("{name} is {value}; expected {expected}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// The value that was given.
        value: f64,
        /// What was expected.
        expected: &'static str,
    },
    /// Vectors of different lengths.
    #[error("action {action} has {found} coordinates; expected {expected}, as many as the others")]
    Dimension {
        /// Number of the action.
        action: usize,
        /// Its coordinates.
        found: usize,
        /// Those that were expected.
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
        /// Dimensions that they span.
        rank: usize,
        /// Dimensions there are.
        dimension: usize,
    },
    /// A statistic is due; its noise must come first.
    #[error("a statistic is due: give its noise before more rewards")]
    NoiseDue,
    /// No statistic is due.
    #[error("no statistic is due; noise is given to one that is, once")]
    NothingDue,
    /// Noise of a wrong size.
    #[error("{found} numbers of noise; expected {expected}")]
    NoiseLength {
        /// Numbers that were given.
        found: usize,
        /// Numbers that were expected.
        expected: usize,
    },
    /// More rewards than the sums can hold.
    #[error("more than {max} rewards; start a new experiment")]
    Full {
        /// How many there can be.
        max: u64,
    },
    /// A matrix that arithmetic could not invert.
    #[error("the actions are so nearly dependent that arithmetic fails; rescale or drop some")]
    Singular,
}
