//! The facade as a host in another language drives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bandana_bindings::{
    Bandana, Call, Configuration, ForcedArm, LogTerms, Metric, RefusalTerms, RewardTerms, Segment,
    SetupError, Slot, Standing, Status, Step, Store,
};
use bandana_client::{Clock as _, SystemClock};
use bandana_shared::cells;
use bandana_shared::context::PrivateContext;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::participation::Millionths;
use bandana_shared::policy::Weights;
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::wire::v1::{Experiment, GetExperimentRequest, GetExperimentResponse, Policy};
use prost::Message as _;

type Failure = Box<dyn std::error::Error>;

const NAME: &str = "button-colour";

fn specification() -> Result<Specification, Failure> {
    Ok(Specification::first(
        ExperimentId::new(NAME)?,
        Epsilon::new(1.0)?,
        Rewards::binary(),
        Mechanism::RandomizedResponse,
        vec![Arm::new("red")?, Arm::new("green")?],
        ReleaseTiming { attribution_window_seconds: 600, release_delay_seconds_max: 3600 },
    )?)
}

/// A server's answer, with a window of ten minutes.
fn experiment() -> Result<Vec<u8>, Failure> {
    let specification = specification()?;
    let weights = Weights::uniform(&specification.active_arms())?;
    Ok(answer(&specification, weights))
}

/// As [`experiment`], in segments by platform, and with a metric that each second assignment reports.
fn measured() -> Result<Vec<u8>, Failure> {
    let returned = cells::Metric::new("returned", Rewards::binary(), Millionths::from_share(0.5)?)?;
    let specification = specification()?.measuring(cells::Measurement {
        segmentations: cells::Segmentation::new("platform", ["ios", "android"])?.into(),
        metrics: vec![returned],
        ..cells::Measurement::REWARDS_ONLY
    })?;
    let weights = Weights::uniform(&specification.active_arms())?;
    Ok(answer(&specification, weights.clone().with_segments(&[weights.clone(), weights])?))
}

fn answer(specification: &Specification, weights: Weights) -> Vec<u8> {
    let policy = bandana_shared::policy::Policy { version: 1, weights, time_to_live_seconds: 60 };
    let response = GetExperimentResponse {
        experiment: Some(Experiment::from(specification)),
        policy: Some(Policy::from(&policy)),
        server_day: SystemClock.now().day().get(),
        ..GetExperimentResponse::default()
    };
    response.encode_to_vec()
}

/// What a host has kept.
#[derive(Clone, Default)]
struct Kept {
    state: Option<Vec<u8>>,
    rewards: Option<Vec<u8>>,
}

fn start(kept: &Kept) -> Result<Bandana, SetupError> {
    let Kept { state, rewards } = kept.clone();
    Bandana::start(Configuration::new(Store::Host { state, rewards }, true), || {})
}

/// Makes the writes that are due, and returns the first other step.
fn step(bandana: &Bandana, kept: &mut Kept) -> Step {
    loop {
        match bandana.next_step() {
            Step::Write(write) => {
                let bytes = Some(write.bytes).filter(|bytes| !bytes.is_empty());
                match write.slot {
                    Slot::State => kept.state = bytes,
                    Slot::Rewards => kept.rewards = bytes,
                }
                bandana.written(write.number, true);
            }
            other => return other,
        }
    }
}

fn call(bandana: &Bandana, kept: &mut Kept) -> Result<Call, Failure> {
    match step(bandana, kept) {
        Step::Call(call) => Ok(call),
        other => Err(format!("{other:?}").into()),
    }
}

#[test]
fn a_reload_keeps_arm_reward_and_budget() -> Result<(), Failure> {
    let mut kept = Kept::default();
    let bandana = start(&kept)?;
    bandana.join(NAME)?;
    let fetch = call(&bandana, &mut kept)?;
    bandana.answered(fetch.id, 200, Some("application/proto"), None, &experiment()?);
    let shown = bandana.choose(NAME);
    assert!(shown.is_reported && shown.reason.is_none(), "{shown:?}");
    let Step::Wait { milliseconds } = step(&bandana, &mut kept) else {
        return Err("a step".into());
    };
    assert!((590_000..=600_001).contains(&milliseconds), "until the window ends: {milliseconds}");
    assert!(bandana.reward(shown.assignment.ok_or("no arm")?, 1.0));
    assert!(kept.rewards.is_some());
    let before = kept.rewards.clone();
    while let Some(write) = bandana.next_write() {
        assert_eq!(write.slot, Slot::Rewards, "a reward is no reason for a call or another write");
        kept.rewards = Some(write.bytes);
        bandana.written(write.number, true);
    }
    assert_ne!(kept.rewards, before);
    let open = bandana.status();
    assert_eq!((open.lifetime_spent, open.open_assignments), (Some(1.0), 1));
    bandana.close();
    let closed = Status { standing: Standing::Closed, ..open };
    assert_eq!(bandana.status(), closed, "what is known of it");

    let again = start(&kept)?;
    assert_eq!(again.choose(NAME), shown);
    assert_eq!(again.status().lifetime_spent, Some(1.0));
    Ok(())
}

