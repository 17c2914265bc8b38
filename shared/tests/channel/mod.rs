//! The channel and its curves against arbitrary-precision arithmetic.
//!
//! Nothing here compares floating-point numbers with floating-point numbers:
//! integers of the channel are compared with exact binary fractions, and with
//! exponentials and logarithms that are correctly rounded to 256 bits.

#![cfg(test)]
#![expect(clippy::float_cmp, reason = "results that are exact are compared exactly")]

mod cases;
mod curves;
mod draws;
mod estimates;
mod exact;
mod floors;
mod growth;
mod kary;
mod loss;
