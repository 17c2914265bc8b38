//! Every refusal of a specification, and random bytes.

use bandana_shared::alphabet::Alphabet;
use bandana_shared::cells::{CellsError, Measurement, Metric, Segmentation, Segmentations};
use bandana_shared::channel::{Floor, FloorError};
use bandana_shared::curve::Mechanism;
use bandana_shared::identity::{ArmIndex, IdentityError};
use bandana_shared::limits::{
    ARMS_MAX, ATTRIBUTION_WINDOW_SECONDS_MAX, LABEL_BYTES_MAX, RELEASE_DELAY_SECONDS_MAX,
    REPORT_DAYS_MAX,
};
use bandana_shared::participation::{Millionths, Participation, ParticipationError, Sticky};
use bandana_shared::policy::{Policy, PolicyError};
use bandana_shared::rewards::{Rewards, RewardsError};
use bandana_shared::specification::{
    Arm, Specification, SpecificationError, SpecificationParts, smallest_floor,
};
use bandana_shared::wire::{WireError, decode_specification, v1};
use prost::Message as _;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::specification::samples::full;

/// The error after one change to [`full`].
fn after(change: impl Fn(&mut SpecificationParts)) -> SpecificationError {
    let mut parts = full();
    change(&mut parts);
    Specification::new(parts).unwrap_err()
}

#[test]
fn every_specification_error_has_its_cause() {
    use SpecificationError as E;
    let low = Floor::for_epsilon(full().epsilon).get() / 2;
    assert!(matches!(
        after(|parts| parts.floor = low),
        E::Floor(FloorError::LossTooLarge { floor, epsilon, loss })
            if floor == low && epsilon < loss && loss < epsilon + 1.0
    ));
    assert_eq!(
        after(|parts| parts.floor = 1 << 63),
        E::Floor(FloorError::OutOfRange { floor: 1 << 63, symbols: 2 })
    );
    assert_eq!(after(|parts| parts.arms.clear()), E::ArmCount { arms: 0 });
    let too_many = || (0..=ARMS_MAX).map(|arm| Arm::new(arm.to_string()).unwrap());
    assert_eq!(
        after(|parts| parts.arms = too_many().collect()),
        E::ArmCount { arms: ARMS_MAX + 1 }
    );
    assert_eq!(
        after(|parts| parts.arms.push(Arm::new("rouge").unwrap().retired())),
        E::DuplicateLabel { label: "rouge".to_owned() }
    );
    assert_eq!(after(|parts| parts.arms[0] = Arm::new("rouge").unwrap().retired()), E::NoActiveArm);
    assert_eq!(
        after(|parts| parts.mechanism = Mechanism::RandomizedResponse),
        E::RandomizedResponseNeedsBinary
    );
    let six = Alphabet::new(6).unwrap();
    let of =
        |mechanism, rewards| after(|parts| (parts.mechanism, parts.rewards) = (mechanism, rewards));
    assert_eq!(of(Mechanism::Kary(six), Rewards::binary()), E::KaryNeedsMore);
    let five = Alphabet::new(5).unwrap();
    assert_eq!(
        of(Mechanism::Kary(six), Rewards::categorical(five)),
        E::CategoryCount { symbols: six, categories: five }
    );
    assert_eq!(of(Mechanism::Linear, Rewards::categorical(six)), E::CategoriesNeedKary);
    assert_eq!(after(|parts| parts.mechanism = Mechanism::Kary(six)), E::BatchNeedsBits);
    let floor = u64::MAX / 6 + 1;
    assert_eq!(
        after(|parts| (parts.mechanism, parts.floor) = (Mechanism::Kary(six), floor)),
        E::Floor(FloorError::OutOfRange { floor, symbols: 6 })
    );
    let late = |window: u32, delay: u32| {
        after(|parts| {
            parts.timing.attribution_window_seconds = window;
            parts.timing.release_delay_seconds_max = delay;
        })
    };
    assert!(matches!(
        late(ATTRIBUTION_WINDOW_SECONDS_MAX + 1, 0),
        E::Timing(timing) if timing.attribution_window_seconds > ATTRIBUTION_WINDOW_SECONDS_MAX
    ));
    assert!(matches!(
        late(0, RELEASE_DELAY_SECONDS_MAX + 1),
        E::Timing(timing) if timing.release_delay_seconds_max > RELEASE_DELAY_SECONDS_MAX
    ));
    let specification = Specification::new(full()).unwrap();
    assert_eq!(
        specification.without_arm(ArmIndex::new(2).unwrap()),
        Err(E::UnknownArm { arm: 2, arms: 2 })
    );
    assert_eq!(specification.without_arm(ArmIndex::new(0).unwrap()), Err(E::NoActiveArm));
}

