//! What operators are told of alarms.

use std::sync::Arc;
use std::time::Duration;

use bandana_shared::wire::v1::{self, Estimates};

use crate::alarms::Alarm;
use crate::clock::Clock;
use crate::estimates::{EstimatesSettings, estimates};
use crate::registry::Experiment;
use crate::store::ExperimentState;
use crate::telemetry::metrics::IngestMetrics;

/// Knows what becomes of uploads, beside what experiments know.
#[derive(Clone, Debug)]
pub(super) struct AlarmWatch {
    uploads: IngestMetrics,
    clock: Arc<dyn Clock>,
}

impl AlarmWatch {
    pub(super) fn new(uploads: IngestMetrics, clock: Arc<dyn Clock>) -> Self {
        Self { uploads, clock }
    }

    /// The alarms of an experiment, and of the server if the experiment runs: whoever looks at
    /// it should know.
    pub(super) fn alarms(&self, experiment: &Experiment) -> Vec<v1::Alarm> {
        let mut alarms = experiment.alarms();
        if experiment.serving().state == ExperimentState::Running {
            alarms.extend(self.uploads.refusals_alarm());
        }
        let now = Duration::from_secs(self.clock.unix_seconds());
        alarms.into_iter().map(|alarm| message(alarm, now)).collect()
    }

    /// Estimates of every arm, with the alarms.
    pub(super) fn estimates(
        &self,
        experiment: &Experiment,
        settings: EstimatesSettings,
    ) -> Estimates {
        let alarms = self.alarms(experiment);
        Estimates { alarms, ..estimates(experiment, settings) }
    }
}

fn message(alarm: Alarm, now: Duration) -> v1::Alarm {
    let Alarm { name, message, age, threshold, seen } = alarm;
    v1::Alarm {
        name: name.name().to_owned(),
        message,
        since_unix_seconds: age.map(|age| now.saturating_sub(age).as_secs()),
        threshold,
        seen,
    }
}
