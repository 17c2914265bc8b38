//! The request that a description of a new experiment makes.

use bandana_learners::Learner;
use bandana_shared::cells::{CellsError, Metric, Segmentation};
use bandana_shared::context::{ContextError, Feature, PrivateContext};
use bandana_shared::curve::Curvature;
use bandana_shared::participation::{Layer, Millionths, ParticipationError, Sticky};
use bandana_shared::refusals::{self, ARM_LABEL};
use bandana_shared::wire::v1::create_experiment_request::Memory;
use bandana_shared::wire::v1::{self, CreateExperimentRequest, specification};

use super::ExperimentSettings;
use super::values::{Goal, Mechanism, OutOfRange, RewardKind};
use crate::views::failure::Failure;

/// Release delay of an experiment on real users, in seconds, unless another one is asked for.
const RELEASE_DELAY: u32 = 3600;

/// Share of the assignments that explore with a private context, unless another one is asked for.
const EXPLORATION: f64 = 0.2;

impl ExperimentSettings {
    /// The request to create the experiment. The server checks the values.
    pub(crate) fn request(
        self,
        accept_nonlinear_estimand: bool,
    ) -> Result<CreateExperimentRequest, Failure> {
        let settings = if self.refusals == Some(true) { self.about_refusals()? } else { self };
        settings.checked_request(accept_nonlinear_estimand)
    }

    /// The settings of an experiment about refusals.
    fn about_refusals(mut self) -> Result<Self, Failure> {
        let is_set = !self.arms.is_empty()
            || self.categories.is_some()
            || self.reward_kind.is_some()
            || self.mechanism.is_some();
        if is_set {
            return Err(Failure::Refused(
                "--refusals (`refusals`) sets the arm, the categories and the mechanism; leave yours out"
                    .to_owned(),
            ));
        }
        self.arms = vec![ARM_LABEL.to_owned()];
        self.categories = refusals::rewards().categories().map(|all| u32::from(all.len()));
        self.attribution_window_seconds.get_or_insert(86_400);
        self.report_days.get_or_insert(28);
        Ok(self)
    }

    fn checked_request(
        self,
        accept_nonlinear_estimand: bool,
    ) -> Result<CreateExperimentRequest, Failure> {
        self.check_complete()?;
        let kind = self.kind()?;
        let mechanism = self.mechanism(kind)?;
        let participation = self.participation()?;
        let private_context = self.private_context()?;
        let mut request = CreateExperimentRequest {
            learner: self.learner(kind)?.to_wire().into(),
            floor_weight: self.floor_weight.unwrap_or(0.0),
            accept_nonlinear_estimand,
            memory: self.memory()?,
            priors: self.priors()?,
            prior_discount: self.prior_discount.unwrap_or(0.0),
            arm_costs: self.costs()?,
            ..Default::default()
        };
        self.set_learning_numbers(&mut request);
        let refused = |error: CellsError| Failure::Refused(error.to_string());
        let segmentations = self.segments.iter().map(|text| text.parse::<Segmentation>()).collect();
        let segmentations: Vec<Segmentation> = Result::map_err(segmentations, refused)?;
        let metrics = self.metrics.iter().map(|text| text.parse::<Metric>()).collect();
        let metrics: Vec<Metric> = Result::map_err(metrics, refused)?;
        if self.until_weight_below == Some(0.0) && metrics.iter().any(|one| one.limit().is_some()) {
            return Err(Failure::Refused(
                "a metric with a limit ends an arm's traffic, and with an --until-weight-below \
                 (`until_weight_below`) of 0 installations that have the arm keep it; give a share \
                 above 0"
                    .to_owned(),
            ));
        }
        let (reward_low, out_of_range) = (self.reward_low.unwrap_or(0.0), self.beyond_range(kind));
        let last = self.categories.map_or(1.0, |categories| f64::from(categories) - 1.0);
        let is_simulation = self.simulation.unwrap_or(false);
        let release_delay_seconds_max =
            self.release_delay_seconds_max.unwrap_or(if is_simulation { 0 } else { RELEASE_DELAY });
        let specification = v1::Specification {
            experiment_id: self.experiment_id.unwrap_or_default(),
            epsilon: self.epsilon.unwrap_or_default(),
            simulation: is_simulation,
            reward_kind: match kind {
                RewardKind::Binary => v1::RewardKind::Binary.into(),
                RewardKind::Bounded => v1::RewardKind::Bounded.into(),
                RewardKind::Categorical => v1::RewardKind::Categorical.into(),
            },
            reward_low,
            reward_high: self.reward_high.unwrap_or(last),
            out_of_range: out_of_range.into(),
            default_reward: self.default_reward.unwrap_or(reward_low),
            mechanism: Some(mechanism),
            arms: self.arms.into_iter().map(|label| v1::Arm { label, retired: false }).collect(),
            attribution_window_seconds: self.attribution_window_seconds.unwrap_or(0),
            release_delay_seconds_max,
            shuffle_batch: self.shuffle_batch.unwrap_or(0),
            segmentations: segmentations.iter().map(v1::Segmentation::from).collect(),
            metrics: metrics.iter().map(v1::Metric::from).collect(),
            private_context,
            ..participation
        };
        request.specification = Some(specification);
        Ok(request)
    }

