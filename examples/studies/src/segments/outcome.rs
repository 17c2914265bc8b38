//! The outcome of a study of users in segments, as JSON and as a table.

use std::fmt::Write as _;

use bandana_lab::outcome::Summary;
use serde::Serialize;

use super::{Pooling, SegmentedArms, SegmentsStudy};

/// A study's result.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentsOutcome {
    /// The learner.
    pub learner: String,
    /// Privacy loss bound of one report, in nats.
    pub epsilon: f64,
    /// Number of users.
    pub users: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// Whether the study was interrupted before all trials were done.
    pub interrupted: bool,
    /// One row for each instance and pooling.
    pub rows: Vec<SegmentsRow>,
}

/// One instance and pooling, over all trials.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentsRow {
    /// The arms.
    pub instance: &'static str,
    /// What a segment's arms are weighed by.
    pub pooling: &'static str,
    /// Number of finished trials.
    pub trials: usize,
    /// Mean pseudo-regret of a user.
    pub regret_per_user: f64,
    /// Half the width of its normal 95% interval.
    pub regret_ci95: f64,
}

impl SegmentsOutcome {
    /// The rows of all kinds with a finished trial. `regrets` has the number and the regret of each
    /// trial of a kind.
    pub(super) fn new(
        study: &SegmentsStudy,
        kinds: &[(&SegmentedArms, Pooling)],
        regrets: Vec<Vec<(usize, f64)>>,
        interrupted: bool,
    ) -> Self {
        let rows = kinds.iter().zip(regrets).filter(|(_, trials)| !trials.is_empty());
        let rows = rows.map(|((arms, pooling), mut trials)| {
            trials.sort_by_key(|(trial, _)| *trial);
            let of_users = trials.iter().map(|(_, regret)| regret / study.users as f64);
            let summary = Summary::of(&of_users.collect::<Vec<f64>>());
            SegmentsRow {
                instance: arms.name,
                pooling: pooling.name(),
                trials: trials.len(),
                regret_per_user: summary.mean,
                regret_ci95: summary.ci95,
            }
        });
        Self {
            learner: study.learner.name(),
            epsilon: study.epsilon.get(),
            users: study.users,
            seed: study.seed,
            interrupted,
            rows: rows.collect(),
        }
    }

    /// The rows, as a text table.
    pub fn table(&self) -> String {
        let mut table =
            format!("{:<28}{:<28}{:>6}  {:>20}\n", "arms", "reports", "trials", "regret per user");
        for row in &self.rows {
            let regret = format!("{:.5} +- {:.5}", row.regret_per_user, row.regret_ci95);
            // Writing to a string does not fail.
            writeln!(
                table,
                "{:<28}{:<28}{:>6}  {regret:>20}",
                row.instance, row.pooling, row.trials
            )
            .ok();
        }
        table
    }
}
