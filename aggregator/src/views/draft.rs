//! A new experiment as described by a file and flags.

mod request;
pub(crate) mod terms;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Context as _;
use bandana_learners::Learner;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Deserialize;

use super::draft_values::{Goal, Mechanism, OutOfRange, RewardKind};
use super::seconds::{deserialize, seconds};

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
    /// What a device does with rewards out of range: clamp, to the nearer end, is for bounded ones;
    /// refuse counts them as none [default: clamp for bounded rewards, or refuse].
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
    /// What is known of arms beforehand, each as LABEL=MEAN:WORTH; in a file only.
    #[arg(skip)]
    #[serde(default)]
    priors: Vec<String>,
    /// Share of its worth that a prior counts, since users and app may have changed: above 0, at
    /// most 1 [default: 0.5].
    #[arg(long, value_name = "SHARE")]
    prior_discount: Option<f64>,
    /// What a choice of an arm costs, in the unit of the rewards: LABEL=COST; repeat it for each. The
    /// learner weighs, and verdicts compare, rewards less costs. In a file, `arm_costs` is the list of
    /// all [default: nothing].
    #[arg(long = "arm-cost", value_name = "LABEL=COST")]
    #[serde(default)]
    arm_costs: Vec<String>,
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
    /// platform=ios,android, 2 to 16 values; repeat it for up to 8 properties, whose values have at
    /// most 256 combinations. The learner weighs each combination by its own reports and by what the
    /// others tell. Apps must agree to each NAME, and each report says the values. In a file,
    /// `segments` is the list of all [default: not].
    #[arg(long = "segments", value_name = "SEGMENTS")]
    #[serde(default)]
    segments: Vec<String>,
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
            priors: if self.priors.is_empty() { file.priors } else { self.priors },
            prior_discount: self.prior_discount.or(file.prior_discount),
            arm_costs: if self.arm_costs.is_empty() { file.arm_costs } else { self.arm_costs },
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
            segments: if self.segments.is_empty() { file.segments } else { self.segments },
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

    /// A warning if clients with their default budgets can't pay for a report.
    pub(crate) fn budget_warning(&self) -> Option<String> {
        let is_for_users = self.simulation != Some(true);
        let epsilon = self.epsilon.filter(|epsilon| is_for_users && *epsilon > PAGE_BUDGET)?;
        let whose = if epsilon > APP_BUDGET { "apps and web pages" } else { "web pages" };
        Some(format!(
            "a report costs {epsilon} nats, which the default budget of {whose} can't pay: {PAGE_BUDGET} \
             nats in a window of a page, {APP_BUDGET} of another app. Those that don't set a larger one \
             show arms and never report"
        ))
    }
}

/// The window of the budget of an app, and of a web page, in nats, unless they say otherwise.
pub(crate) const APP_BUDGET: f64 = 5.0;
pub(crate) const PAGE_BUDGET: f64 = 2.0;

/// Parser of a learner's name.
fn learner() -> impl TypedValueParser<Value = Learner> {
    PossibleValuesParser::new(Learner::ALL.map(Learner::name)).try_map(|name| name.parse())
}

/// Warning about nonlinear curves on bounded rewards, as measured with `study regret`: see
/// `docs/studies/regret-study.md`.
pub(crate) const NONLINEAR: &str = "\
with a nonlinear curve and rewards between the ends of their range, the server learns the mean of \
g(reward), and the best arm by that may have a lower mean reward. In simulations, convex curves \
lost a steady arm of mean 0.6 to arms of mean 0.5 that vary more, and a concave one the best of \
the 20 arms of the papers: regret then grows with every user, however many come. They help where \
all arms vary alike and lie near the upper end of the range, and there only";
