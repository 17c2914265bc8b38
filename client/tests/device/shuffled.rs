//! Reports that a relay shuffles: which experiments are accepted, what they cost, and how they leave.

use std::time::Duration;

use bandana_client::{
    Acceptance, Budget, Client, ClientError, FetchTask, Fetched, Refusal, SealError, Shuffled,
    ShuffledTask, SimulatedClient, Task, Timestamp, Unreported, UploadOutcome,
};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::accounting::shuffling::Shuffling;
use bandana_shared::cells::Measurement;
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::participation::Participation;
use bandana_shared::rewards::Rewards;
use bandana_shared::shuffling::{BatchSize, Envelope, Permille, ShuffledReport};
use bandana_shared::specification::{Arm, Specification, SpecificationParts};
use ohttp::hpke::{Aead, Kdf, Kem};
use ohttp::{KeyConfig, Server, SymmetricSuite};

use super::{Failure, acceptance, answer, at, id, parts};

/// The holder of a key, and the key.
pub(super) struct Holder(Server, pub(super) GatewayKeys);

impl Holder {
    fn new(secret: u8) -> Result<Self, Failure> {
        let suite = SymmetricSuite::new(Kdf::HkdfSha256, Aead::ChaCha20Poly1305);
        let derived = || KeyConfig::derive(secret, Kem::X25519Sha256, vec![suite], &[secret; 32]);
        let keys = GatewayKeys::new(&KeyConfig::encode_list(&[derived()?])?)?;
        Ok(Self(Server::new(derived()?)?, keys))
    }

    pub(super) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        self.0.decapsulate(sealed).ok().map(|(opened, _)| opened)
    }
}

pub(super) fn relay() -> Result<Holder, Failure> {
    Holder::new(1)
}

pub(super) fn aggregator() -> Result<Holder, Failure> {
    Holder::new(2)
}

const BATCH: u32 = 1000;
const DELTA: f64 = 1e-9;

/// Reports of so many nats, in batches.
pub(super) fn shuffled(epsilon: f64) -> Result<Specification, Failure> {
    let specification = Specification::new(parts(epsilon, Rewards::binary())?)?;
    Ok(specification.in_batches(BatchSize::new(BATCH)?)?)
}

pub(super) fn terms(epsilon_max: f64) -> Result<Shuffled, Failure> {
    Ok(Shuffled::by(relay()?.1, PrivacyLoss::new(epsilon_max)?, Delta::new(DELTA)?))
}

/// What a batch certifies while a tenth of the users collude.
fn certified(epsilon: f64, honest: u32) -> Result<f64, Failure> {
    let floor = Floor::for_epsilon(Epsilon::new(epsilon)?);
    Ok(Shuffling::new(floor, honest)?.loss(Delta::new(DELTA)?).get())
}

fn refusal(outcome: Result<(), ClientError>) -> Result<Option<Refusal>, Failure> {
    match outcome {
        Ok(()) => Ok(None),
        Err(ClientError::Refused(refusal)) => Ok(Some(refusal)),
        Err(other) => Err(other.into()),
    }
}

fn hear(client: &mut Client, specification: &Specification, now: Timestamp) -> Result<(), Failure> {
    let fetched = Fetched { day: now.day(), ..answer(specification.clone(), 10)? };
    Ok(client.on_fetched(&FetchTask::new(id()?), fetched, now)?)
}

/// A client that has received an experiment of shuffled reports and believes the relay.
pub(super) fn believing(specification: &Specification, budget: Budget) -> Result<Client, Failure> {
    let mut client = Client::new(budget);
    client.enroll(id()?, acceptance(specification).shuffled(terms(100.0)?));
    hear(&mut client, specification, at(0))?;
    Ok(client)
}

pub(super) fn shuffled_task(task: Task) -> Result<ShuffledTask, Failure> {
    match task {
        Task::Shuffled(task) => Ok(task),
        other => Err(format!("a shuffled report was expected, not {other:?}").into()),
    }
}

