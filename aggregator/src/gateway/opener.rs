//! The opener of sealed requests, which costs more processor time than all else about a call.
//!
//! Requests are opened on threads of their own, at most one for each processor, so that other calls
//! are not held up. Few wait for a thread; further ones are told to come back.

use std::num::NonZero;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::Semaphore;

use super::key::{GatewayKey, GatewayKeyError};

/// Most requests that are opened or wait for it.
const QUEUE_MAX: usize = 1024;

/// Opens requests that were sealed for a key.
#[derive(Clone, Debug)]
pub struct Opener {
    server: Arc<ohttp::Server>,
    queue: Arc<Semaphore>,
    threads: Arc<Semaphore>,
}

/// An opened request.
#[derive(Debug)]
pub struct Opened {
    /// The request, as binary HTTP with padding.
    pub request: Vec<u8>,
    answer: ohttp::ServerResponse,
}

impl Opened {
    /// Seals the answer for whoever sealed the request.
    ///
    /// # Errors
    /// [`OpenError::Failed`] when the library can't.
    pub fn seal(self, answer: &[u8]) -> Result<Vec<u8>, OpenError> {
        self.answer.encapsulate(answer).map_err(|_| OpenError::Failed)
    }
}

impl Opener {
    /// An opener for this key.
    ///
    /// # Errors
    /// [`GatewayKeyError`] when the key can't be derived.
    pub fn new(key: &GatewayKey) -> Result<Self, GatewayKeyError> {
        let server = ohttp::Server::new(key.configuration()?).map_err(GatewayKeyError::Derive)?;
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        Ok(Self {
            server: Arc::new(server),
            queue: Arc::new(Semaphore::new(QUEUE_MAX)),
            threads: Arc::new(Semaphore::new(threads)),
        })
    }

    /// Opens a sealed request.
    ///
    /// # Errors
    /// [`OpenError`] when there is no room, or the request was not sealed for this key.
    pub async fn open(&self, sealed: Bytes) -> Result<Opened, OpenError> {
        let _place = self.queue.try_acquire().map_err(|_| OpenError::Full)?;
        let thread = Arc::clone(&self.threads).acquire_owned().await;
        let thread = thread.map_err(|_| OpenError::Failed)?;
        let server = Arc::clone(&self.server);
        let opening = tokio::task::spawn_blocking(move || {
            let _thread = thread;
            server.decapsulate(&sealed)
        });
        // A panic of the library: the operating system has no randomness.
        let opened = opening.await.map_err(|_| OpenError::Failed)?;
        let (request, answer) = opened.map_err(|_| OpenError::Sealed)?;
        Ok(Opened { request, answer })
    }
}

/// A request that was not opened.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// Too many others wait.
    #[error("the gateway has as many requests to open as it can; send this again later")]
    Full,
    /// It was not sealed for the key, or is damaged.
    #[error("the request was not sealed for the gateway's key; ask for its keys again")]
    Sealed,
    /// The library failed.
    #[error("the gateway failed")]
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ohttp::ClientRequest;

    #[tokio::test]
    async fn what_is_sealed_for_the_key_is_opened_and_answered_and_nothing_else() {
        let key = GatewayKey::generate().unwrap();
        let opener = Opener::new(&key).unwrap();
        let keys = key.keys().unwrap();
        let client = || ClientRequest::from_encoded_config_list(keys.configurations()).unwrap();
        let (sealed, waiting) = client().encapsulate(b"question").unwrap();
        let opened = opener.open(sealed.clone().into()).await.unwrap();
        assert_eq!(opened.request, b"question");
        let answer = opened.seal(b"answer").unwrap();
        assert_eq!(waiting.decapsulate(&answer).unwrap(), b"answer");
        // Sealed anew, the same bytes look different.
        assert_ne!(client().encapsulate(b"question").unwrap().0, sealed);

        for position in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[position] ^= 1;
            let opened = opener.open(damaged.into()).await;
            assert_eq!(opened.unwrap_err(), OpenError::Sealed, "{position}");
        }
        for length in 0..sealed.len() {
            let opened = opener.open(sealed[..length].to_vec().into()).await;
            assert_eq!(opened.unwrap_err(), OpenError::Sealed, "{length}");
        }
        let other = Opener::new(&GatewayKey::generate().unwrap()).unwrap();
        assert_eq!(other.open(sealed.into()).await.unwrap_err(), OpenError::Sealed);
    }
}
