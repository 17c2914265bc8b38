//! One setting: its names everywhere, and the values it may have.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crate::store::DatabaseUrl;

/// A setting. The file, the environment, the flags, their help and the documented
/// file all follow from it, so that none of them can differ from the others.
#[derive(Debug)]
pub struct Setting {
    /// The table of the file that it is in.
    pub section: &'static str,
    /// Its key there.
    pub key: &'static str,
    /// The environment variable that overrides the file.
    pub environment: &'static str,
    /// The flag that overrides both, without its two dashes.
    pub flag: &'static str,
    /// What stands for a value in the help.
    pub placeholder: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What it is when nobody sets it.
    pub fallback: Fallback,
    /// What it is for, in one or more sentences.
    pub doc: &'static str,
}

/// What the values of a setting are.
#[derive(Debug)]
pub enum Kind {
    /// A file or directory; relative to the working directory.
    Path,
    /// An IP address and a port. Port 0 picks a free one.
    Address,
    /// A whole number.
    Integer(RangeInclusive<u32>),
    /// The URL of a database, whose password is not shown. What is wrong with it is told
    /// by who uses it, who does not repeat it.
    Database,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// What is to be logged.
    LogFilter,
    /// The URL of a server.
    Url,
}

/// What a setting is when nobody sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// This value.
    Default(&'static str),
    /// Nothing: it must be set. The example is what the documented file has.
    Required {
        /// A value.
        example: &'static str,
        /// Key in the same section and flag of a setting that can be set instead.
        unless: (&'static str, &'static str),
    },
    /// Nothing, and that is fine. The example stands in a comment.
    Unset(&'static str),
}

impl Kind {
    /// Checks a value, in the form that the environment and flags have.
    ///
    /// # Errors
    /// What was expected.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let fits = match self {
            Self::Path | Self::Database => !text.is_empty(),
            Self::Address => text.parse::<SocketAddr>().is_ok(),
            Self::Integer(range) => text.parse().is_ok_and(|number| range.contains(&number)),
            Self::Choice(words) => words.contains(&text),
            Self::LogFilter => crate::telemetry::check_filter(text).is_ok(),
            Self::Url => is_url(text),
        };
        if fits { Ok(()) } else { Err(format!("expected {}", self.expected())) }
    }

    /// Such as "a whole number in 1..=365".
    pub fn expected(&self) -> String {
        match self {
            Self::Path => "a path".to_owned(),
            Self::Database => "the URL of a PostgreSQL database".to_owned(),
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
        }
    }

    /// A value as a TOML literal, without passwords.
    pub fn literal(&self, text: &str) -> String {
        match self {
            Self::Database => toml::Value::from(DatabaseUrl::redacted(text)).to_string(),
            Self::Integer(_) => text.to_owned(),
            _ => toml::Value::from(text).to_string(),
        }
    }

    /// Whether a TOML literal of this kind is quoted.
    pub fn is_quoted(&self) -> bool {
        !matches!(self, Self::Integer(_))
    }
}

fn is_url(text: &str) -> bool {
    let Ok(url) = text.parse::<http::Uri>() else { return false };
    matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
}

impl Setting {
    /// What the help and the documented file say about the values.
    pub fn hint(&self) -> Option<String> {
        match &self.kind {
            Kind::Path | Kind::Database | Kind::Address | Kind::LogFilter | Kind::Url => None,
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
