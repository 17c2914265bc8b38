//! Stored records of trusted experiments, whose states are bytes, and the checks of those records.

mod table;

use std::fmt;

use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_shared::stored;
use bandana_shared::wire::v1::TrustedSpecification;
use bandana_zcdp::state::{ReleasedState, SecretState};
use prost::Message as _;

use super::{AuditEntry, DamageError, DatabaseError, ExperimentState, StoreError, Verification};
pub(crate) use table::{Disclosures, change, disclosed, trusted, versions};

/// Most disclosures in one commit.
pub const DISCLOSURES_MAX: usize = 1024;

/// Most ids of days before the window that one change deletes: more than a change adds. Ids that
/// are left do no harm, since uploads of their days are refused.
pub(super) const FORGOTTEN_MAX: u32 = 2048;

const _: () = assert!(FORGOTTEN_MAX as usize > DISCLOSURES_MAX);

/// The version of a trusted experiment's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedVersion {
    /// A sequence number that grows by one with every change.
    pub sequence: u64,
    /// A random number, at most 2^63 - 1. In a store that was set back in time, a sequence number
    /// may recur for another state.
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

/// The complete record of a trusted experiment, except for the ids of its disclosures.
#[derive(Clone, PartialEq, Eq)]
pub struct TrustedRecord {
    /// The experiment's id.
    pub id: ExperimentId,
    /// The specification, as a message.
    pub specification: Vec<u8>,
    /// The experiment's state; never a draft.
    pub state: ExperimentState,
    /// The version of its state.
    pub version: TrustedVersion,
    /// The oldest day whose disclosures are taken.
    pub oldest: Day,
    /// The secret state. None: the experiment was stopped.
    pub private: Option<Vec<u8>>,
    /// The released state, which may be shown.
    pub released: Vec<u8>,
    /// Whether lists leave the experiment out, according to the audit log.
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

/// The next state of a running trusted experiment, and the disclosures that led to it.
#[derive(Clone)]
pub struct TrustedCommit {
    /// The experiment.
    pub id: ExperimentId,
    /// The version that the next state was computed from.
    pub from: TrustedVersion,
    /// The version of the next state.
    pub to: TrustedVersion,
    /// The next secret state.
    pub private: Vec<u8>,
    /// The released state, which may be shown.
    pub released: Vec<u8>,
    /// The disclosures that led to the next state, each counted once; none in a release.
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

/// A durable change of a trusted experiment, made as a whole or not at all.
#[derive(Clone, Debug)]
pub enum TrustedChange {
    /// Add an experiment.
    Create(TrustedRecord, AuditEntry),
    /// Move an experiment to another state. Stopping erases the secret state.
    Move {
        /// The experiment.
        id: ExperimentId,
        /// The version that the experiment must have.
        from: TrustedVersion,
        /// The version that the experiment gets.
        to: TrustedVersion,
        /// The next state.
        state: ExperimentState,
        /// The entry for the audit log.
        entry: AuditEntry,
    },
    /// Archive or unarchive a stopped experiment. The action of the entry says which.
    Archive {
        /// The experiment.
        id: ExperimentId,
        /// The version that the experiment must have.
        from: TrustedVersion,
        /// The version that the experiment gets.
        to: TrustedVersion,
        /// The entry for the audit log.
        entry: AuditEntry,
    },
    /// Delete a stopped experiment, except for its audit entries.
    Delete {
        /// The experiment.
        id: ExperimentId,
        /// The version that the experiment must have.
        from: TrustedVersion,
        /// The entry for the audit log.
        entry: AuditEntry,
    },
    /// Let the window begin `back` days before today. If it begins there or later already, it keeps
    /// its version.
    Window {
        /// The experiment.
        id: ExperimentId,
        /// The version that the experiment must have.
        from: TrustedVersion,
        /// The version that the experiment gets.
        to: TrustedVersion,
        /// The server's day.
        today: Day,
        /// The number of days between the window's first day and today.
        back: u32,
    },
    /// Replace the state.
    Commit(TrustedCommit),
}

/// A decoded record.
#[derive(Clone, Debug)]
pub struct DecodedRecord {
    /// The specification as devices receive it.
    pub specification: TrustedSpecification,
    /// The secret state. None: the experiment was stopped.
    pub secret: Option<SecretState>,
    /// The released state, which may be shown.
    pub released: ReleasedState,
}

impl TrustedRecord {
    /// # Errors
    /// [`StoreError::Damage`]: it is not as it was written.
    pub fn decode(&self) -> Result<DecodedRecord, StoreError> {
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
    // The released bytes follow from the secret state.
    let shown = experiment.secret.map(|secret| stored::to_bytes(&secret.released()));
    if shown.is_some_and(|shown| !shown.is_ok_and(|shown| shown == *released)) {
        verification.say(format!(
            "trusted experiment {id} shows something else than what was released of it"
        ));
    }
}

/// Checks the number of stored ids against the record, and that no local experiment has its id.
/// There are fewer ids than rewards once the window has moved.
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
