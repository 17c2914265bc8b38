//! Troubles of a client, with what to do about each, and its log.
//!
//! # Privacy
//! Neither contains a reward, an arm, a report or the name of an upload. Of an upload they say only
//! that there was one, which does not depend on rewards. They leave out what a server says of an
//! upload, since it may name the arm.

use std::fmt;

use bandana_shared::identity::ExperimentId;

use super::Shared;
use crate::core::ClientError;
use crate::outbox::UploadOutcome;
use crate::refusal::Refusal;
use crate::time::Timestamp;

/// A trouble of a client, with advice what to do about it.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::Task;
/// # let (bandana, mut tasks, _clock) = started()?;
/// let _experiment = bandana.experiment("font-size")?;
/// let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
/// tasks.on_fetch_failed(&task, None)?;
/// let error = bandana.status().last_error.ok_or("it is kept")?;
/// assert_eq!(error.experiment().map(|id| id.as_str()), Some("font-size"));
/// assert!(error.to_string().starts_with("the host could not ask; "), "{error}");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    at: Timestamp,
    experiment: Option<ExperimentId>,
    what: String,
    advice: &'static str,
}

impl Trouble {
    /// The time of the trouble.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// The experiment, if the trouble is about one.
    pub fn experiment(&self) -> Option<&ExperimentId> {
        self.experiment.as_ref()
    }

    /// The trouble in words.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The advice in words: what to do about the trouble.
    pub fn advice(&self) -> &'static str {
        self.advice
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

/// The last troubles since the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubles {
    pub(super) refusal: Option<Trouble>,
    pub(super) error: Option<Trouble>,
    /// Whether it was said that the client draws arms for many visitors.
    is_crowd_said: bool,
}

const NETWORK: &str = "it is tried again by itself; if it lasts, check the address and the network";
const SERVER: &str = "check the experiment's name; ask the server's operator whether it exists and has \
                      started, and whether the app's key is good";
const UNPAID: &str =
    "raise the app's budget, or have the experiment created anew with a smaller epsilon";
const CROWD: &str =
    "hundreds of arms were drawn within an hour, and the budget is that of one user";
const APART: &str = "if this program has many users, one client for all of them is one installation, and \
                     most of their rewards make no report: see \"Back ends\" in docs/languages.md";
const FAULTY: &str = "ask the server's operator: the server is at fault, or somebody else answers";

impl Shared {
    /// Keeps and logs the end of a fetch: the reason why it failed, and the client's error about the
    /// answer.
    pub(crate) fn note_fetch(
        &self,
        experiment: &ExperimentId,
        failure: Option<&str>,
        error: Option<&ClientError>,
    ) {
        if self.is_forked() {
            return;
        }
        let trouble = |what: String, advice| {
            let (at, experiment) = (self.now(), Some(experiment.clone()));
            Trouble { at, experiment, what, advice }
        };
        match (failure, error) {
            (_, Some(ClientError::Refused(refusal))) => {
                let refused = trouble(refusal.to_string(), advice(refusal));
                say(Level::Warn, format_args!("experiment {experiment} is refused: {refused}"));
                self.troubles().refusal = Some(refused);
            }
            (_, Some(error)) => {
                let failed = trouble(error.to_string(), NETWORK);
                say(Level::Warn, format_args!("experiment {experiment}: {failed}"));
                self.troubles().error = Some(failed);
            }
            (Some(failure), None) => {
                let said = ["the server", "NotFound", "the answer had HTTP status 404"];
                let is_said = said.iter().any(|begin| failure.starts_with(begin));
                let failed = trouble(failure.to_owned(), if is_said { SERVER } else { NETWORK });
                say(Level::Info, format_args!("experiment {experiment} was not fetched: {failed}"));
                self.troubles().error = Some(failed);
            }
            (None, None) => {
                say(Level::Debug, format_args!("experiment {experiment} was fetched"));
                let beyond = self.core().beyond_budget(experiment);
                if let Some(why) = beyond {
                    let unpaid = trouble(why.to_string(), UNPAID);
                    say(Level::Warn, format_args!("experiment {experiment}: {unpaid}"));
                    self.troubles().refusal = Some(unpaid);
                }
            }
        }
        self.tell_refusals();
    }

