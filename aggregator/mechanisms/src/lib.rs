//! Mechanisms of differential privacy, exact: noise drawn from integers, and private queries.
//!
//! - [`noise`]: the discrete Laplace and Gaussian distributions on a lattice, without a float
//!   between random words and the noise.
//! - [`queries`]: counts, choices, synthetic data and private multiplicative weights about rows
//!   that a trusted curator has, each with its price. They are behind the feature `queries`, which is on by
//!   default.
//!
//! Nothing here keeps state, reads a clock or knows of a network.
//!
//! ```
//! use bandana_mechanisms::noise::{Ratio, secure_generator};
//! use bandana_mechanisms::queries::gaussian::GaussianMechanism;
//! use bandana_mechanisms::queries::laplace::LaplaceMechanism;
//! use bandana_mechanisms::queries::price::{ConcentratedLoss, PureLoss};
//! let mut rng = secure_generator()?;
//! // A histogram of 500 people. Whoever changes a row takes 1 from one cell and gives it to
//! // another: 2 in the sum of magnitudes, and a Euclidean distance whose square is 2.
//! let histogram = [120, 80, 300];
//! let laplace = LaplaceMechanism::new(2, PureLoss::new(0.5)?)?;
//! let gaussian = GaussianMechanism::new(Ratio::whole(2)?, ConcentratedLoss::new(0.125)?)?;
//! println!("{:?} +- {}", laplace.release(&histogram, &mut rng), laplace.accuracy(3, 0.05)?);
//! println!("{:?} +- {}", gaussian.release(&histogram, &mut rng), gaussian.accuracy(3, 0.05)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod measure;
pub mod noise;
#[cfg(feature = "queries")]
pub mod queries;
