//! An SQLite database in a directory that one process owns: of the embedded store, and of a relay.
//!
//! A [`LockedDatabase`] is found or made, and locked. [`OpenFiles`] notices when another program has touched
//! it. [`acknowledged`] notices at the next start when it lacks what was acknowledged. Errors name the file and
//! the remedy.

pub mod acknowledged;
mod error;
mod files;
mod headers;
mod lock;
mod locked_database;

pub use error::{SqliteError, committing, damaged, opening, reading};
pub use files::{OpenFiles, sync_directory};
pub use lock::DirectoryLock;
pub use locked_database::{BUSY_TIMEOUT, LockedDatabase, data_version, zero_freed_pages};

/// The database file in the data directory.
pub const DATABASE_FILE: &str = "bandana.sqlite3";

/// Whether a store must exist where one is opened. A store created silently would hide that a disk
/// was not mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A store must exist.
    Required,
    /// A store is created if none exists.
    Optional,
    /// A store is created, and none may exist.
    Forbidden,
}