#[test]
fn a_forced_arm_is_shown_and_nothing_leaves() -> Result<(), Failure> {
    let arm = ForcedArm { experiment: NAME.to_owned(), arm: "green".to_owned() };
    let settings = Configuration { forced: vec![arm], ..Configuration::new(Store::Memory, true) };
    let bandana = Bandana::start(settings, || {})?;
    bandana.join(NAME)?;
    assert_eq!(bandana.next_step(), Step::Done);
    assert!(bandana.is_ready(NAME) && bandana.why_not_ready(NAME).is_none());
    assert_eq!(bandana.labels(NAME), ["green"]);
    for choice in [bandana.choose(NAME), bandana.draw(NAME)] {
        assert_eq!(choice.label.as_deref(), Some("green"));
        assert!(!choice.is_reported && choice.assignment.is_none());
        assert!(choice.reason.is_some_and(|reason| reason.contains("force this arm")));
    }
    assert_eq!(bandana.next_step(), Step::Done);
    bandana.join("another")?;
    assert!(matches!(bandana.next_step(), Step::Call(_)), "the others go on");
    assert_eq!(bandana.status().lifetime_spent, Some(0.0));
    bandana.close();
    assert!(bandana.choose(NAME).label.is_none());
    Ok(())
}

#[test]
fn developers_are_told_what_is_new_once() -> Result<(), Failure> {
    let mut kept = Kept::default();
    let bandana = start(&kept)?;
    let told = |bandana: &Bandana| -> Vec<(bool, String)> {
        std::iter::from_fn(|| bandana.log_line()).map(|line| (line.is_warning, line.text)).collect()
    };
    bandana.join(NAME)?;
    assert_eq!(told(&bandana), [(false, "reports are made".to_owned())]);
    let fetch = call(&bandana, &mut kept)?;
    bandana.answered(fetch.id, 200, Some("application/proto"), None, &experiment()?);
    let first = format!("experiment {NAME} has its first policy");
    assert_eq!(told(&bandana), [(false, first)]);
    let shown = bandana.choose(NAME);
    bandana.reward(shown.assignment.ok_or("no arm")?, 1.0);
    assert_eq!(told(&bandana), [], "neither an arm nor a reward is told");
    bandana.close();
    assert_eq!(told(&bandana), [(false, "the client was closed".to_owned())]);

    let other = start(&Kept::default())?;
    other.join(NAME)?;
    told(&other);
    let fetch = call(&other, &mut Kept::default())?;
    other.answered(fetch.id, 200, Some("text/html"), None, b"no answer of a server");
    let wrong = told(&other);
    assert!(matches!(&wrong[..], [(true, text)] if text.contains(NAME)), "{wrong:?}");
    assert_eq!(told(&other), []);
    Ok(())
}

#[test]
fn a_client_that_draws_for_a_crowd_warns_once_and_tells_no_server() -> Result<(), Failure> {
    let mut kept = Kept::default();
    let bandana = start(&kept)?;
    bandana.join(NAME)?;
    let fetch = call(&bandana, &mut kept)?;
    bandana.answered(fetch.id, 200, Some("application/proto"), None, &experiment()?);
    let warned = || {
        let lines = std::iter::from_fn(|| bandana.log_line());
        lines.filter(|line| line.is_warning).map(|line| line.text).collect::<Vec<_>>()
    };
    // The budget pays for five.
    (0..504).for_each(|_| drop(bandana.draw(NAME)));
    assert_eq!((warned(), bandana.status().last_refusal), (Vec::new(), None));
    let before = step(&bandana, &mut kept);
    let state = kept.state.clone();
    (0..505).for_each(|_| drop(bandana.draw(NAME)));
    let told = bandana.status().last_refusal.ok_or("no warning")?;
    assert!(told.starts_with("experiment button-colour: hundreds of arms"), "{told}");
    assert_eq!(warned(), [told]);
    let after = step(&bandana, &mut kept);
    let is_wait = |step: &Step| matches!(step, Step::Wait { .. });
    assert!(is_wait(&before) && is_wait(&after), "{before:?}, {after:?}");
    assert_eq!(kept.state, state, "nothing of it is kept");
    Ok(())
}

