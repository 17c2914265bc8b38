//! The files of a device.

use crate::input::{byte, part, sealed};

/// A frame of the file `state`: its length, and what is sealed.
fn frame(magic: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let bytes = sealed(magic, payload);
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&length[..], &bytes].concat()
}

/// Whatever is in the files, they are refused, or what is read is what would be written.
pub(crate) fn device(mut data: &[u8]) {
    let kind = byte(&mut data);
    let [state, changes, one, other, rewards] = std::array::from_fn(|_| part(&mut data));
    if kind & 1 == 1 {
        // As they are.
        bandana_client::fuzzing::device_files(one, state, rewards);
        return;
    }
    let mut slots = frame(*b"BDlg", one);
    slots.resize(1024, 0);
    slots.extend(frame(*b"BDlg", other));
    slots.resize(2048, 0);
    slots.extend(frame(*b"BDdn", data));
    let mut log = frame(*b"BDst", state);
    if kind & 2 == 2 {
        log.extend(frame(*b"BDch", changes));
    }
    bandana_client::fuzzing::device_files(&slots, &log, &sealed(*b"BDrw", rewards));
}

/// The same of the file of disclosures.
pub(crate) fn disclosures(mut data: &[u8]) {
    let kind = byte(&mut data);
    let sealed = sealed(*b"BDdi", data);
    bandana_client::fuzzing::disclosures(if kind & 1 == 1 { data } else { &sealed });
}
