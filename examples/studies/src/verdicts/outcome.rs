//! The outcome of a study of verdicts, as JSON and as a table.

use std::fmt::Write as _;

use serde::Serialize;

use super::picture;
use super::table::UsersRow;
use super::trial::VerdictRun;
use crate::picture::PictureFile;
use crate::program::Outcome;

/// A study's result.
#[derive(Clone, Debug, Serialize)]
pub struct VerdictOutcome {
    /// The seed of all randomness.
    pub seed: u64,
    /// Whether the study was interrupted before all runs were done.
    pub interrupted: bool,
    /// One row for each instance.
    pub rows: Vec<VerdictRow>,
    /// One row for each setting with even traffic.
    pub table: Vec<UsersRow>,
}

/// The runs of an instance.
#[derive(Clone, Debug, Serialize)]
pub struct VerdictRow {
    /// Name of the instance.
    pub instance: String,
    /// Number of finished runs.
    pub runs: usize,
    /// Number of them that ever had a verdict, and of those that ever had a wrong one.
    pub verdicts: usize,
    /// Runs that ever had a wrong verdict.
    pub wrong: usize,
    /// Runs that ever had a wrong verdict by sums over all users.
    pub wrong_pooled: usize,
    /// Runs in which the interval of a lift ever missed.
    pub missed: usize,
    /// Runs that ever found harm; there is none.
    pub harm: usize,
    /// Users until the first verdict in half of the runs; none if fewer have one.
    pub median_users: Option<u64>,
}

impl VerdictRow {
    pub(super) fn of(instance: &str, runs: &[VerdictRun]) -> Self {
        let count = |of: fn(&VerdictRun) -> bool| runs.iter().filter(|run| of(run)).count();
        let mut users: Vec<u64> = runs.iter().filter_map(|run| run.users).collect();
        users.sort_unstable();
        Self {
            instance: instance.to_owned(),
            runs: runs.len(),
            verdicts: users.len(),
            wrong: count(|run| run.is_wrong),
            wrong_pooled: count(|run| run.is_wrong_pooled),
            missed: count(|run| run.has_missed),
            harm: count(|run| run.has_harm),
            median_users: users.get(runs.len() / 2).copied(),
        }
    }
}

impl Outcome for VerdictOutcome {
    fn is_empty(&self) -> bool {
        self.rows.iter().all(|row| row.runs == 0)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    fn table(&self) -> String {
        let users = |users: Option<u64>| users.map_or("-".to_owned(), |users| users.to_string());
        let mut table = format!(
            "{:22}{:>6}{:>10}{:>7}{:>15}{:>14}{:>6}{:>10}\n",
            "instance",
            "runs",
            "verdicts",
            "wrong",
            "wrong by sums",
            "lifts missed",
            "harm",
            "median"
        );
        for row in &self.rows {
            // Writing to a string does not fail.
            writeln!(
                table,
                "{:22}{:>6}{:>10}{:>7}{:>15}{:>14}{:>6}{:>10}",
                row.instance,
                row.runs,
                row.verdicts,
                row.wrong,
                row.wrong_pooled,
                row.missed,
                row.harm,
                users(row.median_users)
            )
            .ok();
        }
        writeln!(
            table,
            "\n{:22}{:>8}{:>10}{:>10}{:>6}{:>7}",
            "means", "epsilon", "before", "median", "runs", "wrong"
        )
        .ok();
        for row in &self.table {
            let means: Vec<String> = row.means.iter().map(f64::to_string).collect();
            writeln!(
                table,
                "{:22}{:>8}{:>10}{:>10}{:>6}{:>7}",
                means.join(" "),
                row.epsilon,
                row.before,
                users(row.median_users),
                row.runs,
                row.wrong
            )
            .ok();
        }
        table
    }

    fn draw(&self, file: &PictureFile) -> anyhow::Result<()> {
        picture::draw(file)
    }
}
