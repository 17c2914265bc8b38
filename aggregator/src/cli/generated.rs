//! `bandana completions` and `bandana man`, generated from the definition of the command line.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueHint};
use clap_complete::Shell;

use super::{command, say};

/// Print the completions of a shell.
///
/// For bash, for example: bandana completions bash >
/// ~/.local/share/bash-completion/completions/bandana
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell.
    shell: Shell,
}

pub(super) fn completions(wanted: &Completions) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(wanted.shell, &mut command(), "bandana", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}

/// Print the manual page.
#[derive(Debug, Args)]
pub(super) struct Man {
    /// Write the pages of all commands into this directory instead. It is made if there is none.
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
}

pub(super) fn man(wanted: &Man) -> anyhow::Result<()> {
    let Some(folder) = &wanted.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command()).render(&mut page)?;
        return say(&String::from_utf8(page)?);
    };
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command(), folder))
        .with_context(|| format!("can't write manual pages into {}", folder.display()))
}
