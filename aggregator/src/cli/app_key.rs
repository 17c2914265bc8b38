//! `bandana app-key`.

use std::path::PathBuf;

use bandana_edge::auth::{TokenKind, TokenName};
use clap::{Args, Subcommand};

use super::token_file::TokenFile;

/// Make and revoke the keys of apps.
#[derive(Debug, Subcommand)]
pub(super) enum AppKeyCommand {
    /// Make a key, print it, and add its hash to a file of app keys.
    ///
    /// All installations of an app show the same key. Anybody who has the app can read the key out
    /// of it, so it proves nobody's identity. It lets you limit the uploads of one app, and refuse
    /// an app by revoking its key. A running server reads the changed file by itself.
    New(KeyArgs),
    /// Print the names of the keys in a file of app keys.
    List {
        #[command(flatten)]
        file: AppKeysFile,
    },
    /// Remove a key from a file of app keys.
    ///
    /// A running server reads the changed file at the next call, or on SIGHUP. It then refuses
    /// devices that show the key. They keep their reports and try again later.
    Revoke(KeyArgs),
}

/// A key of a file.
#[derive(Debug, Args)]
pub(super) struct KeyArgs {
    /// Name of the key, such as the app and its release. The server's log shows this name.
    #[arg(long, value_name = "NAME")]
    name: TokenName,
    #[command(flatten)]
    file: AppKeysFile,
}

/// Which file.
#[derive(Debug, Args)]
pub(super) struct AppKeysFile {
    /// The file of app keys: `app_keys_file` in the server's configuration.
    #[arg(long = "file", value_name = "FILE", env = "BANDANA_APP_KEYS_FILE")]
    path: PathBuf,
}

pub(super) fn run(command: &AppKeyCommand) -> anyhow::Result<()> {
    match command {
        AppKeyCommand::New(KeyArgs { name, file }) => file.open().add(name, None),
        AppKeyCommand::List { file } => file.open().list(),
        AppKeyCommand::Revoke(KeyArgs { name, file }) => file.open().remove(name),
    }
}

impl AppKeysFile {
    fn open(&self) -> TokenFile<'_> {
        TokenFile::new(TokenKind::App, &self.path)
    }
}
