//! Generated files that are committed to the repository.

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
    let app = (APP.to_owned(), documented_app()?.into_bytes());
    let mut files = vec![descriptors, configuration, app];
    let texts = wire_code.into_iter().chain(crate::vectors::generate()?);
    files.extend(texts.map(|(path, content)| (path, content.into_bytes())));
    Ok(files)
}

/// The app of the README's chapter on embedding, as a module of the programs that tests start.
const APP: &str = "tests/src/bin/aggregator-under-test/documented.rs";

/// The way into the module.
const RUN: &str = "
/// Runs it.
pub(super) fn run() -> anyhow::Result<()> {
    main().map_err(|error| anyhow::anyhow!(\"{error}\"))
}
";

fn documented_app() -> anyhow::Result<String> {
    let page = std::fs::read_to_string(root().join("README.md"))?;
    let chapter = page.split("\n## ").find(|chapter| chapter.starts_with("Embed it"));
    let block = chapter.and_then(|chapter| chapter.split("```rust,no_run\n").nth(1));
    let code =
        block.and_then(|block| block.split("```").next()).context("the README has no app")?;
    Ok(format!(
        "//! The app of the README's chapter on embedding, taken from there by `regenerate`.\n\n\
         #![allow(clippy::print_stdout, clippy::print_stderr, reason = \"an app shows something\")]\n\n\
         {code}{RUN}"
    ))
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

/// Compares every generated file with the committed one.
///
/// # Errors
/// When one of them differs, with the command that regenerates it.
pub fn check() -> anyhow::Result<()> {
    for (path, content) in files()? {
        let committed = std::fs::read(root().join(&path)).unwrap_or_default();
        if committed != content {
            bail!("{path} is out of date; run `cargo run -p bandana-tests regenerate`");
        }
    }
    Ok(())
}
