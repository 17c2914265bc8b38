//! The outcome of a study, as JSON and as a table.

use std::fmt::Write as _;

use serde::Serialize;

/// A study's result.
#[derive(Clone, Debug, Serialize)]
pub struct CuratorOutcome {
    /// The seed of all randomness.
    pub seed: u64,
    /// β of AdaC-UCB.
    pub beta: f64,
    /// Whether the study was interrupted before all trials were done.
    pub interrupted: bool,
    /// One row for each algorithm, ρ and checkpoint.
    pub rows: Vec<Row>,
}

/// The regret of an algorithm after a number of rounds, in the true means.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the algorithm.
    pub algorithm: String,
    /// The zCDP parameter ρ of each reward.
    pub rho: f64,
    /// Number of rounds.
    pub horizon: u64,
    /// Number of finished pairs of trials, with and without privacy.
    pub trials: usize,
    /// Mean regret over the trials.
    pub mean_regret: f64,
    /// Half the width of the normal 95% interval of the mean.
    pub ci95: f64,
    /// Mean regret over the same trials without noise.
    pub nonprivate_regret: f64,
    /// The difference of the two means.
    pub price_of_privacy: f64,
    /// Half the width of its 95% interval, over pairs of trials.
    pub price_ci95: f64,
    /// Mean regret over that of the study's first algorithm of the same setting (arms, fixed
    /// actions or contexts), at this ρ and horizon.
    pub ratio: Option<f64>,
    /// Half the width of its 95% interval, over pairs of trials.
    pub ratio_ci95: Option<f64>,
}

impl CuratorOutcome {
    /// The rows at the horizon, as a text table.
    pub fn table(&self) -> String {
        let mut table = format!(
            "{:<22}{:>7}{:>7}  {:>19}  {:>11}  {:>19}  {:>15}\n",
            "algorithm", "rho", "trials", "regret", "no privacy", "price of privacy", "ratio"
        );
        let horizon = self.rows.iter().map(|row| row.horizon).max();
        for row in self.rows.iter().filter(|row| Some(row.horizon) == horizon) {
            let regret = format!("{:.1} +- {:.1}", row.mean_regret, row.ci95);
            let price = format!("{:.1} +- {:.1}", row.price_of_privacy, row.price_ci95);
            let ratio = match (row.ratio, row.ratio_ci95) {
                (Some(ratio), Some(half)) => format!("{ratio:.3} +- {half:.3}"),
                _ => "-".to_owned(),
            };
            // Writing to a string does not fail.
            writeln!(
                table,
                "{:<22}{:>7}{:>7}  {regret:>19}  {:>11.1}  {price:>19}  {ratio:>15}",
                row.algorithm, row.rho, row.trials, row.nonprivate_regret
            )
            .ok();
        }
        table
    }
}
