//! Views of an experiment, as text and as JSON.

use anyhow::Context as _;
use bandana_learners::Learner;
use bandana_shared::curve::Mechanism;
use bandana_shared::estimate::Estimand;
use bandana_shared::participation::Sticky;
use bandana_shared::rewards::OutOfRange;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::wire::WireError;
use bandana_shared::wire::v1::experiment_status::Memory;
use bandana_shared::wire::v1::{self, ExperimentState, ExperimentStatus};
use serde::Serialize;
use serde_json::{Map, Value};

use super::alarm_view::{self, AlarmView};
use super::context_view::ContextView;
use super::experiment_settings::ExperimentSettings;
use super::experiment_settings::table::{learning_numbers, learning_rows};
use super::measurement_view::{self, MetricView, SegmentationView};
use super::record_view::RecordView;
use super::table::{Side, Table, visible};
use crate::estimates::{CentralLoss, central_loss};

/// Help text on the fields.
pub(crate) fn fields() -> String {
    let learning: Vec<_> =
        ExperimentSettings::LEARNING_NUMBERS.iter().map(|number| number.key).collect();
    FIELDS.replace("LEARNING", &learning.join(", "))
}

const FIELDS: &str = "\
Fields with --json:
  experiment_id, revision
  digest: hexadecimal
  state: draft, running, paused or stopped
  learner: ldp-ts, ldp-ucb, truncated-ts, rand-ada-kl, top-two or uniform
  floor_weight
  window_days, discount_per_day: what the learner forgets; both are null if it forgets nothing
  LEARNING, reports
  policy_version: a string, since some programs lose digits of such large numbers
  simulation
  epsilon, certified_epsilon: of each report, in nats
  mechanism: linear, quadratic, exponential, randomized-response or k-ary
  curvature: null unless quadratic
  symbols: of a report; null unless k-ary
  rewards
    kind: binary, bounded or categorical
    low, high
    out_of_range: refuse or clamp
    default
  estimand: mean_reward, mean_curved_reward or frequencies
  attribution_window_seconds, release_delay_seconds_max
  shuffled: null unless reports are shuffled
    batch, delta
    central_epsilon: of a report among its batch, in nats
    central_epsilon_with_colluders: the same if a tenth of the batch colludes with the server
  sticky: null if arms are drawn anew
    until_weight_below
    report_days: 0 means once
  layer: null, or name, from, to
  enrolment_share
  segmentations: name, values
  metrics: of each metric
    name, kind, low, high
    share: of the assignments that report it
    at_most, at_least: limits on its mean, or null
  holdout_group: share of the installations that are held out
  private_context: null, or (research)
    features: of each feature name, and true_share of the assignments
    exploration_share: of the assignments
  arms: of each arm
    arm: its index
    label, retired
  signatures: public_key, expires_at_unix_seconds
  alarms: of each alarm
    name, message
    since_unix_seconds: null if not known
    threshold, seen: in the measure of the alarm
  archived: whether lists leave it out
  record
    title, hypothesis, owner, tags, links
    decision: null, or decision, reason and arm
    control_arm
    on_harm: stop-arm or pause
    harm_pauses: of each pause
      arm, metric, unix_seconds
      acknowledged: whether the experiment was resumed since
    priors: what the learner began with
      arm, mean
      worth: in private reports
    prior_discount: the share of the worth that counts
    arm_costs: arm, cost
Later versions may add fields. No field changes its meaning.";

/// Stable JSON form of an experiment.
#[derive(Debug, Serialize)]
pub(crate) struct ExperimentView {
    experiment_id: String,
    revision: u32,
    digest: String,
    state: &'static str,
    learner: &'static str,
    floor_weight: f64,
    window_days: Option<u32>,
    discount_per_day: Option<f64>,
    #[serde(flatten)]
    learning: Map<String, Value>,
    reports: u64,
    policy_version: String,
    simulation: bool,
    epsilon: f64,
    certified_epsilon: f64,
    mechanism: &'static str,
    curvature: Option<f64>,
    symbols: Option<u8>,
    rewards: RewardsView,
    estimand: &'static str,
    attribution_window_seconds: u32,
    release_delay_seconds_max: u32,
    shuffled: Option<ShuffledView>,
    sticky: Option<StickyView>,
    layer: Option<LayerView>,
    enrolment_share: f64,
    holdout_group: f64,
    segmentations: Vec<SegmentationView>,
    metrics: Vec<MetricView>,
    private_context: Option<ContextView>,
    arms: Vec<ArmView>,
    signatures: Vec<SignatureView>,
    alarms: Vec<AlarmView>,
    archived: bool,
    record: RecordView,
}

