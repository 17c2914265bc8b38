//! The canonical encoding and the digest.

use std::collections::HashSet;

use bandana_shared::alphabet::Alphabet;
use bandana_shared::cells::{Measurement, Segmentation, Segmentations};
use bandana_shared::channel::Floor;
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ArmIndex, ExperimentId};
use bandana_shared::limits::ARMS_MAX;
use bandana_shared::participation::{Layer, Millionths, Participation, Sticky};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use bandana_shared::wire::{WireError, decode_specification, v1};
use proptest::prelude::*;
use prost::Message as _;
use prost::encoding::{DecodeContext, decode_key, skip_field};

use crate::specification::samples::{full, replayable, specifications};

/// The top-level fields of a message, each with its key.
fn fields(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let start = rest;
        let (tag, wire_type) = decode_key(&mut rest).unwrap();
        skip_field(wire_type, tag, &mut rest, DecodeContext::default()).unwrap();
        fields.push(&start[..start.len() - rest.len()]);
    }
    fields
}

/// Asserts that a protobuf decoder reads `bytes` as `specification`, and that they are refused all
/// the same.
fn assert_not_canonical(bytes: &[u8], specification: &Specification, what: &str) {
    let message = v1::Specification::decode(bytes).unwrap();
    assert_eq!(&Specification::try_from(&message).unwrap(), specification, "{what}");
    let decoded = decode_specification(bytes);
    assert!(matches!(decoded, Err(WireError::NotCanonical)), "{what}: {decoded:?}");
}

proptest! {
    #![proptest_config(replayable(300))]

    #[test]
    fn canonical_bytes_are_what_prost_writes(specification in specifications()) {
        let message = v1::Specification::from(&specification);
        prop_assert_eq!(specification.canonical_bytes(), message.encode_to_vec());
    }

    #[test]
    fn decoding_gives_the_same_specification(specification in specifications()) {
        let decoded = decode_specification(&specification.canonical_bytes()).unwrap();
        prop_assert_eq!(decoded.digest(), specification.digest());
        prop_assert_eq!(&decoded, &specification);
        let experiment = v1::Experiment::from(&specification);
        prop_assert_eq!(&Specification::try_from(&experiment).unwrap(), &specification);
        prop_assert_eq!(&Specification::new(specification.to_parts()).unwrap(), &specification);
    }

    #[test]
    fn other_encodings_of_the_same_content_are_refused(specification in specifications()) {
        let bytes = specification.canonical_bytes();
        let parts = fields(&bytes);
        prop_assert_eq!(parts.concat(), bytes.clone());
        let refused = |bytes: &[u8], what| assert_not_canonical(bytes, &specification, what);
        // An unknown field, of each wire type that is in use.
        refused(&[&bytes[..], &[0xa0, 0x06, 0x01]].concat(), "varint field 100");
        refused(&[&bytes[..], &[0xa2, 0x06, 0x01, 0x00]].concat(), "bytes field 100");
        refused(&[&bytes[..], &[0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]].concat(), "fixed64 field 100");
        // The name last, which a decoder accepts.
        refused(&[parts[1..].concat(), parts[0].to_vec()].concat(), "reordered");
        // The revision twice; the last one counts.
        refused(&[parts[0], parts[1], &parts[1..].concat()].concat(), "repeated");
        // A revision with a redundant byte: the last one gets a continuation.
        let mut longer = parts[1].to_vec();
        *longer.last_mut().unwrap() |= 0x80;
        longer.push(0);
        if longer.len() < 11 {
            refused(&[parts[0], &longer, &parts[2..].concat()].concat(), "longer varint");
        }
        // A default that is written out.
        if !specification.is_simulation() {
            refused(&[parts[0], parts[1], &[0x18, 0], &parts[2..].concat()].concat(), "default");
        }
    }
}

#[test]
fn unknown_fields_inside_arms_and_mechanisms_are_refused() {
    let specification = Specification::new(full()).unwrap();
    let bytes = specification.canonical_bytes();
    let parts = fields(&bytes);
    // Keys of the length-delimited fields 12, 15, 19 and 20.
    for key in [&[0x62][..], &[0x7a], &[0x9a, 0x01], &[0xa2, 0x01]] {
        let place = parts.iter().position(|field| field.starts_with(key)).unwrap();
        let [length, ref content @ ..] = parts[place][key.len()..] else { panic!("a short field") };
        let longer = [key, &[length + 2], content, &[0x50, 0x01]].concat();
        let changed = [parts[..place].concat(), longer, parts[place + 1..].concat()].concat();
        assert_not_canonical(&changed, &specification, "nested");
    }
}

