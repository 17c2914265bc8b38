//! Views of estimates, as text and as JSON.

use bandana_shared::wire::v1::{Estimand, Estimates, Holdout, Lift};
use serde::Serialize;

use super::alarm_view::{self, AlarmView};
use super::arm_estimate_view::{ArmEstimateView, SymbolView, number};
use super::columns::{Cells, Column};
use super::context_view::{self, FeatureView};
use super::experiment_view::{ShuffledView, estimand_in_words};
use super::lead_view::LeadView;
use super::measurement_view::{self, MetricEstimatesView, SegmentView};
use super::sentence::summary;
use super::table::{Side, Table, visible};

/// Help text on the fields.
pub(crate) const FIELDS: &str = "\
Fields with --json:
  experiment_id
  estimand: mean_reward (in the units of the reward), mean_curved_reward (the mean of g(reward),
    rewards scaled to 0..1) or frequencies (the share of each category)
  reports
  epsilon: of each report, in nats
  shuffled: as in `bandana experiment show`
  alpha
  manipulation_gain
  best_arm: an index; null while no arm is best with confidence 1 - alpha
  lead: null, or how far the arm with the largest estimate is ahead of the rival that is most in
    the way of a verdict
    arm, rival, difference, low, high
    reports_left: further reports until best_arm is known, if all stays as it is; null: never
    coverage: as in lifts
  control_arm
  holdout: null, or
    share: of the installations
    reports, reports_of_others: of rewards
    mean, mean_of_others: null without reports
    earned: the mean of the others less that of the holdout
    low, high: bounds for earned that hold at all times
  lifts: of each other arm over the control arm
    arm, difference
    low, high: bounds that hold for all pairs of arms at all times at once
    relative: the difference as a share of the control arm's mean among the users of both; null
      unless that mean is above 0
    relative_low, relative_high: bounds for relative; null unless that mean is certainly above 0
    coverage: the share of the users to whom both arms were played
  summary: a sentence
  policy_version: a string
  arms: of each arm
    arm: its index
    label, retired, reports, ones
    estimate: null without reports and for categories
    low, high
    weight: share of the traffic
    manipulation_shift
    cost: best_arm, lead and lifts compare rewards less costs
    symbols: empty unless k-ary; for each symbol
      count: reports that say it
      frequency: its debiased share among the true ones
      low, high
      meaning: of a reason for refusals; else null
    coverage: the share of the users for whom the estimate speaks; it is the mean over all users,
      by segment, day and revision
  segments: of each segment
    segmentation, value
    best_arm, lead: as above, with one error level for all segments
    arms: as above, of the installations with this value; weight is of their traffic
  metrics: of each metric
    name
    share: of the assignments that report it
    low, high: of its range
    at_most, at_least: limits on its mean, or null
    arms: as above
    harmful_arms: indices
  features: of each feature of a private context (research); arms are then of those who explore
    feature
    scores: of each arm
      arm, reports
      estimate: of the level of the reward, from -1 to 1, times the feature
      low, high
      score: what devices choose by
  alarms: of each alarm
    name, message
    since_unix_seconds: null if not known
    threshold, seen: in the measure of the alarm
Later versions may add fields. No field changes its meaning.";

/// Stable JSON form of estimates.
#[derive(Debug, Serialize)]
pub(crate) struct EstimatesView {
    experiment_id: String,
    estimand: &'static str,
    reports: u64,
    epsilon: f64,
    shuffled: Option<ShuffledView>,
    alpha: f64,
    manipulation_gain: f64,
    best_arm: Option<u32>,
    lead: Option<LeadView>,
    control_arm: u32,
    lifts: Vec<LiftView>,
    holdout: Option<HoldoutView>,
    summary: String,
    policy_version: String,
    arms: Vec<ArmEstimateView>,
    segments: Vec<SegmentView>,
    metrics: Vec<MetricEstimatesView>,
    features: Vec<FeatureView>,
    alarms: Vec<AlarmView>,
}

/// Stable JSON form of the lift of an arm.
#[derive(Debug, Serialize)]
struct LiftView {
    arm: u32,
    difference: f64,
    low: f64,
    high: f64,
    relative: Option<f64>,
    relative_low: Option<f64>,
    relative_high: Option<f64>,
    coverage: f64,
}

impl From<Lift> for LiftView {
    fn from(lift: Lift) -> Self {
        let Lift { arm, difference, low, high, relative, coverage, .. } = lift;
        let Lift { relative_low, relative_high, .. } = lift;
        Self { arm, difference, low, high, relative, relative_low, relative_high, coverage }
    }
}

