//! The Rust code of the protobuf messages and services, from `proto/`.
//!
//! It is generated here, by protox and tonic-prost-build without `protoc`, and
//! committed under `shared/src/wire`, so that whoever builds the crates needs
//! neither.

use std::path::Path;

use anyhow::Context as _;

/// Where the generated code is committed, from the root of the repository.
pub const PATH: &str = "shared/src/wire/bandana.v1.rs";

const PROTOS: [&str; 3] =
    ["bandana/v1/specification.proto", "bandana/v1/device.proto", "bandana/v1/operator.proto"];

/// Generates the code from the `.proto` files below `root`.
///
/// # Errors
/// When a file can't be read or does not compile.
pub fn generate(root: &Path) -> anyhow::Result<String> {
    let descriptors = protox::compile(PROTOS, [root.join("proto")])?;
    let out = tempfile::tempdir()?;
    tonic_prost_build::configure()
        .out_dir(out.path())
        .emit_rerun_if_changed(false)
        .bytes(".")
        .client_mod_attribute(".", "#[cfg(feature = \"services\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"services\")]")
        .compile_fds(descriptors)?;
    let path = out.path().join("bandana.v1.rs");
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}
