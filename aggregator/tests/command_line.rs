//! The command line's help and man pages, as committed.
//!
//! The help of every command is in `help/`. After a change, `BANDANA_REWRITE_HELP=1 cargo test -p
//! bandana-aggregator --test aggregator` rewrites it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};

/// The variable that tells a program built by `.ci/coverage` where to write its coverage.
const COVERAGE: &str = "LLVM_PROFILE_FILE";

/// The program, without the settings of the parent process.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bandana"));
    command.env_clear().envs(std::env::var_os(COVERAGE).map(|path| (COVERAGE, path)));
    command
}

fn bandana(arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(program().args(arguments).output()?)
}

fn printed(arguments: &[&str]) -> anyhow::Result<String> {
    let output = bandana(arguments)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The long help of a command and of all commands under it, by file name.
fn collect_help(path: &str, mut command: clap::Command, files: &mut BTreeMap<String, String>) {
    let help = command.render_long_help().to_string();
    let lines = help.lines().flat_map(|line| [line.trim_end(), "\n"]);
    files.insert(format!("{path}.txt"), lines.collect());
    for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let path = format!("{path}-{}", subcommand.get_name());
        collect_help(&path, subcommand.clone(), files);
    }
}

fn help_files() -> BTreeMap<String, String> {
    let mut command = bandana_aggregator::cli::command().term_width(100);
    command.build();
    let mut files = BTreeMap::new();
    collect_help("bandana", command, &mut files);
    files
}

fn names_of_commands() -> Vec<String> {
    let command = bandana_aggregator::cli::command();
    command.get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

#[test]
fn help_is_as_committed() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let expected = help_files();
    if std::env::var_os("BANDANA_REWRITE_HELP").is_some() {
        std::fs::remove_dir_all(&folder)?;
        std::fs::create_dir_all(&folder)?;
        for (name, text) in &expected {
            std::fs::write(folder.join(name), text)?;
        }
    }
    let entries = std::fs::read_dir(&folder).context("tests/help can't be read")?;
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<anyhow::Result<_>>();
    let names: BTreeSet<OsString> = names?;
    assert_eq!(names, expected.keys().map(OsString::from).collect());
    for (name, text) in expected {
        let committed = std::fs::read_to_string(folder.join(&name))?;
        assert!(committed == text, "{name} is out of date; the head of this file has the command");
    }
    Ok(())
}

#[test]
fn help_fits_in_a_hundred_columns() {
    for (name, text) in help_files() {
        for line in text.lines() {
            // Words that can't be broken may exceed the width.
            let broken = line.len() > 100 && line.trim_start().contains(' ');
            assert!(!broken || line.starts_with("Usage"), "{name}: {line}");
        }
    }
}

#[test]
fn the_help_has_every_command_in_one_group() {
    let help = help_files().remove("bandana.txt").unwrap_or_default();
    for name in names_of_commands() {
        let line = format!("\n  {name} ");
        assert_eq!(help.matches(&line).count(), 1, "{name} in {help}");
    }
}

#[test]
fn completions_name_every_command() -> anyhow::Result<()> {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell])?;
        for name in names_of_commands() {
            assert!(script.contains(&name), "{name} is not in the completions of {shell}");
        }
        for flag in ["replay-window-days", "config"] {
            assert!(script.contains(flag), "{flag} is not in the completions of {shell}");
        }
    }
    assert_eq!(bandana(&["completions", "cmd.exe"])?.status.code(), Some(2));
    Ok(())
}

#[test]
fn the_manual_has_a_page_for_every_command() -> anyhow::Result<()> {
    // Dashes are escaped in roff.
    let page = printed(&["man"])?.replace("\\-", "-");
    for name in names_of_commands() {
        assert!(page.contains(&format!("bandana-{name}(1)")), "{name} is not in the manual");
    }
    let parent = tempfile::tempdir()?;
    let folder = parent.path().join("new/pages");
    printed(&["man", "--out", &folder.display().to_string()])?;
    for name in names_of_commands() {
        let page = std::fs::read_to_string(folder.join(format!("bandana-{name}.1")))?;
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    Ok(())
}

#[test]
fn the_default_configuration_is_as_committed() -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("bandana.toml");
    assert!(
        printed(&["default-config"])? == std::fs::read_to_string(path)?,
        "bandana.toml is out of date; run `cargo run -p bandana-tests regenerate`"
    );
    Ok(())
}

fn written(folder: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join("bandana.toml");
    std::fs::write(&path, text)?;
    Ok(path)
}

