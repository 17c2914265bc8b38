//! Exact noise on a lattice, drawn from integers.
//!
//! A floating-point sample of a Laplace or Gaussian distribution is not one: some floats
//! are never reached, and which ones tells what the noise was added to (Mironov, "On
//! significance of the least significant bits for differential privacy", 2012). So noise
//! here is a whole number of lattice steps, its parameter is a rational number, and no
//! float is on the way from random words to the noise.
//!
//! - [`Lattice`]: the granularity, rounding to it, and what rounding adds to a sensitivity.
//! - [`DiscreteLaplace`], [`DiscreteGaussian`]: the samplers of Canonne, Kamath and Steinke,
//!   "The discrete Gaussian for differential privacy", 2020.
//! - [`bernoulli`], [`bernoulli_exp`]: the coins that they are made of.
//! - [`Ratio`]: positive rational numbers, and floats as such, rounded to a chosen side.
//! - [`secure_generator`]: the randomness of whatever is not a test.
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
//! How long a draw takes depends on the draw, as it does with every known sampler of these:
//! whoever can time a release to within nanoseconds learns something about its noise.

mod coin;
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

/// Largest magnitude of what is released: 2^62 lattice steps. Values beyond it are clamped
/// to it, and so are releases, which is post-processing.
pub const STEPS_MAX: i64 = 1 << 62;

/// A value and its noise, clamped.
///
/// The noise may have been clamped to 2^63 - 1 before: from values within 2^62 it then leads
/// beyond 2^62 either way, and the result is the same.
fn clamped_sum(value: i64, noise: i64) -> i64 {
    let value = i128::from(value.clamp(-STEPS_MAX, STEPS_MAX));
    let sum = (value + i128::from(noise)).clamp(-i128::from(STEPS_MAX), i128::from(STEPS_MAX));
    i64::try_from(sum).unwrap_or(STEPS_MAX)
}
