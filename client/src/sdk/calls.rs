//! Calls for a host that has plain HTTP: bytes to post, and the readers of their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use bandana_shared::identity::UploadId;
use bandana_shared::wire::v1::{GetExperimentRequest, GetExperimentResponse, UploadResponse};
use prost::Message as _;

use super::Tasks;
use crate::app_key::{AppKey, HEADER};
use crate::core::{ClientError, FetchTask, Task};
use crate::messages::{fetched, outcome_of_response};
use crate::outbox::UploadOutcome;
use crate::time::Timestamp;

/// The content-type of every call, and of an answer that succeeded.
const PROTO: &str = "application/proto";

/// The content-type of the errors of an aggregator.
const JSON: &str = "application/json";

/// Calls whose answers are awaited at most. A call that has none after two minutes is made again, so
/// only a host that answers none gets here.
const AWAITED_MAX: usize = 256;

/// Longest text of an error that is shown, in characters.
const SHOWN_MAX: usize = 200;

/// A call to the aggregator. Send it as a POST of [`Self::body`] to [`Self::path`], at the address
/// of the aggregator's device port, with [`Self::headers`] and without cookies.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Answer, NextCall};
/// # let (bandana, mut tasks, _clock) = started()?;
/// # bandana.experiment("font-size")?;
/// let NextCall::Call(call) = tasks.next_call()? else { return Err("nothing to call".into()) };
/// assert_eq!(call.path(), "/bandana.v1.Device/GetExperiment");
/// assert!(call.headers().any(|header| header == ("content-type", "application/proto")));
/// // The server does not know the experiment.
/// let body = br#"{"code":"not_found","message":"no such experiment"}"#;
/// let content_type = Some("application/json");
/// tasks.answered(&call, &Answer { status: 404, content_type, retry_after: None, body })?;
/// assert!(matches!(tasks.next_call()?, NextCall::Wait(_)));
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// Nobody may be able to link an upload to another call. Send no cookie and no name of the
/// installation. Send each upload ([`Self::is_upload`]) over a connection of its own, if the host
/// can.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    id: u64,
    path: &'static str,
    app_key: Option<String>,
    body: Vec<u8>,
    is_upload: bool,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("id", &self.id)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Call {
    /// The number by which [`Tasks::answered`] knows the call. It is not sent.
    pub fn id(&self) -> CallId {
        CallId(self.id)
    }

    /// The path of the POST.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Names and values of the headers.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::NextCall;
    /// # let (bandana, mut tasks, _clock) = started()?;
    /// # bandana.experiment("font-size")?;
    /// let NextCall::Call(call) = tasks.next_call()? else { return Err("nothing to call".into()) };
    /// // No app key was given.
    /// let headers: Vec<_> = call.headers().collect();
    /// assert_eq!(headers, [("content-type", "application/proto")]);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let key = self.app_key.as_deref().map(|key| (HEADER, key));
        std::iter::once(("content-type", PROTO)).chain(key)
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether the call is an upload, which should have a connection of its own.
    pub fn is_upload(&self) -> bool {
        self.is_upload
    }
}

impl From<&Call> for CallId {
    fn from(call: &Call) -> Self {
        call.id()
    }
}

/// The number of a [`Call`].
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{CallId, NextCall};
/// # let (bandana, mut tasks, _clock) = started()?;
/// # bandana.experiment("font-size")?;
/// let NextCall::Call(call) = tasks.next_call()? else { return Err("nothing to call".into()) };
/// // A host in another language keeps the number.
/// let number = call.id().get();
/// tasks.unanswered(CallId::new(number))?;
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