#[test]
fn what_is_closed_gives_defaults_and_no_step() -> Result<(), Failure> {
    let told = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&told);
    let settings = Configuration::new(Store::Memory, true);
    let bandana = Bandana::start(settings, move || {
        counter.fetch_add(1, Ordering::SeqCst);
    })?;
    bandana.join(NAME)?;
    assert_eq!(told.load(Ordering::SeqCst), 1);
    bandana.close();
    bandana.close();
    assert_eq!(bandana.next_step(), Step::Closed);
    assert_eq!(bandana.next_write(), None);
    assert_eq!(bandana.join(NAME), Err(SetupError::Closed));
    let choice = bandana.choose(NAME);
    assert!(choice.label.is_none() && choice.reason.is_some(), "{choice:?}");
    assert!(!bandana.reward(1, 1.0) && !bandana.measure(1, "returned", 1.0));
    assert!(!bandana.opt_out() && !bandana.is_ready(NAME));
    assert_eq!(bandana.status().standing, Standing::Closed);
    bandana.wake();
    bandana.answered(1, 200, None, None, b"");
    bandana.unanswered(1);
    bandana.written(1, true);
    assert!(told.load(Ordering::SeqCst) <= 2, "nobody is told after the end");
    Ok(())
}

#[test]
fn a_setting_that_can_not_be_used_is_named() {
    let refused = |change: fn(&mut Configuration)| {
        let mut settings = Configuration::new(Store::Memory, true);
        change(&mut settings);
        Bandana::start(settings, || {}).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    assert_eq!(refused(|_| {}), "");
    assert!(refused(|s| s.epsilon_max = 0.0).starts_with("epsilon_max: "));
    assert!(
        refused(|s| s.rewards = RewardTerms::Bounded { low: 1.0, high: f64::NAN })
            .starts_with("rewards: ")
    );
    assert!(refused(|s| s.window_days = 32).starts_with("budget: "));
    assert!(refused(|s| s.app_key = Some(String::new())).starts_with("app_key: "));
    assert!(refused(|s| s.signers = vec!["z".into()]).starts_with("signers: "));
    let log = refused(|s| {
        s.log = Some(LogTerms { key: "z".to_owned(), witnesses: vec![], quorum: None });
    });
    assert!(log.starts_with("log: "), "{log}");
    let segment = |name: &str| Segment { name: name.to_owned(), value: String::new() };
    let metric = |name: &str, values| Metric { name: name.to_owned(), values };
    let bounded = RewardTerms::Bounded { low: 1.0, high: 0.0 };
    for (segments, metrics, what) in [
        (vec![segment("platform")], vec![metric("returned", RewardTerms::Binary)], ""),
        (vec![segment("Platform")], vec![], "segments: \"Platform\" is not 1 to "),
        (vec![], vec![metric("", RewardTerms::Binary)], "metrics: \"\" is not 1 to "),
        (vec![], vec![metric("minutes", bounded)], "metrics: \"minutes\": "),
        (
            vec![],
            vec![metric("stars", RewardTerms::Categorical { categories: 5 })],
            "metrics: metric \"stars\" is a number or a yes or no; categories can only be",
        ),
    ] {
        let settings = Configuration::new(Store::Memory, true);
        let refused = Bandana::start(Configuration { segments, metrics, ..settings }, || {});
        let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.starts_with(what) && refused.is_empty() == what.is_empty(), "{refused}");
    }
    let mut twice = Configuration::new(Store::Memory, true);
    twice.signers = vec![key.to_owned(), key.to_owned()];
    let refused = Bandana::start(twice, || {}).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|why| why.starts_with("signers: ")));
}

/// A client to which a server has told of the experiment of [`measured`].
fn joined(segments: &[(&str, &str)], metrics: &[&str]) -> Result<Bandana, Failure> {
    let settings = Configuration::new(Store::Host { state: None, rewards: None }, true);
    let named = |text: &str| text.to_owned();
    let segments =
        segments.iter().map(|(name, value)| Segment { name: named(name), value: named(value) });
    let metrics =
        metrics.iter().map(|name| Metric { name: named(name), values: RewardTerms::Binary });
    let (segments, metrics) = (segments.collect(), metrics.collect());
    let bandana = Bandana::start(Configuration { segments, metrics, ..settings }, || {})?;
    bandana.join(NAME)?;
    let fetch = call(&bandana, &mut Kept::default())?;
    bandana.answered(fetch.id, 200, Some("application/proto"), None, &measured()?);
    Ok(bandana)
}

