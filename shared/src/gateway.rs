//! The gateway of Oblivious HTTP (RFC 9458): its keys, and the sizes of messages through a relay.
//!
//! `proto/bandana/v1/gateway.proto` describes the way of a call.

use thiserror::Error;

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

/// The least length of an answer, in bytes, before it is sealed. Those to a fetch of few arms and to
/// an upload have this length, so that their sizes do not tell them apart.
pub const ANSWER_BYTES_MIN: usize = 2048;

/// Bytes that sealing adds to a request: header, encapsulated key and tag.
pub const SEALING_BYTES: usize = 7 + 32 + 16;

/// The most bytes of a sealed request.
pub const SEALED_REQUEST_BYTES_MAX: usize = REQUEST_BYTES_MAX + SEALING_BYTES;

/// Bytes that sealing adds to an answer: a nonce and a tag.
pub const ANSWER_SEALING_BYTES: usize = 32 + 16;

/// Adds zeros until the length is `least`, or 4, 16, 64... times as much. Zeros after a binary HTTP
/// message are padding (RFC 9292, section 3.8).
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

/// The public key of a gateway, in the format `application/ohttp-keys` (RFC 9458, section 3): one
/// configuration with the only algorithms that devices take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayKeys(Vec<u8>);

impl GatewayKeys {
    /// Checks the form of a key configuration.
    ///
    /// # Errors
    /// [`GatewayKeysError`] when there is none or more than one, with other algorithms, or a key of
    /// zeros.
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
}

/// Bytes that are not the key of a gateway.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "these are not the keys of a gateway: one configuration of X25519, HKDF-SHA256 and \
     ChaCha20-Poly1305 is expected"
)]
pub struct GatewayKeysError(());

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
}
