//! Views of the released statistics of a trusted experiment, as text and as JSON.

use bandana_shared::wire::v1::{ReleasedMean, ReleasedStatistics};
use serde::Serialize;

use super::columns::{Cells, Column};
use super::table::{Side, Table};
use super::trusted_view::TrustedView;

/// Help text on the fields.
pub(crate) const FIELDS: &str = "\
Fields with --json:
  experiment_id, state, algorithm, rho
  rewards: those that count, released or not
  releases
  means: of each arm or action
    arm: its number
    mean: null if nothing of it was released, or if it was eliminated before
    rewards: those behind the mean
    noise_deviation: the standard deviation of the noise in the mean. This and rewards are null for
      adac-gope, whose means come from one estimate
  parameter: of adac-oful, else null
All of this is released, with noise. Nobody can get the rewards themselves.
Later versions may add fields. No field changes its meaning.";

/// Stable JSON form of released statistics.
#[derive(Debug, Serialize)]
pub(crate) struct ReleasedView {
    experiment_id: String,
    state: &'static str,
    algorithm: &'static str,
    rho: f64,
    rewards: u64,
    releases: u64,
    means: Vec<MeanView>,
    parameter: Option<Vec<f64>>,
    #[serde(skip)]
    protection: String,
    /// The actions whose means are listed, where these are public.
    #[serde(skip)]
    actions: Vec<Vec<f64>>,
}

#[derive(Debug, Serialize)]
struct MeanView {
    arm: usize,
    mean: Option<f64>,
    rewards: Option<u64>,
    noise_deviation: Option<f64>,
}

impl ReleasedView {
    /// The view of an experiment's released statistics.
    pub(crate) fn new(experiment: &TrustedView, released: ReleasedStatistics) -> Self {
        // The means of actions come from one estimate, so their counts and noise are unknown.
        let is_estimate = experiment.actions.is_some();
        let mean = |(arm, shown): (usize, ReleasedMean)| MeanView {
            arm,
            mean: shown.mean,
            rewards: (!is_estimate).then_some(shown.rewards),
            noise_deviation: shown.mean.filter(|_| !is_estimate).map(|_| shown.noise_deviation),
        };
        Self {
            experiment_id: experiment.experiment_id.clone(),
            state: experiment.state,
            algorithm: experiment.algorithm,
            rho: experiment.rho,
            rewards: released.rewards,
            releases: experiment.releases,
            means: released.means.into_iter().enumerate().map(mean).collect(),
            parameter: released.parameter.map(|parameter| parameter.coordinates),
            protection: experiment.protection(),
            actions: experiment.actions.clone().unwrap_or_default(),
        }
    }

    /// The table of statistics, preceded by the privacy guarantee.
    pub(crate) fn describe(&self, columns: Option<usize>) -> String {
        let head = format!(
            "{} is {}: {}, {} rewards, {} releases\nprotected: {}\nshown: released statistics, \
             with noise; later rewards are in none of them\n\n",
            self.experiment_id,
            self.state,
            self.algorithm,
            self.rewards,
            self.releases,
            self.protection,
        );
        head + &match &self.parameter {
            Some(parameter) => parameter_table(parameter, columns),
            None => self.means_table(columns),
        }
    }

    fn means_table(&self, columns: Option<usize>) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let mut table = Table::new([
            ("arm", Side::Right),
            ("mean", Side::Right),
            ("rewards", Side::Right),
            ("noise deviation", Side::Right),
        ]);
        for mean in &self.means {
            table.push([
                mean.arm.to_string(),
                or_dash(mean.mean.map(number)),
                or_dash(mean.rewards.map(|rewards| rewards.to_string())),
                or_dash(mean.noise_deviation.map(number)),
            ]);
        }
        table.render(columns)
    }

    /// One record per arm, action or coordinate, in full precision.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let records = self.parameter.as_ref().map_or(self.means.len(), Vec::len);
        let column = |name: &str, cells| Column { name: name.to_owned(), cells };
        let repeated = |text: &str| Cells::Text(vec![text.to_owned(); records]);
        let places = Cells::Places((0..).take(records).collect());
        let mut columns = vec![
            column("experiment_id", repeated(&self.experiment_id)),
            column("algorithm", repeated(self.algorithm)),
            column("rho", Cells::Numbers(vec![self.rho; records])),
            column("rewards_in_all", Cells::Counts(vec![self.rewards; records])),
            column("releases", Cells::Counts(vec![self.releases; records])),
        ];
        if let Some(parameter) = &self.parameter {
            columns.push(column("coordinate", places));
            columns.push(column("parameter", Cells::Numbers(parameter.clone())));
            return columns;
        }
        columns.push(column("arm", places));
        let means = self.means.iter().map(|mean| mean.mean).collect();
        columns.push(column("mean", Cells::Estimates(means)));
        let dimension = self.actions.iter().map(Vec::len).min().unwrap_or(0);
        if dimension > 0 {
            columns.extend((0..dimension).map(|coordinate| {
                let cells = self.actions.iter().map(|action| action[coordinate]).collect();
                column(&format!("coordinate_{coordinate}"), Cells::Numbers(cells))
            }));
        } else {
            let rewards = self.means.iter().map(|mean| mean.rewards.unwrap_or(0)).collect();
            let noise = self.means.iter().map(|mean| mean.noise_deviation).collect();
            columns.push(column("rewards", Cells::Counts(rewards)));
            columns.push(column("noise_deviation", Cells::Estimates(noise)));
        }
        columns
    }
}

fn parameter_table(parameter: &[f64], columns: Option<usize>) -> String {
    let mut table = Table::new([("coordinate", Side::Right), ("parameter", Side::Right)]);
    for (place, value) in parameter.iter().enumerate() {
        table.push([place.to_string(), number(*value)]);
    }
    table.render(columns)
}

fn number(value: f64) -> String {
    format!("{value:.4}")
}