/// Stable JSON form of what shuffling is worth.
#[derive(Debug, Serialize)]
pub(super) struct ShuffledView {
    pub(super) batch: u32,
    delta: f64,
    central_epsilon: f64,
    central_epsilon_with_colluders: f64,
}

impl From<v1::Shuffled> for ShuffledView {
    fn from(shuffled: v1::Shuffled) -> Self {
        let v1::Shuffled { batch, delta, central_epsilon, central_epsilon_with_colluders } =
            shuffled;
        Self { batch, delta, central_epsilon, central_epsilon_with_colluders }
    }
}

impl From<CentralLoss> for ShuffledView {
    fn from(loss: CentralLoss) -> Self {
        let CentralLoss { batch, delta, central_epsilon, central_epsilon_with_colluders } = loss;
        Self { batch: batch.get(), delta, central_epsilon, central_epsilon_with_colluders }
    }
}

impl ShuffledView {
    pub(super) fn describe(&self) -> String {
        format!(
            "{:.4} nats for each report, delta {:e}; {:.4} if a tenth of a batch colludes with the \
             server. If the relay colludes, it is that of a report without shuffling",
            self.central_epsilon, self.delta, self.central_epsilon_with_colluders
        )
    }
}

/// Stable JSON form of how long arms are kept.
#[derive(Debug, Serialize)]
struct StickyView {
    until_weight_below: f64,
    report_days: u32,
}

impl From<Sticky> for StickyView {
    fn from(sticky: Sticky) -> Self {
        let until_weight_below = sticky.until_weight_below.share();
        Self { until_weight_below, report_days: sticky.report_days }
    }
}

impl StickyView {
    fn describe(&self) -> String {
        let reports = match self.report_days {
            0 => "one report".to_owned(),
            days => format!("one report in each {days} days"),
        };
        format!("kept until one weighs less than {}; {reports}", self.until_weight_below)
    }
}

/// Stable JSON form of a part of a layer.
#[derive(Debug, Serialize)]
struct LayerView {
    name: String,
    from: f64,
    to: f64,
}

#[derive(Debug, Serialize)]
struct RewardsView {
    kind: &'static str,
    low: f64,
    high: f64,
    out_of_range: &'static str,
    default: f64,
}

#[derive(Debug, Serialize)]
struct ArmView {
    arm: usize,
    label: String,
    retired: bool,
}

#[derive(Debug, Serialize)]
struct SignatureView {
    public_key: String,
    expires_at_unix_seconds: u64,
    #[serde(skip)]
    expires: String,
}

/// Stable JSON form of an experiment that was deleted.
#[derive(Debug, Serialize)]
pub(crate) struct Deleted {
    experiment_id: String,
    deleted: bool,
}

impl Deleted {
    pub(crate) fn new(experiment_id: String) -> Self {
        Self { experiment_id, deleted: true }
    }
}

impl ExperimentView {
    /// Converts a server's message.
    pub(crate) fn new(status: &ExperimentStatus) -> anyhow::Result<Self> {
        let specification = current_revision(status)
            .context("what the server sent is not an experiment that this program understands")?;
        let signature = |message| {
            let signature = Signature::try_from(message)?;
            anyhow::Ok(SignatureView {
                public_key: signature.key().to_string(),
                expires_at_unix_seconds: signature.expires().get(),
                expires: signature.expires().to_string(),
            })
        };
        let signatures = status.signatures.iter().map(signature).collect::<Result<_, _>>()?;
        let (mechanism, curvature) = mechanism(&specification);
        let timing = specification.timing();
        let (segmentations, metrics) = measurement_view::of(specification.measurement());
        Ok(Self {
            experiment_id: specification.experiment_id().to_string(),
            revision: specification.revision().get(),
            digest: specification.digest().to_string(),
            state: state(status.state()),
            learner: learner(status),
            floor_weight: status.floor_weight,
            window_days: match status.memory {
                Some(Memory::WindowDays(days)) => Some(days),
                _ => None,
            },
            discount_per_day: match status.memory {
                Some(Memory::DiscountPerDay(factor)) => Some(factor),
                _ => None,
            },
            learning: learning_numbers(status),
            reports: status.reports,
            policy_version: status.policy_version.to_string(),
            simulation: specification.is_simulation(),
            epsilon: specification.epsilon().get(),
            certified_epsilon: specification.certified_epsilon(),
            mechanism,
            curvature,
            symbols: match specification.mechanism() {
                Mechanism::Kary(alphabet) => Some(alphabet.len()),
                _ => None,
            },
            rewards: rewards(&specification),
            estimand: match specification.estimand() {
                Estimand::MeanReward(_) => "mean_reward",
                Estimand::MeanCurvedReward => "mean_curved_reward",
                Estimand::Frequencies => "frequencies",
            },
            attribution_window_seconds: timing.attribution_window_seconds,
            release_delay_seconds_max: timing.release_delay_seconds_max,
            shuffled: central_loss(&specification).map(Into::into),
            sticky: specification.participation().sticky.map(StickyView::from),
            layer: specification.participation().layer.as_ref().map(|part| LayerView {
                name: part.name().to_string(),
                from: part.from().share(),
                to: part.to().share(),
            }),
            enrolment_share: specification.participation().enrolment.share(),
            holdout_group: specification.measurement().holdout.share(),
            segmentations,
            metrics,
            private_context: specification.private_context().map(ContextView::from),
            arms: arms(&specification),
            signatures,
            alarms: status.alarms.iter().cloned().map(Into::into).collect(),
            archived: status.archived,
            record: status.record.clone().unwrap_or_default().into(),
        })
    }

