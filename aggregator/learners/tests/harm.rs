//! Guardrail metrics: how often harm is found where there is none, and how soon where there is.

#![cfg(test)]

use bandana_learners::guardrails::Guardrails;
use bandana_learners::harm::{HARM_ALPHA, allowed, harmful};
use bandana_learners::{Learner, LearnerConfig, TallySnapshot};
use bandana_shared::cells::{Cell, Measurement, Segmentation};
use bandana_shared::channel::Channel;
use bandana_shared::curve::{Curve, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::{debiased_mean, private_mean_of};
use bandana_shared::identity::{ArmIndex, ExperimentId};
use bandana_shared::participation::Millionths;
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::tally::Tally;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Two arms, whose guardrail metric may have a mean of at most .3.
fn specification() -> Specification {
    let arms = ["a", "b"].map(|label| Arm::new(label).unwrap());
    let specification = Specification::first(
        ExperimentId::new("guarded").unwrap(),
        Epsilon::new(2.0).unwrap(),
        Rewards::binary(),
        Mechanism::Linear,
        arms.to_vec(),
        ReleaseTiming::IMMEDIATE,
    );
    let metrics = vec!["returned:0.5:at-most=0.3".parse().unwrap()];
    specification.unwrap().measuring(Measurement { metrics, ..Measurement::REWARDS_ONLY }).unwrap()
}

/// The number of reports of the metric for each arm until one of them is found to do harm, looking
/// after every tenth; `None`: never within `most`.
fn found_after(specification: &Specification, mean: f64, most: u64, seed: u64) -> Option<u64> {
    let Channel::Bit(floor) = specification.channel() else { panic!("not bits") };
    let curve = Curve::new(specification.mechanism_of(1), specification.epsilon());
    let thresholds = [Level::ZERO, Level::ONE].map(|level| floor.threshold(curve.apply(level)));
    let cells = specification.cells();
    let place = |arm| {
        let arm = ArmIndex::new(arm).unwrap();
        cells.index(Cell { metric: 1, ..Cell::of(arm) }).get()
    };
    let tallies = vec![Tally::EMPTY; cells.len()];
    let mut snapshot = TallySnapshot { tallies, ..Default::default() };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for reports in 1..=most {
        for arm in 0..2 {
            let threshold = thresholds[usize::from(rng.random_bool(mean))];
            let bit = threshold.bit(rng.random(), rng.random());
            snapshot.tallies[place(arm)] += Tally::of_bit(bit);
        }
        if reports % 10 == 0 && harmful(specification, 2, &snapshot, 1).contains(&true) {
            return Some(reports);
        }
    }
    None
}

#[test]
fn harm_is_hardly_ever_found_at_the_limit_however_often_one_looks() {
    let specification = specification();
    let trials = 400;
    let found = (0..trials).filter(|seed| found_after(&specification, 0.3, 2000, *seed).is_some());
    let found = found.count();
    // At most 20 are expected; 43 or more of a level of .05 come once in a million.
    assert!((found as f64) < HARM_ALPHA * trials as f64 + 23.0, "{found} of {trials}");
}

#[test]
fn harm_is_found_soon_where_there_is_some() {
    let specification = specification();
    let times = (0..40).map(|seed| found_after(&specification, 0.6, 2000, seed));
    let times: Vec<u64> = times.map(|time| time.expect("never found")).collect();
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
    assert!((50.0..600.0).contains(&mean), "{mean}");
}

#[test]
fn an_arm_that_does_harm_is_not_allowed_unless_no_other_one_is_in_play() {
    let specification = specification();
    let mut tallies = vec![Tally::new(1000, 500).unwrap(); specification.cells().len()];
    tallies[1] = Tally::new(1000, 900).unwrap();
    tallies[3] = Tally::new(1000, 150).unwrap();
    let snapshot = TallySnapshot { tallies, ..Default::default() };
    assert_eq!(allowed(&specification, 2, &snapshot), [false, true]);
    let alone = specification.without_arm(ArmIndex::new(1).unwrap()).unwrap();
    assert_eq!(allowed(&alone, 2, &snapshot), [true, false]);
}

#[test]
fn an_arm_that_does_harm_gets_nothing_unless_all_do() {
    let specification = specification();
    let cells = specification.cells();
    let config = LearnerConfig {
        floor_weight: 0.1,
        guardrails: Guardrails::new(50, 0.2).unwrap(),
        ..LearnerConfig::new(Learner::LdpTs)
    };
    let tallies = |returned: [u64; 2]| {
        let mut tallies = vec![Tally::new(1000, 500).unwrap(); cells.len()];
        for (arm, ones) in returned.into_iter().enumerate() {
            tallies[2 * arm + 1] = Tally::new(1000, ones).unwrap();
        }
        TallySnapshot { tallies, ..Default::default() }
    };
    let weigh = |returned| config.weigh(&specification, 2, &tallies(returned), &[]).unwrap();
    // Private means of .12 and .88 stand for 0 and 1.
    let one = weigh([800, 150]);
    assert_eq!((one.get(0), one.share(1)), (0, 1.0));
    let (both, none) = (weigh([800, 800]), weigh([150, 150]));
    assert_eq!(both, none);
    assert!((both.share(0) - 0.5).abs() < 1e-6);
}

/// What the guardrail metric is in two segments, whatever the arm; one arm gets its traffic where it is
/// more.
#[test]
fn an_arm_that_is_played_where_a_metric_is_more_does_no_harm_by_that() {
    let segments = "platform=ios,android".parse::<Segmentation>().unwrap();
    let measurement = specification().measurement().clone();
    let specification = specification()
        .measuring(Measurement { segmentations: segments.into(), ..measurement })
        .unwrap();
    let cells = specification.cells();
    let mut tallies = vec![Tally::EMPTY; cells.len()];
    let Channel::Bit(floor) = specification.channel() else { panic!("not bits") };
    // At epsilon 2, .4 and .1 are private means of .4238 and .1954.
    for (arm, counts) in [(0, [(19_000, 8053), (1000, 195)]), (1, [(1000, 424), (19_000, 3712)])] {
        for (segment, (reports, ones)) in counts.into_iter().enumerate() {
            let of = Cell { segment, metric: 1, ..Cell::of(ArmIndex::new(arm).unwrap()) };
            tallies[cells.index(of).get()] = Tally::new(reports, ones).unwrap();
        }
    }
    let sums = cells.of_arms(&tallies, 1, None);
    assert!(debiased_mean(floor, sums[0]).unwrap() > 0.38, "added up, it is far beyond the limit");
    let snapshot = TallySnapshot { tallies, ..Default::default() };
    assert_eq!(harmful(&specification, 2, &snapshot, 1), [false, false]);
}

/// However many arms are added, each harmless, harm is found no more often.
#[test]
fn added_arms_do_not_spend_more_than_the_level() {
    const ADDED: usize = 60;
    let first = specification();
    let mut last = first.clone();
    for arm in 0..ADDED {
        last = last.with_arm(Arm::new(format!("added {arm}")).unwrap()).unwrap();
    }
    let Channel::Bit(floor) = last.channel() else { panic!("not bits") };
    let mean = private_mean_of(floor, 0.3);
    let cells = last.cells();
    let found = |seed: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let tallies = vec![Tally::EMPTY; cells.len()];
        let mut snapshot = TallySnapshot { tallies, ..Default::default() };
        (0..12).any(|look| {
            for arm in 0..2 + ADDED {
                let cell = Cell { metric: 1, ..Cell::of(ArmIndex::new(arm).unwrap()) };
                let tally = &mut snapshot.tallies[cells.index(cell).get()];
                for _ in 0..10 << (look / 2) {
                    *tally += Tally::of_bit(rng.random_bool(mean));
                }
            }
            harmful(&last, 2, &snapshot, 1).contains(&true)
        })
    };
    let found = (0..60).filter(|seed| found(*seed)).count();
    // 3 are expected at most, and 11 or more have a probability below 1e-3.
    assert!(found < 11, "{found} of 60");
}

