//! The outcome of a study of private contexts, as JSON and as a table.

use std::fmt::Write as _;

use bandana_lab::outcome::Summary;
use bandana_shared::epsilon::Epsilon;
use serde::Serialize;

use super::trial::Regrets;
use super::{ContextStudy, ContextualArms};

/// A study's result.
#[derive(Clone, Debug, Serialize)]
pub struct ContextOutcome {
    /// Number of users.
    pub users: usize,
    /// The share of the assignments that explore.
    pub exploration: f64,
    /// The seed of all randomness.
    pub seed: u64,
    /// Whether the study was interrupted before all trials were done.
    pub interrupted: bool,
    /// One row for each instance and ε.
    pub rows: Vec<ContextRow>,
}

/// One instance and ε, over all trials.
#[derive(Clone, Debug, Serialize)]
pub struct ContextRow {
    /// The arms.
    pub instance: &'static str,
    /// Number of features.
    pub features: usize,
    /// Privacy loss bound of one report, in nats.
    pub epsilon: f64,
    /// Number of finished trials.
    pub trials: usize,
    /// What contexts are worth: the mean pseudo-regret of a user with the best arm for everybody.
    pub worth: f64,
    /// The mean pseudo-regret of a user with private contexts.
    pub regret: f64,
    /// Half the width of its normal 95% interval.
    pub regret_ci95: f64,
    /// The share of the worth that was recovered over all users: 1 less regret over worth. Without
    /// worth, the regret below 0, in rewards.
    pub recovered: f64,
    /// The same for users who don't explore, with the last policy.
    pub last_policy: f64,
}

impl ContextOutcome {
    /// The rows of all kinds with a finished trial. `results` has the number and the regrets of each
    /// trial of a kind.
    pub(super) fn new(
        study: &ContextStudy,
        kinds: &[(&ContextualArms, Epsilon)],
        results: Vec<Vec<(usize, Regrets)>>,
        interrupted: bool,
    ) -> Self {
        let rows = kinds.iter().zip(results).filter(|(_, trials)| !trials.is_empty());
        let rows = rows.map(|((arms, epsilon), mut trials)| {
            trials.sort_by_key(|(trial, _)| *trial);
            let of = |part: fn(&Regrets) -> f64| {
                Summary::of(&trials.iter().map(|(_, one)| part(one)).collect::<Vec<f64>>())
            };
            let worth = of(|one| one.best_arm).mean;
            let share = |regret: f64| if worth > 0.0 { 1.0 - regret / worth } else { -regret };
            let regret = of(|one| one.contexts);
            ContextRow {
                instance: arms.name,
                features: arms.features,
                epsilon: epsilon.get(),
                trials: trials.len(),
                worth,
                regret: regret.mean,
                regret_ci95: regret.ci95,
                recovered: share(regret.mean),
                last_policy: share(of(|one| one.last_policy).mean),
            }
        });
        Self {
            users: study.users,
            exploration: study.exploration.share(),
            seed: study.seed,
            interrupted,
            rows: rows.collect(),
        }
    }

    /// The rows, as a text table.
    pub fn table(&self) -> String {
        let mut table = format!(
            "{:<28}{:>8}{:>8}{:>7}{:>9}{:>20}{:>11}{:>13}\n",
            "arms",
            "features",
            "epsilon",
            "trials",
            "worth",
            "regret per user",
            "recovered",
            "last policy"
        );
        for row in &self.rows {
            let regret = format!("{:.5} +- {:.5}", row.regret, row.regret_ci95);
            let share = |share: f64| {
                if row.worth > 0.0 {
                    format!("{:.0}%", 100.0 * share)
                } else {
                    format!("{share:.5}")
                }
            };
            // Writing to a string does not fail.
            writeln!(
                table,
                "{:<28}{:>8}{:>8}{:>7}{:>9.5}{regret:>20}{:>11}{:>13}",
                row.instance,
                row.features,
                row.epsilon,
                row.trials,
                row.worth,
                share(row.recovered),
                share(row.last_policy)
            )
            .ok();
        }
        table
    }
}
