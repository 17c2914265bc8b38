//! Every reason for which a client refuses an experiment.

use std::time::Duration;

use bandana_client::{
    Acceptance, Budget, Client, ClientError, FetchTask, Refusal, SimulatedClient,
};
use bandana_shared::channel::Floor;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ArmIndex, Digest, ExperimentId, Revision};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::specification::{Arm, Specification, SpecificationParts};

use super::{Failure, acceptance, answer, at, client, id, parts, policy};

/// The refusal of `specification` by a client with `acceptance`, if any.
fn judge(acceptance: Acceptance, specification: Specification) -> Result<Option<Refusal>, Failure> {
    let mut client = Client::new(Budget::UNLIMITED);
    client.enroll(id()?, acceptance);
    refusal(client.on_fetched(&FetchTask::new(id()?), answer(specification, 10)?, at(0)))
}

fn refusal(outcome: Result<(), ClientError>) -> Result<Option<Refusal>, Failure> {
    match outcome {
        Ok(()) => Ok(None),
        Err(ClientError::Refused(refusal)) => Ok(Some(refusal)),
        Err(other) => Err(other.into()),
    }
}

#[test]
fn what_the_app_did_not_agree_to_is_refused() -> Result<(), Failure> {
    let offered = Specification::new(parts(1.0, Rewards::binary())?)?;
    let bounded = Specification::new(parts(1.0, Rewards::bounded(RewardRange::UNIT))?)?;
    let epsilon = Epsilon::new(1.0)?;
    let agreed = || {
        Acceptance::unsigned(epsilon, Rewards::binary())
            .least_attribution_window(Duration::ZERO)
            .least_release_delay(Duration::ZERO)
    };
    let liked = Rewards::new(RewardKind::Binary, RewardRange::UNIT, OutOfRange::Refuse, 1.0)?;
    let wider = Rewards::bounded(RewardRange::new(0.0, 2.0)?);
    let refusing = Rewards::new(RewardKind::Bounded, RewardRange::UNIT, OutOfRange::Refuse, 0.5)?;
    let of_unit = || {
        Acceptance::unsigned(epsilon, Rewards::bounded(RewardRange::UNIT))
            .least_attribution_window(Duration::ZERO)
            .least_release_delay(Duration::ZERO)
    };
    for (acceptance, specification, expected) in [
        (agreed(), offered.clone(), None),
        (
            Acceptance::unsigned(Epsilon::new(2.0)?, Rewards::binary())
                .least_attribution_window(Duration::ZERO)
                .least_release_delay(Duration::ZERO),
            offered.clone(),
            None,
        ),
        (agreed().pinned(vec![offered.digest()]), offered.clone(), None),
        (
            Acceptance::unsigned(Epsilon::new(0.99)?, Rewards::binary())
                .least_attribution_window(Duration::ZERO)
                .least_release_delay(Duration::ZERO),
            offered.clone(),
            Some(Refusal::Epsilon { offered: 1.0, accepted: 0.99 }),
        ),
        (of_unit(), offered.clone(), Some(Refusal::Kind { accepted: RewardKind::Bounded })),
        (agreed(), bounded.clone(), Some(Refusal::Kind { accepted: RewardKind::Binary })),
        (
            Acceptance::unsigned(epsilon, wider)
                .least_attribution_window(Duration::ZERO)
                .least_release_delay(Duration::ZERO),
            offered.clone(),
            Some(Refusal::Range),
        ),
        // What counts without a reward and beyond the range is the experiment's to say.
        (agreed(), Specification::new(parts(1.0, liked)?)?, None),
        (of_unit(), Specification::new(parts(1.0, refusing)?)?, None),
        (of_unit(), bounded, None),
        (
            agreed().pinned(vec![Digest::new([0; 16])]),
            offered.clone(),
            Some(Refusal::Digest(offered.digest())),
        ),
    ] {
        assert_eq!(judge(acceptance, specification)?, expected);
    }
    Ok(())
}

#[test]
fn what_is_held_is_refused_with_a_reason_by_a_stricter_app() -> Result<(), Failure> {
    let offered = Specification::new(parts(1.0, Rewards::binary())?)?;
    let mut client = client(&offered)?;
    let delay = Duration::from_hours(24 * 30);
    client.enroll(id()?, acceptance(&offered).least_release_delay(delay));
    assert!(matches!(client.refusal(&id()?), Some(Refusal::ReleaseDelay { .. })));
    client.enroll(id()?, acceptance(&offered));
    assert_eq!(client.refusal(&id()?), None);
    // Simulated users have no time to hide.
    let simulated = SpecificationParts { simulation: true, ..offered.to_parts() };
    let mut client = SimulatedClient::seeded(1, 1);
    client.enroll(id()?, acceptance(&offered).least_release_delay(delay));
    client.on_fetched(
        &FetchTask::new(id()?),
        answer(Specification::new(simulated)?, 10)?,
        at(0),
    )?;
    Ok(())
}

