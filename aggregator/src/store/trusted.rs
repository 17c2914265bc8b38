//! Trusted experiments as the store keeps them: records whose states are bytes, and their checks.

use std::fmt;

use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_shared::stored;
use bandana_shared::wire::v1::TrustedSpecification;
use bandana_zcdp::state::{ReleasedState, SecretState};
use prost::Message as _;
use thiserror::Error;

use super::{
    AuditEntry, DamageError, DatabaseError, ExperimentState, StoreError, StoreRefusal, Verification,
};

/// Most disclosures of one commit.
pub const DISCLOSURES_MAX: usize = 1024;

/// Names of days that have left the window that one change forgets at most: more than it adds.
/// Those that are left harm nobody: their days are refused.
pub(super) const FORGOTTEN_MAX: u32 = 2048;

const _: () = assert!(FORGOTTEN_MAX as usize > DISCLOSURES_MAX);

/// Which state of a trusted experiment something was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedVersion {
    /// Grows by one with every change.
    pub sequence: u64,
    /// Random, at most 2^63 - 1: in a store that has gone back in time, a sequence may come
    /// again for something else.
    pub stamp: u64,
}

impl TrustedVersion {
    /// The next version, with a new stamp.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn next(self) -> Result<Self, StoreError> {
        let random = getrandom::u64()
            .map_err(|source| StoreError::Database(DatabaseError::Entropy { source }))?;
        Ok(Self { sequence: self.sequence + 1, stamp: random >> 1 })
    }
}

/// All that the store knows about a trusted experiment, but for the names of what was disclosed.
#[derive(Clone, PartialEq, Eq)]
pub struct TrustedRecord {
    /// Its name.
    pub id: ExperimentId,
    /// Its specification, as a message.
    pub specification: Vec<u8>,
    /// Where it stands; never a draft.
    pub state: ExperimentState,
    /// Its version.
    pub version: TrustedVersion,
    /// The oldest day whose disclosures are taken.
    pub oldest: Day,
    /// Its secret state. None: it was stopped.
    pub private: Option<Vec<u8>>,
    /// What may be shown of it.
    pub released: Vec<u8>,
    /// Whether lists leave it out: the audit log says so.
    pub is_archived: bool,
}

impl fmt::Debug for TrustedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, state, version, oldest, .. } = self;
        let mut shown = f.debug_struct("TrustedRecord");
        shown.field("id", id).field("state", state).field("version", version);
        shown.field("oldest", oldest).finish_non_exhaustive()
    }
}

/// The next state of a trusted experiment that runs, and what led to it.
#[derive(Clone)]
pub struct TrustedCommit {
    /// The experiment.
    pub id: ExperimentId,
    /// The version that this was made from.
    pub from: TrustedVersion,
    /// The version that this is.
    pub to: TrustedVersion,
    /// The next secret state.
    pub private: Vec<u8>,
    /// What may be shown of it.
    pub released: Vec<u8>,
    /// The disclosures that led there, each of which counts once; none in a release.
    pub disclosures: Vec<(Day, UploadId)>,
}

impl fmt::Debug for TrustedCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, from, disclosures, .. } = self;
        let mut shown = f.debug_struct("TrustedCommit");
        shown.field("id", id).field("from", from);
        shown.field("disclosures", &disclosures.len()).finish_non_exhaustive()
    }
}

/// Something to be made durable of a trusted experiment: all of it or nothing.
#[derive(Clone, Debug)]
pub enum TrustedChange {
    /// Add an experiment.
    Create(TrustedRecord, AuditEntry),
    /// Move it to another state. Stopping erases the secret state.
    Move {
        /// The experiment.
        id: ExperimentId,
        /// The version that it has.
        from: TrustedVersion,
        /// The version that it gets.
        to: TrustedVersion,
        /// Its next state.
        state: ExperimentState,
        /// For the audit log.
        entry: AuditEntry,
    },
    /// Have lists leave it out, or not any more, as the entry says. Stopped experiments only.
    Archive {
        /// The experiment.
        id: ExperimentId,
        /// The version that it has.
        from: TrustedVersion,
        /// The version that it gets.
        to: TrustedVersion,
        /// For the audit log.
        entry: AuditEntry,
    },
    /// Delete it, but for its entries in the audit log. Stopped experiments only.
    Delete {
        /// The experiment.
        id: ExperimentId,
        /// The version that it has.
        from: TrustedVersion,
        /// For the audit log.
        entry: AuditEntry,
    },
    /// Let its window begin so many days before today. If it begins no earlier, it keeps its
    /// version.
    Window {
        /// The experiment.
        id: ExperimentId,
        /// The version that it has.
        from: TrustedVersion,
        /// The version that it gets.
        to: TrustedVersion,
        /// The server's day.
        today: Day,
        /// How many days before it the window begins.
        back: u32,
    },
    /// Replace its state.
    Commit(TrustedCommit),
}

