//! The readers' paths and the quick reference of commands: each page run as written, from top to
//! bottom.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_tests::committed::root;
use bandana_tests::steps::{Shell, Step, chapters};
use bandana_tests::suite::Suite;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const PROGRAMS: [(&str, &str); 4] = [
    ("bandana", PROGRAM),
    ("bandana-relay", PROGRAM),
    ("simulated-users", PROGRAM),
    ("documented-app", PROGRAM),
];

const REFERENCE: &str = "commands.md";

/// The paths, in `docs`.
const PATHS: [&str; 6] = [
    "paths/analyst.md",
    "paths/app-developer.md",
    "paths/operator.md",
    "paths/privacy-reviewer.md",
    "paths/product-manager.md",
    "paths/researcher.md",
];

/// Maximum number of words on a path, with those of its commands.
const WORDS_MAX: usize = 500;

/// What readers have before the first step, as far as the pages use it: a clone, and cargo. This
/// cargo runs the app that was built from the README, and looks for an example of the laboratory.
const BEFORE: &str = r#"## Before
```sh
mkdir -p bandana/aggregator/lab/examples
cp "$CLONE/README.md" bandana
cp "$CLONE"/aggregator/lab/examples/*.rs bandana/aggregator/lab/examples
cargo() { case "$1 $2" in \
    "new "*) mkdir -p "$2/src" && echo "[dependencies]" > "$2/Cargo.toml" ;; \
    "run --") shift 2 && documented-app "$@" ;; \
    *) test -e "aggregator/lab/examples/${!#}.rs" ;; \
    esac; }
```
"#;

/// Adds the tests.
pub(crate) fn add(suite: &mut Suite) {
    for page in PATHS.into_iter().chain([REFERENCE]) {
        suite.add(format!("paths::{page}"), move || follow(page));
    }
    suite.add("paths::each_path_is_short_and_has_a_test", each_path_is_short_and_has_a_test);
    suite.add("paths::the_readme_leads_to_each_path", the_readme_leads_to_each_path);
    suite.add("paths::each_command_has_an_example", each_command_has_an_example);
}

fn docs() -> PathBuf {
    root().join("docs")
}

/// The commands of a page.
fn steps(page: &str) -> anyhow::Result<Vec<Step>> {
    Ok(chapters(page)?.into_iter().flat_map(|chapter| chapter.steps).collect())
}

fn follow(page: &str) -> anyhow::Result<()> {
    let steps_of_page = steps(&std::fs::read_to_string(docs().join(page))?)?;
    ensure!(!steps_of_page.is_empty(), "{page} has no commands");
    let clone = root().canonicalize()?.display().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut shell = Shell::start(&PROGRAMS, &[], &[("CLONE", clone)])?;
        shell.run_all(&steps(BEFORE)?).await?;
        shell.run_all(&steps_of_page).await?;
        shell.end().await
    })
}

fn each_path_is_short_and_has_a_test() -> anyhow::Result<()> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(docs().join("paths"))? {
        let entry = entry?;
        let words = std::fs::read_to_string(entry.path())?.split_whitespace().count();
        let name = format!("paths/{}", entry.file_name().display());
        ensure!(words <= WORDS_MAX, "{name} has {words} words, more than {WORDS_MAX}");
        found.insert(name);
    }
    assert_eq!(found, PATHS.map(str::to_owned).into());
    Ok(())
}

/// Checks the README's beginning, before its first chapter.
fn the_readme_leads_to_each_path() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(root().join("README.md"))?;
    let beginning = page.split("\n## ").next().unwrap_or_default();
    for path in PATHS {
        ensure!(beginning.contains(&format!("(docs/{path})")), "no link to {path}");
    }
    Ok(())
}

fn each_command_has_an_example() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(docs().join(REFERENCE))?.replace('\n', " ");
    let mut open = vec![Vec::new()];
    while let Some(command) = open.pop() {
        let inner = subcommands(&command)?;
        let words = command.join(" ");
        let is_there = page.contains(&format!("bandana {words} "));
        ensure!(is_there || !inner.is_empty(), "{REFERENCE} has no `bandana {words}`");
        open.extend(inner.into_iter().map(|name| [&command[..], &[name]].concat()));
    }
    Ok(())
}

/// The subcommands of a command, by its help.
fn subcommands(command: &[String]) -> anyhow::Result<Vec<String>> {
    let output = Command::new(PROGRAM).args(command).arg("--help").clean_environment().output()?;
    ensure!(output.status.success(), "{command:?}: {output:?}");
    let help = String::from_utf8(output.stdout)?;
    // Groups of commands come first. Further lines of a description are indented more.
    let lines = help.lines().take_while(|line| !line.starts_with("Options:"));
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let is_command =
        |name: &&str| *name != "help" && name.starts_with(|c: char| c.is_ascii_lowercase());
    Ok(names.filter(is_command).map(str::to_owned).collect())
}