#[test]
fn simulated_and_real_never_mix() -> Result<(), Failure> {
    let real = parts(1.0, Rewards::binary())?;
    let simulated = SpecificationParts { simulation: true, ..real.clone() };
    let (real, simulated) = (Specification::new(real)?, Specification::new(simulated)?);
    assert_ne!(real.digest(), simulated.digest());
    assert_eq!(
        judge(acceptance(&simulated), simulated.clone())?,
        Some(Refusal::SimulationMark { experiment: true })
    );
    let mut client = SimulatedClient::seeded(1, 1);
    client.enroll(id()?, acceptance(&real));
    assert_eq!(
        refusal(client.on_fetched(&FetchTask::new(id()?), answer(real, 10)?, at(0)))?,
        Some(Refusal::SimulationMark { experiment: false })
    );
    client.on_fetched(&FetchTask::new(id()?), answer(simulated, 10)?, at(0))?;
    Ok(())
}

#[test]
fn only_a_later_revision_changes_arms_and_nothing_else_changes() -> Result<(), Failure> {
    let held = Specification::new(parts(1.0, Rewards::binary())?)?;
    let with = |change: &dyn Fn(&mut SpecificationParts)| {
        let mut parts = held.to_parts();
        parts.revision = parts.revision.next();
        change(&mut parts);
        Specification::new(parts)
    };
    let lower = Epsilon::new(0.5)?;
    let added = held.with_arm(Arm::new("black")?)?;
    let retired = held.without_arm(ArmIndex::new(1)?)?;
    for specification in [held.clone(), added.clone(), retired.clone()] {
        let mut client = client(&held)?;
        client.on_fetched(&FetchTask::new(id()?), answer(specification.clone(), 10)?, at(1))?;
        assert_eq!(client.specification(&id()?), Some(&specification));
    }
    let renamed = Arm::new("crimson")?;
    for (offered, expected) in [
        // A smaller privacy loss is a change too: the estimates would mix channels.
        (
            with(&|p| (p.epsilon, p.floor) = (lower, Floor::for_epsilon(lower).get()))?,
            Refusal::Changed,
        ),
        (with(&|p| p.floor += 1)?, Refusal::Changed),
        (with(&|p| p.mechanism = Mechanism::RandomizedResponse)?, Refusal::Changed),
        (with(&|p| p.timing.release_delay_seconds_max = 1)?, Refusal::Changed),
        (with(&|p| p.arms[0] = renamed.clone())?, Refusal::Changed),
        (with(&|p| p.arms.swap(0, 1))?, Refusal::Changed),
        (with(&|p| p.arms.truncate(2))?, Refusal::Changed),
        (
            with(&|p| (p.revision, p.floor) = (Revision::FIRST, p.floor + 1))?,
            Refusal::Revision { offered: 1, held: 1 },
        ),
    ] {
        let mut client = client(&held)?;
        let outcome = client.on_fetched(&FetchTask::new(id()?), answer(offered, 10)?, at(1));
        assert_eq!(refusal(outcome)?, Some(expected));
        assert_eq!(client.specification(&id()?), Some(&held), "it goes on with what it held");
        client.draw(&id()?, at(1))?;
    }
    // Neither an older revision nor the revival of a retired arm is accepted.
    let mut client = client(&retired)?;
    let back = client.on_fetched(&FetchTask::new(id()?), answer(held.clone(), 10)?, at(1));
    assert_eq!(refusal(back)?, Some(Refusal::Revision { offered: 1, held: 2 }));
    let revived = with(&|p| p.revision = p.revision.next())?;
    let revived = client.on_fetched(&FetchTask::new(id()?), answer(revived, 10)?, at(1));
    assert_eq!(refusal(revived)?, Some(Refusal::Changed));
    Ok(())
}

#[test]
fn answers_that_do_not_fit_are_refused() -> Result<(), Failure> {
    let specification = Specification::new(parts(1.0, Rewards::binary())?)?;
    let mut client = client(&specification)?;
    let mut short = answer(specification.clone(), 10)?;
    short.policy = policy(2)?;
    let outcome = client.on_fetched(&FetchTask::new(id()?), short, at(1));
    assert_eq!(refusal(outcome)?, Some(Refusal::PolicyArms { weights: 2, arms: 3 }));

    let mut other = specification.to_parts();
    other.experiment_id = ExperimentId::new("other")?;
    let other = answer(Specification::new(other)?, 10)?;
    let outcome = client.on_fetched(&FetchTask::new(id()?), other, at(1));
    assert_eq!(refusal(outcome)?, Some(Refusal::OtherExperiment));
    Ok(())
}
