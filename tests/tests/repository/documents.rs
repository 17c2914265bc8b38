//! References in documents are valid: every link leads to a file and a heading, every path to a
//! file or folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, ensure};
use bandana_tests::committed::root;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Folders without documents or sources of the project.
const LEFT_OUT: [&str; 7] = [".git", "target", "corpus", "node_modules", "dist", "packed", "wasm"];

/// Suffixes of file names in documents.
const ENDINGS: [&str; 6] = [".rs", ".proto", ".toml", ".md", ".sql", "/"];

/// A page: its anchors and its links.
#[derive(Debug, Default)]
struct Page {
    headings: BTreeSet<String>,
    links: Vec<String>,
    paths: Vec<String>,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.headings.extend(heading.take().map(|title| anchor(&title)));
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Text(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    page.paths.push(code.into_string());
                }
                _ => {}
            }
        }
        page.paths.retain(|path| is_path(path));
        page
    }
}

/// Whether a code span is meant as a path in the project.
fn is_path(code: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    let inside = code.contains('/') && !code.starts_with(['/', '.']) && code.chars().all(plain);
    inside && ENDINGS.iter().any(|ending| code.ends_with(ending))
}

/// The anchor of a heading.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// All files and folders below this one, as relative paths.
fn everything(root: &Path, folder: &Path, found: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        found.insert(entry.path().strip_prefix(root)?.to_owned());
        if entry.file_type()?.is_dir() {
            everything(root, &entry.path(), found)?;
        }
    }
    Ok(())
}

/// The path without `.` and `..`; `None`: outside the project.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => plain.pop().then_some(())?,
            _ => {}
        }
    }
    Some(plain)
}

/// The defect of a link on this page, if any.
fn fault(page: &Path, link: &str, pages: &BTreeMap<PathBuf, Page>) -> Option<&'static str> {
    if link.contains(':') {
        return None;
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.parent().unwrap_or(Path::new(""));
    let Some(target) = plain(&folder.join(path)) else { return Some("leads out of the project") };
    let target = if path.is_empty() { page.to_owned() } else { target };
    if !pages.contains_key(&target) && !root().join(&target).exists() {
        return Some("leads nowhere");
    }
    let is_there = |page: &Page| heading.is_empty() || page.headings.contains(heading);
    (!pages.get(&target).is_none_or(is_there)).then_some("leads to no heading")
}

#[test]
fn every_link_and_path_of_a_document_leads_somewhere() -> anyhow::Result<()> {
    let root = root().canonicalize()?;
    let mut files = BTreeSet::new();
    everything(&root, &root, &mut files)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(root.join(file));
        let text = text.with_context(|| format!("reading {}", file.display()))?;
        pages.insert(file.clone(), Page::read(&text));
    }
    ensure!(pages.contains_key(Path::new("README.md")), "no README in {}", root.display());
    let mut faults = Vec::new();
    for (name, page) in &pages {
        let shown = name.display();
        for link in &page.links {
            faults
                .extend(fault(name, link, &pages).map(|fault| format!("{shown}: {link} {fault}")));
        }
        let is_there = |path: &&String| files.iter().any(|file| file.ends_with(path.as_str()));
        let missing = page.paths.iter().filter(|path| !is_there(path));
        // The changelog may name files that no longer exist.
        if name != Path::new("CHANGELOG.md") {
            faults.extend(missing.map(|path| format!("{shown}: no {path}")));
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[test]
fn links_and_paths_that_lead_nowhere_are_found() {
    let page =
        Page::read("# A `b` (c)\n[x](y.md) `src/no.rs` `1/2` `cargo test`\n```sh\nz/a.rs\n```\n");
    assert_eq!(page.headings, BTreeSet::from(["a-b-c".to_owned()]));
    assert_eq!(
        (&page.links[..], &page.paths[..]),
        (&["y.md".to_owned()][..], &["src/no.rs".to_owned()][..])
    );
    let name = Path::new("docs/page.md");
    let pages = BTreeMap::from([(name.to_owned(), page)]);
    assert_eq!(fault(name, "../../x", &pages), Some("leads out of the project"));
    assert_eq!(fault(name, "no-such-page.md", &pages), Some("leads nowhere"));
    assert_eq!(fault(name, "#d", &pages), Some("leads to no heading"));
    assert_eq!(fault(name, "#a-b-c", &pages), None);
    assert_eq!(fault(name, "https://example.org", &pages), None);
}
