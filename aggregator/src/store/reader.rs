//! Reading a store that a server has open.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::embedded::{DATABASE_FILE, entries, opening};
use super::{AuditQuery, AuditRecord, StoreError};

/// Reads what is committed, on connections of its own: nobody waits for it.
#[derive(Clone, Debug)]
pub struct StoreReader {
    database: PathBuf,
}

impl StoreReader {
    /// A reader of the store in `directory`, which must be open.
    pub fn new(directory: &Path) -> Self {
        Self { database: directory.join(DATABASE_FILE) }
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(&self.database, flags).map_err(opening)
    }

    /// The entries of the audit log that a query asks for, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when something can't be read or understood.
    pub fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, StoreError> {
        entries(&self.connect()?, query)
    }
}
