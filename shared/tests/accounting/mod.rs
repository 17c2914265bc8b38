//! Privacy accounting against arbitrary-precision arithmetic.
//!
//! A bound is compared with the exact value it bounds, computed with 256 bits
//! by another formula or by enumeration, and never with another float.

#![cfg(test)]
#![expect(clippy::float_cmp, reason = "results that are exact are compared exactly")]

mod advanced;
mod cases;
mod concentrated;
mod exact;
mod heterogeneous;
mod ledger;
mod losses;
mod optimal;
mod planner;
mod renyi;
mod shuffling;
