//! The file of rewards: sums of open assignments, unless the app keeps none.
//!
//! Its size depends on the number of open assignments, and not on which of them have rewards.

use bandana_shared::stored::{Older, Stored, StoredError};
use serde::{Deserialize, Serialize};

use super::State;
use crate::assignment::AssignmentId;
use crate::sign::Sign;

/// Sums of open assignments: the only raw values that are ever stored on a disk, in the app's own
/// directory and unless it keeps none. Neither printed nor compared.
#[derive(Serialize, Deserialize)]
pub(crate) struct PendingRewards(pub(crate) Vec<PendingReward>);

#[derive(Serialize, Deserialize)]
pub(crate) struct PendingReward {
    pub(crate) assignment: u64,
    /// Not a number while there was no reward.
    pub(crate) sum: f64,
    /// Whether the coordinate of the private context that is reported is -1; `None`: there is none.
    /// Version 1 had none.
    pub(crate) is_negative: Option<bool>,
}

impl std::fmt::Debug for PendingRewards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PendingRewards(<private>)")
    }
}

impl Stored for PendingRewards {
    const MAGIC: [u8; 4] = *b"BDrw";
    const VERSION: u16 = 2;

    fn from_older(older: &Older<'_>) -> Result<Option<Self>, StoredError> {
        if older.version() != 1 {
            return Ok(None);
        }
        let sums: Vec<(u64, f64)> = older.decode()?;
        let pending = |(assignment, sum)| PendingReward { assignment, sum, is_negative: None };
        Ok(Some(Self(sums.into_iter().map(pending).collect())))
    }
}

impl PendingRewards {
    pub(crate) fn of(state: &State) -> Self {
        let sums = state.open.iter().map(|(id, open)| PendingReward {
            assignment: id.get(),
            sum: open.sum().unwrap_or(f64::NAN),
            is_negative: open.sign().stored(),
        });
        Self(sums.collect())
    }

    /// No open assignments, for which the file is erased.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Restores the sums of assignments that are still open.
    pub(crate) fn restore(self, state: &mut State) {
        for PendingReward { assignment, sum, is_negative } in self.0 {
            let Some(open) = state.open.get_mut(&AssignmentId::new(assignment)) else { continue };
            if !sum.is_nan() {
                open.restore_sum(sum);
            }
            if let Some(is_negative) = is_negative {
                open.set_sign(Sign::Known { is_negative });
            }
        }
    }
}
