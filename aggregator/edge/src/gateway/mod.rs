//! The gateway of Oblivious HTTP (RFC 9458): its secret key, its signed public keys, and the
//! threads that open requests.

mod key;
mod opener;
mod published;

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::clock::Clock;

pub use key::{GatewayKey, GatewayKeyError};
pub use opener::{OpenError, Opened, Opener, OpenerError};
pub use published::read as read_keys;
pub use published::{PublishedKeys, PublishedKeysError};

/// The files of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayFiles {
    /// The secret key.
    pub key: PathBuf,
    /// The public keys with their signatures. None: they are not signed.
    pub signed_keys: Option<PathBuf>,
    /// The secret key before that one, for what was sealed for it. None: there was none.
    pub former_key: Option<PathBuf>,
}

/// What a server needs to be a gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Opens requests.
    pub opener: Opener,
    /// What devices seal requests for.
    pub keys: Arc<PublishedKeys>,
}

impl Gateway {
    /// Reads the files of a gateway.
    ///
    /// # Errors
    /// [`GatewayError`] when one of them can't be used.
    pub fn open(files: GatewayFiles, clock: Arc<dyn Clock>) -> Result<Self, GatewayError> {
        let key = GatewayKey::read(&files.key)?;
        let former = files.former_key.as_deref().map(GatewayKey::read).transpose()?;
        let keys = Arc::new(PublishedKeys::open(key.keys()?, files.signed_keys, clock)?);
        Ok(Self { opener: Opener::new(&key, former.as_ref())?, keys })
    }
}

/// A file of a gateway that can't be used.
#[derive(Debug, Error)]
#[error(transparent)]
pub enum GatewayError {
    /// The secret key.
    Key(#[from] GatewayKeyError),
    /// The signed public keys.
    Keys(#[from] PublishedKeysError),
    /// The threads.
    Opener(#[from] OpenerError),
}
