//! The page of stored formats names every kind of stored state with its version, and every table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The texts of all files below a folder with this extension.
fn texts(folder: &Path, extension: &str) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // Tests have kinds that nobody stores.
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            found.extend(texts(&path, extension)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(std::fs::read_to_string(&path)?);
        }
    }
    Ok(found)
}

/// The kinds of stored state that a source defines, each with its version.
fn kinds(source: &str) -> anyhow::Result<Vec<(String, u16)>> {
    let of_program = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    for (place, _) in of_program.match_indices("const MAGIC: [u8; 4] = *b\"BD") {
        let rest = of_program.get(place..).unwrap_or_default();
        let magic = rest.split('"').nth(1).context("no magic word")?;
        let version = rest.split("const VERSION: u16 = ").nth(1).context("no version")?;
        let version = version.split(';').next().context("no end")?.parse()?;
        found.push((magic.to_owned(), version));
    }
    Ok(found)
}

#[test]
fn the_page_of_formats_has_every_kind_with_its_version_and_every_table() -> anyhow::Result<()> {
    let root = root();
    let page = std::fs::read_to_string(root.join("docs/formats.md"))?;
    let mut kinds_found = BTreeSet::new();
    for source in [
        "client/src",
        "aggregator/src",
        "aggregator/store/src",
        "aggregator/relay/src",
        "aggregator/queries/src",
    ] {
        for text in texts(&root.join(source), "rs")? {
            kinds_found.extend(kinds(&text)?);
        }
    }
    ensure!(kinds_found.len() > 8, "{kinds_found:?}");
    for (magic, version) in &kinds_found {
        ensure!(page.contains(&format!("| `{magic}` | {version} |")), "{magic}, version {version}");
    }

    let mut tables = BTreeSet::new();
    for folder in ["embedded", "postgres"] {
        let migrations = root.join("aggregator/store/src").join(folder).join("migrations");
        for text in texts(&migrations, "sql")? {
            for rest in text.split("TABLE ").skip(1) {
                let name: String =
                    rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                tables.insert(name);
            }
        }
    }
    tables.remove("new_experiment");
    tables.remove("");
    ensure!(tables.len() > 15, "{tables:?}");
    for table in tables {
        ensure!(page.contains(&format!("`{table}`")), "the table {table} is missing");
    }
    Ok(())
}
