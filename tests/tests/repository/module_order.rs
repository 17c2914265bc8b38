//! The order of modules: inside each crate, dependencies between rooms have no cycle.
//!
//! A room is a folder or a loose file right under `src`. A room's dependencies are read from all
//! paths in its code, tests excluded. Items defined in a crate's root are in no room. In the server,
//! few rooms name the messages of the wire.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_to_string};
use std::path::Path;

use anyhow::{Context as _, ensure};
use bandana_tests::committed::root;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Meta, UseTree};

/// Folders of code, from the repository's root.
const CRATES: [&str; 15] = [
    "shared/src",
    "client/src",
    "aggregator/learners/src",
    "aggregator/lab/src",
    "aggregator/lab/python/src",
    "aggregator/mechanisms/src",
    "aggregator/zcdp/src",
    "aggregator/edge/src",
    "aggregator/sqlite/src",
    "aggregator/store/src",
    "aggregator/relay/src",
    "aggregator/queries/src",
    "aggregator/src",
    "examples/src",
    "tests/src",
];

/// The module of messages, which stands for a room below all others.
const WIRE: &str = "wire::v1";

/// The rooms of the server's crates that name messages, each with what for. All others have types of
/// their own, and so should those of the last part.
const MAY_NAME_WIRE: [(&str, &str, &str); 18] = [
    ("aggregator/src", "api", "the services"),
    ("aggregator/src", "cli", "calls to a server"),
    ("aggregator/src", "dashboard", "calls to the services"),
    ("aggregator/src", "server", "the services of each port"),
    ("aggregator/src", "transparency", "epochs and views of the log"),
    ("aggregator/src", "views", "what operators write and read"),
    ("aggregator/edge/src", "gateway", "its published keys"),
    ("aggregator/edge/src", "operator_client", "the clients of the services"),
    ("aggregator/relay/src", "forward", "calls to a gateway, and the service of its keys"),
    ("aggregator/relay/src", "relay", "the services for devices"),
    ("aggregator/relay/src", "shuffle", "the service for reports, and calls to an aggregator"),
    ("aggregator/queries/src", "service", "the service"),
    // They should not.
    ("aggregator/src", "alarms", "the status of an upload"),
    ("aggregator/src", "ingest", "the status of an upload, requests to write a record"),
    ("aggregator/src", "registry", "answers to devices, pauses in a record"),
    ("aggregator/src", "trusted", "the status of a disclosure, specifications, answers to devices"),
    ("aggregator/store/src", "record", "records, stored as messages"),
    ("aggregator/store/src", "trusted", "trusted specifications, stored as messages"),
];

/// The crates of the server in which few rooms name messages.
const SERVER: [&str; 6] = [
    "aggregator/edge/src",
    "aggregator/sqlite/src",
    "aggregator/store/src",
    "aggregator/relay/src",
    "aggregator/queries/src",
    "aggregator/src",
];

/// The rooms that each room needs, each with a file that uses it.
type Needs = BTreeMap<String, BTreeMap<String, String>>;

/// The rooms of a crate.
#[derive(Debug, Default)]
struct Rooms {
    names: BTreeSet<String>,
    /// The rooms of items that the root re-exports, by name.
    shown: BTreeMap<String, String>,
}

/// The context of a path: the modules from the root down, and the rooms found so far.
struct Paths<'a> {
    rooms: &'a Rooms,
    module: Vec<String>,
    found: BTreeSet<String>,
}

