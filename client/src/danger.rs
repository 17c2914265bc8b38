//! Functions that weaken the privacy guarantee, for cases that need them.
//!
//! ```
#![doc = include_str!("example.txt")]
//! use bandana_client::{Bandana, Reporting, danger};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path();
//! # let again = || start(Bandana::builder().host_transport().directory(path));
//! # drop(again()?);
//! std::fs::write(path.join("ledger"), "damaged")?;
//! # let (bandana, tasks, _clock) = again()?;
//! assert!(matches!(bandana.status().reporting, Reporting::StorageUnusable(_)));
//! # drop((bandana, tasks));
//! // Nothing is reported until a reset:
//! danger::reset(path)?;
//! # let (bandana, _tasks, _clock) = again()?;
//! assert!(matches!(bandana.status().reporting, Reporting::On));
//! # Ok::<(), Failure>(())
//! ```

use std::path::Path;

use crate::storage::{Directory, Storage, StorageError};

/// Erases everything that is stored in a directory, the spent budget included, so that the next
/// start is a first one. The only way to recover from [`crate::Reporting::StorageUnusable`].
///
/// # Privacy
/// The spent budget starts again from zero: an installation that is reset n times may lose n + 1
/// times its caps, like one that is installed anew. A user's opt-out is kept. Do not call it for
/// temporary failures: a directory that another process has locked, or that can't be read for the
/// moment, is tried again by the next start.
///
/// # Errors
/// [`StorageError::InUse`] while a client is running on the directory;
/// [`StorageError::Directory`] when it can't be used or made;
/// [`StorageError::Io`] when the files can't be removed.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::{Bandana, StorageError, danger};
///
/// let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let (bandana, tasks, _) = start(Bandana::builder().host_transport().directory(path))?;
/// assert!(matches!(danger::reset(path), Err(StorageError::InUse { .. })));
/// drop((bandana, tasks));
/// danger::reset(path)?;
/// assert!(!path.join("ledger").exists());
/// # Ok::<(), Failure>(())
/// ```
pub fn reset(directory: &Path) -> Result<(), StorageError> {
    Storage::reset(&mut Directory::lock(directory)?)
}
