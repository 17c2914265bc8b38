//! Verdicts over all users, whatever traffic an arm got.

#![cfg(test)]

use bandana_shared::confidence::{Comparison, Count, Strata, best_arm, mean_over_all};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::tally::Tally;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

fn tally(reports: u64, ones: u64) -> Tally {
    Tally::new(reports, ones).unwrap()
}

fn count(reports: f64, mean: f64) -> Count {
    Count { reports, sum: reports * mean }
}

#[test]
fn means_and_differences_are_over_all_users_whatever_the_traffic() {
    // Two groups of 10,000: the first arm is liked by .9 and .1, the second by .8 and .4, and each gets
    // most of the traffic where it is better.
    let strata = Strata::new([
        (1, vec![count(9000.0, 0.9), count(1000.0, 0.8)]),
        (1, vec![count(1000.0, 0.1), count(9000.0, 0.4)]),
    ]);
    let alpha = ErrorLevel::FIVE_PERCENT;
    let mean = |arm| mean_over_all(&strata, arm, alpha).unwrap();
    for (arm, truth) in [(0, 0.5), (1, 0.6)] {
        let found = mean(arm);
        assert!((found.mean - truth).abs() < 1e-9 && found.interval.contains(truth), "{found:?}");
        assert!((found.coverage - 1.0).abs() < 1e-9);
    }
    let comparison =
        Comparison { strata: &strata, active: &[true; 2], initial: 2, alpha, costs: &[] };
    assert_eq!(comparison.best(), Some(1));
    let lift = comparison.differences_from(0, Some(0.0))[0];
    assert!((lift.difference - 0.1).abs() < 1e-9 && lift.interval.contains(0.1), "{lift:?}");
    assert!((lift.relative.unwrap() - 0.2).abs() < 1e-9);
    let relative = lift.relative_interval.unwrap();
    assert!(relative.contains(0.2) && relative.low() > 0.0, "{relative:?}");
    // Added up, the first one would be best.
    assert_eq!(best_arm(&[tally(10_000, 8200), tally(10_000, 4400)], alpha), Some(0));
}

#[test]
fn users_of_one_arm_only_say_nothing_about_a_pair() {
    // Before the third arm was added, everything was better.
    let strata = Strata::new([
        (1, vec![count(10_000.0, 0.7), count(10_000.0, 0.65), count(0.0, 0.0)]),
        (2, vec![count(7000.0, 0.4), count(7000.0, 0.35), count(6000.0, 0.5)]),
    ]);
    let alpha = ErrorLevel::FIVE_PERCENT;
    let comparison =
        Comparison { strata: &strata, active: &[true; 3], initial: 2, alpha, costs: &[] };
    assert_eq!(comparison.best(), Some(2));
    let lead = comparison.lead().unwrap();
    assert_eq!((lead.leader, lead.rival), (2, 0));
    assert!((lead.difference - 0.1).abs() < 1e-9 && (lead.coverage - 0.5).abs() < 1e-9, "{lead:?}");
    let apart = Strata::new([
        (1, vec![count(100.0, 0.5), count(0.0, 0.0)]),
        (2, vec![count(0.0, 0.0), count(100.0, 0.9)]),
    ]);
    let comparison =
        Comparison { strata: &apart, active: &[true; 2], initial: 2, alpha, costs: &[] };
    assert_eq!((comparison.best(), comparison.lead()), (None, None));
    assert!(comparison.differences_from(0, None).is_empty());
}

#[test]
fn strata_with_the_same_traffic_cost_nothing() {
    // A year of days in eight segments with even traffic is as narrow as the sums.
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut draw = || {
        let n = random.random_range(12..28);
        vec![count(f64::from(n), 0.5), count(f64::from(40 - n), 0.45)]
    };
    let strata = Strata::new((0..365 * 8).map(|_| (1, draw())));
    let (a, b) = (strata.count(0), strata.count(1));
    let as_one = Strata::new([(1, vec![a, b])]);
    let width = |strata: &Strata| {
        let alpha = ErrorLevel::FIVE_PERCENT;
        let comparison = Comparison { strata, active: &[true; 2], initial: 2, alpha, costs: &[] };
        comparison.lead().unwrap().interval.width()
    };
    assert!(width(&strata) < 1.03 * width(&as_one), "{} {}", width(&strata), width(&as_one));
}

#[test]
fn nearly_the_same_traffic_is_no_certainty_about_arms_that_differ_by_stratum() {
    // Of two arms with a twentieth of the users each, both have a little more where the second is better.
    let rest = |arm: f64| 200_000.0 - 2.0 * arm;
    let strata = Strata::new([
        (1, vec![count(10_000.0, 0.91), count(10_000.0, 0.1), count(rest(10_000.0), 0.3)]),
        (1, vec![count(10_700.0, 0.11), count(10_700.0, 0.9), count(rest(10_700.0), 0.3)]),
    ]);
    let alpha = ErrorLevel::FIVE_PERCENT;
    let active = [true, true, false];
    let comparison = Comparison { strata: &strata, active: &active, initial: 3, alpha, costs: &[] };
    let lift = comparison.differences_from(1, None)[0];
    assert!(lift.interval.contains(0.01), "{lift:?}");
    assert_eq!(comparison.best(), None);
    for (arm, truth) in [(0, 0.51), (1, 0.5)] {
        let found = mean_over_all(&strata, arm, alpha).unwrap();
        assert!(found.interval.contains(truth), "{found:?}");
    }
}

#[test]
fn coverage_is_of_the_users_to_whom_an_arm_was_played() {
    // A third arm has three reports of eighty on each of forty days in one segment, and none in the other.
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let mut day = |share: f64| {
        let of_third = (0..80).filter(|_| random.random_bool(share)).count();
        let rest = (80.0 - of_third as f64) / 2.0;
        vec![count(rest, 0.5), count(rest, 0.5), count(of_third as f64, 0.9)]
    };
    let mut halves = |share: f64| {
        let days = (0..80).map(|day| (1, if day % 2 == 0 { share } else { 0.04 }));
        Strata::new(days.map(|(era, share)| (era, day(share))).collect::<Vec<_>>())
    };
    let alpha = ErrorLevel::FIVE_PERCENT;
    let half = mean_over_all(&halves(0.0), 2, alpha).unwrap().coverage;
    assert!((half - 0.5).abs() < 0.05, "{half}");
    // Where it is rare everywhere, that days have none of its reports says nothing.
    let all = mean_over_all(&halves(0.04), 2, alpha).unwrap().coverage;
    assert!(all > 0.95, "{all}");
    let single = Strata::new((0..3000).map(|user| {
        (
            1,
            vec![
                count(f64::from(u8::from(user % 10 != 0)), 0.0),
                count(f64::from(u8::from(user % 10 == 0)), 0.0),
            ],
        )
    }));
    let rare = mean_over_all(&single, 1, alpha).unwrap().coverage;
    assert!(rare > 0.95, "{rare}");
}