#[test]
fn somebody_takes_part_and_not_for_longer_than_there_are_days() {
    use SpecificationError as E;
    let part = |part: Participation| after(|parts| parts.participation = part.clone());
    assert_eq!(
        part(Participation { enrolment: Millionths::NONE, ..Participation::EVERYONE }),
        E::Participation(ParticipationError::NobodyEnrolled)
    );
    let sticky = Some(Sticky { report_days: REPORT_DAYS_MAX + 1, ..Sticky::DEFAULT });
    assert_eq!(
        part(Participation { sticky, ..Participation::EVERYONE }),
        E::Participation(ParticipationError::ReportDays(REPORT_DAYS_MAX + 1))
    );
    let specification = Specification::new(full()).unwrap();
    let enrolled = specification.participation().enrolment;
    assert_eq!(
        specification.with_enrolment(enrolled),
        Err(E::SameEnrolment { share: enrolled.share() })
    );
}

#[test]
fn a_holdout_leaves_somebody_to_learn_from() {
    let refused = after(|parts| parts.measurement.holdout = Millionths::ALL);
    assert_eq!(refused, SpecificationError::Cells(CellsError::AllHeldOut));
    assert!(after_wire(|m| m.holdout_millionths = 1_000_001).to_string().contains("1000001"));
}

#[test]
fn segmentations_follow_their_rules() {
    let segments = |text: &str| text.parse::<Segmentation>();
    for (text, complaint) in [
        ("platform", "not a segmentation"),
        ("platform=ios", "2 to 16 values"),
        ("platform=ios,", "must have 1 to"),
        ("platform=ios,web,ios", "values must differ"),
        ("Platform=ios,web", "characters of a-z"),
    ] {
        let message = segments(text).unwrap_err().to_string();
        assert!(message.contains(complaint), "{text}: {message}");
    }
    let together = |texts: &[&str]| {
        Segmentations::new(texts.iter().map(|text| segments(text).unwrap()).collect())
    };
    let nine: Vec<String> = (0..9).map(|number| format!("s{number}=a,b")).collect();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    assert_eq!(together(&nine[..8]).unwrap().segments(), 256);
    assert_eq!(together(&nine), Err(CellsError::Segmentations(9)));
    let more = [&nine[..7], &["s=a,b,c"]].concat();
    assert_eq!(together(&more), Err(CellsError::Segments(384)));
    let same = CellsError::SameSegmentation("s0".to_owned());
    assert_eq!(together(&["s0=a,b", "s0=c,d"]), Err(same));
}

