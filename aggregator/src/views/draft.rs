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
    /// Id: 1 to 64 of the characters a-z, 0-9, ".", "_" and "-". In a file: `experiment_id`.
    #[arg(value_name = "ID")]
    experiment_id: Option<String>,
    /// Privacy loss of one report, in nats: 2^-20 to 32.
    #[arg(help_heading = "Needed, here or in the file")]
    #[arg(long, value_name = "NATS")]
    epsilon: Option<f64>,
    /// Label of an arm. Repeat the flag for each arm. In a file: `arms`, a list of all labels.
    #[arg(help_heading = "Needed, here or in the file")]
    #[arg(long = "arm", value_name = "LABEL")]
    #[serde(default)]
    arms: Vec<String>,
    /// How long after a choice rewards still count: 1 to 7776000 seconds, or a time with units such
    /// as 1h or 2d 12h. 0 with --simulation.
    #[arg(help_heading = "Needed, here or in the file")]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[serde(default, deserialize_with = "deserialize")]
    attribution_window_seconds: Option<u32>,
    /// The longest random delay before a device sends a report: 0 to 604800 seconds, or a time with
    /// units [default: 1h; 0 with --simulation]. Without a delay, the time of a report tells when
    /// its arm was shown. Apps refuse less than ten minutes, unless they accept less.
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[serde(default, deserialize_with = "deserialize")]
    release_delay_seconds_max: Option<u32>,
    /// Size of a batch: 2 to 16384 reports of one arm [default: none]. Reports reach the server
    /// only in such batches, from a relay that shuffles (`bandana relay --shuffle`).
    ///
    /// The server then learns how many ones a batch has, and no single report. `bandana plan
    /// --shuffle` chooses a size.
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long, value_name = "REPORTS")]
    shuffle_batch: Option<u32>,
    /// What rewards may be: one of two values, anything in a range, or categories [default:
    /// binary, or categorical with --categories].
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long)]
    reward_kind: Option<RewardKind>,
    /// Number of categories: 2 to 16. A reward is the number of its category, counted from 0.
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long, value_name = "K")]
    categories: Option<u32>,
    /// Low end of the rewards [default: 0].
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
    reward_low: Option<f64>,
    /// High end of the rewards [default: 1, or the last category].
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
    reward_high: Option<f64>,
    /// What a device does with a reward out of range. clamp moves it to the nearer end, and is for
    /// bounded rewards; refuse ignores it [default: clamp for bounded rewards, else refuse].
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long)]
    out_of_range: Option<OutOfRange>,
    /// The reward that is reported for an assignment without one [default: the low end].
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
    default_reward: Option<f64>,
    /// The curve before randomized response, or k-ary randomized response [default: linear,
    /// or k-ary for categories].
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long)]
    mechanism: Option<Mechanism>,
    /// Number of levels to which the k-ary mechanism rounds rewards: 2 to 16.
    ///
    /// From an epsilon of about 3 on, five or six levels tell more than a bit does.
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long, value_name = "K")]
    levels: Option<u32>,
    /// Curvature of the quadratic mechanism: -1 to 1, convex above 0.
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    curvature: Option<f64>,
    /// Which learner sets the traffic of the arms [default: that of the goal, or uniform for
    /// categories].
    #[arg(help_heading = "Traffic")]
    #[arg(long, value_parser = learner())]
    learner: Option<Learner>,
    /// What you want. earn picks the learner ldp-ts, and decide picks top-two. Give this or
    /// --learner, not both [default: earn].
    #[arg(help_heading = "Traffic")]
    #[arg(long, conflicts_with = "learner")]
    goal: Option<Goal>,
    /// Least share of the traffic for every arm in play: 0 to 1 / (number of arms)
    /// [default: 0].
    #[arg(help_heading = "Traffic")]
    #[arg(long, value_name = "SHARE")]
    floor_weight: Option<f64>,
    /// Number of reports that an arm must have before the learner sets its traffic. All arms get
    /// the same traffic until each of the first arms has them. An arm that you add later gets an
    /// even share until it has them [default: 0].
    #[arg(help_heading = "Traffic")]
    #[arg(long, value_name = "REPORTS")]
    burn_in_reports: Option<u32>,
    /// Share of the traffic that is spread evenly over the arms in play, whatever the learner says:
    /// 0 to 1. A report does not say that it is part of it [default: 0].
    #[arg(help_heading = "Traffic")]
    #[arg(long, value_name = "SHARE")]
    holdout_share: Option<f64>,
    /// What is known of arms beforehand, each as LABEL=MEAN:WORTH; in a file only.
    #[arg(skip)]
    #[serde(default)]
    priors: Vec<String>,
    /// How much of its worth a prior counts, since users and the app may have changed: a share
    /// above 0, at most 1 [default: 0.5].
    #[arg(help_heading = "Traffic")]
    #[arg(long, value_name = "SHARE")]
    prior_discount: Option<f64>,
    /// What a choice of an arm costs, in the unit of the rewards: LABEL=COST. Repeat the flag for
    /// each arm. The learner and the verdicts then use rewards less costs. In a file: `arm_costs`,
    /// a list [default: no costs].
    #[arg(help_heading = "Traffic")]
    #[arg(long = "arm-cost", value_name = "LABEL=COST")]
    #[serde(default)]
    arm_costs: Vec<String>,
    /// Learn from the last days only, for rewards that drift: 1 to 3650, counted back from
    /// the newest day with reports [default: all].
    #[arg(help_heading = "Traffic")]
    #[arg(long, value_name = "DAYS", conflicts_with = "discount_per_day")]
    window_days: Option<u32>,
    /// Learn less from older reports, for rewards that drift. A report counts this much of one from
    /// the day after: a factor between 0 and 1 [default: none].
    #[arg(help_heading = "Traffic")]
    #[arg(long, value_name = "FACTOR")]
    discount_per_day: Option<f64>,
    /// Draw a new arm for each assignment, and let each assignment be reported. Otherwise an
    /// installation keeps its arm and makes one report.
    #[arg(help_heading = "Who takes part")]
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    redraw: Option<bool>,
    /// An installation keeps its arm until the arm's share of the traffic is below this, and then
    /// draws another one: 0 to 1 [default: 0.01]. With 0, it always keeps its arm.
    #[arg(help_heading = "Who takes part")]
    #[arg(long, value_name = "SHARE")]
    until_weight_below: Option<f64>,
    /// An installation makes one report in each period of this many days: 0 to 3650. 0 means one
    /// report ever [default: 0].
    #[arg(help_heading = "Who takes part")]
    #[arg(long, value_name = "DAYS")]
    report_days: Option<u32>,
    /// Only installations in this part of a layer take part: NAME:FROM-TO, such as checkout:0-0.5
    /// [default: all]. Two experiments with parts of one layer share no installation.
    #[arg(help_heading = "Who takes part")]
    #[arg(long, value_name = "PART")]
    layer: Option<String>,
    /// Share of the installations that take part: above 0, at most 1 [default: 1]. `bandana
    /// experiment enrol` changes it later.
    #[arg(help_heading = "Who takes part")]
    #[arg(long, value_name = "SHARE")]
    enrolment_share: Option<f64>,
    /// Share of the installations that are held out: below 1 [default: 0]. They get all arms evenly
    /// and are counted apart, so that you see what learning earns. Each installation draws once
    /// whether it is held out, and its reports say so. --holdout-share is something else: a part of
    /// everybody's traffic.
    #[arg(help_heading = "Who takes part")]
    #[arg(long, value_name = "SHARE")]
    holdout_group: Option<f64>,
    /// Divide installations by a public property that the app knows: NAME=VALUE,VALUE with 2 to 16
    /// values, such as platform=ios,android. Repeat the flag for up to 8 properties. Their values
    /// may have at most 256 combinations. For each combination, the learner uses its own reports
    /// and what the others tell. Apps must agree to each NAME, and each report tells the values. In
    /// a file: `segments`, a list [default: none].
    #[arg(help_heading = "Segments, metrics and harm")]
    #[arg(long = "segments", value_name = "SEGMENTS")]
    #[serde(default)]
    segments: Vec<String>,
    /// Something to measure beside the rewards. Repeat the flag for each metric. NAME:SHARE is a
    /// yes or no, which this share of the assignments report instead of their rewards.
    /// NAME:SHARE:LOW..HIGH is a number. With :at-most=MEAN or :at-least=MEAN, an arm whose mean is
    /// certainly beyond this limit gets no further traffic. In a file: `metrics`, a list.
    #[arg(help_heading = "Segments, metrics and harm")]
    #[arg(long = "metric", value_name = "METRIC")]
    #[serde(default)]
    metrics: Vec<String>,
    /// Research. Devices choose arms by features that never leave them: NAME,NAME=SHARE,..., 1 to
    /// 15 features, each true or false. SHARE is the share of the assignments in which the feature
    /// is true, if that is not about half. Only assignments that explore report. The app must be in
    /// Rust and agree to exactly these names. Arms are drawn anew for each assignment. Read
    /// docs/private-contexts.md first: it says when not to use this.
    #[arg(help_heading = "Research")]
    #[arg(long, value_name = "FEATURES")]
    private_features: Option<String>,
    /// Share of the assignments that explore, with --private-features: above 0, below 1 [default:
    /// 0.2].
    #[arg(help_heading = "Research")]
    #[arg(long, value_name = "SHARE")]
    exploration: Option<f64>,
    /// Ask installations whether and why they refuse other experiments. The experiment has one arm
    /// and a category for each reason. An installation reports once in 28 days, if its app has
    /// agreed to that (`report_refusals`). For thousands of installations, an epsilon of 0.5 is
    /// enough.
    #[arg(help_heading = "Other")]
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, conflicts_with_all = ["arms", "categories", "reward_kind", "mechanism", "levels"])]
    refusals: Option<bool>,
    /// For simulated users only. Their noise can be repeated, and protects nobody.
    #[arg(help_heading = "Other")]
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
            "a report costs {epsilon} nats, which the default budget of {whose} can't pay: a page \
             has {PAGE_BUDGET} nats in a window, another app {APP_BUDGET}. Those that do not set a \
             larger budget show arms and never report"
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
preferred arms of mean 0.5 that vary more to a steady arm of mean 0.6, and a concave curve missed \
the best of the 20 arms of the papers: regret then grows with every user. Such curves help only \
where all arms vary alike and lie near the upper end of the range";
