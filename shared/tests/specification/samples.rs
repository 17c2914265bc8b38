//! Arbitrary specifications.

use std::collections::HashSet;

use bandana_shared::alphabet::Alphabet;
use bandana_shared::cells::{Limit, Measurement, Metric, Segmentation, Segmentations};
use bandana_shared::channel::Floor;
use bandana_shared::context::{Feature, PrivateContext};
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ExperimentId, Revision};
use bandana_shared::limits::{
    ATTRIBUTION_WINDOW_SECONDS_MAX, RELEASE_DELAY_SECONDS_MAX, REPORT_DAYS_MAX,
};
use bandana_shared::participation::{Layer, LayerName, Millionths, Participation, Sticky};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::specification::{
    Arm, ReleaseTiming, Specification, SpecificationParts, smallest_floor,
};
use proptest::collection::{hash_map, hash_set, vec};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Reproducible runs: a fixed seed, and no file of past failures.
pub(crate) fn replayable(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(0x62_616e_6461_6e61),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn epsilons() -> impl Strategy<Value = Epsilon> {
    prop_oneof![
        (-20.0..5.0_f64).prop_map(f64::exp2),
        Just(Epsilon::MIN),
        Just(1.0),
        Just(Epsilon::MAX),
    ]
    .prop_map(|nats| Epsilon::new(nats).unwrap())
}

fn ranges() -> impl Strategy<Value = RewardRange> {
    let end = || prop_oneof![-1e6..1e6, Just(0.0), Just(-0.0), Just(1.0), -1e307..1e307];
    (end(), end()).prop_filter_map("two different ends", |(a, b): (f64, f64)| {
        RewardRange::new(a.min(b), a.max(b)).ok()
    })
}

fn alphabets() -> impl Strategy<Value = Alphabet> {
    (Alphabet::MIN..=Alphabet::MAX).prop_map(|symbols| Alphabet::new(symbols).unwrap())
}

fn rewards() -> impl Strategy<Value = Rewards> {
    prop_oneof![3 => numbers(), 1 => alphabets().prop_map(Rewards::categorical)]
}

fn numbers() -> impl Strategy<Value = Rewards> {
    (ranges(), any::<[bool; 3]>(), 0.0..=1.0_f64).prop_map(
        |(range, [binary, clamp, high], part)| {
            let inside =
                (range.low() * (1.0 - part) + range.high() * part).clamp(range.low(), range.high());
            let end = if high { range.high() } else { range.low() };
            let (kind, default) =
                if binary { (RewardKind::Binary, end) } else { (RewardKind::Bounded, inside) };
            let out_of_range =
                if clamp && !binary { OutOfRange::Clamp } else { OutOfRange::Refuse };
            Rewards::new(kind, range, out_of_range, default).unwrap()
        },
    )
}

fn mechanisms() -> impl Strategy<Value = Mechanism> {
    let units = -Curvature::UNITS_MAX..=Curvature::UNITS_MAX;
    prop_oneof![
        Just(Mechanism::Linear),
        Just(Mechanism::Exponential),
        Just(Mechanism::RandomizedResponse),
        alphabets().prop_map(Mechanism::Kary),
        prop_oneof![units, Just(0), Just(-1), Just(-64), Just(-Curvature::UNITS_MAX)]
            .prop_map(|units| Mechanism::Quadratic(Curvature::from_units(units).unwrap())),
    ]
}

/// Arms with labels in any script, at least one of them active.
fn arms() -> impl Strategy<Value = Vec<Arm>> {
    let labels = hash_set("\\PC{1,32}", 1..30);
    (labels, vec(any::<bool>(), 30), any::<prop::sample::Index>()).prop_map(
        |(labels, retired, active)| {
            let active = active.index(labels.len());
            let arm = |(place, label): (usize, String)| {
                let arm = Arm::new(label).unwrap();
                if retired[place] && place != active { arm.retired() } else { arm }
            };
            labels.into_iter().enumerate().map(arm).collect()
        },
    )
}

fn participations() -> impl Strategy<Value = Participation> {
    let parts = || (0..=1_000_000_u32).prop_map(|parts| Millionths::new(parts).unwrap());
    let days = prop_oneof![0..=REPORT_DAYS_MAX, Just(0)];
    let sticky = (prop_oneof![parts(), Just(Millionths::NONE)], days)
        .prop_map(|(until_weight_below, report_days)| Sticky { until_weight_below, report_days });
    let part = ("[a-z0-9][a-z0-9._-]{0,63}", parts(), parts());
    let layer = part.prop_filter_map("a part with positions", |(name, a, b)| {
        Layer::new(LayerName::new(name).unwrap(), a.min(b), a.max(b)).ok()
    });
    let enrolment = parts().prop_filter("somebody", |share| *share != Millionths::NONE);
    let enrolment = prop_oneof![enrolment, Just(Millionths::ALL)];
    (proptest::option::of(sticky), proptest::option::of(layer), enrolment)
        .prop_map(|(sticky, layer, enrolment)| Participation { sticky, layer, enrolment })
}

fn measurements() -> impl Strategy<Value = Measurement> {
    let name = || "[a-z0-9][a-z0-9._-]{0,63}";
    let values = hash_set("[^\\p{C}]{1,32}", 2..=4);
    let segmentations = hash_map(name(), values, 0..=3).prop_map(|all| {
        let one = |(name, values)| Segmentation::new(name, values).unwrap();
        Segmentations::new(all.into_iter().map(one).collect()).unwrap()
    });
    let limit = prop_oneof![
        Just(None),
        (0.01..0.99).prop_map(|mean| Some(Limit::AtMost(mean))),
        (0.01..0.99).prop_map(|mean| Some(Limit::AtLeast(mean))),
    ];
    let metric = (name(), 1..200_000_u32, any::<bool>(), limit);
    let metric = metric.prop_map(|(name, share, is_binary, limit)| {
        let unit = Rewards::bounded(RewardRange::UNIT);
        let values = if is_binary { Rewards::binary() } else { unit };
        let metric = Metric::new(name, values, Millionths::new(share).unwrap()).unwrap();
        limit.map_or(metric.clone(), |limit| metric.limited(limit).unwrap())
    });
    let metrics = vec(metric, 0..=4);
    let holdout = prop_oneof![Just(0), 0..1_000_000_u32];
    (segmentations, metrics, holdout).prop_filter_map(
        "metrics of different names",
        |(segmentations, metrics, holdout)| {
            let holdout = Millionths::new(holdout).unwrap();
            let names: HashSet<_> = metrics.iter().map(|metric| metric.name().to_owned()).collect();
            let is_valid = names.len() == metrics.len();
            is_valid.then_some(Measurement {
                segmentations,
                metrics,
                holdout,
                ..Measurement::REWARDS_ONLY
            })
        },
    )
}

/// Private contexts, for one specification of three.
fn contexts() -> impl Strategy<Value = Option<PrivateContext>> {
    let share = || (1..1_000_000_u32).prop_map(|parts| Millionths::new(parts).unwrap());
    let names = hash_set("[a-z0-9][a-z0-9._-]{0,63}", 1..=15);
    let context = (names, vec(share(), 15), share()).prop_map(|(names, shares, exploration)| {
        let features = names.into_iter().zip(shares);
        let features = features.map(|(name, share)| Feature::new(name, share).unwrap());
        PrivateContext::new(features.collect(), exploration).unwrap()
    });
    prop_oneof![2 => Just(None), 1 => context.prop_map(Some)]
}

pub(crate) fn specifications() -> impl Strategy<Value = Specification> {
    let timing = (
        prop_oneof![0..=ATTRIBUTION_WINDOW_SECONDS_MAX, Just(0)],
        prop_oneof![0..=RELEASE_DELAY_SECONDS_MAX, Just(0)],
    );
    let name = ("[a-z0-9][a-z0-9._-]{0,63}", 1..=u32::MAX, any::<bool>());
    // Every second one is not shuffled.
    let timing = (timing.0, timing.1, prop_oneof![0..=16_384_u32, Just(0)]);
    let timing = (timing, participations(), (measurements(), contexts()));
    (name, (epsilons(), 0..1000_u64), rewards(), mechanisms(), arms(), timing).prop_map(
        |(
            (id, revision, simulation),
            (epsilon, extra),
            rewards,
            mechanism,
            arms,
            (timing, participation, (measurement, context)),
        )| {
            let binary = rewards.kind() == RewardKind::Binary;
            let mechanism = match (mechanism, rewards.categories()) {
                (_, Some(categories)) => Mechanism::Kary(categories),
                (Mechanism::RandomizedResponse, _) if !binary => Mechanism::Linear,
                (Mechanism::Kary(_), _) if binary => Mechanism::Linear,
                (other, _) => other,
            };
            // Those that a context does not go with have none.
            let fits = matches!(mechanism, Mechanism::Linear | Mechanism::RandomizedResponse);
            let context = context.filter(|_| fits);
            let (participation, batch, measurement) = match context {
                None => (participation, BatchSize::new(timing.2).ok(), measurement),
                Some(context) => (
                    Participation { sticky: None, ..participation },
                    None,
                    Measurement { context: Some(context), ..Measurement::REWARDS_ONLY },
                ),
            };
            let is_kary = matches!(mechanism, Mechanism::Kary(_));
            let metrics = if is_kary { Vec::new() } else { measurement.metrics };
            let measurement = Measurement { metrics, ..measurement };
            let measurement = match measurement.cells(arms.len()).len() {
                0..=1024 => measurement,
                _ => Measurement::REWARDS_ONLY,
            };
            Specification::new(SpecificationParts {
                experiment_id: ExperimentId::new(id).unwrap(),
                revision: Revision::new(revision).unwrap(),
                simulation,
                epsilon,
                // Any floor above the least one is valid.
                floor: smallest_floor(mechanism, epsilon) + extra,
                rewards,
                mechanism,
                arms,
                timing: ReleaseTiming {
                    attribution_window_seconds: timing.0,
                    release_delay_seconds_max: timing.1,
                },
                batch: batch.filter(|_| !is_kary),
                participation,
                measurement,
            })
            .unwrap()
        },
    )
}

/// A specification in which no field holds its default.
pub(crate) fn full() -> SpecificationParts {
    let epsilon = Epsilon::new(2.0).unwrap();
    let range = RewardRange::new(-1.0, 4.0).unwrap();
    SpecificationParts {
        experiment_id: ExperimentId::new("checkout").unwrap(),
        revision: Revision::new(300).unwrap(),
        simulation: true,
        epsilon,
        floor: Floor::for_epsilon(epsilon).get() + 1,
        rewards: Rewards::new(RewardKind::Bounded, range, OutOfRange::Clamp, 0.5).unwrap(),
        mechanism: Mechanism::Quadratic(Curvature::new(-0.25).unwrap()),
        arms: vec![Arm::new("rouge").unwrap(), Arm::new("vert pâle").unwrap().retired()],
        timing: ReleaseTiming {
            attribution_window_seconds: 86_400,
            release_delay_seconds_max: 3600,
        },
        batch: Some(BatchSize::new(1000).unwrap()),
        participation: Participation {
            sticky: Some(Sticky { report_days: 28, ..Sticky::DEFAULT }),
            layer: Some("page:0.25-0.75".parse().unwrap()),
            enrolment: Millionths::new(300_000).unwrap(),
        },
        measurement: Measurement {
            segmentations: "platform=ios,android".parse::<Segmentation>().unwrap().into(),
            metrics: vec![
                "returned:0.2:at-most=0.3".parse().unwrap(),
                "minutes:0.1:-1..60:at-least=0".parse().unwrap(),
                "crashed:0.000001".parse().unwrap(),
            ],
            holdout: Millionths::new(50_000).unwrap(),
            ..Measurement::REWARDS_ONLY
        },
    }
}
