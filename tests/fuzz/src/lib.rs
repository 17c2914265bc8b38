//! Fuzz targets: functions of bytes that must not panic, whatever the bytes are.
//!
//! Each of [`TARGETS`] has a folder of inputs in `corpus/`, which a test replays with `cargo test`.
//! `.ci/fuzz` searches for more with libFuzzer, through the programs in `libfuzzer/`. An input that
//! caused a panic stays in the folder after the fix.

#![expect(clippy::missing_panics_doc, reason = "a panic is what every target has to say")]

#[cfg(feature = "server")]
mod arms;
mod channel;
#[cfg(feature = "server")]
mod database;
mod device;
mod input;
#[cfg(feature = "server")]
mod pages;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod store;
mod wire;

#[cfg(feature = "server")]
pub use arms::arms;
pub use channel::channel;
#[cfg(feature = "server")]
pub use database::database;
pub use device::{device, disclosures};
#[cfg(feature = "server")]
pub use pages::pages;
#[cfg(feature = "server")]
pub use server::{
    configuration, draft, key_file, parquet, requests, rows, tokens, trusted_state, where_clause,
};
#[cfg(feature = "server")]
pub use store::store;
pub use wire::{canonical, packed, policy, signatures, specification, upload};

/// A function that must not panic, with the name of its folder.
pub type Target = (&'static str, fn(&[u8]));

/// All targets. Each program contains one of them only: libFuzzer scans all counters of a program
/// after every call.
pub const TARGETS: &[Target] = &[
    ("canonical", canonical),
    ("channel", channel),
    ("device", device),
    ("disclosures", disclosures),
    ("packed", packed),
    ("policy", policy),
    ("signatures", signatures),
    ("specification", specification),
    ("upload", upload),
    #[cfg(feature = "server")]
    ("arms", arms),
    #[cfg(feature = "server")]
    ("configuration", configuration),
    #[cfg(feature = "server")]
    ("database", database),
    #[cfg(feature = "server")]
    ("draft", draft),
    #[cfg(feature = "server")]
    ("key-file", key_file),
    #[cfg(feature = "server")]
    ("pages", pages),
    #[cfg(feature = "server")]
    ("parquet", parquet),
    #[cfg(feature = "server")]
    ("requests", requests),
    #[cfg(feature = "server")]
    ("rows", rows),
    #[cfg(feature = "server")]
    ("store", store),
    #[cfg(feature = "server")]
    ("tokens", tokens),
    #[cfg(feature = "server")]
    ("trusted-state", trusted_state),
    #[cfg(feature = "server")]
    ("where-clause", where_clause),
];