/// A holdout draws evenly from the arms with a weight, so an arm that the learner has given up keeps
/// the least one, and an arm that does harm none.
#[test]
fn with_a_holdout_every_arm_that_does_no_harm_has_a_weight() {
    let specification = specification();
    let holdout = Millionths::from_share(0.1).unwrap();
    let measurement = Measurement { holdout, ..specification.measurement().clone() };
    let held_out = specification.measuring(measurement).unwrap();
    let weights = |returned: u64| {
        let cells = held_out.cells();
        let mut tallies = vec![Tally::EMPTY; cells.len()];
        for (arm, [rewarded, returned]) in
            [[900_000, 150_000], [100_000, returned]].iter().enumerate()
        {
            let arm = ArmIndex::new(arm).unwrap();
            let of = |metric| Cell { metric, ..Cell::of(arm) };
            tallies[cells.index(of(0)).get()] = Tally::new(1_000_000, *rewarded).unwrap();
            tallies[cells.index(of(1)).get()] = Tally::new(1_000_000, *returned).unwrap();
        }
        let snapshot = TallySnapshot { tallies, ..Default::default() };
        LearnerConfig::new(Learner::LdpTs).weigh(&held_out, 2, &snapshot, &[]).unwrap()
    };
    assert_eq!(weights(150_000).iter().collect::<Vec<_>>(), [(1 << 32) - 1, 1]);
    assert_eq!(weights(800_000).iter().collect::<Vec<_>>(), [1 << 32, 0]);
}
