//! A device's files with arbitrary contents, for the package that fuzzes their readers.
//!
//! ```
//! assert!(!bandana_client::fuzzing::device_files(b"", b"nonsense", b""));
//! ```

use std::collections::BTreeMap;
use std::io;

use bandana_shared::stored;

use crate::core::StoredState;
use crate::storage::{Files, LEDGER, REWARDS, STATE, Storage};

/// Files in memory.
#[derive(Debug, Default)]
struct Memory(BTreeMap<String, Vec<u8>>);

impl Files for Memory {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.get(name).cloned())
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let file = self.0.entry(name.to_owned()).or_default();
        file.resize(file.len().max(offset + bytes.len()), 0);
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.entry(name.to_owned()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn create(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let file = self.0.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.0.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.0.remove(name);
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a directory with these files. Returns whether it can be used. A state that was read must
/// be the same after it is written and read again.
///
/// ```
/// assert!(!bandana_client::fuzzing::device_files(b"nonsense", b"", b""));
/// ```
///
/// # Panics
/// When the state differs.
pub fn device_files(ledger: &[u8], state: &[u8], rewards: &[u8]) -> bool {
    let mut files = Memory::default();
    for (name, bytes) in [(LEDGER, ledger), (STATE, state), (REWARDS, rewards)] {
        files.0.insert(name.to_owned(), bytes.to_vec());
    }
    let Ok((_, (state, number))) = Storage::open(Box::new(files), false, true) else {
        return false;
    };
    let write = |state, number| stored::to_bytes(&StoredState::new(state, number, false));
    let written = write(&state, number).expect("a state has an encoding");
    let read = stored::from_bytes::<StoredState>(&written).expect("it is read again");
    let (again, number) = read.into_state(false).expect("it is a state");
    assert_eq!(again.ledger.lifetime(), state.ledger.lifetime(), "what was spent");
    assert_eq!(write(&again, number).expect("it is written again"), written);
    true
}

/// Opens a directory with this file of disclosures. Returns whether it can be used. Disclosures
/// that were read must be the same after they are written and read again.
///
/// ```
/// assert!(!bandana_client::fuzzing::disclosures(b"nonsense"));
/// ```
///
/// # Panics
/// When the disclosures differ.
#[cfg(feature = "trusted")]
pub fn disclosures(bytes: &[u8]) -> bool {
    use crate::trusted::disclosures_file::{DISCLOSURES, DisclosuresFile};

    let open = |bytes: &[u8]| {
        let mut files = Memory::default();
        files.0.insert(DISCLOSURES.to_owned(), bytes.to_vec());
        DisclosuresFile::open(Box::new(files))
    };
    let Ok((_, kept)) = open(bytes) else { return false };
    let written = DisclosuresFile::bytes(&kept).expect("they have an encoding");
    let (_, again) = open(&written).expect("they are read again");
    assert_eq!(DisclosuresFile::bytes(&again).expect("they are written again"), written);
    true
}
