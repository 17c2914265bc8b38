//! The secret key of a gateway, and its file.
//!
//! Two lines of text; lines that are empty or begin with `#` are skipped:
//!
//! ```text
//! bandana gateway key 1
//! secret 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use bandana_shared::gateway::GatewayKeys;
use bandana_shared::signing::{secret_from_text, secret_to_text};
use ohttp::hpke::{Aead, Kdf, Kem};
use ohttp::{KeyConfig, SymmetricSuite};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::regular_file;

const TITLE: &str = "bandana gateway key 1";

const COMMENT: &str = "\
# Keep this file secret: whoever has it can read what devices send through a relay.
";

/// What the identifier of a key is derived with, so that it tells nothing about the secret.
const ID_DOMAIN: &[u8] = b"bandana.v1.gateway-key-id\0";

/// The algorithms after the key exchange.
const SUITE: SymmetricSuite = SymmetricSuite::new(Kdf::HkdfSha256, Aead::ChaCha20Poly1305);

/// The secret from which the gateway's X25519 key is derived. Zeroized on drop, and never printed.
pub struct GatewayKey(Zeroizing<[u8; 32]>);

impl GatewayKey {
    /// A new key from the operating system's randomness.
    ///
    /// # Errors
    /// [`GatewayKeyError::Entropy`] when the operating system has none.
    pub fn generate() -> Result<Self, GatewayKeyError> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *secret).map_err(GatewayKeyError::Entropy)?;
        Ok(Self(secret))
    }

    /// Reads the key from a file.
    ///
    /// # Errors
    /// [`GatewayKeyError`] when the file can't be read, or is none of a gateway's key.
    pub fn read(path: &Path) -> Result<Self, GatewayKeyError> {
        let failed = |source| GatewayKeyError::Read { path: path.to_owned(), source };
        let text = regular_file::read_secret(path).map_err(failed)?;
        Self::from_text(&text).ok_or_else(|| GatewayKeyError::Content { path: path.to_owned() })
    }

    fn from_text(text: &str) -> Option<Self> {
        let lines = text.lines().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        if lines.next() != Some(TITLE) {
            return None;
        }
        let secret = secret_from_text(lines.next()?.strip_prefix("secret ")?.trim_start()).ok()?;
        lines.next().is_none().then_some(Self(secret))
    }

    /// Another secret, for what this domain names.
    pub fn derived(&self, domain: &[u8]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(Sha256::new_with_prefix(domain).chain_update(*self.0).finalize().into())
    }

    /// The text of the key's file.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(1024));
        let secret = secret_to_text(&self.0);
        for part in [COMMENT, TITLE, "\nsecret ", &secret, "\n"] {
            text.push_str(part);
        }
        text
    }

    /// The configuration with the secret key.
    ///
    /// # Errors
    /// [`GatewayKeyError::Derive`] when the library can't derive a key.
    pub(super) fn configuration(&self) -> Result<KeyConfig, GatewayKeyError> {
        let id = Sha256::new_with_prefix(ID_DOMAIN).chain_update(*self.0).finalize()[0];
        KeyConfig::derive(id, Kem::X25519Sha256, vec![SUITE], &*self.0)
            .map_err(GatewayKeyError::Derive)
    }

    /// The public keys.
    ///
    /// # Errors
    /// [`GatewayKeyError::Derive`] when the library can't derive a key.
    pub fn keys(&self) -> Result<GatewayKeys, GatewayKeyError> {
        let list = KeyConfig::encode_list(&[self.configuration()?]);
        let list = list.map_err(GatewayKeyError::Derive)?;
        // One configuration has 41 bytes.
        GatewayKeys::new(&list).map_err(|_| GatewayKeyError::Derive(ohttp::Error::Internal))
    }
}

impl fmt::Debug for GatewayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatewayKey(<secret>)")
    }
}

/// A key that can't be used.
#[derive(Debug, Error)]
pub enum GatewayKeyError {
    /// The operating system has no randomness for a new key.
    #[error("the operating system's random source failed; no key was made")]
    Entropy(#[source] getrandom::Error),
    /// The file can't be read.
    #[error("can't read the gateway's key file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file has another content. It is not shown.
    #[error(
        "{} is not the key of a gateway; name a file that `bandana gateway-key generate` wrote",
        path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
    },
    /// The library can't derive a key.
    #[error("the gateway's key can't be derived")]
    Derive(#[source] ohttp::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_other_texts_are_none() {
        let key = GatewayKey::generate().unwrap();
        let text = key.to_text();
        let again = GatewayKey::from_text(&text).unwrap();
        assert_eq!(again.keys().unwrap(), key.keys().unwrap());
        assert_ne!(GatewayKey::generate().unwrap().keys().unwrap(), key.keys().unwrap());
        assert_eq!(format!("{key:?}"), "GatewayKey(<secret>)");
        for broken in [&text[..text.len() - 2], &format!("{}more", &**text), "", "secret 00"] {
            assert!(GatewayKey::from_text(broken).is_none(), "{broken:?}");
        }
    }
}