    /// One line: name and state.
    pub(crate) fn line(&self) -> String {
        format!("{} is {}, revision {}\n", self.experiment_id, self.stands(), self.revision)
    }

    /// Whether the best arm may have a lower mean reward than another one.
    pub(crate) fn has_nonlinear_estimand(&self) -> bool {
        self.estimand == "mean_curved_reward"
    }

    fn stands(&self) -> String {
        format!("{}{}", self.state, if self.archived { " and archived" } else { "" })
    }

    fn label(&self, arm: u32) -> String {
        let found = self.arms.iter().find(|shown| shown.arm == arm as usize);
        found.map_or_else(|| format!("arm {arm}"), |arm| visible(&arm.label))
    }

    /// Rows on who takes part.
    fn participation(&self) -> Vec<(&'static str, String)> {
        let arms = match (&self.sticky, &self.private_context) {
            (Some(sticky), _) => sticky.describe(),
            (None, Some(_)) => {
                "chosen on the device; drawn anew where an assignment explores".to_owned()
            }
            (None, None) => {
                "drawn anew for each assignment, which can be reported each time".to_owned()
            }
        };
        let enrolled = format!("{} of the installations", self.enrolment_share);
        let mut rows = vec![("arms", arms), ("enrolled", enrolled)];
        if let Some(LayerView { name, from, to }) = &self.layer {
            rows.push(("layer", format!("{name}, {from} to {to}")));
        }
        if self.holdout_group > 0.0 {
            let share = self.holdout_group;
            rows.push((
                "held out",
                format!("{share} of the installations, which get all arms evenly"),
            ));
        }
        rows
    }

    /// The rows on what the page of an experiment does not show elsewhere.
    pub(crate) fn details(&self) -> Vec<(&'static str, String)> {
        const ELSEWHERE: [&str; 15] = [
            "experiment",
            "title",
            "hypothesis",
            "owner",
            "tags",
            "links",
            "decision",
            "because",
            "control",
            "on harm",
            "harm",
            "state",
            "reports",
            "policy",
            "users",
        ];
        let rows = self.rows().into_iter();
        rows.filter(|(name, _)| !ELSEWHERE.contains(name)).collect()
    }

