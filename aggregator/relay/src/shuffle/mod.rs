//! The shuffler of a relay: it keeps sealed reports, and hands them on in batches, in random order.
//!
//! A report is sealed for the aggregator, so the relay learns its experiment and arm alone. The
//! aggregator learns the number of ones of a batch, not whose they are. What that is worth is in
//! [`bandana_shared::accounting::shuffling`].

mod database;
mod delivery;
mod gateways;
mod known;
mod origins;
mod report_writer;
mod service;
mod store;

use std::path::PathBuf;
use std::sync::Arc;

use bandana_edge::clock::Clock;
use bandana_edge::gateway::{GatewayKey, GatewayKeyError, Opener, OpenerError};
use bandana_edge::operator_client::BatchesClient;
use bandana_shared::wire::v1::shuffler_server::ShufflerServer;
use bandana_sqlite::{Presence, SqliteError};
use thiserror::Error;

use crate::delay::RandomDelay;
use crate::forward::Keys;

use delivery::{Delivery, watch_ends};
use gateways::GatewayDigests;
use known::Experiments;
use origins::Origins;
use report_writer::{Ended, ReportWriter};
use service::ShufflerService;
pub use store::ShuffleLimits;

#[cfg(test)]
mod tests;

/// Most bytes of a message from a device.
const REQUEST_BYTES_MAX: usize = 1024;

/// Settings of a relay that shuffles.
#[derive(Clone, Debug)]
pub struct ShuffleSettings {
    /// The directory of its store.
    pub directory: PathBuf,
    /// Whether the store must exist already.
    pub presence: Presence,
    /// The file of its secret key, whose public half apps pin.
    pub key: PathBuf,
    /// The limits of its store.
    pub limits: ShuffleLimits,
    /// The aggregator's service of batches.
    pub aggregator: BatchesClient,
}

/// A shuffler whose store is open.
#[derive(Debug)]
pub(crate) struct Shuffle {
    service: ShufflerService,
    aggregator: BatchesClient,
    delay: RandomDelay,
    limits: ShuffleLimits,
    ended: Ended,
}

impl Shuffle {
    /// Opens the store. Must be called within a runtime.
    pub(crate) fn open(
        settings: ShuffleSettings,
        keys: Keys,
        (delay, clock): (RandomDelay, &Arc<dyn Clock>),
    ) -> Result<Self, ShuffleError> {
        let ShuffleSettings { directory, presence, key, limits, aggregator } = settings;
        let key = GatewayKey::read(&key)?;
        let (opener, origins) = (Opener::new(&key, None)?, Origins::new(&key));
        let started = ReportWriter::start(presence, &directory, limits, Arc::clone(clock));
        let (writer, ended) = started.map_err(|error| match error {
            SqliteError::Missing { path } => ShuffleError::Missing { path },
            error => ShuffleError::Store(error),
        })?;
        let service = ShufflerService {
            opener,
            origins,
            experiments: Experiments::new(aggregator.clone(), delay, Arc::clone(clock)),
            writer,
            gateways: GatewayDigests::new(keys),
            clock: Arc::clone(clock),
        };
        Ok(Self { service, aggregator, delay, limits, ended })
    }

    /// The service for devices.
    pub(crate) fn service(&self) -> ShufflerServer<ShufflerService> {
        ShufflerServer::new(self.service.clone()).max_decoding_message_size(REQUEST_BYTES_MAX)
    }

    /// Hands on batches until the store fails.
    pub(crate) async fn run(self) -> Result<(), ShuffleError> {
        let Self { service, aggregator, delay, limits, ended } = self;
        let ShufflerService { writer, experiments, clock, .. } = service;
        let days = limits.replay_window_days;
        let of = (writer.clone(), experiments.clone());
        let delivery = Delivery::new(of, aggregator, delay, clock, days);
        let handing_on = async {
            tokio::join!(delivery.run(), watch_ends(writer, experiments));
            // They have seen the end of the thread before this has.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // A thread that tells nothing has panicked.
            ended = ended => ended.map_err(|_| ShuffleError::Ended)?,
            () = handing_on => Ok(()),
        }
    }
}

/// The reason why a relay can't shuffle, or has stopped to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShuffleError {
    /// The key can't be used.
    #[error(transparent)]
    Key(#[from] GatewayKeyError),
    /// The threads that open envelopes can't be started.
    #[error(transparent)]
    Opener(#[from] OpenerError),
    /// The store can't be opened, or has failed.
    #[error(transparent)]
    Store(#[from] SqliteError),
    /// The operating system has no randomness for a batch.
    #[error("the operating system's random source failed")]
    Entropy(#[source] getrandom::Error),
    /// There is no store, and one is required.
    #[error(
        "there is no store of a relay in {}. If there should be one, see whether its disk is \
         mounted. With a new store, reports that the relay has taken would be lost, or count \
         twice. To make a new one, add --init", path.display()
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// The thread of the store has panicked.
    #[error("the thread of the relay's store has ended")]
    Ended,
}
