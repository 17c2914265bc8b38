//! `bandana doctor`: what a device sees of an experiment, and whether it would take part.

use bandana_edge::auth::APP_KEY_HEADER;
use bandana_edge::clock::{Clock as _, SystemClock};
use bandana_edge::explain::explain;
use bandana_edge::operator_client::{ConnectError, PATIENCE, TlsSource, Wait};
use bandana_edge::outgoing::with_patience;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::cells::{Measurement, Metric};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{Day, ExperimentId, StoreId, UnixSeconds};
use bandana_shared::participation::{Participation, Sticky};
use bandana_shared::policy::Policy;
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::signing::{PublicKey, Signature};
use bandana_shared::specification::{ReleaseTiming, Specification};
use bandana_shared::transparency::{NoteKey, View, Witnessed};
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{GetExperimentRequest, GetExperimentResponse};
use bandana_shared::wire::{signatures, v1};
use clap::{Args, ValueHint};
use serde::Serialize;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Request, Status};

use super::connection::{block_on, experiment_id};
use super::{say, say_json};
use crate::estimates::central_loss;
use crate::views::experiment_settings::values::RewardKind as Kind;
use crate::views::experiment_settings::{APP_BUDGET, PAGE_BUDGET};
use crate::views::failure::Failure;
use crate::views::table::visible;

/// Tell whether a device would take part in an experiment.
///
/// It asks the server's device port what a device asks, by gRPC, and compares the answer with what
/// your app accepts. Give the flags the same values as your app's code. It sends nothing but the
/// name of the experiment. It does not know what a device has spent. It does not know whether the
/// experiment was stopped either: `bandana experiment show` shows that.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Fields with --json:
  experiment_id, takes_part
  findings: of each check
    check: server, specification, simulation, epsilon, budget, rewards, segments, metrics,
      private-context, attribution-window, release-delay, shuffling, signatures, log,
      participation, policy or clock
    good, says

The exit code is 4 if a device would not take part.")]
pub(super) struct Doctor {
    /// Id of the experiment.
    #[arg(value_name = "ID", value_parser = experiment_id)]
    experiment: ExperimentId,
    /// URL of the device service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7301",
          value_hint = ValueHint::Url)]
    server: Uri,
    #[command(flatten)]
    tls: TlsSource,
    #[command(flatten)]
    wait: Wait,
    /// Key of the app, if the server asks for one.
    #[arg(long, value_name = "KEY")]
    app_key: Option<MetadataValue<Ascii>>,
    /// The largest privacy loss of a report that the app accepts, in nats.
    #[arg(long, value_name = "NATS", default_value_t = 1.0)]
    epsilon_max: f64,
    /// The app's budget, in nats: the smaller of its budget for a window of days and its budget for
    /// ever. Apps have 5 and web pages 2, unless they set another one.
    #[arg(long, value_name = "NATS", default_value_t = APP_BUDGET)]
    budget: f64,
    /// The kind of rewards that the app declares.
    #[arg(long, value_enum, default_value_t = Kind::Binary)]
    reward_kind: Kind,
    /// The lowest and the highest reward of the app, LOW:HIGH. For categories, HIGH is the last one
    /// [default: 0:1].
    #[arg(long, value_name = "LOW:HIGH", allow_hyphen_values = true)]
    range: Option<String>,
    /// The shortest random delay of reports that the app accepts, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    least_release_delay_seconds: u32,
    /// A public key that the app pins. Repeat the flag for a countersigner's key.
    #[arg(long = "signer", value_name = "KEY")]
    signers: Vec<PublicKey>,
    /// Key of the public log that the app pins.
    #[arg(long, value_name = "NAME+ID+KEY", requires = "witnesses")]
    log: Option<NoteKey>,
    /// Key of a witness of that log. Repeat the flag for each.
    #[arg(long = "witness", value_name = "NAME+ID+KEY", requires = "log")]
    witnesses: Vec<NoteKey>,
    /// How many witnesses must have seen what the log says. If unset, more than half.
    #[arg(long, value_name = "NUMBER", requires = "log")]
    log_quorum: Option<usize>,
    /// The app accepts reports that a relay shuffles.
    #[arg(long)]
    shuffled: bool,
    /// The largest central epsilon that the app accepts of a batch, at a delta of 10^-6, if a tenth of the
    /// batch works with the aggregator.
    #[arg(long, value_name = "NUMBER", requires = "shuffled")]
    central_epsilon: Option<f64>,
    /// A segmentation that the app agrees to, with its value: NAME=VALUE, such as platform=ios.
    /// Repeat the flag for each.
    #[arg(long = "segment", value_name = "SEGMENT")]
    segments: Vec<String>,
    /// A metric that the app declares: NAME for a yes or no, NAME:LOW..HIGH for a number. Repeat
    /// the flag for each.
    #[arg(long = "metric", value_name = "METRIC")]
    metrics: Vec<String>,
    /// The features of a private context that the app agrees to, in their order: NAME,NAME,...
    /// (research).
    #[arg(long, value_name = "FEATURES")]
    private_features: Option<String>,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

