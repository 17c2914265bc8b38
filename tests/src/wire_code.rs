//! The Rust code and the descriptors of the protobuf messages and services, from
//! `proto/`.
//!
//! Both are generated here, by protox and tonic-prost-build without `protoc`, and
//! committed under `shared/src/wire`, so that whoever builds the crates needs
//! neither.

use std::path::Path;

use anyhow::Context as _;
use prost_types::FileDescriptorSet;

/// Where the generated code is committed, from the root of the repository.
pub const PATH: &str = "shared/src/wire/bandana.v1.rs";

/// Where the descriptors are committed, which the server tells its callers.
pub const DESCRIPTORS_PATH: &str = "shared/src/wire/bandana.v1.binpb";

const PROTOS: [&str; 5] = [
    "bandana/v1/specification.proto",
    "bandana/v1/device.proto",
    "bandana/v1/operator.proto",
    "bandana/v1/curator.proto",
    "bandana/v1/trusted.proto",
];

/// Compiles the `.proto` files below `root`, comments included.
///
/// # Errors
/// When a file can't be read or does not compile.
pub fn descriptors(root: &Path) -> anyhow::Result<FileDescriptorSet> {
    Ok(protox::compile(PROTOS, [root.join("proto")])?)
}

/// Generates the code from the descriptors.
///
/// # Errors
/// When it can't be written or read.
pub fn generate(descriptors: &FileDescriptorSet) -> anyhow::Result<String> {
    let out = tempfile::tempdir()?;
    tonic_prost_build::configure()
        .out_dir(out.path())
        .emit_rerun_if_changed(false)
        .bytes(".")
        .client_mod_attribute(".", "#[cfg(feature = \"services\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"services\")]")
        .compile_fds(descriptors.clone())?;
    let path = out.path().join("bandana.v1.rs");
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}
