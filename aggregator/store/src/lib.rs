//! The store: durable experiments, tallies and ids of counted uploads.
//!
//! [`EmbeddedStore`] keeps them in SQLite, in a directory of one server. [`PostgresStore`] keeps them in a
//! database that replicas share. Both are a [`Store`], which a writer calls. A [`StoreReader`] reads them.

mod audit;
mod cells;
mod counts;
mod curator_name;
mod daily_tallies;
mod database;
mod decide;
mod deletion;
mod embedded;
mod error;
mod experiments;
pub mod fingerprint;
mod group;
mod layers;
mod log;
mod postgres;
mod queries;
mod reader;
mod record;
mod refusal;
mod signatures;
mod trusted;
mod upload;
mod verification;

use std::fmt::Debug;

use bandana_learners::LearnerConfig;
use bandana_learners::guardrails::Guardrails;
use bandana_learners::history::History;
use bandana_learners::window::{Days, Memory};
use bandana_shared::identity::{Day, Digest, UnixSeconds};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

use error::{damaged, postgres};
use group::{StoredDeltas, revision_and_cell, stored_arm};

pub use bandana_sqlite::{OpenFiles, Presence, SqliteError};

pub use audit::{AuditAction, AuditEntry, AuditQuery, AuditRecord};
pub use cells::Routing;
pub use cells::{CellsError, Generation, Holder, Routes, STORE_CELLS_MAX, StoreCell};
pub use curator_name::{CuratorName, CuratorNameError};
pub use daily_tallies::over_revisions;
pub use daily_tallies::{DailyTally, RevisionTally};
pub use decide::{Decision, DedupState, IdShares, SeenIds, decide};
pub use embedded::{
    Backup, BackupError, BackupProgress, EmbeddedSettings, EmbeddedStore, SqliteStore, Watermark,
    WatermarkError, seal_directory, verify_directory, verify_file,
};
pub use error::{DamageError, DatabaseError, OpenError, Outcome, StoreError, StoreRefusal};
pub use experiments::ExperimentChange;
pub use group::{Delta, GroupRow};
pub use layers::overlaps;
pub use log::{EpochToAdd, StoredEpoch};
pub use postgres::{
    CellChange, CellPlan, CellReport, DatabaseUrl, DatabaseUrlError, PostgresSettings,
    PostgresStore, check_cells, grow_cells, seal_database, verify_database,
};
pub use postgres::{
    CellNews, ChangeFeed, Connectivity, Handover, HandoverMessage, Heartbeat, OpenCell,
    OpenedCells, PgConnection, Settled, Slot, StoreCells, Tallies, Target, Waits,
};
pub use queries::{
    AnswerToKeep, CuratorChange, DataSetRecord, Debit, DebitRecord, KeptAnswer, QuestionKey,
    QuestionScope, SessionRecord, SessionRound, SessionUpdate, check_part,
};
pub use reader::StoreReader;
pub use record::{RecordError, WrittenRecord};
pub use refusal::{CuratorRefusal, TrustedRefusal, amount};
pub use trusted::DecodedRecord;
pub use trusted::{DISCLOSURES_MAX, TrustedChange, TrustedCommit, TrustedRecord, TrustedVersion};
pub use upload::{UploadTarget, ValidUpload, Verdict};
pub use verification::{Check, Finding, Verification};

/// The storage behind a writer. Whatever a method has done when it returns without an error is
/// durable.
pub trait Store: Debug + Send {
    /// All experiments with their tallies.
    ///
    /// # Errors
    /// [`StoreError`] when something can't be read or understood.
    fn load(&mut self) -> Result<Vec<ExperimentRecord>, StoreError>;

    /// The replay window on the day `today`, as far as the store knows it.
    fn window(&self, today: Day) -> Window;

    /// Decides about a group of uploads and commits the accepted ones. A commit adds an upload's id
    /// and tallies, both or neither. The group may take more than one transaction. Moves the replay
    /// window on when `today` is a new day.
    ///
    /// # Errors
    /// [`StoreError`]: nothing may be acknowledged, and it is unknown what is durable. Committing
    /// the same uploads again is safe; [`StoreError::outcome`] says whether this store can do so.
    fn commit(&mut self, uploads: &[ValidUpload], today: Day) -> Result<Committed, StoreError>;