#[test]
fn only_apps_that_believe_a_relay_take_part_and_in_nothing_else() -> Result<(), Failure> {
    let (plain, shuffled) = (shuffled(1.0)?.to_parts(), shuffled(1.0)?);
    let plain = Specification::new(SpecificationParts { batch: None, ..plain })?;
    let direct = || acceptance(&plain);
    let central = certified(1.0, 900)?;
    let just_below = central.next_down();
    let too_much = Refusal::CentralEpsilon { offered: central, accepted: just_below };
    let everybody = terms(1.0)?.with_colluders(Permille::new(1000).ok_or("too many")?);
    let nearly = everybody.clone().with_colluders(Permille::new(999).ok_or("too many")?);
    let under = |accepted: f64| -> Result<Shuffled, Failure> {
        let colluders = Permille::new(1000).ok_or("too many")?;
        Ok(terms(accepted)?.with_colluders(colluders))
    };
    let local = Refusal::CentralEpsilon { offered: 1.0, accepted: 0.5 };
    for (acceptance, specification, expected) in [
        (direct(), &plain, None),
        (direct(), &shuffled, Some(Refusal::NoRelay { batch: BATCH })),
        (direct().shuffled(terms(1.0)?), &plain, Some(Refusal::NotShuffled)),
        (direct().shuffled(terms(1.0)?), &shuffled, None),
        (direct().shuffled(terms(central)?), &shuffled, None),
        (direct().shuffled(terms(just_below)?), &shuffled, Some(too_much)),
        // Where nobody is honest, the local loss is the central one.
        (direct().shuffled(everybody), &shuffled, None),
        (direct().shuffled(nearly), &shuffled, None),
        (direct().shuffled(under(0.5)?), &shuffled, Some(local)),
        // The local loss counts too, whatever the central one is.
        (
            Acceptance::unsigned(Epsilon::new(0.5)?, Rewards::binary()).shuffled(terms(1.0)?),
            &shuffled,
            Some(Refusal::Epsilon { offered: 1.0, accepted: 0.5 }),
        ),
    ] {
        let mut client = Client::new(Budget::UNLIMITED);
        client.enroll(id()?, acceptance.clone());
        let fetched = answer(specification.clone(), 10)?;
        let judged = refusal(client.on_fetched(&FetchTask::new(id()?), fetched, at(0)))?;
        assert_eq!(judged, expected);
        assert_eq!(client.draw(&id()?, at(0)).is_ok(), expected.is_none());

        // What is held is judged by the same rules.
        let held = if specification.batch().is_some() { terms(100.0).ok() } else { None };
        let mut client = Client::new(Budget::UNLIMITED);
        let any = direct();
        client.enroll(id()?, held.into_iter().fold(any, Acceptance::shuffled));
        hear(&mut client, specification, at(0))?;
        client.enroll(id()?, acceptance.clone());
        assert_eq!(client.refusal(&id()?), expected.as_ref());

        // Simulated users follow them.
        let simulated = SpecificationParts { simulation: true, ..specification.to_parts() };
        let mut client = SimulatedClient::seeded(1, 1);
        client.enroll(id()?, acceptance);
        let fetched = answer(Specification::new(simulated)?, 10)?;
        let judged = refusal(client.on_fetched(&FetchTask::new(id()?), fetched, at(0)))?;
        assert_eq!(judged, expected);
    }
    Ok(())
}

#[test]
fn no_revision_changes_whether_reports_are_shuffled() -> Result<(), Failure> {
    let held = shuffled(1.0)?;
    let mut client = believing(&held, Budget::UNLIMITED)?;
    let next = |batch: Option<BatchSize>| -> Result<Specification, Failure> {
        let parts = held.to_parts();
        Ok(Specification::new(SpecificationParts {
            revision: parts.revision.next(),
            batch,
            ..parts
        })?)
    };
    for (batch, expected) in
        [(None, Refusal::NotShuffled), (Some(BatchSize::new(2)?), Refusal::Changed)]
    {
        let fetched = answer(next(batch)?, 10)?;
        let judged = refusal(client.on_fetched(&FetchTask::new(id()?), fetched, at(1)))?;
        assert_eq!(judged, Some(expected));
    }
    // A later revision with another arm has the same batches, and the same price.
    hear(&mut client, &held.with_arm(Arm::new("black")?)?, at(2))?;
    client.draw(&id()?, at(2))?;
    let central = client.spent().central_lifetime.epsilon.to_loss().get();
    assert!((central - certified(1.0, 900)?).abs() < 1e-8, "{central}");
    Ok(())
}

