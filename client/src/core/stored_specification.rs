//! The stored form of a specification.

use bandana_shared::alphabet::Alphabet;
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ExperimentId, Revision};
use bandana_shared::participation::{Layer, LayerName, Millionths, Participation, Sticky};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use serde::{Deserialize, Serialize};

/// The parts of a specification, but for its batch and its participation, which are kept beside it:
/// earlier versions had none.
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

    /// The specification with this batch and participation, if it is valid and has the stored digest.
    pub(crate) fn into_specification(
        self,
        batch: Option<BatchSize>,
        participation: Participation,
    ) -> Option<Specification> {
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
        });
        specification.ok().filter(|s| *s.digest().as_bytes() == self.digest)
    }
}
