//! Reports of the rewards of an assignment.

use bandana_client::{
    BulkNoise, ClientError, FetchTask, PrivatizeError, Privatizer, Reward, SeededNoise, Task,
};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::curve::Mechanism;
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::specification::{
    ReleaseTiming, Specification, SpecificationParts, smallest_floor,
};
use bandana_shared::wire::read_upload;
use bandana_shared::wire::v1::UploadRequest;
use prost::Message as _;

use super::{ALMOST_NO_PRIVACY, Failure, at, client, id, parts, report, upload};

/// The bit that is reported after these rewards.
fn bit_after(rewards: Rewards, added: &[f64]) -> Result<bool, Failure> {
    let specification = Specification::new(parts(ALMOST_NO_PRIVACY, rewards)?)?;
    let mut client = client(&specification)?;
    let assignment = client.draw(&id()?, at(1))?;
    for reward in added {
        client.reward(assignment.id(), Reward::new(*reward)?, at(1))?;
    }
    let (arm, bit) = report(&upload(client.next_task(at(1)))?)?;
    assert_eq!(arm, assignment.arm().get());
    Ok(bit)
}

#[test]
fn binary_rewards_count_as_the_highest() -> Result<(), Failure> {
    for (added, bit) in [
        (&[][..], false),
        (&[0.0], false),
        (&[1.0], true),
        (&[0.0, 1.0, 0.0], true),
        (&[1.0, 1.0], true),
    ] {
        assert_eq!(bit_after(Rewards::binary(), added)?, bit, "{added:?}");
    }
    Ok(())
}

#[test]
fn bounded_rewards_are_summed_and_clamped() -> Result<(), Failure> {
    let rewards = Rewards::bounded(RewardRange::new(-2.0, 2.0)?);
    for (added, bit) in [
        (&[][..], false),
        (&[1.0, 1.0], true),
        (&[2.0, 2.0, 2.0], true),
        (&[2.0, -2.0, -2.0], false),
        (&[-2.0, -2.0, -2.0], false),
    ] {
        assert_eq!(bit_after(rewards, added)?, bit, "{added:?}");
    }
    let enormous = Rewards::bounded(RewardRange::new(0.0, f64::MAX)?);
    assert!(bit_after(enormous, &[f64::MAX, f64::MAX])?);
    Ok(())
}

#[test]
fn an_arm_that_earns_beyond_the_range_is_estimated_at_its_end() -> Result<(), Failure> {
    // As every app declares it, and as `experiment create` makes it.
    let rewards = Rewards::bounded(RewardRange::new(0.0, 100.0)?);
    for (added, bit) in [(&[150.0][..], true), (&[-150.0], false), (&[-1e9, 150.0], true)] {
        assert_eq!(bit_after(rewards, added)?, bit, "{added:?}");
    }
    Ok(())
}

#[test]
fn the_default_reward_is_reported_when_there_was_none() -> Result<(), Failure> {
    let liked = Rewards::new(RewardKind::Binary, RewardRange::UNIT, OutOfRange::Refuse, 1.0)?;
    assert!(bit_after(liked, &[])?);
    assert!(!bit_after(liked, &[0.0])?);
    Ok(())
}

