//! Exact noise on a lattice, drawn from integers.
//!
//! A floating-point sample of a Laplace or Gaussian distribution is inexact. Some floats never
//! occur, and their set reveals the value that the noise was added to (Mironov, "On significance of
//! the least significant bits for differential privacy", 2012). So noise here is a whole number of
//! lattice steps, its parameter is a rational number, and the path from random words to the noise
//! uses no float.
//!
//! - [`Lattice`]: the granularity, rounding to it, and the effect of rounding on a sensitivity.
//! - [`DiscreteLaplace`], [`DiscreteGaussian`]: the samplers of Canonne, Kamath and Steinke,
//!   "The discrete Gaussian for differential privacy", 2020.
//! - [`bernoulli`], [`bernoulli_exp`]: the biased coins that these use.
//! - [`Ratio`]: positive rational numbers, and conversion from floats, rounded up or down.
//! - [`secure_generator`]: the source of randomness outside tests.
//!
//! ```
//! use bandana_mechanisms::noise::{DiscreteGaussian, DiscreteLaplace, Ratio, secure_generator};
//! let mut rng = secure_generator()?;
//! // A count, which one person changes by 1, with epsilon = 1/2.
//! let noisy_count = DiscreteLaplace::new(Ratio::new(2, 1)?).release(1_000, &mut rng);
//! // The same with rho = 1/8: the variance is 1/(2 rho).
//! let other = DiscreteGaussian::new(Ratio::new(4, 1)?).release(1_000, &mut rng);
//! assert!((900..1_100).contains(&noisy_count) && (900..1_100).contains(&other));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Privacy
//! The time of a draw depends on its result, as with every known sampler of these distributions: an
//! attacker who can time a release to within nanoseconds learns something about its noise.

pub(crate) mod coin;
mod gaussian;
mod laplace;
mod lattice;
mod ratio;
mod source;

pub use coin::{bernoulli, bernoulli_exp};
pub use gaussian::DiscreteGaussian;
pub use laplace::DiscreteLaplace;
pub use lattice::{Lattice, LatticeError};
pub use ratio::{Ratio, RatioError};
pub use source::{NoEntropy, secure_generator};

/// Largest magnitude of a release: 2^62 lattice steps. Larger values are clamped before the noise
/// is added, and larger results afterwards, which is post-processing.
pub const STEPS_MAX: i64 = 1 << 62;

/// The sum of a value and its noise, clamped.
///
/// The noise may have been clamped to 2^63 - 1 before: with values within 2^62 the sum then lies
/// beyond 2^62 with or without that clamping, so the result is the same.
fn clamped_sum(value: i64, noise: i64) -> i64 {
    let value = i128::from(value.clamp(-STEPS_MAX, STEPS_MAX));
    let sum = (value + i128::from(noise)).clamp(-i128::from(STEPS_MAX), i128::from(STEPS_MAX));
    i64::try_from(sum).unwrap_or(STEPS_MAX)
}
