//! The outcome of a study of users who come back, as JSON and as a table.

use std::fmt::Write as _;

use bandana_lab::outcome::Summary;
use bandana_shared::epsilon::Epsilon;
use serde::Serialize;

use super::trial::Ended;
use super::{Assignment, VisitsStudy};

/// A study's result.
#[derive(Clone, Debug, Serialize)]
pub struct VisitsOutcome {
    /// Name of the instance.
    pub instance: String,
    /// The learner.
    pub learner: String,
    /// Number of users.
    pub users: usize,
    /// Number of visits of each user.
    pub visits: usize,
    /// Number of visits between two policies.
    pub batch: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// Whether the study was interrupted before all trials were done.
    pub interrupted: bool,
    /// One row for each epsilon and way of assignment.
    pub rows: Vec<VisitsRow>,
}

/// One way of assignment, over all trials.
#[derive(Clone, Debug, Serialize)]
pub struct VisitsRow {
    /// The way of assignment.
    pub assignment: String,
    /// Privacy loss bound of one report, in nats.
    pub epsilon: f64,
    /// Number of finished trials.
    pub trials: usize,
    /// Mean pseudo-regret of a visit.
    pub regret_per_visit: f64,
    /// Half the width of its normal 95% interval.
    pub regret_ci95: f64,
    /// Mean pseudo-regret of a visit among the last quarter.
    pub late_regret_per_visit: f64,
    /// Mean number of visits at which a user saw another arm than at the visit before.
    pub changes_per_user: f64,
    /// Mean privacy loss of a user over all visits, in nats, by basic composition.
    pub epsilon_spent: f64,
}

/// The trials of one way of assignment.
#[derive(Clone, Debug, Default)]
pub(super) struct Summed {
    /// Number of the trial, regret, late regret, changes, reports.
    trials: Vec<(usize, [f64; 4])>,
}

impl Summed {
    pub(super) fn add(&mut self, trial: usize, ended: &Ended) {
        let Ended { regret, late_regret, changes, reports } = *ended;
        self.trials.push((trial, [regret, late_regret, changes as f64, reports as f64]));
    }

    /// The numbers of one kind, in the order of the trials, whatever order they ended in.
    fn numbers(&self, kind: usize, per: f64) -> Vec<f64> {
        let mut trials = self.trials.clone();
        trials.sort_by_key(|(trial, _)| *trial);
        trials.iter().map(|(_, numbers)| numbers[kind] / per).collect()
    }
}

impl VisitsOutcome {
    pub(super) fn new(
        study: &VisitsStudy,
        kinds: &[(Epsilon, Assignment)],
        sums: &[Summed],
        interrupted: bool,
    ) -> Self {
        let users = study.users as f64;
        let visits = users * study.visits as f64;
        let rows = kinds.iter().zip(sums).filter(|(_, sum)| !sum.trials.is_empty());
        let rows = rows.map(|((epsilon, assignment), sum)| {
            let regret = Summary::of(&sum.numbers(0, visits));
            VisitsRow {
                assignment: assignment.name(),
                epsilon: epsilon.get(),
                trials: sum.trials.len(),
                regret_per_visit: regret.mean,
                regret_ci95: regret.ci95,
                late_regret_per_visit: Summary::of(&sum.numbers(1, visits / 4.0)).mean,
                changes_per_user: Summary::of(&sum.numbers(2, users)).mean,
                epsilon_spent: epsilon.get() * Summary::of(&sum.numbers(3, users)).mean,
            }
        });
        Self {
            instance: study.name.clone(),
            learner: study.learner.name(),
            users: study.users,
            visits: study.visits,
            batch: study.batch,
            seed: study.seed,
            interrupted,
            rows: rows.collect(),
        }
    }

    /// The rows, as a text table.
    pub fn table(&self) -> String {
        let mut table = format!(
            "{:>7}  {:<36}{:>6}  {:>18}  {:>12}  {:>12}  {:>13}\n",
            "epsilon",
            "arms are",
            "trials",
            "regret per visit",
            "last quarter",
            "changes/user",
            "epsilon/user"
        );
        for row in &self.rows {
            let regret = format!("{:.4} +- {:.4}", row.regret_per_visit, row.regret_ci95);
            // Writing to a string does not fail.
            writeln!(
                table,
                "{:>7}  {:<36}{:>6}  {regret:>18}  {:>12.4}  {:>12.2}  {:>13.2}",
                row.epsilon,
                row.assignment,
                row.trials,
                row.late_regret_per_visit,
                row.changes_per_user,
                row.epsilon_spent
            )
            .ok();
        }
        table
    }
}
