//! Every public item of the crate has an example that runs, except one-line accessors, which the
//! example of their type shows.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Items without an example of their own, each with its reason.
const EXCEPTIONS: [(&str, &str); 1] =
    [("Sealed", "in a private module: nobody else can name it, which is its purpose")];

const KINDS: [&str; 6] = ["struct ", "enum ", "trait ", "type ", "fn ", "async fn "];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether the documentation among these lines, which begins with `mark`, has a code block that is
/// compiled and, unless it needs a network, run.
fn has_example(lines: &[&str], mark: &str) -> bool {
    let docs = lines.iter().filter_map(|line| line.strip_prefix(mark));
    let fences = docs.filter_map(|line| line.trim().strip_prefix("```"));
    // The second fence of two ends a block.
    fences.step_by(2).any(|language| matches!(language, "" | "no_run"))
}

/// Whether the function that begins with these lines takes only `self`, and its body is one line.
fn is_accessor(lines: &[&str]) -> bool {
    let Some(end) = lines.iter().position(|line| line.ends_with('{')) else {
        return false;
    };
    let signature = lines[..=end].concat();
    let takes_itself = signature.contains("(self)") || signature.contains("(&self)");
    takes_itself && lines.get(end + 2).is_some_and(|line| line.trim() == "}")
}

/// The name of a public item that this line begins.
fn public(line: &str) -> Option<&str> {
    let item = line.trim().strip_prefix("pub ")?;
    let item = item
        .strip_prefix("const fn ")
        .or_else(|| KINDS.iter().find_map(|kind| item.strip_prefix(kind)))?;
    item.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn every_public_item_has_an_example() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths)?;
    let (mut seen, mut bare) = (BTreeSet::new(), Vec::new());
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(name) = public(line) else { continue };
            seen.insert(name.to_owned());
            let above = lines[..at].iter().rev().map(|line| line.trim_start());
            let is_about_it = |line: &&str| line.starts_with("///") || line.starts_with("#[");
            let mut above: Vec<&str> = above.take_while(is_about_it).collect();
            above.reverse();
            // With a feature off, the remaining variant has its documentation in the other variant.
            let is_rest = above.iter().any(|line| line.starts_with("#[cfg(not("));
            let excused = is_rest || EXCEPTIONS.iter().any(|(excused, _)| *excused == name);
            if !excused && !has_example(&above, "///") && !is_accessor(&lines[at..]) {
                bare.push(format!("{}:{}: {name}", path.display(), at + 1));
            }
        }
    }
    let guide = fs::read_to_string(root.join("lib.rs"))?;
    for module in guide.lines().filter_map(|line| line.strip_prefix("pub mod ")) {
        let path = root.join(module.replace(';', ".rs"));
        let text = fs::read_to_string(&path)?;
        if !has_example(&text.lines().collect::<Vec<_>>(), "//!") {
            bare.push(path.display().to_string());
        }
    }
    assert!(bare.is_empty(), "these have no example that runs:\n{}", bare.join("\n"));

    // The exports of the crate were found: the scan works.
    let exports = guide.split("pub use ").skip(1).filter_map(|export| export.split(';').next());
    let words = exports.flat_map(|export| export.split(|c: char| !c.is_alphanumeric()));
    let types = words.filter(|word| word.starts_with(char::is_uppercase));
    let missed: Vec<&str> = types.filter(|word| !seen.contains(*word)).collect();
    assert!(missed.is_empty(), "the scan has not found {missed:?}");
    Ok(())
}
