//! The queues of store cells: each has a writer of its own, so that a slow cell delays no other.

use std::sync::Arc;

use bandana_edge::clock::Clock;
use bandana_store::{Holder, Routing, ValidUpload};
use tokio::sync::mpsc;

use super::{Command, Ingest, IngestError, LOOK_INTERVAL, QUEUE_MAX};

/// The queues of store cells, and the routes of uploads to them.
#[derive(Debug)]
pub(super) struct CellQueues {
    routing: Arc<Routing>,
    clock: Arc<dyn Clock>,
    queues: Vec<mpsc::Sender<Command>>,
}

impl CellQueues {
    /// All queues.
    pub(super) fn all(&self) -> impl Iterator<Item = &mpsc::Sender<Command>> {
        self.queues.iter()
    }

    /// The queue of the store cell that an upload belongs to. None: it belongs to the home.
    ///
    /// # Errors
    /// [`IngestError::Store`]: another store cell may hold the upload, or this replica was not told
    /// about the store cell that does.
    pub(super) fn of(
        &self,
        upload: &ValidUpload,
    ) -> Result<Option<&mpsc::Sender<Command>>, IngestError> {
        match self.routing.holder(upload.day, upload.id, self.clock.day()) {
            Some(Holder::Home) => Ok(None),
            Some(Holder::Cell(cell)) => {
                self.queues.get(cell.index()).map(Some).ok_or(IngestError::Store)
            }
            None => Err(IngestError::Store),
        }
    }
}

impl Ingest {
    /// Has each store cell move its replay window when a day begins. One without uploads would keep
    /// its ids otherwise.
    pub(crate) async fn look_at_cells(self) {
        let Some(cells) = self.cells.clone() else { return };
        let clock = Arc::clone(&cells.clock);
        // This task alone must not keep the queues open.
        let queues: Vec<_> = cells.queues.iter().map(mpsc::Sender::downgrade).collect();
        drop((self, cells));
        let mut looked = None;
        while queues.iter().any(|queue| queue.upgrade().is_some()) {
            let today = clock.day();
            if looked != Some(today) {
                looked = Some(today);
                for queue in queues.iter().filter_map(mpsc::WeakSender::upgrade) {
                    // Behind a full queue the uploads move the window.
                    queue.try_send(Command::Look).ok();
                }
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Routes uploads to this number of store cells, and returns the receivers of their queues.
    pub(super) fn route(
        &mut self,
        routing: Arc<Routing>,
        clock: Arc<dyn Clock>,
        cells: usize,
    ) -> Vec<mpsc::Receiver<Command>> {
        let (queues, commands) = (0..cells).map(|_| mpsc::channel(QUEUE_MAX)).unzip();
        self.cells = Some(Arc::new(CellQueues { routing, clock, queues }));
        commands
    }
}