impl CallId {
    /// The id with this number.
    ///
    /// ```
    /// use bandana_client::CallId;
    /// assert_eq!(CallId::new(7).get(), 7);
    /// ```
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The next step of a host.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{NextCall, Timestamp};
///
/// /// When the host is to ask again; `None`: when it is told that there is work.
/// fn alarm(next: &NextCall, now: Timestamp) -> Option<Timestamp> {
///     match next {
///         NextCall::Call(_) => Some(now),
///         NextCall::Wait(until) => Some(*until),
///         NextCall::Done => None,
///     }
/// }
/// # let (_bandana, mut tasks, _clock) = started()?;
/// assert_eq!(alarm(&tasks.next_call()?, now()), None);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug)]
pub enum NextCall {
    /// Make this call, then tell its end by [`Tasks::answered`] or [`Tasks::unanswered`]. The host
    /// may ask for further calls meanwhile.
    Call(Call),
    /// There is no call before this time.
    Wait(Timestamp),
    /// There is no call until there is other work: see [`crate::Builder::on_work`].
    Done,
}

/// The HTTP answer to a [`Call`].
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Answer, NextCall};
/// # let (bandana, mut tasks, _clock) = started()?;
/// # bandana.experiment("font-size")?;
/// let NextCall::Call(call) = tasks.next_call()? else { return Err("nothing to call".into()) };
/// // The network of a hotel answers whatever it is asked; this is no answer of an aggregator.
/// let (content_type, body) = (Some("text/html; charset=utf-8"), &b"<html>Welcome!</html>"[..]);
/// tasks.answered(&call, &Answer { status: 200, content_type, retry_after: None, body })?;
/// assert_eq!(bandana.status().statistics.fetches_failed, 1);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The status, such as 200.
    pub status: u16,
    /// The header `content-type`.
    pub content_type: Option<&'a str>,
    /// The header `retry-after`.
    pub retry_after: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

impl Answer<'_> {
    fn is_of_type(&self, wanted: &str) -> bool {
        let stated = self.content_type.and_then(|stated| stated.split(';').next());
        stated.is_some_and(|stated| stated.trim().eq_ignore_ascii_case(wanted))
    }

    /// Whether an aggregator has answered the call.
    fn is_success(&self) -> bool {
        self.status == 200 && self.is_of_type(PROTO)
    }

    /// Whether an aggregator refuses the call itself, and would do so again.
    fn is_refusal(&self) -> bool {
        matches!(self.status, 400 | 401 | 403 | 404) && self.is_of_type(JSON)
    }

    /// The wait that the server asks for.
    fn wait(&self) -> Option<Duration> {
        self.retry_after?.trim().parse().ok().map(Duration::from_secs)
    }

    /// The answer in words, for people.
    fn in_words(&self) -> String {
        let Self { status, .. } = self;
        if !self.is_of_type(JSON) {
            return format!(
                "something other than an aggregator answered with HTTP status {status}"
            );
        }
        let text = String::from_utf8_lossy(self.body);
        let shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
        format!("the answer had HTTP status {status}: {shown}")
    }
}

/// The calls whose answers are awaited.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    last: u64,
    calls: BTreeMap<u64, About>,
}

/// What a call is about.
#[derive(Debug)]
enum About {
    Fetch(FetchTask),
    Upload(UploadId),
}

impl Awaited {
    fn call(&mut self, about: About, body: Vec<u8>, app_key: Option<&AppKey>) -> Call {
        self.last += 1;
        let (path, is_upload) = match &about {
            About::Fetch(_) => ("/bandana.v1.Device/GetExperiment", false),
            About::Upload(_) => ("/bandana.v1.Device/SubmitUpload", true),
        };
        if self.calls.len() == AWAITED_MAX {
            self.calls.pop_first();
        }
        self.calls.insert(self.last, about);
        let app_key = app_key.map(|key| key.expose().to_owned());
        Call { id: self.last, path, app_key, body, is_upload }
    }
}

impl Tasks {
    /// The next task of a host that posts bytes. It is [`Self::next_task`] with encoded messages.
    /// You may ask for further calls while others are under way. A shuffled report is never a call:
    /// it waits for a transport that leads through a relay.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::{NextCall, Task};
    /// # let (bandana, mut tasks, clock) = started()?;
    /// let _shown = bandana.experiment("button-colour")?.choose();
    /// clock.forward(Duration::from_secs(600 + 3600));
    /// # let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    /// # tasks.on_fetched(&task, answer(bandana_client::Clock::now(&*clock))?)?;
    /// let NextCall::Call(upload) = tasks.next_call()? else { return Err("not yet".into()) };
    /// assert!(upload.is_upload() && upload.body().len() < 100);
    /// // There is no network.
    /// tasks.unanswered(upload.id())?;
    /// assert_eq!(bandana.status().waiting_reports, 1, "it is kept");
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Due uploads leave with the next call. So never ask because the user reacted.
    ///
    /// # Errors
    /// [`ClientError::Entropy`]: nothing is lost; call again later.
    pub fn next_call(&mut self) -> Result<NextCall, ClientError> {
        loop {
            let (about, body) = match self.next_task()? {
                Task::Fetch(task) => {
                    let experiment_id = task.experiment_id.to_string();
                    let body = GetExperimentRequest { experiment_id }.encode_to_vec();
                    (About::Fetch(task), body)
                }
                Task::Upload(task) => (About::Upload(task.id()), task.bytes().to_vec()),
                Task::Shuffled(task) => {
                    self.on_upload_result(task.id(), &UploadOutcome::NoRelay)?;
                    continue;
                }
                Task::Wait(until) => return Ok(NextCall::Wait(until)),
                Task::Done => return Ok(NextCall::Done),
            };
            let app_key = self.app_key.as_ref();
            return Ok(NextCall::Call(self.awaited.call(about, body, app_key)));
        }
    }

