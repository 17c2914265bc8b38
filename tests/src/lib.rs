//! What the end-to-end tests share, and the generators of committed files.

pub mod committed;
pub mod harness;
pub mod page;
pub mod recorder;
pub mod vectors;
pub mod watched_server;
pub mod wire_code;

/// The README's code, compiled as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