/// Stable JSON form of what learning has earned.
#[derive(Debug, Serialize)]
struct HoldoutView {
    share: f64,
    reports: u64,
    reports_of_others: u64,
    mean: Option<f64>,
    mean_of_others: Option<f64>,
    earned: Option<f64>,
    low: f64,
    high: f64,
}

impl From<Holdout> for HoldoutView {
    fn from(shown: Holdout) -> Self {
        let Holdout { share, reports, reports_of_others, mean, mean_of_others, .. } = shown;
        let Holdout { earned, low, high, .. } = shown;
        Self { share, reports, reports_of_others, mean, mean_of_others, earned, low, high }
    }
}

impl HoldoutView {
    /// A sentence on what learning has earned.
    fn describe(&self) -> String {
        let percent = format!("{}%", (100.0 * self.share * 1e4).round() / 1e4);
        let Some(((earned, own), others)) = self.earned.zip(self.mean).zip(self.mean_of_others)
        else {
            return format!(
                "\n{percent} of the installations are held out; there are reports of {} of them and of {} \
                 others, too few to tell what learning has earned\n",
                self.reports, self.reports_of_others
            );
        };
        format!(
            "\nlearning has earned {} for each assignment ({} to {}, at all times): {} in {} reports, beside {} \
             in {} of the {percent} of the installations that are held out and get all arms evenly\n",
            signed(earned),
            signed(self.low),
            signed(self.high),
            number(others),
            self.reports_of_others,
            number(own),
            self.reports,
        )
    }
}

impl From<Estimates> for EstimatesView {
    fn from(estimates: Estimates) -> Self {
        Self {
            summary: summary(&estimates) + &measurement_view::harm(&estimates),
            lead: estimates.lead.map(Into::into),
            estimand: estimand_name(estimates.estimand()),
            experiment_id: estimates.experiment_id,
            reports: estimates.reports,
            epsilon: estimates.epsilon,
            shuffled: estimates.shuffled.map(Into::into),
            alpha: estimates.alpha,
            manipulation_gain: estimates.manipulation_gain,
            best_arm: estimates.best_arm,
            policy_version: estimates.policy_version.to_string(),
            control_arm: estimates.control_arm,
            lifts: estimates.lifts.into_iter().map(Into::into).collect(),
            holdout: estimates.holdout.map(Into::into),
            arms: estimates.arms.into_iter().map(Into::into).collect(),
            segments: SegmentView::all(estimates.segments),
            metrics: estimates.metrics.into_iter().map(Into::into).collect(),
            features: estimates.features.into_iter().map(Into::into).collect(),
            alarms: estimates.alarms.into_iter().map(Into::into).collect(),
        }
    }
}

impl EstimatesView {
    /// The table of estimates, preceded by the estimand and followed by the best arm.
    pub(crate) fn describe(&self, columns: Option<usize>) -> String {
        let confidence = confidence(self.alpha);
        let mut table = Table::new([
            ("arm", Side::Right),
            ("label", Side::Left),
            ("reports", Side::Right),
            ("estimate", Side::Right),
            ("low", Side::Right),
            ("high", Side::Right),
            ("traffic", Side::Right),
            ("shift", Side::Right),
            ("", Side::Left),
        ]);
        for arm in &self.arms {
            table.push([
                arm.arm.to_string(),
                visible(&arm.label),
                arm.reports.to_string(),
                arm.estimate.map_or_else(|| "-".to_owned(), number),
                number(arm.low),
                number(arm.high),
                format!("{:.1}%", 100.0 * arm.weight),
                number(arm.manipulation_shift),
                if arm.retired { "retired" } else { "" }.to_owned(),
            ]);
        }
        let best = match self.best_arm.and_then(|best| self.arms.iter().find(|a| a.arm == best)) {
            Some(arm) => {
                format!("best with confidence {confidence}: {} ({})", arm.arm, visible(&arm.label))
            }
            None if self.estimand == "frequencies" => {
                "categories have no order, so no arm is best".to_owned()
            }
            None => format!("no arm is best with confidence {confidence} yet"),
        };
        let shuffled = self.shuffled.as_ref().map_or_else(String::new, |shuffled| {
            format!("shuffled in batches of {}: {}\n", shuffled.batch, shuffled.describe())
        });
        format!(
            "{}\n\n{}: {} reports, policy {}\nepsilon: {} nats for each report\n{}estimated: {}\nlow and high: bounds that hold at all times \
             at once, each arm with confidence {confidence}\n\n{}\n{best}\n",
            self.summary,
            self.experiment_id,
            self.reports,
            self.policy_version,
            self.epsilon,
            shuffled,
            estimand_in_words(self.estimand),
            table.render(columns),
        ) + &self.holdout.as_ref().map_or_else(String::new, HoldoutView::describe)
            + &self.lifted(columns)
            + &self.frequencies(columns)
            + &measurement_view::describe(&self.metrics, &self.segments, columns)
            + &context_view::describe(&self.features, |arm| self.label(arm), columns)
            + &alarm_view::describe(&self.alarms)
    }

