//! The acknowledgement file: the progress of the last acknowledged commit, kept beside the store.
//!
//! SQLite takes a log that was cut or overwritten for one that was never finished, and drops its
//! content. So before a commit is acknowledged, the store's progress is written to this file too. A
//! store with less progress than the file has lost data. The file is not synced, so writing it
//! costs nothing. It outlives a killed process; after a power cut it may hold an older state, which
//! only weakens the check. It is written after the commit is durable, so it never states more than
//! the store held.

use std::cmp::Ordering;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bandana_edge::regular_file;
use bandana_shared::identity::StoreId;

use crate::DATABASE_FILE;

/// The suffix of its name, which begins as that of the database.
pub(super) const SUFFIX: &str = "-acknowledged";

/// Most bytes read from the file: more than its text ever has.
const LEN_MAX: u64 = 1024;

/// The progress of a store, which grows with every commit that is acknowledged.
///
/// A change that removes data has an audit entry, so the number of entries grows, and entry numbers
/// are never reused. Groups of uploads are removed only by a commit with a later group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Entries of logs.
    pub entries: u64,
    /// Commits of disclosures.
    pub disclosures: u64,
    /// Rounds of sessions.
    pub rounds: u64,
    /// Groups of uploads.
    pub groups: u64,
}

impl Progress {
    /// The progress of a store that has only a number of commits.
    pub fn of_commits(commits: u64) -> Self {
        Self { entries: 0, disclosures: 0, rounds: 0, groups: commits }
    }

    /// Whether anything is missing. Where no audit entry explains a removal, each number is
    /// compared. A backup ends trusted experiments, which is compared like a lost commit of theirs.
    pub fn is_behind(self, acknowledged: Self) -> bool {
        match self.entries.cmp(&acknowledged.entries) {
            Ordering::Less => true,
            Ordering::Equal => {
                self.disclosures < acknowledged.disclosures
                    || self.rounds < acknowledged.rounds
                    || self.groups < acknowledged.groups
            }
            Ordering::Greater => false,
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, disclosures, rounds, groups } = self;
        write!(
            f,
            "{groups} groups of uploads, {entries} entries of logs, {disclosures} commits of \
             disclosures and {rounds} rounds of sessions"
        )
    }
}

/// The acknowledgement file of an open store.
#[derive(Debug)]
pub struct Acknowledged {
    file: File,
    id: StoreId,
    last: Option<Progress>,
}

impl Acknowledged {
    /// Opens the file of the store in `directory`, or makes it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(directory: &Path, id: StoreId) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        Ok(Self { file: options.open(path(directory))?, id, last: None })
    }

    /// Writes the store's progress to the file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn note(&mut self, progress: Progress) -> io::Result<()> {
        if self.last != Some(progress) {
            self.file.write_all_at(text(self.id, progress).as_bytes(), 0)?;
            self.last = Some(progress);
        }
        Ok(())
    }
}

/// The least progress that the store in `directory` with this id had made. None: unknown.
///
/// # Errors
/// Those of the system, and one for a file that is no regular file.
pub fn read(directory: &Path, id: StoreId) -> io::Result<Option<Progress>> {
    let path = path(directory);
    let mut found = Vec::new();
    match regular_file::open(&path).and_then(|file| file.take(LEN_MAX).read_to_end(&mut found)) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let message = format!("{} can't be read: {error}", path.display());
            return Err(io::Error::new(error.kind(), message));
        }
    }
    let progress = str::from_utf8(&found).ok().and_then(|found| parse(id, found));
    if progress.is_none() && !found.is_empty() {
        tracing::warn!(
            file = %path.display(),
            "the file does not tell about this store, so nobody can tell whether anything \
             acknowledged is missing"
        );
    }
    Ok(progress)
}

/// Removes the file, so that the store in `directory` is accepted as it is.
///
/// # Errors
/// Those of the system.
pub fn forget(directory: &Path) -> io::Result<()> {
    match fs::remove_file(path(directory)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The path of the file in `directory`.
pub fn path(directory: &Path) -> PathBuf {
    directory.join(format!("{DATABASE_FILE}{SUFFIX}"))
}

/// The text of the file, which always has the same length.
fn text(id: StoreId, progress: Progress) -> String {
    let Progress { entries, disclosures, rounds, groups } = progress;
    let text = format!("1 {id} {entries:020} {disclosures:020} {rounds:020} {groups:020}");
    let checksum = crc32fast::hash(text.as_bytes());
    format!("{text} {checksum:08x}\n")
}

fn parse(id: StoreId, found: &str) -> Option<Progress> {
    let mut numbers = found.split_ascii_whitespace().skip(2).map_while(|word| word.parse().ok());
    let mut next = || numbers.next();
    let progress =
        Progress { entries: next()?, disclosures: next()?, rounds: next()?, groups: next()? };
    (text(id, progress) == found).then_some(progress)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    const ID: StoreId = StoreId::new([7; 16]);

    #[test]
    fn what_was_noted_is_read_and_damage_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let read = || read(folder.path(), ID).unwrap();
        assert_eq!(read(), None);
        let mut file = Acknowledged::open(folder.path(), ID).unwrap();
        assert_eq!(read(), None);
        let mut progress = Progress { entries: 3, disclosures: 0, rounds: 2, groups: 1 };
        for groups in [9, u64::MAX, 10] {
            progress.groups = groups;
            file.note(progress).unwrap();
            assert_eq!(read(), Some(progress));
        }
        assert_eq!(super::read(folder.path(), StoreId::new([8; 16])).unwrap(), None);
        let whole = fs::read(path(folder.path())).unwrap();
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[place] ^= 1 << bit;
                fs::write(path(folder.path()), damaged).unwrap();
                assert_eq!(read(), None, "{place} {bit}");
            }
        }
        forget(folder.path()).unwrap();
        forget(folder.path()).unwrap();
        assert_eq!(read(), None);
    }

    #[test]
    fn what_is_no_file_is_named_and_waited_for_by_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        let refused = || read(folder.path(), ID).unwrap_err().to_string();
        fs::create_dir(&path).unwrap();
        assert!(refused().contains("bandana.sqlite3-acknowledged can't be read"));
        fs::remove_dir(&path).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(refused().contains("bandana.sqlite3-acknowledged can't be read"));
    }
}
