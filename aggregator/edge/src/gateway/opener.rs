//! The opener of sealed requests, which costs more processor time than all else about a call.
//!
//! Requests are opened on threads of their own, at most one for each processor, so that other calls
//! are not held up. Few wait for a thread; further ones are told to come back.

use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::oneshot;

use super::key::{GatewayKey, GatewayKeyError};

/// Most requests that wait to be opened.
const QUEUE_MAX: usize = 1024;

/// Opens requests that were sealed for a key, or for the one before it. Its threads end with the
/// last clone.
#[derive(Clone, Debug)]
pub struct Opener {
    jobs: SyncSender<Job>,
    /// The digests of the keys.
    keys: Arc<[[u8; 16]]>,
}

/// A request to be opened.
#[derive(Debug)]
struct Job {
    sealed: Bytes,
    opened: oneshot::Sender<Result<Opened, OpenError>>,
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
    /// An opener for this key and one before it, with a thread for each processor.
    ///
    /// # Errors
    /// [`OpenerError`] when the key can't be derived, or a thread can't be started.
    pub fn new(key: &GatewayKey, former: Option<&GatewayKey>) -> Result<Self, OpenerError> {
        let server = |key: &GatewayKey| {
            ohttp::Server::new(key.configuration()?).map_err(GatewayKeyError::Derive)
        };
        let servers = std::iter::once(key).chain(former).map(server);
        let servers: Arc<[ohttp::Server]> = servers.collect::<Result<_, _>>()?;
        let digests = std::iter::once(key).chain(former).map(|key| Ok(key.keys()?.digest()));
        let keys = digests.collect::<Result<_, GatewayKeyError>>()?;
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            let (servers, queue) = (Arc::clone(&servers), Arc::clone(&queue));
            let thread = std::thread::Builder::new().name("bandana-gateway".to_owned());
            thread.spawn(move || work(&servers, &queue)).map_err(OpenerError::Thread)?;
        }
        Ok(Self { jobs, keys })
    }

    /// Whether one of its keys has this digest.
    pub fn has(&self, digest: &[u8]) -> bool {
        self.keys.iter().any(|key| key[..] == *digest)
    }

    /// Opens a sealed request.
    ///
    /// # Errors
    /// [`OpenError`] when there is no room, or the request was not sealed for this key.
    pub async fn open(&self, sealed: Bytes) -> Result<Opened, OpenError> {
        let (opened, answer) = oneshot::channel();
        // The threads live as long as this.
        self.jobs.try_send(Job { sealed, opened }).map_err(|_| OpenError::Full)?;
        answer.await.unwrap_or(Err(OpenError::Failed))
    }
}

/// Opens what is in the queue, until there is no sender left.
fn work(servers: &[ohttp::Server], queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { sealed, opened }) = job else { return };
        if opened.is_closed() {
            continue;
        }
        // The library panics when the operating system has no randomness.
        // Only the key that is named by its number is tried.
        let opening = catch_unwind(AssertUnwindSafe(|| {
            servers.iter().find_map(|server| server.decapsulate(&sealed).ok())
        }));
        let outcome = match opening {
            Ok(Some((request, answer))) => Ok(Opened { request, answer }),
            Ok(None) => Err(OpenError::Sealed),
            Err(_) => Err(OpenError::Failed),
        };
        // The caller may be gone.
        opened.send(outcome).ok();
    }
}

/// An opener that can't be made.
#[derive(Debug, Error)]
pub enum OpenerError {
    /// The key can't be used.
    #[error(transparent)]
    Key(#[from] GatewayKeyError),
    /// A thread can't be started.
    #[error("can't start a thread for what comes through relays")]
    Thread(#[source] io::Error),
}

/// A request that was not opened.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// Too many others wait.
    #[error("the gateway is busy; send this again later")]
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
        let opener = Opener::new(&key, None).unwrap();
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
        let new = GatewayKey::generate().unwrap();
        let other = Opener::new(&new, None).unwrap();
        assert_eq!(other.open(sealed.clone().into()).await.unwrap_err(), OpenError::Sealed);
        let after = Opener::new(&new, Some(&key)).unwrap();
        assert_eq!(after.open(sealed.into()).await.unwrap().request, b"question");
    }
}
