//! The Rust code and the descriptors of the protobuf messages and services, from
//! `proto/`.
//!
//! Both are generated here, by protox and tonic-prost-build without `protoc`, and committed under
//! `shared/src/wire`, so that building the crates needs neither.

use std::path::Path;

use anyhow::Context as _;
use prost_types::FileDescriptorSet;
use tonic_prost_build::Builder;

/// The folder of the generated code, from the root of the repository.
const FOLDER: &str = "shared/src/wire/v1";

/// The package of all protos, and its Rust module.
const PACKAGE: (&str, &str) = (".bandana.v1", "crate::wire::v1");

/// The file of the descriptors, which server reflection serves.
pub const DESCRIPTORS_PATH: &str = "shared/src/wire/bandana.v1.binpb";

const PROTOS: [&str; 8] = [
    "bandana/v1/specification.proto",
    "bandana/v1/transparency.proto",
    "bandana/v1/device.proto",
    "bandana/v1/gateway.proto",
    "bandana/v1/shuffling.proto",
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

/// Generates the code from the descriptors: paths from the root of the repository, and contents.
/// All messages are one file. The services of each proto are a separate file, as most devices don't
/// need them.
///
/// # Errors
/// When the code can't be written or read.
pub fn generate(descriptors: &FileDescriptorSet) -> anyhow::Result<Vec<(String, String)>> {
    let messages =
        compile(tonic_prost_build::configure().bytes("."), services_of(descriptors, ""))?;
    let mut files = vec![(format!("{FOLDER}/messages.rs"), messages)];
    for proto in descriptors.file.iter().filter(|proto| !proto.service.is_empty()) {
        let (package, messages) = PACKAGE;
        let builder = tonic_prost_build::configure().extern_path(package, messages);
        let code = compile(builder, services_of(descriptors, proto.name()))?;
        let name = Path::new(proto.name()).with_extension("rs");
        let name = name.file_name().and_then(|name| name.to_str()).context("a proto's name")?;
        files.push((format!("{FOLDER}/{name}"), code));
    }
    Ok(files)
}

/// The descriptors with the services of this proto only.
fn services_of(descriptors: &FileDescriptorSet, proto: &str) -> FileDescriptorSet {
    let mut descriptors = descriptors.clone();
    for other in descriptors.file.iter_mut().filter(|other| other.name() != proto) {
        other.service.clear();
    }
    descriptors
}

fn compile(builder: Builder, descriptors: FileDescriptorSet) -> anyhow::Result<String> {
    let out = tempfile::tempdir()?;
    builder.out_dir(out.path()).emit_rerun_if_changed(false).compile_fds(descriptors)?;
    let path = out.path().join("bandana.v1.rs");
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}
