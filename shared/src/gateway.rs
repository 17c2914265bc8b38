//! The gateway of Oblivious HTTP (RFC 9458): its keys, and the sizes of messages through a relay.
//!
//! `proto/bandana/v1/gateway.proto` describes the way of a call.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::hex;

/// The path of sealed requests, at relays and gateways.
pub const PATH: &str = "/ohttp";

/// The media type of a sealed request.
pub const REQUEST_TYPE: &str = "message/ohttp-req";

/// The media type of a sealed answer.
pub const ANSWER_TYPE: &str = "message/ohttp-res";

/// The media type of the answer to a request that the gateway can't open.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// The least length of a request, in bytes, before it is sealed.
pub const REQUEST_BYTES_MIN: usize = 512;

/// The greatest length of a request, in bytes, before it is sealed.
pub const REQUEST_BYTES_MAX: usize = 32 * 1024;

/// The least length of an answer, in bytes, before it is sealed. Answers to a fetch of few arms and
/// to an upload have this length, so their sizes do not distinguish them.
pub const ANSWER_BYTES_MIN: usize = 2048;

/// Bytes that sealing adds to a request: header, encapsulated key and tag.
pub const SEALING_BYTES: usize = 7 + 32 + 16;

/// The most bytes of a sealed request.
pub const SEALED_REQUEST_BYTES_MAX: usize = REQUEST_BYTES_MAX + SEALING_BYTES;

/// Bytes that sealing adds to an answer: a nonce and a tag.
pub const ANSWER_SEALING_BYTES: usize = 32 + 16;

/// Pads a message with zeros to `least` bytes, or to 4, 16, 64... times as many if it is longer.
/// Zeros after a binary HTTP message are padding (RFC 9292, section 3.8).
///
/// ```
/// use bandana_shared::gateway::pad;
/// let padded = |bytes: usize| {
///     let mut message = vec![1; bytes];
///     pad(&mut message, 512);
///     message.len()
/// };
/// assert_eq!([0, 512, 513, 2049].map(padded), [512, 512, 2048, 8192]);
/// ```
pub fn pad(message: &mut Vec<u8>, least: usize) {
    let mut length = least.max(1);
    while length < message.len() {
        length = length.saturating_mul(4);
    }
    message.resize(length, 0);
}

/// The key configuration of X25519 with HKDF-SHA256 and ChaCha20-Poly1305, as a list of one (RFC
/// 9458, section 3), around the identifier and the 32 bytes of the public key.
const BEFORE_ID: [u8; 2] = [0, 41];
const BEFORE_KEY: [u8; 2] = [0, 0x20];
const AFTER_KEY: [u8; 6] = [0, 4, 0, 1, 0, 3];

/// The public key of a gateway, in the format `application/ohttp-keys` (RFC 9458, section 3). It is
/// one configuration, with the only algorithms that devices accept. A relay that shuffles has a key
/// of the same form.
///
/// The text form has 86 hexadecimal digits.
///
/// ```
/// use bandana_shared::gateway::{GatewayKeys, GatewayKeysError};
///
/// let text = "00290100208520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a000400010003";
/// let keys: GatewayKeys = text.parse()?;
/// assert_eq!(keys.to_string(), text);
/// assert!(text[2..].parse::<GatewayKeys>().is_err());
/// # Ok::<(), GatewayKeysError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayKeys(Vec<u8>);

impl GatewayKeys {
    /// Checks the form of a key configuration.
    ///
    /// # Errors
    /// [`GatewayKeysError`] unless there is exactly one configuration, with these algorithms and a
    /// key other than zeros.
    pub fn new(configurations: &[u8]) -> Result<Self, GatewayKeysError> {
        let rest = configurations.strip_prefix(&BEFORE_ID).and_then(<[u8]>::split_first);
        let key = rest.and_then(|(_, rest)| rest.strip_prefix(&BEFORE_KEY));
        let key = key.and_then(|rest| rest.strip_suffix(&AFTER_KEY)).unwrap_or_default();
        if key.len() == 32 && key.iter().any(|byte| *byte != 0) {
            Ok(Self(configurations.to_vec()))
        } else {
            Err(GatewayKeysError(()))
        }
    }

