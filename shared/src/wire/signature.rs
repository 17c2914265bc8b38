//! Conversions of signatures to and from messages.

use super::{WireError, v1};
use crate::identity::UnixSeconds;
use crate::limits::SIGNATURES_MAX;
use crate::signing::{PublicKey, Signature};
use crate::specification::Specification;

/// Checks the form only; see [`Signature::verify`].
impl TryFrom<&v1::SpecificationSignature> for Signature {
    type Error = WireError;

    fn try_from(message: &v1::SpecificationSignature) -> Result<Self, WireError> {
        let key = PublicKey::try_from(&message.public_key[..])?;
        let bytes = message.signature[..].try_into();
        let bytes = bytes.map_err(|_| WireError::SignatureLength(message.signature.len()))?;
        Ok(Self::new(key, UnixSeconds::new(message.expires_at_unix_seconds), bytes))
    }
}

impl From<&Signature> for v1::SpecificationSignature {
    fn from(signature: &Signature) -> Self {
        Self {
            public_key: signature.key().as_bytes().to_vec().into(),
            expires_at_unix_seconds: signature.expires().get(),
            signature: signature.as_bytes().to_vec().into(),
        }
    }
}

/// The message of a specification with its signatures.
pub fn experiment_with_signatures(
    specification: &Specification,
    signatures: impl IntoIterator<Item: Into<v1::SpecificationSignature>>,
) -> v1::Experiment {
    let signatures = signatures.into_iter().map(Into::into).collect();
    v1::Experiment { signatures, ..specification.into() }
}

/// The signatures received with a specification or the keys of a gateway, unverified. Malformed
/// ones are left out, since no key made them. Signatures after the first [`SIGNATURES_MAX`] are
/// left out too: reading a key takes time, and any party can send many.
pub fn signatures(messages: &[v1::SpecificationSignature]) -> Vec<Signature> {
    let first = messages.iter().take(SIGNATURES_MAX);
    first.filter_map(|signature| Signature::try_from(signature).ok()).collect()
}