impl Paths<'_> {
    /// Records the room that a path leads to, if any.
    fn note(&mut self, path: &[String]) {
        if path.windows(2).any(|two| two.join("::") == WIRE) {
            self.found.insert(WIRE.to_owned());
        }
        let mut module = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super") => self.module.clone(),
            _ => return,
        };
        let mut rest = path;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => {}
                "super" => drop(module.pop()),
                _ => break,
            }
            rest = others;
        }
        module.extend(rest.iter().cloned());
        let Some(name) = module.first() else { return };
        if self.rooms.names.contains(name) {
            self.found.insert(name.clone());
        } else if let Some(room) = self.rooms.shown.get(name) {
            self.found.insert(room.clone());
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_of_tests(&item.attrs) {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_of_tests(&item.attrs) {
            for path in leaves(&item.tree) {
                self.note(&path);
            }
        }
    }

    /// A macro's arguments are unparsed tokens, so paths are taken from the text.
    fn visit_macro(&mut self, called: &'ast Macro) {
        let text = called.tokens.to_string().replace(" ::", "::").replace(":: ", "::");
        let is_of_paths = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for path in text.split(|c| !is_of_paths(c)) {
            let names: Vec<String> = path.split("::").map(str::to_owned).collect();
            self.note(&names);
        }
        visit::visit_macro(self, called);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.note(&names);
        visit::visit_path(self, path);
    }
}

/// Whether an item is compiled for tests only.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
                && !condition.contains("not")
        }
        _ => false,
    })
}

