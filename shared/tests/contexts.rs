//! Private contexts: what they consist of, what they do not go with, and the law of what leaves.

#![cfg(test)]

use bandana_shared::alphabet::Alphabet;
use bandana_shared::cells::{Cell, Measurement, Segmentation};
use bandana_shared::channel::{Channel, Floor};
use bandana_shared::context::{ContextError, Feature, PrivateContext};
use bandana_shared::curve::{Curvature, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ArmIndex, CellIndex, ExperimentId};
use bandana_shared::participation::{Millionths, Participation, Sticky};
use bandana_shared::policy::Weights;
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::specification::{
    Arm, ReleaseTiming, Specification, SpecificationParts, smallest_floor,
};
use bandana_shared::tally::Tally;

fn context(features: &[&str], exploration: f64) -> PrivateContext {
    let features = features.iter().map(|text| text.parse().unwrap()).collect();
    PrivateContext::new(features, Millionths::from_share(exploration).unwrap()).unwrap()
}

fn parts(arms: usize, context: PrivateContext) -> SpecificationParts {
    let first = Specification::first(
        ExperimentId::new("contexts").unwrap(),
        Epsilon::new(1.0).unwrap(),
        Rewards::bounded(RewardRange::UNIT),
        Mechanism::Linear,
        (0..arms).map(|arm| Arm::new(arm.to_string()).unwrap()).collect(),
        ReleaseTiming { attribution_window_seconds: 60, release_delay_seconds_max: 60 },
    )
    .unwrap();
    let measurement = Measurement { context: Some(context), ..Measurement::REWARDS_ONLY };
    SpecificationParts { measurement, ..first.to_parts() }
}

/// All contexts of so many features.
fn contexts(features: usize) -> impl Iterator<Item = Vec<bool>> {
    (0..1_usize << features)
        .map(move |bits| (0..features).map(|one| bits >> one & 1 == 1).collect())
}

/// The number of 32-bit words that a function maps to `true`, given that it does for those below some
/// bound and for no others.
fn below(holds: impl Fn(u32) -> bool) -> u64 {
    let (mut low, mut high) = (0, 1_u64 << 32);
    while low < high {
        let middle = u64::midpoint(low, high);
        if holds(u32::try_from(middle).unwrap()) { low = middle + 1 } else { high = middle }
    }
    low
}

