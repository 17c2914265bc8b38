//! The model: the expected answers of a store, computed in a simple way.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use bandana_shared::identity::{CellIndex, Day, UploadId};
use bandana_shared::tally::Tally;
use bandana_store::{ExperimentRecord, ExperimentState, Verdict};

use super::place::WINDOW;

/// The identity of an upload.
pub(crate) type Key = (Day, UploadId);

/// Number of reports and of ones, for each arm of each experiment.
pub(crate) type Sums = BTreeMap<(String, usize), (u64, u64)>;

/// The content of an upload.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) experiment: String,
    pub(crate) tallies: Vec<(CellIndex, Tally)>,
}

/// Counted and acknowledged uploads, and the states of experiments.
#[derive(Debug)]
pub(crate) struct Model {
    contents: BTreeMap<Key, Content>,
    counted: BTreeSet<Key>,
    acknowledged: BTreeSet<Key>,
    /// Uploads of the last commit, if a crash may have undone it.
    doubtful: Vec<Key>,
    sums: Sums,
    standings: BTreeMap<String, (ExperimentState, usize)>,
    /// The oldest day that any caller was told, and the latest beginning of a window.
    oldest: Day,
    begin_max: Day,
    pub(crate) ids_max: usize,
}

impl Model {
    /// The model of an empty store with room for this number of ids.
    pub(crate) fn new(ids_max: usize) -> Self {
        Self {
            contents: BTreeMap::new(),
            counted: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            doubtful: Vec::new(),
            sums: Sums::new(),
            standings: BTreeMap::new(),
            oldest: Day::new(0),
            begin_max: Day::new(0),
            ids_max,
        }
    }

    pub(crate) fn make(&mut self, key: Key, content: Content) {
        self.contents.insert(key, content);
    }

    pub(crate) fn content(&self, key: Key) -> anyhow::Result<&Content> {
        self.contents.get(&key).context("an upload that nobody has made")
    }

    pub(crate) fn is_made(&self, key: Key) -> bool {
        self.contents.contains_key(&key)
    }

    pub(crate) fn begin_max(&self) -> Day {
        self.begin_max
    }

    /// The state of an experiment, with its number of revisions.
    pub(crate) fn standing(&self, experiment: &str) -> Option<(ExperimentState, usize)> {
        self.standings.get(experiment).copied()
    }

    /// Begins the commit of a group on this day.
    pub(crate) fn begin_commit(&mut self, today: Day) {
        self.begin_max = self.begin_max.max(today.back(WINDOW - 1));
    }

    /// Checks that the store's verdict on an upload is justified, and records the upload.
    pub(crate) fn judge(&mut self, key: Key, today: Day, verdict: Verdict) -> anyhow::Result<()> {
        let day = key.0;
        let content = self.content(key)?.clone();
        let (state, _) = self.standing(&content.experiment).context("no such experiment")?;
        let is_counted = self.counted.contains(&key);
        let is_right = match verdict {
            Verdict::Accepted => {
                !is_counted
                    && state == ExperimentState::Running
                    && (self.oldest..=today).contains(&day)
            }
            Verdict::Duplicate => is_counted,
            Verdict::Expired { oldest } => day < oldest && oldest <= self.begin_max,
            Verdict::FutureDay { today: told } => day > today && told == today,
            Verdict::ClockBehind => self.begin_max > today,
            Verdict::Paused => {
                !is_counted && matches!(state, ExperimentState::Paused | ExperimentState::Draft)
            }
            Verdict::Stopped => !is_counted && state == ExperimentState::Stopped,
            Verdict::Full => !is_counted && self.counted.len() >= self.ids_max,
            // No caller presents a key.
            Verdict::FullForApp => false,
        };
        ensure!(
            is_right,
            "{verdict:?} on day {today} for an upload of day {day}, counted: {is_counted}; its \
             experiment is {}, the window began with day {} and at most {}",
            state.name(),
            self.oldest,
            self.begin_max
        );
        if verdict == Verdict::Accepted {
            self.counted.insert(key);
            self.doubtful.push(key);
            add(&mut self.sums, &content);
        }
        Ok(())
    }

    /// Records that a caller was told that older days have expired. If a crash undid the commit
    /// that moved the window, the window may begin where it did before.
    pub(crate) fn tell_oldest(&mut self, oldest: Day) {
        self.oldest = self.oldest.max(oldest);
    }

    /// Records that a crash can't undo the last commit any more.
    pub(crate) fn settle(&mut self) {
        self.doubtful.clear();
    }