#[test]
fn a_negative_zero_is_not_canonical() {
    // Protobuf libraries differ in whether they write it.
    let mut parts = full();
    let range = RewardRange::new(-0.0, 1.0).unwrap();
    parts.rewards = Rewards::new(RewardKind::Bounded, range, OutOfRange::Clamp, -0.0).unwrap();
    let specification = Specification::new(parts).unwrap();
    let bytes = specification.canonical_bytes();
    assert_eq!(bytes, v1::Specification::from(&specification).encode_to_vec());
    // Field 10, the default reward, between the fields 9 and 12.
    let parts = fields(&bytes);
    let place = parts.iter().position(|field| field[0] == 0x62).unwrap();
    let negative_zero = [0x51, 0, 0, 0, 0, 0, 0, 0, 0x80];
    let changed = [&parts[..place].concat()[..], &negative_zero, &parts[place..].concat()].concat();
    assert_not_canonical(&changed, &specification, "negative zero");
}

#[test]
fn the_largest_specification_survives() {
    let mut parts = SpecificationParts { measurement: Measurement::REWARDS_ONLY, ..full() };
    parts.arms = (0..ARMS_MAX)
        .map(|arm| Arm::new(format!("{arm:0>8}{}", "ß".repeat(60))).unwrap())
        .collect();
    let specification = Specification::new(parts).unwrap();
    let bytes = specification.canonical_bytes();
    assert_eq!(bytes, v1::Specification::from(&specification).encode_to_vec());
    assert_eq!(decode_specification(&bytes).unwrap(), specification);
}

