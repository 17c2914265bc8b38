//! Views of segments and metrics, and of the estimates in them.

use bandana_shared::cells::{Limit, Measurement, Metric, Segmentation};
use bandana_shared::rewards::{RewardKind, Rewards};
use bandana_shared::wire::v1;
use serde::Serialize;

use super::arm_estimate_view::{ArmEstimateView, number};
use super::lead_view::LeadView;
use super::table::{Side, Table, visible};

/// Stable JSON form of a segmentation.
#[derive(Debug, Serialize)]
pub(super) struct SegmentationView {
    name: String,
    values: Vec<String>,
}

/// Stable JSON form of a metric beside the rewards.
#[derive(Debug, Serialize)]
pub(super) struct MetricView {
    name: String,
    kind: &'static str,
    low: f64,
    high: f64,
    share: f64,
    at_most: Option<f64>,
    at_least: Option<f64>,
}

impl MetricView {
    fn new(metric: &Metric) -> Self {
        let (range, limit) = (metric.values().range(), metric.limit());
        Self {
            name: metric.name().to_owned(),
            kind: kind(metric.values()),
            low: range.low(),
            high: range.high(),
            share: metric.share().share(),
            at_most: limit.and_then(|limit| match limit {
                Limit::AtMost(mean) => Some(mean),
                Limit::AtLeast(_) => None,
            }),
            at_least: limit.and_then(|limit| match limit {
                Limit::AtMost(_) => None,
                Limit::AtLeast(mean) => Some(mean),
            }),
        }
    }

    fn describe(&self) -> String {
        let Self { name, kind, low, high, share, .. } = self;
        let limit = limit(self.at_most, self.at_least);
        format!("{name}, {kind}, {low} to {high}, of a share of {share} of the assignments{limit}")
    }
}

/// The name of the kind of rewards.
pub(super) fn kind(rewards: Rewards) -> &'static str {
    match rewards.kind() {
        RewardKind::Binary => "binary",
        RewardKind::Bounded => "bounded",
        RewardKind::Categorical => "categorical",
    }
}

/// A limit in words, to follow others; empty without one.
fn limit(at_most: Option<f64>, at_least: Option<f64>) -> String {
    match (at_most, at_least) {
        (Some(mean), _) => format!(", at most {mean}"),
        (_, Some(mean)) => format!(", at least {mean}"),
        _ => String::new(),
    }
}

/// The segments and metrics of an experiment.
pub(super) fn of(measurement: &Measurement) -> (Vec<SegmentationView>, Vec<MetricView>) {
    let view = |one: &Segmentation| SegmentationView {
        name: one.name().to_owned(),
        values: one.values().to_vec(),
    };
    let segmentations = measurement.segmentations.all().iter().map(view).collect();
    (segmentations, measurement.metrics.iter().map(MetricView::new).collect())
}

/// Rows for the table of an experiment's properties.
pub(super) fn rows(
    segmentations: &[SegmentationView],
    metrics: &[MetricView],
) -> Vec<(&'static str, String)> {
    let segments = segmentations.iter().map(|one| {
        let values: Vec<String> = one.values.iter().map(|value| visible(value)).collect();
        ("segments", format!("by {}: {}", one.name, values.join(", ")))
    });
    let metrics = metrics.iter().map(|metric| ("metric", metric.describe()));
    segments.chain(metrics).collect()
}

/// Stable JSON form of the rewards of the installations with one value of a segmentation.
#[derive(Debug, Serialize)]
pub(super) struct SegmentView {
    segmentation: String,
    value: String,
    /// The value, with several segmentations as `platform=ios`.
    #[serde(skip)]
    title: String,
    best_arm: Option<u32>,
    lead: Option<LeadView>,
    arms: Vec<ArmEstimateView>,
}

/// Stable JSON form of the estimates of a metric.
#[derive(Debug, Serialize)]
pub(super) struct MetricEstimatesView {
    name: String,
    share: f64,
    low: f64,
    high: f64,
    at_most: Option<f64>,
    at_least: Option<f64>,
    arms: Vec<ArmEstimateView>,
    harmful_arms: Vec<u32>,
}

