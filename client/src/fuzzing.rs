//! A device's files with arbitrary contents, for the package that fuzzes their readers.
//!
//! ```
//! assert!(!bandana_client::fuzzing::device_files(b"", b"nonsense", b""));
//! ```

use bandana_shared::stored;

use crate::core::StoredState;
use crate::storage::{LEDGER, MemoryFiles, REWARDS, STATE, Storage};

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
    let mut files = MemoryFiles::default();
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
        let mut files = MemoryFiles::default();
        files.0.insert(DISCLOSURES.to_owned(), bytes.to_vec());
        DisclosuresFile::open(Box::new(files))
    };
    let Ok((_, kept)) = open(bytes) else { return false };
    let written = DisclosuresFile::bytes(&kept).expect("they have an encoding");
    let (_, again) = open(&written).expect("they are read again");
    assert_eq!(DisclosuresFile::bytes(&again).expect("they are written again"), written);
    true
}

/// Reads a file of the ledger of rho. Returns whether it can be used. What was read must be the
/// same after it is written and read again.
///
/// ```
/// assert!(!bandana_client::fuzzing::ledger_of_rho(b"nonsense"));
/// ```
///
/// # Panics
/// When the ledgers differ.
#[cfg(feature = "trusted")]
pub fn ledger_of_rho(bytes: &[u8]) -> bool {
    use crate::trusted::rho_file;

    let Ok(ledger) = rho_file::read(bytes) else { return false };
    let written = rho_file::bytes(&ledger).expect("it has an encoding");
    assert_eq!(rho_file::read(&written).expect("it is read again"), ledger);
    true
}
