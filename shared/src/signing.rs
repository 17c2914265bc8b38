//! Signed specifications, and signed keys of a gateway.
//!
//! An app pins the public keys of the parties that may define its experiments. A server that has a
//! signature but no secret key can't make up an experiment. A signature covers a domain, its own
//! expiry and the canonical bytes of one specification. These bytes include the experiment's id and
//! revision:
//!
//! ```text
//! Ed25519( "bandana.v1.signed-specification" || 0x00
//!          || expiry, seconds since 1970-01-01 (UTC), 8 bytes big endian
//!          || canonical bytes of the specification )
//! ```
//!
//! Devices need the feature `signatures`, for verifying. The feature `signing` adds secret keys,
//! for signing.
//!
//! ```
//! # #[cfg(feature = "signing")] {
//! use bandana_shared::identity::UnixSeconds;
//! use bandana_shared::signing::{SignatureError, SigningKey};
//! # use bandana_shared::{curve::Mechanism, epsilon::Epsilon, identity::ExperimentId};
//! # use bandana_shared::{rewards::Rewards, specification::{Arm, ReleaseTiming, Specification}};
//! # let specification = Specification::first(ExperimentId::new("button-colour")?,
//! #     Epsilon::new(1.0)?, Rewards::binary(), Mechanism::Linear, vec![Arm::new("red")?],
//! #     ReleaseTiming::IMMEDIATE)?;
//! let now = UnixSeconds::new(1_800_000_000);
//! let key = SigningKey::generate()?;
//! let signature = key.sign(&specification, now.after_days(90));
//! assert_eq!(signature.key(), key.public_key());
//! signature.verify(&specification, now)?;
//!
//! let later = signature.verify(&specification, now.after_days(90));
//! assert!(matches!(later, Err(SignatureError::Expired { .. })));
//! let other = signature.verify(&specification.with_arm(Arm::new("green")?)?, now);
//! assert!(matches!(other, Err(SignatureError::Invalid { .. })));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::VerifyingKey;
use thiserror::Error;

use crate::gateway::GatewayKeys;
use crate::hex;
use crate::identity::UnixSeconds;
use crate::specification::Specification;

/// Content that can be signed.
pub trait Signable {
    /// The domain of a signature, before expiry and content, so that no signature made for another
    /// purpose is valid. It ends with a zero byte.
    const DOMAIN: &'static [u8];

    /// The bytes of the content, the same for equal contents.
    fn content(&self) -> Vec<u8>;
}

impl Signable for Specification {
    const DOMAIN: &'static [u8] = b"bandana.v1.signed-specification\0";

    fn content(&self) -> Vec<u8> {
        self.canonical_bytes()
    }
}

impl Signable for GatewayKeys {
    const DOMAIN: &'static [u8] = b"bandana.v1.signed-gateway-keys\0";

    fn content(&self) -> Vec<u8> {
        self.configurations().to_vec()
    }
}

/// The bytes that a signature covers.
fn signed_bytes<T: Signable>(content: &T, expires: UnixSeconds) -> Vec<u8> {
    [T::DOMAIN, &expires.get().to_be_bytes(), &content.content()].concat()
}

/// The public half of an Ed25519 key, which an app pins.
///
/// The text form has 64 hexadecimal digits.
///
/// ```
/// use bandana_shared::signing::{KeyError, PublicKey};
///
/// let text = "fe1e430f306107d8a478c205e881326dfe92991bf9a7af9f042dc18aa39cbab5";
/// let key: PublicKey = text.parse()?;
/// assert_eq!(key.to_string(), text);
/// assert_eq!("fe1e43".parse::<PublicKey>(), Err(KeyError::Text));
/// # Ok::<(), KeyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Checks that the bytes are a public key against which signatures can be verified.
    ///
    /// # Errors
    /// [`KeyError::Point`] when the bytes are not a point of the curve in its canonical encoding.
    /// [`KeyError::Weak`] for a point of small order, under which a signature would be valid for
    /// almost any specification.
    pub fn new(bytes: [u8; 32]) -> Result<Self, KeyError> {
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Point)?;
        if key.is_weak() {
            return Err(KeyError::Weak);
        }
        if key.to_edwards().compress().to_bytes() != bytes {
            return Err(KeyError::Point);
        }
        Ok(Self(bytes))
    }

    /// The bytes of the key, as in RFC 8032.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether the holder of the key signed this message.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(signature);
        VerifyingKey::from_bytes(&self.0)
            .is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
    }
}

impl TryFrom<&[u8]> for PublicKey {
    type Error = KeyError;