    /// What a device does with rewards out of range.
    fn beyond_range(&self, kind: RewardKind) -> v1::OutOfRange {
        match (self.out_of_range, kind) {
            (Some(OutOfRange::Clamp), _) | (None, RewardKind::Bounded) => v1::OutOfRange::Clamp,
            _ => v1::OutOfRange::Refuse,
        }
    }

    /// The kind of the rewards.
    fn kind(&self) -> Result<RewardKind, Failure> {
        match (self.reward_kind, self.categories) {
            (None, None) => Ok(RewardKind::Binary),
            (None | Some(RewardKind::Categorical), Some(_)) => Ok(RewardKind::Categorical),
            (Some(RewardKind::Categorical), None) => Err(Failure::Incomplete(
                "categorical rewards need --categories (`categories`), the number of categories"
                    .into(),
            )),
            (Some(_), Some(_)) => Err(Failure::Refused(
                "only categorical rewards have a number of categories; leave it out".into(),
            )),
            (Some(kind), None) => Ok(kind),
        }
    }

    fn learner(&self, kind: RewardKind) -> Result<Learner, Failure> {
        match (self.learner, self.goal, kind) {
            (Some(_), Some(_), _) => {
                Err(Failure::Refused("a goal picks a learner; leave one of the two out".into()))
            }
            (None, None, _) if self.private_features.is_some() => Ok(Learner::Uniform),
            (None, None | Some(Goal::Earn), RewardKind::Categorical) => Ok(Learner::Uniform),
            (Some(learner), None, _) => Ok(learner),
            (None, goal, _) => Ok(goal.unwrap_or_default().learner()),
        }
    }

    fn memory(&self) -> Result<Option<Memory>, Failure> {
        match (self.window_days, self.discount_per_day) {
            (Some(_), Some(_)) => Err(Failure::Refused(
                "a window and a discount do not go together; leave one of them out".into(),
            )),
            (Some(days), None) => Ok(Some(Memory::WindowDays(days))),
            (None, Some(factor)) => Ok(Some(Memory::DiscountPerDay(factor))),
            (None, None) => Ok(None),
        }
    }

    /// The share of the installations that are held out.
    fn holdout(&self) -> Result<Millionths, Failure> {
        let asked = self.holdout_group.unwrap_or(0.0);
        match Millionths::from_share(asked) {
            Ok(Millionths::NONE) if asked > 0.0 => Err(Failure::Refused(format!(
                "--holdout-group (`holdout_group`): {asked} is less than a millionth; give a \
                 larger share, or leave it out"
            ))),
            Ok(share) => Ok(share),
            Err(error) => Err(Failure::Refused(format!("--holdout-group: {error}"))),
        }
    }

    /// The private context, if there is one.
    fn private_context(&self) -> Result<Option<v1::PrivateContext>, Failure> {
        let Some(features) = &self.private_features else {
            return match self.exploration {
                None => Ok(None),
                Some(_) => Err(Failure::Refused(
                    "--exploration (`exploration`) is the share of the assignments that explore \
                     with --private-features (`private_features`); give those too, or leave it out"
                        .to_owned(),
                )),
            };
        };
        let exploration = Millionths::from_share(self.exploration.unwrap_or(EXPLORATION));
        let exploration = exploration.map_err(|error| Failure::Refused(error.to_string()))?;
        let refused = |error: ContextError| Failure::Refused(error.to_string());
        let features = features.split(',').map(str::parse::<Feature>).collect();
        let features: Vec<Feature> = Result::map_err(features, refused)?;
        let context = PrivateContext::new(features, exploration).map_err(refused)?;
        Ok(Some(v1::PrivateContext::from(&context)))
    }