#[test]
fn rewards_that_are_not_admitted_are_refused_without_being_shown() -> Result<(), Failure> {
    let clamped = Rewards::bounded(RewardRange::UNIT);
    let bounded = Rewards::new(RewardKind::Bounded, RewardRange::UNIT, OutOfRange::Refuse, 0.0)?;
    for (rewards, value, refused) in [
        (Rewards::binary(), 0.123_456, Some("neither 0 nor 1")),
        (Rewards::binary(), -1.0, Some("neither 0 nor 1")),
        (bounded, 1.000_000_1, Some("range 0 to 1")),
        (bounded, -f64::MIN_POSITIVE, Some("range 0 to 1")),
        (clamped, 123_456.0, None),
        (clamped, -123_456.0, None),
    ] {
        let specification = Specification::new(parts(ALMOST_NO_PRIVACY, rewards)?)?;
        let mut client = client(&specification)?;
        let assignment = client.draw(&id()?, at(1))?;
        let added = client.reward(assignment.id(), Reward::new(value)?, at(1));
        match (added, refused) {
            (Ok(()), None) => {
                let (_, bit) = report(&upload(client.next_task(at(1)))?)?;
                assert_eq!(bit, value > 0.0);
            }
            (Err(ClientError::Reward(error)), Some(part)) => {
                let message = error.to_string();
                assert!(message.contains(part), "{message}");
                assert!(!message.contains("123"), "{message} shows the reward");
                // The report is made all the same.
                let (_, bit) = report(&upload(client.next_task(at(1)))?)?;
                assert!(!bit);
            }
            (added, _) => return Err(format!("{value}: {added:?}").into()),
        }
    }
    assert!(Reward::new(f64::NAN).is_err() && Reward::new(f64::INFINITY).is_err());
    Ok(())
}

#[test]
fn rewards_count_until_the_window_ends() -> Result<(), Failure> {
    let timing = ReleaseTiming { attribution_window_seconds: 100, release_delay_seconds_max: 0 };
    let parts = SpecificationParts { timing, ..parts(ALMOST_NO_PRIVACY, Rewards::binary())? };
    let specification = Specification::new(parts)?;
    for (when, counts) in [(101, true), (102, false)] {
        let mut client = client(&specification)?;
        let assignment = client.draw(&id()?, at(1))?;
        let added = client.reward(assignment.id(), Reward::new(1.0)?, at(when));
        assert_eq!(added.is_ok(), counts, "second {when}");
        assert!(counts || matches!(added, Err(ClientError::NotOpen)));
        let refreshed = super::answer(specification.clone(), 10)?;
        client.on_fetched(&FetchTask::new(id()?), refreshed, at(102))?;
        assert_eq!(report(&upload(client.next_task(at(102)))?)?.1, counts);
    }
    Ok(())
}

#[test]
fn debug_output_does_not_tell_whether_there_was_a_reward() -> Result<(), Failure> {
    let timing = ReleaseTiming { attribution_window_seconds: 9, release_delay_seconds_max: 9 };
    let parts = SpecificationParts { timing, simulation: true, ..parts(1.0, Rewards::binary())? };
    let specification = Specification::new(parts)?;
    let mut printed = Vec::new();
    for added in [&[][..], &[0.0], &[1.0, 1.0]] {
        let mut client = super::simulated(&specification, 1)?;
        let assignment = client.draw(&id()?, at(1))?;
        for reward in added {
            client.reward(assignment.id(), Reward::new(*reward)?, at(1))?;
        }
        printed.push(format!("{client:?}"));
    }
    assert!(printed[0] == printed[1] && printed[0] == printed[2]);
    Ok(())
}

#[test]
fn noise_and_experiment_are_both_real_or_both_simulated() -> Result<(), Failure> {
    let real = parts(1.0, Rewards::binary())?;
    let simulated = SpecificationParts { simulation: true, ..real.clone() };
    let reward = Reward::new(1.0)?;
    for (parts, simulation) in [(real, false), (simulated, true)] {
        let privatizer = Privatizer::new(&Specification::new(parts)?);
        let seeded = privatizer.privatize(&reward, &mut SeededNoise::new(1, 1));
        assert_eq!(seeded.is_ok(), simulation);
        let random = privatizer.privatize(&reward, &mut BulkNoise::new()?);
        assert_eq!(random.is_ok(), !simulation);
        for refused in [seeded, random].into_iter().filter_map(Result::err) {
            assert!(matches!(refused, PrivatizeError::SimulationMark { .. }), "{refused}");
        }
    }
    Ok(())
}

