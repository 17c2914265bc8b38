//! Private contexts: what leaves is independent of them, but for the bit, which is about a product.

use std::collections::BTreeMap;

use bandana_client::{
    Chosen, ClientError, FetchTask, Fetched, Refusal, Reward, SimulatedClient, Task, Unreported,
    UploadOutcome,
};
use bandana_shared::cells::Measurement;
use bandana_shared::context::PrivateContext;
use bandana_shared::participation::Millionths;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};

use super::{
    ALMOST_NO_PRIVACY, Failure, acceptance, answer, at, id, parts, policy, report, upload,
};

const FEATURES: [&str; 2] = ["weekend", "returning"];

fn specification(epsilon: f64, rewards: Rewards) -> Result<Specification, Failure> {
    let features = FEATURES.map(str::parse).into_iter().collect::<Result<_, _>>()?;
    let context = PrivateContext::new(features, Millionths::from_share(0.2)?)?;
    Ok(Specification::new(SpecificationParts {
        simulation: true,
        timing: ReleaseTiming { attribution_window_seconds: 50, release_delay_seconds_max: 70 },
        measurement: Measurement { context: Some(context), ..Measurement::REWARDS_ONLY },
        ..parts(epsilon, rewards)?
    })?)
}

/// Even weights, and scores by which each context has an arm of its own: 0 if neither feature is true, 1
/// on weekends, otherwise 2.
fn scored(specification: &Specification) -> Result<Fetched, Failure> {
    let list = |shares: [f64; 3]| Weights::from_shares(&shares);
    let [even, constant] = [list([1.0; 3])?, list([1.0, 0.9, 1.1])?];
    let [weekend, returning] = [list([0.7, 1.8, 0.5])?, list([0.6, 1.0, 1.4])?];
    let weights = even.with_segments(&[constant, weekend, returning])?;
    let answer = answer(specification.clone(), 10)?;
    Ok(Fetched { policy: Policy { weights, ..answer.policy }, ..answer })
}

fn arm_of(context: [bool; 2]) -> usize {
    match context {
        [true, _] => 1,
        [false, true] => 2,
        [false, false] => 0,
    }
}

fn user(specification: &Specification, seed: u64) -> Result<SimulatedClient, Failure> {
    let mut client = SimulatedClient::seeded(seed, 0);
    client.enroll(id()?, acceptance(specification).private_context(FEATURES));
    client.on_fetched(&FetchTask::new(id()?), scored(specification)?, at(0))?;
    Ok(client)
}

const CONTEXTS: [[bool; 2]; 4] = [[false, false], [true, false], [false, true], [true, true]];

/// All that an observer of a device sees over ten minutes, without the bits: time, cell and length of
/// every upload. With it, which assignments never report. (Times of fetches have randomness that no seed
/// fixes, as the order of uploads in a second has.)
type Seen = (Vec<(u64, usize, usize)>, Vec<bool>);

fn observe(
    specification: &Specification,
    seed: u64,
    context: impl Fn(u64) -> [bool; 2],
    reward: impl Fn(u64) -> Option<f64>,
) -> Result<Seen, Failure> {
    let mut client = user(specification, seed)?;
    let (mut seen, mut silent) = (Vec::new(), Vec::new());
    for second in 0..600 {
        if second % 10 == 0 && second < 400 {
            let chosen = client.draw_in_context(&id()?, &context(second), at(second))?;
            silent.push(chosen.unreported().is_some());
            if let Some(value) = reward(second) {
                client.reward(chosen.id(), Reward::new(value)?, at(second)).ok();
            }
        }
        loop {
            match client.next_task(at(second))? {
                Task::Upload(task) => {
                    let length = task.bytes().len();
                    let sent = upload(Ok(Task::Upload(task.clone())))?;
                    seen.push((second, report(&sent)?.0, length));
                    client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(second))?;
                }
                Task::Fetch(task) => {
                    client.on_fetched(&task, scored(specification)?, at(second))?;
                }
                Task::Shuffled(_) | Task::Wait(_) | Task::Done => break,
            }
        }
    }
    seen.sort_unstable();
    Ok((seen, silent))
}

/// The device's randomness is the same each time, so what leaves must be too, whatever the contexts and
/// the rewards are, and however the rewards follow from the contexts.
#[test]
fn contexts_and_rewards_change_neither_what_leaves_nor_when_but_for_the_bit() -> Result<(), Failure>
{
    let specification = specification(1.0, Rewards::binary())?;
    for seed in 0..12 {
        let none = observe(&specification, seed, |_| [false, false], |_| None)?;
        let reports = none.1.iter().filter(|silent| !**silent).count();
        assert_eq!(none.0.len(), reports, "one upload for each that explores, no other");
        assert!(reports < 25, "{reports} of 40");
        for context in CONTEXTS {
            for reward in [None, Some(0.0), Some(1.0)] {
                assert_eq!(observe(&specification, seed, |_| context, |_| reward)?, none);
            }
        }
        let mixed = |second: u64| CONTEXTS[usize::try_from(second / 10 % 4).unwrap_or(0)];
        let liked = |second: u64| mixed(second)[0].then_some(1.0);
        assert_eq!(observe(&specification, seed, mixed, liked)?, none);
    }
    Ok(())
}