#[test]
fn golden_bytes_and_digest() {
    let specification = Specification::first(
        ExperimentId::new("ab").unwrap(),
        Epsilon::new(1.0).unwrap(),
        Rewards::binary(),
        Mechanism::RandomizedResponse,
        vec![Arm::new("x").unwrap(), Arm::new("é").unwrap().retired()],
        ReleaseTiming::IMMEDIATE,
    )
    .unwrap();
    // Written by hand from the protobuf encoding rules.
    let floor = specification.channel().floor().to_le_bytes();
    let by_hand: Vec<u8> = [
        &[0x0a, 2, b'a', b'b', 0x10, 1][..],
        &[0x21, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        &[0x29],
        &floor,
        &[0x30, 1, 0x41, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x48, 1],
        &[0x72, 0, 0x7a, 3, 0x0a, 1, b'x', 0x7a, 6, 0x0a, 2, 0xc3, 0xa9, 0x10, 1],
    ]
    .concat();
    assert_eq!(specification.canonical_bytes(), by_hand);
    assert_eq!(specification.channel().floor(), 4_961_093_570_831_989_046);
    // SHA-256 of the domain and these bytes, by another implementation.
    assert_eq!(specification.digest().to_string(), "1353919ecf525210eab84ca5976bf062");
}

#[test]
fn golden_bytes_of_categories() {
    let specification = Specification::first(
        ExperimentId::new("ab").unwrap(),
        Epsilon::new(1.0).unwrap(),
        Rewards::categorical(Alphabet::new(3).unwrap()),
        Mechanism::Kary(Alphabet::new(3).unwrap()),
        vec![Arm::new("x").unwrap()],
        ReleaseTiming { attribution_window_seconds: 1, release_delay_seconds_max: 0 },
    )
    .unwrap();
    // 2^64/(e + 2) is 3909631671945742412.1..., and the guard adds less than 2^15.
    let floor = specification.channel().floor();
    assert!((3_909_631_671_945_742_413..3_909_631_671_945_775_180).contains(&floor), "{floor}");
    let by_hand: Vec<u8> = [
        &[0x0a, 2, b'a', b'b', 0x10, 1][..],
        &[0x21, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        &[0x29],
        &floor.to_le_bytes(),
        &[0x30, 3, 0x41, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x48, 1],
        &[0x72, 2, 0x08, 3, 0x7a, 3, 0x0a, 1, b'x', 0x80, 0x01, 1],
    ]
    .concat();
    assert_eq!(specification.canonical_bytes(), by_hand);
}

/// Every change of a single part of [`full`].
fn single_changes() -> Vec<SpecificationParts> {
    use OutOfRange::{Clamp, Refuse};
    use RewardKind::{Binary, Bounded};
    let changed = |change: &dyn Fn(&mut SpecificationParts)| {
        let mut parts = full();
        change(&mut parts);
        parts
    };
    let rewards = |kind, low, high, out_of_range, default| {
        let range = RewardRange::new(low, high).unwrap();
        let rewards = Rewards::new(kind, range, out_of_range, default).unwrap();
        changed(&|parts| parts.rewards = rewards)
    };
    let mechanism = |mechanism| changed(&|parts| parts.mechanism = mechanism);
    // Symbols are not shuffled.
    let kary = |symbols| {
        changed(&|parts| {
            (parts.mechanism, parts.batch) = (Mechanism::Kary(symbols), None);
            parts.measurement.metrics.clear();
        })
    };
    vec![
        full(),
        changed(&|parts| parts.experiment_id = ExperimentId::new("checkout2").unwrap()),
        changed(&|parts| parts.revision = parts.revision.next()),
        changed(&|parts| parts.simulation = false),
        changed(&|parts| parts.epsilon = Epsilon::new(2.0_f64.next_up()).unwrap()),
        changed(&|parts| parts.floor += 1),
        rewards(Bounded, -1.0_f64.next_up(), 4.0, Clamp, 0.5),
        rewards(Bounded, -1.0, 4.0_f64.next_up(), Clamp, 0.5),
        rewards(Bounded, -1.0, 4.0, Refuse, 0.5),
        rewards(Bounded, -1.0, 4.0, Clamp, 0.5_f64.next_up()),
        rewards(Bounded, -1.0, 4.0, Clamp, 0.0),
        rewards(Bounded, -1.0, 4.0, Refuse, 4.0),
        rewards(Binary, -1.0, 4.0, Refuse, 4.0),
        mechanism(Mechanism::Linear),
        mechanism(Mechanism::Exponential),
        mechanism(Mechanism::Quadratic(Curvature::new(0.25).unwrap())),
        mechanism(Mechanism::Quadratic(Curvature::new(0.0).unwrap())),
        kary(Alphabet::new(2).unwrap()),
        kary(Alphabet::new(3).unwrap()),
        changed(&|parts| parts.arms[0] = Arm::new("Rouge").unwrap()),
        changed(&|parts| parts.arms[0] = Arm::new("rouge").unwrap().retired()),
        changed(&|parts| parts.arms[1] = Arm::new("vert pâle").unwrap()),
        changed(&|parts| parts.arms.swap(0, 1)),
        changed(&|parts| parts.arms.push(Arm::new("bleu").unwrap())),
        changed(&|parts| parts.arms.truncate(1)),
        changed(&|parts| parts.timing.attribution_window_seconds += 1),
        changed(&|parts| parts.timing.attribution_window_seconds = 0),
        changed(&|parts| parts.timing.release_delay_seconds_max += 1),
        changed(&|parts| parts.timing.release_delay_seconds_max = 0),
        changed(&|parts| parts.batch = BatchSize::new(1001).ok()),
        changed(&|parts| parts.batch = None),
    ]
}

/// Every change of who takes part in [`full`].
fn changes_of_participation() -> Vec<SpecificationParts> {
    let participation = |part: Participation| SpecificationParts { participation: part, ..full() };
    let sticky = |one| participation(Participation { sticky: Some(one), ..full().participation });
    let layer = |text: &str| {
        let layer = Some(text.parse::<Layer>().unwrap());
        participation(Participation { layer, ..full().participation })
    };
    let enrolment = |parts| {
        let enrolment = Millionths::new(parts).unwrap();
        participation(Participation { enrolment, ..full().participation })
    };
    vec![
        participation(Participation { sticky: None, ..full().participation }),
        sticky(Sticky { report_days: 29, ..Sticky::DEFAULT }),
        sticky(Sticky::DEFAULT),
        sticky(Sticky { until_weight_below: Millionths::NONE, report_days: 28 }),
        sticky(Sticky { until_weight_below: Millionths::NONE, report_days: 0 }),
        participation(Participation { layer: None, ..full().participation }),
        layer("pages:0.25-0.75"),
        layer("page:0.25-0.750001"),
        layer("page:0.250001-0.75"),
        layer("page:0-0.75"),
        layer("page:0.25-1"),
        enrolment(300_001),
        enrolment(1),
        enrolment(1_000_000),
    ]
}

/// Every change of the segments and metrics in [`full`].
fn changes_of_measurement() -> Vec<SpecificationParts> {
    let changed = |change: &dyn Fn(&mut Measurement)| {
        let mut parts = full();
        change(&mut parts.measurement);
        parts
    };
    let segments = |text: &'static str| {
        changed(&move |measurement| {
            let all = text.split(';').map(|one| one.parse::<Segmentation>().unwrap());
            measurement.segmentations = Segmentations::new(all.collect()).unwrap();
        })
    };
    let metric = |place: usize, text: &'static str| {
        changed(&move |measurement| measurement.metrics[place] = text.parse().unwrap())
    };
    vec![
        changed(&|measurement| measurement.holdout = Millionths::new(50_001).unwrap()),
        changed(&|measurement| measurement.holdout = Millionths::NONE),
        changed(&|measurement| measurement.segmentations = Segmentations::NONE),
        segments("platforms=ios,android"),
        segments("platform=android,ios"),
        segments("platform=ios,android,web"),
        segments("platform=ios,android;age=young,old"),
        segments("age=young,old;platform=ios,android"),
        changed(&|measurement| measurement.metrics.clear()),
        changed(&|measurement| measurement.metrics.swap(0, 1)),
        metric(0, "returns:0.2:at-most=0.3"),
        metric(0, "returned:0.200001:at-most=0.3"),
        metric(0, "returned:0.2:at-most=0.300001"),
        metric(0, "returned:0.2:at-least=0.3"),
        metric(0, "returned:0.2"),
        metric(0, "returned:0.2:0..1:at-most=0.3"),
        metric(1, "minutes:0.1:-1..61:at-least=0"),
        metric(1, "minutes:0.1:-2..60:at-least=0"),
        metric(1, "minutes:0.1:-1..60"),
        metric(1, "minutes:0.1:-1..60:at-most=0"),
    ]
}

