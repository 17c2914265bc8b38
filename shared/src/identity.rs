//! Distinct types for names and numbers.

use std::fmt;

use thiserror::Error;

use crate::limits::{ARMS_MAX, EXPERIMENT_ID_CHARS_MAX};

/// The name of an experiment: 1 to 64 characters of `[a-z0-9._-]`, the first
/// one a letter or a digit.
///
/// ```
/// use bandana_shared::identity::ExperimentId;
/// assert!(ExperimentId::new("checkout-button.v2").is_ok());
/// assert!(ExperimentId::new("Checkout").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExperimentId(String);

impl ExperimentId {
    /// Checks the characters.
    ///
    /// # Errors
    /// [`IdentityError::ExperimentId`] when `name` breaks the rule above.
    pub fn new(name: impl Into<String>) -> Result<Self, IdentityError> {
        let name = name.into();
        if is_name(&name, EXPERIMENT_ID_CHARS_MAX) {
            Ok(Self(name))
        } else {
            Err(IdentityError::ExperimentId(name))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExperimentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether `name` has 1 to `chars_max` characters of `[a-z0-9._-]`, the first one a letter or a digit.
pub(crate) fn is_name(name: &str, chars_max: usize) -> bool {
    let bytes = name.as_bytes();
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.len() <= chars_max
        && bytes.first().is_some_and(plain)
        && bytes.iter().all(|b| plain(b) || b"._-".contains(b))
}

/// An index below [`ARMS_MAX`], of a kind that no other index is taken for.
macro_rules! index {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u16);

        impl $name {
            /// The number of them that an experiment can have.
            pub const LIMIT: usize = ARMS_MAX;

            /// Checks the range that the protocol allows. Whether the specification has this index is for
            /// the caller to check.
            ///
            /// # Errors
            /// [`IdentityError::Index`] when `index` is not below [`ARMS_MAX`].
            pub fn new(index: usize) -> Result<Self, IdentityError> {
                match u16::try_from(index) {
                    Ok(small) if index < ARMS_MAX => Ok(Self(small)),
                    _ => Err(IdentityError::Index(index)),
                }
            }

            /// The index, for use with slices.
            pub fn get(self) -> usize {
                usize::from(self.0)
            }

            /// The index as sent on the wire.
            pub fn to_u32(self) -> u32 {
                u32::from(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index! {
    /// The index of an arm in its specification, below [`ARMS_MAX`].
    ArmIndex
}

index! {
    /// The index of a cell in its specification, below [`ARMS_MAX`]. A cell is what reports are counted for:
    /// an arm in a segment, for a metric; see `Cells`. Where each arm has one cell, the two indices are the
    /// same number.
    CellIndex
}

/// Whole days since 1970-01-01 (UTC), by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

impl Day {
    /// A day by its number.
    pub const fn new(days_since_epoch: u32) -> Self {
        Self(days_since_epoch)
    }

    /// The day that holds the given second since 1970-01-01 (UTC).
    pub fn of_unix_seconds(seconds: u64) -> Self {
        Self(u32::try_from(seconds / 86_400).unwrap_or(u32::MAX))
    }

    /// The number of days.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The day `days` later, at most the last one.
    #[must_use]
    pub fn forward(self, days: u32) -> Self {
        Self(self.0.saturating_add(days))
    }

    /// The day `days` earlier, at least day 0.
    #[must_use]
    pub fn back(self, days: u32) -> Self {
        Self(self.0.saturating_sub(days))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A time, in whole seconds since 1970-01-01 (UTC).
///
/// ```
/// use bandana_shared::identity::UnixSeconds;
/// assert_eq!(UnixSeconds::new(1_709_208_000).to_string(), "2024-02-29 12:00:00 UTC");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(u64);

impl UnixSeconds {
    /// A time from its number of seconds.
    pub const fn new(seconds_since_epoch: u64) -> Self {
        Self(seconds_since_epoch)
    }

    /// The number of seconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The time `days` later, at most the last one.
    #[must_use]
    pub fn after_days(self, days: u32) -> Self {
        Self(self.0.saturating_add(u64::from(days) * 86_400))
    }
}

/// Formats date and time by the Gregorian calendar.
impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // If years begin on 1 March, a leap day is the last day of its year: 719,468 days lie
        // between 0000-03-01 and 1970-01-01.
        let days = self.0 / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let leap_days = day_of_era / 1460 + day_of_era / 146_096;
        let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let (hour, minute, second) = (self.0 / 3600 % 24, self.0 / 60 % 60, self.0 % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

/// The revision of a specification, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(u32);

impl Revision {
    /// The first revision of an experiment.
    pub const FIRST: Self = Self(1);

    /// Checks that the number is not 0.
    ///
    /// # Errors
    /// [`IdentityError::Revision`] for 0.
    pub fn new(number: u32) -> Result<Self, IdentityError> {
        if number == 0 { Err(IdentityError::Revision) } else { Ok(Self(number)) }
    }

    /// The revision's number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The next revision.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Defines a 16-byte name: constructors, bytes and hexadecimal form.
macro_rules! sixteen_bytes {
    ($(#[$doc:meta])* $name:ident, $error:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// The name with these bytes.
            pub const fn new(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The bytes of the name.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl TryFrom<&[u8]> for $name {
            type Error = IdentityError;

            fn try_from(bytes: &[u8]) -> Result<Self, IdentityError> {
                bytes.try_into().map(Self).map_err(|_| IdentityError::$error(bytes.len()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

sixteen_bytes! {
    /// The random name of an upload. An upload counts once under its name and day together.
    UploadId, UploadId
}

sixteen_bytes! {
    /// The digest of a specification's canonical encoding, which identifies the specification
    /// everywhere.
    Digest, Digest
}

sixteen_bytes! {
    /// The random name of a store. A store is all data that one server keeps, or that replicas keep
    /// together. The name is made with the store and stays the same over upgrades, backups and
    /// restores.
    ///
    /// # Privacy
    /// A client compares the name and never sends it. Otherwise a server could give each client a
    /// different name, and recognise the client by it.
    StoreId, StoreId
}

/// An invalid name or number.
#[derive(Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentityError {
    /// See [`ExperimentId`].
    #[error(
        "experiment id {0:?} is not 1 to {max} characters of a-z, 0-9, '.', '_' and '-' that start \
         with a letter or a digit", max = EXPERIMENT_ID_CHARS_MAX
    )]
    ExperimentId(String),
    /// See [`ArmIndex`] and [`CellIndex`].
    #[error("index {0} is beyond the {max} arms or cells that an experiment can have", max = ARMS_MAX)]
    Index(usize),
    /// See [`Revision`].
    #[error("revision 0 does not exist; revisions start at 1")]
    Revision,
    /// See [`UploadId`].
    #[error("an upload id has 16 bytes; this one has {0}")]
    UploadId(usize),
    /// See [`Digest`].
    #[error("a digest has 16 bytes; this one has {0}")]
    Digest(usize),
    /// See [`StoreId`].
    #[error("the id of a store has 16 bytes; this one has {0}")]
    StoreId(usize),
}

crate::debug_says!(IdentityError);