/// Draws in a context until one explores.
fn explore(client: &mut SimulatedClient, context: [bool; 2]) -> Result<Chosen, Failure> {
    loop {
        let chosen = client.draw_in_context(&id()?, &context, at(0))?;
        if chosen.unreported().is_none() {
            return Ok(chosen);
        }
        assert_eq!(chosen.unreported(), Some(Unreported::NotExploring));
        assert_eq!(chosen.arm().get(), arm_of(context), "the greatest score");
        let refused = client.reward(chosen.id(), Reward::new(1.0)?, at(0));
        assert!(matches!(refused, Err(ClientError::NotOpen)));
    }
}

#[test]
fn those_who_explore_are_a_fifth_with_any_arm_and_say_the_product_of_reward_and_coordinate()
-> Result<(), Failure> {
    let specification = specification(ALMOST_NO_PRIVACY, Rewards::binary())?;
    let mut cells: BTreeMap<usize, u32> = BTreeMap::new();
    let (mut draws, mut reports) = (0, 0_u32);
    for seed in 0..40 {
        for context in CONTEXTS {
            for reward in [0.0, 1.0] {
                let mut client = user(&specification, seed)?;
                for _ in 0..3 {
                    let chosen = explore(&mut client, context)?;
                    client.reward(chosen.id(), Reward::new(reward)?, at(0))?;
                }
                assert_eq!(client.spent().lifetime.get(), 3 * 32_000_000_000);
                draws += client.statistics().assignments;
                while let Task::Upload(task) = client.next_task(at(200))? {
                    let (cell, bit) = report(&upload(Ok(Task::Upload(task.clone())))?)?;
                    let coordinate = cell % 3;
                    let is_positive = PrivateContext::is_positive(coordinate, &context);
                    // Almost without noise: the bit is 1 if the product is.
                    assert_eq!(bit, (reward > 0.5) == is_positive, "{context:?} {coordinate}");
                    *cells.entry(cell).or_default() += 1;
                    reports += 1;
                    client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(200))?;
                }
            }
        }
    }
    assert_eq!(reports, 960);
    // 960 of 4,800 draws, but each seed comes eight times: five standard deviations of 120 of 600.
    let share = f64::from(reports) / draws as f64;
    assert!((0.13..0.31).contains(&share), "{share}");
    // 107 for each cell, and five standard deviations of thirteen of 120.
    assert_eq!(cells.len(), 9);
    assert!(cells.values().all(|count| (8..=250).contains(count)), "{cells:?}");
    Ok(())
}

#[test]
fn numbers_between_the_ends_are_mirrored_too() -> Result<(), Failure> {
    let rewards = Rewards::bounded(RewardRange::new(-1.0, 3.0)?);
    let specification = specification(ALMOST_NO_PRIVACY, rewards)?;
    // A level of 3/4: the bit is 1 three times of four if the coordinate is 1, once if it is -1.
    let mut ones = [[0_u32; 2]; 2];
    let mut client = user(&specification, 7)?;
    for _ in 0..900 {
        let chosen = explore(&mut client, [false, true])?;
        client.reward(chosen.id(), Reward::new(2.0)?, at(0))?;
    }
    let mut sent = 0;
    while let Task::Upload(task) = client.next_task(at(200))? {
        let (cell, bit) = report(&upload(Ok(Task::Upload(task.clone())))?)?;
        ones[usize::from(cell % 3 == 1)][usize::from(bit)] += 1;
        client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(200))?;
        sent += 1;
    }
    assert_eq!(sent, 900);
    let share = |[zeros, ones]: [u32; 2]| f64::from(ones) / f64::from(zeros + ones);
    let [positive, negative] = ones.map(share);
    assert!((positive - 0.75).abs() < 0.09 && (negative - 0.25).abs() < 0.13, "{ones:?}");
    Ok(())
}

#[test]
fn a_context_must_have_the_features_of_the_experiment() -> Result<(), Failure> {
    let specification = specification(1.0, Rewards::binary())?;
    let mut client = user(&specification, 1)?;
    for context in [&[][..], &[true], &[true; 3]] {
        for refused in [
            client.draw_in_context(&id()?, context, at(0)),
            client.choose_in_context(&id()?, context, at(0)),
        ] {
            let Err(ClientError::Context { expected, given, .. }) = refused else {
                return Err(format!("{refused:?}").into());
            };
            assert_eq!((expected, given), (2, context.len()));
        }
    }
    let refused = client.choose(&id()?, at(0));
    assert!(matches!(refused, Err(ClientError::Context { expected: 2, given: 0, .. })));
    // Also while the window of an assignment lasts.
    client.choose_in_context(&id()?, &[true, true], at(0))?;
    assert!(client.choose(&id()?, at(1)).is_err());
    assert_eq!(client.statistics().assignments, 1);
    Ok(())
}