#[test]
fn every_change_changes_the_digest() {
    let mut changes = single_changes();
    changes.extend(changes_of_participation());
    changes.extend(changes_of_measurement());
    // A list in which all arms are retired is not an experiment.
    changes.retain(|parts| parts.arms.iter().any(|arm| !arm.is_retired()));
    assert_eq!(changes.len(), 64);
    let digests: HashSet<_> =
        changes.iter().map(|parts| Specification::new(parts.clone()).unwrap().digest()).collect();
    assert_eq!(digests.len(), changes.len());
}

#[test]
fn revisions_change_arms_and_enrolment_and_nothing_else() {
    let first = Specification::first(
        ExperimentId::new("ab").unwrap(),
        Epsilon::new(1.0).unwrap(),
        Rewards::binary(),
        Mechanism::Linear,
        vec![Arm::new("x").unwrap(), Arm::new("y").unwrap()],
        ReleaseTiming::IMMEDIATE,
    )
    .unwrap();
    let second = first.with_arm(Arm::new("z").unwrap()).unwrap();
    let third = second.without_arm(ArmIndex::new(1).unwrap()).unwrap();
    assert_eq!(third.revision().get(), 3);
    assert_eq!(third.active_arms(), [true, false, true]);
    let labels: Vec<&str> = third.arms().iter().map(Arm::label).collect();
    assert_eq!(labels, ["x", "y", "z"]);
    let half = Millionths::from_share(0.5).unwrap();
    let fourth = third.with_enrolment(half).unwrap();
    assert_eq!((fourth.revision().get(), fourth.participation().enrolment), (4, half));
    let mut parts = fourth.to_parts();
    parts.arms = first.arms().to_vec();
    parts.revision = first.revision();
    parts.participation = Participation::EVERYONE;
    assert_eq!(Specification::new(parts).unwrap(), first);
}

#[test]
fn the_certified_epsilon_is_never_above_the_promise() {
    for nats in [Epsilon::MIN, 0.3, 1.0, 4.0, Epsilon::MAX] {
        let mut parts = full();
        parts.epsilon = Epsilon::new(nats).unwrap();
        let computed = Floor::for_epsilon(parts.epsilon).get();
        for floor in [computed, computed + 1, computed + (1 << 20)] {
            parts.floor = floor;
            let certified = Specification::new(parts.clone()).unwrap().certified_epsilon();
            assert!(certified <= nats && certified > 0.0);
        }
    }
}