/// One thing that a device looks at.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    good: bool,
    says: String,
}

/// Stable JSON form of what was found.
#[derive(Debug, Serialize)]
struct DoctorView {
    experiment_id: String,
    takes_part: bool,
    findings: Vec<Finding>,
}

impl DoctorView {
    fn new(experiment: &ExperimentId) -> Self {
        Self { experiment_id: experiment.to_string(), takes_part: true, findings: Vec::new() }
    }

    fn note(&mut self, check: &'static str, good: bool, says: impl Into<String>) {
        self.takes_part &= good;
        self.findings.push(Finding { check, good, says: says.into() });
    }

    fn describe(&self) -> String {
        let line = |one: &Finding| {
            let mark = if one.good { "good" } else { "BAD " };
            // Half of the words are the server's.
            format!("{mark}  {:<19}{}\n", one.check, visible(&one.says))
        };
        let verdict = if self.takes_part {
            "devices with these terms take part"
        } else if self.findings.iter().all(|one| one.good || one.check == "budget") {
            "devices with these terms show arms, and report nothing: their budget is too small"
        } else {
            "devices with these terms show their default, and report nothing"
        };
        self.findings.iter().map(line).chain([format!("{verdict}\n")]).collect()
    }
}

pub(super) fn run(doctor: &Doctor) -> anyhow::Result<()> {
    let terms = doctor.terms()?;
    let mut view = DoctorView::new(&doctor.experiment);
    let answer = block_on(async { Ok(doctor.ask().await?) })?;
    match answer {
        Ok(answer) => doctor.examine(&answer, terms, &mut view),
        Err(status) => {
            let mut says = format!("the server answers {:?}: {}", status.code(), status.message());
            if status.code() == Code::Unimplemented {
                says += ". If this is a relay, ask the server behind it: doctor looks at no relay";
            }
            view.note("server", false, says);
        }
    }
    if doctor.json {
        say_json(&view)?;
    } else {
        say(&view.describe())?;
    }
    if view.takes_part {
        return Ok(());
    }
    let bad = view.findings.iter().filter(|one| !one.good).map(|one| one.check);
    let mut bad: Vec<_> = bad.collect();
    bad.dedup();
    let bad = bad.join(", ");
    Err(Failure::Refused(format!("a device would report nothing; look at: {bad}")).into())
}

impl Doctor {
    /// The epsilon that the app accepts, its budget, and the rewards that it declares.
    fn terms(&self) -> Result<(Epsilon, PrivacyLoss, Rewards), Failure> {
        let unusable = |error: &dyn std::error::Error| Failure::Incomplete(error.to_string());
        let budget = PrivacyLoss::new(self.budget).map_err(|error| unusable(&error))?;
        let epsilon = Epsilon::new(self.epsilon_max).map_err(|error| unusable(&error))?;
        let (low, high) = self.ends()?;
        let range = RewardRange::new(low, high).map_err(|error| unusable(&error))?;
        let kind = match self.reward_kind {
            Kind::Binary => RewardKind::Binary,
            Kind::Bounded => RewardKind::Bounded,
            Kind::Categorical => RewardKind::Categorical,
        };
        let beyond =
            if kind == RewardKind::Bounded { OutOfRange::Clamp } else { OutOfRange::Refuse };
        let rewards = Rewards::new(kind, range, beyond, low);
        let rewards = rewards.map_err(|error| unusable(&error))?;
        let mut signers = self.signers.clone();
        signers.sort_unstable_by_key(|key| *key.as_bytes());
        signers.dedup();
        if signers.len() < self.signers.len() {
            return Err(Failure::Incomplete("a signer is given twice; give each once".to_owned()));
        }
        self.witnessed()?;
        Ok((epsilon, budget, rewards))
    }

