//! Shared code of end-to-end tests, and the generators of committed files.

pub mod attacked;
pub mod attacks;
pub mod authority;
pub mod browser;
pub mod committed;
pub mod database_way;
pub mod disk;
pub mod driven_app;
pub mod fake_server;
pub mod harness;
pub mod page;
pub mod parquet_table;
pub mod postgres;
pub mod process_usage;
pub mod public_log;
pub mod raw_http2;
pub mod siege;
pub mod steps;
pub mod suite;
pub mod test_clock;
pub mod trusted_app;
pub mod vectors;
pub mod watched_server;
pub mod wire_code;

/// The README's code, compiled as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
