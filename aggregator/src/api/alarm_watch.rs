//! Alarms in operators' responses and watches.

use std::sync::Arc;
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_shared::wire::v1;
use bandana_store::ExperimentState;
use futures_util::stream::{self, Stream, StreamExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::estimate_messages::{alarm_message, estimates_message};
use crate::alarms::{Alarm, AlarmName};
use crate::estimates::{EstimatesSettings, estimates};
use crate::ingest::IngestMetrics;
use crate::registry::Experiment;

/// The time between two checks of the alarms for watchers: some alarms ring because nothing
/// arrives.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Evaluates the alarms of experiments, with the server's metrics of uploads.
#[derive(Clone, Debug)]
pub(super) struct AlarmWatch {
    uploads: IngestMetrics,
    clock: Arc<dyn Clock>,
}

impl AlarmWatch {
    pub(super) fn new(uploads: IngestMetrics, clock: Arc<dyn Clock>) -> Self {
        Self { uploads, clock }
    }

    fn ringing(&self, experiment: &Experiment) -> Vec<Alarm> {
        let mut alarms = experiment.alarms();
        if experiment.serving().state == ExperimentState::Running {
            alarms.extend(self.uploads.refusals_alarm());
            alarms.extend(self.uploads.ids_alarm());
            alarms.extend(self.uploads.cells_alarm());
        }
        alarms
    }

    /// The names of the ringing alarms.
    pub(super) fn names(&self, experiment: &Experiment) -> Vec<AlarmName> {
        self.ringing(experiment).into_iter().map(|alarm| alarm.name).collect()
    }

    /// The ringing alarms of an experiment, and those of the server if the experiment runs.
    pub(super) fn alarms(&self, experiment: &Experiment) -> Vec<v1::Alarm> {
        let (alarms, now) = (self.ringing(experiment), self.now());
        alarms.into_iter().map(|alarm| alarm_message(alarm, now)).collect()
    }

    /// Estimates of every arm, with the alarms.
    pub(super) fn estimates(
        &self,
        experiment: &Experiment,
        settings: EstimatesSettings,
    ) -> v1::Estimates {
        let (alarms, now) = (self.ringing(experiment), self.now());
        estimates_message(estimates(experiment, settings, alarms), now)
    }

    /// The time since 1970-01-01 (UTC).
    fn now(&self) -> Duration {
        Duration::from_secs(self.clock.unix_seconds())
    }
}

/// A tick for each check of the alarms.
pub(super) fn ticks() -> impl Stream<Item = ()> + Send {
    let mut interval = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::unfold(interval, async |mut interval| {
        interval.tick().await;
        Some(((), interval))
    })
}

/// A stream with an item for every new version, and for every tick at which other alarms ring than
/// before.
pub(super) fn news(
    versions: impl Stream<Item = u64> + Send,
    ticks: impl Stream<Item = ()> + Send,
    names: impl Fn() -> Vec<AlarmName> + Send,
) -> impl Stream<Item = ()> + Send {
    let versions = versions.map(|_| true);
    let events = stream::select(versions, ticks.map(|()| false));
    events
        .scan(Vec::new(), move |told, is_version| {
            let names = names();
            let is_news = is_version || names != *told;
            *told = names;
            std::future::ready(Some(is_news))
        })
        .filter_map(|is_news| std::future::ready(is_news.then_some(())))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use super::*;

    #[test]
    fn an_alarm_is_told_without_a_new_policy_and_once() {
        let (policies, versions) = mpsc::unbounded_channel();
        let (clock, ticks) = mpsc::unbounded_channel();
        let rung = Mutex::new(Vec::new());
        let mut news = Box::pin(news(
            UnboundedReceiverStream::new(versions),
            UnboundedReceiverStream::new(ticks),
            || rung.lock().unwrap().clone(),
        ));
        policies.send(1).unwrap();
        assert_eq!(news.next().now_or_never(), Some(Some(())));
        clock.send(()).unwrap();
        assert_eq!(news.next().now_or_never(), None);
        rung.lock().unwrap().push(AlarmName::StalledReporting);
        clock.send(()).unwrap();
        assert_eq!(news.next().now_or_never(), Some(Some(())));
        clock.send(()).unwrap();
        assert_eq!(news.next().now_or_never(), None);
        rung.lock().unwrap().clear();
        clock.send(()).unwrap();
        assert_eq!(news.next().now_or_never(), Some(Some(())));
    }
}
