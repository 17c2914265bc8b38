//! The loop that carries out a client's tasks, for hosts that have no [`crate::Bandana`].

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::answers::{is_about_the_question, pushback};
use super::{CALL_TIME_MAX, Transport, TransportError};
use crate::core::{ClientError, Core, FetchTask, Fetched, Task};
use crate::noise::NoiseSource;
use crate::outbox::UploadOutcome;
use crate::time::Timestamp;

/// Carries out the tasks of a client that keeps everything in memory. Returns when no task is left
/// before `deadline`, or when `deadline` has passed. `clock` gives the time. A call takes at most
/// 30 seconds. Needs a tokio runtime with time and network enabled.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::{sync::Mutex, time::Duration};
/// use bandana_client::{Client, Clock as _, SystemClock};
/// use bandana_client::grpc::{Transport, run_until};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # // A port that nobody listens on any more.
/// # let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// # runtime.block_on(async {
/// let mut client = Client::new(budget()?);
/// # let id = specification()?.experiment_id().clone();
/// client.enroll(id, acceptance()?);
/// let client = Mutex::new(client);
///
/// // No server is at this address, which is no error.
/// let mut transport = Transport::to(&format!("http://{closed}"))?;
/// let clock = || SystemClock.now();
/// run_until(&client, &mut transport, &clock, clock().after(Duration::from_millis(20))).await?;
/// assert!(client.lock().unwrap().statistics().fetches_failed > 0);
/// # Ok::<(), Failure>(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
///
/// The client is locked between calls and never during one, so other threads can choose and add
/// rewards meanwhile. A call may be given up by the deadline, or because the caller drops this
/// future. It is then made again later. Network failures are not errors: the client keeps unsent
/// reports.
///
/// # Errors
/// [`TransportError::Client`] for an answer outside the app's acceptance,
/// [`TransportError::Answer`] for an invalid answer, and [`TransportError::Status`] for an
/// experiment that the server does not know. The first of these errors is returned when every other
/// task has to wait. If the random source fails, that error is returned at once.
pub async fn run_until<N: NoiseSource>(
    client: &Mutex<Core<N>>,
    transport: &mut Transport,
    clock: &impl Fn() -> Timestamp,
    deadline: Timestamp,
) -> Result<(), TransportError> {
    let lock = || client.lock().unwrap_or_else(PoisonError::into_inner);
    let mut first_error = Ok(());
    // The clock may be set back during the loop; `Instant` can't be.
    let end = Instant::now() + deadline.since(clock());
    while clock() < deadline && Instant::now() < end {
        let task = lock().next_task(clock())?;
        let patience = end.duration_since(Instant::now()).min(CALL_TIME_MAX);
        match task {
            Task::Done => break,
            Task::Wait(time) if time >= deadline || first_error.is_err() => break,
            Task::Wait(time) => {
                transport.close();
                tokio::time::sleep_until(end.min(Instant::now() + time.since(clock()))).await;
            }
            Task::Fetch(task) => {
                let answer = tokio::time::timeout(patience, transport.fetch(&task)).await;
                let told = tell_answer(&mut lock(), &task, answer.ok(), clock());
                if let Err(TransportError::Client(ClientError::Entropy(_))) = told {
                    return told;
                }
                first_error = first_error.and(told);
            }
            Task::Upload(task) => {
                let outcome = tokio::time::timeout(patience, transport.upload(&task)).await;
                let outcome = outcome.unwrap_or(UploadOutcome::Unanswered { retry_after: None });
                lock().on_upload_result(task.id(), &outcome, clock())?;
            }
            Task::Shuffled(task) => {
                let upload = transport.upload_shuffled(&task);
                let outcome = tokio::time::timeout(patience, upload).await;
                let outcome = outcome.unwrap_or(UploadOutcome::Unanswered { retry_after: None });
                lock().on_upload_result(task.id(), &outcome, clock())?;
            }
        }
    }
    first_error
}

/// Tells the client the result of a fetch; `None`: no answer in time.
pub(crate) fn tell_answer<N: NoiseSource>(
    client: &mut Core<N>,
    task: &FetchTask,
    answer: Option<Result<Fetched, TransportError>>,
    now: Timestamp,
) -> Result<(), TransportError> {
    match answer {
        Some(Ok(fetched)) => Ok(client.on_fetched(task, fetched, now)?),
        Some(Err(TransportError::Answer(error))) => {
            client.on_answer_invalid(task, now)?;
            Err(error.into())
        }
        Some(Err(TransportError::Status(status))) if is_about_the_question(status.code()) => {
            client.on_fetch_refused(task, now)?;
            Err(TransportError::Status(status))
        }
        Some(Err(TransportError::Status(status))) => {
            Ok(client.on_fetch_failed(task, pushback(&status), now)?)
        }
        Some(Err(_)) | None => Ok(client.on_fetch_failed(task, None, now)?),
    }
}
