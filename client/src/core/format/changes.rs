//! The stored changes of the state since it was written as a whole.

use std::sync::Arc;

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, Digest, ExperimentId, StoreId, UploadId};
use bandana_shared::stored::{Older, Stored, StoredError};
use serde::{Deserialize, Serialize};

use super::super::stored_specification::StoredSpecification;
use super::super::{CachedExperiment, Change, Draw, Epoch, State};
use super::{StoredPolicy, StoredSignature, arm_index, signatures};
use crate::assignment::AssignmentId;
use crate::outbox::UploadTask;
use crate::privatizer::PrivateReport;
use crate::time::Timestamp;

/// The changes of one write.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredChanges {
    number: u64,
    changes: Vec<StoredChange>,
}

impl Stored for StoredChanges {
    const MAGIC: [u8; 4] = *b"BDch";
    const VERSION: u16 = 3;

    fn from_older(older: &Older<'_>) -> Result<Option<Self>, StoredError> {
        // Earlier versions lacked only the last kinds of changes.
        Ok(if older.version() < 3 { Some(older.decode()?) } else { None })
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum StoredChange {
    /// The form of version 1.
    Heard(StoredHeard),
    Drawn {
        id: u64,
        digest: [u8; 16],
        experiment_id: String,
        arm: u32,
        chosen_at_ms: u64,
        rewards_until_ms: u64,
        release_at_ms: u64,
        price: u64,
        once: Option<(u32, u32)>,
    },
    Privatized {
        id: u64,
        symbol: u8,
    },
    Sealed {
        id: u64,
        upload_id: [u8; 16],
        bytes: Vec<u8>,
    },
    Settled {
        id: u64,
    },
    HeardFrom(Option<[u8; 16]>, StoredHeard),
    DayHeard {
        day: u32,
        settled: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredHeard {
    experiment_id: String,
    /// `None`: specification and signatures are unchanged.
    specification: Option<(StoredSpecification, Vec<StoredSignature>)>,
    policy: StoredPolicy,
    heard_at_ms: u64,
}

impl StoredHeard {
    fn new(held: &CachedExperiment, anew: bool) -> Self {
        Self {
            experiment_id: held.specification.experiment_id().to_string(),
            specification: anew.then(|| {
                let signatures = held.signatures.iter().map(StoredSignature::new);
                (StoredSpecification::new(&held.specification), signatures.collect())
            }),
            policy: StoredPolicy::new(&held.policy),
            heard_at_ms: held.heard_at.unix_ms(),
        }
    }

    /// The change, given the state before it.
    fn into_change(self, store: Option<StoreId>, state: &State) -> Option<Change> {
        let experiment_id = ExperimentId::new(self.experiment_id).ok()?;
        let anew = self.specification.is_some();
        let (specification, signatures) = if let Some((stored, signed)) = self.specification {
            (Arc::new(stored.into_specification()?), signatures(signed)?)
        } else {
            let held = state.cached.get(&experiment_id)?;
            (Arc::clone(&held.specification), held.signatures.clone())
        };
        let policy = self.policy.into_policy()?;
        let heard_at = Timestamp::from_unix_ms(self.heard_at_ms);
        Some(Change::Heard {
            held: CachedExperiment { specification, signatures, policy, heard_at, store },
            anew,
        })
    }
}

impl StoredChanges {
    pub(crate) fn new(number: u64, changes: &[Change]) -> Self {
        Self { number, changes: changes.iter().map(StoredChange::new).collect() }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Applies the changes in turn; `None` when one does not follow from the state.
    pub(crate) fn apply(self, state: &mut State) -> Option<()> {
        for change in self.changes {
            let change = change.into_change(state)?;
            state.apply(&change, State::AS_READ).ok()?;
        }
        Some(())
    }
}

impl StoredChange {
    fn new(change: &Change) -> Self {
        match change {
            Change::Heard { held, anew } => {
                let store = held.store.map(|store| *store.as_bytes());
                Self::HeardFrom(store, StoredHeard::new(held, *anew))
            }
            Change::DayHeard { day, settled } => {
                Self::DayHeard { day: day.get(), settled: settled.get() }
            }
            Change::Drawn(draw) => Self::Drawn {
                id: draw.id.get(),
                digest: *draw.digest.as_bytes(),
                experiment_id: draw.experiment_id.to_string(),
                arm: draw.arm.to_u32(),
                chosen_at_ms: draw.chosen_at.unix_ms(),
                rewards_until_ms: draw.rewards_until.unix_ms(),
                release_at_ms: draw.release_at.unix_ms(),
                price: draw.price.get(),
                once: draw.once.map(|epoch| (epoch.days, epoch.number)),
            },
            Change::Privatized { id, report } => {
                Self::Privatized { id: id.get(), symbol: report.get().get() }
            }
            Change::Sealed { id, task } => Self::Sealed {
                id: id.get(),
                upload_id: *task.id().as_bytes(),
                bytes: task.bytes().to_vec(),
            },
            Change::Settled { id } => Self::Settled { id: id.get() },
        }
    }

    /// The change, given the state before it.
    fn into_change(self, state: &State) -> Option<Change> {
        Some(match self {
            Self::Heard(heard) => heard.into_change(None, state)?,
            Self::HeardFrom(store, heard) => heard.into_change(store.map(StoreId::new), state)?,
            Self::Drawn {
                id,
                digest,
                experiment_id,
                arm,
                chosen_at_ms,
                rewards_until_ms,
                release_at_ms,
                price,
                once,
            } => Change::Drawn(Draw {
                id: AssignmentId::new(id),
                digest: Digest::new(digest),
                experiment_id: ExperimentId::new(experiment_id).ok()?,
                arm: arm_index(arm)?,
                chosen_at: Timestamp::from_unix_ms(chosen_at_ms),
                rewards_until: Timestamp::from_unix_ms(rewards_until_ms),
                release_at: Timestamp::from_unix_ms(release_at_ms),
                price: NanoNats::new(price),
                once: once.map(|(days, number)| Epoch { days, number }),
            }),
            Self::Privatized { id, symbol } => {
                let report = PrivateReport::restored(symbol)?;
                Change::Privatized { id: AssignmentId::new(id), report }
            }
            Self::Sealed { id, upload_id, bytes } => {
                let task = UploadTask::from_parts(UploadId::new(upload_id), bytes);
                Change::Sealed { id: AssignmentId::new(id), task }
            }
            Self::Settled { id } => Change::Settled { id: AssignmentId::new(id) },
            Self::DayHeard { day, settled } => {
                Change::DayHeard { day: Day::new(day), settled: NanoNats::new(settled) }
            }
        })
    }
}
