//! Records that cross the border to another language.

/// What to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The label of the arm; `None`: show the app's own default.
    pub label: Option<String>,
    /// The index of the arm; `None`: the default.
    pub arm: Option<u32>,
    /// The number of the assignment, for rewards; `None`: the default.
    pub assignment: Option<u64>,
    /// Whether there will be a report.
    pub is_reported: bool,
    /// Why it is the default, or why there will be no report.
    pub reason: Option<String>,
}

impl Choice {
    pub(crate) fn of_default(reason: String) -> Self {
        Self { label: None, arm: None, assignment: None, is_reported: false, reason: Some(reason) }
    }
}

/// Whether reports are made, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They are made.
    On,
    /// The user has opted out, or has not consented.
    OptedOut,
    /// The device's clock does not agree with the server's day.
    ClockDisagrees,
    /// The process is a copy of the one that has the client.
    Forked,
    /// The store can't be used: nothing is reported.
    StorageUnusable,
    /// The last write failed; it is made again.
    StorageFailing,
    /// The client was closed.
    Closed,
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::On => "reports are made",
            Self::OptedOut => "the user has opted out, or has not consented",
            Self::ClockDisagrees => "the device's clock does not agree with the server's day",
            Self::Forked => "the process is a copy of the one that has the client",
            Self::StorageUnusable => "the store can't be used",
            Self::StorageFailing => "the last write failed, and is made again",
            Self::Closed => "the client was closed",
        })
    }
}

/// A line for developers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Whether something is in the way.
    pub is_warning: bool,
    /// What has changed, in words. Nothing in it depends on a reward or an arm.
    pub text: String,
}

/// How a client stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Whether reports are made.
    pub standing: Standing,
    /// What is wrong with the store, in words.
    pub trouble: Option<String>,
    /// Privacy loss of the running window, in nats; `None`: not known without the store.
    pub window_spent: Option<f64>,
    /// Privacy loss so far, in nats; `None`: not known without the store.
    pub lifetime_spent: Option<f64>,
    /// Assignments whose rewards still count.
    pub open_assignments: u64,
    /// Reports that no server has counted yet.
    pub waiting_reports: u64,
    /// Reports made since the start.
    pub reports_made: u64,
    /// Uploads that a server has counted since the start.
    pub uploads_accepted: u64,
    /// Uploads that a server has refused for good since the start.
    pub uploads_refused: u64,
    /// Fetches without an answer since the start.
    pub fetches_failed: u64,
    /// Answers that the client has refused since the start.
    pub answers_refused: u64,
    /// Rewards that the experiment does not admit, that came too late, or whose assignment never reports,
    /// since the start.
    pub rewards_refused: u64,
    /// The last refusal of an experiment since the start, in words, with what to do about it.
    pub last_refusal: Option<String>,
    /// The last fetch, upload or answer since the start that failed, in words, with what to do about it.
    pub last_error: Option<String>,
}

impl Status {
    /// That of no client.
    pub fn of_none() -> Self {
        Self {
            standing: Standing::Closed,
            trouble: None,
            window_spent: None,
            lifetime_spent: None,
            open_assignments: 0,
            waiting_reports: 0,
            reports_made: 0,
            uploads_accepted: 0,
            uploads_refused: 0,
            fetches_failed: 0,
            answers_refused: 0,
            rewards_refused: 0,
            last_refusal: None,
            last_error: None,
        }
    }
}

/// A step of the host.
#[derive(Clone, PartialEq, Eq)]
pub enum Step {
    /// Make this call, and tell its end by `answered` or `unanswered`.
    Call(Call),
    /// Make this write, and tell its end by `written`. Only with storage by the host.
    Write(Write),
    /// No step for so long.
    Wait {
        /// Milliseconds from now.
        milliseconds: u64,
    },
    /// No step until there is work.
    Done,
    /// The client was closed.
    Closed,
}

/// Prints nothing that is sent or kept.
impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(call) => write!(f, "Call({} {})", call.id, call.path),
            Self::Write(write) => write!(f, "Write({} {:?})", write.number, write.slot),
            Self::Wait { milliseconds } => write!(f, "Wait({milliseconds} ms)"),
            Self::Done => f.write_str("Done"),
            Self::Closed => f.write_str("Closed"),
        }
    }
}

/// A POST to the aggregator, without cookies. Each upload has a connection of its own, where the host
/// can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number for `answered`. It is not sent.
    pub id: u64,
    /// The path.
    pub path: String,
    /// The headers.
    pub headers: Vec<Header>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether it is an upload.
    pub is_upload: bool,
}

impl Call {
    pub(crate) fn of(call: &bandana_client::Call) -> Self {
        let header =
            |(name, value): (&str, &str)| Header { name: name.to_owned(), value: value.to_owned() };
        Self {
            id: call.id().get(),
            path: call.path().to_owned(),
            headers: call.headers().map(header).collect(),
            body: call.body().to_vec(),
            is_upload: call.is_upload(),
        }
    }
}

/// A header of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// A place of a host's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Everything but the sums of rewards.
    State,
    /// The sums of rewards of open assignments.
    Rewards,
}

/// A write of a host: the bytes replace what the slot had, as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The number for `written`.
    pub number: u64,
    /// The place.
    pub slot: Slot,
    /// What it is to hold; no bytes: it is to be removed.
    pub bytes: Vec<u8>,
}

impl Write {
    pub(crate) fn of(write: &bandana_client::HostWrite) -> Self {
        let slot = match write.slot() {
            bandana_client::Slot::State => Slot::State,
            bandana_client::Slot::Rewards => Slot::Rewards,
        };
        Self { number: write.number(), slot, bytes: write.bytes().to_vec() }
    }
}
