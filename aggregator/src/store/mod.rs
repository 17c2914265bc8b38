//! The store keeps what must survive: experiments, tallies, and which uploads were counted.

mod audit;
mod counts;
mod daily_tallies;
mod decide;
mod embedded;
mod error;
mod group;
mod postgres;
pub(crate) mod queries;
mod reader;
pub(crate) mod trusted;
mod upload;
mod verification;

use std::fmt::Debug;

use bandana_shared::identity::{Day, Digest, UnixSeconds};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

pub use audit::{AuditAction, AuditEntry, AuditQuery, AuditRecord};
pub use daily_tallies::DailyTally;
pub use decide::{Decision, DedupState, decide};
pub(crate) use embedded::OpenFiles;
pub use embedded::{
    Backup, BackupError, BackupProgress, EmbeddedSettings, EmbeddedStore, IdShares, SeenIds,
    SqliteStore, Watermark, WatermarkError, seal_directory, verify_directory, verify_file,
};
pub use error::{DamageError, DatabaseError, OpenError, Outcome, StoreError, StoreRefusal};
use error::{damaged, postgres};
use group::StoredDeltas;
pub use group::{Delta, GroupRow};
pub(crate) use postgres::{
    ChangeFeed, Handover, Heartbeat, Letter, PgConnection, Pulse, Settled, Slot, Target, Waits,
};
pub use postgres::{
    DatabaseUrl, DatabaseUrlError, PostgresSettings, PostgresStore, seal_database, verify_database,
};
pub use queries::{
    AnswerToKeep, CuratorChange, CuratorName, CuratorNameError, CuratorRefusal, DataSetRecord,
    Debit, DebitRecord, KeptAnswer, QuestionKey, QuestionScope, SessionRecord, SessionRound,
    SessionUpdate,
};
pub use reader::StoreReader;
pub(crate) use trusted::DecodedRecord;
pub use trusted::{
    DISCLOSURES_MAX, TrustedChange, TrustedCommit, TrustedRecord, TrustedRefusal, TrustedVersion,
};
pub use upload::{UploadTarget, ValidUpload, Verdict};
pub use verification::{Check, Finding, Verification};

use bandana_learners::LearnerConfig;
use bandana_learners::guardrails::Guardrails;
use bandana_learners::window::{Days, Memory};

/// What a writer keeps what it is told in. Whatever it returns without an error is
/// durable.
pub trait Store: Debug + Send {
    /// All experiments with their tallies.
    ///
    /// # Errors
    /// [`StoreError`] when something can't be read or understood.
    fn load(&mut self) -> Result<Vec<ExperimentRecord>, StoreError>;

    /// The replay window as it is on this day, as far as is known.
    fn window(&self, today: Day) -> Window;

    /// Decides about a group of uploads and commits those that are accepted: their names and
    /// what they add, of each upload all or nothing. The group may take more than one
    /// transaction. Moves the replay window on when `today` is a new day.
    ///
    /// # Errors
    /// [`StoreError`]: nothing may be acknowledged, and what is durable is not known. The
    /// same uploads again are safe; see [`StoreError::outcome`] for whether this store can
    /// take them.
    fn commit(&mut self, uploads: &[ValidUpload], today: Day) -> Result<Committed, StoreError>;

