//! The encoding of all state that Bandana writes to its own disk.
//!
//! bincode is unmaintained (RUSTSEC-2025-0141). So only this module uses it, and no byte from the
//! network ever reaches it. A magic number, a format version and a checksum precede the payload:
//!
//! ```text
//! magic (4 bytes) | version (2, little endian) | CRC-32 of the rest (4) | payload
//! ```
//!
//! The checksum covers magic, version and payload. It detects damage, not tampering, because
//! whoever can write the file can compute the checksum.
//!
//! A type whose format changes gets the next version, and reads the earlier formats in
//! [`Stored::from_older`]. Golden bytes of every version that was ever written stay in its tests.

use std::cmp::Ordering;
use std::error::Error as Cause;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Length of the header before the payload.
const HEADER: usize = 10;

/// A kind of stored state and the version of its format.
pub trait Stored: Serialize + DeserializeOwned {
    /// Four bytes that identify this kind of state.
    const MAGIC: [u8; 4];
    /// Version of the format that [`to_bytes`] writes.
    const VERSION: u16;

    /// Reads the format of an older version of the program. Returns `None` for a version that is no
    /// longer read. By default that is every older version.
    ///
    /// ```
    /// use bandana_shared::stored::{Older, Stored, StoredError};
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Count {
    ///     reports: u64,
    ///     ones: u64,
    /// }
    ///
    /// impl Stored for Count {
    ///     const MAGIC: [u8; 4] = *b"CNT ";
    ///     const VERSION: u16 = 2;
    ///
    ///     fn from_older(older: &Older<'_>) -> Result<Option<Self>, StoredError> {
    ///         Ok(match older.version() {
    ///             // Version 1 had no ones.
    ///             1 => Some(Self { reports: older.decode()?, ones: 0 }),
    ///             _ => None,
    ///         })
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// Errors of [`Older::decode`].
    fn from_older(_older: &Older<'_>) -> Result<Option<Self>, StoredError> {
        Ok(None)
    }
}

/// Undamaged state in an older version of its format.
#[derive(Debug)]
pub struct Older<'a> {
    version: u16,
    payload: &'a [u8],
}

impl Older<'_> {
    /// Version of the format, less than [`Stored::VERSION`].
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Decodes the payload in the type of that version.
    ///
    /// # Errors
    /// [`StoredError::Decode`] and [`StoredError::Damaged`] when the payload is of another type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, StoredError> {
        decode(self.payload)
    }
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

/// Decodes the output of [`to_bytes`], from this version of the program or from an older one that
/// [`Stored::from_older`] reads.
///
/// # Errors
/// [`StoredError`], which distinguishes damage, another kind of state, and a version that this
/// program does not read.
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
    match version.cmp(&T::VERSION) {
        Ordering::Equal => decode(payload),
        Ordering::Greater => Err(StoredError::Newer { found: version, known: T::VERSION }),
        Ordering::Less => T::from_older(&Older { version, payload })?
            .ok_or(StoredError::Outdated { found: version, known: T::VERSION }),
    }
}

fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, StoredError> {
    let (state, read) = bincode::serde::decode_from_slice(payload, configuration())
        .map_err(|source| StoredError::Decode(source.into()))?;
    if read == payload.len() { Ok(state) } else { Err(StoredError::Damaged) }
}

/// State that can't be written or read back.
#[derive(Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The value has no encoding.
    #[error("stored state can't be encoded")]
    Encode(#[source] Box<dyn Cause + Send + Sync>),
    /// The checksum is correct, but the content is invalid.
    #[error("stored state can't be decoded")]
    Decode(#[source] Box<dyn Cause + Send + Sync>),
    /// The bytes are cut off or changed.
    #[error("stored state is damaged: its checksum or its length does not fit")]
    Damaged,
    /// The bytes hold another kind of state.
    #[error("stored state is of another kind")]
    Kind,
    /// A newer program wrote the bytes.
    #[error(
        "stored state has format version {found}, this program knows up to {known}; use a newer \
         program"
    )]
    Newer {
        /// Version found.
        found: u16,
        /// Newest version known.
        known: u16,
    },
    /// The program that wrote the bytes is too old.
    #[error(
        "stored state has format version {found}, which this program (version {known}) no longer \
         reads; let an older program convert it first"
    )]
    Outdated {
        /// Version found.
        found: u16,
        /// Version that this program writes.
        known: u16,
    },
}

