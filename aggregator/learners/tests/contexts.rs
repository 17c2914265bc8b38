//! Scores of private contexts: right where the model holds, none where nothing is there, the same
//! everywhere.

#![cfg(test)]

use bandana_learners::contexts;
use bandana_learners::{Evidence, Learner, LearnerConfig, TallySnapshot};
use bandana_shared::cells::Measurement;
use bandana_shared::channel::Channel;
use bandana_shared::context::PrivateContext;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ArmIndex, ExperimentId};
use bandana_shared::participation::Millionths;
use bandana_shared::policy::Weights;
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::tally::Tally;

const CONFIG: LearnerConfig = LearnerConfig::new(Learner::Uniform);

fn specification(arms: usize, features: &[&str]) -> Specification {
    let features = features.iter().map(|text| text.parse().unwrap()).collect();
    let fifth = Millionths::from_share(0.2).unwrap();
    let context = PrivateContext::new(features, fifth).unwrap();
    let first = Specification::first(
        ExperimentId::new("contexts").unwrap(),
        Epsilon::new(2.0).unwrap(),
        Rewards::binary(),
        Mechanism::Linear,
        (0..arms).map(|arm| Arm::new(arm.to_string()).unwrap()).collect(),
        ReleaseTiming::IMMEDIATE,
    )
    .unwrap();
    let measurement = Measurement { context: Some(context), ..Measurement::REWARDS_ONLY };
    first.measuring(measurement).unwrap()
}

/// The tallies whose debiased means are these moments, nearly, with so many reports in each cell.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of reports")]
fn tallies(specification: &Specification, reports: u64, moments: &[Vec<f64>]) -> Vec<Tally> {
    let Channel::Bit(floor) = specification.channel() else { panic!("not bits") };
    let tally = |moment: &f64| {
        let ones = reports as f64 * (0.5 + 0.5 * floor.contrast() * moment);
        Tally::new(reports, ones.round() as u64).unwrap()
    };
    moments.iter().flatten().map(tally).collect()
}

fn weigh(specification: &Specification, tallies: Vec<Tally>) -> Weights {
    let counted = TallySnapshot { tallies, ..Default::default() };
    CONFIG.weigh(specification, specification.arms().len(), &counted, &[]).unwrap()
}

fn best(specification: &Specification, policy: &Weights, context: &[bool]) -> Vec<usize> {
    let private = specification.private_context().unwrap();
    private.best_arms(policy, &specification.active_arms(), context)
}

#[test]
fn before_any_report_all_arms_are_as_good() {
    let specification = specification(3, &["a", "b=0.1"]);
    for tallies in [Vec::new(), vec![Tally::EMPTY; 9]] {
        let policy = weigh(&specification, tallies);
        assert_eq!((policy.len(), policy.segments()), (3, 3));
        assert_eq!(best(&specification, &policy, &[true, false]), [0, 1, 2]);
    }
}

/// With independent features that are true at these shares, the moments follow from the coefficients,
/// and the policy finds the best arm in every context.
#[test]
fn coefficients_are_found_whatever_the_shares_of_independent_features() {
    let shares = [0.5, 0.1, 0.8];
    let specification = specification(3, &["a", "b=0.1", "c=0.8"]);
    // The coefficients of each arm, the constant first.
    let truth = [[0.1, 0.2, 0.0, 0.1], [0.0, -0.2, 0.2, 0.0], [0.1, 0.0, -0.1, -0.2]];
    let contexts: Vec<Vec<bool>> =
        (0..8).map(|bits| (0..3).map(|one| bits >> one & 1 == 1).collect()).collect();
    let sign = |on: bool| if on { 1.0 } else { -1.0 };
    let mean = |own: &[f64; 4], context: &[bool]| {
        own[0] + own[1..].iter().zip(context).map(|(one, on)| one * sign(*on)).sum::<f64>()
    };
    let probability = |context: &[bool]| -> f64 {
        shares
            .iter()
            .zip(context)
            .map(|(share, on)| if *on { *share } else { 1.0 - share })
            .product()
    };
    let moment = |own: &[f64; 4], coordinate: usize| -> f64 {
        let of = |context: &Vec<bool>| {
            let x = if coordinate == 0 { 1.0 } else { sign(context[coordinate - 1]) };
            probability(context) * mean(own, context) * x
        };
        contexts.iter().map(of).sum()
    };
    let moments: Vec<Vec<f64>> =
        truth.iter().map(|own| (0..4).map(|one| moment(own, one)).collect()).collect();
    let policy = weigh(&specification, tallies(&specification, 100_000_000, &moments));
    for context in &contexts {
        let means = truth.map(|own| mean(&own, context));
        let most = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for arm in best(&specification, &policy, context) {
            assert!(means[arm] > most - 1e-3, "{context:?}: {arm} of {means:?}");
        }
    }
    // The scores of a feature are its coefficients relative to their mean, and sum to 0.
    for feature in 1..4 {
        let level = truth.iter().map(|own| own[feature]).sum::<f64>() / 3.0;
        let scores = [0, 1, 2].map(|arm| contexts::score(&policy, feature, arm));
        for (score, own) in scores.iter().zip(truth) {
            assert!((score - (own[feature] - level)).abs() < 2e-3, "{feature}: {scores:?}");
        }
        assert!(scores.iter().sum::<f64>().abs() < 1e-6, "{scores:?}");
    }
}