#[test]
fn segments_are_agreed_to_and_metrics_are_declared() -> Result<(), Failure> {
    for (segments, metrics, why) in [
        (&[][..], &["returned"][..], "divides installations by \"platform\""),
        (&[("platform", "ios")], &[], "metric \"returned\""),
        (&[("platform", "web")], &["returned"], "part of the installations"),
    ] {
        let bandana = joined(segments, metrics)?;
        let choice = bandana.choose(NAME);
        assert!(choice.label.is_none(), "{choice:?}");
        assert!(choice.reason.is_some_and(|reason| reason.contains(why)), "{why}");
    }
    let bandana = joined(&[("platform", "ios"), ("language", "en")], &["returned", "later"])?;
    let shown = bandana.choose(NAME);
    assert!(shown.is_reported, "{shown:?}");
    let assignment = shown.assignment.ok_or("no assignment")?;
    assert!(bandana.reward(assignment, 1.0) && bandana.measure(assignment, "returned", 0.0));
    assert!(bandana.measure(assignment, "unknown", 1.0), "the window lasts");
    assert_eq!(bandana.status().rewards_refused, 0);
    assert_eq!(bandana.status().lifetime_spent, Some(1.0), "one report, whatever it tells");
    assert!(!bandana.measure(assignment, "returned", f64::NAN));
    assert_eq!(bandana.status().rewards_refused, 1);
    Ok(())
}

#[test]
fn experiments_with_a_private_context_are_refused_with_that_reason() -> Result<(), Failure> {
    let features = vec!["weekend".parse()?, "returning".parse()?];
    let context = PrivateContext::new(features, Millionths::from_share(0.2)?)?;
    let specification = specification()?.measuring(cells::Measurement {
        context: Some(context),
        ..cells::Measurement::REWARDS_ONLY
    })?;
    let even = Weights::uniform(&specification.active_arms())?;
    let weights = even.clone().with_segments(&[even.clone(), even.clone(), even])?;
    let settings = Configuration::new(Store::Memory, true);
    let bandana = Bandana::start(settings, || {})?;
    bandana.join(NAME)?;
    let fetch = call(&bandana, &mut Kept::default())?;
    let told = answer(&specification, weights);
    bandana.answered(fetch.id, 200, Some("application/proto"), None, &told);
    let choice = bandana.choose(NAME);
    assert!(choice.label.is_none() && !choice.is_reported, "{choice:?}");
    let why = choice.reason.ok_or("no reason")?;
    assert!(why.contains("private context of [\"weekend\", \"returning\"]"), "{why}");
    Ok(())
}

#[test]
fn without_consent_there_is_nothing_to_do() -> Result<(), Failure> {
    let bandana = Bandana::start(Configuration::new(Store::Memory, false), || {})?;
    bandana.join(NAME)?;
    assert_eq!(bandana.next_step(), Step::Done);
    assert_eq!(bandana.status().standing, Standing::OptedOut);
    assert!(bandana.opt_in());
    assert!(matches!(bandana.next_step(), Step::Call(_)));
    Ok(())
}

#[test]
fn an_installation_asks_for_the_experiment_about_refusals_where_the_app_has_agreed()
-> Result<(), Failure> {
    let with = |experiment: &str, epsilon_max: f64| {
        let store = Store::Host { state: None, rewards: None };
        let refusals = RefusalTerms { experiment: experiment.to_owned(), epsilon_max };
        let settings = Configuration::new(store, true);
        Bandana::start(Configuration { refusals: Some(refusals), ..settings }, || {})
    };
    for (experiment, epsilon_max) in [("No Name", 0.5), ("refusals", 0.0), ("refusals", f64::NAN)] {
        let refused = with(experiment, epsilon_max);
        assert!(matches!(refused, Err(SetupError::Refusals { .. })), "{refused:?}");
    }
    let bandana = with("refusals", 0.5)?;
    let fetch = call(&bandana, &mut Kept::default())?;
    let asked = GetExperimentRequest::decode(&fetch.body[..])?;
    assert_eq!(asked.experiment_id, "refusals");
    Ok(())
}
