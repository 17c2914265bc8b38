//! Functions that weaken the guarantee, and are at times needed all the same.
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
//! // The way out, until which nothing is reported:
//! danger::reset(path)?;
//! # let (bandana, _tasks, _clock) = again()?;
//! assert!(matches!(bandana.status().reporting, Reporting::On));
//! # Ok::<(), Failure>(())
//! ```

use std::path::Path;

use crate::storage::{Directory, Storage, StorageError};

/// Forgets everything that is stored in a directory, what was spent included, so that
/// the next start is a first one. The way out of
/// [`crate::Reporting::StorageUnusable`].
///
/// # Privacy
/// The budget begins anew: an installation that is reset n times may lose n + 1 times
/// its caps, as one that is installed anew. That the user has opted out is not forgotten.
/// Not for what passes by itself: a directory that another process has, or that can't be
/// read for the moment, is tried again by the next start.
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
