//! Fuzz targets: functions of bytes that must not panic, whatever the bytes are.
//!
//! Each of [`TARGETS`] has a folder of inputs in `corpus/`, which a test replays with `cargo test`.
//! `.ci/fuzz` looks for more with libFuzzer, by the programs in `libfuzzer/`. An input that made
//! one of them panic stays in the folder when the cause is mended.

mod channel;
mod device;
mod input;
#[cfg(feature = "server")]
mod server;
mod wire;

/// A function that must not panic, by the name of its folder.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("canonical", wire::canonical),
    ("channel", channel::channel),
    ("device", device::device),
    ("disclosures", device::disclosures),
    ("packed", wire::packed),
    ("policy", wire::policy),
    ("signatures", wire::signatures),
    ("specification", wire::specification),
    ("upload", wire::upload),
    #[cfg(feature = "server")]
    ("draft", server::draft),
    #[cfg(feature = "server")]
    ("configuration", server::configuration),
    #[cfg(feature = "server")]
    ("key-file", server::key_file),
    #[cfg(feature = "server")]
    ("parquet", server::parquet),
    #[cfg(feature = "server")]
    ("requests", server::requests),
    #[cfg(feature = "server")]
    ("rows", server::rows),
    #[cfg(feature = "server")]
    ("tokens", server::tokens),
    #[cfg(feature = "server")]
    ("trusted-state", server::trusted_state),
    #[cfg(feature = "server")]
    ("where", server::selection),
];

/// Runs the target of this name.
///
/// # Panics
/// When the target does, or there is none.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, target) = target.expect("a target of this name");
    target(data);
}
