//! The experiment in tests of the store and of ingest.

pub(crate) mod orders;

use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ExperimentId, UnixSeconds};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_store::{AuditAction, AuditEntry};

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