    /// All properties.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let RewardsView { kind, low, high, out_of_range, default } = &self.rewards;
        let mechanism = match (self.curvature, self.symbols) {
            (Some(curvature), _) => format!("{}, curvature {curvature}", self.mechanism),
            (_, Some(symbols)) => format!("{}, {symbols} symbols", self.mechanism),
            _ => self.mechanism.to_owned(),
        };
        let memory = match (self.window_days, self.discount_per_day) {
            (Some(days), _) => format!("{days} days"),
            (_, Some(factor)) => format!("discount of {factor} per day"),
            _ => "everything".to_owned(),
        };
        let mut rows = vec![
            ("experiment", self.experiment_id.clone()),
            ("state", self.stands()),
            ("users", if self.simulation { "simulated" } else { "real" }.to_owned()),
            ("revision", self.revision.to_string()),
            ("digest", self.digest.clone()),
            ("reports", self.reports.to_string()),
            ("learner", format!("{}, floor weight {}", self.learner, self.floor_weight)),
            ("memory", memory),
        ];
        rows.extend(learning_rows(&self.learning));
        rows.extend([
            ("epsilon", format!("{} nats for each report", self.epsilon)),
            ("certified epsilon", format!("{} nats", self.certified_epsilon)),
            ("rewards", format!("{kind}, {low} to {high}, out of range: {out_of_range}")),
            ("without a reward", format!("{default} is reported")),
            ("mechanism", mechanism),
            ("estimated", estimand_in_words(self.estimand).to_owned()),
            ("attribution window", format!("{} s", self.attribution_window_seconds)),
            ("release delay", format!("up to {} s more", self.release_delay_seconds_max)),
            ("policy", self.policy_version.clone()),
        ]);
        rows.extend(self.participation());
        rows.extend(measurement_view::rows(&self.segmentations, &self.metrics));
        rows.extend(self.private_context.as_ref().map(ContextView::row));
        if let Some(shuffled) = &self.shuffled {
            rows.push(("shuffled", format!("in batches of {}, by a relay", shuffled.batch)));
            rows.push(("central epsilon", shuffled.describe()));
        }
        rows.splice(1..1, self.record.rows(|arm| self.label(arm)));
        for SignatureView { public_key, expires, .. } in &self.signatures {
            rows.push(("signed", format!("by {public_key} until {expires}")));
        }
        if self.signatures.is_empty() {
            rows.push(("signed", "by nobody".to_owned()));
        }
        rows
    }

    /// All properties, one per line, and the arms.
    pub(crate) fn describe(&self, columns: Option<usize>) -> String {
        let rows = self.rows();
        let lines = rows.iter().map(|(name, value)| format!("{name:<20}{value}\n"));
        let mut table = Table::new([("arm", Side::Right), ("label", Side::Left), ("", Side::Left)]);
        for ArmView { arm, label, retired } in &self.arms {
            let note = if *retired { "retired" } else { "" };
            table.push([arm.to_string(), visible(label), note.to_owned()]);
        }
        let alarms = alarm_view::describe(&self.alarms);
        lines.chain(["\n".to_owned(), table.render(columns), alarms]).collect()
    }
}

/// The estimand in words.
pub(crate) fn estimand_in_words(estimand: &str) -> &'static str {
    match estimand {
        "mean_reward" => "mean reward",
        "frequencies" => "share of each category",
        _ => "mean of g(reward), whose order of the arms can differ from that of the mean rewards",
    }
}

/// The name of a state.
pub(super) fn state(state: ExperimentState) -> &'static str {
    match state {
        ExperimentState::Draft => "draft",
        ExperimentState::Running => "running",
        ExperimentState::Paused => "paused",
        ExperimentState::Stopped => "stopped",
        ExperimentState::Unspecified => "unknown",
    }
}

pub(crate) fn learner(status: &ExperimentStatus) -> &'static str {
    Learner::from_wire(status.learner()).map_or("unknown", Learner::name)
}

fn mechanism(specification: &Specification) -> (&'static str, Option<f64>) {
    match specification.mechanism() {
        Mechanism::Linear => ("linear", None),
        Mechanism::Quadratic(curvature) => ("quadratic", Some(curvature.get())),
        Mechanism::Exponential => ("exponential", None),
        Mechanism::RandomizedResponse => ("randomized-response", None),
        Mechanism::Kary(_) => ("k-ary", None),
    }
}

fn rewards(specification: &Specification) -> RewardsView {
    let rewards = specification.rewards();
    RewardsView {
        kind: measurement_view::kind(rewards),
        low: rewards.range().low(),
        high: rewards.range().high(),
        out_of_range: match rewards.out_of_range() {
            OutOfRange::Refuse => "refuse",
            OutOfRange::Clamp => "clamp",
        },
        default: rewards.default_reward(),
    }
}

fn arms(specification: &Specification) -> Vec<ArmView> {
    let view = |(arm, shown): (usize, &bandana_shared::specification::Arm)| ArmView {
        arm,
        label: shown.label().to_owned(),
        retired: shown.is_retired(),
    };
    specification.arms().iter().enumerate().map(view).collect()
}

/// The current revision, if its digest matches: no field of it is unknown to this program.
pub(crate) fn current_revision(status: &ExperimentStatus) -> Result<Specification, WireError> {
    let message = status.specification.as_ref().ok_or(WireError::Missing("specification"))?;
    let specification = Specification::try_from(message)?;
    if specification.digest().as_bytes()[..] == status.digest[..] {
        Ok(specification)
    } else {
        Err(WireError::DigestMismatch)
    }
}
