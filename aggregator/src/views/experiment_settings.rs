//! The settings of a new experiment, as flags, a file or the dashboard's form describe them.

mod request;
pub(crate) mod table;
pub(crate) mod terms;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use std::path::Path;

use anyhow::Context as _;
use bandana_learners::Learner;
use bandana_shared::wire::v1::CreateExperimentRequest;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::seconds::{deserialize, seconds};
use table::{LearningNumber, Over as _, choice, learning, lines, list, number, settings, text};
use values::{Goal, LEARNERS, MECHANISMS, Mechanism, OutOfRange, REWARD_KINDS, RewardKind};

settings! {
    /// What is said of a new experiment. The names in a file are those of the flags, with underscores.
    struct ExperimentSettings;

    "" () => {
        /// Id: 1 to 64 of the characters a-z, 0-9, ".", "_" and "-". In a file: `experiment_id`.
        #[arg(value_name = "ID")]
        experiment_id: Option<String> = text("Name", "required pattern=[a-z0-9._\\-]{1,64}")
            .note("1 to 64 of the characters a-z, 0-9, “.”, “_” and “-”. Apps ask for the experiment by this \
                  name");
    }
    "Needed, here or in the file" (help_heading = "Needed, here or in the file") => {
        /// Privacy loss of one report, in nats: 2^-20 to 32.
        #[arg(long, value_name = "NATS")]
        epsilon: Option<f64> = number("Epsilon", "required min=0.000001 max=32 value=1")
            .note("The same as a number, in nats for each report. A smaller one is more private, and takes \
                  more users. Apps refuse more than they accept.");
        /// Label of an arm. Repeat the flag for each arm. In a file: `arms`, a list of all labels.
        #[arg(long = "arm", value_name = "LABEL")]
        arms: Vec<String> = lines("Arms", "required rows=4").note("The label of each on a line of its own");
        /// How long after a choice rewards still count: 1 to 7776000 seconds, or a time with units such
        /// as 1h or 2d 12h. 0 with --simulation.
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        #[serde(deserialize_with = "deserialize")]
        attribution_window_seconds: Option<u32> =
            number("It counts for so many seconds after the choice",
                "required min=0 max=7776000 step=1 value=3600")
            .note("3600 is an hour. 0 is for simulated users.");
    }
    "Rewards and reports" (help_heading = "Rewards and reports") => {
        /// The longest random delay before a device sends a report: 0 to 604800 seconds, or a time with
        /// units [default: 1h; 0 with --simulation]. Without a delay, the time of a report tells when
        /// its arm was shown. Apps refuse less than ten minutes, unless they accept less.
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        #[serde(deserialize_with = "deserialize")]
        release_delay_seconds_max: Option<u32> =
            number("Random delay of reports, in seconds", "min=0 max=604800 step=1 value=3600")
            .note("The longest delay: 0 to 604800. Apps refuse less than 600, unless they accept less");
        /// Size of a batch: 2 to 16384 reports of one arm [default: none]. Reports reach the server
        /// only in such batches, from a relay that shuffles (`bandana relay --shuffle`).
        ///
        /// The server then learns how many ones a batch has, and no single report. `bandana plan
        /// --shuffle` chooses a size.
        #[arg(long, value_name = "REPORTS")]
        shuffle_batch: Option<u32> = number("Shuffled in batches of", "min=2 max=16384 step=1");
        /// What rewards may be: one of two values, anything in a range, or categories [default:
        /// binary, or categorical with --categories].
        #[arg(long)]
        reward_kind: Option<RewardKind> = choice("A reaction is", REWARD_KINDS);
        /// Number of categories: 2 to 16. A reward is the number of its category, counted from 0.
        #[arg(long, value_name = "K")]
        categories: Option<u32> = number("Number of categories", "min=2 max=16 step=1 value=3");
        /// Low end of the rewards [default: 0].
        #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
        reward_low: Option<f64> = number("Lowest", "required value=0").note("");
        /// High end of the rewards [default: 1, or the last category].
        #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
        reward_high: Option<f64> = number("Highest", "required value=1").note("");
        /// What a device does with a reward out of range. clamp moves it to the nearer end, and is for
        /// bounded rewards; refuse ignores it [default: clamp for bounded rewards, else refuse].
        #[arg(long)]
        out_of_range: Option<OutOfRange> = choice("Rewards out of range", values::OUT_OF_RANGE);
        /// The reward that is reported for an assignment without one [default: the low end].
        #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
        default_reward: Option<f64> = number("Without a reaction", "");
        /// The curve before randomized response, or k-ary randomized response [default: linear,
        /// or k-ary for categories].
        #[arg(long)]
        mechanism: Option<Mechanism> = choice("Curve", MECHANISMS);
        /// Number of levels to which the k-ary mechanism rounds rewards: 2 to 16.
        ///
        /// From an epsilon of about 3 on, five or six levels tell more than a bit does.
        #[arg(long, value_name = "K")]
        levels: Option<u32> = number("Levels", "min=2 max=16 step=1 value=6");
        /// Curvature of the quadratic mechanism: -1 to 1, convex above 0.
        #[arg(long, value_name = "K", allow_negative_numbers = true)]
        curvature: Option<f64> = number("Curvature", "min=-1 max=1 value=1");
    }
    "Traffic" (help_heading = "Traffic") => {
        /// Which learner sets the traffic of the arms [default: that of the goal, or uniform for
        /// categories].
        #[arg(long, value_parser = learner())]
        learner: Option<Learner> = choice("Learner", LEARNERS);
        /// What you want. earn picks the learner ldp-ts, and decide picks top-two. Give this or
        /// --learner, not both [default: earn].
        #[arg(long, conflicts_with = "learner")]
        goal: Option<Goal>;
        /// Least share of the traffic for every arm in play: 0 to 1 / (number of arms)
        /// [default: 0].
        #[arg(long, value_name = "SHARE")]
        floor_weight: Option<f64> = number("Floor weight", "min=0 max=1 value=0");
        /// Number of reports that an arm must have before the learner sets its traffic. All arms get
        /// the same traffic until each of the first arms has them. An arm that you add later gets an
        /// even share until it has them [default: 0].
        #[arg(long, value_name = "REPORTS")]
        burn_in_reports: Option<u32> = number("Burn-in, in reports", "min=0 max=4294967295 step=1 value=0")
            => burn_in_reports,
            learning("burn-in", ("none", "reports for each arm"), |status| status.burn_in_reports.into());
        /// Share of the traffic that is spread evenly over the arms in play, whatever the learner says:
        /// 0 to 1. A report does not say that it is part of it [default: 0].
        #[arg(long, value_name = "SHARE")]
        holdout_share: Option<f64> = number("Holdout share", "min=0 max=1 value=0")
            => holdout_share,
            learning("holdout", ("0 of the traffic", "of the traffic"), |status| status.holdout_share.into());
    }
    "Traffic" (skip) => {
        /// What is known of arms beforehand, each as LABEL=MEAN:WORTH; in a file only.
        priors: Vec<String> = lines("Known before", "rows=2")
            .note("arm=mean:worth, one on each line: the mean reward that an arm had, and how many private \
                  reports would tell as much. Only the learner uses it");
    }
    "Traffic" (help_heading = "Traffic") => {
        /// How much of its worth a prior counts, since users and the app may have changed: a share
        /// above 0, at most 1 [default: 0.5].
        #[arg(long, value_name = "SHARE")]
        prior_discount: Option<f64> = number("Share of the worth that counts", "min=0.000001 max=1 value=0.5");
        /// What a choice of an arm costs, in the unit of the rewards: LABEL=COST. Repeat the flag for
        /// each arm. The learner and the verdicts then use rewards less costs. In a file: `arm_costs`,
        /// a list [default: no costs].
        #[arg(long = "arm-cost", value_name = "LABEL=COST")]
        arm_costs: Vec<String> = lines("Costs", "rows=2")
            .note("arm=cost, one on each line, in the unit of the rewards. The learner and the verdicts use \
                  rewards less costs");
        /// Learn from the last days only, for rewards that drift: 1 to 3650, counted back from
        /// the newest day with reports [default: all].
        #[arg(long, value_name = "DAYS", conflicts_with = "discount_per_day")]
        window_days: Option<u32> = number("Number of days", "min=1 max=3650 step=1 value=14");
        /// Learn less from older reports, for rewards that drift. A report counts this much of one from
        /// the day after: a factor between 0 and 1 [default: none].
        #[arg(long, value_name = "FACTOR")]
        discount_per_day: Option<f64> =
            number("A report counts this much of one from the day after",
                "min=0.000001 max=0.999999 value=0.9");
    }
    "Who takes part" (help_heading = "Who takes part") => {
        /// Draw a new arm for each assignment, and let each assignment be reported. Otherwise an
        /// installation keeps its arm and makes one report.
        #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
              require_equals = true)]
        redraw: Option<bool> = choice("An arm is", values::REDRAW);
        /// An installation keeps its arm until the arm's share of the traffic is below this, and then
        /// draws another one: 0 to 1 [default: 0.01]. With 0, it always keeps its arm.
        #[arg(long, value_name = "SHARE")]
        until_weight_below: Option<f64> = number("Kept until it weighs less than", "min=0 max=1 value=0.01");
        /// An installation makes one report in each period of this many days: 0 to 3650. 0 means one
        /// report ever [default: 0].
        #[arg(long, value_name = "DAYS")]
        report_days: Option<u32> = number("One report in this many days", "min=0 max=3650 step=1 value=0");
        /// Only installations in this part of a layer take part: NAME:FROM-TO, such as checkout:0-0.5
        /// [default: all]. Two experiments with parts of one layer share no installation.
        #[arg(long, value_name = "PART")]
        layer: Option<String> = text("Part of a layer", "");
        /// Share of the installations that take part: above 0, at most 1 [default: 1]. `bandana
        /// experiment enrol` changes it later.
        #[arg(long, value_name = "SHARE")]
        enrolment_share: Option<f64> = number("Enrolled share", "min=0.000001 max=1 value=1");
        /// Share of the installations that are held out: below 1 [default: 0]. They get all arms evenly
        /// and are counted apart, so that you see what learning earns. Each installation draws once
        /// whether it is held out, and its reports say so. --holdout-share is something else: a part of
        /// everybody's traffic.
        #[arg(long, value_name = "SHARE")]
        holdout_group: Option<f64>;
    }
    "Segments, metrics and harm" (help_heading = "Segments, metrics and harm") => {
        /// Divide installations by a public property that the app knows: NAME=VALUE,VALUE with 2 to 16
        /// values, such as platform=ios,android. Repeat the flag for up to 8 properties. Their values
        /// may have at most 256 combinations. For each combination, the learner uses its own reports
        /// and what the others tell. Apps must agree to each NAME, and each report tells the values. In
        /// a file: `segments`, a list [default: none].
        #[arg(long = "segments", value_name = "SEGMENTS")]
        segments: Vec<String> = list("Segments")
            .note("A public property that apps agree to tell: name=value,value, such as platform=ios,android. \
                  Put a semicolon before the next one. Empty: none");
        /// Something to measure beside the rewards. Repeat the flag for each metric. NAME:SHARE is a
        /// yes or no, which this share of the assignments report instead of their rewards.
        /// NAME:SHARE:LOW..HIGH is a number. With :at-most=MEAN or :at-least=MEAN, an arm whose mean is
        /// certainly beyond this limit gets no further traffic. In a file: `metrics`, a list.
        #[arg(long = "metric", value_name = "METRIC")]
        metrics: Vec<String> = lines("Metrics", "rows=2")
            .note("One on each line: returned:0.1 is a yes or no that a tenth of the assignments report, \
                  minutes:0.1:0..60 is a number. With :at-most=0.3 or :at-least=5, an arm beyond the limit \
                  gets no traffic");
    }
    "Research" (help_heading = "Research") => {
        /// Research. Devices choose arms by features that never leave them: NAME,NAME=SHARE,..., 1 to
        /// 15 features, each true or false. SHARE is the share of the assignments in which the feature
        /// is true, if that is not about half. Only assignments that explore report. The app must be in
        /// Rust and agree to exactly these names. Arms are drawn anew for each assignment. Read
        /// docs/private-contexts.md first: it says when not to use this.
        #[arg(long, value_name = "FEATURES")]
        private_features: Option<String>;
        /// Share of the assignments that explore, with --private-features: above 0, below 1 [default:
        /// 0.2].
        #[arg(long, value_name = "SHARE")]
        exploration: Option<f64>;
    }
    "Other" (help_heading = "Other") => {
        /// Ask installations whether and why they refuse other experiments. The experiment has one arm
        /// and a category for each reason. An installation reports once in 28 days, if its app has
        /// agreed to that (`report_refusals`). For thousands of installations, an epsilon of 0.5 is
        /// enough.
        #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
              require_equals = true,
              conflicts_with_all = ["arms", "categories", "reward_kind", "mechanism", "levels"])]
        refusals: Option<bool>;
        /// For simulated users only. Their noise can be repeated, and protects nobody.
        #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
              require_equals = true)]
        simulation: Option<bool>;
    }
}

impl ExperimentSettings {
    /// Reads settings from a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?;
        toml::from_str(&text)
            .with_context(|| format!("{} does not describe an experiment", path.display()))
    }

    /// Merges settings: fields of `self` take precedence over those of `file`.
    pub(crate) fn over(self, mut file: Self) -> Self {
        // A goal stands for a learner, so either flag overrides both in the file.
        if self.goal.is_some() || self.learner.is_some() {
            (file.goal, file.learner) = (None, None);
        }
        // The two settings exclude each other.
        if self.window_days.is_some() || self.discount_per_day.is_some() {
            (file.window_days, file.discount_per_day) = (None, None);
        }
        self.merged(file)
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
