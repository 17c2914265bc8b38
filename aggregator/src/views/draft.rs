//! A new experiment as described by a file and flags.

use std::path::Path;

use anyhow::Context as _;
use bandana_learners::Learner;
use bandana_shared::cells::{CellsError, Metric, Segmentation};
use bandana_shared::context::{ContextError, Feature, PrivateContext};
use bandana_shared::curve::Curvature;
use bandana_shared::participation::{Layer, Millionths, ParticipationError, Sticky};
use bandana_shared::refusals::{self, ARM_LABEL};
use bandana_shared::wire::v1::create_experiment_request::Memory;
use bandana_shared::wire::v1::{self, CreateExperimentRequest, specification};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Deserialize;

use super::draft_values::{Goal, Mechanism, OutOfRange, RewardKind};
use super::failure::Failure;
use super::seconds::{deserialize, seconds};

/// Release delay of an experiment on real users, in seconds, unless another one is asked for.
const RELEASE_DELAY: u32 = 3600;

/// Share of the assignments that explore with a private context, unless another one is asked for.
const EXPLORATION: f64 = 0.2;

/// What is said of a new experiment. The names in a file are those of the flags, with
/// underscores.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Draft {
    /// Id: 1 to 64 of a-z, 0-9, ".", "_", "-"; `experiment_id` in a file.
    #[arg(value_name = "ID")]
    experiment_id: Option<String>,
    /// Privacy loss of one report, in nats: 2^-20 to 32.
    #[arg(long, value_name = "NATS")]
    epsilon: Option<f64>,
    /// Label of an arm; repeat it for each. In a file, `arms` is the list of all labels.
    #[arg(long = "arm", value_name = "LABEL")]
    #[serde(default)]
    arms: Vec<String>,
    /// Seconds after a choice in which rewards still count: 1 to 7776000, or a time with units
    /// such as 1h or 2d 12h; 0 with --simulation.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[serde(default, deserialize_with = "deserialize")]
    attribution_window_seconds: Option<u32>,
    /// Random delay before a device releases a report, at most: 0 to 604800, or a time with
    /// units [default: 1h; 0 with --simulation]. Without one, the time of a report tells when its
    /// arm was shown; apps refuse less than ten minutes unless they say otherwise.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[serde(default, deserialize_with = "deserialize")]
    release_delay_seconds_max: Option<u32>,
    /// Reports reach the server only in batches of so many for an arm, from a relay that
    /// shuffles (`bandana relay --shuffle`): 2 to 16384 [default: none].
    ///
    /// The server then learns the number of ones of a batch, and no report. `bandana plan
    /// --shuffle` chooses a size.
    #[arg(long, value_name = "REPORTS")]
    shuffle_batch: Option<u32>,
    /// What rewards may be: one of two values, anything in a range, or categories [default:
    /// binary, or categorical with --categories].
    #[arg(long)]
    reward_kind: Option<RewardKind>,
    /// How many categories there are: 2 to 16. Rewards are their numbers, from 0 on.
    #[arg(long, value_name = "K")]
    categories: Option<u32>,
    /// Low end of the rewards [default: 0].
    #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
    reward_low: Option<f64>,
    /// High end of the rewards [default: 1, or the last category].
    #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
    reward_high: Option<f64>,
    /// What a device does with rewards out of range; clamp is for bounded ones
    /// [default: refuse].
    #[arg(long)]
    out_of_range: Option<OutOfRange>,
    /// Reported for an assignment without a reward [default: the low end].
    #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
    default_reward: Option<f64>,
    /// The curve before randomized response, or k-ary randomized response [default: linear,
    /// or k-ary for categories].
    #[arg(long)]
    mechanism: Option<Mechanism>,
    /// Levels that rewards are rounded to by the k-ary mechanism: 2 to 16.
    ///
    /// From an epsilon of about 3 on, five or six of them tell more than a bit.
    #[arg(long, value_name = "K")]
    levels: Option<u32>,
    /// Curvature of the quadratic mechanism: -1 to 1, convex above 0.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    curvature: Option<f64>,
    /// Who chooses the arms [default: by the goal, or uniform for categories].
    #[arg(long, value_parser = learner())]
    learner: Option<Learner>,
    /// What the traffic is for: rewards, by ldp-ts, or a verdict which arm is best, by top-two.
    /// It stands for a learner, so not with --learner [default: earn].
    #[arg(long, conflicts_with = "learner")]
    goal: Option<Goal>,
    /// Least share of the traffic for every arm in play: 0 to 1 / (number of arms)
    /// [default: 0].
    #[arg(long, value_name = "SHARE")]
    floor_weight: Option<f64>,
    /// Reports that every arm must have before the learner decides about its traffic. Until
    /// all of the first arms have them, all arms get the same; an arm that is added later
    /// gets an even share until it has them [default: 0].
    #[arg(long, value_name = "REPORTS")]
    burn_in_reports: Option<u32>,
    /// Share of the traffic that is spread evenly over the arms in play, whatever the learner
    /// says: 0 to 1. A least share that follows the number of arms; reports do not say that
    /// they are part of it [default: 0].
    #[arg(long, value_name = "SHARE")]
    holdout_share: Option<f64>,
    /// Learn from the last days only, for rewards that drift: 1 to 3650, counted back from
    /// the newest day with reports [default: all].
    #[arg(long, value_name = "DAYS", conflicts_with = "discount_per_day")]
    window_days: Option<u32>,
    /// Learn less from older reports, for rewards that drift: a day's count this much less
    /// than those of the next one, a factor between 0 and 1 [default: none].
    #[arg(long, value_name = "FACTOR")]
    discount_per_day: Option<f64>,
    /// Draw an arm anew for each assignment, and let each be reported. Otherwise an installation keeps
    /// its arm, and makes one report.
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    redraw: Option<bool>,
    /// Least share of the traffic of an arm that installations keep: 0 to 1 [default: 0.01]. Those
    /// that have an arm with less draw another one; 0: none does.
    #[arg(long, value_name = "SHARE")]
    until_weight_below: Option<f64>,
    /// An installation makes one report in each period of so many days: 0 to 3650, 0 for one ever
    /// [default: 0].
    #[arg(long, value_name = "DAYS")]
    report_days: Option<u32>,
    /// Only installations in this part of a layer take part: NAME:FROM-TO, such as checkout:0-0.5
    /// [default: all]. Experiments with parts of one layer have no installation in common.
    #[arg(long, value_name = "PART")]
    layer: Option<String>,
    /// Share of the installations that take part: above 0, at most 1 [default: 1]. `bandana
    /// experiment enrol` changes it later.
    #[arg(long, value_name = "SHARE")]
    enrolment_share: Option<f64>,
    /// Share of the installations that are held out: below 1 [default: 0]. They get all arms evenly, and
    /// are counted apart, so that it is seen what learning earns. Each draws once whether it is held
    /// out, and says so in its reports. Not what --holdout-share is: that is a part of everybody's
    /// traffic.
    #[arg(long, value_name = "SHARE")]
    holdout_group: Option<f64>,
    /// Divide installations by a public property that the app knows: NAME=VALUE,VALUE, such as
    /// platform=ios,android [default: not]. 2 to 16 values; the learner weighs each segment by its
    /// own reports and by what the others tell. Apps must agree to NAME, and each report says its
    /// segment.
    #[arg(long, value_name = "SEGMENTS")]
    segments: Option<String>,
    /// Something to measure beside the rewards; repeat it for each. NAME:SHARE for a yes or no that
    /// this share of the assignments report instead of their rewards, NAME:SHARE:LOW..HIGH for a
    /// number. With :at-most=MEAN or :at-least=MEAN it is a guardrail: an arm whose mean is certainly
    /// beyond that gets no further traffic. In a file, `metrics` is the list of all.
    #[arg(long = "metric", value_name = "METRIC")]
    #[serde(default)]
    metrics: Vec<String>,
    /// Research: devices choose arms by features that never leave them: NAME,NAME=SHARE,..., 1 to 15,
    /// each true or false, SHARE the share of the assignments in which it is true, if that is not about
    /// half of them. Only assignments that explore report. Apps in Rust must agree to exactly these
    /// names, and arms are drawn anew for each assignment. Read docs/private-contexts.md first, which
    /// says when not to.
    #[arg(long, value_name = "FEATURES")]
    private_features: Option<String>,
    /// Share of the assignments that explore, with --private-features: above 0, below 1 [default:
    /// 0.2].
    #[arg(long, value_name = "SHARE")]
    exploration: Option<f64>,
    /// Ask installations whether and why they refuse other experiments: one arm, and a category for each
    /// reason, once in 28 days. Apps tell it where they have agreed to (`report_refusals`); an epsilon of
    /// 0.5 is enough for thousands of them.
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, conflicts_with_all = ["arms", "categories", "reward_kind", "mechanism", "levels"])]
    refusals: Option<bool>,
    /// For simulated users only, with noise that can be repeated.
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    simulation: Option<bool>,
}

