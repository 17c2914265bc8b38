//! Metrics of experiments, computed on request.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bandana_edge::clock::Clock;
use bandana_shared::identity::ExperimentId;
use bandana_store::ExperimentState;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::alarms::AlarmName;
use crate::ingest::Ingest;
use crate::ingest::IngestMetrics;
use crate::readiness::Readiness;
use crate::registry::{Experiment, Registry};

const GAUGE: MetricType = MetricType::Gauge;
const COUNTER: MetricType = MetricType::Counter;

/// The sources of metrics that exist once the store has been read.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) registry: Arc<Registry>,
    pub(super) ingest: Ingest,
    pub(super) readiness: Readiness,
}

/// Collects metrics of the experiments, of the queue, and of ages.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) opened: Arc<OnceLock<Opened>>,
    pub(super) ingest: IngestMetrics,
    pub(super) clock: Arc<dyn Clock>,
}

/// The state of one experiment at one moment.
struct Snapshot {
    id: ExperimentId,
    reports: u64,
    policy_age: f64,
    entropy: f64,
    arms_in_play: u32,
    alarms: Vec<AlarmName>,
}

impl Current {
    fn snapshots(&self) -> Vec<Snapshot> {
        let now = self.clock.monotonic();
        let experiments = self.opened.get().map(|opened| opened.registry.all());
        let snapshot = |experiment: Arc<Experiment>| {
            let serving = experiment.serving();
            let active = serving.specification.active_arms();
            let in_play = active.into_iter().filter(|active| *active).count();
            Snapshot {
                id: experiment.id().clone(),
                reports: experiment.tallies().iter().map(|tally| tally.reports()).sum(),
                policy_age: now.saturating_sub(serving.policy_since).as_secs_f64(),
                entropy: serving.policy.weights.entropy(),
                arms_in_play: u32::try_from(in_play).unwrap_or(u32::MAX),
                alarms: experiment.alarms().into_iter().map(|alarm| alarm.name).collect(),
            }
        };
        let runs = |experiment: &Arc<Experiment>| !has_ended(experiment.serving().state);
        experiments.unwrap_or_default().into_iter().filter(runs).map(snapshot).collect()
    }

    /// The number of experiments in each state.
    fn counts(&self) -> [(ExperimentState, u64); ExperimentState::ALL.len()] {
        let experiments = self.opened.get().map(|opened| opened.registry.all());
        let states = experiments.unwrap_or_default().into_iter().map(|e| e.serving().state);
        let states: Vec<_> = states.collect();
        ExperimentState::ALL.map(|state| {
            let count = states.iter().filter(|other| **other == state).count();
            (state, u64::try_from(count).unwrap_or(u64::MAX))
        })
    }
}

/// Whether an experiment has ended. Ended experiments are counted but not shown one by one, since
/// their number grows without bound.
fn has_ended(state: ExperimentState) -> bool {
    state == ExperimentState::Stopped
}

/// A metric's name, its help text, and the function of its value.
type OfExperiment = (&'static str, &'static str, fn(&Snapshot) -> f64);

/// The gauges shown for each experiment.
const GAUGES: [OfExperiment; 4] = [
    (
        "experiment_policy_age_seconds",
        "Time since the current policy was computed: devices can't have a newer one",
        |snapshot| snapshot.policy_age,
    ),
    (
        "experiment_policy_entropy_nats",
        "Entropy of the weights of the policy: 0 when one arm gets all traffic",
        |snapshot| snapshot.entropy,
    ),
    (
        "experiment_policy_entropy_max_nats",
        "Entropy if all arms in play got the same traffic",
        |snapshot| f64::from(snapshot.arms_in_play).ln(),
    ),
    ("experiment_arms_in_play", "Arms that are not retired", |snapshot| {
        f64::from(snapshot.arms_in_play)
    }),
];

