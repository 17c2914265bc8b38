//! The store for commands that run without a server.

use std::path::PathBuf;

use bandana_store::PostgresSettings;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueHint};

use super::settings_arguments::{argument, given};
use crate::configuration::{Configuration, ConfigurationError, Given, STORE_SETTINGS, Setting};
use crate::server::StoreSettings;

/// The store of a server, told as it is to the server.
#[derive(Debug, Args)]
pub(super) struct StoreSource {
    /// Configuration file (TOML) of the server. It names the store.
    #[arg(long, value_name = "FILE", env = "BANDANA_CONFIG", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: StoreOverrides,
}

/// A located store.
#[derive(Debug)]
pub(super) enum Found {
    Directory(PathBuf),
    Database(PostgresSettings),
}

impl StoreSource {
    /// The store that the server would use with this configuration.
    pub(super) fn find(&self) -> Result<Found, ConfigurationError> {
        let overrides = self.overrides.0.clone();
        let (Configuration { store, .. }, _) =
            Configuration::load(self.config.as_deref(), overrides)?;
        Ok(match StoreSettings::from(store) {
            StoreSettings::Embedded { data_dir, .. } => Found::Directory(data_dir),
            StoreSettings::Postgres(settings) => Found::Database(settings),
        })
    }
}

/// Store settings from the environment and flags.
#[derive(Debug)]
struct StoreOverrides(Vec<Given>);

fn settings() -> impl Iterator<Item = &'static Setting> {
    STORE_SETTINGS.into_iter()
}

impl Args for StoreOverrides {
    fn augment_args(command: Command) -> Command {
        settings().fold(command, |command, setting| command.arg(argument(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StoreOverrides {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(given(settings(), matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