impl Draft {
    /// Reads a draft from a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?;
        toml::from_str(&text)
            .with_context(|| format!("{} does not describe an experiment", path.display()))
    }

    /// Merges two drafts: fields of `self` take precedence over those of `file`.
    pub(crate) fn over(self, file: Self) -> Self {
        Self {
            experiment_id: self.experiment_id.or(file.experiment_id),
            epsilon: self.epsilon.or(file.epsilon),
            arms: if self.arms.is_empty() { file.arms } else { self.arms },
            attribution_window_seconds: self
                .attribution_window_seconds
                .or(file.attribution_window_seconds),
            release_delay_seconds_max: self
                .release_delay_seconds_max
                .or(file.release_delay_seconds_max),
            shuffle_batch: self.shuffle_batch.or(file.shuffle_batch),
            reward_kind: self.reward_kind.or(file.reward_kind),
            reward_low: self.reward_low.or(file.reward_low),
            reward_high: self.reward_high.or(file.reward_high),
            out_of_range: self.out_of_range.or(file.out_of_range),
            default_reward: self.default_reward.or(file.default_reward),
            mechanism: self.mechanism.or(file.mechanism),
            curvature: self.curvature.or(file.curvature),
            levels: self.levels.or(file.levels),
            categories: self.categories.or(file.categories),
            // A goal stands for a learner, so either flag overrides both in the file.
            learner: self.learner.or(file.learner.filter(|_| self.goal.is_none())),
            goal: self.goal.or(file.goal.filter(|_| self.learner.is_none())),
            floor_weight: self.floor_weight.or(file.floor_weight),
            burn_in_reports: self.burn_in_reports.or(file.burn_in_reports),
            holdout_share: self.holdout_share.or(file.holdout_share),
            // The two settings exclude each other, so either flag overrides both in the file.
            window_days: self
                .window_days
                .or(file.window_days.filter(|_| self.discount_per_day.is_none())),
            discount_per_day: self
                .discount_per_day
                .or(file.discount_per_day.filter(|_| self.window_days.is_none())),
            redraw: self.redraw.or(file.redraw),
            until_weight_below: self.until_weight_below.or(file.until_weight_below),
            report_days: self.report_days.or(file.report_days),
            layer: self.layer.or(file.layer),
            enrolment_share: self.enrolment_share.or(file.enrolment_share),
            refusals: self.refusals.or(file.refusals),
            holdout_group: self.holdout_group.or(file.holdout_group),
            segments: self.segments.or(file.segments),
            metrics: if self.metrics.is_empty() { file.metrics } else { self.metrics },
            private_features: self.private_features.or(file.private_features),
            exploration: self.exploration.or(file.exploration),
            simulation: self.simulation.or(file.simulation),
        }
    }

    /// A warning if the estimand differs from what people may expect.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        let curved = match self.mechanism {
            Some(Mechanism::Exponential) => true,
            Some(Mechanism::Quadratic) => self.curvature != Some(0.0),
            Some(Mechanism::Linear | Mechanism::RandomizedResponse | Mechanism::KAry) | None => {
                false
            }
        };
        (curved && self.reward_kind == Some(RewardKind::Bounded)).then_some(NONLINEAR)
    }

    /// The request to create the experiment. The server checks the values.
    pub(crate) fn request(
        self,
        accept_nonlinear_estimand: bool,
    ) -> Result<CreateExperimentRequest, Failure> {
        let draft = if self.refusals == Some(true) { self.about_refusals()? } else { self };
        draft.checked_request(accept_nonlinear_estimand)
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
        if let (Some(warning), false) = (self.warning(), accept_nonlinear_estimand) {
            return Err(Failure::Refused(format!(
                "{warning}. Use the linear mechanism, or add --accept-nonlinear-estimand if that \
                 is what you want"
            )));
        }
        let kind = self.kind()?;
        let mechanism = self.mechanism(kind)?;
        let memory = self.memory()?;
        let participation = self.participation()?;
        let private_context = self.private_context()?;
        let refused = |error: CellsError| Failure::Refused(error.to_string());
        let segments = self.segments.as_deref().map(str::parse::<Segmentation>).transpose();
        let segments = segments.map_err(refused)?;
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
        let reward_low = self.reward_low.unwrap_or(0.0);
        let last = self.categories.map_or(1.0, |categories| f64::from(categories) - 1.0);
        let learner = self.learner(kind)?;
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
            out_of_range: match self.out_of_range.unwrap_or(OutOfRange::Refuse) {
                OutOfRange::Refuse => v1::OutOfRange::Refuse.into(),
                OutOfRange::Clamp => v1::OutOfRange::Clamp.into(),
            },
            default_reward: self.default_reward.unwrap_or(reward_low),
            mechanism: Some(mechanism),
            arms: self.arms.into_iter().map(|label| v1::Arm { label, retired: false }).collect(),
            attribution_window_seconds: self.attribution_window_seconds.unwrap_or(0),
            release_delay_seconds_max,
            shuffle_batch: self.shuffle_batch.unwrap_or(0),
            segmentation: segments.map(|segments| v1::Segmentation {
                name: segments.name().to_owned(),
                values: segments.values().to_vec(),
            }),
            metrics: metrics.iter().map(v1::Metric::from).collect(),
            private_context,
            ..participation
        };
        Ok(CreateExperimentRequest {
            specification: Some(specification),
            learner: learner.to_wire().into(),
            floor_weight: self.floor_weight.unwrap_or(0.0),
            accept_nonlinear_estimand,
            draft: false,
            memory,
            burn_in_reports: self.burn_in_reports.unwrap_or(0),
            holdout_share: self.holdout_share.unwrap_or(0.0),
        })
    }

    /// The kind of the rewards.
    fn kind(&self) -> Result<RewardKind, Failure> {
        match (self.reward_kind, self.categories) {
            (None, None) => Ok(RewardKind::Binary),
            (None | Some(RewardKind::Categorical), Some(_)) => Ok(RewardKind::Categorical),
            (Some(RewardKind::Categorical), None) => Err(Failure::Incomplete(
                "categorical rewards need --categories (`categories`), how many there are".into(),
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
                Err(Failure::Refused("a goal stands for a learner; leave one of them out".into()))
            }
            (None, None, _) if self.private_features.is_some() => Ok(Learner::Uniform),
            (None, Some(Goal::Decide), RewardKind::Categorical) => Err(Failure::Refused(
                "categories have no order, so none of their arms is the best; leave the goal out"
                    .into(),
            )),
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

/// Parser of a learner's name.
fn learner() -> impl TypedValueParser<Value = Learner> {
    PossibleValuesParser::new(Learner::ALL.map(Learner::name)).try_map(|name| name.parse())
}

/// Warning about nonlinear curves on bounded rewards, as measured with `regret-study`: see
/// `docs/studies/regret-study.md`.
pub(crate) const NONLINEAR: &str = "\
with a nonlinear curve and rewards between the ends of their range, the server learns the mean of \
g(reward), and the best arm by that may have a lower mean reward. In simulations, convex curves \
lost a steady arm of mean 0.6 to arms of mean 0.5 that vary more, and a concave one the best of \
the 20 arms of the papers: regret then grows with every user, however many come. They help where \
all arms vary alike and lie near the upper end of the range, and there only";

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(text: &str) -> Draft {
        toml::from_str(text).unwrap()
    }

    const COMPLETE: &str = "experiment_id = \"a\"\nepsilon = 1\narms = [\"x\", \"y\"]\n\
                            attribution_window_seconds = 60\n";

    #[test]
    fn defaults_make_a_binary_linear_experiment() {
        let request = draft(COMPLETE).request(false).unwrap();
        assert_eq!((request.learner(), request.floor_weight), (v1::Learner::LdpTs, 0.0));
        let specification = request.specification.unwrap();
        assert_eq!(specification.reward_kind(), v1::RewardKind::Binary);
        assert_eq!(specification.out_of_range(), v1::OutOfRange::Refuse);
        assert_eq!((specification.reward_low, specification.reward_high), (0.0, 1.0));
        assert_eq!(specification.mechanism, Some(specification::Mechanism::Linear(v1::Linear {})));
    }

    #[test]
    fn flags_count_more_than_the_file() {
        let flags = draft("epsilon = 2.0\narms = [\"z\"]\nsimulation = true");
        let request = flags.over(draft(COMPLETE)).request(false).unwrap();
        let specification = request.specification.unwrap();
        assert_eq!((specification.epsilon, specification.simulation), (2.0, true));
        assert_eq!(specification.arms.len(), 1);
        assert_eq!(specification.experiment_id, "a");
        assert_eq!(specification.attribution_window_seconds, 60);
    }

    #[test]
    fn all_that_is_missing_is_named() {
        let message = Draft::default().request(false).unwrap_err().to_string();
        for name in ["ID", "--epsilon", "--arm ", "--attribution-window-seconds"] {
            assert!(message.contains(name), "{message}");
        }
        let simulation =
            draft("experiment_id = \"a\"\nepsilon = 1\narms = [\"x\"]\nsimulation = true");
        assert!(simulation.request(false).is_ok());
    }

    #[test]
    fn nonlinear_estimands_are_accepted_or_refused() {
        let nonlinear = "reward_kind = \"bounded\"\nmechanism = \"exponential\"\n";
        let refused = draft(&format!("{COMPLETE}{nonlinear}")).request(false).unwrap_err();
        assert!(matches!(&refused, Failure::Refused(why) if why.contains("mean of g(reward)")));
        assert!(refused.to_string().contains("--accept-nonlinear-estimand"));
        assert!(draft(&format!("{COMPLETE}{nonlinear}")).request(true).is_ok());
        // Binary rewards have a linear estimand with any curve.
        assert!(draft(&format!("{COMPLETE}mechanism = \"exponential\"")).request(false).is_ok());
    }

    #[test]
    fn the_curvature_belongs_to_the_quadratic_mechanism() {
        let of = |text: &str| draft(&format!("{COMPLETE}{text}")).request(false);
        assert!(of("mechanism = \"quadratic\"").unwrap_err().to_string().contains("--curvature"));
        assert!(of("curvature = 0.5").is_err());
        assert!(of("mechanism = \"quadratic\"\ncurvature = 1.5").is_err());
        let request = of("mechanism = \"quadratic\"\ncurvature = 0.25").unwrap();
        let quadratic = v1::Quadratic { curvature: 1 << 18 };
        let expected = specification::Mechanism::Quadratic(quadratic);
        assert_eq!(request.specification.unwrap().mechanism, Some(expected));
    }

    #[test]
    fn levels_and_categories_make_k_ary_experiments() {
        let of = |text: &str| draft(&format!("{COMPLETE}{text}")).request(false);
        let symbols = |symbols| {
            let message = v1::RandomizedResponse { symbols };
            Some(specification::Mechanism::RandomizedResponse(message))
        };
        let levels = of("mechanism = \"k-ary\"\nlevels = 6\nreward_kind = \"bounded\"").unwrap();
        assert_eq!(levels.learner(), v1::Learner::LdpTs);
        assert_eq!(levels.specification.unwrap().mechanism, symbols(6));
        let categories = of("categories = 5").unwrap();
        assert_eq!(categories.learner(), v1::Learner::Uniform);
        let specification = categories.specification.unwrap();
        assert_eq!(specification.reward_kind(), v1::RewardKind::Categorical);
        assert_eq!((specification.reward_low, specification.reward_high), (0.0, 4.0));
        assert_eq!(specification.mechanism, symbols(5));
        for (text, complaint) in [
            ("mechanism = \"k-ary\"\nreward_kind = \"bounded\"", "--levels"),
            ("levels = 6", "only the k-ary"),
            ("categories = 5\nlevels = 5", "not rounded"),
            ("reward_kind = \"categorical\"", "--categories"),
            ("reward_kind = \"bounded\"\ncategories = 5", "only categorical"),
        ] {
            let message = of(text).unwrap_err().to_string();
            assert!(message.contains(complaint), "{text}: {message}");
        }
    }

    #[test]
    fn a_window_replaces_a_discount_of_the_file_and_not_its_own() {
        let days = Some(Memory::WindowDays(7));
        let file = || draft(&format!("{COMPLETE}discount_per_day = 0.9"));
        assert_eq!(file().request(false).unwrap().memory, Some(Memory::DiscountPerDay(0.9)));
        let over = draft("window_days = 7").over(file());
        assert_eq!(over.request(false).unwrap().memory, days);
        let both = draft(&format!("{COMPLETE}discount_per_day = 0.9\nwindow_days = 7"));
        assert!(both.request(false).is_err());
    }

    #[test]
    fn a_goal_stands_for_a_learner() {
        let of = |text: &str| draft(&format!("{COMPLETE}{text}"));
        let learner = |draft: Draft| draft.request(false).map(|request| request.learner());
        assert_eq!(learner(of("goal = \"decide\"")).unwrap(), v1::Learner::TopTwo);
        assert_eq!(learner(of("goal = \"earn\"")).unwrap(), v1::Learner::LdpTs);
        let both = learner(of("goal = \"decide\"\nlearner = \"uniform\"")).unwrap_err();
        assert!(both.to_string().contains("one of them"), "{both}");
        assert!(learner(of("goal = \"decide\"\ncategories = 5")).is_err());
        assert_eq!(learner(of("goal = \"earn\"\ncategories = 5")).unwrap(), v1::Learner::Uniform);
        // A flag replaces the other setting of the file too.
        let over = draft("goal = \"decide\"").over(of("learner = \"uniform\""));
        assert_eq!(learner(over).unwrap(), v1::Learner::TopTwo);
        let over = draft("learner = \"uniform\"").over(of("goal = \"decide\""));
        assert_eq!(learner(over).unwrap(), v1::Learner::Uniform);
    }

    #[test]
    fn private_features_make_a_private_context_with_arms_drawn_anew() {
        let of = |text: &str| draft(&format!("{COMPLETE}{text}")).request(false);
        let request = of("private_features = \"weekend=0.29, returning\"").unwrap();
        assert_eq!(request.learner(), v1::Learner::Uniform);
        let specification = request.specification.unwrap();
        assert_eq!(specification.sticky, None);
        let context = specification.private_context.unwrap();
        assert_eq!(context.exploration_millionths, 200_000);
        let features: Vec<_> =
            context.features.iter().map(|one| (&*one.name, one.true_millionths)).collect();
        assert_eq!(features, [("weekend", 290_000), ("returning", 500_000)]);
        let more = of("private_features = \"a\"\nexploration = 0.05").unwrap();
        let context = more.specification.unwrap().private_context.unwrap();
        assert_eq!(context.exploration_millionths, 50_000);
        // What was said is passed on, for the server to refuse.
        let kept = of("private_features = \"a\"\nreport_days = 3").unwrap();
        assert!(kept.specification.unwrap().sticky.is_some());
        for (text, complaint) in [
            ("exploration = 0.1", "--private-features"),
            ("private_features = \"a\"\nexploration = 1.5", "from 0 to 1"),
            ("private_features = \"a\"\nexploration = 1", "below 1"),
            ("private_features = \"\"", "is not 1 to 64"),
            ("private_features = \"a,a\"", "names must differ"),
            ("private_features = \"a=1\"", "such as weekend=0.29"),
        ] {
            let message = of(text).unwrap_err().to_string();
            assert!(message.contains(complaint), "{text}: {message}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let error = toml::from_str::<Draft>("epsilom = 1").unwrap_err().to_string();
        assert!(error.contains("epsilom") && error.contains("`epsilon`"), "{error}");
    }
}