    /// A specification that says who takes part, and nothing else.
    fn participation(&self) -> Result<v1::Specification, Failure> {
        let refused = |error: ParticipationError| Failure::Refused(error.to_string());
        // The arm of a private context follows the context. The server refuses to keep it.
        let keeps = self.until_weight_below.is_some() || self.report_days.is_some();
        let redraws = self.redraw.unwrap_or(self.private_features.is_some() && !keeps);
        if redraws && (self.until_weight_below.is_some() || self.report_days.is_some()) {
            return Err(Failure::Refused(
                "arms that are drawn anew are not kept; leave out either --redraw (`redraw`), or \
                 --until-weight-below and --report-days"
                    .to_owned(),
            ));
        }
        let Sticky { until_weight_below, report_days } = Sticky::DEFAULT;
        let until_weight_below = match self.until_weight_below {
            Some(share) => Millionths::from_share(share).map_err(refused)?,
            None => until_weight_below,
        };
        let layer = self.layer.as_deref().map(str::parse::<Layer>).transpose().map_err(refused)?;
        let enrolment = Millionths::from_share(self.enrolment_share.unwrap_or(1.0));
        let enrolment = match enrolment.map_err(refused)? {
            // On the wire 0 stands for all.
            Millionths::NONE => return Err(refused(ParticipationError::NobodyEnrolled)),
            Millionths::ALL => 0,
            share => share.get(),
        };
        Ok(v1::Specification {
            sticky: (!redraws).then(|| v1::Sticky {
                until_weight_below: until_weight_below.get(),
                report_days: self.report_days.unwrap_or(report_days),
            }),
            layer: layer.map(|part| v1::Layer {
                name: part.name().to_string(),
                from: part.from().get(),
                to: part.to().get(),
            }),
            enrolment_millionths: enrolment,
            holdout_millionths: self.holdout()?.get(),
            ..Default::default()
        })
    }

    /// Checks that all fields without a default are present.
    fn check_complete(&self) -> Result<(), Failure> {
        let real = self.simulation != Some(true);
        let missing: Vec<_> = [
            (self.experiment_id.is_none(), "ID (`experiment_id` in a file)"),
            (self.epsilon.is_none(), "--epsilon (`epsilon`)"),
            (self.arms.is_empty(), "--arm for each arm (`arms`)"),
            (
                real && self.attribution_window_seconds.is_none(),
                "--attribution-window-seconds (`attribution_window_seconds`; 1h is an hour)",
            ),
        ]
        .into_iter()
        .filter_map(|(is_missing, name)| is_missing.then_some(name))
        .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(Failure::Incomplete(format!("a new experiment needs, by flags or --file: {missing}")))
    }

    fn mechanism(&self, kind: RewardKind) -> Result<specification::Mechanism, Failure> {
        let mechanism = self.mechanism.unwrap_or(match kind {
            RewardKind::Categorical => Mechanism::KAry,
            RewardKind::Binary | RewardKind::Bounded => Mechanism::Linear,
        });
        let symbols = match (mechanism, self.categories.or(self.levels)) {
            (Mechanism::KAry, Some(symbols)) => symbols,
            (Mechanism::KAry, None) => {
                let needed = "the k-ary mechanism needs --levels (`levels`), 2 to 16";
                return Err(Failure::Incomplete(needed.to_owned()));
            }
            (_, _) if self.levels.is_some() => {
                let unused = "only the k-ary mechanism has levels; leave them out";
                return Err(Failure::Refused(unused.to_owned()));
            }
            (_, _) => 0,
        };
        if self.categories.is_some() && self.levels.is_some() {
            let unused = "categories are not rounded to levels; leave --levels out";
            return Err(Failure::Refused(unused.to_owned()));
        }
        let curvature = match (mechanism, self.curvature) {
            (Mechanism::Quadratic, Some(curvature)) => curvature,
            (Mechanism::Quadratic, None) => {
                let needed = "the quadratic mechanism needs --curvature (`curvature`), -1 to 1";
                return Err(Failure::Incomplete(needed.to_owned()));
            }
            (_, Some(_)) => {
                let unused = "only the quadratic mechanism has a curvature; leave it out";
                return Err(Failure::Refused(unused.to_owned()));
            }
            (_, None) => 0.0,
        };
        Ok(match mechanism {
            Mechanism::Linear => specification::Mechanism::Linear(v1::Linear {}),
            Mechanism::Quadratic => {
                let curvature = Curvature::new(curvature);
                let curvature = curvature.map_err(|error| Failure::Refused(error.to_string()))?;
                specification::Mechanism::Quadratic(v1::Quadratic { curvature: curvature.units() })
            }
            Mechanism::Exponential => specification::Mechanism::Exponential(v1::Exponential {}),
            Mechanism::RandomizedResponse | Mechanism::KAry => {
                specification::Mechanism::RandomizedResponse(v1::RandomizedResponse { symbols })
            }
        })
    }
}
