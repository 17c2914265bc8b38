//! Privacy accounting: what many private reports lose together.
//!
//! - [`nano_nats`]: the integer unit of a device's ledger.
//! - [`loss`], [`delta`], [`guarantee`]: (ε, δ)-differential privacy.
//! - [`basic`], [`advanced`], [`optimal`], [`heterogeneous`]: composition of
//!   mechanisms that are each purely ε-differentially private.
//! - [`gaussian`], [`concentrated`], [`renyi`]: what is not purely private.
//! - [`planner`]: how many reports fit a budget, and how large each may be.
//!
//! A ledger admits by basic composition in integers. All else is for planning
//! and for what is said about a running experiment.
//!
//! # Rounding
//! Every result is a bound that holds for the exact parameters given: losses
//! and δ are rounded up, numbers of reports down. The error analyses rest on
//! IEEE 754 arithmetic and on `libm`'s `exp`, `expm1`, `log` and `log1p` being
//! within one unit in the last place. A result that exceeds every float is
//! infinite, which promises nothing and is therefore true.
//!
//! ```
//! use bandana_shared::accounting::{advanced, basic, delta::Delta, optimal::OptimalComposition};
//! use bandana_shared::epsilon::Epsilon;
//!
//! let (one, slack) = (Epsilon::new(0.1)?, Delta::new(1e-6)?);
//! let optimal = OptimalComposition::new(one, 1000)?.loss(slack);
//! let advanced = advanced::sharp(one.into(), 1000, slack);
//! let basic = basic::repeat(one.into(), 1000);
//! assert!(optimal < advanced && advanced < basic);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod advanced;
pub mod basic;
mod binomial;
pub mod concentrated;
mod conversion;
pub mod delta;
pub mod gaussian;
pub mod guarantee;
pub mod heterogeneous;
pub mod loss;
pub mod nano_nats;
pub mod optimal;
mod order;
pub mod planner;
pub mod renyi;
mod rounding;