#[test]
fn a_shuffled_report_costs_its_local_loss_and_what_its_batch_certifies() -> Result<(), Failure> {
    let mut client = believing(&shuffled(1.0)?, Budget::UNLIMITED)?;
    client.draw(&id()?, at(0))?;
    let spent = client.spent();
    let (local, delta) = (NanoNats::new(1_000_000_000), DeltaUnits::from_delta(Delta::new(DELTA)?));
    let central = NanoNats::from_loss(PrivacyLoss::new(certified(1.0, 900)?)?)?;
    assert!(central < NanoNats::new(200_000_000), "{central:?}");
    assert_eq!((spent.window, spent.lifetime), (local, local));
    for central_spent in [spent.central_window, spent.central_lifetime] {
        assert_eq!((central_spent.epsilon, central_spent.delta), (central, delta));
    }

    // One that goes to the aggregator costs the same in both accounts.
    let plain = Specification::new(parts(1.0, Rewards::binary())?)?;
    let mut client = super::client(&plain)?;
    client.draw(&id()?, at(0))?;
    let spent = client.spent().central_lifetime;
    assert_eq!((spent.epsilon, spent.delta), (local, DeltaUnits::ZERO));
    Ok(())
}

#[test]
fn several_reports_for_an_arm_are_paid_for_as_a_group() -> Result<(), Failure> {
    let specification = shuffled(2.0)?;
    let mut client = believing(&specification, Budget::UNLIMITED)?;
    let floor = Floor::for_epsilon(Epsilon::new(2.0)?);
    let batch = Shuffling::new(floor, 900)?;
    let group = |own: u32| batch.of_group(own).ok_or("too many");
    let first = batch.loss(Delta::new(DELTA)?).get();
    let mut of_arms = [0_u32; 3];
    let mut spent = [0.0; 3];
    for reports in 1..=14_u32 {
        let before = client.spent().central_lifetime.epsilon;
        let arm = client.draw(&id()?, at(0))?.arm().get();
        let after = client.spent().central_lifetime;
        let price = after.epsilon.saturating_sub(before).to_loss().get();
        of_arms[arm] += 1;
        spent[arm] += price;
        // No report costs less than the one before it, and none more than its local loss.
        assert!((first..=2.0).contains(&price), "{price}");
        assert_eq!(
            after.delta.get(),
            u64::from(reports) * DeltaUnits::from_delta(Delta::new(DELTA)?).get()
        );
        // As if all of an arm lay in one batch.
        let own = of_arms[arm];
        if (2..=8).contains(&own) {
            let delta = group(own)?.delta(PrivacyLoss::new(spent[arm])?).get();
            assert!(delta <= DELTA * f64::from(own), "{own}: {delta:e}");
            // The sum of what each costs alone is not enough.
            let summed = PrivacyLoss::new(first * f64::from(own))?;
            assert!(group(own)?.delta(summed).get() > DELTA * f64::from(own), "{own}");
        }
    }
    // Another revision has other batches.
    hear(&mut client, &specification.with_arm(Arm::new("black")?)?, at(2))?;
    let before = client.spent().central_lifetime.epsilon;
    client.draw(&id()?, at(2))?;
    let price = client.spent().central_lifetime.epsilon.saturating_sub(before);
    assert_eq!(price, NanoNats::from_loss(batch.loss(Delta::new(DELTA)?))?);

    // Other terms of the app say nothing about what the earlier ones left together.
    let mut client = believing(&specification, Budget::UNLIMITED)?;
    let arm = client.draw(&id()?, at(0))?.arm();
    let looser = Shuffled::by(relay()?.1, PrivacyLoss::new(100.0)?, Delta::new(1e-6)?);
    client.enroll(id()?, acceptance(&specification).shuffled(looser));
    for _ in 0..10 {
        let before = client.spent().central_lifetime;
        let same = client.draw(&id()?, at(0))?.arm() == arm;
        let after = client.spent().central_lifetime;
        if same {
            let price = after.epsilon.saturating_sub(before.epsilon);
            assert_eq!((price.get(), after.delta), (2_000_000_000, before.delta));
        }
    }
    Ok(())
}