crate::debug_says!(StoredError);

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// Version 1 was a bare number and is no longer read.
    #[derive(Serialize, Deserialize)]
    struct First(u64);

    impl Stored for First {
        const MAGIC: [u8; 4] = *b"TEST";
        const VERSION: u16 = 1;
    }

    /// Version 2 held numbers alone.
    #[derive(Serialize, Deserialize)]
    struct Second(Vec<u64>);

    impl Stored for Second {
        const MAGIC: [u8; 4] = *b"TEST";
        const VERSION: u16 = 2;
    }

    /// Version 3 gave each number a count, and 1 to numbers without one.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample(Vec<(u64, u16)>);

    impl Stored for Sample {
        const MAGIC: [u8; 4] = *b"TEST";
        const VERSION: u16 = 3;

        fn from_older(older: &Older<'_>) -> Result<Option<Self>, StoredError> {
            if older.version() != 2 {
                return Ok(None);
            }
            let Second(numbers) = older.decode()?;
            Ok(Some(Self(numbers.into_iter().map(|number| (number, 1)).collect())))
        }
    }

    const GOLDEN_2: &[u8] = b"TEST\x02\x00\xa8\x9b\xd0\x4b\x02\xfb\x2c\x01\x07";
    const GOLDEN_3: &[u8] = b"TEST\x03\x00\xcc\xea\x07\xaa\x01\xfb\x2c\x01\x07";

    /// Puts header and checksum before any payload.
    fn framed(version: u16, payload: &[u8]) -> Vec<u8> {
        let checksum = checksum(Sample::MAGIC, version, payload).to_le_bytes();
        [&Sample::MAGIC[..], &version.to_le_bytes(), &checksum, payload].concat()
    }

    #[test]
    fn golden_bytes_of_every_version() {
        assert_eq!(to_bytes(&Second(vec![300, 7])).unwrap(), GOLDEN_2);
        assert_eq!(to_bytes(&Sample(vec![(300, 7)])).unwrap(), GOLDEN_3);
        assert_eq!(from_bytes::<Sample>(GOLDEN_2).unwrap(), Sample(vec![(300, 1), (7, 1)]));
        assert_eq!(from_bytes::<Sample>(GOLDEN_3).unwrap(), Sample(vec![(300, 7)]));
    }

    #[test]
    fn every_single_bit_error_and_every_cut_is_found() {
        for golden in [GOLDEN_2, GOLDEN_3] {
            for place in 0..golden.len() * 8 {
                let mut damaged = golden.to_vec();
                damaged[place / 8] ^= 1 << (place % 8);
                let read = from_bytes::<Sample>(&damaged);
                assert!(matches!(read, Err(StoredError::Damaged)), "{place}");
            }
            for length in 0..golden.len() {
                assert!(from_bytes::<Sample>(&golden[..length]).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn content_that_does_not_fit_its_version_is_an_error() {
        for version in [2, 3] {
            // Two entries announced and none present; and a byte too many.
            let cut = from_bytes::<Sample>(&framed(version, &[2]));
            assert!(matches!(cut, Err(StoredError::Decode(_))), "{version}");
            let long = from_bytes::<Sample>(&framed(version, &[0, 9]));
            assert!(matches!(long, Err(StoredError::Damaged)), "{version}");
        }
    }

    #[test]
    fn other_kinds_and_versions_are_told_apart() {
        #[derive(Serialize, Deserialize)]
        struct Other(u8);
        impl Stored for Other {
            const MAGIC: [u8; 4] = *b"OTHR";
            const VERSION: u16 = 3;
        }
        let other = from_bytes::<Sample>(&to_bytes(&Other(1)).unwrap());
        assert!(matches!(other, Err(StoredError::Kind)));
        let newer = from_bytes::<Sample>(&framed(4, &[0]));
        assert!(matches!(newer, Err(StoredError::Newer { found: 4, known: 3 })));
        let outdated = from_bytes::<Sample>(&to_bytes(&First(1)).unwrap());
        assert!(matches!(outdated, Err(StoredError::Outdated { found: 1, known: 3 })));
        // By default a type reads no older version.
        let unread = from_bytes::<Second>(&to_bytes(&First(1)).unwrap());
        assert!(matches!(unread, Err(StoredError::Outdated { found: 1, known: 2 })));
    }
}
