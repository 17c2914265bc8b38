//! The one encoding of state that Bandana writes to its own disk.
//!
//! bincode is unmaintained (RUSTSEC-2025-0141), so it stays behind this module,
//! and no byte from the network ever reaches it. In front of the payload stand
//! a magic number, a format version and a checksum:
//!
//! ```text
//! magic (4 bytes) | version (2, little endian) | CRC-32 of the rest (4) | payload
//! ```
//!
//! The checksum covers magic, version and payload. It finds damage, not
//! malice: whoever can write the file can write the checksum.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Length of what stands in front of the payload.
const HEADER: usize = 10;

/// A kind of stored state and the version of its format.
pub trait Stored: Serialize + DeserializeOwned {
    /// Four bytes that tell this kind of state from others.
    const MAGIC: [u8; 4];
    /// Version of the format that [`to_bytes`] writes.
    const VERSION: u16;
}

fn configuration() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<{ 256 << 20 }>()
}

fn checksum(magic: [u8; 4], version: u16, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&magic);
    hasher.update(&version.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Encodes `state` with its header.
///
/// # Errors
/// [`StoredError::Encode`] for values that bincode can't encode.
pub fn to_bytes<T: Stored>(state: &T) -> Result<Vec<u8>, StoredError> {
    let payload = bincode::serde::encode_to_vec(state, configuration())
        .map_err(|source| StoredError::Encode(source.into()))?;
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(&T::MAGIC);
    bytes.extend_from_slice(&T::VERSION.to_le_bytes());
    bytes.extend_from_slice(&checksum(T::MAGIC, T::VERSION, &payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    Ok(bytes)
}

/// Decodes what [`to_bytes`] wrote.
///
/// # Errors
/// [`StoredError`] says whether the bytes are damaged, of another kind, or of
/// another version.
pub fn from_bytes<T: Stored>(bytes: &[u8]) -> Result<T, StoredError> {
    let Some((&[a, b, c, d, v0, v1, s0, s1, s2, s3], payload)) =
        bytes.split_first_chunk::<HEADER>()
    else {
        return Err(StoredError::Damaged);
    };
    let (magic, version) = ([a, b, c, d], u16::from_le_bytes([v0, v1]));
    if checksum(magic, version, payload) != u32::from_le_bytes([s0, s1, s2, s3]) {
        return Err(StoredError::Damaged);
    }
    if magic != T::MAGIC {
        return Err(StoredError::Kind);
    }
    if version != T::VERSION {
        return Err(StoredError::Version { found: version, expected: T::VERSION });
    }
    let (state, read) = bincode::serde::decode_from_slice(payload, configuration())
        .map_err(|source| StoredError::Decode(source.into()))?;
    if read == payload.len() { Ok(state) } else { Err(StoredError::Damaged) }
}

/// State that can't be written or read back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The value has no encoding.
    #[error("stored state can't be encoded")]
    Encode(#[source] Box<bincode::error::EncodeError>),
    /// The checksum fits, the content does not.
    #[error("stored state can't be decoded")]
    Decode(#[source] Box<bincode::error::DecodeError>),
    /// Cut off or changed.
    #[error("stored state is damaged: its checksum or its length does not fit")]
    Damaged,
    /// Another kind of state.
    #[error("stored state is of another kind")]
    Kind,
    /// Another version of the format.
    #[error("stored state has format version {found}; this program reads version {expected}")]
    Version {
        /// Version found.
        found: u16,
        /// Version that this program reads.
        expected: u16,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Sample(Vec<(u64, u16)>);

    impl Stored for Sample {
        const MAGIC: [u8; 4] = *b"TEST";
        const VERSION: u16 = 3;
    }

    #[test]
    fn golden_bytes() {
        let bytes = to_bytes(&Sample(vec![(300, 7)])).unwrap();
        assert_eq!(bytes[..6], *b"TEST\x03\x00");
        assert_eq!(bytes[HEADER..], [1, 251, 44, 1, 7]);
        assert_eq!(from_bytes::<Sample>(&bytes).unwrap(), Sample(vec![(300, 7)]));
    }

    #[test]
    fn every_single_bit_error_and_every_cut_is_found() {
        let bytes = to_bytes(&Sample(vec![(300, 7), (1, 2)])).unwrap();
        for place in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[place / 8] ^= 1 << (place % 8);
            assert!(matches!(from_bytes::<Sample>(&damaged), Err(StoredError::Damaged)), "{place}");
        }
        for length in 0..bytes.len() {
            assert!(from_bytes::<Sample>(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn other_kinds_and_versions_are_named() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Other(u8);
        impl Stored for Other {
            const MAGIC: [u8; 4] = *b"OTHR";
            const VERSION: u16 = 3;
        }
        #[derive(Debug, serde::Serialize, serde::Deserialize)]
        struct Newer(u8);
        impl Stored for Newer {
            const MAGIC: [u8; 4] = *b"TEST";
            const VERSION: u16 = 4;
        }
        let other = to_bytes(&Other(1)).unwrap();
        assert!(matches!(from_bytes::<Sample>(&other), Err(StoredError::Kind)));
        let newer = to_bytes(&Newer(1)).unwrap();
        assert!(matches!(
            from_bytes::<Sample>(&newer),
            Err(StoredError::Version { found: 4, expected: 3 })
        ));
    }
}
