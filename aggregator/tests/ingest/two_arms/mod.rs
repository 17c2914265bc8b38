//! The experiment in tests of the store and of ingest.

pub(crate) mod orders;

use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ExperimentId, UnixSeconds};
use bandana_shared::rewards::Rewards;
use bandana_shared::signing::Signature;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_store::{
    AuditAction, AuditEntry, ExpectedState, ExperimentChange, ExperimentKey, SqliteStore,
    StoreError,
};

/// Two arms, binary rewards, an epsilon of 1.
pub(crate) fn specification(id: &str) -> Result<Specification, Box<dyn std::error::Error>> {
    Ok(Specification::first(
        ExperimentId::new(id)?,
        Epsilon::new(1.0)?,
        Rewards::binary(),
        Mechanism::Linear,
        vec![Arm::new("a")?, Arm::new("b")?],
        ReleaseTiming::IMMEDIATE,
    )?)
}

/// An entry of the audit log about an experiment.
pub(crate) fn entry(id: &str) -> Result<AuditEntry, Box<dyn std::error::Error>> {
    Ok(AuditEntry {
        at: UnixSeconds::new(1_700_000_000),
        caller: "anna".to_owned(),
        action: AuditAction::Create,
        experiment: ExperimentId::new(id)?,
        detail: "for a test".to_owned(),
    })
}

/// Adds a revision of an experiment, whatever its state.
pub(crate) fn add_revision(
    store: &mut SqliteStore,
    key: ExperimentKey,
    revision: &Specification,
    entry: &AuditEntry,
) -> Result<(), Box<dyn std::error::Error>> {
    let change = ExperimentChange::Revision(expected(store, key)?, revision);
    Ok(store.apply_experiment_change(&change, entry)?)
}

/// Adds a signature of a revision.
pub(crate) fn add_signature(
    store: &mut SqliteStore,
    (key, revision): (ExperimentKey, &Specification),
    signature: &Signature,
    now: UnixSeconds,
    entry: &AuditEntry,
) -> Result<(), StoreError> {
    let change = ExperimentChange::Signature(key, revision, signature, now);
    store.apply_experiment_change(&change, entry)
}

/// The state that an experiment has.
pub(crate) fn expected(
    store: &SqliteStore,
    key: ExperimentKey,
) -> Result<ExpectedState, Box<dyn std::error::Error>> {
    Ok(store.experiment(key)?.expected().ok_or("no revision")?)
}
