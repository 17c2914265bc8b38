//! Errors of the embedded store's database, as ones that name the data directory and the remedy.

use std::path::Path;

use bandana_sqlite::{DATABASE_FILE, SqliteError};

use crate::{DamageError, StoreError};

impl StoreError {
    /// Wraps the error of a store in `directory` in one that names the directory and, when the disk
    /// is the cause, the remedy.
    #[must_use]
    pub fn located(self, directory: &Path) -> Self {
        self.of_file(&directory.join(DATABASE_FILE))
    }

    /// Wraps an error of this file if it is damage; leaves others as they are.
    #[must_use]
    pub(crate) fn of_damaged_file(self, file: &Path) -> Self {
        if self.is_damage() { self.of_file(file) } else { self }
    }

    /// As [`Self::located`], for a single database file.
    #[must_use]
    pub(super) fn of_file(self, file: &Path) -> Self {
        match self {
            Self::Sqlite(error) => error.of_file(file).into(),
            Self::Damage(DamageError::Data { .. } | DamageError::Stored(_)) => {
                SqliteError::of_damaged_file(self, file).into()
            }
            other => other,
        }
    }
}
