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

/// The most bytes of key configurations: far more than one takes.
const CONFIGURATIONS_BYTES_MAX: usize = 1024;

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

/// The public keys of a gateway, in the format `application/ohttp-keys` (RFC 9458, section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayKeys(Vec<u8>);

impl GatewayKeys {
    /// Key configurations, whose content is not looked at.
    ///
    /// # Errors
    /// [`GatewayKeysError`] when there are none, or more bytes than one configuration takes.
    pub fn new(configurations: &[u8]) -> Result<Self, GatewayKeysError> {
        match configurations.len() {
            1..=CONFIGURATIONS_BYTES_MAX => Ok(Self(configurations.to_vec())),
            bytes => Err(GatewayKeysError(bytes)),
        }
    }

    /// The bytes of the configurations.
    pub fn configurations(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes that are not the keys of a gateway.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the keys of a gateway have 1 to {CONFIGURATIONS_BYTES_MAX} bytes; these have {0}")]
pub struct GatewayKeysError(usize);