    /// Adds an experiment in the state `state`, with nothing in its record.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn create_experiment(
        &mut self,
        specification: &Specification,
        config: LearnerConfig,
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        let record = WrittenRecord::default();
        self.create_experiment_with(specification, (config, &record), state, entry)
    }

    /// Adds an experiment in the state `state`, with this record.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn create_experiment_with(
        &mut self,
        specification: &Specification,
        settings: (LearnerConfig, &WrittenRecord),
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError>;

    /// Makes a change of an experiment, and returns the experiment as changed.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn apply_experiment_change(
        &mut self,
        change: ExperimentChange<'_>,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError>;

    /// Adds a revision of an experiment whose state is as the caller expects.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn add_revision(
        &mut self,
        expected: ExpectedState,
        specification: &Specification,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.apply_experiment_change(ExperimentChange::Revision(expected, specification), entry)
    }

    /// Changes the state of an experiment whose state is as the caller expects.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn set_state(
        &mut self,
        expected: ExpectedState,
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.apply_experiment_change(ExperimentChange::State(expected, state), entry)
    }

    /// Archives or unarchives an experiment whose state is as the caller expects. The action of
    /// `entry` says which.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn archive(
        &mut self,
        expected: ExpectedState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.apply_experiment_change(ExperimentChange::Archive(expected), entry)
    }

    /// Writes the record of an experiment whose state is as the caller expects, and whose record is
    /// the first one so far. The experiment's state becomes `state` in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn set_state_and_record(
        &mut self,
        expected: ExpectedState,
        state: ExperimentState,
        records: (&WrittenRecord, &WrittenRecord),
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.apply_experiment_change(ExperimentChange::Record(expected, state, records), entry)
    }

    /// As [`Self::set_state_and_record`], and leaves the state as it is.
    ///
    /// # Errors
    /// As there.
    fn set_record(
        &mut self,
        expected: ExpectedState,
        records: (&WrittenRecord, &WrittenRecord),
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.set_state_and_record(expected, expected.state, records, entry)
    }

    /// Deletes an experiment whose state is as the caller expects. Its audit entries remain, and so
    /// does its id, which no other experiment can get.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn delete(&mut self, expected: ExpectedState, entry: &AuditEntry) -> Result<(), StoreError>;

    /// The digests of all revisions of deleted experiments.
    ///
    /// # Errors
    /// As [`Self::load`].
    fn deleted(&mut self) -> Result<Vec<Digest>, StoreError>;

    /// Adds a signature to a revision, in place of one by the same key. Drops signatures that have
    /// expired by `now`.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn add_signature(
        &mut self,
        key: ExperimentKey,
        specification: &Specification,
        signature: &Signature,
        now: UnixSeconds,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        let change = ExperimentChange::Signature(key, specification, signature, now);
        self.apply_experiment_change(change, entry)
    }

    /// Makes a change for the curator.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`]. A debit whose outcome is
    /// unknown must be taken as made, and pays for nothing.
    fn apply_query_change(&mut self, change: &CuratorChange) -> Result<(), StoreError>;

    /// Makes a change of a trusted experiment.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; for others see [`StoreError::outcome`].
    fn apply_trusted_change(&mut self, change: &TrustedChange) -> Result<(), StoreError>;

    /// Adds an epoch to the public log.
    ///
    /// # Errors
    /// [`StoreRefusal::LogHasGrown`]; for others see [`StoreError::outcome`].
    fn add_epoch(&mut self, addition: &EpochToAdd) -> Result<(), StoreError>;

    /// Checks that the store is still where it was opened, as far as a quick check can tell. Moves
    /// the replay window on when `today` is a new day. Called when nothing is committed for long.
    ///
    /// # Errors
    /// As [`Self::commit`].
    fn check(&mut self, _today: Day) -> Result<(), StoreError> {
        Ok(())
    }

    /// Closes the store in order.
    ///
    /// # Errors
    /// [`StoreError`]; committed data stays committed.
    fn close(self: Box<Self>) -> Result<(), StoreError>;
}

