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

/// Erases everything that is stored in a directory, including the spent budget. The next start is
/// then a first one. It is for files that are missing, damaged or of another version, and for no other
/// [`crate::Reporting::StorageUnusable`]: a directory that is in use, full or not there yet is tried
/// again by itself.
///
/// # Privacy
/// The spent budget starts again from zero. An installation that is reset n times may lose n + 1
/// times its caps, like one that is installed again. A user's opt-out is kept. Do not call it for
/// temporary failures. If another process has locked the directory, or it can't be read for the
/// moment, the next start tries it again.
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

/// Erases a directory of disclosures: those that wait, and the ledger of what was disclosed. This
/// is the only way to recover from a ledger of ρ that is damaged or missing.
///
/// # Privacy
/// What was spent starts again from zero, as with [`reset`], although the server still has the
/// rewards that were disclosed. After n resets, one person may cost n + 1 times the caps.
///
/// # Errors
/// [`StorageError::InUse`] while the directory is open; [`StorageError::Directory`] and
/// [`StorageError::Io`].
///
/// ```
/// use bandana_client::trusted::{Disclosures, RhoBudget};
/// use bandana_client::{StorageError, danger};
///
/// let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// std::fs::write(path.join("rho"), "damaged")?;
/// let damaged = Disclosures::open(path, RhoBudget::default());
/// assert!(matches!(damaged, Err(StorageError::Damaged { file: "rho" })));
/// danger::reset_disclosures(path)?;
/// Disclosures::open(path, RhoBudget::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "trusted")]
pub fn reset_disclosures(directory: &Path) -> Result<(), StorageError> {
    crate::trusted::reset(&mut Directory::lock(directory)?)
}

/// Disclosures and a ledger in memory, for simulations and tests, where each person ends with the
/// process.
///
/// # Privacy
/// A restart forgets what was spent and what waits. Apps use
/// [`Disclosures::open`](crate::trusted::Disclosures::open).
///
/// # Errors
/// None so far: nothing can fail in memory.
///
/// ```
/// use bandana_client::{danger, trusted::RhoBudget};
/// let user = danger::disclosures_in_memory(RhoBudget::default())?;
/// assert_eq!(user.spent().rewards, 0);
/// # Ok::<(), bandana_client::StorageError>(())
/// ```
#[cfg(feature = "trusted")]
pub fn disclosures_in_memory(
    budget: crate::trusted::RhoBudget,
) -> Result<crate::trusted::Disclosures, StorageError> {
    crate::trusted::in_memory(budget)
}