    fn label(&self, arm: u32) -> String {
        let found = self.arms.iter().find(|shown| shown.arm == arm);
        found.map_or_else(String::new, |shown| visible(&shown.label))
    }

    /// A table of the lifts over the control arm, if there are any.
    fn lifted(&self, columns: Option<usize>) -> String {
        let label = |arm: u32| self.label(arm);
        let mut table = Table::new([
            ("arm", Side::Right),
            ("label", Side::Left),
            ("lift", Side::Right),
            ("low", Side::Right),
            ("high", Side::Right),
            ("relative", Side::Right),
            ("from", Side::Right),
            ("to", Side::Right),
        ]);
        let percent = |share: f64| format!("{:+.1}%", 100.0 * share);
        for lift in &self.lifts {
            table.push([
                lift.arm.to_string(),
                label(lift.arm),
                signed(lift.difference),
                signed(lift.low),
                signed(lift.high),
                lift.relative.map_or_else(|| "-".to_owned(), percent),
                lift.relative_low.map_or_else(|| "-".to_owned(), percent),
                lift.relative_high.map_or_else(|| "-".to_owned(), percent),
            ]);
        }
        if self.lifts.is_empty() {
            return String::new();
        }
        format!(
            "\nlift over {} ({}): bounds that hold for all pairs of arms at all times at once, with \
             confidence {}\n\n{}",
            self.control_arm,
            label(self.control_arm),
            confidence(self.alpha),
            table.render(columns)
        )
    }

    /// Tables of the symbols' frequencies, if there are symbols: of all arms, and of categories in each
    /// segment too.
    fn frequencies(&self, columns: Option<usize>) -> String {
        if self.arms.iter().all(|arm| arm.symbols.is_empty()) {
            return String::new();
        }
        let of_categories = self.estimand == "frequencies";
        let what = if of_categories { "category" } else { "level" };
        let title = format!("\nshare of each {what}, before randomized response");
        let mut text = format!("{title}\n\n{}", frequencies(&self.arms, what, columns));
        for (segment, arms) in self.segments.iter().filter(|_| of_categories).map(SegmentView::arms)
        {
            let segment = visible(segment);
            let table = frequencies(arms, what, columns);
            text.extend([&title, ", in ", &*segment, "\n\n", &*table]);
        }
        text
    }

    /// One line: the estimand, the estimate and traffic of each arm in play, and active alarms.
    pub(crate) fn line(&self) -> String {
        let arm = |arm: &ArmEstimateView| {
            let estimate = arm.estimate.map_or_else(|| "-".to_owned(), number);
            format!("; {} {estimate} at {:.1}%", visible(&arm.label), 100.0 * arm.weight)
        };
        let estimand = match self.estimand {
            "mean_reward" => "mean reward",
            "frequencies" => "no mean",
            _ => "mean g(reward)",
        };
        let arms: String = self.arms.iter().filter(|arm| !arm.retired).map(arm).collect();
        let alarms = match &self.alarms[..] {
            [] => String::new(),
            alarms => format!("; alarms: {}", alarm_view::names(alarms)),
        };
        format!("{} reports, {estimand} and traffic{arms}{alarms}\n", self.reports)
    }

