//! The stored format, field by field. A change here needs a new version, and a reader of the old
//! version.

mod changes;
mod ledger;
mod state;

use bandana_shared::identity::{ArmIndex, CellIndex, Day, UnixSeconds};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::signing::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

pub(crate) use changes::StoredChanges;
pub(crate) use ledger::{StoredDone, StoredLedger, StoredStarts};
pub(crate) use state::StoredState;

#[derive(Debug, Serialize, Deserialize)]
struct StoredPolicy {
    version: u64,
    weights: Vec<u64>,
    time_to_live_seconds: u32,
}

impl StoredPolicy {
    fn new(policy: &Policy) -> Self {
        Self {
            version: policy.version,
            weights: policy.weights.iter().collect(),
            time_to_live_seconds: policy.time_to_live_seconds,
        }
    }

    fn into_policy(self) -> Option<Policy> {
        let weights = Weights::new(&self.weights).ok()?;
        let Self { version, time_to_live_seconds, .. } = self;
        Some(Policy { version, weights, time_to_live_seconds })
    }
}

/// Key, expiry in seconds, and 64 bytes.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSignature([u8; 32], u64, Vec<u8>);

impl StoredSignature {
    fn new(signature: &Signature) -> Self {
        let expires = signature.expires().get();
        Self(*signature.key().as_bytes(), expires, signature.as_bytes().to_vec())
    }

    fn into_signature(self) -> Option<Signature> {
        let key = PublicKey::new(self.0).ok()?;
        Some(Signature::new(key, UnixSeconds::new(self.1), self.2.try_into().ok()?))
    }
}

fn signatures(stored: Vec<StoredSignature>) -> Option<Vec<Signature>> {
    stored.into_iter().map(StoredSignature::into_signature).collect()
}

fn arm_index(arm: u32) -> Option<ArmIndex> {
    ArmIndex::new(usize::try_from(arm).ok()?).ok()
}

fn cell_index(cell: u32) -> Option<CellIndex> {
    CellIndex::new(usize::try_from(cell).ok()?).ok()
}

/// The batch of this size, if any is: 0 stands for none. The outer `None`: there is no such batch.
#[expect(clippy::option_option, reason = "a missing batch is valid")]
fn batch_size(size: u32) -> Option<Option<BatchSize>> {
    if size == 0 { Some(None) } else { BatchSize::new(size).ok().map(Some) }
}

/// The last day of a period of `days` days, counted from 1970-01-01. The only period of 0 days never
/// ends.
fn last_day(days: u32, number: u32) -> Day {
    let end = number.checked_add(1).and_then(|next| next.checked_mul(days));
    Day::new(end.and_then(|end| end.checked_sub(1)).unwrap_or(u32::MAX))
}
