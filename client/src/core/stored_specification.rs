//! The stored form of a specification.

use bandana_shared::alphabet::Alphabet;
use bandana_shared::cells::{Limit, Measurement, Metric, Segmentation, Segmentations};
use bandana_shared::context::{Feature, PrivateContext};
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ExperimentId, Revision};
use bandana_shared::participation::{Layer, LayerName, Millionths, Participation, Sticky};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use serde::{Deserialize, Serialize};

/// The parts of a specification, but for what is [`Beside`] it: earlier versions had none of that.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredSpecification {
    digest: [u8; 16],
    experiment_id: String,
    revision: u32,
    simulation: bool,
    epsilon: f64,
    floor: u64,
    /// 0 bounded, 1 binary, 2 categorical: the first two are the same bytes as a `bool`.
    kind: u8,
    range: (f64, f64),
    clamps: bool,
    default_reward: f64,
    mechanism: StoredMechanism,
    arms: Vec<(String, bool)>,
    attribution_window_seconds: u32,
    release_delay_seconds_max: u32,
}

/// The parts of a specification that later versions have added.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    pub(crate) batch: Option<BatchSize>,
    pub(crate) participation: Participation,
    pub(crate) measurement: Measurement,
}

impl Beside {
    /// Those of the specifications of the first version.
    pub(crate) const NOTHING: Self = Self {
        batch: None,
        participation: Participation::EVERYONE,
        measurement: Measurement::REWARDS_ONLY,
    };
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum StoredMechanism {
    Linear,
    Quadratic(i32),
    Exponential,
    RandomizedResponse,
    Kary(u8),
}

/// Who takes part in an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredParticipation {
    /// Weight in millionths, and days.
    sticky: Option<(u32, u32)>,
    /// Name, begin and end in millionths.
    layer: Option<(String, u32, u32)>,
    enrolment_millionths: u32,
}

impl StoredParticipation {
    pub(crate) fn new(participation: &Participation) -> Self {
        let Participation { sticky, layer, enrolment } = participation;
        let sticky = sticky.map(|one| (one.until_weight_below.get(), one.report_days));
        let layer = layer.as_ref();
        let layer = layer.map(|one| (one.name().to_string(), one.from().get(), one.to().get()));
        Self { sticky, layer, enrolment_millionths: enrolment.get() }
    }

    /// What was stored, or `None` if it is not valid.
    pub(crate) fn into_participation(self) -> Option<Participation> {
        let millionths = |parts| Millionths::new(parts).ok();
        let sticky = match self.sticky {
            Some((weight, report_days)) => {
                Some(Sticky { until_weight_below: millionths(weight)?, report_days })
            }
            None => None,
        };
        let layer = match self.layer {
            Some((name, from, to)) => {
                let name = LayerName::new(name).ok()?;
                Some(Layer::new(name, millionths(from)?, millionths(to)?).ok()?)
            }
            None => None,
        };
        Some(Participation { sticky, layer, enrolment: millionths(self.enrolment_millionths)? })
    }
}

/// What an experiment measures beside the rewards of all, part by part; each part is there or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredMeasurement(Vec<StoredPart>);

/// A part of a measurement. Later versions add kinds of parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum StoredPart {
    /// Name and values.
    Segmentation(String, Vec<String>),
    Metric(StoredMetric),
    /// In millionths.
    Holdout(u32),
    /// Features with the shares in which they are true, and the share that explores, in millionths.
    Context(Vec<(String, u32)>, u32),
}

/// The form of version 6.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredMeasurement6 {
    segmentation: Option<(String, Vec<String>)>,
    metrics: Vec<StoredMetric>,
}

