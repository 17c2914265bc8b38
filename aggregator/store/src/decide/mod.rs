//! Deciding what a group of uploads changes, without side effects.
//!
//! The decision is pure and synchronous: the same uploads, day and state give the same decision.
//! The store carries the decision out as it is.

mod id_table;
mod seen;
mod shares;

use std::collections::{BTreeMap, HashSet};

use bandana_edge::auth::{AppShare, TokenName};
use bandana_shared::identity::{CellIndex, Day, Revision, UploadId};
use bandana_shared::tally::Tally;

use crate::{Delta, ExperimentKey, ExperimentState, GroupRow, ValidUpload, Verdict};

pub use seen::SeenIds;
pub use shares::IdShares;

/// The rows to commit for a group of uploads, and the verdicts to answer once they are committed.
#[derive(Debug, Default)]
pub struct Decision {
    /// One verdict for each upload, in the order of the uploads.
    pub verdicts: Vec<Verdict>,
    /// One row for each day that occurs.
    pub rows: Vec<GroupRow>,
    /// The number of ids in the rows for each app key and day.
    pub shares: BTreeMap<(Day, TokenName), usize>,
}

/// The inputs of a decision beside the uploads: the ids counted already, and the days whose uploads
/// are taken.
#[derive(Debug)]
pub struct DedupState<'w> {
    /// The committed ids.
    pub seen: &'w SeenIds,
    /// The number of committed ids for each app key.
    pub shares: &'w IdShares,
    /// Most ids that may be remembered.
    pub ids_max: usize,
    /// The oldest day whose uploads are taken.
    pub oldest: Day,
    /// The server's day.
    pub today: Day,
}

/// Decides about a group of uploads.
pub fn decide(uploads: &[ValidUpload], state: &DedupState<'_>) -> Decision {
    let mut decision = Decision::default();
    let mut fresh = Fresh { ids: HashSet::with_capacity(uploads.len()), of_apps: BTreeMap::new() };
    let mut days: BTreeMap<Day, DayGroup> = BTreeMap::new();
    for upload in uploads {
        let key = (upload.day, upload.id);
        let verdict = judge(upload, state, &fresh);
        if verdict == Verdict::Accepted {
            fresh.ids.insert(key);
            if let Some(AppShare { key, .. }) = &upload.app {
                *fresh.of_apps.entry(key.clone()).or_default() += 1;
                *decision.shares.entry((upload.day, key.clone())).or_default() += 1;
            }
            days.entry(upload.day).or_default().add(upload);
        }
        decision.verdicts.push(verdict);
    }
    decision.rows = days.into_iter().map(|(day, part)| part.into_row(day)).collect();
    decision
}

/// The additions of the group's uploads before the current one.
struct Fresh {
    ids: HashSet<(Day, UploadId)>,
    of_apps: BTreeMap<TokenName, usize>,
}

/// The verdict on one upload. A repeated upload succeeds whatever has happened since the first: its
/// sender must learn that it was counted.
fn judge(upload: &ValidUpload, state: &DedupState<'_>, fresh: &Fresh) -> Verdict {
    let DedupState { seen, shares, ids_max, oldest, today } = *state;
    if oldest > today {
        return Verdict::ClockBehind;
    }
    if upload.day > today {
        return Verdict::FutureDay { today };
    }
    if upload.day < oldest {
        return Verdict::Expired { oldest };
    }
    if seen.contains(upload.day, upload.id) || fresh.ids.contains(&(upload.day, upload.id)) {
        return Verdict::Duplicate;
    }
    match upload.experiment.state() {
        // Uploads for a draft are refused earlier, as for an unknown experiment.
        ExperimentState::Draft | ExperimentState::Paused => Verdict::Paused,
        ExperimentState::Stopped => Verdict::Stopped,
        ExperimentState::Running => {
            let ids = seen.len() + fresh.ids.len();
            let has_room = |app: &AppShare| shares.has_room(app, (ids, ids_max), &fresh.of_apps);
            match &upload.app {
                _ if ids >= ids_max => Verdict::Full,
                Some(app) if !has_room(app) => Verdict::FullForApp,
                _ => Verdict::Accepted,
            }
        }
    }
}

/// The accepted uploads of one day.
#[derive(Default)]
struct DayGroup {
    ids: Vec<UploadId>,
    sums: BTreeMap<(ExperimentKey, Revision, CellIndex), Tally>,
}

impl DayGroup {
    fn add(&mut self, upload: &ValidUpload) {
        self.ids.push(upload.id);
        for &(cell, tally) in &upload.tallies {
            let place = (upload.experiment.key(), upload.revision, cell);
            *self.sums.entry(place).or_default() += tally;
        }
    }

    fn into_row(mut self, day: Day) -> GroupRow {
        self.ids.sort_unstable();
        let delta = |((experiment, revision, cell), tally)| {
            let revision = Some(revision);
            Delta { experiment, revision, cell, tally }
        };
        GroupRow { day, ids: self.ids, deltas: self.sums.into_iter().map(delta).collect() }
    }
}