#[test]
fn a_choice_lasts_as_long_as_its_window_whatever_the_context() -> Result<(), Failure> {
    let specification = specification(1.0, Rewards::binary())?;
    for seed in 0..30 {
        let mut client = user(&specification, seed)?;
        let first = client.choose_in_context(&id()?, &[true, false], at(0))?;
        for context in CONTEXTS {
            assert_eq!(client.choose_in_context(&id()?, &context, at(49))?, first);
        }
        assert_ne!(client.choose_in_context(&id()?, &[true, false], at(50))?.id(), first.id());
    }
    Ok(())
}

/// A server can choose weights and scores, and no more: the share that explores is the specification's.
#[test]
fn what_a_server_sends_can_not_make_a_chosen_arm_report() -> Result<(), Failure> {
    let specification = specification(1.0, Rewards::binary())?;
    let one = Weights::from_shares(&[0.0, 1.0, 0.0])?;
    // Wild weights: all that explore get one arm, and one feature decides everything.
    let lists = [one.clone(), Weights::from_shares(&[1.0, 0.0, 0.0])?, one.clone()];
    let wild = Policy { weights: one.with_segments(&lists)?, ..policy(3)? };
    let mut client = user(&specification, 3)?;
    let answer = scored(&specification)?;
    let fetched = Fetched { policy: wild, ..answer.clone() };
    client.on_fetched(&FetchTask::new(id()?), fetched, at(0))?;
    let mut arms = BTreeMap::new();
    for number in 0..400 {
        let context = CONTEXTS[number % 4];
        let chosen = client.draw_in_context(&id()?, &context, at(0))?;
        if chosen.unreported().is_none() {
            *arms.entry(chosen.arm().get()).or_insert(0) += 1;
        }
    }
    // A fifth, within five standard deviations.
    assert!(arms.len() == 1 && (40..=120).contains(&arms[&1]), "{arms:?}");

    // Scores of another number of coordinates, or none, are refused, and the old ones stay.
    let even = Weights::uniform(&[true; 3])?;
    for lists in [0, 2, 4] {
        let weights = even.clone().with_segments(&vec![even.clone(); lists])?;
        let fetched = Fetched { policy: Policy { weights, ..policy(3)? }, ..answer.clone() };
        let refused = client.on_fetched(&FetchTask::new(id()?), fetched, at(0));
        let Err(ClientError::Refused(refusal)) = refused else { return Err("taken".into()) };
        assert_eq!(refusal, Refusal::PolicySegments { lists, segments: 3 });
    }
    // So is a specification in which more explore, unless it is a later revision: never then.
    let features = FEATURES.map(str::parse).into_iter().collect::<Result<_, _>>()?;
    let most = PrivateContext::new(features, Millionths::from_share(0.99)?)?;
    let measurement = Measurement { context: Some(most), ..Measurement::REWARDS_ONLY };
    let parts = SpecificationParts { measurement, ..specification.to_parts() };
    for revision in [specification.revision(), specification.revision().next()] {
        let offered = Specification::new(SpecificationParts { revision, ..parts.clone() })?;
        let fetched = Fetched { specification: offered, ..answer.clone() };
        assert!(client.on_fetched(&FetchTask::new(id()?), fetched, at(0)).is_err());
    }
    Ok(())
}

#[test]
fn an_added_arm_is_explored_and_then_chosen_by_its_scores() -> Result<(), Failure> {
    let specification = specification(1.0, Rewards::binary())?;
    let mut client = user(&specification, 5)?;
    let offered = specification.with_arm(Arm::new("grey")?)?;
    // The scores of three arms do not fit four.
    let answer = scored(&specification)?;
    let stale = Fetched { specification: offered.clone(), ..answer.clone() };
    assert!(client.on_fetched(&FetchTask::new(id()?), stale, at(0)).is_err());
    let even = Weights::uniform(&[true; 4])?;
    let better = Weights::from_shares(&[0.9, 0.9, 0.9, 1.3])?;
    let weights = even.clone().with_segments(&[better, even.clone(), even])?;
    let policy = Policy { weights, version: 8, ..answer.policy.clone() };
    let fetched = Fetched { specification: offered, policy, ..answer };
    client.on_fetched(&FetchTask::new(id()?), fetched, at(0))?;
    let mut explored = BTreeMap::new();
    for _ in 0..400 {
        let chosen = client.draw_in_context(&id()?, &[true, false], at(0))?;
        match chosen.unreported() {
            Some(_) => assert_eq!(chosen.arm().get(), 3),
            None => *explored.entry(chosen.arm().get()).or_insert(0_u32) += 1,
        }
    }
    assert_eq!(explored.len(), 4, "{explored:?}");
    Ok(())
}
