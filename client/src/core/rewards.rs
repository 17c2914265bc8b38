//! The file of rewards: sums of open assignments, if the app asks to keep them.
//!
//! Its size depends on the number of open assignments, and not on which of them have rewards.

use bandana_shared::stored::Stored;
use serde::{Deserialize, Serialize};

use super::State;
use crate::assignment::AssignmentId;

/// Sums of open assignments: the only raw values that are ever stored on a disk, in the app's own
/// directory and only if the app asks for it. Neither printed nor compared.
#[derive(Serialize, Deserialize)]
pub(crate) struct PendingRewards(pub(crate) Vec<PendingReward>);

#[derive(Serialize, Deserialize)]
pub(crate) struct PendingReward {
    pub(crate) assignment: u64,
    /// Not a number while there was no reward.
    pub(crate) sum: f64,
}

impl std::fmt::Debug for PendingRewards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PendingRewards(<private>)")
    }
}

impl Stored for PendingRewards {
    const MAGIC: [u8; 4] = *b"BDrw";
    const VERSION: u16 = 1;
}

impl PendingRewards {
    pub(crate) fn of(state: &State) -> Self {
        let sums = state.open.iter().map(|(id, open)| PendingReward {
            assignment: id.get(),
            sum: open.sum().unwrap_or(f64::NAN),
        });
        Self(sums.collect())
    }

    /// No open assignments, for which the file is removed.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Restores the sums of assignments that are still open.
    pub(crate) fn restore(self, state: &mut State) {
        for PendingReward { assignment, sum } in self.0 {
            if sum.is_nan() {
                continue;
            }
            if let Some(open) = state.open.get_mut(&AssignmentId::new(assignment)) {
                open.restore_sum(sum);
            }
        }
    }
}