    /// The public log that the app pins, if it does.
    fn witnessed(&self) -> Result<Option<Witnessed>, Failure> {
        let Some(log) = &self.log else { return Ok(None) };
        let quorum = self.log_quorum.unwrap_or(self.witnesses.len() / 2 + 1);
        let pinned = Witnessed::new(log.clone(), self.witnesses.clone(), quorum);
        pinned.map(Some).map_err(|error| Failure::Incomplete(error.to_string()))
    }

    fn ends(&self) -> Result<(f64, f64), Failure> {
        let Some(range) = &self.range else { return Ok((0.0, 1.0)) };
        let ends =
            range.split_once(':').map(|(low, high)| (low.trim().parse(), high.trim().parse()));
        match ends {
            Some((Ok(low), Ok(high))) => Ok((low, high)),
            _ => Err(Failure::Incomplete(format!("--range {range:?} is not LOW:HIGH, as 0:1 is"))),
        }
    }

    /// Asks for the experiment, as a device does.
    async fn ask(&self) -> Result<Result<GetExperimentResponse, Status>, ConnectError> {
        let endpoint = self.tls.apply(Endpoint::from(self.server.clone()))?;
        let endpoint = with_patience(endpoint, PATIENCE, PATIENCE);
        let channel = self.wait.connect(&endpoint).await.map_err(|source| {
            ConnectError::unreachable("device service", &endpoint, self.wait, source)
        })?;
        let timed_out = || {
            Status::deadline_exceeded(format!(
                "the server has not answered within {} s",
                PATIENCE.as_secs()
            ))
        };
        let experiment_id = self.experiment.to_string();
        let mut request = Request::new(GetExperimentRequest { experiment_id });
        if let Some(key) = &self.app_key {
            request.metadata_mut().insert(APP_KEY_HEADER, key.clone());
        }
        let mut device = DeviceClient::new(channel);
        // An answer may begin in time, and never end.
        let answer = tokio::time::timeout(PATIENCE, device.get_experiment(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(timed_out()));
        Ok(answer.map(tonic::Response::into_inner))
    }

    fn examine(
        &self,
        answer: &GetExperimentResponse,
        (epsilon_max, budget, declared): (Epsilon, PrivacyLoss, Rewards),
        view: &mut DoctorView,
    ) {
        view.note("server", true, "the server is there, and gives the experiment");
        let no_experiment = v1::Experiment::default();
        let experiment = answer.experiment.as_ref().unwrap_or(&no_experiment);
        let specification = match Specification::try_from(experiment) {
            Ok(specification) => specification,
            Err(error) => return view.note("specification", false, explain(&error)),
        };
        let revision = specification.revision().get();
        view.note(
            "specification",
            true,
            format!("revision {revision}, {}", specification.digest()),
        );
        if specification.is_simulation() {
            view.note(
                "simulation",
                false,
                "it is for simulated users; clients of real ones refuse it",
            );
        }
        let epsilon = specification.epsilon();
        view.note(
            "epsilon",
            epsilon <= epsilon_max,
            format!("a report costs {}; the app accepts {}", epsilon.get(), epsilon_max.get()),
        );
        examine_budget(specification.price(), budget, view);
        examine_rewards(specification.rewards(), declared, view);
        self.examine_measurement(specification.measurement(), view);
        self.examine_timing(specification.timing(), view);
        self.examine_shuffling(&specification, view);
        let signed = signatures(&experiment.signatures);
        self.examine_signatures(&specification, &signed, view);
        if let Ok(Some(pinned)) = self.witnessed() {
            let said = log_says(&pinned, &specification, answer);
            view.note("log", said.is_ok(), said.unwrap_or_else(|why| why));
        }
        let held_out = match specification.measurement().holdout.share() {
            0.0 => String::new(),
            share => format!("; {share} of them are held out"),
        };
        let says = participation(specification.participation()) + &held_out;
        view.note("participation", true, says);
        let (arms, lists) = (specification.arms().len(), specification.measurement().lists());
        match answer.policy.as_ref().map(Policy::try_from) {
            Some(Ok(Policy { weights, time_to_live_seconds: seconds, .. }))
                if (weights.len(), weights.segments()) == (arms, lists) =>
            {
                view.note(
                    "policy",
                    true,
                    format!("{arms} arms, to be asked for again in {seconds} s"),
                );
            }
            Some(Ok(policy)) => {
                view.note(
                    "policy",
                    false,
                    format!(
                        "{} weights, {arms} arms; of {} segments, {lists} segments",
                        policy.weights.len(),
                        policy.weights.segments()
                    ),
                );
            }
            Some(Err(error)) => view.note("policy", false, explain(&error)),
            None => view.note("policy", false, "there is none"),
        }
        examine_day(Day::new(answer.server_day), view);
    }

    /// Whether the app agrees to the segments and has declared the metrics.
    fn examine_measurement(&self, measurement: &Measurement, view: &mut DoctorView) {
        for one in measurement.segmentations.all() {
            let own = self.segments.iter().filter_map(|text| text.split_once('='));
            let own = own.rev().find(|(name, _)| *name == one.name()).map(|(_, value)| value);
            let (good, app) = match own {
                None => (false, "the app has not agreed to it".to_owned()),
                Some(value) if one.place_of(value).is_none() => {
                    (false, format!("{value:?} is none of them"))
                }
                Some(value) => (true, format!("the app says {value:?}")),
            };
            view.note("segments", good, format!("{one}; {app}"));
        }
        for metric in &measurement.metrics {
            let values = metric.values();
            let as_declared = |text: &&String| {
                // With any share, it is the form of `experiment create`.
                let (name, range) = text.split_once(':').unwrap_or((text, ""));
                let text = format!("{name}:0.5{}{range}", if range.is_empty() { "" } else { ":" });
                let declared = text.parse::<Metric>();
                let is_this =
                    |one: Metric| one.name() == metric.name() && one.values().has_values_of(values);
                declared.is_ok_and(is_this)
            };
            let good = self.metrics.iter().any(|text| as_declared(&text));
            let app =
                if good { "the app declares it" } else { "the app does not declare it like this" };
            view.note("metrics", good, format!("{metric}; {app}"));
        }
        if let Some(context) = &measurement.context {
            let features = context.names().join(", ");
            let declared = self.private_features.as_deref().unwrap_or_default();
            let good = declared.split(',').map(str::trim).eq(context.names());
            let app = if good { "the app agrees to it" } else { "the app has not agreed to it" };
            view.note("private-context", good, format!("{features} (research); {app}"));
        }
    }

    fn examine_timing(&self, timing: ReleaseTiming, view: &mut DoctorView) {
        let window = timing.attribution_window_seconds;
        view.note("attribution-window", window > 0, format!("{window} s; apps accept 1 or more"));
        let (delay, least) = (timing.release_delay_seconds_max, self.least_release_delay_seconds);
        view.note(
            "release-delay",
            delay >= least,
            format!(
                "up to {delay} s; these terms accept {least} or more, and an app 600 by default"
            ),
        );
    }

    fn examine_shuffling(&self, specification: &Specification, view: &mut DoctorView) {
        match (specification.batch(), self.shuffled) {
            (Some(batch), false) => view.note(
                "shuffling",
                false,
                format!(
                    "a relay shuffles {} reports; if the app accepts that, add --shuffled",
                    batch.get()
                ),
            ),
            (Some(batch), true) => {
                let central =
                    central_loss(specification).map(|it| it.central_epsilon_with_colluders);
                let most = self.central_epsilon;
                let compared = match (central, most) {
                    (None, _) => "no central epsilon can be proved".to_owned(),
                    (Some(central), Some(most)) => {
                        format!("central epsilon {central:.3}; the app accepts up to {most}")
                    }
                    (Some(central), None) => format!(
                        "central epsilon {central:.3}; not compared with what the app accepts: give that by \
                         --central-epsilon"
                    ),
                };
                let good = central.is_some_and(|central| most.is_none_or(|most| central <= most));
                let batch = batch.get();
                view.note("shuffling", good, format!("batches of {batch} reports: {compared}"));
            }
            (None, true) => {
                view.note(
                    "shuffling",
                    false,
                    "the app accepts shuffled reports only, and no relay shuffles these",
                );
            }
            (None, false) => {}
        }
    }

    fn examine_signatures(
        &self,
        specification: &Specification,
        signed: &[Signature],
        view: &mut DoctorView,
    ) {
        let now = UnixSeconds::new(SystemClock::new().unix_seconds());
        for key in &self.signers {
            let by_key = signed.iter().filter(|signature| signature.key() == *key);
            let good = by_key.filter(|signature| signature.verify(specification, now).is_ok());
            if let Some(expires) = good.map(Signature::expires).max() {
                view.note("signatures", true, format!("{key} has signed until {expires}"));
            } else {
                let says = format!("no valid signature by {key}; see `bandana sign`");
                view.note("signatures", false, says);
            }
        }
    }
}

/// What the log says of an answer, or why a device that pins the log refuses it.
fn log_says(
    pinned: &Witnessed,
    specification: &Specification,
    answer: &GetExperimentResponse,
) -> Result<String, String> {
    let view = answer.view.as_ref().ok_or("the server shows no public log")?;
    let view = View::try_from(view).map_err(|error| explain(&error))?;
    let store = StoreId::try_from(&answer.store_id[..]).map_err(|error| explain(&error))?;
    let policy = answer.policy.as_ref().ok_or("there is no policy")?;
    let policy = Policy::try_from(policy).map_err(|error| explain(&error))?;
    let now = UnixSeconds::new(SystemClock::new().unix_seconds());
    let checked = pinned.check_experiment(Some(&view), (specification, &policy, store), 0, now);
    let (epochs, log) = (checked.map_err(|error| explain(&error))?, pinned.log().name());
    Ok(format!("the last of {epochs} epochs of {log} says so, and enough witnesses have seen it"))
}

fn examine_budget(price: NanoNats, budget: PrivacyLoss, view: &mut DoctorView) {
    let (nats, all) = (price.get() as f64 / NanoNats::PER_NAT as f64, budget.get());
    let says = format!(
        "a report costs {nats} of the app's budget of {all} nats; the default in JavaScript is {PAGE_BUDGET}, \
         and elsewhere {APP_BUDGET}"
    );
    view.note("budget", price <= NanoNats::cap(budget), says);
}

fn examine_rewards(rewards: Rewards, declared: Rewards, view: &mut DoctorView) {
    let words = |rewards: Rewards| {
        let (kind, range) = (rewards.kind(), rewards.range());
        format!("{kind:?}, {} to {}", range.low(), range.high())
    };
    let beyond = match rewards.out_of_range() {
        OutOfRange::Refuse => "refused",
        OutOfRange::Clamp => "clamped",
    };
    let (here, app, default) = (words(rewards), words(declared), rewards.default_reward());
    let says = format!("{here}, {default} without one, {beyond} out of range; the app has {app}");
    view.note("rewards", rewards.has_values_of(declared), says);
}

fn examine_day(day: Day, view: &mut DoctorView) {
    let own = Day::of_unix_seconds(SystemClock::new().unix_seconds());
    let apart = own.get().abs_diff(day.get());
    let says = format!("the server's day is {apart} days from that of this computer");
    view.note("clock", apart <= 1, says);
}

/// Who takes part, in words.
fn participation(participation: &Participation) -> String {
    let Participation { sticky, layer, enrolment } = participation;
    let share = format!("{} of the installations", enrolment.share());
    let part = layer.as_ref().map_or(String::new(), |part| format!(", those in {part}"));
    let reports = match sticky {
        None => "a new arm for each assignment, and each is reported".to_owned(),
        Some(Sticky { report_days: 0, .. }) => "an arm is kept, and reported once".to_owned(),
        Some(Sticky { report_days, .. }) => {
            format!("an arm is kept, and reported once in {report_days} days")
        }
    };
    format!("{share}{part}; {reports}")
}
