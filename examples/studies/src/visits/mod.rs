//! Users who come back: regret, changes of arm and privacy loss, by how arms are assigned.

mod outcome;
mod picture;
mod trial;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bandana_shared::epsilon::Epsilon;
use bandana_shared::participation::{Millionths, Sticky};

use bandana_lab::instance::Instance;
use bandana_lab::{Contestant, on_threads};
use outcome::Summed;
pub use outcome::{VisitsOutcome, VisitsRow};
use trial::Course;

/// How a device assigns arms to its visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// An arm drawn for each visit, and each reported.
    Redrawn,
    /// An arm drawn for each visit; the first one is reported.
    RedrawnReportedOnce,
    /// One arm until it weighs less than this; the first visit is reported.
    Sticky(Millionths),
}

impl Assignment {
    /// The name in tables.
    pub fn name(self) -> String {
        match self {
            Self::Redrawn => "redrawn, each reported".to_owned(),
            Self::RedrawnReportedOnce => "redrawn, one report".to_owned(),
            Self::Sticky(Millionths::NONE) => "kept for ever, one report".to_owned(),
            Self::Sticky(weight) => format!("kept until below {}, one report", weight.share()),
        }
    }

    fn sticky(self) -> Option<Sticky> {
        match self {
            Self::Redrawn | Self::RedrawnReportedOnce => None,
            Self::Sticky(until_weight_below) => Some(Sticky { until_weight_below, report_days: 0 }),
        }
    }
}

/// A study of users who come back.
#[derive(Clone, Debug)]
pub struct VisitsStudy {
    /// Name of the instance.
    pub name: String,
    /// The arms.
    pub instance: Instance,
    /// Privacy loss bounds of one report.
    pub epsilons: Vec<Epsilon>,
    /// The ways of assignment.
    pub assignments: Vec<Assignment>,
    /// The learner, which must have weights.
    pub learner: Arc<dyn Contestant>,
    /// Number of users.
    pub users: usize,
    /// Number of visits of each, in an order that is uniform over all orders of all visits.
    pub visits: usize,
    /// Number of visits between two policies.
    pub batch: usize,
    /// Number of trials.
    pub trials: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

impl VisitsStudy {
    /// The number of all trials.
    pub fn trial_count(&self) -> usize {
        self.trials * self.assignments.len() * self.epsilons.len()
    }

    /// Runs the study. `progress` is called with the number of finished trials. Once `stop` is set,
    /// the trials under way are given up.
    ///
    /// # Errors
    /// When the learner fails, or has no weights.
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: &(dyn Fn(usize) + Sync),
    ) -> anyhow::Result<VisitsOutcome> {
        let kinds: Vec<_> = self
            .epsilons
            .iter()
            .flat_map(|epsilon| self.assignments.iter().map(move |way| (*epsilon, *way)))
            .collect();
        let sums = Mutex::new(vec![Summed::default(); kinds.len()]);
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        on_threads(self.threads, || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let (trial, kind) = (number / kinds.len(), number % kinds.len());
                if trial >= self.trials || stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let (epsilon, assignment) = kinds[kind];
                let course = Course {
                    instance: &self.instance,
                    learner: &*self.learner,
                    epsilon,
                    assignment,
                    users: self.users,
                    visits: self.visits,
                    batch: self.batch,
                };
                // The same users come at the same times, whatever they are given.
                let Some(ended) = trial::run(&course, self.seed + trial as u64, stop)? else {
                    return Ok(());
                };
                let mut sums = sums.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                sums[kind].add(trial, &ended);
                progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
        })?;
        let sums = sums.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(VisitsOutcome::new(self, &kinds, &sums, stop.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use bandana_lab::StandardLearner;

    use super::*;

    fn study(assignments: Vec<Assignment>, visits: usize) -> VisitsStudy {
        VisitsStudy {
            name: "paper-20".to_owned(),
            instance: Instance::paper_20(),
            epsilons: vec![Epsilon::new(2.0).unwrap()],
            assignments,
            learner: Arc::new(StandardLearner::LdpTs),
            users: 800,
            visits,
            batch: 100,
            trials: 3,
            seed: 1,
            threads: 2,
        }
    }

    fn run(study: &VisitsStudy) -> Vec<VisitsRow> {
        study.run(&AtomicBool::new(false), &|_| {}).unwrap().rows
    }

    #[test]
    fn users_who_come_once_are_the_same_however_arms_are_assigned() {
        let ways = vec![
            Assignment::Redrawn,
            Assignment::RedrawnReportedOnce,
            Assignment::Sticky(Millionths::NONE),
            Assignment::Sticky(Sticky::DEFAULT.until_weight_below),
        ];
        let rows = run(&study(ways, 1));
        for row in &rows {
            assert!((row.regret_per_visit - rows[0].regret_per_visit).abs() < 1e-12, "{row:?}");
            assert!(row.changes_per_user.abs() < 1e-12 && (row.epsilon_spent - 2.0).abs() < 1e-12);
        }
    }

    #[test]
    fn a_picture_names_the_ways_of_assignment() {
        use crate::program::Outcome as _;
        let study = study(vec![Assignment::Redrawn, Assignment::Sticky(Millionths::NONE)], 2);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("visits.svg");
        study
            .run(&AtomicBool::new(false), &|_| {})
            .unwrap()
            .draw(&path.to_str().unwrap().parse().unwrap())
            .unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        for name in ["redrawn, each reported", "kept for ever, one report", "epsilon 2"] {
            assert!(picture.contains(name), "{name}");
        }
    }

    #[test]
    fn an_arm_that_is_kept_for_ever_never_changes_and_one_that_is_redrawn_does() {
        let rows = run(&study(vec![Assignment::Redrawn, Assignment::Sticky(Millionths::NONE)], 8));
        assert!(rows[0].changes_per_user > 1.0 && (rows[0].epsilon_spent - 16.0).abs() < 1e-9);
        assert!(rows[1].changes_per_user.abs() < 1e-12);
        assert!((rows[1].epsilon_spent - 2.0).abs() < 1e-12);
        assert!(rows[0].regret_per_visit < rows[1].regret_per_visit);
    }
}
