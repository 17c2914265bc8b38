//! The names of data sets and of sessions.

use std::fmt;

use thiserror::Error;

/// The name of a data set or of a session: 1 to 64 lower-case letters, digits and hyphens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CuratorName(String);

impl CuratorName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`CuratorNameError`].
    pub fn new(name: impl Into<String>) -> Result<Self, CuratorNameError> {
        let name = name.into();
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = (1..=64).contains(&name.len()) && name.chars().all(fits);
        if is_name { Ok(Self(name)) } else { Err(CuratorNameError(name)) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CuratorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is not a valid name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no name; use 1 to 64 lower-case letters, digits and hyphens")]
pub struct CuratorNameError(String);
