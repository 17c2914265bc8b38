//! What weakens the guarantee, and is at times needed all the same.

use std::path::Path;

use crate::storage::{Directory, Storage, StorageError};

/// Forgets everything that is stored in a directory, what was spent included, so that
/// the next start is a first one. The way out of
/// [`crate::Reporting::StorageUnusable`].
///
/// # Privacy
/// The budget begins anew: an installation that is reset n times may lose n + 1 times
/// its caps, as one that is installed anew.
///
/// # Errors
/// [`StorageError::InUse`] while a client is running on the directory;
/// [`StorageError::Io`] when the files can't be removed.
///
/// ```
/// let directory = tempfile::tempdir()?;
/// bandana_client::danger::reset(directory.path())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn reset(directory: &Path) -> Result<(), StorageError> {
    Storage::reset(&mut Directory::lock(directory)?)
}
