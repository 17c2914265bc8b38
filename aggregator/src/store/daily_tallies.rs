//! Tallies of single days.

use bandana_shared::identity::{ArmIndex, Day};
use bandana_shared::tally::Tally;

/// The tally of one arm for one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailyTally {
    /// The day that the uploads carried.
    pub day: Day,
    /// The arm.
    pub arm: ArmIndex,
    /// The tally of that day's reports.
    pub tally: Tally,
}