#[test]
fn metrics_and_cells_follow_their_rules() {
    use SpecificationError as E;
    let metric = |text: &str| text.parse::<Metric>();
    for (text, complaint) in [
        ("returned", "not a metric"),
        ("returned:much", "not a metric"),
        ("returned:0.1:7", "not a metric"),
        ("returned:0.1:2..1", "not a metric"),
        ("returned:0.1:about=0.2", "not a metric"),
        ("returned:0.1:0..1:0..2", "two ranges or two limits"),
        ("returned:0.1:at-least=0.1:at-most=0.2", "two ranges or two limits"),
        ("rewards:0.1", "another name"),
        ("returned:0.0000001", "a millionth or more"),
        ("Returned:0.1", "characters of a-z"),
        ("returned:0", "above 0 and below 1"),
        ("returned:1", "above 0 and below 1"),
        ("returned:0.1:at-most=1", "between the ends"),
        ("returned:0.1:at-least=0", "between the ends"),
        ("returned:0.1:at-least=nan", "between the ends"),
    ] {
        let message = metric(text).unwrap_err().to_string();
        assert!(message.contains(complaint), "{text}: {message}");
    }
    for text in ["returned:0.1", "minutes:0.25:-1..60:at-least=5", "x:0.5:at-most=0.5"] {
        assert_eq!(metric(text).unwrap().to_string(), text);
    }
    let measuring =
        |measurement: Measurement| after(|parts| parts.measurement = measurement.clone());
    let of = |metrics: &[&str]| Measurement {
        metrics: metrics.iter().map(|text| metric(text).unwrap()).collect(),
        ..Measurement::REWARDS_ONLY
    };
    let many: Vec<String> = (0..16).map(|number| format!("m{number}:0.01")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(measuring(of(&many)), E::Cells(CellsError::Metrics(16)));
    assert_eq!(measuring(of(&["a:0.5", "b:0.5"])), E::Cells(CellsError::Shares));
    let twice = CellsError::SameMetric("a".to_owned());
    assert_eq!(measuring(of(&["a:0.1", "a:0.2"])), E::Cells(twice));

    // 64 arms in 16 segments fit, and another metric of each does not.
    let arms = |count: usize| (0..count).map(|arm| Arm::new(arm.to_string()).unwrap()).collect();
    let values = (0..16).map(|value| value.to_string());
    let segmentations: Segmentations = Segmentation::new("version", values).unwrap().into();
    let parts = SpecificationParts {
        arms: arms(64),
        measurement: Measurement { segmentations, ..of(&[]) },
        ..full()
    };
    assert_eq!(Specification::new(parts.clone()).unwrap().cells().len(), 1024);
    let metrics = of(&["a:0.1"]).metrics;
    let measurement = Measurement { metrics: metrics.clone(), ..parts.measurement.clone() };
    let refused = Specification::new(SpecificationParts { measurement, ..parts.clone() });
    assert!(refused.unwrap_err().to_string().contains("2048 cells; at most 1024"));
    let one_more = Specification::new(parts).unwrap().with_arm(Arm::new("more").unwrap());
    assert!(one_more.unwrap_err().to_string().contains("1040 cells"));

    let six = Mechanism::Kary(Alphabet::new(6).unwrap());
    let kary = after(|parts| {
        parts.mechanism = six;
        parts.floor = smallest_floor(six, parts.epsilon);
        parts.batch = None;
    });
    assert_eq!(kary, E::Cells(CellsError::MetricsNeedBits));
}

#[test]
fn labels_follow_their_rule() {
    let longest = "ß".repeat(LABEL_BYTES_MAX / 2);
    for label in ["x", "two words", "日本語", "👍🏽", &longest] {
        assert_eq!(Arm::new(label).unwrap().label(), label);
    }
    let too_long = longest + "x";
    for label in ["", "tab\tbed", "line\n", "\u{7f}", "\u{85}", &too_long] {
        let label = label.to_owned();
        let refused = Err(SpecificationError::Label { label: label.clone() });
        assert_eq!(Arm::new(label), refused);
    }
}

/// The error of a message after one change to that of [`full`].
fn after_wire(change: impl Fn(&mut v1::Specification)) -> WireError {
    let mut message = v1::Specification::from(&Specification::new(full()).unwrap());
    change(&mut message);
    Specification::try_from(&message).unwrap_err()
}

#[test]
fn every_wire_error_of_a_message_has_its_cause() {
    use WireError as E;
    use v1::specification::Mechanism as M;
    let missing = |error, name| matches!(error, E::Missing(field) if field == name);
    assert!(missing(after_wire(|m| m.reward_kind = 0), "reward_kind"));
    assert!(missing(after_wire(|m| m.reward_kind = 77), "reward_kind"));
    assert!(missing(after_wire(|m| m.out_of_range = 0), "out_of_range"));
    assert!(missing(after_wire(|m| m.mechanism = None), "mechanism"));
    assert!(matches!(
        after_wire(|m| m.experiment_id.push('!')),
        E::Identity(IdentityError::ExperimentId(_))
    ));
    assert!(matches!(after_wire(|m| m.revision = 0), E::Identity(IdentityError::Revision)));
    for nats in [0.0, -1.0, 32.5, f64::NAN, f64::INFINITY, 1e-7] {
        assert!(matches!(after_wire(|m| m.epsilon = nats), E::Epsilon(_)), "{nats}");
    }
    for curvature in [1_048_577, -1_048_577, i32::MIN, i32::MAX] {
        let change = |m: &mut v1::Specification| {
            m.mechanism = Some(M::Quadratic(v1::Quadratic { curvature }));
        };
        assert!(matches!(after_wire(change), E::Curvature(_)), "{curvature}");
    }
    for (low, high) in [(1.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
        let change = |m: &mut v1::Specification| (m.reward_low, m.reward_high) = (low, high);
        let error = after_wire(change);
        assert!(matches!(error, E::Rewards(RewardsError::Range { .. })), "{low} {high}");
    }
    for default_reward in [4.5, -1.5, f64::NAN] {
        let error = after_wire(|m| m.default_reward = default_reward);
        assert!(matches!(error, E::Rewards(RewardsError::Default { .. })), "{default_reward}");
    }
    let layer = |name: &str, from, to| {
        let layer = v1::Layer { name: name.to_owned(), from, to };
        after_wire(|m| m.layer = Some(layer.clone()))
    };
    for error in [
        layer("Page", 0, 1),
        layer("", 0, 1),
        layer("page", 7, 7),
        layer("page", 8, 7),
        layer("page", 0, 1_000_001),
        after_wire(|m| m.enrolment_millionths = 1_000_001),
        after_wire(|m| {
            m.sticky = Some(v1::Sticky { until_weight_below: 1_000_001, report_days: 0 });
        }),
    ] {
        assert!(matches!(error, E::Participation(_)), "{error}");
    }
    let metric = |change: &dyn Fn(&mut v1::Metric)| after_wire(|m| change(&mut m.metrics[0]));
    for error in [
        metric(&|metric| metric.name.clear()),
        metric(&|metric| metric.share_millionths = 0),
        metric(&|metric| metric.share_millionths = 1_000_000),
        after_wire(|m| m.segmentations[0].values.truncate(1)),
        after_wire(|m| m.segmentations[0].name.push('!')),
        after_wire(|m| m.segmentations.push(m.segmentations[0].clone())),
    ] {
        assert!(matches!(error, E::Cells(_)), "{error}");
    }
    assert!(missing(metric(&|metric| metric.kind = 0), "reward_kind"));
    assert!(matches!(metric(&|metric| metric.default_value = 0.5), E::Rewards(_)));
    let binary = v1::RewardKind::Binary.into();
    assert!(matches!(
        after_wire(|m| m.reward_kind = binary),
        E::Rewards(RewardsError::BinaryClamp)
    ));
    assert!(matches!(
        after_wire(|m| m.arms[1].label.clear()),
        E::Specification(SpecificationError::Label { .. })
    ));
    assert!(matches!(after_wire(|m| m.floor = 1), E::Specification(SpecificationError::Floor(_))));
}

#[test]
fn bytes_digests_and_policies_are_checked() {
    let specification = Specification::new(full()).unwrap();
    let bytes = specification.canonical_bytes();
    for cut in [&bytes[..bytes.len() - 1], &[0xff], &bytes[1..]] {
        assert!(matches!(decode_specification(cut), Err(WireError::Decode(_))));
    }
    let mut other = full();
    other.simulation = false;
    let other = Specification::new(other).unwrap();
    for digest in [&other.digest().as_bytes()[..], &[], &specification.digest().as_bytes()[..15]] {
        let mut experiment = v1::Experiment::from(&specification);
        experiment.digest = digest.to_vec().into();
        let refused = Specification::try_from(&experiment);
        assert!(matches!(refused, Err(WireError::DigestMismatch)));
    }
    let policy = |version, weights: &[u64], time_to_live_seconds| {
        Policy::try_from(&v1::Policy { version, weights: weights.to_vec(), time_to_live_seconds })
    };
    let whole = 1 << 32;
    let accepted = policy(7, &[whole - 5, 5], 60).unwrap();
    assert_eq!(Policy::try_from(&v1::Policy::from(&accepted)).unwrap(), accepted);
    for (version, weights, seconds, expected) in [
        (0, &[whole][..], 60, PolicyError::Unversioned),
        (7, &[whole], 0, PolicyError::Unversioned),
        (7, &[], 60, PolicyError::ArmCount { arms: 0 }),
        (7, &[whole, 1], 60, PolicyError::Sum { sum: whole + 1 }),
    ] {
        let refused = policy(version, weights, seconds);
        assert!(matches!(refused, Err(WireError::Policy(error)) if error == expected));
    }
}

#[test]
fn mutated_and_random_bytes_never_panic() {
    const ROUNDS: u32 = 30_000;
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let original = Specification::new(full()).unwrap().canonical_bytes();
    let (mut accepted, mut not_canonical) = (0, 0);
    for round in 0..ROUNDS {
        let mut bytes = if round % 4 == 0 {
            let length = random.random_range(0..200);
            (0..length).map(|_| random.random()).collect()
        } else {
            original.clone()
        };
        for _ in 0..random.random_range(1..4) {
            let place = random.random_range(0..=bytes.len());
            match random.random_range(0..4) {
                0 => bytes.insert(place, random.random()),
                1 => bytes.truncate(bytes.len().saturating_sub(random.random_range(0..9))),
                2 if place < bytes.len() => drop(bytes.remove(place)),
                _ if place < bytes.len() => bytes[place] ^= 1 << (random.next_u32() % 8),
                _ => bytes.extend_from_within(place / 2..),
            }
        }
        match decode_specification(&bytes) {
            Ok(specification) => {
                accepted += 1;
                assert_eq!(specification.canonical_bytes(), bytes);
            }
            Err(WireError::NotCanonical) => not_canonical += 1,
            Err(_) => (),
        }
        if let Ok(message) = v1::Policy::decode(&bytes[..]) {
            assert!(Policy::try_from(&message).is_err(), "a policy by accident");
        }
    }
    assert!(accepted > 100 && not_canonical > 100, "{accepted} {not_canonical}");
}