impl Collector for Current {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let opened = self.opened.get();
        gauge(&mut encoder, "ready", "1 when the store is open and calls are taken", || {
            f64::from(u8::from(opened.is_some_and(|opened| opened.readiness.is_ready())))
        })?;
        let (length, capacity) = opened.map_or((0, 0), |opened| opened.ingest.queue());
        let help = "Uploads and changes that wait for the writer";
        gauge(&mut encoder, "queue_length", help, || length as f64)?;
        let help = "Uploads and changes that may wait for the writer";
        gauge(&mut encoder, "queue_capacity", help, || capacity as f64)?;

        let help = "Time since uploads were last committed; left out before the first time";
        let age = ("last_commit_age", help);
        let mut last = encoder.encode_descriptor(age.0, age.1, Some(&Unit::Seconds), GAUGE)?;
        if let Some(since) = self.ingest.since_last_commit() {
            last.encode_gauge(&since.as_secs_f64())?;
        }
        self.cells(&mut encoder)?;
        let snapshots = self.snapshots();
        states(&mut encoder, self.counts())?;
        let help = "Committed reports, all arms and revisions";
        let mut reports = encoder.encode_descriptor("experiment_reports", help, None, COUNTER)?;
        for snapshot in &snapshots {
            let labels = [("experiment", snapshot.id.as_str())];
            ConstCounter::new(snapshot.reports).encode(reports.encode_family(&labels)?)?;
        }
        for (name, help, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, GAUGE)?;
            for snapshot in &snapshots {
                let labels = [("experiment", snapshot.id.as_str())];
                ConstGauge::new(value(snapshot)).encode(family.encode_family(&labels)?)?;
            }
        }
        self.alarms(&mut encoder, &snapshots)
    }
}

impl Current {
    /// 1 for each store cell that takes uploads, and 0 for the others. The store itself has no number.
    fn cells(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1 when the store cell's database answers, is the right one and listed; no cell: the store itself";
        let mut family = encoder.encode_descriptor("store_cell_ready", help, None, GAUGE)?;
        let mut show = |cell: String, is_ready: bool| {
            family.encode_family(&[("cell", cell)])?.encode_gauge(&u64::from(is_ready))
        };
        let opened = self.opened.get();
        show(String::new(), opened.is_some_and(|opened| opened.readiness.is_ready()))?;
        for (cell, problem) in self.ingest.cells() {
            show(cell.to_string(), problem.is_none())?;
        }
        Ok(())
    }

    /// 1 for each ringing alarm, and 0 for the others. Alarms of the whole server have no
    /// experiment.
    fn alarms(&self, encoder: &mut DescriptorEncoder<'_>, snapshots: &[Snapshot]) -> fmt::Result {
        let help = "1 while an alarm rings; of the server if there is no experiment";
        let mut family = encoder.encode_descriptor("alarm", help, None, GAUGE)?;
        let mut show = |experiment: &str, name: AlarmName, rings: bool| {
            let labels = [("experiment", experiment), ("name", name.name())];
            family.encode_family(&labels)?.encode_gauge(&u64::from(rings))
        };
        for snapshot in snapshots {
            for name in AlarmName::OF_EXPERIMENTS {
                show(snapshot.id.as_str(), name, snapshot.alarms.contains(&name))?;
            }
        }
        show("", AlarmName::RefusalsJump, self.ingest.refusals_alarm().is_some())?;
        show("", AlarmName::IdsFull, self.ingest.ids_alarm().is_some())?;
        show("", AlarmName::StoreCellDown, self.ingest.cells_alarm().is_some())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl FnOnce() -> f64,
) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, GAUGE)?.encode_gauge(&value())
}

fn states(
    encoder: &mut DescriptorEncoder<'_>,
    counts: impl IntoIterator<Item = (ExperimentState, u64)>,
) -> fmt::Result {
    let help = "Experiments by their state";
    let mut family = encoder.encode_descriptor("experiments", help, None, GAUGE)?;
    for (state, count) in counts {
        let labels = [("state", state.name())];
        family.encode_family(&labels)?.encode_gauge(&count)?;
    }
    Ok(())
}