    /// Takes the answer to a call. Something that the aggregator did not say itself counts as no
    /// answer, such as the page of a hotel's network or the error of a proxy. An answer is ignored
    /// if nobody awaits it, or if the call was answered before.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::{Answer, NextCall, Task};
    /// # let (bandana, mut tasks, clock) = started()?;
    /// # let _shown = bandana.experiment("button-colour")?.choose();
    /// # clock.forward(Duration::from_secs(600 + 3600));
    /// # let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    /// # tasks.on_fetched(&task, answer(bandana_client::Clock::now(&*clock))?)?;
    /// let NextCall::Call(upload) = tasks.next_call()? else { return Err("not yet".into()) };
    /// // The server has too much to do.
    /// let (content_type, retry_after) = (Some("application/json"), Some("30"));
    /// let answer = Answer { status: 429, content_type, retry_after, body: b"{}" };
    /// tasks.answered(&upload, &answer)?;
    /// let NextCall::Wait(until) = tasks.next_call()? else { return Err("at once".into()) };
    /// # let now = bandana_client::Clock::now(&*clock);
    /// assert!(until >= now.after(Duration::from_secs(30)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the client refuses what the server asks for;
    /// [`crate::Choice::Default`] shows the refusal too. [`ClientError::Entropy`] when there is no
    /// randomness. In either case, go on with the next call.
    pub fn answered(
        &mut self,
        call: impl Into<CallId>,
        answer: &Answer<'_>,
    ) -> Result<(), ClientError> {
        match self.awaited.calls.remove(&call.into().0) {
            Some(About::Fetch(task)) => self.fetch_answered(&task, answer),
            Some(About::Upload(id)) => {
                let response = answer.is_success().then(|| UploadResponse::decode(answer.body));
                let outcome = match response {
                    Some(Ok(response)) => outcome_of_response(response),
                    Some(Err(_)) | None => UploadOutcome::Unanswered { retry_after: answer.wait() },
                };
                self.on_upload_result(id, &outcome)
            }
            None => Ok(()),
        }
    }

    /// Records that a call failed without an answer, because there is no network or no answer came
    /// in time.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::NextCall;
    /// # let (bandana, mut tasks, _clock) = started()?;
    /// # bandana.experiment("font-size")?;
    /// let NextCall::Call(call) = tasks.next_call()? else { return Err("nothing to call".into()) };
    /// tasks.unanswered(&call)?;
    /// // After a random wait it is made again.
    /// assert!(matches!(tasks.next_call()?, NextCall::Wait(_)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// The same as for [`Self::answered`].
    pub fn unanswered(&mut self, call: impl Into<CallId>) -> Result<(), ClientError> {
        match self.awaited.calls.remove(&call.into().0) {
            Some(About::Fetch(task)) => {
                self.fetch_failed(&task, None, "there was no answer".to_owned())
            }
            Some(About::Upload(id)) => {
                self.on_upload_result(id, &UploadOutcome::Unanswered { retry_after: None })
            }
            None => Ok(()),
        }
    }

    fn fetch_answered(&mut self, task: &FetchTask, answer: &Answer<'_>) -> Result<(), ClientError> {
        if answer.is_success() {
            let response = GetExperimentResponse::decode(answer.body).ok();
            return match response.as_ref().map(fetched) {
                Some(Ok(fetched)) => self.on_fetched(task, fetched),
                Some(Err(error)) => self.answer_invalid(task, error.to_string()),
                None => self.answer_invalid(task, "the answer is no message".to_owned()),
            };
        }
        if answer.is_refusal() {
            return self.fetch_refused(task, answer.in_words());
        }
        self.fetch_failed(task, answer.wait(), answer.in_words())
    }
}
