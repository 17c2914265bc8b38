//! Specifications: their canonical encoding, their digest, and refusals.

#![cfg(test)]
#![cfg(feature = "messages")]

mod encoding;
mod refusals;
mod samples;
#[cfg(feature = "signing")]
mod signing;