    /// Records that a caller knows that an upload counts.
    pub(crate) fn acknowledge(&mut self, key: Key) -> anyhow::Result<()> {
        ensure!(self.counted.contains(&key), "{key:?} was acknowledged and is not counted");
        self.acknowledged.insert(key);
        Ok(())
    }

    /// Checks that published tallies contain counted reports only.
    pub(crate) fn check_shown(&self, shown: &Sums) -> anyhow::Result<()> {
        check_at_most(shown, &self.sums)
    }

    pub(crate) fn sums(&self) -> &Sums {
        &self.sums
    }

    /// Checks the stored tallies.
    pub(crate) fn check_stored(&self, records: &[ExperimentRecord]) -> anyhow::Result<()> {
        let stored = sums(records);
        ensure!(
            stored == self.sums,
            "the store has other tallies than what was counted: {:?}",
            difference(&stored, &self.sums)
        );
        for record in records {
            let (name, standing) = standing(record);
            let expected = self.standing(&name);
            ensure!(expected == Some(standing), "{name} is {standing:?} and not {expected:?}");
        }
        ensure!(records.len() == self.standings.len(), "{} experiments", records.len());
        Ok(())
    }

    /// Records the states of experiments, and returns whether any has changed.
    pub(crate) fn restate(&mut self, records: &[ExperimentRecord]) -> bool {
        let standings = records.iter().map(standing).collect();
        let is_new = self.standings != standings;
        self.standings = standings;
        is_new
    }

    /// Checks that a commit under way at a crash took effect completely or not at all. Returns
    /// which, if there was one.
    pub(crate) fn resolve(&mut self, records: &[ExperimentRecord]) -> anyhow::Result<Option<bool>> {
        let doubtful = std::mem::take(&mut self.doubtful);
        if doubtful.is_empty() {
            return Ok(None);
        }
        if sums(records) == self.sums {
            return Ok(Some(true));
        }
        for key in doubtful {
            ensure!(!self.acknowledged.contains(&key), "{key:?} was acknowledged and is lost");
            self.counted.remove(&key);
        }
        self.sums.clear();
        for key in &self.counted {
            let content = self.contents.get(key).context("an upload that nobody has made")?;
            add(&mut self.sums, content);
        }
        Ok(Some(false))
    }

    /// Records that the window was moved back.
    pub(crate) fn move_back(&mut self, oldest: Day) {
        self.oldest = self.oldest.min(oldest);
    }

    pub(crate) fn check_end(&self) -> anyhow::Result<()> {
        let lost = self.acknowledged.difference(&self.counted).count();
        ensure!(lost == 0, "{lost} uploads were acknowledged and are not counted");
        Ok(())
    }
}

fn standing(record: &ExperimentRecord) -> (String, (ExperimentState, usize)) {
    let name = record.revisions.first().map(|first| first.experiment_id().to_string());
    (name.unwrap_or_default(), (record.state, record.revisions.len()))
}

/// Adds an upload.
pub(crate) fn add(sums: &mut Sums, content: &Content) {
    for (arm, tally) in &content.tallies {
        let sum = sums.entry((content.experiment.clone(), arm.get())).or_default();
        *sum = (sum.0 + tally.reports(), sum.1 + tally.ones());
    }
}

/// The stored tallies, without arms that have no reports.
pub(crate) fn sums(records: &[ExperimentRecord]) -> Sums {
    let of = |record: &ExperimentRecord| named(&standing(record).0, &record.tallies);
    records.iter().flat_map(of).collect()
}

/// The tallies of an experiment, without arms that have no reports.
pub(crate) fn named(experiment: &str, tallies: &[Tally]) -> Sums {
    let arms = tallies.iter().enumerate().filter(|(_, tally)| tally.reports() > 0);
    arms.map(|(arm, tally)| ((experiment.to_owned(), arm), (tally.reports(), tally.ones())))
        .collect()
}

/// Checks that `one` is at most `other`.
pub(crate) fn check_at_most(one: &Sums, other: &Sums) -> anyhow::Result<()> {
    for (arm, (reports, ones)) in one {
        let (most, most_ones) = other.get(arm).copied().unwrap_or_default();
        ensure!(
            *reports <= most && *ones <= most_ones,
            "{arm:?}: {reports} reports and {ones} ones are more than {most} and {most_ones}"
        );
    }
    Ok(())
}

fn difference(one: &Sums, other: &Sums) -> Sums {
    let differs = |(arm, sum): &(&(String, usize), &(u64, u64))| other.get(*arm) != Some(*sum);
    one.iter().filter(differs).map(|(arm, sum)| (arm.clone(), *sum)).collect()
}