    /// Adds an experiment in the state `state`.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; what [`StoreError::outcome`] tells of others.
    fn create_experiment(
        &mut self,
        specification: &Specification,
        config: LearnerConfig,
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError>;

    /// Adds a revision of an experiment that stands as the caller thinks.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; what [`StoreError::outcome`] tells of others.
    fn add_revision(
        &mut self,
        expected: ExpectedState,
        specification: &Specification,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError>;

    /// Changes the state of an experiment that stands as the caller thinks.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; what [`StoreError::outcome`] tells of others.
    fn set_state(
        &mut self,
        expected: ExpectedState,
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError>;

    /// Notes that an experiment is archived, or not any more, which its entry says, if it stands
    /// as the caller thinks.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; what [`StoreError::outcome`] tells of others.
    fn archive(
        &mut self,
        expected: ExpectedState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError>;

    /// Deletes an experiment that stands as the caller thinks, with all but its entries in the
    /// audit log and its id, which none can have again.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; what [`StoreError::outcome`] tells of others.
    fn delete(&mut self, expected: ExpectedState, entry: &AuditEntry) -> Result<(), StoreError>;

    /// The digests of all revisions of deleted experiments.
    ///
    /// # Errors
    /// As [`Self::load`].
    fn deleted(&mut self) -> Result<Vec<Digest>, StoreError>;

    /// Adds a signature to a revision, in place of one by the same key. Those that have
    /// expired by `now` are forgotten.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; what [`StoreError::outcome`] tells of others.
    fn add_signature(
        &mut self,
        key: ExperimentKey,
        specification: &Specification,
        signature: &Signature,
        now: UnixSeconds,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError>;

    /// Makes a change for the curator.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; what [`StoreError::outcome`] tells of others. A debit of which
    /// it is not known whether it was made must be taken for made, and pays for nothing.
    fn curate(&mut self, change: &CuratorChange) -> Result<(), StoreError>;

    /// Makes a change of a trusted experiment.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; what [`StoreError::outcome`] tells of others.
    fn trust(&mut self, change: &TrustedChange) -> Result<(), StoreError>;

    /// Whether the store is where it was opened, as far as this can be told at once, and moves
    /// the replay window on when `today` is a new day: for when nothing is committed for long.
    ///
    /// # Errors
    /// As [`Self::commit`].
    fn check(&mut self, _today: Day) -> Result<(), StoreError> {
        Ok(())
    }

    /// Ends in order.
    ///
    /// # Errors
    /// [`StoreError`]; what was committed stays so.
    fn close(self: Box<Self>) -> Result<(), StoreError>;
}

/// What became of a group of uploads.
#[derive(Debug, Default)]
pub struct Committed {
    /// One verdict for each upload, in their order.
    pub verdicts: Vec<Verdict>,
    /// What whoever holds the tallies in memory has to add, with its day. Nothing when they
    /// are told by the store, as those of other replicas are.
    pub deltas: Vec<(Day, Delta)>,
}

/// The replay window of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The oldest day whose uploads are taken, as far as is known.
    pub oldest: Day,
    /// The newest day of which an upload was counted, as far as is known.
    pub newest: Option<Day>,
    /// Upload ids in memory, and how many there may be. None: they are not in memory.
    pub ids: Option<(usize, usize)>,
}

/// How an experiment stands, as far as somebody knows who wants to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedState {
    /// The experiment.
    pub key: ExperimentKey,
    /// Its state.
    pub state: ExperimentState,
    /// Its newest revision.
    pub digest: Digest,
}

/// Where an experiment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentState {
    /// Devices do not see it yet.
    Draft,
    /// Arms are given and uploads are taken.
    Running,
    /// Uploads are refused for now.
    Paused,
    /// Uploads are refused for good.
    Stopped,
}

impl ExperimentState {
    /// Its name in the store and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }

    /// Every one of them.
    pub const ALL: [Self; 4] = [Self::Draft, Self::Running, Self::Paused, Self::Stopped];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A step from one state of an experiment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// A draft is given to devices.
    Start,
    /// A running experiment is paused.
    Pause,
    /// A paused experiment runs again.
    Resume,
    /// An experiment ends for good.
    Stop,
}

impl Transition {
    /// The states from which it is allowed.
    pub fn from(self) -> &'static [ExperimentState] {
        use ExperimentState::{Draft, Paused, Running};
        match self {
            Self::Start => &[Draft],
            Self::Pause => &[Running],
            Self::Resume => &[Paused],
            Self::Stop => &[Draft, Running, Paused],
        }
    }

    /// The state to which it leads.
    pub fn to(self) -> ExperimentState {
        match self {
            Self::Start | Self::Resume => ExperimentState::Running,
            Self::Pause => ExperimentState::Paused,
            Self::Stop => ExperimentState::Stopped,
        }
    }

    /// Its name in the audit log.
    pub fn action(self) -> AuditAction {
        match self {
            Self::Start => AuditAction::Start,
            Self::Pause => AuditAction::Pause,
            Self::Resume => AuditAction::Resume,
            Self::Stop => AuditAction::Stop,
        }
    }
}

/// An experiment's key in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExperimentKey(pub(crate) i64);

/// Seconds after which a device should ask for a new policy.
const TIME_TO_LIVE_SECONDS: u32 = 60;

/// A policy as all are served.
pub(crate) fn served_policy(version: u64, weights: Weights) -> Policy {
    Policy { version, weights, time_to_live_seconds: TIME_TO_LIVE_SECONDS }
}

/// What the columns of a store say. They are checked anew: whoever edits them by hand
/// may make a mistake.
fn learner_config(
    learner: &str,
    floor_weight: f64,
    window_days: Option<i64>,
    discount: Option<f64>,
    (burn_in_reports, holdout_share): (i64, f64),
) -> Result<LearnerConfig, StoreError> {
    let learner = learner.parse().map_err(|_| damaged(format!("learner {learner}")))?;
    let memory = match (window_days, discount) {
        (None, None) => Ok(Memory::Everything),
        (Some(days), None) => Memory::days(u32::try_from(days).unwrap_or(0)),
        (_, Some(factor)) => Memory::discount(factor),
    };
    let memory = memory.map_err(|error| damaged(error.to_string()))?;
    let burn_in_reports =
        u32::try_from(burn_in_reports).map_err(|error| damaged(error.to_string()))?;
    let guardrails = Guardrails::new(burn_in_reports, holdout_share)
        .map_err(|error| damaged(error.to_string()))?;
    Ok(LearnerConfig { learner, floor_weight, memory, guardrails })
}

/// The window in days and the discount, as a store has them.
fn memory_columns(memory: Memory) -> (Option<i64>, Option<f64>) {
    match memory {
        Memory::Everything => (None, None),
        Memory::Days(days) => (Some(days.into()), None),
        Memory::Discount(factor) => (None, Some(factor)),
    }
}

/// All that the store knows about an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentRecord {
    /// Its key.
    pub key: ExperimentKey,
    /// How it is run.
    pub config: LearnerConfig,
    /// Where it stands.
    pub state: ExperimentState,
    /// Whether lists leave it out: the audit log says so.
    pub is_archived: bool,
    /// Every revision, the oldest first; at least one.
    pub revisions: Vec<Specification>,
    /// The signatures of the newest revision, by key; expired ones too.
    pub signatures: Vec<Signature>,
    /// The tally of every arm, all days together.
    pub tallies: Vec<Tally>,
    /// The same by day, of the days that its memory reaches; empty when it keeps everything.
    pub days: Days,
    /// The policy for the newest revision. None: this store keeps none, and whoever
    /// serves the experiment computes one.
    pub policy: Option<StoredPolicy>,
}

impl ExperimentRecord {
    /// How it stands. None: there is no revision, which no store returns.
    pub fn expected(&self) -> Option<ExpectedState> {
        let newest = self.revisions.last()?;
        Some(ExpectedState { key: self.key, state: self.state, digest: newest.digest() })
    }
}

/// A policy that replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// The policy. Its version grows with every change of the experiment.
    pub policy: Policy,
    /// Reports that it was computed from.
    pub reports: u64,
}

/// Whether there must be a store where one is opened. One that is made by itself would hide that
/// a disk was not mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There must be one.
    Required,
    /// One is made if there is none.
    Optional,
    /// One is made, and there must be none.
    Forbidden,
}
