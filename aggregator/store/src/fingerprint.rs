//! Fingerprints of data sets, which only holders of the store's key can compute.
//!
//! A plain hash of a file reveals the rest of it to anyone who knows nearly all of it: they try
//! candidates for the unknown part until the hash matches. So fingerprints are HMAC-SHA-256 with a
//! key that never leaves the store, and are never sent.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The digests of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentDigests {
    /// The digest.
    pub current: [u8; 32],
    /// The digest by which an earlier version knew the same content.
    pub earlier: [u8; 32],
}

/// The key of a store: 32 random bytes.
#[derive(Clone)]
pub struct FingerprintKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey(<secret>)")
    }
}

impl FingerprintKey {
    /// A new random key.
    ///
    /// # Errors
    /// When the operating system's random source fails.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(&mut key[..])?;
        Ok(Self(key))
    }

    /// A stored key.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The key's bytes, to store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The fingerprint of a file's bytes, given their SHA-256.
    pub fn of_file(&self, digest: &[u8; 32]) -> Fingerprint {
        self.code(b"file", digest)
    }

    /// The fingerprint of a file's content, given its digests.
    pub fn of_content(&self, digests: &ContentDigests) -> Fingerprint {
        let Fingerprint(mut code) = self.code(b"content in its second form", &digests.current);
        code[..CURRENT.len()].copy_from_slice(&CURRENT);
        Fingerprint(code)
    }

    /// The fingerprint by which an earlier version knew the same content.
    pub fn of_earlier_content(&self, digests: &ContentDigests) -> Fingerprint {
        self.code(b"content", &digests.earlier)
    }

    fn code(&self, what: &[u8], digest: &[u8; 32]) -> Fingerprint {
        // The digest has a fixed length, so the label before it is unambiguous. HMAC takes keys of
        // any length.
        let code = <Hmac<Sha256>>::new_from_slice(&self.0[..]).map(|code| {
            code.chain_update(what).chain_update(digest).finalize().into_bytes().into()
        });
        Fingerprint(code.unwrap_or_default())
    }
}

/// The first bytes of a fingerprint of a content as it is today. One of an earlier version has them with
/// odds of 2^-32.
const CURRENT: [u8; 4] = *b"BDc2";

/// The fingerprint of a file, or of its content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// A stored fingerprint.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The fingerprint's bytes, to store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether it is of a content as it is compared today, and not by an earlier version.
    pub fn is_of_current_content(&self) -> bool {
        self.0.starts_with(&CURRENT)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(<secret>)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_hmac_and_belong_to_the_key_and_to_what_they_are_of() {
        let key = FingerprintKey::from_bytes([7; 32]);
        // By Python: hmac.digest(b'\7' * 32, b'file' + b'\1' * 32, 'sha256')
        let expected = [
            0x98, 0x34, 0x9e, 0xf6, 0xad, 0x2c, 0x0e, 0x80, 0xd5, 0x32, 0x2b, 0x3f, 0x8b, 0xee,
            0x09, 0x9c, 0xfc, 0xd7, 0xcc, 0x28, 0x76, 0xb0, 0x63, 0xc8, 0x64, 0xf5, 0x42, 0x49,
            0x22, 0x18, 0x4a, 0x56,
        ];
        assert_eq!(key.of_file(&[1; 32]).as_bytes(), &expected);
        let content = ContentDigests { current: [1; 32], earlier: [1; 32] };
        let (current, earlier) = (key.of_content(&content), key.of_earlier_content(&content));
        assert!(key.of_file(&[1; 32]) != earlier && current != earlier);
        assert!(current.is_of_current_content() && !earlier.is_of_current_content());
        assert_ne!(key.of_file(&[1; 32]), FingerprintKey::from_bytes([8; 32]).of_file(&[1; 32]));
        assert_eq!(format!("{key:?} {:?}", key.of_file(&[1; 32])).matches('7').count(), 0);
    }
}
