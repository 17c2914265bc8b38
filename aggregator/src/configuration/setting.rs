//! One setting: its names, and its permitted values.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use bandana_store::DatabaseUrl;

use crate::http::{Origins, OriginsError};

/// A setting. The file, the environment, the flags, their help and the documented file are all
/// derived from it, which keeps them consistent.
#[derive(Debug)]
pub struct Setting {
    /// The section (TOML table) in the file.
    pub section: &'static str,
    /// The key in the section.
    pub key: &'static str,
    /// The environment variable that overrides the file.
    pub environment: &'static str,
    /// The flag that overrides file and environment, without its two dashes.
    pub flag: &'static str,
    /// The placeholder for a value in the help.
    pub placeholder: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// Its default, or that it has none.
    pub fallback: Fallback,
    /// Its documentation, in one or more sentences.
    pub doc: &'static str,
}

/// The kind of a setting's values.
#[derive(Debug)]
pub enum Kind {
    /// A file or directory. A relative path is relative to the working directory.
    Path,
    /// An IP address and a port. Port 0 picks a free one.
    Address,
    /// A whole number.
    Integer(RangeInclusive<u32>),
    /// The URL of a database, whose password is never displayed. The code that connects reports
    /// errors in the URL, without repeating it.
    Database,
    /// URLs of databases, with spaces between; in the file, an array of them.
    Databases,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A filter for the log.
    LogFilter,
    /// The URL of a server.
    Url,
    /// Origins of pages, with commas between.
    Origins,
}

/// The value of a setting that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// This value.
    Default(&'static str),
    /// No default: the setting is required. The documented file contains the example.
    Required {
        /// An example value.
        example: &'static str,
        /// Key in the same section, and flag, of an alternative setting that makes this one
        /// optional.
        unless: (&'static str, &'static str),
    },
    /// No default: the setting is optional. The documented file contains the example in a comment.
    Unset(&'static str),
}

impl Kind {
    /// Checks a value in the form used by the environment and flags.
    ///
    /// # Errors
    /// A description of the permitted values.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let fits = match self {
            Self::Path | Self::Database => !text.is_empty(),
            Self::Databases => !text.trim().is_empty(),
            Self::Address => text.parse::<SocketAddr>().is_ok(),
            Self::Integer(range) => text.parse().is_ok_and(|number| range.contains(&number)),
            Self::Choice(words) => words.contains(&text),
            Self::LogFilter => bandana_edge::telemetry::check_filter(text).is_ok(),
            Self::Url => is_url(text),
            Self::Origins => text.parse::<Origins>().is_ok(),
        };
        if fits { Ok(()) } else { Err(format!("expected {}", self.expected())) }
    }

    /// The permitted values in words, such as "a whole number in 1..=365".
    pub fn expected(&self) -> String {
        match self {
            Self::Path => "a path".to_owned(),
            Self::Database => "the URL of a PostgreSQL database".to_owned(),
            Self::Databases => "URLs of PostgreSQL databases".to_owned(),
            Self::Address => "an IP address with a port, such as 127.0.0.1:7301".to_owned(),
            Self::Integer(range) => {
                format!("a whole number in {}..={}", range.start(), range.end())
            }
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::LogFilter => {
                "a level (off, error, warn, info, debug, trace), or module=level, with commas \
                 between"
                    .to_owned()
            }
            Self::Url => "a URL, such as http://127.0.0.1:4317".to_owned(),
            Self::Origins => OriginsError.to_string(),
        }
    }

    /// A value as a TOML literal, without passwords.
    pub fn literal(&self, text: &str) -> String {
        match self {
            Self::Database => toml::Value::from(DatabaseUrl::redacted(text)).to_string(),
            Self::Databases => {
                let urls = text.split_whitespace().map(DatabaseUrl::redacted);
                toml::Value::from(urls.collect::<Vec<_>>()).to_string()
            }
            Self::Integer(_) => text.to_owned(),
            _ => toml::Value::from(text).to_string(),
        }
    }

    /// Whether a TOML literal of this kind needs quotes.
    pub fn is_quoted(&self) -> bool {
        !matches!(self, Self::Integer(_))
    }
}

fn is_url(text: &str) -> bool {
    let Ok(url) = text.parse::<http::Uri>() else { return false };
    matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
}

impl Setting {
    /// The note on the values in the help and the documented file.
    pub fn hint(&self) -> Option<String> {
        match &self.kind {
            Kind::Path
            | Kind::Database
            | Kind::Databases
            | Kind::Address
            | Kind::LogFilter
            | Kind::Url
            | Kind::Origins => None,
            Kind::Choice(words) => Some(format!("One of: {}.", words.join(", "))),
            Kind::Integer(range) => Some(format!("{} to {}.", range.start(), range.end())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_take_what_they_say() {
        let days = Kind::Integer(1..=365);
        for good in ["1", "365"] {
            assert_eq!(days.check(good), Ok(()));
        }
        for bad in ["0", "366", "-1", "1.0", "", "seven", "99999999999999999999"] {
            assert_eq!(days.check(bad), Err("expected a whole number in 1..=365".to_owned()));
        }
        assert!(Kind::Address.check("[::1]:0").is_ok());
        assert!(Kind::Address.check("localhost:7301").is_err());
        assert!(Kind::Path.check("").is_err());
        assert!(Kind::Choice(&["text", "json"]).check("xml").is_err());
        assert!(Kind::Url.check("https://collector.example:4317").is_ok());
        for bad in ["collector:4317", "ftp://collector", "http://", "/x"] {
            assert!(Kind::Url.check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn literals_are_toml() {
        let path = "a \"b\"\\c";
        let document = format!("x = {}\ny = {}", Kind::Path.literal(path), "7");
        let table: toml::Table = document.parse().unwrap();
        assert_eq!(table["x"].as_str(), Some(path));
        assert_eq!(table["y"].as_integer(), Some(7));
    }
}
