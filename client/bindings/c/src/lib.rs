//! The client for C and C++: [`bandana_bindings`] behind opaque pointers.
//!
//! It has no logic but that of the border: texts, pointers, and panics that end here.
#![allow(non_camel_case_types, reason = "names of the header")]

mod border;
pub mod choices;
pub mod client;
pub mod settings;
pub mod steps;
mod text;

pub use border::bandana_client;