/// What a device sends is nothing, or a cell and a bit. The numbers of words of randomness that lead to
/// each are counted for every context and reward: nothing and each cell have the same number for all of
/// them, and the bit's are at most `(2^64 - t0) / t0` apart. So is any ratio of probabilities of what
/// is sent, between any two pairs of a context and a reward.
#[test]
fn what_leaves_has_a_law_that_loses_epsilon_for_context_and_reward_together() {
    for (nats, features) in [(0.1, 1), (1.0, 3), (4.0, 2)] {
        let names: Vec<String> = (0..features).map(|one| format!("f{one}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let private = context(&names, 0.2);
        let floor = Floor::for_epsilon(Epsilon::new(nats).unwrap());
        let t0 = u128::from(floor.get());
        let explores = below(|word| private.explores(word));
        assert_eq!(explores, (1 << 32) / 5);
        // Coordinates take words in turn, so each is counted by where it ends.
        let mut ends = vec![0];
        for coordinate in 0..private.coordinates() {
            ends.push(below(|word| private.draw(word) <= coordinate));
        }
        let even = (1_u64 << 32) / private.coordinates() as u64;
        assert!(ends.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(even) <= 1), "{ends:?}");
        assert_eq!(*ends.last().unwrap(), 1 << 32);

        // Neither the coin, nor the arm, nor the coordinate is a function of anything but its word:
        // what is left to depend on context and reward is the bit of each coordinate.
        for coordinate in 0..private.coordinates() {
            let (mut least, mut most) = (u128::MAX, 0);
            for context in contexts(features) {
                for step in 0..=8 {
                    let level = Level::from_unit(f64::from(step) / 8.0).unwrap();
                    let positive = PrivateContext::is_positive(coordinate, &context);
                    let product = if positive { level } else { level.mirrored() };
                    let ones = floor.threshold(product).to_u128();
                    (least, most) = (least.min(ones), most.max(ones));
                }
            }
            // Of 2^128 words the bit is 1 for `least` to `most`, and 0 for the others.
            assert!(least >= t0 << 64 && most <= u128::MAX - (t0 << 64) + 1, "{coordinate}");
            assert_eq!((least, most), (t0 << 64, u128::MAX - (t0 << 64) + 1), "all of it is used");
        }
        // And the floor was checked against epsilon in integers.
        assert!(Floor::verify(floor.get(), Epsilon::new(nats).unwrap()).is_ok());
    }
}

#[test]
fn a_level_mirrored_is_one_less_it() {
    for number in [0_u64, 1, 2, 1 << 20, (1 << 52) - 1, 1 << 52, (1 << 53) - 1, 1 << 53] {
        let level = Level::from_unit(number as f64 / (1_u64 << 53) as f64).unwrap();
        assert_eq!(level.get() + level.mirrored().get(), 1 << 53);
        assert_eq!(level.mirrored().mirrored(), level);
    }
    assert_eq!(Level::HALF.mirrored(), Level::HALF);
}

#[test]
fn features_are_read_as_they_are_written_and_others_refused() {
    for text in ["weekend", "weekend=0.29", "a.b-c_9=0.000001"] {
        assert_eq!(text.parse::<Feature>().unwrap().to_string(), text);
    }
    let share = |name: &str| ContextError::TrueShare(name.to_owned());
    for (text, error) in [
        ("", ContextError::Name(String::new())),
        ("Weekend", ContextError::Name("Weekend".to_owned())),
        ("a=0", share("a")),
        ("a=1", share("a")),
        ("a=0.0000001", share("a")),
        ("a=NaN", share("a")),
        ("a=-0.5", share("a")),
        ("a=often", share("a")),
        ("a=", share("a")),
    ] {
        assert_eq!(text.parse::<Feature>(), Err(error), "{text}");
    }
    let fifth = Millionths::from_share(0.2).unwrap();
    let of = |count: usize| {
        let features = (0..count).map(|one| Feature::new(format!("f{one}"), fifth).unwrap());
        PrivateContext::new(features.collect(), fifth)
    };
    assert_eq!(of(0), Err(ContextError::Features(0)));
    assert_eq!(of(16), Err(ContextError::Features(16)));
    assert_eq!(of(15).unwrap().coordinates(), 16);
    let twice = vec!["a".parse().unwrap(), "a=0.3".parse().unwrap()];
    assert_eq!(PrivateContext::new(twice, fifth), Err(ContextError::SameFeature("a".to_owned())));
    for nobody in [Millionths::NONE, Millionths::ALL] {
        let one = vec!["a".parse().unwrap()];
        assert_eq!(PrivateContext::new(one, nobody), Err(ContextError::Exploration));
    }
}

#[test]
fn what_a_private_context_does_not_go_with_is_refused_with_a_way_out() {
    let plain = || parts(2, context(&["a", "b"], 0.2));
    assert!(Specification::new(plain()).is_ok());
    let sticky = Participation { sticky: Some(Sticky::DEFAULT), ..Participation::EVERYONE };
    let measuring = |measurement: Measurement| SpecificationParts { measurement, ..plain() };
    let segmentations = "platform=ios,android".parse::<Segmentation>().unwrap().into();
    let metrics = vec!["returned:0.1".parse().unwrap()];
    let with = |mechanism: Mechanism| SpecificationParts {
        mechanism,
        floor: smallest_floor(mechanism, Epsilon::new(1.0).unwrap()),
        ..plain()
    };
    for (parts, named) in [
        (SpecificationParts { participation: sticky, ..plain() }, "sticky arms"),
        (SpecificationParts { batch: BatchSize::new(100).ok(), ..plain() }, "shuffled reports"),
        (measuring(Measurement { segmentations, ..plain().measurement }), "segments"),
        (measuring(Measurement { metrics, ..plain().measurement }), "metrics"),
        (with(Mechanism::Exponential), "a curve"),
        (with(Mechanism::Quadratic(Curvature::new(0.5).unwrap())), "a curve"),
        (with(Mechanism::Kary(Alphabet::new(4).unwrap())), "k-ary"),
    ] {
        let message = Specification::new(parts).unwrap_err().to_string();
        assert!(message.starts_with("a private context does not go with"), "{message}");
        assert!(message.contains(named) && message.contains("; "), "{message}");
    }
    // 64 arms with 15 features are 1,024 cells, and one more arm is too many.
    let features: Vec<String> = (0..15).map(|one| format!("f{one}")).collect();
    let features: Vec<&str> = features.iter().map(String::as_str).collect();
    let full = Specification::new(parts(64, context(&features, 0.2))).unwrap();
    assert_eq!(full.cells().len(), 1024);
    let error = full.with_arm(Arm::new("more").unwrap()).unwrap_err().to_string();
    assert!(error.contains("65 arms and 16 coordinates of a context make 1040 cells"), "{error}");
}

#[test]
fn cells_have_an_arm_and_a_coordinate_and_rewards_are_counted_under_the_constant() {
    let specification = Specification::new(parts(3, context(&["a", "b"], 0.2))).unwrap();
    let cells = specification.cells();
    assert_eq!((cells.len(), cells.coordinates(), cells.segments(), cells.metrics()), (9, 3, 1, 1));
    assert_eq!(specification.measurement().lists(), 3);
    for index in 0..9 {
        let index = CellIndex::new(index).unwrap();
        let cell = cells.cell(index).unwrap();
        assert_eq!((cell.arm.get() * 3 + cell.coordinate, cell.segment), (index.get(), 0));
        assert_eq!(cells.index(cell), index);
    }
    let tallies: Vec<Tally> = (1..=9).map(|reports| Tally::new(reports, 0).unwrap()).collect();
    assert_eq!(cells.reports_of_arms(&tallies), [6, 15, 24]);
    let reports = |tallies: Vec<Tally>| tallies.iter().map(|one| one.reports()).collect::<Vec<_>>();
    assert_eq!(reports(cells.of_arms(&tallies, 0, None)), [1, 4, 7]);
    assert_eq!(reports(cells.of_coordinate(&tallies, 2)), [3, 6, 9]);
    // Arms that are added come last, and have no reports yet.
    let more = specification.with_arm(Arm::new("more").unwrap()).unwrap().cells();
    let cell = Cell { coordinate: 1, ..Cell::of(ArmIndex::new(2).unwrap()) };
    assert_eq!(more.index(cell), cells.index(cell));
    assert_eq!(reports(more.of_coordinate(&tallies, 0)), [1, 4, 7, 0]);
}

#[test]
fn scores_that_rounding_can_not_tell_apart_are_equal() {
    let private = context(&["a", "b"], 0.2);
    // A third of 2^32 is rounded, and not all alike.
    let even = Weights::uniform(&[true; 3]).unwrap();
    assert_ne!(even.get(0), even.get(1));
    let policy = even.clone().with_segments(&[even.clone(), even.clone(), even.clone()]).unwrap();
    for context in contexts(2) {
        assert_eq!(private.best_arms(&policy, &[true; 3], &context), [0, 1, 2]);
        assert_eq!(private.best_arms(&policy, &[false, true, true], &context), [1, 2]);
    }
    // The sum decides: each feature alone is for another arm.
    let [a, b] = [[1.2, 0.8, 1.0], [1.0, 0.7, 1.3]].map(|one| Weights::from_shares(&one).unwrap());
    let policy = even.clone().with_segments(&[even, a, b]).unwrap();
    let best = contexts(2).map(|context| private.best_arms(&policy, &[true; 3], &context));
    assert_eq!(best.collect::<Vec<_>>(), [[1], [0], [2], [2]]);
}

#[test]
fn every_part_of_a_context_changes_the_digest() {
    let of = |features: &[&str], exploration: f64| {
        Specification::new(parts(2, context(features, exploration))).unwrap()
    };
    let first = of(&["a", "b"], 0.2);
    assert!(matches!(first.channel(), Channel::Bit(_)));
    let others = [
        of(&["b", "a"], 0.2),
        of(&["a"], 0.2),
        of(&["a", "b", "c"], 0.2),
        of(&["a", "b=0.3"], 0.2),
        of(&["a", "b"], 0.200_001),
        Specification::new(SpecificationParts {
            measurement: Measurement::REWARDS_ONLY,
            ..first.to_parts()
        })
        .unwrap(),
    ];
    for (place, other) in others.iter().enumerate() {
        assert_ne!(other.digest(), first.digest(), "{place}");
        assert!(others[..place].iter().all(|before| before.digest() != other.digest()), "{place}");
    }
}