/// The result of committing a group of uploads.
#[derive(Debug, Default)]
pub struct Committed {
    /// One verdict for each upload, in the order of the uploads.
    pub verdicts: Vec<Verdict>,
    /// The deltas, with their days, that the holder of the tallies in memory must add. Empty when
    /// the store itself sends them to that holder, as it does with deltas of other replicas.
    pub deltas: Vec<(Day, Delta)>,
}

/// The replay window of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The oldest day whose uploads are taken, as far as the store knows.
    pub oldest: Day,
    /// The newest day with a counted upload, as far as the store knows.
    pub newest: Option<Day>,
    /// The number of upload ids in memory, and the most there may be. None: this store keeps no ids
    /// in memory.
    pub ids: Option<(usize, usize)>,
}

/// The state of an experiment that a caller expects when it asks for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedState {
    /// The experiment.
    pub key: ExperimentKey,
    /// The experiment's state.
    pub state: ExperimentState,
    /// The digest of its newest revision.
    pub digest: Digest,
}

/// The state of an experiment in its life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentState {
    /// Devices do not see the experiment yet.
    Draft,
    /// Devices are served arms, and uploads are taken.
    Running,
    /// Uploads are refused until the experiment is resumed.
    Paused,
    /// Uploads are refused for good.
    Stopped,
}

impl ExperimentState {
    /// The state's name in the store and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }

    /// Every state.
    pub const ALL: [Self; 4] = [Self::Draft, Self::Running, Self::Paused, Self::Stopped];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A step from one state of an experiment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// From draft to running.
    Start,
    /// From running to paused.
    Pause,
    /// From paused to running.
    Resume,
    /// To stopped, for good.
    Stop,
}

impl Transition {
    /// The states from which the transition is allowed.
    pub fn from(self) -> &'static [ExperimentState] {
        use ExperimentState::{Draft, Paused, Running};
        match self {
            Self::Start => &[Draft],
            Self::Pause => &[Running],
            Self::Resume => &[Paused],
            Self::Stop => &[Draft, Running, Paused],
        }
    }

    /// The state to which the transition leads.
    pub fn to(self) -> ExperimentState {
        match self {
            Self::Start | Self::Resume => ExperimentState::Running,
            Self::Pause => ExperimentState::Paused,
            Self::Stop => ExperimentState::Stopped,
        }
    }

    /// The transition's action in the audit log.
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
pub struct ExperimentKey(pub i64);

/// Seconds after which a device should ask for a new policy.
const TIME_TO_LIVE_SECONDS: u32 = 60;

/// The policy as it is served to every device.
pub fn served_policy(version: u64, weights: Weights) -> Policy {
    Policy { version, weights, time_to_live_seconds: TIME_TO_LIVE_SECONDS }
}

/// The learner configuration in the columns of a store. The values are checked again, since they
/// may have been edited by hand.
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

/// The columns of a memory: its window in days and its discount.
fn memory_columns(memory: Memory) -> (Option<i64>, Option<f64>) {
    match memory {
        Memory::Everything => (None, None),
        Memory::Days(days) => (Some(days.into()), None),
        Memory::Discount(factor) => (None, Some(factor)),
    }
}

/// The complete record of an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentRecord {
    /// The experiment's key.
    pub key: ExperimentKey,
    /// The configuration of its learner.
    pub config: LearnerConfig,
    /// The experiment's state.
    pub state: ExperimentState,
    /// Whether lists leave the experiment out, according to the audit log.
    pub is_archived: bool,
    /// What people have written about the experiment.
    pub written: WrittenRecord,
    /// Every revision, oldest first; at least one.
    pub revisions: Vec<Specification>,
    /// The signatures of the newest revision, by key, including expired ones.
    pub signatures: Vec<Signature>,
    /// The tally of every arm over all days.
    pub tallies: Vec<Tally>,
    /// The tallies by day, for the days within the learner's memory; with an unlimited one the
    /// earlier days are one.
    pub days: Days,
    /// The tallies by day and revision.
    pub history: History,
    /// The policy for the newest revision. None: this store keeps no policy, and the server
    /// computes one.
    pub policy: Option<StoredPolicy>,
}

impl ExperimentRecord {
    /// The state to expect for a change. None: there is no revision, which no store returns.
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
    /// The number of reports that the policy was computed from.
    pub reports: u64,
}