/// All paths of a tree of imports.
fn leaves(tree: &UseTree) -> Vec<Vec<String>> {
    let under = |name: String, tree: &UseTree| {
        let longer = |mut path: Vec<String>| {
            path.insert(0, name.clone());
            path
        };
        leaves(tree).into_iter().map(longer).collect()
    };
    match tree {
        UseTree::Path(path) => under(path.ident.to_string(), &path.tree),
        UseTree::Name(name) => vec![vec![name.ident.to_string()]],
        UseTree::Rename(rename) => vec![vec![rename.ident.to_string()]],
        UseTree::Glob(_) => vec![Vec::new()],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

/// The rooms of a crate whose root has this code.
fn rooms(root: &syn::File) -> Rooms {
    let mut rooms = Rooms::default();
    for item in &root.items {
        if let Item::Mod(item) = item
            && !is_of_tests(&item.attrs)
        {
            rooms.names.insert(item.ident.to_string());
        }
    }
    for item in &root.items {
        let Item::Use(item) = item else { continue };
        for path in leaves(&item.tree) {
            let path: Vec<String> =
                path.into_iter().skip_while(|name| name == "crate" || name == "self").collect();
            if let [room, .., name] = &path[..]
                && rooms.names.contains(room)
            {
                rooms.shown.insert(name.clone(), room.clone());
            }
        }
    }
    rooms
}

/// The rooms that each room needs, from the code under a folder.
fn needs(source: &Path) -> anyhow::Result<Needs> {
    let root = parse(&source.join("lib.rs"))?;
    let rooms = rooms(&root);
    let mut of_tests = BTreeSet::new();
    let mut found = Needs::new();
    let mut folders = vec![source.to_path_buf()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    // Files that are test modules are skipped.
    for file in &files {
        let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod" | "lib" | "main") => file.parent().context("a file in no folder")?.into(),
            _ => file.with_extension(""),
        };
        for item in parse(file)?.items {
            if let Item::Mod(item) = item
                && item.content.is_none()
                && is_of_tests(&item.attrs)
            {
                let name = item.ident.to_string();
                of_tests.insert(folder.join(&name));
                of_tests.insert(folder.join(name).with_extension("rs"));
            }
        }
    }
    for file in files.iter().filter(|file| !of_tests.iter().any(|of| file.starts_with(of))) {
        let inside = file.strip_prefix(source)?;
        let mut module: Vec<String> = inside
            .with_extension("")
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        if module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        let Some(room) = module.first().cloned().filter(|room| rooms.names.contains(room)) else {
            continue;
        };
        let mut paths = Paths { rooms: &rooms, module, found: BTreeSet::new() };
        paths.visit_file(&parse(file)?);
        paths.found.remove(&room);
        let needed = found.entry(room).or_default();
        for name in paths.found {
            needed.entry(name).or_insert_with(|| inside.display().to_string());
        }
    }
    Ok(found)
}

fn parse(file: &Path) -> anyhow::Result<syn::File> {
    let code = read_to_string(file).with_context(|| file.display().to_string())?;
    syn::parse_file(&code).with_context(|| file.display().to_string())
}

/// A room that depends on itself, with the path of the cycle.
fn cycle(needs: &Needs) -> Option<String> {
    fn way<'a>(
        needs: &'a Needs,
        from: &'a str,
        to: &str,
        been: &mut BTreeSet<&'a str>,
    ) -> Option<String> {
        for (next, file) in needs.get(from)? {
            let step = format!("{from} needs {next} ({file})");
            if next == to {
                return Some(step);
            }
            if been.insert(next)
                && let Some(rest) = way(needs, next, to, been)
            {
                return Some(format!("{step}, {rest}"));
            }
        }
        None
    }
    needs.keys().find_map(|room| way(needs, room, room, &mut BTreeSet::new()))
}

#[test]
fn no_room_needs_another_one_that_needs_it() -> anyhow::Result<()> {
    for source in CRATES {
        let needs = needs(&root().join(source))?;
        if let Some(cycle) = cycle(&needs) {
            anyhow::bail!("{source}: {cycle}");
        }
    }
    Ok(())
}

#[test]
fn only_these_rooms_of_the_server_name_messages() -> anyhow::Result<()> {
    let mut naming = BTreeSet::new();
    for source in SERVER {
        let needs = needs(&root().join(source))?;
        let rooms = needs.into_iter().filter(|(_, needed)| needed.contains_key(WIRE));
        naming.extend(rooms.map(|(room, _)| (source, room)));
    }
    let listed = MAY_NAME_WIRE.map(|(source, room, _)| (source, room.to_owned()));
    let listed = BTreeSet::from(listed);
    let (new, gone) = (&naming - &listed, &listed - &naming);
    ensure!(new.is_empty(), "{new:?} may not name {WIRE}");
    ensure!(gone.is_empty(), "{gone:?} name {WIRE} no more: take them off the list");
    Ok(())
}

#[test]
fn a_cycle_is_found_by_all_kinds_of_paths() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let source = folder.path();
    let write = |name: &str, code: &str| {
        let file = source.join(name);
        std::fs::create_dir_all(file.parent().context("a folder")?)?;
        anyhow::Ok(std::fs::write(file, code)?)
    };
    write("lib.rs", "mod a; mod b; mod c; #[cfg(test)] mod d; pub use c::C;")?;
    write("a/mod.rs", "mod inner; use crate::{b::{self, B}, Other};")?;
    write("a/inner.rs", "fn one() { super::super::c::two() }")?;
    write("b.rs", "struct B; #[cfg(test)] mod tests { use crate::a; }")?;
    write("c.rs", "pub struct C;")?;
    write("d.rs", "use crate::a; use crate::d;")?;
    let needs_of = |room: &str| -> anyhow::Result<Vec<String>> {
        Ok(needs(source)?.get(room).into_iter().flatten().map(|(name, _)| name.clone()).collect())
    };
    ensure!(needs_of("a")? == ["b", "c"], "{:?}", needs_of("a")?);
    ensure!(cycle(&needs(source)?).is_none());
    write("c.rs", "use bandana_shared::wire::{self, v1::Message}; pub struct C;")?;
    ensure!(needs_of("c")? == [WIRE], "{:?}", needs_of("c")?);
    // Through a re-export, a path in code, a path in a macro, and a module in a separate file.
    for code in [
        "use crate::C; fn x() { crate::a::y() }",
        "fn x() { say!(1, crate::a::y(2)) }",
        "mod m { fn x() -> super::super::a::A {} }",
    ] {
        write("b.rs", code)?;
        let found = cycle(&needs(source)?).context("no cycle was found")?;
        ensure!(found.contains("a needs b") && found.contains("b needs a"), "{found}");
    }
    Ok(())
}