#[test]
fn each_cap_of_either_account_ends_the_reports() -> Result<(), Failure> {
    let nats = PrivacyLoss::new;
    let delta = |reports: f64| Delta::new(DELTA * (reports + 0.5));
    let much = Guarantee::new(nats(100.0)?, Delta::new(0.5)?);
    let local = Budget::new(nats(50.0)?, 7, nats(50.0)?)?;
    let few = Guarantee::new(nats(3.5 * certified(1.0, 900)?)?, Delta::new(0.5)?);
    let rare = Guarantee::new(nats(100.0)?, delta(2.0)?);
    for (budget, reports, expected) in [
        (Budget::new(nats(4.0)?, 7, nats(50.0)?)?, 4, Unreported::WindowSpent),
        (Budget::new(nats(50.0)?, 7, nats(5.0)?)?, 5, Unreported::LifetimeSpent),
        (local.with_central(few, much), 3, Unreported::CentralWindowSpent),
        (local.with_central(much, few), 3, Unreported::CentralLifetimeSpent),
        (local.with_central(rare, much), 2, Unreported::CentralWindowSpent),
        (local.with_central(much, rare), 2, Unreported::CentralLifetimeSpent),
    ] {
        let mut client = believing(&shuffled(1.0)?, budget)?;
        for _ in 0..reports {
            assert_eq!(client.draw(&id()?, at(0))?.unreported(), None);
        }
        assert_eq!(client.draw(&id()?, at(0))?.unreported(), Some(expected));
        let is_of_window =
            matches!(expected, Unreported::WindowSpent | Unreported::CentralWindowSpent);
        // What was sent, and is a week old, makes room in a window.
        while let Task::Shuffled(task) = client.next_task(at(1))? {
            client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(1))?;
        }
        for day in [1, 8] {
            let now = at(day * 86_400 + 2);
            // Each is a fetch of the client's own: it dates what was settled.
            let Task::Fetch(task) = due_fetch(&mut client, now)? else { return Err("none".into()) };
            let fetched = Fetched { day: now.day(), ..answer(shuffled(1.0)?, 10)? };
            client.on_fetched(&task, fetched, now.after(Duration::from_secs(400)))?;
        }
        let later = at(8 * 86_400 + 500);
        assert_eq!(client.draw(&id()?, later)?.unreported().is_none(), is_of_window, "{budget:?}");
    }
    Ok(())
}

/// The fetch of a newer policy, after a choice by the old one.
fn due_fetch(client: &mut Client, now: Timestamp) -> Result<Task, Failure> {
    client.draw(&id()?, now).ok();
    Ok(client.next_task(now.after(Duration::from_secs(301)))?)
}

#[test]
fn the_relay_opens_the_envelope_and_only_the_aggregator_the_report() -> Result<(), Failure> {
    let (relay, aggregator) = (relay()?, aggregator()?);
    let specification = shuffled(super::ALMOST_NO_PRIVACY)?;
    let mut sealed_before = Vec::new();
    for reward in [0.0, 1.0] {
        let mut client = believing(&specification, Budget::UNLIMITED)?;
        let chosen = client.draw(&id()?, at(0))?;
        client.reward(chosen.id(), bandana_client::Reward::new(reward)?, at(0))?;
        let task = shuffled_task(client.next_task(at(1))?)?;
        assert!(!format!("{task:?}").contains("bit"), "{task:?}");
        for _ in 0..3 {
            let envelope = task.seal(&aggregator.1)?.envelope;
            assert_eq!(envelope.len(), Envelope::SEALED_BYTES);
            assert!(!sealed_before.contains(&envelope), "sealed anew");
            assert_eq!(aggregator.open(&envelope), None);
            let opened = relay.open(&envelope).ok_or("the relay can't open it")?;
            let opened = Envelope::from_bytes(&opened).ok_or("no envelope")?;
            assert_eq!((opened.id, opened.day), (task.id(), at(1).day()));
            assert_eq!(opened.digest, specification.digest());
            assert_eq!((opened.cell.get(), opened.batch.get()), (chosen.arm().get(), BATCH));
            assert_eq!(relay.open(&opened.report), None, "the relay can't read the report");
            let report = aggregator.open(&opened.report).ok_or("the aggregator can't open it")?;
            let report = ShuffledReport::from_bytes(&report).ok_or("no report")?;
            let (digest, cell, bit) = (specification.digest(), opened.cell, reward > 0.5);
            assert_eq!(report, ShuffledReport { digest, cell, bit });
            sealed_before.push(envelope);
        }
        // A relay that says that its key is the aggregator's gets nothing.
        assert_eq!(task.seal(&relay.1), Err(SealError::SameKey));
        let mut renamed = relay.1.configurations().to_vec();
        renamed[2] ^= 1;
        assert_eq!(task.seal(&GatewayKeys::new(&renamed)?), Err(SealError::SameKey));
    }
    Ok(())
}

