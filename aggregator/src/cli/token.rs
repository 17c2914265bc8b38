//! `bandana token`.

use std::path::PathBuf;

use bandana_edge::auth::{Role, Roles, TokenKind, TokenName};
use clap::{Args, Subcommand};

use super::token_file::TokenFile;

/// Make and revoke tokens of operators.
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token, print it, and add its hash to a tokens file.
    ///
    /// The token is printed once and stored nowhere: the file has only its SHA-256. A running
    /// server reads the changed file by itself.
    New(New),
    /// Print the names of the tokens in a tokens file, and their roles.
    List {
        #[command(flatten)]
        file: TokensFile,
    },
    /// Remove a token from a tokens file.
    ///
    /// A running server reads the changed file at the next call, or on SIGHUP.
    Revoke(TokenArgs),
}

/// A new token.
#[derive(Debug, Args)]
pub(super) struct New {
    #[command(flatten)]
    named: TokenArgs,
    /// What the token allows. Give several roles with commas between them, or repeat the flag.
    ///
    /// You can change the roles later in the tokens file, at the end of the token's line.
    #[arg(long = "role", value_name = "ROLE", required = true, value_delimiter = ',')]
    roles: Vec<Role>,
}

/// A token of a file.
#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    /// Name of the token, such as its owner's. The server's log shows this name.
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
        TokenCommand::New(New { named: TokenArgs { name, file }, roles }) => {
            let roles: Roles = roles.iter().copied().collect();
            file.open().add(name, Some(roles))
        }
        TokenCommand::List { file } => file.open().list(),
        TokenCommand::Revoke(TokenArgs { name, file }) => file.open().remove(name),
    }
}

impl TokensFile {
    fn open(&self) -> TokenFile<'_> {
        TokenFile::new(TokenKind::Operator, &self.path)
    }
}
