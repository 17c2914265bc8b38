//! Splitting of an input into parts.

/// Splits off a part with a two-byte length prefix; the last part needs none.
pub(crate) fn part<'a>(data: &mut &'a [u8]) -> &'a [u8] {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return std::mem::take(data);
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (part, rest) = rest.split_at(length);
    *data = rest;
    part
}

/// The next bytes, padded with zeros.
pub(crate) fn bytes<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let mut taken = [0; N];
    let length = N.min(data.len());
    taken[..length].copy_from_slice(&data[..length]);
    *data = &data[length..];
    taken
}

pub(crate) fn byte(data: &mut &[u8]) -> u8 {
    bytes::<1>(data)[0]
}

pub(crate) fn u64(data: &mut &[u8]) -> u64 {
    u64::from_le_bytes(bytes(data))
}

/// A folder in memory, if there is one.
#[cfg(feature = "server")]
pub(crate) fn memory() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// A payload framed as stored state of this kind and version: magic, version, checksum. Otherwise
/// no input would pass the checksum.
pub(crate) fn sealed(magic: [u8; 4], version: u16, payload: &[u8]) -> Vec<u8> {
    let version = version.to_le_bytes();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&magic);
    hasher.update(&version);
    hasher.update(payload);
    let checksum = hasher.finalize().to_le_bytes();
    [&magic[..], &version, &checksum, payload].concat()
}