    /// Keeps and logs, once, that the client draws arms for many visitors. No server is told.
    pub(crate) fn note_crowd(&self, experiment: &ExperimentId) {
        if self.is_forked() {
            return;
        }
        if std::mem::replace(&mut self.troubles().is_crowd_said, true) {
            return;
        }
        let (at, experiment) = (self.now(), Some(experiment.clone()));
        let crowd = Trouble { at, experiment, what: CROWD.to_owned(), advice: APART };
        say(Level::Warn, format_args!("{crowd}"));
        self.troubles().refusal = Some(crowd);
    }

    /// Keeps and logs the outcome of an upload.
    pub(crate) fn note_upload(&self, outcome: &UploadOutcome) {
        if self.is_forked() {
            return;
        }
        let (what, advice) = match outcome {
            UploadOutcome::Accepted | UploadOutcome::Duplicate => {
                say(Level::Debug, format_args!("an upload was counted"));
                return;
            }
            UploadOutcome::Refused { .. } => ("the server refused an upload for good", SERVER),
            UploadOutcome::UnknownSpecification { .. } => (
                "the server does not know the experiment of an upload",
                "ask the server's operator whether it was deleted, or the store is another one",
            ),
            UploadOutcome::Retry { .. } => (
                "the server takes no uploads of an experiment for now",
                "nothing is lost: the upload is sent again; the operator may have paused it",
            ),
            UploadOutcome::NoRelay => (
                "an upload is to be shuffled, and the transport leads through no relay",
                "set the relay with Transport::through_relay",
            ),
            UploadOutcome::Unanswered { .. } => ("an upload was not answered", NETWORK),
        };
        let failed = Trouble { at: self.now(), experiment: None, what: what.to_owned(), advice };
        say(Level::Info, format_args!("{failed}"));
        self.troubles().error = Some(failed);
    }
}

/// What to do about a refusal.
fn advice(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::SimulationMark { .. } => {
            "simulated clients rehearse with simulated experiments, and real ones take part in others"
        }
        Refusal::Epsilon { .. } | Refusal::CentralEpsilon { .. } => {
            "have the experiment created anew with less privacy loss, or accept more in the app"
        }
        Refusal::NoRelay { .. } => {
            "accept a relay with Acceptance::shuffled, or have the experiment created without one"
        }
        Refusal::NotShuffled => {
            "have the experiment created with shuffling, or do not ask for it in the app"
        }
        Refusal::Range | Refusal::Kind { .. } => {
            "declare the rewards of the experiment in the app, as `bandana experiment show` has them"
        }
        Refusal::AttributionWindow { .. } | Refusal::ReleaseDelay { .. } => {
            "have the experiment created anew with a longer one, or accept a shorter one in the app"
        }
        Refusal::Signature(_) => "have the newest revision signed by a key that the app pins",
        Refusal::Log(_) => {
            "see docs/transparency.md: the server may show this device something of its own, or its \
             witnesses do not answer, or the device's clock is wrong"
        }
        Refusal::Digest(_) => "pin the new specification in the next release of the app",
        Refusal::Revision { .. } | Refusal::Changed => {
            "ask the server's operator: its store may be an older copy, or another one"
        }
        Refusal::Segmentation { .. } => {
            "agree to it with Acceptance::segment, or have the experiment created without segments"
        }
        Refusal::Metric { .. } => {
            "declare it with Acceptance::metric, as `bandana experiment show` has it"
        }
        Refusal::PrivateContext { .. } => {
            "agree to its features with Acceptance::private_context, in the same order, or have the \
             experiment created without them"
        }
        Refusal::OtherExperiment | Refusal::PolicyArms { .. } | Refusal::PolicySegments { .. } => {
            FAULTY
        }
    }
}

/// How severe a line of the log is.
#[derive(Clone, Copy, Debug)]
enum Level {
    Debug,
    Info,
    Warn,
}

/// Writes a line of the log, if the app has one.
#[cfg(feature = "log")]
fn say(level: Level, line: fmt::Arguments<'_>) {
    let level = match level {
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
    };
    log::log!(target: "bandana", level, "{line}");
}

#[cfg(not(feature = "log"))]
fn say(_: Level, _: fmt::Arguments<'_>) {}
