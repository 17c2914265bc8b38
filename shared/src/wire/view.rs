//! Conversions of views of a log to and from messages.

use super::{WireError, v1};
use crate::identity::UnixSeconds;
use crate::transparency::{Cosignature, Hash, View, WITNESSES_MAX};

/// Checks the form only; see [`crate::transparency::Witnessed::check`].
impl TryFrom<&v1::View> for View {
    type Error = WireError;

    fn try_from(message: &v1::View) -> Result<Self, WireError> {
        let cosignatures = message.cosignatures.iter().take(WITNESSES_MAX);
        Ok(Self {
            size: message.size,
            path: hashes(&message.path)?,
            time: UnixSeconds::new(message.unix_seconds),
            siblings: hashes(&message.siblings)?,
            log_signature: fixed(&message.log_signature)?,
            cosignatures: cosignatures.map(cosignature).collect::<Result<_, _>>()?,
        })
    }
}

impl From<&View> for v1::View {
    fn from(view: &View) -> Self {
        let cosignature = |one: &Cosignature| v1::LogCosignature {
            key_id: one.key_id.to_vec().into(),
            unix_seconds: one.time.get(),
            signature: one.signature.to_vec().into(),
        };
        Self {
            size: view.size,
            path: view.path.concat().into(),
            unix_seconds: view.time.get(),
            siblings: view.siblings.concat().into(),
            log_signature: view.log_signature.to_vec().into(),
            cosignatures: view.cosignatures.iter().map(cosignature).collect(),
        }
    }
}

fn cosignature(message: &v1::LogCosignature) -> Result<Cosignature, WireError> {
    Ok(Cosignature {
        key_id: fixed(&message.key_id)?,
        time: UnixSeconds::new(message.unix_seconds),
        signature: fixed(&message.signature)?,
    })
}

fn hashes(bytes: &[u8]) -> Result<Vec<Hash>, WireError> {
    let (hashes, rest) = bytes.as_chunks();
    if rest.is_empty() { Ok(hashes.to_vec()) } else { Err(WireError::View(bytes.len())) }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], WireError> {
    bytes.try_into().map_err(|_| WireError::View(bytes.len()))
}
