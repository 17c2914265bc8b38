//! Files that a program makes and the repository keeps.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use prost::Message as _;

use crate::wire_code;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every generated file, with its path from the root and its content.
///
/// # Errors
/// When one of them can't be generated.
pub fn files() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let descriptors = wire_code::descriptors(&root())?;
    let wire_code = wire_code::generate(&descriptors)?;
    let descriptors = (wire_code::DESCRIPTORS_PATH.to_owned(), descriptors.encode_to_vec());
    let configuration = bandana_aggregator::configuration::documented_file();
    let configuration = ("aggregator/bandana.toml".to_owned(), configuration.into_bytes());
    let mut files = vec![descriptors, configuration];
    let texts = wire_code.into_iter().chain(crate::vectors::generate()?);
    files.extend(texts.map(|(path, content)| (path, content.into_bytes())));
    Ok(files)
}

/// Writes every generated file.
///
/// # Errors
/// When one of them can't be generated or written.
pub fn write() -> anyhow::Result<()> {
    for (path, content) in files()? {
        let path = root().join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Compares every generated file with what is committed.
///
/// # Errors
/// When one of them differs, with the command that mends it.
pub fn check() -> anyhow::Result<()> {
    for (path, content) in files()? {
        let committed = std::fs::read(root().join(&path)).unwrap_or_default();
        if committed != content {
            bail!("{path} is out of date; run `cargo run -p bandana-tests --bin regenerate`");
        }
    }
    Ok(())
}
