//! `bandana token`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::{Readers, say, write_new};
use crate::security::{Token, TokenList, TokenName};

/// Make and revoke tokens of operators.
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token, print it, and add its hash to a tokens file.
    ///
    /// The token is printed once and kept nowhere: the file has its SHA-256. A running
    /// server takes the changed file by itself.
    New(Named),
    /// Print the names of the tokens in a tokens file.
    List {
        #[command(flatten)]
        file: TokensFile,
    },
    /// Remove a token from a tokens file.
    ///
    /// A running server takes the changed file with the next call, or on SIGHUP.
    Revoke(Named),
}

/// A token of a file.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// Name of the token: whose it is, as the server's log will say.
    #[arg(long, value_name = "NAME")]
    name: TokenName,
    #[command(flatten)]
    file: TokensFile,
}

/// Which file.
#[derive(Debug, Args)]
pub(super) struct TokensFile {
    /// The tokens file: `tokens_file` in the server's configuration.
    #[arg(long = "file", value_name = "FILE", env = "BANDANA_OPERATOR_TOKENS_FILE")]
    path: PathBuf,
}

pub(super) fn run(command: &TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::New(Named { name, file }) => {
            let token = Token::generate()?;
            change(&file.path, |text| Ok(TokenList::with(text, name, &token.hash())?))?;
            say(&format!("{}\n", token.reveal()))
        }
        TokenCommand::List { file: TokensFile { path } } => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("can't read {}", path.display()))?;
            let list = TokenList::parse(&text).with_context(|| unusable(path))?;
            say(&list
                .names()
                .flat_map(|name| [name.to_string(), "\n".to_owned()])
                .collect::<String>())
        }
        TokenCommand::Revoke(Named { name, file }) => {
            change(&file.path, |text| Ok(TokenList::without(text, name)?))
        }
    }
}

/// Replaces a file that may be missing in one step, so that a server never reads half
/// of one. Who else changes it at the same time is turned away.
fn change(path: &Path, edit: impl FnOnce(&str) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let name = path.file_name().with_context(|| format!("{} is no file", path.display()))?;
    let mut next = name.to_owned();
    next.push(".next");
    let next = path.with_file_name(next);
    // Made first, so that it also keeps others from reading what is about to change.
    write_new(&next, b"", Readers::Owner)
        .context("another `bandana token` is at work on the tokens file, or one was interrupted")?;
    let outcome = replace(path, &next, edit);
    if outcome.is_err() {
        // What matters is the first error.
        std::fs::remove_file(&next).ok();
    }
    outcome
}

fn replace(
    path: &Path,
    next: &Path,
    edit: impl FnOnce(&str) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("can't read {}", path.display()))?,
    };
    let text = edit(&text).with_context(|| unusable(path))?;
    let write = || {
        std::fs::write(next, text)?;
        std::fs::File::open(next)?.sync_all()?;
        std::fs::rename(next, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().with_context(|| format!("can't replace {}", path.display()))
}

fn unusable(path: &Path) -> String {
    format!("the tokens file {} is not changed", path.display())
}