#[test]
fn a_configuration_is_checked_without_being_used() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = written(folder.path(), "[store]\ndata_dir = \"here\"\nids_max = 7\n")?;
    let file = path.to_str().context("a path in UTF-8")?;
    let mut command = program();
    command.args(["check-config", "--config", file, "--listen", "[::1]:9"]);
    let output = command.env("BANDANA_IDS_MAX", "8").current_dir(folder.path()).output()?;
    let shown = String::from_utf8(output.stdout)?;
    assert!(output.status.success(), "{shown}");
    for line in [
        &format!("data_dir = \"here\" # {file}, line 2"),
        "ids_max = 8 # $BANDANA_IDS_MAX",
        "listen = \"[::1]:9\" # --listen",
        "replay_window_days = 7 # default",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in {shown}");
    }
    assert!(!folder.path().join("here").exists());
    Ok(())
}

#[test]
fn a_wrong_configuration_is_refused_by_check_and_by_serve() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = written(folder.path(), "[store]\ndata_dri = \"here\"\n")?;
    let file = path.to_str().context("a path in UTF-8")?;
    for command in ["check-config", "serve"] {
        let output = bandana(&[command, "--config", file])?;
        let errors = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(1), "{errors}");
        for part in [file, "line 2", "\"data_dri\"", "did you mean \"data_dir\"", "ids_max"] {
            assert!(errors.contains(part), "{part} is not in {errors}");
        }
    }
    let missing = bandana(&["check-config", "--config", "/nowhere/bandana.toml"])?;
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8(missing.stderr)?.contains("/nowhere/bandana.toml"));
    Ok(())
}

#[test]
fn a_plan_counts_users_and_refuses_what_can_not_be() -> anyhow::Result<()> {
    let json = |arguments: &[&str]| -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::from_str(&printed(&[&["plan", "--json"], arguments].concat())?)?)
    };
    let plan = json(&["--arms", "4", "--epsilon", "1", "--gap", "0.1"])?;
    let users = |plan: &serde_json::Value| plan["users"].as_u64().unwrap_or(0);
    // Each arm of two needs about 2 ln(K^2/alpha)/(s gap)^2 reports: 5,000 to 10,000 here.
    assert!((20_000..60_000).contains(&users(&plan)), "{plan}");
    let surer = json(&["--arms", "4", "--epsilon", "1", "--gap", "0.1", "--confidence", "0.999"])?;
    assert!(users(&surer) > users(&plan));
    let text = printed(&["plan", "--arms", "4", "--epsilon", "1", "--gap", "0.1"])?;
    assert!(text.contains(&users(&plan).to_string()), "{text}");
    // Two fifths held out, with a quarter of them for each arm, raise a least share of .05 to .13.
    let skewed = ["--arms", "4", "--epsilon", "1", "--gap", "0.1", "--floor-weight"];
    let held_out = json(&[&skewed[..], &["0.05", "--holdout-group", "0.4"]].concat())?;
    assert_eq!(users(&held_out), users(&json(&[&skewed[..], &["0.13"]].concat())?));
    assert!(users(&held_out) < users(&json(&[&skewed[..], &["0.05"]].concat())?));
    // Shuffled among others, a report may be less noisy for the same loss, and takes fewer users.
    let shuffle = ["--gap", "0.1", "--shuffle", "--central-epsilon", "0.2"];
    let million = [&shuffle[..], &["--users", "1000000"]].concat();
    let few = json(&[&["--arms", "4"][..], &million].concat())?;
    // An arm that gets 200 users fills no larger batch.
    let many = json(&[&["--arms", "100", "--users", "20000"][..], &shuffle].concat())?;
    let reports = |plan: &serde_json::Value| plan["shuffle"]["reports"].as_u64().unwrap_or(0);
    assert!(reports(&few) > 200 && reports(&many) <= 200, "{few} {many}");
    assert_eq!(few["shuffle"]["first_batches"].as_u64(), Some(4 * reports(&few)), "{few}");
    assert!(few["epsilon"].as_f64() > Some(0.5), "{few}");
    assert!(few["shuffle"]["central_epsilon"].as_f64() <= Some(0.200_000_1), "{few}");
    assert!(Some(2 * users(&few)) < few["shuffle"]["unshuffled_users"].as_u64(), "{few}");
    let text = printed(&[&["plan", "--arms", "4"][..], &million].concat())?;
    assert!(text.contains("reports shuffled in a batch"), "{text}");
    for (arguments, complaint) in [
        (["--arms", "1", "--epsilon", "1", "--gap", "0.1"], "2 to 1024 arms"),
        (["--arms", "2", "--epsilon", "0", "--gap", "0.1"], "epsilon"),
        (["--arms", "2", "--epsilon", "1", "--gap", "1.5"], "gap 1.5"),
    ] {
        let output = bandana(&[&["plan"][..], &arguments].concat())?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{errors}");
        assert!(errors.contains(complaint), "{errors}");
    }
    Ok(())
}