    /// The bytes of the configuration.
    pub fn configurations(&self) -> &[u8] {
        &self.0
    }

    /// The digest of the configuration, 16 bytes. A relay that shuffles uses it to separate reports
    /// that were sealed for different keys.
    pub fn digest(&self) -> [u8; 16] {
        let hash = Sha256::new_with_prefix(DIGEST_DOMAIN).chain_update(&self.0).finalize();
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash[..16]);
        digest
    }

    /// Whether `other` has the same public key. Identifiers may differ.
    pub fn has_key_of(&self, other: &Self) -> bool {
        let key = |keys: &Self| keys.0.get(KEY).map(<[u8]>::to_vec);
        key(self) == key(other)
    }
}

/// What a digest begins with, so that no bytes of another protocol have it.
const DIGEST_DOMAIN: &[u8] = b"bandana.v1.gateway-keys\0";

/// The place of the public key in a configuration.
const KEY: std::ops::Range<usize> = 5..37;
const _: () = assert!(KEY.start == BEFORE_ID.len() + 1 + BEFORE_KEY.len());

/// The bytes of a configuration.
const BYTES: usize = KEY.end + AFTER_KEY.len();

impl fmt::Display for GatewayKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for GatewayKeys {
    type Err = GatewayKeysError;

    fn from_str(text: &str) -> Result<Self, GatewayKeysError> {
        let bytes: [u8; BYTES] = hex::decode(text).ok_or(GatewayKeysError(()))?;
        Self::new(&bytes)
    }
}

/// Bytes that are not the key of a gateway.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error(
    "these are not the keys of a gateway: one configuration of X25519, HKDF-SHA256 and \
     ChaCha20-Poly1305 is expected, as text in hexadecimal digits"
)]
pub struct GatewayKeysError(());

crate::debug_says!(GatewayKeysError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_configuration_with_the_known_algorithms_is_taken_and_nothing_else() {
        let good = [&BEFORE_ID[..], &[7], &BEFORE_KEY, &[9; 32], &AFTER_KEY].concat();
        assert_eq!(GatewayKeys::new(&good).unwrap().configurations(), good);
        assert!(GatewayKeys::new(&[]).is_err());
        assert!(GatewayKeys::new(&[good.clone(), good.clone()].concat()).is_err());
        // All but the identifier and the key are fixed.
        for position in (0..good.len()).filter(|position| ![2].contains(position)) {
            let mut other = good.clone();
            other[position] ^= 1;
            let is_key = (5..37).contains(&position);
            assert_eq!(GatewayKeys::new(&other).is_ok(), is_key, "{position}");
        }
        let zeros = [&BEFORE_ID[..], &[7], &BEFORE_KEY, &[0; 32], &AFTER_KEY].concat();
        assert!(GatewayKeys::new(&zeros).is_err());
    }

    #[test]
    fn the_text_of_a_key_is_read_and_no_other() {
        let of = |id: u8, key: u8| {
            let bytes = [&BEFORE_ID[..], &[id], &BEFORE_KEY, &[key; 32], &AFTER_KEY].concat();
            GatewayKeys::new(&bytes).unwrap()
        };
        let text = of(7, 0xab).to_string();
        assert_eq!(text.len(), 86);
        assert_eq!(text.parse(), Ok(of(7, 0xab)));
        assert_eq!(text.to_uppercase().parse(), Ok(of(7, 0xab)));
        for wrong in ["", "0", "zz", &text[..84], &text[..85], &format!("{text}00")] {
            assert!(wrong.parse::<GatewayKeys>().is_err(), "{wrong:?}");
        }
        assert!(text.replace("ab", "+b").parse::<GatewayKeys>().is_err());
        assert!(text.replace("ab", "é").parse::<GatewayKeys>().is_err());
        assert!(text.replace("ab", "00").parse::<GatewayKeys>().is_err());
        assert!(of(7, 1).has_key_of(&of(8, 1)) && !of(7, 1).has_key_of(&of(7, 2)));
    }
}
