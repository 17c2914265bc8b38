//! Problems of a configuration, each with its remedy.

use std::path::PathBuf;

use thiserror::Error;

use super::setting::{Fallback, Setting};
use super::settings::{SECTIONS, SETTINGS};

/// A configuration that can't be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The file can't be read.
    #[error("can't read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not valid TOML: {problem}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The syntax error, with its line.
        problem: toml::de::Error,
    },
    /// Settings are unknown, missing or invalid. All problems are reported at once.
    #[error("the configuration can't be used:{}", listed(_0))]
    Problems(Vec<Problem>),
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().flat_map(|problem| ["\n  ".to_owned(), problem.to_string()]).collect()
}

/// One problem of a configuration.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{place}: {what}")]
pub struct Problem {
    /// A line of the file, an environment variable or a flag.
    pub place: String,
    /// The problem and its remedy.
    pub what: String,
}

impl Problem {
    /// The problem of a required setting that is missing.
    pub(super) fn required(setting: &Setting) -> Self {
        let Setting { section, key, flag, environment, doc, .. } = setting;
        let instead = match setting.fallback {
            Fallback::Required { unless: (key, flag), .. } => {
                format!(" Or set `{key}` there, --{flag}.")
            }
            _ => String::new(),
        };
        let what = format!(
            "must be set, by `{key}` in [{section}] of the configuration file, by ${environment} \
             or by --{flag}. {doc}{instead}"
        );
        Self { place: format!("[{section}] {key}"), what }
    }
}

/// The message for an unknown key.
pub(super) fn unknown_key(section: &str, key: &str) -> String {
    let known: Vec<_> = keys_of(section).collect();
    let elsewhere = || SETTINGS.iter().find(|setting| setting.key == key);
    let suggestion = match (nearest(key, &known), elsewhere()) {
        (Some(name), _) => format!("; did you mean {name:?}?"),
        (None, Some(setting)) => format!("; it belongs to [{}]", setting.section),
        (None, None) => String::new(),
    };
    format!("unknown key {key:?} in [{section}]{suggestion} (known there: {})", known.join(", "))
}

/// The message for an unknown section, or for a key outside all sections.
pub(super) fn unknown_section(name: &str) -> String {
    let known = SECTIONS.map(|(section, _)| section);
    let sections = known.map(|section| format!("[{section}]")).join(", ");
    let suggestion = match (nearest(name, &known), SETTINGS.iter().find(|s| s.key == name)) {
        (Some(section), _) => format!("; did you mean [{section}]?"),
        (None, Some(setting)) => format!("; that key belongs to [{}]", setting.section),
        (None, None) => String::new(),
    };
    format!("unknown section {name:?}{suggestion} (known: {sections})")
}

/// The keys of a section.
pub(super) fn keys_of(section: &str) -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().filter(move |setting| setting.section == section).map(|setting| setting.key)
}

/// The closest known name, for a suggestion: at most a third of its characters may differ.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |other: &str| strsim::damerau_levenshtein(name, other);
    let best = known.iter().copied().min_by_key(|other| distance(other))?;
    (distance(best) <= best.chars().count().div_ceil(3)).then_some(best)
}

/// The documented file's note on the default of a setting.
pub(super) fn fallback_note(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::Default(_) => "default",
        Fallback::Required { .. } | Fallback::Unset(_) => "not set",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_no_far_one() {
        let known = ["data_dir", "replay_window_days", "ids_max"];
        assert_eq!(nearest("repaly_window_day", &known), Some("replay_window_days"));
        assert_eq!(nearest("id_max", &known), Some("ids_max"));
        assert_eq!(nearest("directory", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn a_key_in_the_wrong_place_is_sent_home() {
        let message = unknown_key("shutdown", "ids_max");
        assert!(message.contains("it belongs to [store]"), "{message}");
        let message = unknown_section("data_dir");
        assert!(message.contains("that key belongs to [store]"), "{message}");
        let message = unknown_section("device");
        assert!(message.contains("did you mean [devices]?"), "{message}");
        let message = unknown_key("store", "data-dir");
        let expected = "unknown key \"data-dir\" in [store]; did you mean \"data_dir\"? (known \
                        there: data_dir, url, ca, password_file, cells, replay_window_days, ids_max, \
                        id_partitions)";
        assert_eq!(message, expected);
    }
}