#[test]
fn every_attempt_is_the_same_upload_and_a_retry_waits() -> Result<(), Failure> {
    let (relay, aggregator) = (relay()?, aggregator()?);
    let mut client = believing(&shuffled(1.0)?, Budget::UNLIMITED)?;
    client.draw(&id()?, at(0))?;
    let mut attempts = Vec::new();
    let mut now = at(1);
    for outcome in [
        UploadOutcome::Unanswered { retry_after: None },
        UploadOutcome::Retry { retry_after: Some(Duration::from_mins(5)) },
        UploadOutcome::NoRelay,
        UploadOutcome::Accepted,
    ] {
        let task = loop {
            match client.next_task(now)? {
                Task::Shuffled(task) => break task,
                Task::Wait(time) => now = time,
                Task::Fetch(_) => hear(&mut client, &shuffled(1.0)?, now)?,
                other => return Err(format!("{other:?}").into()),
            }
        };
        let envelope = task.seal(&aggregator.1)?.envelope;
        let envelope = relay.open(&envelope).as_deref().and_then(Envelope::from_bytes);
        let envelope = envelope.ok_or("no envelope")?;
        let report = aggregator.open(&envelope.report).ok_or("no report")?;
        attempts.push((envelope.id, envelope.day, report));
        client.on_upload_result(task.id(), &outcome, now)?;
        let waits = usize::from(outcome != UploadOutcome::Accepted);
        assert_eq!(client.waiting_reports(), waits);
        assert_eq!(client.reports_without_relay(), usize::from(outcome == UploadOutcome::NoRelay));
    }
    assert!(attempts.iter().all(|attempt| *attempt == attempts[0]), "{attempts:?}");
    assert_eq!(client.statistics().uploads_postponed, 3);
    assert!(now >= at(3600), "a transport without a relay is asked once in an hour");
    Ok(())
}

#[test]
fn a_transport_without_a_relay_holds_up_nothing_else() -> Result<(), Failure> {
    let mut client = believing(&shuffled(1.0)?, Budget::UNLIMITED)?;
    let other = bandana_shared::identity::ExperimentId::new("direct")?;
    let direct = Specification::new(SpecificationParts {
        experiment_id: other.clone(),
        batch: None,
        participation: Participation::EVERYONE,
        measurement: Measurement::REWARDS_ONLY,
        ..shuffled(1.0)?.to_parts()
    })?;
    client.enroll(other.clone(), acceptance(&direct));
    client.on_fetched(&FetchTask::new(other.clone()), answer(direct, 10)?, at(0))?;
    for _ in 0..5 {
        client.draw(&other, at(0))?;
        client.draw(&id()?, at(0))?;
    }
    let (mut sent, mut kept) = (0, 0);
    loop {
        match client.next_task(at(1))? {
            Task::Upload(task) => {
                client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(1))?;
                sent += 1;
            }
            Task::Shuffled(task) => {
                client.on_upload_result(task.id(), &UploadOutcome::NoRelay, at(1))?;
                kept += 1;
            }
            _ => break,
        }
    }
    // One stands for all reports that wait for the relay.
    assert_eq!((sent, kept), (5, 1));
    assert_eq!((client.waiting_reports(), client.reports_without_relay()), (5, 5));
    Ok(())
}

/// The terms of an app at some time.
#[derive(Clone, Copy, Debug)]
enum Terms {
    None,
    Relay(u8),
}

/// What happens to a client, in any order.
const TERMS: [Terms; 3] = [Terms::None, Terms::Relay(1), Terms::Relay(3)];

