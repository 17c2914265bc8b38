//! Errors of a storage.

use std::io;
use std::path::PathBuf;

use bandana_shared::stored::StoredError;
use thiserror::Error;

/// The reason why a storage can't be used. The client then draws arms without reports, and leaves
/// the files as they are.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, Reporting, StorageError};
///
/// // The path is that of a file.
/// let file = tempfile::NamedTempFile::new()?;
/// let builder = Bandana::builder().host_transport().directory(file.path());
/// # let (bandana, _tasks, _clock) = start(builder)?;
/// let Reporting::StorageUnusable(error) = bandana.status().reporting else { panic!() };
/// assert!(matches!(&*error, StorageError::Directory { path, .. } if path == file.path()));
/// assert!(bandana.experiment("button-colour")?.choose().assignment().is_some());
/// # Ok::<(), Failure>(())
/// ```
#[derive(Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The directory can't be used.
    #[error("the directory {} can't be used for Bandana's files", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another client has the directory, in this process or in another one.
    #[error(
        "the directory {} is in use by another process, or by another client of this one; give \
         each client a directory of its own, or use one client for all",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The process was forked off from the process that has the directory.
    #[error(
        "this process was forked off from the one that has Bandana's files; start a client of its \
         own, in a directory of its own"
    )]
    Forked,
    /// The disk failed or is full.
    #[error("{doing} Bandana's file `{file}` failed")]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The file's name in the directory.
        file: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A required file is missing.
    #[error(
        "Bandana's file `{file}` is missing, so nothing is known of the budget; restore it, or \
         reset the directory"
    )]
    Missing {
        /// The file's name in the directory.
        file: &'static str,
    },
    /// A file is damaged, cut off, or older than another file.
    #[error(
        "Bandana's file `{file}` is damaged or does not belong to the others, so the budget is \
         not certain; restore it, or reset the directory"
    )]
    Damaged {
        /// The file's name in the directory.
        file: &'static str,
    },
    /// The file of kept disclosures is damaged, or is another kind of file. The client leaves it as
    /// it is.
    #[cfg(feature = "trusted")]
    #[error(
        "Bandana's file `{file}` is damaged or holds no disclosures, so what waited in it can't \
         be sent; restore it, or erase it with `Disclosures::erase`"
    )]
    DisclosuresDamaged {
        /// The file's name in the directory.
        file: &'static str,
    },
    /// The directory for disclosures belongs to a client.
    #[cfg(feature = "trusted")]
    #[error(
        "the directory is a client's, since it has the file `{file}`; give disclosures a directory \
         of their own"
    )]
    NotOfDisclosures {
        /// The name of a file of the client.
        file: &'static str,
    },
    /// A file was written by another version of this library.
    #[error("Bandana's file `{file}` has format version {found}; this library knows {known}")]
    Version {
        /// The file's name in the directory.
        file: &'static str,
        /// Version found.
        found: u16,
        /// Version known.
        known: u16,
    },
    /// The host could not make a write. The client makes it again.
    #[error("the host could not store Bandana's state")]
    Host,
    /// The client has been shut down.
    #[error("the client has been shut down, so nothing can be stored any more")]
    Closed,
    /// The state has no encoding.
    #[error(transparent)]
    Stored(#[from] StoredError),
}

bandana_shared::debug_says!(StorageError);