impl From<StoredMeasurement6> for StoredMeasurement {
    fn from(StoredMeasurement6 { segmentation, metrics }: StoredMeasurement6) -> Self {
        let segmentation =
            segmentation.map(|(name, values)| StoredPart::Segmentation(name, values));
        Self(segmentation.into_iter().chain(metrics.into_iter().map(StoredPart::Metric)).collect())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredMetric {
    name: String,
    is_binary: bool,
    range: (f64, f64),
    clamps: bool,
    default_value: f64,
    share_millionths: u32,
    /// Whether it is a largest mean, and the mean.
    limit: Option<(bool, f64)>,
}

impl StoredMeasurement {
    /// The stored form; `None`: nothing is measured beside the rewards of all.
    pub(crate) fn of(measurement: &Measurement) -> Option<Self> {
        (!measurement.is_rewards_only()).then(|| Self::new(measurement))
    }

    fn new(measurement: &Measurement) -> Self {
        let metric = |metric: &Metric| StoredMetric {
            name: metric.name().to_owned(),
            is_binary: metric.values().kind() == RewardKind::Binary,
            range: (metric.values().range().low(), metric.values().range().high()),
            clamps: metric.values().out_of_range() == OutOfRange::Clamp,
            default_value: metric.values().default_reward(),
            share_millionths: metric.share().get(),
            limit: metric.limit().map(|limit| (matches!(limit, Limit::AtMost(_)), limit.mean())),
        };
        let segmentations = measurement.segmentations.all().iter();
        let segmentations = segmentations
            .map(|one| StoredPart::Segmentation(one.name().to_owned(), one.values().to_vec()));
        let metrics = measurement.metrics.iter().map(|one| StoredPart::Metric(metric(one)));
        let is_held = measurement.holdout != Millionths::NONE;
        let holdout = is_held.then(|| StoredPart::Holdout(measurement.holdout.get()));
        let feature = |one: &Feature| (one.name().to_owned(), one.true_share().get());
        let context = measurement.context.as_ref().map(|context| {
            let features = context.features().iter().map(feature);
            StoredPart::Context(features.collect(), context.exploration().get())
        });
        Self(segmentations.chain(metrics).chain(holdout).chain(context).collect())
    }

    /// What was stored, or `None` if it is not valid.
    pub(crate) fn into_measurement(self) -> Option<Measurement> {
        let (mut measurement, mut segmentations) = (Measurement::REWARDS_ONLY, Vec::new());
        for part in self.0 {
            match part {
                StoredPart::Segmentation(name, values) => {
                    segmentations.push(Segmentation::new(name, values).ok()?);
                }
                StoredPart::Metric(metric) => measurement.metrics.push(metric.into_metric()?),
                StoredPart::Holdout(parts) => measurement.holdout = Millionths::new(parts).ok()?,
                StoredPart::Context(features, exploration) => {
                    let millionths = |parts| Millionths::new(parts).ok();
                    let feature = |(name, share)| Feature::new(name, millionths(share)?).ok();
                    let features = features.into_iter().map(feature).collect::<Option<_>>()?;
                    let context = PrivateContext::new(features, millionths(exploration)?);
                    measurement.context = Some(context.ok()?);
                }
            }
        }
        measurement.segmentations = Segmentations::new(segmentations).ok()?;
        Some(measurement)
    }
}

impl StoredMetric {
    fn into_metric(self) -> Option<Metric> {
        let kind = if self.is_binary { RewardKind::Binary } else { RewardKind::Bounded };
        let out_of_range = if self.clamps { OutOfRange::Clamp } else { OutOfRange::Refuse };
        let range = RewardRange::new(self.range.0, self.range.1).ok()?;
        let values = Rewards::new(kind, range, out_of_range, self.default_value).ok()?;
        let share = Millionths::new(self.share_millionths).ok()?;
        let metric = Metric::new(self.name, values, share).ok()?;
        match self.limit {
            None => Some(metric),
            Some((true, mean)) => metric.limited(Limit::AtMost(mean)).ok(),
            Some((false, mean)) => metric.limited(Limit::AtLeast(mean)).ok(),
        }
    }
}

impl StoredSpecification {
    pub(crate) fn new(specification: &Specification) -> Self {
        let rewards = specification.rewards();
        let timing = specification.timing();
        let arms = specification.arms().iter();
        Self {
            digest: *specification.digest().as_bytes(),
            experiment_id: specification.experiment_id().to_string(),
            revision: specification.revision().get(),
            simulation: specification.is_simulation(),
            epsilon: specification.epsilon().get(),
            floor: specification.channel().floor(),
            kind: match rewards.kind() {
                RewardKind::Bounded => 0,
                RewardKind::Binary => 1,
                RewardKind::Categorical => 2,
            },
            range: (rewards.range().low(), rewards.range().high()),
            clamps: rewards.out_of_range() == OutOfRange::Clamp,
            default_reward: rewards.default_reward(),
            mechanism: match specification.mechanism() {
                Mechanism::Linear => StoredMechanism::Linear,
                Mechanism::Quadratic(curvature) => StoredMechanism::Quadratic(curvature.units()),
                Mechanism::Exponential => StoredMechanism::Exponential,
                Mechanism::RandomizedResponse => StoredMechanism::RandomizedResponse,
                Mechanism::Kary(alphabet) => StoredMechanism::Kary(alphabet.len()),
            },
            arms: arms.map(|arm| (arm.label().to_owned(), arm.is_retired())).collect(),
            attribution_window_seconds: timing.attribution_window_seconds,
            release_delay_seconds_max: timing.release_delay_seconds_max,
        }
    }

    /// The specification with the parts that are beside it, if it is valid and has the stored digest.
    pub(crate) fn into_specification(self, beside: Beside) -> Option<Specification> {
        let Beside { batch, participation, measurement } = beside;
        let kind = match self.kind {
            0 => RewardKind::Bounded,
            1 => RewardKind::Binary,
            2 => RewardKind::Categorical,
            _ => return None,
        };
        let out_of_range = if self.clamps { OutOfRange::Clamp } else { OutOfRange::Refuse };
        let range = RewardRange::new(self.range.0, self.range.1).ok()?;
        let arms = self.arms.into_iter().map(|(label, retired)| {
            let arm = Arm::new(label).ok()?;
            Some(if retired { arm.retired() } else { arm })
        });
        let specification = Specification::new(SpecificationParts {
            experiment_id: ExperimentId::new(self.experiment_id).ok()?,
            revision: Revision::new(self.revision).ok()?,
            simulation: self.simulation,
            epsilon: Epsilon::new(self.epsilon).ok()?,
            floor: self.floor,
            rewards: Rewards::new(kind, range, out_of_range, self.default_reward).ok()?,
            mechanism: match self.mechanism {
                StoredMechanism::Linear => Mechanism::Linear,
                StoredMechanism::Quadratic(units) => {
                    Mechanism::Quadratic(Curvature::from_units(units).ok()?)
                }
                StoredMechanism::Exponential => Mechanism::Exponential,
                StoredMechanism::RandomizedResponse => Mechanism::RandomizedResponse,
                StoredMechanism::Kary(symbols) => {
                    Mechanism::Kary(Alphabet::new(symbols.into()).ok()?)
                }
            },
            arms: arms.collect::<Option<_>>()?,
            timing: ReleaseTiming {
                attribution_window_seconds: self.attribution_window_seconds,
                release_delay_seconds_max: self.release_delay_seconds_max,
            },
            batch,
            participation,
            measurement,
        });
        specification.ok().filter(|s| *s.digest().as_bytes() == self.digest)
    }
}
