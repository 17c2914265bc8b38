//! The public keys of the gateway, with the signatures of a file that may change.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::signing::Signature;
use bandana_shared::wire::v1;
use prost::Message as _;
use thiserror::Error;

use crate::clock::Clock;
use crate::explain::explain;
use crate::regular_file;

/// Most bytes of the file: far more than 8 signatures take.
const FILE_BYTES_MAX: u64 = 16 * 1024;

/// The keys, as devices get them.
#[derive(Debug)]
pub struct PublishedKeys {
    keys: GatewayKeys,
    signed: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    message: ArcSwap<v1::GatewayKeys>,
}

impl PublishedKeys {
    /// These keys, with the signatures of the file `signed`. Ones that have all expired are logged:
    /// a server serves those who call it directly also without.
    ///
    /// # Errors
    /// [`PublishedKeysError`] when the file can't be read, is about other keys, or has a false
    /// signature or none.
    pub fn open(
        keys: GatewayKeys,
        signed: Option<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PublishedKeysError> {
        let message = message(&keys, signed.as_deref())?;
        if signed.is_some() && !has_unexpired(&message, &*clock) {
            tracing::error!("all signatures of the gateway's keys have expired; sign them anew");
        }
        Ok(Self { keys, signed, clock, message: ArcSwap::from_pointee(message) })
    }

    /// The keys.
    pub fn keys(&self) -> &GatewayKeys {
        &self.keys
    }

    /// The message for devices.
    pub fn message(&self) -> v1::GatewayKeys {
        v1::GatewayKeys::clone(&self.message.load())
    }

    /// Reads the file again. A file that can't be used, or whose signatures have all expired, is
    /// logged and changes nothing.
    pub fn reload(&self) {
        match message(&self.keys, self.signed.as_deref()) {
            Ok(message) if self.signed.is_none() || has_unexpired(&message, &*self.clock) => {
                self.message.store(message.into());
            }
            Ok(_) => tracing::error!(
                "all signatures of the gateway's keys have expired; they stay as they were"
            ),
            Err(error) => {
                let error = explain(&error);
                tracing::error!(error, "the gateway's signatures stay as they were");
            }
        }
    }
}

fn message(
    keys: &GatewayKeys,
    signed: Option<&Path>,
) -> Result<v1::GatewayKeys, PublishedKeysError> {
    let unsigned = v1::GatewayKeys {
        key_configurations: keys.configurations().to_vec().into(),
        ..v1::GatewayKeys::default()
    };
    let Some(path) = signed else { return Ok(unsigned) };
    let message = read(path)?;
    if message.key_configurations != unsigned.key_configurations {
        return Err(PublishedKeysError::OtherKeys { path: path.to_owned() });
    }
    let is_good = |signature: &v1::SpecificationSignature| {
        Signature::try_from(signature).is_ok_and(|signature| signature.fits(keys))
    };
    if message.signatures.is_empty() || !message.signatures.iter().all(is_good) {
        return Err(PublishedKeysError::Signatures { path: path.to_owned() });
    }
    Ok(message)
}

/// Whether a signature is still valid.
fn has_unexpired(message: &v1::GatewayKeys, clock: &dyn Clock) -> bool {
    let now = clock.unix_seconds();
    message.signatures.iter().any(|signature| now < signature.expires_at_unix_seconds)
}

/// The message in a file that `bandana gateway-key` wrote.
///
/// # Errors
/// [`PublishedKeysError`] when the file can't be read, or has another content.
pub fn read(path: &Path) -> Result<v1::GatewayKeys, PublishedKeysError> {
    let failed = |source| PublishedKeysError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = regular_file::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let message = v1::GatewayKeys::decode(&bytes[..]).ok();
    // Two files in a row would count as the second one.
    let message = message.filter(|message| message.encode_to_vec() == bytes);
    let message = message.filter(|message| !message.key_configurations.is_empty());
    message.ok_or_else(|| PublishedKeysError::Content { path: path.to_owned() })
}

/// A file of signed keys that can't be used.
#[derive(Debug, Error)]
pub enum PublishedKeysError {
    /// The file can't be read.
    #[error("can't read the gateway's signed keys {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file has another content.
    #[error(
        "{} does not hold the keys of a gateway; name a file that `bandana gateway-key` wrote",
        path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
    },
    /// A signature is false, or there is none.
    #[error(
        "{} has no signatures, or one that is false; sign the keys with `bandana gateway-key sign`",
        path.display()
    )]
    Signatures {
        /// The file.
        path: PathBuf,
    },
    /// The file is about other keys.
    #[error(
        "the signatures in {} are not of the gateway's key; sign the keys that belong to it",
        path.display()
    )]
    OtherKeys {
        /// The file.
        path: PathBuf,
    },
}
