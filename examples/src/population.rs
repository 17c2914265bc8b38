//! The population of simulated users: their visits, segments and metrics.

use bandana_client::Acceptance;
use bandana_shared::cells::{CellsError, Measurement, Metric, Segmentation, Segmentations};
use bandana_shared::participation::{Millionths, Participation, Sticky};
use bandana_shared::rewards::Rewards;

/// The name of the property that divides users.
const SEGMENTATION: &str = "group";

/// Visits, segments and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Population {
    /// The number of times that each user is shown an arm. From 2 on, users keep their arms, and
    /// report once.
    pub visits: u32,
    /// The number of segments. Users of each like other arms best. 0 and 1: all like the same.
    pub segments: u16,
    /// The number of metrics beside the rewards, which share half of the reports.
    pub metrics: u16,
}

impl Population {
    /// One visit of users who are all alike, and nothing but rewards.
    pub const PLAIN: Self = Self { visits: 1, segments: 0, metrics: 0 };

    /// What an experiment for these users measures.
    ///
    /// # Errors
    /// [`CellsError`] for too many segments or metrics.
    pub fn measurement(self) -> Result<Measurement, CellsError> {
        let values = (1..=self.segments).map(|number| number.to_string());
        let segmentation = (self.segments > 1).then(|| Segmentation::new(SEGMENTATION, values));
        let share = Millionths::from_share(0.5 / f64::from(self.metrics.max(1)));
        let share = share.unwrap_or(Millionths::NONE);
        let metric = |number| Metric::new(metric_name(number), Rewards::binary(), share);
        let metrics = (1..=self.metrics).map(metric).collect::<Result<_, _>>()?;
        let segmentations = segmentation.transpose()?.map_or(Segmentations::NONE, Into::into);
        Ok(Measurement { segmentations, metrics, ..Measurement::REWARDS_ONLY })
    }

    /// Who takes part in an experiment for these users.
    pub fn participation(self) -> Participation {
        let sticky = (self.visits > 1).then_some(Sticky::DEFAULT);
        Participation { sticky, ..Participation::EVERYONE }
    }

    /// The segment of a user; 0 without segments.
    pub fn segment(self, user: u64) -> usize {
        usize::try_from(user % u64::from(self.segments.max(1))).unwrap_or(0)
    }

    /// The terms of a user.
    pub fn terms(self, acceptance: Acceptance, user: u64) -> Acceptance {
        let value = (self.segment(user) + 1).to_string();
        let acceptance = (1..=self.metrics).fold(acceptance, |acceptance, number| {
            acceptance.metric(metric_name(number), Rewards::binary())
        });
        acceptance.segment(SEGMENTATION, value)
    }

    /// The arm whose rewards a user gives to `arm`: those of the next segment are turned on by as many
    /// arms as there are for each segment.
    pub fn taste(self, segment: usize, arm: usize, arms: usize) -> usize {
        (arm + segment * arms / usize::from(self.segments.max(1))) % arms
    }

    /// The mean of every metric for an arm: the larger the later the arm comes.
    pub fn metric_mean(arm: usize, arms: usize) -> f64 {
        (arm as f64 + 1.0) / (arms as f64 + 1.0)
    }

    /// The names of the metrics.
    pub fn metric_names(self) -> impl Iterator<Item = String> {
        (1..=self.metrics).map(metric_name)
    }
}

fn metric_name(number: u16) -> String {
    format!("metric-{number}")
}
