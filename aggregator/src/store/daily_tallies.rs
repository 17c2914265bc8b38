//! The tallies of single days.

use bandana_shared::identity::{ArmIndex, Day};
use bandana_shared::tally::Tally;

/// What the reports of one day add up to for one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailyTally {
    /// The day that the uploads carried.
    pub day: Day,
    /// The arm.
    pub arm: ArmIndex,
    /// Their tally.
    pub tally: Tally,
}