#[test]
fn a_privatizer_keeps_to_its_probabilities() -> Result<(), Failure> {
    // At epsilon 1, P(1) is 1/(1+e) for reward 0 and e/(1+e) for reward 1. With
    // 100 000 draws the share is off by more than .0077 (five standard errors)
    // with a probability below 1e-6.
    let specification = Specification::new(parts(1.0, Rewards::bounded(RewardRange::UNIT))?)?;
    let privatizer = Privatizer::new(&specification);
    let mut noise = BulkNoise::new()?;
    for (reward, expected) in [(0.0, 0.268_941), (0.25, 0.384_471), (1.0, 0.731_059)] {
        let reward = Reward::new(reward)?;
        let mut ones = 0_u32;
        for _ in 0..100_000 {
            ones += u32::from(privatizer.privatize(&reward, &mut noise)?.get().get());
        }
        let share = f64::from(ones) / 100_000.0;
        assert!((share - expected).abs() < 0.0077, "{share} instead of {expected}");
    }
    let refusing = Rewards::new(RewardKind::Bounded, RewardRange::UNIT, OutOfRange::Refuse, 0.0)?;
    let privatizer = Privatizer::new(&Specification::new(parts(1.0, refusing)?)?);
    let outside = privatizer.privatize(&Reward::new(2.0)?, &mut noise);
    assert!(matches!(outside, Err(PrivatizeError::OutOfRange { .. })));
    Ok(())
}

/// An experiment with k-ary randomized response, almost without privacy.
fn kary(symbols: u32, rewards: Rewards) -> Result<Specification, Failure> {
    let mechanism = Mechanism::Kary(Alphabet::new(symbols)?);
    let parts = parts(ALMOST_NO_PRIVACY, rewards)?;
    let floor = smallest_floor(mechanism, parts.epsilon);
    Ok(Specification::new(SpecificationParts { mechanism, floor, ..parts })?)
}

/// The symbol that is reported after these rewards.
fn symbol_after(specification: &Specification, added: &[f64]) -> Result<u8, Failure> {
    let mut client = client(specification)?;
    let assignment = client.draw(&id()?, at(1))?;
    for reward in added {
        client.reward(assignment.id(), Reward::new(*reward)?, at(1))?;
    }
    let Task::Upload(task) = client.next_task(at(1))? else { return Err("no upload".into()) };
    let message = UploadRequest::decode(task.bytes())?;
    let upload = read_upload(&message, specification.channel().alphabet())?;
    let (_, tally) = upload.reports.tallies().next().ok_or("an upload without report")?;
    let mut symbols = specification.channel().alphabet().symbols();
    Ok(symbols.find(|symbol| tally.count(*symbol) == 1).ok_or("no symbol")?.get())
}

#[test]
fn of_categories_the_last_one_counts() -> Result<(), Failure> {
    let specification = kary(5, Rewards::categorical(Alphabet::new(5)?))?;
    for (added, symbol) in
        [(&[][..], 0), (&[3.0], 3), (&[4.0, 1.0], 1), (&[2.0, 0.0], 0), (&[1.0, 4.0, 4.0], 4)]
    {
        assert_eq!(symbol_after(&specification, added)?, symbol, "{added:?}");
    }
    for value in [0.5, 5.0, -1.0, 2.000_000_1, 1e300] {
        let mut client = client(&specification)?;
        let assignment = client.draw(&id()?, at(1))?;
        let refused = client.reward(assignment.id(), Reward::new(value)?, at(1)).unwrap_err();
        let message = format!("{refused:#}");
        assert!(message.contains("whole numbers from 0 to 4"), "{message}");
    }
    Ok(())
}

#[test]
fn rewards_are_rounded_to_a_level_beside_them() -> Result<(), Failure> {
    // Levels at -2, 0, 2 and 4.
    let specification = kary(4, Rewards::bounded(RewardRange::new(-2.0, 4.0)?))?;
    for (added, symbols) in [
        (&[][..], &[0][..]),
        (&[-1.0, 1.0], &[1]),
        (&[2.0], &[2]),
        (&[4.0, 4.0], &[3]),
        (&[1.0], &[1, 2]),
        (&[-1.9], &[0, 1]),
    ] {
        for _ in 0..20 {
            let symbol = symbol_after(&specification, added)?;
            assert!(symbols.contains(&symbol), "{added:?}: {symbol}");
        }
    }
    Ok(())
}