    fn try_from(bytes: &[u8]) -> Result<Self, KeyError> {
        Self::new(bytes.try_into().map_err(|_| KeyError::Length(bytes.len()))?)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::new(hex::decode(text).ok_or(KeyError::Text)?)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// The 32 bytes of a secret from 64 hexadecimal digits.
///
/// # Errors
/// [`KeyError::Text`] for any other text.
#[cfg(feature = "signing")]
pub fn secret_from_text(text: &str) -> Result<zeroize::Zeroizing<[u8; 32]>, KeyError> {
    Ok(zeroize::Zeroizing::new(hex::decode(text).ok_or(KeyError::Text)?))
}

/// A secret as 64 hexadecimal digits.
#[cfg(feature = "signing")]
pub fn secret_to_text(secret: &[u8; 32]) -> zeroize::Zeroizing<String> {
    // The capacity suffices from the start: a string that grows leaves copies behind.
    let mut text = zeroize::Zeroizing::new(String::with_capacity(64));
    for byte in secret {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text
}

/// A claim that the holder of a key signed some specification. The claim is unverified until
/// [`Self::verify`] succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    key: PublicKey,
    expires: UnixSeconds,
    bytes: [u8; 64],
}

impl Signature {
    /// The signature with these parts.
    pub fn new(key: PublicKey, expires: UnixSeconds, bytes: [u8; 64]) -> Self {
        Self { key, expires, bytes }
    }

    /// The key of the alleged signer.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// The time of the expiry.
    pub fn expires(&self) -> UnixSeconds {
        self.expires
    }

    /// The 64 bytes of the signature, as in RFC 8032.
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.bytes
    }

    /// Verifies that the signature is valid for `content` at `now`.
    ///
    /// # Errors
    /// [`SignatureError::Invalid`] when the key's holder did not sign this content with this
    /// expiry. [`SignatureError::Expired`] when the holder did, but `now` is not before the expiry.
    pub fn verify<T: Signable>(&self, content: &T, now: UnixSeconds) -> Result<(), SignatureError> {
        if !self.fits(content) {
            return Err(SignatureError::Invalid { key: self.key });
        }
        if now < self.expires {
            Ok(())
        } else {
            Err(SignatureError::Expired { key: self.key, expired: self.expires })
        }
    }

    /// Whether the key's holder signed `content` with this expiry, even if the expiry has passed.
    pub fn fits<T: Signable>(&self, content: &T) -> bool {
        self.key.has_signed(&signed_bytes(content, self.expires), &self.bytes)
    }
}

/// A secret key. It is zeroized on drop and never printed.
#[cfg(feature = "signing")]
pub struct SigningKey(ed25519_dalek::SigningKey);

#[cfg(feature = "signing")]
impl SigningKey {
    /// A new key from the operating system's randomness.
    ///
    /// # Errors
    /// [`KeyError::Entropy`] when the operating system has none.
    pub fn generate() -> Result<Self, KeyError> {
        let mut secret = zeroize::Zeroizing::new([0; 32]);
        getrandom::fill(&mut *secret).map_err(KeyError::Entropy)?;
        Ok(Self::from_secret(&secret))
    }

    /// The key of this secret, which must come from a good random source.
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(secret))
    }

    /// The key from the text of [`Self::to_secret_text`].
    ///
    /// # Errors
    /// [`KeyError::Text`] when `text` is not 64 hexadecimal digits.
    pub fn from_secret_text(text: &str) -> Result<Self, KeyError> {
        Ok(Self::from_secret(&*secret_from_text(text)?))
    }

    /// The secret as 64 hexadecimal digits, zeroized on drop.
    pub fn to_secret_text(&self) -> zeroize::Zeroizing<String> {
        secret_to_text(self.0.as_bytes())
    }

    /// The public half.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs `content`. The signature expires at `expires`. The same inputs give the same
    /// signature.
    pub fn sign<T: Signable>(&self, content: &T, expires: UnixSeconds) -> Signature {
        let bytes = self.sign_bytes(&signed_bytes(content, expires));
        Signature { key: self.public_key(), expires, bytes }
    }

    /// Signs a message that can't be mistaken for a message of another kind.
    pub(crate) fn sign_bytes(&self, message: &[u8]) -> [u8; 64] {
        use ed25519_dalek::Signer as _;
        self.0.sign(message).to_bytes()
    }
}

#[cfg(feature = "signing")]
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(<secret> of {})", self.public_key())
    }
}

/// Bytes or text that are not a key.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The text does not have 64 hexadecimal digits.
    #[error("a key is written as 64 hexadecimal digits, and this is not; copy it again")]
    Text,
    /// The key does not have 32 bytes.
    #[error("a public key has 32 bytes; this one has {0}")]
    Length(usize),
    /// The bytes are not a point of the curve, or not in its canonical encoding.
    #[error("these bytes are not an Ed25519 public key; copy the key again")]
    Point,
    /// A point of small order.
    #[error("this public key is weak: signatures under it prove nothing; generate another key")]
    Weak,
    /// The operating system has no randomness for a new key.
    #[cfg(feature = "signing")]
    #[error("the operating system's random source failed; no key was made")]
    Entropy(#[source] getrandom::Error),
}

crate::debug_says!(KeyError);

/// The reason why a signature is not valid.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignatureError {
    /// The key did not sign this content with this expiry.
    #[error("the signature does not fit: the key {key} did not sign this with this expiry")]
    Invalid {
        /// The key of the alleged signer.
        key: PublicKey,
    },
    /// The key signed, but the signature has expired.
    #[error("the signature by the key {key} expired at {expired}; sign anew")]
    Expired {
        /// The signer's key.
        key: PublicKey,
        /// The time of the expiry.
        expired: UnixSeconds,
    },
}

crate::debug_says!(SignatureError);
