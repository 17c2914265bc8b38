//! Specifications: their canonical encoding, their digest, and what is refused.

#![cfg(test)]
#![cfg(feature = "messages")]

mod encoding;
mod refusals;
mod samples;
#[cfg(feature = "signing")]
mod signing;
