//! Tasks for a host that brings its own network.

use std::sync::Arc;
use std::time::Duration;

use bandana_shared::identity::UploadId;

use super::{Bandana, Shared};
use crate::core::{ClientError, FetchTask, Fetched, Task};
use crate::outbox::UploadOutcome;

/// The tasks of a host that talks to the aggregator itself. The calls use the storage on the
/// calling thread. When you drop the value, it makes the pending writes and closes the directory.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// use bandana_client::{Task, UploadOutcome};
///
/// # let (bandana, mut tasks, clock) = started()?;
/// # let _ = bandana.experiment("button-colour")?.choose();
/// # clock.forward(Duration::from_secs(600 + 3600));
/// # let answer = || answer(bandana_client::Clock::now(&*clock));
/// let wait = loop {
///     match tasks.next_task()? {
///         // `answer` and `send` would be the host's own calls.
///         Task::Fetch(task) => tasks.on_fetched(&task, answer()?)?,
///         Task::Upload(task) => {
///             # let send = |_: &[u8]| UploadOutcome::Accepted;
///             let outcome = send(task.bytes());
///             tasks.on_upload_result(task.id(), &outcome)?;
///         }
///         // For apps that believe a relay; the host seals it, and sends it there.
///         Task::Shuffled(task) => tasks.on_upload_result(task.id(), &UploadOutcome::NoRelay)?,
///         Task::Wait(until) => break Some(until),
///         Task::Done => break None,
///     }
/// };
/// assert_eq!(wait, None);
/// assert_eq!(bandana.status().statistics.uploads_accepted, 1);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug)]
pub struct Tasks {
    pub(super) shared: Arc<Shared>,
    #[cfg(feature = "storage")]
    pub(super) writes: super::host_storage::HostWrites,
    #[cfg(feature = "messages")]
    pub(super) awaited: super::calls::Awaited,
    #[cfg(feature = "messages")]
    pub(super) app_key: Option<crate::app_key::AppKey>,
}

impl Tasks {
    pub(super) fn new(
        bandana: &Bandana,
        #[cfg(feature = "messages")] app_key: Option<crate::app_key::AppKey>,
    ) -> Self {
        Self {
            shared: Arc::clone(&bandana.shared),
            #[cfg(feature = "storage")]
            writes: super::host_storage::HostWrites::default(),
            #[cfg(feature = "messages")]
            awaited: super::calls::Awaited::default(),
            #[cfg(feature = "messages")]
            app_key,
        }
    }

    /// The next task. Ask when a [`Task::Wait`] ends, when the app starts, or at intervals. A task
    /// that has no result after two minutes is handed out again. Blocks on the disk.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Task;
    /// # let (bandana, mut tasks, clock) = started()?;
    /// let _shown = bandana.experiment("button-colour")?.choose();
    /// let end = now().after(Duration::from_secs(600));
    /// assert!(matches!(tasks.next_task()?, Task::Wait(time) if time == end));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Due uploads leave with the next task. So never ask because the user reacted.
    ///
    /// # Errors
    /// [`ClientError::Entropy`]: nothing is lost; call again later.
    pub fn next_task(&mut self) -> Result<Task, ClientError> {
        if self.shared.is_forked() {
            return Ok(Task::Done);
        }
        self.shared.work.taken();
        loop {
            self.shared.write_pending();
            let task = self.shared.core().next_task(self.shared.now())?;
            // A report that was privatized or sealed just now can leave once it is written.
            let idle = matches!(task, Task::Wait(_) | Task::Done);
            if idle && self.shared.write_pending() {
                continue;
            }
            // A failed write is tried again.
            let again = self.shared.next_write();
            // What the host can write at once is no reason to come again.
            #[cfg(feature = "storage")]
            let again =
                again.filter(|time| !self.shared.is_stored_by_host() || *time > self.shared.now());
            return Ok(match (task, again) {
                (Task::Wait(time), Some(again)) => Task::Wait(time.min(again)),
                (Task::Done, Some(again)) => Task::Wait(again),
                (task, _) => task,
            });
        }
    }

