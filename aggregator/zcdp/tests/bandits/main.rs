//! The guarantees of trusted mode, checked from outside.

#![cfg(test)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "instances are small enough to go through"
)]

mod audit;
mod checker;
mod coupling;
mod protocol;
