//! The driver of a [`crate::Bandana`]: writes, fetches and uploads.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bandana_shared::identity::UploadId;
use thiserror::Error;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Shared;
use super::writer::Writer;
use crate::core::{Fetched, Task};
use crate::grpc::{CALL_TIME_MAX, Transport, TransportError, tell_answer};
use crate::outbox::UploadOutcome;

/// Longest time for a shutdown: a year. Longer times count as this.
const PATIENCE_MAX: Duration = Duration::from_hours(365 * 24);

/// Name of the thread of a client, and the beginning of the name of its writer's.
const THREAD: &str = "bandana";

/// Wait between two attempts to make the last writes.
const LAST_WRITE_WAIT: Duration = Duration::from_millis(20);

/// Wait before the next attempt to read randomness after a failure.
const NO_RANDOMNESS_WAIT: Duration = Duration::from_secs(10);

/// The background work of a [`crate::Bandana`], for the host's tokio runtime.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// use bandana_client::Bandana;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let builder = agree(Bandana::builder().endpoint("http://localhost:50051")?.in_memory())?;
/// let (bandana, driver) = builder.driver();
/// let work = tokio::spawn(driver.run());
/// // When the app ends:
/// bandana.begin_shutdown(Duration::from_secs(2));
/// work.await?;
/// # Ok::<(), Failure>(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is stored or sent unless the driver runs"]
pub struct Driver {
    ending: Ending,
    transport: Transport,
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, transport: Transport) -> Self {
        Self { ending: Ending(shared), transport }
    }

    /// Works until you call [`crate::Bandana::begin_shutdown`] or drop the last handle. Needs a
    /// tokio runtime with time and network enabled. Network failures are not errors, and unsent
    /// reports are kept.
    ///
    /// If you drop the future, the work stops at once. Everything that is already written is kept.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Bandana;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # let builder = agree(Bandana::builder().endpoint("http://localhost:50051")?.in_memory())?;
    /// let (bandana, driver) = builder.driver();
    /// // Without a handle the driver ends.
    /// drop(bandana);
    /// runtime.block_on(driver.run());
    /// # Ok::<(), Failure>(())
    /// ```
    pub async fn run(self) {
        let Self { ending, transport } = self;
        let shared = &ending.0;
        let writer = Writer::start(shared);
        let mut writing = pin!(write(shared, &writer));
        let mut talking = pin!(talk(shared, transport));
        let end = poll_fn(|context| {
            let talked = talking.as_mut().poll(context);
            if talked.is_pending() && writing.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            talked
        })
        .await;
        if shared.is_forked() {
            return;
        }
        // An arm drawn from now on could miss the last write.
        shared.core().close();
        write_pending(shared, &writer).await;
        while !shared.is_written() && end.is_some_and(|end| Instant::now() < end) {
            sleep(LAST_WRITE_WAIT).await;
            write_pending(shared, &writer).await;
        }
    }

    /// Runs on its own thread.
    pub(crate) fn start(self) -> Result<(), StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name(THREAD.to_owned());
        let shared = Arc::clone(&self.ending.0);
        thread.spawn(move || runtime.block_on(self.run()))?;
        shared.has_thread.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// Whether this is a thread of a client: it can't wait for itself.
pub(super) fn is_own_thread() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with(THREAD))
}

/// Marks the driver as ended, also when the driver or its future is dropped.
#[derive(Debug)]
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The operating system can't start a thread or an event queue.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, StartError};
///
/// # let builder = agree(Bandana::builder().endpoint("http://localhost:50051")?.in_memory())?;
/// let started: Result<Bandana, StartError> = builder.start();
/// // The app continues either way, if need be with its defaults.
/// let label = match &started {
///     Ok(bandana) => bandana.experiment("button-colour")?.choose().label_or("blue").to_owned(),
///     Err(_) => "blue".to_owned(),
/// };
/// assert_eq!(label, "blue", "no server was heard yet");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Error)]
#[error("the thread for Bandana's background work can't be started")]
pub struct StartError(#[from] std::io::Error);

bandana_shared::debug_says!(StartError);

/// Completes with the first of the two futures.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(context),
    })
    .await;
}

/// Makes the pending writes, if there are any.
async fn write_pending(shared: &Arc<Shared>, writer: &Writer) {
    if !shared.is_forked() && (!shared.is_written() || shared.tries_storage()) {
        writer.write(shared).await;
    }
}

/// Makes every write when it is due.
async fn write(shared: &Arc<Shared>, writer: &Writer) {
    loop {
        write_pending(shared, writer).await;
        if shared.is_forked() {
            return;
        }
        match shared.next_write() {
            None => shared.writes.woken().await,
            Some(time) => {
                either(shared.writes.woken(), sleep(time.since(shared.now()))).await;
            }
        }
    }
}