    /// Receives a server's answer: see [`crate::Core::on_fetched`].
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Clock as _, Task};
    /// # let (bandana, mut tasks, clock) = started()?;
    /// bandana.opt_out()?;
    /// bandana.opt_in()?; // and everything has to be heard again
    /// let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    /// tasks.on_fetched(&task, answer(clock.now())?)?;
    /// assert!(bandana.experiment("button-colour")?.choose().assignment().is_some());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// The same as for [`crate::Core::on_fetched`].
    pub fn on_fetched(&mut self, task: &FetchTask, fetched: Fetched) -> Result<(), ClientError> {
        let told = self.shared.core().on_fetched(task, fetched, self.shared.now());
        self.note(task, None, &told);
        told
    }

    /// Records that a fetch failed. The client fetches again after a random wait.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Task;
    /// # let (bandana, mut tasks, _clock) = started()?;
    /// let experiment = bandana.experiment("font-size")?;
    /// let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    /// tasks.on_fetch_failed(&task, None)?;
    /// assert!(matches!(tasks.next_task()?, Task::Wait(_)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// The same as for [`crate::Core::on_fetch_failed`].
    pub fn on_fetch_failed(
        &mut self,
        task: &FetchTask,
        retry_after: Option<Duration>,
    ) -> Result<(), ClientError> {
        self.fetch_failed(task, retry_after, "the host could not ask".to_owned())
    }

    pub(super) fn fetch_failed(
        &mut self,
        task: &FetchTask,
        retry_after: Option<Duration>,
        why: String,
    ) -> Result<(), ClientError> {
        let told = self.shared.core().on_fetch_failed(task, retry_after, self.shared.now());
        self.note(task, Some(why), &told);
        told
    }

    /// Records that a server answered without the experiment: it does not know the experiment, or
    /// has refused the fetch.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Task;
    /// # let (bandana, mut tasks, _clock) = started()?;
    /// let experiment = bandana.experiment("font-size")?;
    /// let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    /// tasks.on_fetch_refused(&task)?;
    /// assert!(matches!(tasks.next_task()?, Task::Wait(_)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// The same as for [`crate::Core::on_fetch_refused`].
    pub fn on_fetch_refused(&mut self, task: &FetchTask) -> Result<(), ClientError> {
        self.fetch_refused(task, "the server refused to answer".to_owned())
    }

    pub(super) fn fetch_refused(
        &mut self,
        task: &FetchTask,
        why: String,
    ) -> Result<(), ClientError> {
        let told = self.shared.core().on_fetch_refused(task, self.shared.now());
        self.note(task, Some(why), &told);
        told
    }

    /// Records that a server's answer breaks the protocol.
    #[cfg(feature = "messages")]
    pub(super) fn answer_invalid(
        &mut self,
        task: &FetchTask,
        why: String,
    ) -> Result<(), ClientError> {
        let told = self.shared.core().on_answer_invalid(task, self.shared.now());
        self.note(task, Some(why), &told);
        told
    }

    /// Records the end of a fetch.
    fn note(&self, task: &FetchTask, failure: Option<String>, told: &Result<(), ClientError>) {
        self.shared.note_fetch(&task.experiment_id, failure.as_deref(), told.as_ref().err());
        self.shared.note_heard(failure);
    }

    /// Records the result of an upload.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::{Task, UploadOutcome};
    /// # let (bandana, mut tasks, clock) = started()?;
    /// # let _ = bandana.experiment("button-colour")?.choose();
    /// # clock.forward(Duration::from_secs(600 + 3600));
    /// # let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    /// # tasks.on_fetched(&task, answer(bandana_client::Clock::now(&*clock))?)?;
    /// let Task::Upload(task) = tasks.next_task()? else { return Err("not yet".into()) };
    /// // The network is down.
    /// tasks.on_upload_result(task.id(), &UploadOutcome::Unanswered { retry_after: None })?;
    /// assert_eq!(bandana.status().waiting_reports, 1);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// The same as for [`crate::Core::on_upload_result`].
    pub fn on_upload_result(
        &mut self,
        id: UploadId,
        outcome: &UploadOutcome,
    ) -> Result<(), ClientError> {
        let told = self.shared.core().on_upload_result(id, outcome, self.shared.now());
        self.shared.note_upload(outcome);
        told
    }

    /// Makes the pending writes, for hosts that are about to be stopped. Blocks on the disk.
    /// [`crate::Status::reporting`] reports a failure.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Bandana;
    /// # let app = tempfile::tempdir()?;
    /// # let (bandana, mut tasks, _clock) =
    /// #     start(Bandana::builder().host_transport().directory(app.path()))?;
    /// let _shown = bandana.experiment("button-colour")?.choose();
    /// let before = std::fs::read(app.path().join("state"))?;
    /// tasks.write();
    /// assert_ne!(std::fs::read(app.path().join("state"))?, before, "it is kept");
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn write(&mut self) {
        self.shared.write_pending();
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        self.shared.core().close();
        self.shared.write_pending();
        self.shared.close();
    }
}
