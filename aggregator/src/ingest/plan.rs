//! The planner decides what a group of uploads does, and does nothing itself.
//!
//! Pure and synchronous: the same uploads, day and state of the world give the
//! same plan. The writer carries it out without further decisions.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bandana_shared::identity::{ArmIndex, Day, UploadId};
use bandana_shared::tally::Tally;

use crate::registry::Experiment;
use crate::security::TokenName;
use crate::store::{Delta, ExperimentKey, ExperimentState, GroupRow, IdShares, SeenIds};

/// An upload whose form is valid.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Its name.
    pub id: UploadId,
    /// The day that it carries.
    pub day: Day,
    /// The experiment that its digest names.
    pub experiment: Arc<Experiment>,
    /// The tally of each arm that occurs, in ascending order of the arms.
    pub tallies: Vec<(ArmIndex, Tally)>,
    /// The app that it came from. None: apps show no keys.
    pub app: Option<AppShare>,
}

/// An app that uploads, by its key, among all that may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppShare {
    /// The name of its key.
    pub key: TokenName,
    /// How many keys there are.
    pub keys: usize,
}

/// What becomes of an upload once its group is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Counted now.
    Accepted,
    /// Counted before, or by another upload of the same group.
    Duplicate,
    /// Its day is before the replay window.
    Expired {
        /// Oldest day that is taken.
        oldest: Day,
    },
    /// Its day is after today.
    FutureDay {
        /// The server's day.
        today: Day,
    },
    /// The experiment takes no uploads for now.
    Paused,
    /// The experiment has ended.
    Stopped,
    /// As many ids as may be remembered are remembered.
    Full,
    /// The same of this app key: what is left is for others.
    FullForApp,
    /// The replay window lies after today: the clock was once too far ahead.
    /// Nothing can be said about any day.
    ClockBehind,
}

/// What is to be committed, and what to answer then.
#[derive(Debug, Default)]
pub struct Plan {
    /// One verdict for each upload, in their order.
    pub verdicts: Vec<Verdict>,
    /// One row for each day that occurs.
    pub rows: Vec<GroupRow>,
    /// Of the ids in the rows, how many came with each app key on each day.
    pub shares: BTreeMap<(Day, TokenName), usize>,
}

/// The world that a plan depends on.
#[derive(Debug)]
pub struct Situation<'w> {
    /// The committed ids.
    pub seen: &'w SeenIds,
    /// How many of them came with each app key.
    pub shares: &'w IdShares,
    /// Most ids that may be remembered.
    pub ids_max: usize,
    /// Oldest day that is taken.
    pub oldest: Day,
    /// The server's day.
    pub today: Day,
}

/// Decides about a group of uploads.
pub fn plan(arrivals: &[Arrival], situation: &Situation<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut fresh = Fresh { ids: HashSet::with_capacity(arrivals.len()), of_apps: BTreeMap::new() };
    let mut days: BTreeMap<Day, DayPlan> = BTreeMap::new();
    for arrival in arrivals {
        let key = (arrival.day, arrival.id);
        let verdict = judge(arrival, situation, &fresh);
        if verdict == Verdict::Accepted {
            fresh.ids.insert(key);
            if let Some(AppShare { key, .. }) = &arrival.app {
                *fresh.of_apps.entry(key.clone()).or_default() += 1;
                *plan.shares.entry((arrival.day, key.clone())).or_default() += 1;
            }
            days.entry(arrival.day).or_default().add(arrival);
        }
        plan.verdicts.push(verdict);
    }
    plan.rows = days.into_iter().map(|(day, part)| part.into_row(day)).collect();
    plan
}

/// What the uploads of a group before this one add.
struct Fresh {
    ids: HashSet<(Day, UploadId)>,
    of_apps: BTreeMap<TokenName, usize>,
}

/// A repeated upload is a success whatever has happened since the first: its
/// sender must learn that it was counted.
fn judge(arrival: &Arrival, situation: &Situation<'_>, fresh: &Fresh) -> Verdict {
    let Situation { seen, shares, ids_max, oldest, today } = *situation;
    if oldest > today {
        return Verdict::ClockBehind;
    }
    if arrival.day > today {
        return Verdict::FutureDay { today };
    }
    if arrival.day < oldest {
        return Verdict::Expired { oldest };
    }
    if seen.contains(arrival.day, arrival.id) || fresh.ids.contains(&(arrival.day, arrival.id)) {
        return Verdict::Duplicate;
    }
    match arrival.experiment.serving().state {
        // Devices hear of a draft before this that there is none.
        ExperimentState::Draft | ExperimentState::Paused => Verdict::Paused,
        ExperimentState::Stopped => Verdict::Stopped,
        ExperimentState::Running => {
            let ids = seen.len() + fresh.ids.len();
            let has_room = |app: &AppShare| shares.has_room(app, (ids, ids_max), &fresh.of_apps);
            match &arrival.app {
                _ if ids >= ids_max => Verdict::Full,
                Some(app) if !has_room(app) => Verdict::FullForApp,
                _ => Verdict::Accepted,
            }
        }
    }
}

/// The accepted uploads of one day.
#[derive(Default)]
struct DayPlan {
    ids: Vec<UploadId>,
    sums: BTreeMap<(ExperimentKey, ArmIndex), Tally>,
}

impl DayPlan {
    fn add(&mut self, arrival: &Arrival) {
        self.ids.push(arrival.id);
        for &(arm, tally) in &arrival.tallies {
            *self.sums.entry((arrival.experiment.key(), arm)).or_default() += tally;
        }
    }

    fn into_row(mut self, day: Day) -> GroupRow {
        self.ids.sort_unstable();
        let delta = |((experiment, arm), tally)| Delta { experiment, arm, tally };
        GroupRow { day, ids: self.ids, deltas: self.sums.into_iter().map(delta).collect() }
    }
}
