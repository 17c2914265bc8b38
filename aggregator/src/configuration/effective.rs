//! Effective settings: the value of each setting that takes precedence.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::problem::{ConfigurationError, Problem, fallback_note};
use super::setting::{Fallback, Setting};
use super::settings::{SECTIONS, SETTINGS};

/// A value for a setting, in the form used by the environment and flags.
#[derive(Clone, Debug)]
pub struct Given {
    /// The setting.
    pub setting: &'static Setting,
    /// The value, valid for the setting's kind.
    pub text: String,
    /// The source of the value.
    pub origin: Origin,
}

/// The source of a value. Later variants override earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The default.
    Default,
    /// The configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// This environment variable.
    Environment(&'static str),
    /// This flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            // Escaped: the comment must stay on one line.
            Self::File { path, line } => {
                write!(f, "{}, line {line}", path.display().to_string().escape_debug())
            }
            Self::Environment(name) => write!(f, "${name}"),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// The value of every setting, with its origin.
#[derive(Clone, Debug)]
pub struct Effective(Vec<(&'static Setting, Option<(String, Origin)>)>);

impl Effective {
    /// For every setting, the value whose origin has the highest precedence.
    pub(super) fn of(given: &[Given]) -> Self {
        let value = |setting: &'static Setting| {
            let said = given.iter().filter(|said| std::ptr::eq(said.setting, setting));
            let value = said.max_by(|a, b| a.origin.cmp(&b.origin));
            let value = value.map(|said| (said.text.clone(), said.origin.clone()));
            let default = || match setting.fallback {
                Fallback::Default(text) => Some((text.to_owned(), Origin::Default)),
                Fallback::Required { .. } | Fallback::Unset(_) => None,
            };
            (setting, value.or_else(default))
        };
        Self(SETTINGS.iter().map(|setting| value(setting)).collect())
    }

    /// The value of a setting that is required or has a default.
    pub(super) fn value<T: FromStr>(&self, setting: &Setting) -> Result<T, ConfigurationError>
    where
        T::Err: fmt::Display,
    {
        let required = || ConfigurationError::Problems(vec![Problem::required(setting)]);
        self.optional(setting)?.ok_or_else(required)
    }

    /// The value of an optional setting.
    pub(super) fn optional<T: FromStr>(
        &self,
        setting: &Setting,
    ) -> Result<Option<T>, ConfigurationError>
    where
        T::Err: fmt::Display,
    {
        let Some((text, origin)) = self.find(setting) else { return Ok(None) };
        let value = text.parse().map_err(|error: T::Err| {
            let Setting { section, key, .. } = setting;
            let what = format!("[{section}] {key} = {text:?} can't be used: {error}");
            ConfigurationError::Problems(vec![Problem { place: origin.to_string(), what }])
        });
        value.map(Some)
    }

    /// The value of a setting in the form of a flag, with its origin.
    pub(super) fn find(&self, setting: &Setting) -> Option<&(String, Origin)> {
        let (_, value) = self.0.iter().find(|(other, _)| std::ptr::eq(*other, setting))?;
        value.as_ref()
    }

    /// The origin of a setting's value.
    pub(super) fn origin(&self, setting: &Setting) -> Origin {
        self.find(setting).map_or(Origin::Default, |(_, origin)| origin.clone())
    }
}

/// Formats as TOML, with the origin of every value in a comment.
impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (section, _)) in SECTIONS.iter().enumerate() {
            if place > 0 {
                writeln!(f)?;
            }
            writeln!(f, "[{section}]")?;
            for (setting, value) in self.0.iter().filter(|(s, _)| s.section == *section) {
                let Setting { key, kind, fallback, .. } = setting;
                match value {
                    Some((text, origin)) => {
                        writeln!(f, "{key} = {} # {origin}", kind.literal(text))
                    }
                    None => writeln!(f, "# {key} # {}", fallback_note(*fallback)),
                }?;
            }
        }
        Ok(())
    }
}
