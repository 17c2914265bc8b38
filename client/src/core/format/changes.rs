//! The stored changes of the state since it was written as a whole.

use std::sync::Arc;

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::cells::Measurement;
use bandana_shared::identity::{Day, Digest, ExperimentId, StoreId, UploadId};
use bandana_shared::participation::Participation;
use bandana_shared::shuffling::BatchSize;
use bandana_shared::stored::{Older, Stored, StoredError};
use serde::{Deserialize, Serialize};

use super::super::stored_specification::{
    Beside, StoredMeasurement, StoredMeasurement6, StoredParticipation, StoredSpecification,
};
use super::super::{CachedExperiment, Change, Draw, State};
use super::ledger::StoredDebit;
use super::{StoredPolicy, StoredSignature, arm_index, cell_index, last_day, signatures};
use crate::assignment::AssignmentId;
use crate::debit::Debit;
use crate::membership::Secret;
use crate::outbox::{Sealed, UploadTask};
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
    const VERSION: u16 = 7;

    fn from_older(older: &Older<'_>) -> Result<Option<Self>, StoredError> {
        // Earlier versions lacked only the last kinds of changes.
        Ok(if older.version() < Self::VERSION { Some(older.decode()?) } else { None })
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum StoredChange {
    /// The form of version 1.
    Heard(StoredHeard),
    /// A draw whose report costs the same in both accounts.
    Drawn(StoredDraw),
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
    /// The form of version 3, which had one account.
    DayHeard {
        day: u32,
        settled: u64,
    },
    DayHeardInBoth {
        day: u32,
        settled: StoredDebit,
    },
    /// A specification with this batch was heard. Its price in the central account is with each draw.
    HeardShuffled(Option<[u8; 16]>, StoredHeard, u32),
    DrawnAtPrice(StoredDraw, StoredDebit),
    /// A shuffled report got its name and the server's day.
    SealedShuffled {
        id: u64,
        upload_id: [u8; 16],
        day: u32,
    },
    /// A specification was heard that is not for everyone, or sticky: with its batch, 0 for none.
    HeardForPart(Option<[u8; 16]>, StoredHeard, u32, StoredParticipation),
    SecretDrawn([u8; 32]),
    Kept {
        experiment_id: String,
        arm: u32,
    },
    /// The form of version 6.
    HeardMeasuring6(Option<[u8; 16]>, StoredHeard, u32, StoredParticipation, StoredMeasurement6),
    /// A specification that measures something beside the rewards of all was heard: the rest is as in `HeardForPart`.
    HeardMeasuring(Option<[u8; 16]>, StoredHeard, u32, StoredParticipation, StoredMeasurement),
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredDraw {
    id: u64,
    digest: [u8; 16],
    experiment_id: String,
    /// The cell; in experiments without segments and metrics an arm.
    arm: u32,
    chosen_at_ms: u64,
    rewards_until_ms: u64,
    release_at_ms: u64,
    /// In the local account.
    price: u64,
    /// A period of so many days, and its number. Since version 5 one day.
    once: Option<(u32, u32)>,
}

impl StoredDraw {
    fn new(draw: &Draw) -> Self {
        Self {
            id: draw.id.get(),
            digest: *draw.digest.as_bytes(),
            experiment_id: draw.experiment_id.to_string(),
            arm: draw.cell.to_u32(),
            chosen_at_ms: draw.chosen_at.unix_ms(),
            rewards_until_ms: draw.rewards_until.unix_ms(),
            release_at_ms: draw.release_at.unix_ms(),
            price: draw.price.local.get(),
            once: draw.day.map(|day| (1, day.get())),
        }
    }

    fn into_change(self, price: Debit) -> Option<Change> {
        Some(Change::Drawn(Draw {
            id: AssignmentId::new(self.id),
            digest: Digest::new(self.digest),
            experiment_id: ExperimentId::new(self.experiment_id).ok()?,
            cell: cell_index(self.arm)?,
            chosen_at: Timestamp::from_unix_ms(self.chosen_at_ms),
            rewards_until: Timestamp::from_unix_ms(self.rewards_until_ms),
            release_at: Timestamp::from_unix_ms(self.release_at_ms),
            price,
            day: self.once.map(|(days, number)| last_day(days, number)),
        }))
    }
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
    fn into_change(self, store: Option<StoreId>, beside: Beside, state: &State) -> Option<Change> {
        let experiment_id = ExperimentId::new(self.experiment_id).ok()?;
        let anew = self.specification.is_some();
        let (specification, signatures) = if let Some((stored, signed)) = self.specification {
            let specification = stored.into_specification(beside)?;
            (Arc::new(specification), signatures(signed)?)
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
                let heard = StoredHeard::new(held, *anew);
                let specification = &held.specification;
                let batch = specification.batch().map_or(0, BatchSize::get);
                let part = StoredParticipation::new(specification.participation());
                if let Some(measurement) = StoredMeasurement::of(specification.measurement()) {
                    return Self::HeardMeasuring(store, heard, batch, part, measurement);
                }
                match (specification.participation(), specification.batch()) {
                    (&Participation::EVERYONE, None) => Self::HeardFrom(store, heard),
                    (&Participation::EVERYONE, Some(batch)) => {
                        Self::HeardShuffled(store, heard, batch.get())
                    }
                    _ => Self::HeardForPart(store, heard, batch, part),
                }
            }
            Change::DayHeard { day, settled } => {
                Self::DayHeardInBoth { day: day.get(), settled: StoredDebit::new(*settled) }
            }
            Change::Drawn(draw) if draw.price == Debit::unshuffled(draw.price.local) => {
                Self::Drawn(StoredDraw::new(draw))
            }
            Change::Drawn(draw) => {
                Self::DrawnAtPrice(StoredDraw::new(draw), StoredDebit::new(draw.price))
            }
            Change::Privatized { id, report } => {
                Self::Privatized { id: id.get(), symbol: report.get().get() }
            }
            Change::Sealed { id, sealed: Sealed::Direct(task) } => Self::Sealed {
                id: id.get(),
                upload_id: *task.id().as_bytes(),
                bytes: task.bytes().to_vec(),
            },
            Change::Sealed { id, sealed: Sealed::Shuffled { id: upload_id, day } } => {
                let (id, upload_id) = (id.get(), *upload_id.as_bytes());
                Self::SealedShuffled { id, upload_id, day: day.get() }
            }
            Change::Settled { id } => Self::Settled { id: id.get() },
            Change::SecretDrawn(secret) => Self::SecretDrawn(*secret.as_bytes()),
            Change::Kept { experiment_id, arm } => {
                Self::Kept { experiment_id: experiment_id.to_string(), arm: arm.to_u32() }
            }
        }
    }

    /// The change, given the state before it.
    fn into_change(self, state: &State) -> Option<Change> {
        Some(match self {
            Self::Heard(heard) => heard.into_change(None, Beside::NOTHING, state)?,
            Self::HeardFrom(store, heard) => {
                heard.into_change(store.map(StoreId::new), Beside::NOTHING, state)?
            }
            Self::HeardShuffled(store, heard, batch) => {
                let batch = Some(BatchSize::new(batch).ok()?);
                let beside = Beside { batch, ..Beside::NOTHING };
                heard.into_change(store.map(StoreId::new), beside, state)?
            }
            Self::HeardForPart(store, heard, batch, part) => {
                let (batch, participation) =
                    (super::batch_size(batch)?, part.into_participation()?);
                let measurement = Measurement::REWARDS_ONLY;
                let beside = Beside { batch, participation, measurement };
                heard.into_change(store.map(StoreId::new), beside, state)?
            }
            Self::HeardMeasuring6(store, heard, batch, part, measurement) => {
                Self::HeardMeasuring(store, heard, batch, part, measurement.into())
                    .into_change(state)?
            }
            Self::HeardMeasuring(store, heard, batch, part, measurement) => {
                let (batch, participation) =
                    (super::batch_size(batch)?, part.into_participation()?);
                let measurement = measurement.into_measurement()?;
                let beside = Beside { batch, participation, measurement };
                heard.into_change(store.map(StoreId::new), beside, state)?
            }
            Self::Drawn(draw) => {
                let price = Debit::unshuffled(NanoNats::new(draw.price));
                draw.into_change(price)?
            }
            Self::DrawnAtPrice(draw, price) => draw.into_change(price.into_debit())?,
            Self::Privatized { id, symbol } => {
                let report = PrivateReport::restored(symbol)?;
                Change::Privatized { id: AssignmentId::new(id), report }
            }
            Self::Sealed { id, upload_id, bytes } => {
                let task = UploadTask::from_parts(UploadId::new(upload_id), bytes);
                Change::Sealed { id: AssignmentId::new(id), sealed: Sealed::Direct(task) }
            }
            Self::SealedShuffled { id, upload_id, day } => {
                let (upload_id, day) = (UploadId::new(upload_id), Day::new(day));
                let sealed = Sealed::Shuffled { id: upload_id, day };
                Change::Sealed { id: AssignmentId::new(id), sealed }
            }
            Self::Settled { id } => Change::Settled { id: AssignmentId::new(id) },
            Self::SecretDrawn(bytes) => Change::SecretDrawn(Secret::from_bytes(bytes)),
            Self::Kept { experiment_id, arm } => {
                let experiment_id = ExperimentId::new(experiment_id).ok()?;
                Change::Kept { experiment_id, arm: arm_index(arm)? }
            }
            Self::DayHeard { day, settled } => {
                let settled = Debit::unshuffled(NanoNats::new(settled));
                Change::DayHeard { day: Day::new(day), settled }
            }
            Self::DayHeardInBoth { day, settled } => {
                Change::DayHeard { day: Day::new(day), settled: settled.into_debit() }
            }
        })
    }
}
