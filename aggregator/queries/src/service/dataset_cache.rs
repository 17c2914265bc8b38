//! A cache of rows, read from the directory of data sets.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::Schema;
use bandana_store::fingerprint::{Fingerprint, FingerprintKey};
use bandana_store::{CuratorName, DataSetRecord};
use thiserror::Error;

use crate::datasets::data_file::{DataFile, FileState};
use crate::datasets::reading::ReadError;

/// The data sets that have been read.
#[derive(Debug)]
pub(super) struct DatasetCache {
    directory: Option<PathBuf>,
    rows: Mutex<HashMap<CuratorName, (FileState, Arc<Rows>)>>,
}

impl DatasetCache {
    pub(super) fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, rows: Mutex::default() }
    }

    /// Opens a file of the directory.
    pub(super) fn open(&self, name: &str) -> Result<DataFile, DatasetCacheError> {
        DataFile::open(self.directory()?, name).map_err(|error| unread(error, name))
    }

    fn directory(&self) -> Result<&Path, DatasetCacheError> {
        self.directory.as_deref().ok_or(DatasetCacheError::NoDirectory)
    }

    /// The rows of a data set, if its file has the registered content. What is in memory counts only as
    /// long as the file is there, and nothing that the file system says of it has changed.
    pub(super) fn rows(
        &self,
        record: &DataSetRecord,
        key: &FingerprintKey,
    ) -> Result<Arc<Rows>, DatasetCacheError> {
        let directory = self.directory()?;
        let looked = DataFile::look(directory, &record.file);
        let mut all = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        match (&looked, all.get(&record.name)) {
            (Ok(state), Some((kept, rows))) if state == kept => return Ok(Arc::clone(rows)),
            _ => drop(all.remove(&record.name)),
        }
        drop(all);
        looked.map_err(|error| unread(error, &record.file))?;
        let file = self.open(&record.file)?;
        let schema = schema(record)?;
        let rows = if is_same_file(record, &file, key) {
            file.rows(&schema).map_err(DatasetCacheError::Read)?
        } else {
            let changed = || DatasetCacheError::Changed { file: record.file.clone() };
            // Values that a content holds for one may be two people, or two be one person: rows of
            // somebody, and the number of people, would be others.
            if schema.people().is_some() {
                return Err(changed());
            }
            // Errors of a different file are not revealed.
            let (rows, content) = file.rows_and_content(&schema).map_err(|_| changed())?;
            let codes = [key.of_content(&content), key.of_earlier_content(&content)];
            let is_same = record.content.is_some_and(|known| codes.contains(&known));
            is_same.then_some(rows).ok_or_else(changed)?
        };
        let rows = Arc::new(rows);
        let mut all = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(record.name.clone(), (file.state(), Arc::clone(&rows)));
        Ok(rows)
    }

    /// The fingerprints of the bytes and of the content of a data set's file, if the file still
    /// exists. For data sets that an earlier version registered.
    pub(super) fn codes(
        &self,
        record: &DataSetRecord,
        key: &FingerprintKey,
    ) -> Result<(Fingerprint, Fingerprint), DatasetCacheError> {
        let file = self.open(&record.file)?;
        if !is_same_file(record, &file, key) {
            return Err(DatasetCacheError::Changed { file: record.file.clone() });
        }
        let (_, content) =
            file.rows_and_content(&schema(record)?).map_err(DatasetCacheError::Read)?;
        Ok((key.of_file(&file.digest()), key.of_content(&content)))
    }
}

fn unread(error: ReadError, name: &str) -> DatasetCacheError {
    let file = name.to_owned();
    match error {
        ReadError::File(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
            DatasetCacheError::Missing { file }
        }
        ReadError::NotAName => DatasetCacheError::NotAName { file },
        ReadError::NotRegular => DatasetCacheError::NotRegular { file },
        other => DatasetCacheError::Read(other),
    }
}

fn schema(record: &DataSetRecord) -> Result<Schema, DatasetCacheError> {
    let columns: Vec<&str> = record.columns.lines().collect();
    Schema::parse(&columns).map_err(|error| DatasetCacheError::Read(error.into()))
}

/// Whether a file has exactly the registered bytes.
pub(super) fn is_same_file(record: &DataSetRecord, file: &DataFile, key: &FingerprintKey) -> bool {
    let digest = file.digest();
    let code = match record.content {
        Some(_) => key.of_file(&digest),
        // An earlier version stored the plain hash.
        None => Fingerprint::from_bytes(digest),
    };
    code == record.fingerprint
}

/// The reason why rows are unavailable.
#[derive(Debug, Error)]
pub(super) enum DatasetCacheError {
    #[error(
        "this server has no directory of data sets; set `directory` in [curator] and start it again"
    )]
    NoDirectory,
    #[error("{file:?} is no name of a file; give one in the server's directory of data sets")]
    NotAName { file: String },
    #[error(
        "{file:?} is no regular file in the server's directory of data sets; links are not followed"
    )]
    NotRegular { file: String },
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