impl TrustedChange {
    /// The experiment that it is for.
    pub(super) fn id(&self) -> &ExperimentId {
        match self {
            Self::Create(record, _) => &record.id,
            Self::Move { id, .. }
            | Self::Archive { id, .. }
            | Self::Delete { id, .. }
            | Self::Window { id, .. } => id,
            Self::Commit(commit) => &commit.id,
        }
    }
}

/// Why the store does not make a change of a trusted experiment. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustedRefusal {
    /// It has another version, or is not there.
    #[error("the trusted experiment was changed by somebody else at the same time; try again")]
    Moved,
    /// These count already.
    #[error("{} disclosures were counted before", .0.len())]
    Known(Vec<(Day, UploadId)>),
    /// Some are of a later day, by the clock of the database.
    #[error("a disclosure is of a day after {latest}, by the clock of the database")]
    Future {
        /// The latest day that is taken.
        latest: Day,
    },
}

impl From<TrustedRefusal> for StoreError {
    fn from(refusal: TrustedRefusal) -> Self {
        StoreRefusal::Trusted(Box::new(refusal)).into()
    }
}

/// What the bytes of a record say.
#[derive(Clone, Debug)]
pub(crate) struct DecodedRecord {
    /// As devices are told of it.
    pub(crate) specification: TrustedSpecification,
    /// Its secret state. None: it was stopped.
    pub(crate) secret: Option<SecretState>,
    /// What may be shown of it.
    pub(crate) released: ReleasedState,
}

impl TrustedRecord {
    /// # Errors
    /// [`StoreError::Damage`]: it is not as it was written.
    pub(crate) fn decode(&self) -> Result<DecodedRecord, StoreError> {
        let damaged = |error| {
            StoreError::Damage(DamageError::Data {
                what: format!("the specification of a trusted experiment: {error}"),
            })
        };
        Ok(DecodedRecord {
            specification: TrustedSpecification::decode(&self.specification[..])
                .map_err(damaged)?,
            secret: self.private.as_deref().map(stored::from_bytes).transpose()?,
            released: stored::from_bytes(&self.released)?,
        })
    }
}

/// Checks one record by itself.
pub(super) fn verify(record: &TrustedRecord, verification: &mut Verification) {
    let TrustedRecord { id, state, private, released, .. } = record;
    if (*state == ExperimentState::Stopped) != private.is_none() {
        verification.say(format!(
            "trusted experiment {id} is {}, which does not fit whether it has a secret state",
            state.name()
        ));
    }
    let experiment = match record.decode() {
        Ok(experiment) => experiment,
        Err(error) => return verification.say(format!("trusted experiment {id}: {error}")),
    };
    if experiment.released.plan().message(id) != experiment.specification {
        verification.say(format!("trusted experiment {id} is not run by its specification"));
    }
    // The bytes follow from the secret state.
    let shown = experiment.secret.map(|secret| stored::to_bytes(&secret.released()));
    if shown.is_some_and(|shown| !shown.is_ok_and(|shown| shown == *released)) {
        verification.say(format!(
            "trusted experiment {id} shows something else than what was released of it"
        ));
    }
}

/// Checks what an experiment has beside it: how many names of disclosures, fewer than rewards
/// once its window has moved, and whether an experiment of the other kind has its id.
pub(super) fn verify_names(
    record: &TrustedRecord,
    names: u64,
    is_taken: bool,
    verification: &mut Verification,
) {
    let id = &record.id;
    if is_taken {
        verification.say(format!("the id {id} is that of experiments of both kinds"));
    }
    let Ok(experiment) = record.decode() else { return };
    let rewards = experiment.released.rewards();
    if names > rewards {
        verification.say(format!(
            "trusted experiment {id} has {names} disclosures, and {rewards} rewards from them"
        ));
    }
    if record.version.sequence < experiment.released.releases() {
        verification.say(format!(
            "trusted experiment {id} was changed {} times, and released {} statistics",
            record.version.sequence,
            experiment.released.releases()
        ));
    }
}
