//! The flags and environment variables of the settings, generated from the table of settings.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use crate::configuration::{
    Configuration, ConfigurationError, Effective, Fallback, Given, Kind, Origin, SETTINGS, Setting,
};

/// Where the configuration comes from: a file, and what overrides it.
#[derive(Debug, Args)]
pub(super) struct Source {
    /// Configuration file (TOML). `bandana default-config` prints one that explains every setting.
    ///
    /// Environment variables override it, and flags override both.
    #[arg(long, value_name = "FILE", env = "BANDANA_CONFIG", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

impl Source {
    /// The configuration, with the origin of each value.
    pub(super) fn load(self) -> Result<(Configuration, Effective), ConfigurationError> {
        Configuration::load(self.config.as_deref(), self.overrides.0)
    }
}

/// Values from the environment and flags.
#[derive(Debug)]
struct Overrides(Vec<Given>);

impl Args for Overrides {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().fold(command, |command, setting| command.arg(argument(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Overrides {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(given(SETTINGS, matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The values of these settings from the environment and flags.
pub(super) fn given(
    settings: impl IntoIterator<Item = &'static Setting>,
    matches: &ArgMatches,
) -> Vec<Given> {
    let given = settings.into_iter().filter_map(|setting| {
        let text = matches.get_one::<String>(setting.flag)?.clone();
        let origin = match matches.value_source(setting.flag)? {
            ValueSource::EnvVariable => Origin::Environment(setting.environment),
            _ => Origin::Flag(setting.flag),
        };
        Some(Given { setting, text, origin })
    });
    given.collect()
}

/// A flag without a default: a default would override the file.
pub(super) fn argument(setting: &'static Setting) -> Arg {
    let check = |text: &str| setting.kind.check(text).map(|()| text.to_owned());
    let note = match setting.fallback {
        Fallback::Default(value) => format!(" [default: {value}]"),
        Fallback::Required { unless: (_, flag), .. } => {
            format!(" [this or --{flag} is required, here or in the file]")
        }
        Fallback::Unset(_) => String::new(),
    };
    let hint = setting.hint().map(|hint| format!(" {hint}")).unwrap_or_default();
    Arg::new(setting.flag)
        .long(setting.flag)
        .env(setting.environment)
        .value_name(setting.placeholder)
        .value_parser(check)
        .value_hint(match setting.kind {
            Kind::Path => ValueHint::AnyPath,
            Kind::Url => ValueHint::Url,
            Kind::Address
            | Kind::Database
            | Kind::Databases
            | Kind::Integer(_)
            | Kind::Choice(_)
            | Kind::LogFilter
            | Kind::Origins => ValueHint::Other,
        })
        .help(format!("{}{hint}{note}", setting.doc))
}
