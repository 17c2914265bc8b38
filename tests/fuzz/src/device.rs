//! The files of a device.

use crate::input::{byte, part, sealed};

/// A frame of the file `state`: its length, and the sealed payload.
fn frame(magic: [u8; 4], version: u16, payload: &[u8]) -> Vec<u8> {
    let bytes = sealed(magic, version, payload);
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&length[..], &bytes].concat()
}

/// Any files are either refused, or written back as they were read.
pub fn device(mut data: &[u8]) {
    let kind = byte(&mut data);
    let [state, changes, one, other, rewards] = std::array::from_fn(|_| part(&mut data));
    if kind & 1 == 1 {
        // The files without changes.
        bandana_client::fuzzing::device_files(one, state, rewards);
        return;
    }
    let mut slots = frame(*b"BDlg", 1, one);
    slots.resize(1024, 0);
    slots.extend(frame(*b"BDlg", 1, other));
    slots.resize(2048, 0);
    slots.extend(frame(*b"BDdn", 1, data));
    // The versions of formats that devices have written.
    let version = if kind & 4 == 4 { 1 } else { 2 };
    let mut log = frame(*b"BDst", version, state);
    if kind & 2 == 2 {
        log.extend(frame(*b"BDch", version, changes));
    }
    bandana_client::fuzzing::device_files(&slots, &log, &sealed(*b"BDrw", 1, rewards));
}

/// Any file of disclosures, and any ledger of rho, is either refused, or written back as it was
/// read.
pub fn disclosures(mut data: &[u8]) {
    let kind = byte(&mut data);
    if kind & 2 == 2 {
        let sealed = sealed(*b"BDrh", 1, data);
        bandana_client::fuzzing::ledger_of_rho(if kind & 1 == 1 { data } else { &sealed });
        return;
    }
    let sealed = sealed(*b"BDdi", 1, data);
    bandana_client::fuzzing::disclosures(if kind & 1 == 1 { data } else { &sealed });
}
