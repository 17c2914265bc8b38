//! The outcome of a study of decisions, as JSON and as a table.

use std::fmt::Write as _;

use serde::Serialize;

use super::trial::Run;

/// A study's result.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionOutcome {
    /// The privacy loss bound of one report, in nats.
    pub epsilon: f64,
    /// The probability that a verdict is right, at least.
    pub confidence: f64,
    /// Users after whom a run ended without a verdict.
    pub horizon: u64,
    /// The seed of all randomness.
    pub seed: u64,
    /// Whether the study was interrupted before all runs were done.
    pub interrupted: bool,
    /// One row for each instance and learner.
    pub rows: Vec<Row>,
}

/// The runs of a learner on an instance.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the instance.
    pub instance: String,
    /// Name of the learner.
    pub learner: String,
    /// Number of finished runs.
    pub runs: usize,
    /// Number of them with a verdict by the horizon.
    pub verdicts: usize,
    /// Number of wrong verdicts.
    pub wrong: usize,
    /// Users until the verdict in half of all runs; none if fewer have one.
    pub median_users: Option<u64>,
    /// Users until the verdict in 90% of all runs; none if fewer have one.
    pub p90_users: Option<u64>,
    /// Users until each verdict, ascending.
    pub verdict_users: Vec<u64>,
    /// Mean pseudo-regret until the verdict, or the horizon.
    pub mean_regret: f64,
    /// Half the width of its normal 95% interval.
    pub ci95: f64,
}

impl Row {
    /// Sums up runs, at least one. `is_best` says of an arm whether a verdict for it is right.
    pub fn of(
        (instance, learner): (&str, &str),
        runs: &[Run],
        is_best: impl Fn(usize) -> bool,
    ) -> Self {
        let verdicts = runs.iter().filter_map(|run| run.verdict);
        let mut users: Vec<u64> =
            runs.iter().filter(|run| run.verdict.is_some()).map(|run| run.users).collect();
        users.sort_unstable();
        // The least number by which this share, in tenths, of all runs has a verdict.
        let by = |tenths: usize| users.get((runs.len() * tenths).div_ceil(10).max(1) - 1).copied();
        let count = runs.len() as f64;
        let mean = runs.iter().map(|run| run.regret).sum::<f64>() / count;
        let squares: f64 = runs.iter().map(|run| (run.regret - mean).powi(2)).sum();
        Self {
            instance: instance.to_owned(),
            learner: learner.to_owned(),
            runs: runs.len(),
            verdicts: users.len(),
            wrong: verdicts.filter(|arm| !is_best(*arm)).count(),
            median_users: by(5),
            p90_users: by(9),
            verdict_users: users,
            mean_regret: mean,
            ci95: 1.959_964 * (squares / (count - 1.0).max(1.0) / count).sqrt(),
        }
    }
}

impl DecisionOutcome {
    /// The table for people.
    pub fn table(&self) -> String {
        let mut table = format!(
            "epsilon {}, confidence {}, {} users at most\n\
             {:14}{:14}{:>6}{:>10}{:>7}{:>10}{:>10}{:>18}\n",
            self.epsilon,
            self.confidence,
            self.horizon,
            "instance",
            "learner",
            "runs",
            "verdicts",
            "wrong",
            "median",
            "90%",
            "regret"
        );
        for row in &self.rows {
            let users =
                |users: Option<u64>| users.map_or("-".to_owned(), |users| users.to_string());
            let regret = format!("{:.0} ± {:.0}", row.mean_regret, row.ci95);
            // Writing to a string does not fail.
            writeln!(
                table,
                "{:14}{:14}{:>6}{:>10}{:>7}{:>10}{:>10}{:>18}",
                row.instance,
                row.learner,
                row.runs,
                row.verdicts,
                row.wrong,
                users(row.median_users),
                users(row.p90_users),
                regret
            )
            .ok();
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_all_runs_whether_they_have_a_verdict_or_not() {
        let run = |users, verdict| Run { verdict, users, regret: 2.0 };
        let mut runs: Vec<Run> = (1..=9).map(|users| run(users, Some(1))).collect();
        runs.push(run(100, None));
        let row = Row::of(("", ""), &runs, |arm| arm == 1);
        assert_eq!((row.verdicts, row.wrong), (9, 0));
        assert_eq!((row.median_users, row.p90_users), (Some(5), Some(9)));
        runs[0] = run(1, None);
        runs[1] = run(2, Some(0));
        let row = Row::of(("", ""), &runs, |arm| arm == 1);
        assert_eq!((row.verdicts, row.wrong), (8, 1));
        assert_eq!((row.median_users, row.p90_users), (Some(6), None));
    }
}
