//! Rows, read from the directory of data sets and kept.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::curator::reading::{Fingerprint, ReadError, read};
use crate::curator::rows::Rows;
use crate::curator::universe::Schema;
use crate::store::{CuratorName, DataSetRecord};

/// The data sets that were read.
#[derive(Debug)]
pub(super) struct Shelf {
    directory: Option<PathBuf>,
    rows: Mutex<HashMap<CuratorName, Arc<Rows>>>,
}

impl Shelf {
    pub(super) fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, rows: Mutex::default() }
    }

    /// Reads a file of the directory.
    pub(super) fn read(
        &self,
        file: &str,
        schema: &Schema,
    ) -> Result<(Rows, Fingerprint), ShelfError> {
        let directory = self.directory.as_ref().ok_or(ShelfError::NoDirectory)?;
        // A name within the directory, and no way out of it.
        let mut parts = Path::new(file).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(ShelfError::NotAName { file: file.to_owned() });
        }
        read(&directory.join(file), schema).map_err(|error| match error {
            ReadError::File(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                ShelfError::Missing { file: file.to_owned() }
            }
            other => ShelfError::Read(other),
        })
    }

    /// The rows of a data set, if its file is the one that was registered.
    pub(super) fn rows(&self, record: &DataSetRecord) -> Result<Arc<Rows>, ShelfError> {
        let kept = |rows: &HashMap<_, Arc<Rows>>| rows.get(&record.name).map(Arc::clone);
        if let Some(rows) = kept(&self.rows.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(rows);
        }
        let columns: Vec<&str> = record.columns.lines().collect();
        let schema = Schema::parse(&columns).map_err(|error| ShelfError::Read(error.into()))?;
        let (rows, fingerprint) = self.read(&record.file, &schema)?;
        if fingerprint != record.fingerprint {
            return Err(ShelfError::Changed { file: record.file.clone() });
        }
        let rows = Arc::new(rows);
        let mut all = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(record.name.clone(), Arc::clone(&rows));
        Ok(rows)
    }
}

/// Why there are no rows.
#[derive(Debug, Error)]
pub(super) enum ShelfError {
    #[error(
        "this server has no directory of data sets; set `directory` in [curator] and start it again"
    )]
    NoDirectory,
    #[error("{file:?} is no name of a file; give one in the server's directory of data sets")]
    NotAName { file: String },
    #[error("the server's directory of data sets has no file {file:?}")]
    Missing { file: String },
    #[error(
        "the file {file:?} is not the one that was registered; put that one back, or register the \
         other as a data set of its own. Nothing was spent"
    )]
    Changed { file: String },
    #[error(transparent)]
    Read(ReadError),
}
