use std::sync::Arc;

use bandana_shared::identity::{ExperimentId, UploadId};

use super::{Bandana, Shared};
use crate::core::{ClientError, Fetched, Task};
use crate::outbox::UploadOutcome;

/// What a host that talks to the aggregator itself is to carry out. Storage is taken
/// care of, on the thread that calls.
#[derive(Debug)]
pub struct Tasks {
    shared: Arc<Shared>,
}

impl Tasks {
    pub(super) fn new(bandana: &Bandana) -> Self {
        Self { shared: Arc::clone(&bandana.shared) }
    }

    /// What to do next. Ask when a [`Task::Wait`] ends, when the app starts, or every so
    /// often, and never because the user reacted. Blocks on the disk.
    ///
    /// # Errors
    /// [`ClientError::Entropy`]: nothing is lost, ask again later.
    pub fn next_task(&mut self) -> Result<Task, ClientError> {
        loop {
            self.shared.write_pending();
            let task = self.shared.core().next_task(self.shared.now())?;
            // What was privatized or sealed just now can leave once it is written.
            let idle = matches!(task, Task::Wait(_) | Task::Done);
            if !(idle && self.shared.write_pending()) {
                return Ok(task);
            }
        }
    }

    /// Takes a server's answer, see [`crate::Core::on_fetched`].
    ///
    /// # Errors
    /// As there.
    pub fn on_fetched(&mut self, id: &ExperimentId, fetched: Fetched) -> Result<(), ClientError> {
        self.shared.core().on_fetched(id, fetched, self.shared.now())
    }

    /// Notes that a server could not be asked.
    ///
    /// # Errors
    /// As [`crate::Core::on_fetch_failed`].
    pub fn on_fetch_failed(&mut self, id: &ExperimentId) -> Result<(), ClientError> {
        self.shared.core().on_fetch_failed(id, self.shared.now())
    }

    /// Notes what became of an upload.
    ///
    /// # Errors
    /// As [`crate::Core::on_upload_result`].
    pub fn on_upload_result(
        &mut self,
        id: UploadId,
        outcome: &UploadOutcome,
    ) -> Result<(), ClientError> {
        self.shared.core().on_upload_result(id, outcome, self.shared.now())
    }

    /// Writes what is to be written. Blocks on the disk.
    pub fn write(&mut self) {
        self.shared.write_pending();
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.shared.core().close();
        self.shared.write_pending();
        self.shared.close();
    }
}