impl SegmentView {
    /// The views of these segments.
    pub(super) fn all(shown: Vec<v1::SegmentEstimates>) -> Vec<Self> {
        let first = shown.first().map(|one| one.segmentation.clone()).unwrap_or_default();
        let is_one = shown.iter().all(|one| one.segmentation == first);
        let view = |shown: v1::SegmentEstimates| {
            let v1::SegmentEstimates { value, arms, segmentation, best_arm, lead } = shown;
            let title =
                if is_one { value.clone() } else { [&*segmentation, "=", &*value].concat() };
            let arms = arms.into_iter().map(Into::into).collect();
            let lead = lead.map(Into::into);
            Self { segmentation, value, title, best_arm, lead, arms }
        };
        shown.into_iter().map(view).collect()
    }

    /// The value, as it is told from others, and the arms.
    pub(super) fn arms(&self) -> (&str, &[ArmEstimateView]) {
        (&self.title, &self.arms)
    }
}

impl MetricEstimatesView {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The arms, each with whether it does harm.
    pub(super) fn arms(&self) -> impl Iterator<Item = (&ArmEstimateView, bool)> {
        self.arms.iter().map(|arm| (arm, self.harmful_arms.contains(&arm.arm)))
    }
}

impl From<v1::MetricEstimates> for MetricEstimatesView {
    fn from(shown: v1::MetricEstimates) -> Self {
        let v1::MetricEstimates { name, share, low, high, at_most, at_least, .. } = shown;
        let arms = shown.arms.into_iter().map(Into::into).collect();
        let harmful_arms = shown.harmful_arms;
        Self { name, share, low, high, at_most, at_least, arms, harmful_arms }
    }
}

/// Tables of the metrics and of the rewards in each segment; empty without any.
pub(super) fn describe(
    metrics: &[MetricEstimatesView],
    segments: &[SegmentView],
    columns: Option<usize>,
) -> String {
    let mut text = String::new();
    for metric in metrics {
        let limit = limit(metric.at_most, metric.at_least);
        let harms = |arm: &ArmEstimateView| metric.harmful_arms.contains(&arm.arm);
        let note = |arm: &ArmEstimateView| match (harms(arm), arm.weight > 0.0) {
            (true, false) => "does harm, no traffic",
            (true, true) => "does harm, and so do all in play",
            (false, _) => "",
        };
        text.extend(["\nmetric ", &metric.name, &limit, "\n\n"]);
        text += &table(&metric.arms, false, note).render(columns);
    }
    for segment in segments {
        text.extend(["\nsegment ", &visible(&segment.title), "\n\n"]);
        text += &table(&segment.arms, true, |_| "").render(columns);
        let best = segment.best_arm.and_then(|best| segment.arms.iter().find(|a| a.arm == best));
        if let Some(arm) = best {
            let number = arm.arm.to_string();
            text.extend(["best here: ", &*number, " (", &*visible(&arm.label), ")\n"]);
        }
    }
    text
}

fn table(
    arms: &[ArmEstimateView],
    with_traffic: bool,
    note: impl Fn(&ArmEstimateView) -> &'static str,
) -> Table<7> {
    let last = if with_traffic { "traffic" } else { "" };
    let mut table = Table::new([
        ("arm", Side::Right),
        ("label", Side::Left),
        ("reports", Side::Right),
        ("estimate", Side::Right),
        ("low", Side::Right),
        ("high", Side::Right),
        (last, Side::Left),
    ]);
    for arm in arms {
        let [estimate, low, high] = arm.numbers();
        table.push([
            arm.arm.to_string(),
            visible(&arm.label),
            arm.reports.to_string(),
            estimate,
            low,
            high,
            if with_traffic { format!("{:.1}%", 100.0 * arm.weight) } else { note(arm).to_owned() },
        ]);
    }
    table
}

/// Sentences about the arms that do harm; empty if none does.
pub(super) fn harm(estimates: &v1::Estimates) -> String {
    let of_metric = |metric: &v1::MetricEstimates| {
        let limit = limit(metric.at_most, metric.at_least);
        let harms = |arm: &&v1::ArmEstimate| !arm.retired && metric.harmful_arms.contains(&arm.arm);
        let sentence = |arm: &v1::ArmEstimate| {
            let (label, mean) = (visible(&arm.label), number(arm.estimate.unwrap_or_default()));
            let what = if arm.weight > 0.0 {
                "does harm, and keeps its traffic, since all in play do harm"
            } else {
                "does harm and gets no traffic"
            };
            format!(" {label} {what}: {} is {mean}{limit}.", metric.name)
        };
        metric.arms.iter().filter(harms).map(sentence).collect::<String>()
    };
    estimates.metrics.iter().map(of_metric).collect()
}
