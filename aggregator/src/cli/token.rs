//! `bandana token`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::token_file::TokenFile;
use crate::security::{TokenKind, TokenName};

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
        TokenCommand::New(Named { name, file }) => file.open().add(name),
        TokenCommand::List { file } => file.open().list(),
        TokenCommand::Revoke(Named { name, file }) => file.open().remove(name),
    }
}

impl TokensFile {
    fn open(&self) -> TokenFile<'_> {
        TokenFile::new(TokenKind::Operator, &self.path)
    }
}