    /// One record per arm, in full precision: of the rewards in all segments, then in each of them,
    /// then of each metric.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let rows = self.rows();
        let column = |name: &str, cells| Column { name: name.to_owned(), cells };
        let repeated = |text: &str| Cells::Text(vec![text.to_owned(); rows.len()]);
        let always = |number| Cells::Numbers(vec![number; rows.len()]);
        let numbers = |of: fn(&ArmEstimateView) -> f64| {
            Cells::Numbers(rows.iter().map(|row| of(row.arm)).collect())
        };
        let counts = |of: fn(&ArmEstimateView) -> u64| {
            Cells::Counts(rows.iter().map(|row| of(row.arm)).collect())
        };
        let mut columns = vec![
            column("experiment_id", repeated(&self.experiment_id)),
            column("estimand", repeated(self.estimand)),
            column("policy_version", repeated(&self.policy_version)),
            column("alpha", always(self.alpha)),
            column("manipulation_gain", always(self.manipulation_gain)),
            column("arm", Cells::Places(rows.iter().map(|row| row.arm.arm).collect())),
            column("label", Cells::Text(rows.iter().map(|row| row.arm.label.clone()).collect())),
            column("retired", Cells::Flags(rows.iter().map(|row| row.arm.retired).collect())),
            column("reports", counts(|arm| arm.reports)),
            column("ones", counts(|arm| arm.ones)),
            column("estimate", Cells::Estimates(rows.iter().map(|row| row.arm.estimate).collect())),
            column("low", numbers(|arm| arm.low)),
            column("high", numbers(|arm| arm.high)),
            column("weight", numbers(|arm| arm.weight)),
            column("manipulation_shift", numbers(|arm| arm.manipulation_shift)),
            column("coverage", numbers(|arm| arm.coverage)),
            column("cost", numbers(|arm| arm.cost)),
        ];
        // Experiments that measure the rewards only have the columns that they always had.
        if !self.segments.is_empty() {
            let segments = rows.iter().map(|row| row.segment.to_owned()).collect();
            columns.push(column("segment", Cells::Text(segments)));
        }
        if !self.metrics.is_empty() {
            let metrics = rows.iter().map(|row| row.metric.to_owned()).collect();
            columns.push(column("metric", Cells::Text(metrics)));
            let harmful = rows.iter().map(|row| row.is_harmful).collect();
            columns.push(column("harmful", Cells::Flags(harmful)));
        }
        columns.extend(symbol_columns(&rows));
        columns
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let of_rewards = |segment, arm| Row { segment, metric: "rewards", is_harmful: false, arm };
        let mut rows: Vec<Row<'_>> = self.arms.iter().map(|arm| of_rewards("", arm)).collect();
        for (segment, arms) in self.segments.iter().map(SegmentView::arms) {
            rows.extend(arms.iter().map(|arm| of_rewards(segment, arm)));
        }
        for metric in &self.metrics {
            let row =
                |(arm, is_harmful)| Row { segment: "", metric: metric.name(), is_harmful, arm };
            rows.extend(metric.arms().map(row));
        }
        rows
    }
}

fn frequencies(arms: &[ArmEstimateView], what: &str, columns: Option<usize>) -> String {
    let mut table = Table::new([
        ("arm", Side::Right),
        (what, Side::Right),
        ("said by", Side::Right),
        ("share", Side::Right),
        ("low", Side::Right),
        ("high", Side::Right),
        ("", Side::Left),
    ]);
    for arm in arms {
        for (place, symbol) in arm.symbols.iter().enumerate() {
            table.push([
                arm.arm.to_string(),
                place.to_string(),
                symbol.count.to_string(),
                symbol.frequency.map_or_else(|| "-".to_owned(), number),
                number(symbol.low),
                number(symbol.high),
                symbol.meaning.as_deref().map(visible).unwrap_or_default(),
            ]);
        }
    }
    table.render(columns)
}

/// A record of an export.
struct Row<'a> {
    /// Empty for all segments.
    segment: &'a str,
    metric: &'a str,
    is_harmful: bool,
    arm: &'a ArmEstimateView,
}

fn symbol_columns(rows: &[Row<'_>]) -> Vec<Column> {
    let column = |name: String, cells| Column { name, cells };
    let symbols = rows.iter().map(|row| row.arm.symbols.len()).min().unwrap_or(0);
    let of_symbol = |place: usize| {
        let of = |part: fn(&SymbolView) -> f64| {
            Cells::Numbers(rows.iter().map(|row| part(&row.arm.symbols[place])).collect())
        };
        let counts = rows.iter().map(|row| row.arm.symbols[place].count).collect();
        let shares = rows.iter().map(|row| row.arm.symbols[place].frequency).collect();
        [
            column(format!("symbol_{place}"), Cells::Counts(counts)),
            column(format!("frequency_{place}"), Cells::Estimates(shares)),
            column(format!("frequency_{place}_low"), of(|symbol| symbol.low)),
            column(format!("frequency_{place}_high"), of(|symbol| symbol.high)),
        ]
    };
    (0..symbols).flat_map(of_symbol).collect()
}

/// The name of an estimand in JSON and in exports.
pub(super) fn estimand_name(estimand: Estimand) -> &'static str {
    match estimand {
        Estimand::MeanReward => "mean_reward",
        Estimand::MeanCurvedReward => "mean_curved_reward",
        Estimand::Frequencies => "frequencies",
        Estimand::Unspecified => "unknown",
    }
}

/// A confidence level, in percent.
pub(super) fn confidence(alpha: f64) -> String {
    let percent = 100.0 * (1.0 - alpha);
    format!("{}%", (percent * 1e6).round() / 1e6)
}

fn signed(value: f64) -> String {
    format!("{value:+.4}")
}