/// Whatever the app's terms are when an arm is drawn, when its report is made and sealed, and when it
/// is sent: it leaves sealed for the relay of the last terms, or not at all.
#[test]
fn a_shuffled_report_never_leaves_but_for_the_relay_that_the_app_believes() -> Result<(), Failure> {
    let specification = shuffled(1.0)?;
    let aggregator = aggregator()?;
    let enroll = |client: &mut Client, terms: Terms| -> Result<Option<Holder>, Failure> {
        let acceptance = acceptance(&specification);
        let Terms::Relay(secret) = terms else {
            client.enroll(id()?, acceptance);
            return Ok(None);
        };
        let relay = Holder::new(secret)?;
        let terms = Shuffled::by(relay.1.clone(), PrivacyLoss::UNBOUNDED, Delta::new(1e-3)?);
        client.enroll(id()?, acceptance.shuffled(terms));
        Ok(Some(relay))
    };
    let (mut sent, mut kept) = (0, 0);
    for order in 0..3_usize.pow(5) {
        let terms = |step: u32| TERMS[order / 3_usize.pow(step) % 3];
        let mut client = Client::new(Budget::UNLIMITED);
        enroll(&mut client, Terms::Relay(1))?;
        hear(&mut client, &specification, at(0))?;
        client.draw(&id()?, at(0))?;
        for step in 0..5 {
            let relay = enroll(&mut client, terms(step))?;
            // Each step is a try to send, and so one to make the report and to seal it.
            let now = at(1 + 200 * u64::from(step));
            for _ in 0..10 {
                match (client.next_task(now)?, &relay) {
                    (Task::Fetch(task), _) => {
                        let fetched = answer(specification.clone(), 10)?;
                        let heard = refusal(client.on_fetched(&task, fetched, now))?;
                        assert_eq!(heard.is_some(), relay.is_none(), "{heard:?}");
                    }
                    (Task::Shuffled(task), Some(relay)) => {
                        let envelope = task.seal(&aggregator.1)?.envelope;
                        assert!(relay.open(&envelope).is_some(), "sealed for another relay");
                        let failed = UploadOutcome::Unanswered { retry_after: None };
                        client.on_upload_result(task.id(), &failed, now)?;
                        sent += 1;
                    }
                    (Task::Wait(time), None) => {
                        assert!(time > now, "a host would spin");
                        assert_eq!(client.reports_without_relay(), client.waiting_reports());
                        kept += 1;
                        break;
                    }
                    (Task::Wait(_), Some(_)) => break,
                    (task, _) => {
                        return Err(format!("{order}: {task:?} under {:?}", terms(step)).into());
                    }
                }
            }
        }
        assert_eq!(client.open_assignments() + client.waiting_reports(), 1);
    }
    assert!(sent > 300 && kept > 300, "{sent} {kept}");
    Ok(())
}

#[test]
fn without_a_relay_a_report_gets_no_day_and_expires_as_others_do() -> Result<(), Failure> {
    let (relay, aggregator) = (relay()?, aggregator()?);
    let specification = shuffled(1.0)?;
    let mut client = believing(&specification, Budget::UNLIMITED)?;
    client.draw(&id()?, at(0))?;
    client.enroll(id()?, acceptance(&specification));
    let hear = |client: &mut Client, now: Timestamp| -> Result<(), Failure> {
        let fetched = Fetched { day: now.day(), ..answer(specification.clone(), 10)? };
        refusal(client.on_fetched(&FetchTask::new(id()?), fetched, now))?;
        Ok(())
    };
    let day = |day: u64| at(day * 86_400);
    hear(&mut client, day(20))?;
    client.next_task(day(20))?;
    assert_eq!((client.waiting_reports(), client.reports_without_relay()), (1, 1));
    // The update after the next one believes the relay again.
    let mut back = || -> Result<Task, Failure> {
        client.enroll(id()?, acceptance(&specification).shuffled(terms(100.0)?));
        hear(&mut client, day(30))?;
        Ok(client.next_task(day(30))?)
    };
    let envelope = relay.open(&shuffled_task(back()?)?.seal(&aggregator.1)?.envelope);
    let envelope = envelope.as_deref().and_then(Envelope::from_bytes).ok_or("no envelope")?;
    assert_eq!(envelope.day, day(30).day(), "a day that the server still takes");
    // And then never again.
    client.enroll(id()?, acceptance(&specification));
    for days in [59, 61] {
        hear(&mut client, day(days))?;
        client.next_task(day(days))?;
        assert_eq!(client.waiting_reports(), usize::from(days == 59));
    }
    assert_eq!(client.statistics().reports_expired, 1);
    Ok(())
}