/// Carries out tasks when they are due, until the end.
async fn talk(shared: &Arc<Shared>, mut transport: Transport) -> Option<Instant> {
    let mut end: Option<Instant> = None;
    loop {
        end = end.or_else(|| end_of(shared));
        if end.is_some_and(|end| Instant::now() >= end) || shared.is_forked() {
            return end;
        }
        if shared.network_changed.swap(false, Ordering::SeqCst) {
            transport.close();
        }
        // A write that completes during the call may make more tasks due.
        let was_written = shared.is_state_written();
        let now = shared.now();
        let task = shared.core().next_task(now);
        // The call may have made reports.
        shared.writes.wake();
        let wait = match task {
            Ok(Task::Wait(time)) => Some(time.since(shared.now())),
            Ok(Task::Upload(_) | Task::Shuffled(_) | Task::Fetch(_) | Task::Done) => None,
            Err(_) => Some(NO_RANDOMNESS_WAIT),
        };
        match (task, wait) {
            (Ok(Task::Upload(task)), _) => {
                let outcome = until(shared, &mut end, transport.upload(&task)).await;
                tell_outcome(shared, task.id(), outcome, &Task::Upload(task));
            }
            (Ok(Task::Shuffled(task)), _) => {
                let outcome = until(shared, &mut end, transport.upload_shuffled(&task)).await;
                tell_outcome(shared, task.id(), outcome, &Task::Shuffled(task));
            }
            (Ok(Task::Fetch(task)), _) => {
                let answer = until(shared, &mut end, transport.fetch(&task)).await;
                if answer.is_none() && shared.network_changed.load(Ordering::SeqCst) {
                    shared.core().interrupt(&Task::Fetch(task));
                    continue;
                }
                let failure = why_not(answer.as_ref());
                let told = tell_answer(&mut shared.core(), &task, answer, shared.now());
                let error = match &told {
                    Err(TransportError::Client(error)) => Some(error),
                    _ => None,
                };
                shared.note_fetch(&task.experiment_id, failure.as_deref(), error);
                shared.note_heard(failure);
            }
            (_, wait) => {
                if end.is_some() && shared.is_state_written() {
                    if was_written {
                        return end;
                    }
                    continue;
                }
                // Nothing wakes the device for it.
                transport.close();
                let due = wait.map(|wait| Instant::now() + wait.min(PATIENCE_MAX));
                match due.into_iter().chain(end).min() {
                    Some(time) => either(shared.network.woken(), sleep_until(time)).await,
                    None => shared.network.woken().await,
                }
            }
        }
    }
}

/// Tells the client the outcome of an upload; `None`: it was given up.
fn tell_outcome(shared: &Shared, id: UploadId, outcome: Option<UploadOutcome>, task: &Task) {
    if outcome.is_none() && shared.network_changed.load(Ordering::SeqCst) {
        shared.core().interrupt(task);
        return;
    }
    let outcome = outcome.unwrap_or(UploadOutcome::Unanswered { retry_after: None });
    // Without randomness the upload is handed out again later.
    shared.core().on_upload_result(id, &outcome, shared.now()).ok();
    shared.note_upload(&outcome);
}

/// Reason why a fetch failed, in words; `None`: it succeeded.
fn why_not(answer: Option<&Result<Fetched, TransportError>>) -> Option<String> {
    match answer {
        None => Some("no answer came in time".to_owned()),
        Some(Ok(_)) => None,
        Some(Err(TransportError::Status(status))) => {
            let (code, message) = (status.code(), status.message());
            Some(format!("{code:?}: {message:?}"))
        }
        Some(Err(error)) => Some(error.to_string()),
    }
}

/// The time at which the work is to end, if a shutdown has begun.
fn end_of(shared: &Shared) -> Option<Instant> {
    shared.end().map(|patience| Instant::now() + patience.min(PATIENCE_MAX))
}

/// Waits for a call, but not beyond the time limit of calls, the end or an opt-out.
async fn until<T>(
    shared: &Shared,
    end: &mut Option<Instant>,
    call: impl Future<Output = T>,
) -> Option<T> {
    let mut call = pin!(timeout(CALL_TIME_MAX, call));
    loop {
        if shared.core().is_opted_out() || shared.network_changed.load(Ordering::SeqCst) {
            return None;
        }
        *end = end.or_else(|| end_of(shared));
        let over = async {
            match *end {
                Some(end) => sleep_until(end).await,
                None => shared.network.woken().await,
            }
        };
        let mut over = pin!(over);
        let first = poll_fn(|context| match call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer.ok())),
            Poll::Pending => over.as_mut().poll(context).map(|()| None),
        });
        match first.await {
            Some(answer) => return answer,
            None if end.is_some() => return None,
            // Woken for another reason, which the next iteration handles.
            None => {}
        }
    }
}