#[test]
fn features_that_matter_no_more_than_noise_have_no_score_and_the_best_arm_is_left() {
    let features: Vec<String> = (0..15).map(|one| format!("f{one}")).collect();
    let features: Vec<&str> = features.iter().map(String::as_str).collect();
    let specification = specification(4, &features);
    // The moments of features differ by less than a standard error of about .03.
    let moments: Vec<Vec<f64>> = [0.0, 0.3, 0.1, 0.2]
        .iter()
        .enumerate()
        .map(|(arm, constant)| {
            let of_feature = |one: usize| if (one + arm).is_multiple_of(2) { 0.02 } else { -0.02 };
            std::iter::once(*constant).chain((0..15).map(of_feature)).collect()
        })
        .collect();
    let policy = weigh(&specification, tallies(&specification, 2000, &moments));
    for feature in 1..16 {
        assert!((0..4).all(|arm| contexts::score(&policy, feature, arm).abs() < 1e-6), "{feature}");
    }
    for bits in [0_usize, 0x7fff, 0x5555, 0x1234] {
        let context: Vec<bool> = (0..15).map(|one| bits >> one & 1 == 1).collect();
        assert_eq!(best(&specification, &policy, &context), [1]);
    }
    // A hundred times as many reports tell that they do matter.
    let policy = weigh(&specification, tallies(&specification, 200_000, &moments));
    assert!((1..16).all(|feature| contexts::score(&policy, feature, 0).abs() > 0.01));
}

#[test]
fn retired_arms_change_nothing_and_added_ones_begin_at_the_mean() {
    let three = specification(3, &["a", "b"]);
    let moments = [vec![0.1, 0.3, 0.0], vec![0.0, -0.3, 0.2], vec![0.9, 0.9, -0.9]];
    let counted = tallies(&three, 50_000, &moments);
    let two = three.without_arm(ArmIndex::new(2).unwrap()).unwrap();
    let alone = specification(2, &["a", "b"]);
    let [of_two, of_alone] = [weigh(&two, counted.clone()), weigh(&alone, counted[..6].to_vec())];
    for coordinate in 0..3 {
        for arm in 0..2 {
            let [one, other] =
                [&of_two, &of_alone].map(|policy| contexts::score(policy, coordinate, arm));
            assert!((one - other).abs() < 1e-6, "{coordinate} {arm}: {one} {other}");
        }
        assert!(contexts::score(&of_two, coordinate, 2).abs() < 1e-6);
    }
    assert_eq!(of_two.get(2), 0);
    assert_eq!(of_two.get(0), 1 << 31);

    // An arm without reports has no score: neither shown to all nor hidden.
    let more = three.with_arm(Arm::new("more").unwrap()).unwrap();
    let policy = weigh(&more, counted);
    assert_eq!((policy.len(), policy.get(3)), (4, 1 << 30));
    assert!((1..3).all(|feature| contexts::score(&policy, feature, 3).abs() < 1e-6));
}

#[test]
fn few_reports_that_agree_and_wild_ones_make_a_policy() {
    let specification = specification(2, &["a=0.000001", "b=0.999999"]);
    for counts in [[(1, 1); 6], [(1, 0); 6], [(u64::from(u32::MAX), 0); 6]] {
        let tallies: Vec<Tally> =
            counts.iter().map(|(reports, ones)| Tally::new(*reports, *ones).unwrap()).collect();
        let policy = weigh(&specification, tallies);
        assert_eq!(policy.iter().sum::<u64>(), 4 << 32);
    }
    // One arm has all reports, and only of one feature.
    let mut tallies = vec![Tally::EMPTY; 6];
    tallies[1] = Tally::new(1000, 900).unwrap();
    let policy = weigh(&specification, tallies);
    assert!((0..3).all(|one| contexts::score(&policy, one, 0).is_finite()));
}

#[test]
fn the_same_tallies_give_the_same_bits() {
    let specification = specification(3, &["a", "b=0.3"]);
    let moments: Vec<Vec<f64>> =
        vec![vec![0.11, 0.23, -0.05], vec![0.02, -0.13, 0.21], vec![0.3, 0.0, 0.07]];
    let policy = weigh(&specification, tallies(&specification, 12_345, &moments));
    let again = weigh(&specification, tallies(&specification, 12_345, &moments));
    assert_eq!(policy, again);
    // As any other machine computes them.
    let expected = GOLDEN;
    assert_eq!(policy.iter().collect::<Vec<u64>>(), expected);
}

#[test]
fn a_discount_counts_for_scores_too() {
    let evidence = |ones: f64, zeros: f64| Evidence::new(ones, zeros);
    let [few, many] = [1.0, 1000.0].map(|factor| {
        let arm = |up: f64| evidence(factor * (50.0 + up), factor * (50.0 - up));
        let coordinates = [vec![arm(5.0), arm(-5.0)], vec![arm(20.0), arm(-20.0)]];
        contexts::scores(&coordinates, &[1.0, 0.0], &[true, true], 0.7)
    });
    // More reports with the same means are shrunk less.
    assert!(few[1][0] < many[1][0] && (many[1][0] - 0.4 / 0.7).abs() < 0.01, "{few:?} {many:?}");
}

/// Three arms: even weights, and the scores of the constant and two features.
const GOLDEN: [u64; 12] = [
    1_431_655_765,
    1_431_655_766,
    1_431_655_765,
    1_396_109_812,
    1_402_024_674,
    1_496_832_810,
    1_501_721_819,
    1_373_437_001,
    1_419_808_476,
    1_372_428_098,
    1_467_188_251,
    1_455_350_947,
];
