//! Privacy accounting: the total loss of many private reports.
//!
//! - [`nano_nats`], [`delta_units`]: the integer units of a device's ledger.
//! - [`loss`], [`delta`], [`guarantee`]: (ε, δ)-differential privacy.
//! - [`basic`], [`advanced`], [`optimal`], [`heterogeneous`]: composition of
//!   mechanisms that are each purely ε-differentially private.
//! - [`gaussian`], [`concentrated`], [`renyi`]: mechanisms without pure differential privacy.
//! - [`shuffling`]: reports that an observer sees only among others.
//! - [`planner`]: the number and size of reports that fit a budget.
//!
//! A ledger admits by basic composition in integers. The other modules are for planning and for
//! statements about a running experiment.
//!
//! # Rounding
//! Every result is a bound that holds for the exact parameters given: losses and δ are rounded up,
//! numbers of reports down. The error analyses rest on IEEE 754 arithmetic and on `libm`'s `exp`,
//! `expm1`, `log` and `log1p` being within one unit in the last place. A result that exceeds every
//! float is infinite, which is trivially a bound.
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
pub mod delta_units;
pub mod gaussian;
pub mod guarantee;
pub mod heterogeneous;
pub mod loss;
pub mod nano_nats;
mod ones;
pub mod optimal;
mod order;
pub mod planner;
pub mod renyi;
mod rounding;
pub mod shuffling;
