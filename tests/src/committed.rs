//! Files that a program makes and the repository keeps.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every generated file, with its path from the root and its content.
///
/// # Errors
/// When one of them can't be generated.
pub fn files() -> anyhow::Result<Vec<(String, String)>> {
    let wire_code = (crate::wire_code::PATH.to_owned(), crate::wire_code::generate(&root())?);
    let configuration = bandana_aggregator::configuration::documented_file();
    let mut files = vec![wire_code, ("aggregator/bandana.toml".to_owned(), configuration)];
    files.extend(crate::vectors::generate()?);
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
        let committed = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
        if committed != content {
            bail!("{path} is out of date; run `cargo run -p bandana-tests --bin regenerate`");
        }
    }
    Ok(())
}
