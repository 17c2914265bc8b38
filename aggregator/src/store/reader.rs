//! Reading a store that a server has open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};

use super::embedded::{self, DATABASE_FILE, opening};
use super::postgres::{self, Link, Target};
use super::{AuditQuery, AuditRecord, PostgresSettings, StoreError};

/// Reads what is committed, on connections of its own: no commit waits for it.
///
/// Its methods wait, and must not be called where asynchronous code runs.
#[derive(Clone, Debug)]
pub struct StoreReader(Place);

#[derive(Clone, Debug)]
enum Place {
    /// A connection for each call.
    Embedded(PathBuf),
    /// One connection, which calls take turns on: readers can't take the connections
    /// that writers need.
    Postgres(Arc<Mutex<Link>>),
}

impl StoreReader {
    /// A reader of the store in `directory`, which must be open.
    pub fn new(directory: &Path) -> Self {
        Self(Place::Embedded(directory.join(DATABASE_FILE)))
    }

    /// A reader of a database that replicas share, which must have its tables. It connects
    /// when it is first asked.
    ///
    /// # Errors
    /// [`StoreError`] when a file can't be used.
    pub fn of_postgres(settings: &PostgresSettings) -> Result<Self, StoreError> {
        let link = Link::new(Arc::new(Target::new(settings)?))?;
        Ok(Self(Place::Postgres(Arc::new(Mutex::new(link)))))
    }

    /// The entries of the audit log that a query asks for, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when something can't be read or understood.
    pub fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, StoreError> {
        match &self.0 {
            Place::Embedded(database) => embedded::entries(&connect(database)?, query),
            Place::Postgres(link) => {
                let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
                // A connection that was lost since the last call is made again.
                postgres::entries(&mut link, query).or_else(|_| postgres::entries(&mut link, query))
            }
        }
    }
}

fn connect(database: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(database, flags).map_err(opening)
}
