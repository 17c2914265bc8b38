//! The public log, for whoever watches the server.

use std::sync::Arc;
use std::time::Duration;

use bandana_edge::pushback::exhausted;
use bandana_shared::identity::StoreId;
use bandana_shared::wire::v1::transparency_log_server::TransparencyLog;
use bandana_shared::wire::v1::{ListEpochsRequest, ListEpochsResponse, LogEpoch};
use bandana_store::{StoreReader, StoredEpoch};
use prost::Message as _;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::transparency::Served;

/// Most epochs of an answer, and how many unless the caller says.
const EPOCHS_MAX: u32 = 1000;
const EPOCHS: u32 = 100;

/// Most bytes of an answer, but for a single epoch.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Most concurrent readers: devices' calls come first, and need the processors. The others wait.
const READERS_MAX: usize = 2;

/// How long they wait, and the delay asked of a caller that found no place in that time.
const NO_PLACE_WAIT: Duration = Duration::from_secs(2);

/// Epochs that are read at once, if the one before was small, and what small is.
const READ_AT_ONCE: u32 = 16;
const SMALL_BYTES: usize = 16 << 10;

/// The service of the log. None: the server keeps none.
#[derive(Clone, Debug)]
pub(crate) struct LogService {
    log: Option<(Arc<Served>, StoreReader)>,
    store: StoreId,
    places: Arc<Semaphore>,
}

impl LogService {
    pub(crate) fn new(log: Option<Arc<Served>>, reader: StoreReader, store: StoreId) -> Self {
        let log = log.map(|log| (log, reader));
        Self { log, store, places: Arc::new(Semaphore::new(READERS_MAX)) }
    }
}

#[tonic::async_trait]
impl TransparencyLog for LogService {
    async fn list_epochs(
        &self,
        request: Request<ListEpochsRequest>,
    ) -> Result<Response<ListEpochsResponse>, Status> {
        let none = || Status::unimplemented("this server keeps no public log");
        let (log, reader) = self.log.clone().ok_or_else(none)?;
        let busy = "too many others read the log now; ask again in a moment";
        let place = Arc::clone(&self.places).acquire_owned();
        let place = tokio::time::timeout(NO_PLACE_WAIT, place).await.ok().and_then(Result::ok);
        let place = place.ok_or_else(|| exhausted(busy, NO_PLACE_WAIT))?;
        let ListEpochsRequest { first, limit } = request.into_inner();
        let limit = if limit == 0 { EPOCHS } else { limit.min(EPOCHS_MAX) };
        let read = tokio::task::spawn_blocking(move || {
            // Kept when the caller has gone.
            let _place = place;
            page(&reader, first, limit)
        })
        .await;
        let unread = || Status::unavailable("the log can't be read now; try again later");
        let epochs = read.map_err(|_| unread())?.map_err(|error| {
            tracing::error!(
                error = bandana_edge::explain::explain(&error),
                "the public log can't be read"
            );
            unread()
        })?;
        let store_id = self.store.as_bytes().to_vec().into();
        let checkpoint = log.checkpoint();
        Ok(Response::new(ListEpochsResponse { epochs, checkpoint, store_id }))
    }
}

/// Epochs from `first` on, read one by one until the answer is full.
fn page(
    reader: &StoreReader,
    first: u64,
    limit: u32,
) -> Result<Vec<LogEpoch>, bandana_store::StoreError> {
    let (mut epochs, mut bytes, mut at_once) = (Vec::new(), 0, 1);
    // A store's numbers end there.
    while epochs.len() < limit as usize && i64::try_from(first).is_ok() {
        let next = first.saturating_add(epochs.len() as u64);
        let some = reader.epochs(next, at_once)?;
        if some.is_empty() {
            break;
        }
        for epoch in some {
            let epoch = message(epoch);
            let size = epoch.encoded_len();
            bytes += size;
            at_once = if size < SMALL_BYTES { READ_AT_ONCE } else { 1 };
            if !epochs.is_empty() && (bytes > ANSWER_BYTES_MAX || epochs.len() >= limit as usize) {
                return Ok(epochs);
            }
            epochs.push(epoch);
        }
    }
    Ok(epochs)
}

fn message(epoch: StoredEpoch) -> LogEpoch {
    let StoredEpoch { number, time, entry, content, .. } = epoch;
    let items = LogEpoch::decode(&content[..]).map(|content| content.items);
    LogEpoch {
        number,
        unix_seconds: time.get(),
        entry: entry.to_vec().into(),
        items: items.unwrap_or_default(),
    }
}
