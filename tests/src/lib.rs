//! What the end-to-end tests share, and the generators of committed files.

pub mod committed;
pub mod harness;
pub mod vectors;
pub mod wire_code;
