//! Specifications and uploads, and byte sequences to refuse.

use anyhow::ensure;
use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::cells::{Limit, Measurement, Metric, Segmentation, Segmentations};
use bandana_shared::channel::Floor;
use bandana_shared::context::{Feature, PrivateContext};
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{CellIndex, Day, Digest, ExperimentId, Revision, UploadId};
use bandana_shared::participation::{Layer, Millionths, Participation, Sticky};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::specification::{
    Arm, ReleaseTiming, Specification, SpecificationParts, smallest_floor,
};
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::decode_specification;
use serde::Serialize;

use super::{Real, hex, word};

#[derive(Serialize)]
pub(super) struct SpecificationVectors {
    accepted: Vec<SpecificationVector>,
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct SpecificationVector {
    experiment_id: String,
    revision: u32,
    simulation: bool,
    epsilon: Real,
    floor: String,
    reward_kind: &'static str,
    reward_low: Real,
    reward_high: Real,
    out_of_range: &'static str,
    default_reward: Real,
    mechanism: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    curvature_units: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    symbols: Option<u8>,
    arms: Vec<ArmVector>,
    attribution_window_seconds: u32,
    release_delay_seconds_max: u32,
    shuffle_batch: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    sticky: Option<StickyVector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<LayerVector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enrolment_millionths: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    segmentations: Vec<SegmentationVector>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<MetricVector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holdout_millionths: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_context: Option<ContextVector>,
    bytes: String,
    digest: String,
}

#[derive(Serialize)]
struct StickyVector {
    until_weight_below: u32,
    report_days: u32,
}

#[derive(Serialize)]
struct LayerVector {
    name: String,
    from: u32,
    to: u32,
}

#[derive(Serialize)]
struct SegmentationVector {
    name: String,
    values: Vec<String>,
}

#[derive(Serialize)]
struct MetricVector {
    name: String,
    kind: &'static str,
    low: Real,
    high: Real,
    out_of_range: &'static str,
    default_value: Real,
    share_millionths: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<Real>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<Real>,
}

#[derive(Serialize)]
struct ContextVector {
    features: Vec<FeatureVector>,
    exploration_millionths: u32,
}

#[derive(Serialize)]
struct FeatureVector {
    name: String,
    true_millionths: u32,
}

#[derive(Serialize)]
struct ArmVector {
    label: String,
    retired: bool,
}

#[derive(Serialize)]
struct Refused {
    reason: &'static str,
    bytes: String,
}

pub(super) fn specifications() -> anyhow::Result<SpecificationVectors> {
    let examples = examples()?;
    Ok(SpecificationVectors {
        accepted: examples.iter().map(specification_vector).collect(),
        refused: refused(&examples[0])?,
    })
}

/// A plain specification, one without default values, and one for each remaining mechanism.
pub(super) fn examples() -> anyhow::Result<Vec<Specification>> {
    let plain = Specification::first(
        ExperimentId::new("button-colour")?,
        Epsilon::new(1.0)?,
        Rewards::binary(),
        Mechanism::RandomizedResponse,
        vec![Arm::new("red")?, Arm::new("green")?],
        ReleaseTiming::IMMEDIATE,
    )?;
    let epsilon = Epsilon::new(2.5)?;
    let range = RewardRange::new(-1.0, 4.0)?;
    let full = SpecificationParts {
        experiment_id: ExperimentId::new("checkout.v2")?,
        revision: Revision::new(300)?,
        simulation: true,
        epsilon,
        floor: Floor::for_epsilon(epsilon).get(),
        rewards: Rewards::new(RewardKind::Bounded, range, OutOfRange::Clamp, 0.5)?,
        mechanism: Mechanism::Quadratic(Curvature::from_units(-262_144)?),
        arms: vec![Arm::new("rouge")?, Arm::new("vert pâle")?.retired(), Arm::new("日本語")?],
        timing: ReleaseTiming {
            attribution_window_seconds: 86_400,
            release_delay_seconds_max: 3600,
        },
        batch: None,
        participation: Participation::EVERYONE,
        measurement: Measurement::REWARDS_ONLY,
    };
    let mut flat = full.clone();
    flat.mechanism = Mechanism::Quadratic(Curvature::from_units(0)?);
    let mut linear = full.clone();
    linear.mechanism = Mechanism::Linear;
    linear.rewards = Rewards::new(RewardKind::Bounded, RewardRange::UNIT, OutOfRange::Refuse, 0.0)?;
    let mut exponential = linear.clone();
    exponential.mechanism = Mechanism::Exponential;
    let mut many = linear.clone();
    many.arms = (0..200).map(|arm| Arm::new(format!("arm {arm}"))).collect::<Result<_, _>>()?;
    let mut levels = linear.clone();
    let six = Alphabet::new(6)?;
    levels.mechanism = Mechanism::Kary(six);
    levels.floor = smallest_floor(levels.mechanism, epsilon);
    let shuffled = SpecificationParts { batch: Some(BatchSize::new(1000)?), ..linear.clone() };
    let categories = SpecificationParts { rewards: Rewards::categorical(six), ..levels.clone() };
    let partial = SpecificationParts { participation: participation()?, ..shuffled.clone() };
    // Its two fields have their default values, and the message is there all the same.
    let for_ever = Sticky { until_weight_below: Millionths::NONE, report_days: 0 };
    let for_ever = Participation { sticky: Some(for_ever), ..Participation::EVERYONE };
    let kept = SpecificationParts { participation: for_ever, ..linear.clone() };
    let [measured, by_platform, held_out] = measuring(&partial, &levels)?;
    let private = SpecificationParts { measurement: private_context()?, ..linear.clone() };
    let others = [
        full,
        flat,
        linear,
        exponential,
        many,
        levels,
        categories,
        shuffled,
        partial,
        kept,
        measured,
        by_platform,
        held_out,
        private,
    ]
    .map(Specification::new);
    std::iter::once(Ok(plain)).chain(others).map(|specification| Ok(specification?)).collect()
}

/// Specifications with segments and metrics, with segments alone, and with a holdout too.
fn measuring(
    partial: &SpecificationParts,
    levels: &SpecificationParts,
) -> anyhow::Result<[SpecificationParts; 3]> {
    let measured = SpecificationParts { measurement: measurement()?, ..partial.clone() };
    let by_platform = Measurement { metrics: Vec::new(), ..measured.measurement.clone() };
    let by_platform = SpecificationParts { measurement: by_platform, ..levels.clone() };
    let holdout = Millionths::from_share(0.05)?;
    let held_out = Measurement { holdout, ..measured.measurement.clone() };
    let held_out = SpecificationParts { measurement: held_out, ..measured.clone() };
    Ok([measured, by_platform, held_out])
}

fn participation() -> anyhow::Result<Participation> {
    Ok(Participation {
        sticky: Some(Sticky { report_days: 28, ..Sticky::DEFAULT }),
        layer: Some("checkout:0.25-0.75".parse::<Layer>()?),
        enrolment: Millionths::from_share(0.5)?,
    })
}

fn private_context() -> anyhow::Result<Measurement> {
    let context = PrivateContext::new(
        vec!["weekend=0.29".parse()?, "returning".parse()?, "battery.low=0.000001".parse()?],
        Millionths::from_share(0.2)?,
    )?;
    Ok(Measurement { context: Some(context), ..Measurement::REWARDS_ONLY })
}

fn measurement() -> anyhow::Result<Measurement> {
    let metrics =
        ["returned:0.2:at-most=0.3", "minutes:0.05:-1..60:at-least=0", "crashed:0.000001"];
    let mut metrics: Vec<Metric> = metrics.into_iter().map(str::parse).collect::<Result<_, _>>()?;
    // One that refuses numbers beyond its range.
    let minutes = RewardRange::new(-1.0, 60.0)?;
    let minutes = Rewards::new(RewardKind::Bounded, minutes, OutOfRange::Refuse, -1.0)?;
    metrics[1] =
        Metric::new("minutes", minutes, metrics[1].share())?.limited(Limit::AtLeast(0.0))?;
    let segmentations = ["platform=ios,android,日本", "age=young,old"].map(str::parse);
    let segmentations = segmentations.into_iter().collect::<Result<_, _>>()?;
    Ok(Measurement {
        segmentations: Segmentations::new(segmentations)?,
        metrics,
        ..Measurement::REWARDS_ONLY
    })
}

fn specification_vector(specification: &Specification) -> SpecificationVector {
    let rewards = specification.rewards();
    let participation = specification.participation();
    let (mechanism, curvature_units) = match specification.mechanism() {
        Mechanism::Linear => ("linear", None),
        Mechanism::Quadratic(curvature) => ("quadratic", Some(curvature.units())),
        Mechanism::Exponential => ("exponential", None),
        Mechanism::RandomizedResponse | Mechanism::Kary(_) => ("randomized_response", None),
    };
    let symbols = match specification.mechanism() {
        Mechanism::Kary(alphabet) => Some(alphabet.len()),
        _ => None,
    };
    let segmentation = |one: &Segmentation| SegmentationVector {
        name: one.name().to_owned(),
        values: one.values().to_vec(),
    };
    let arm = |arm: &Arm| ArmVector { label: arm.label().to_owned(), retired: arm.is_retired() };
    SpecificationVector {
        experiment_id: specification.experiment_id().to_string(),
        revision: specification.revision().get(),
        simulation: specification.is_simulation(),
        epsilon: specification.epsilon().get().into(),
        floor: specification.channel().floor().to_string(),
        reward_kind: reward_kind(rewards.kind()),
        reward_low: rewards.range().low().into(),
        reward_high: rewards.range().high().into(),
        out_of_range: out_of_range(rewards.out_of_range()),
        default_reward: rewards.default_reward().into(),
        mechanism,
        curvature_units,
        symbols,
        arms: specification.arms().iter().map(arm).collect(),
        attribution_window_seconds: specification.timing().attribution_window_seconds,
        release_delay_seconds_max: specification.timing().release_delay_seconds_max,
        shuffle_batch: specification.batch().map_or(0, BatchSize::get),
        sticky: participation.sticky.map(|sticky| StickyVector {
            until_weight_below: sticky.until_weight_below.get(),
            report_days: sticky.report_days,
        }),
        layer: participation.layer.as_ref().map(|part| LayerVector {
            name: part.name().to_string(),
            from: part.from().get(),
            to: part.to().get(),
        }),
        enrolment_millionths: (participation.enrolment != Millionths::ALL)
            .then_some(participation.enrolment.get()),
        segmentations: specification
            .measurement()
            .segmentations
            .all()
            .iter()
            .map(segmentation)
            .collect(),
        metrics: specification.measurement().metrics.iter().map(metric_vector).collect(),
        holdout_millionths: (specification.cells().has_holdout())
            .then_some(specification.measurement().holdout.get()),
        private_context: specification.private_context().map(context_vector),
        bytes: hex(&specification.canonical_bytes()),
        digest: specification.digest().to_string(),
    }
}

fn context_vector(context: &PrivateContext) -> ContextVector {
    let feature = |feature: &Feature| FeatureVector {
        name: feature.name().to_owned(),
        true_millionths: feature.true_share().get(),
    };
    ContextVector {
        features: context.features().iter().map(feature).collect(),
        exploration_millionths: context.exploration().get(),
    }
}

fn metric_vector(metric: &Metric) -> MetricVector {
    let values = metric.values();
    let (at_most, at_least) = match metric.limit() {
        None => (None, None),
        Some(Limit::AtMost(mean)) => (Some(mean.into()), None),
        Some(Limit::AtLeast(mean)) => (None, Some(mean.into())),
    };
    MetricVector {
        name: metric.name().to_owned(),
        kind: reward_kind(values.kind()),
        low: values.range().low().into(),
        high: values.range().high().into(),
        out_of_range: out_of_range(values.out_of_range()),
        default_value: values.default_reward().into(),
        share_millionths: metric.share().get(),
        at_most,
        at_least,
    }
}

fn reward_kind(kind: RewardKind) -> &'static str {
    match kind {
        RewardKind::Binary => "REWARD_KIND_BINARY",
        RewardKind::Bounded => "REWARD_KIND_BOUNDED",
        RewardKind::Categorical => "REWARD_KIND_CATEGORICAL",
    }
}

fn out_of_range(treatment: OutOfRange) -> &'static str {
    match treatment {
        OutOfRange::Refuse => "OUT_OF_RANGE_REFUSE",
        OutOfRange::Clamp => "OUT_OF_RANGE_CLAMP",
    }
}

/// Changes to the bytes of the plain example, which begin with its name in
/// field 1 and its revision, 1, in field 2.
fn refused(plain: &Specification) -> anyhow::Result<Vec<Refused>> {
    let bytes = plain.canonical_bytes();
    let name_end = 2 + plain.experiment_id().as_str().len();
    let (name, rest) = bytes.split_at(name_end);
    let (revision, rest) = rest.split_at(2);
    ensure!(revision == [0x10, 1], "the revision is not where it was");
    let low_floor = Floor::for_epsilon(Epsilon::new(1.0001)?).get().to_le_bytes();
    let (epsilon, after) = rest.split_at(9);
    let after_floor = &after[9..];
    let examples: [(&'static str, Vec<u8>); 9] = [
        ("an unknown field at the end", [&bytes, &[0xa0, 0x06, 1][..]].concat()),
        ("fields out of order", [revision, name, rest].concat()),
        ("a field twice", [name, revision, revision, rest].concat()),
        ("a varint of two bytes where one is enough", [name, &[0x10, 0x81, 0], rest].concat()),
        ("a default that is written out", [name, revision, &[0x18, 0], rest].concat()),
        ("no revision", [name, rest].concat()),
        ("a floor that loses more than epsilon", {
            [name, revision, epsilon, &[0x29], &low_floor, after_floor].concat()
        }),
        ("a second mechanism", [&bytes, &[0x5a, 0][..]].concat()),
        ("cut off", bytes[..bytes.len() - 1].to_vec()),
    ];
    examples
        .into_iter()
        .map(|(reason, bytes)| {
            ensure!(decode_specification(&bytes).is_err(), "accepted: {reason}");
            Ok(Refused { reason, bytes: hex(&bytes) })
        })
        .collect()
}

#[derive(Serialize)]
pub(super) struct UploadVector {
    upload_id: String,
    digest: String,
    day: u32,
    /// Number of distinct values of a report; 2 for bits.
    symbols: u8,
    reports: Vec<(usize, u8)>,
    runs: Vec<u32>,
    bits: String,
    bytes: String,
}

pub(super) fn uploads() -> anyhow::Result<Vec<UploadVector>> {
    let scattered = |reports: u64, arms: u64| {
        (0..reports).map(|i| (word(2 * i) % arms, word(2 * i + 1) & 1 == 1)).collect::<Vec<_>>()
    };
    let examples = [
        (0, vec![(0, false)]),
        (20_000, vec![(0, true)]),
        (20_000, vec![(1023, true)]),
        (20_001, vec![(2, true), (0, false), (2, false), (0, true), (7, true)]),
        (u32::MAX, scattered(64, 3)),
        (20_002, scattered(200, 300)),
    ];
    let bits = examples.into_iter().map(|(day, reports)| {
        let reports: Vec<_> =
            reports.into_iter().map(|(arm, bit)| (arm, Symbol::from(bit))).collect();
        upload_vector(day, Alphabet::BITS, &reports)
    });
    let symbols =
        [(3, 1), (3, 9), (4, 50), (5, 2), (6, 33), (16, 100)].map(|(symbols, reports)| {
            let alphabet = Alphabet::new(symbols)?;
            let report = |i: u64| {
                let number = u8::try_from(word(3000 + i) % u64::from(symbols)).ok();
                (word(4000 + i) % 5, number.and_then(Symbol::new).unwrap_or_default())
            };
            let reports: Vec<_> = (0..reports).map(report).collect();
            upload_vector(20_010 + symbols, alphabet, &reports)
        });
    bits.chain(symbols).collect()
}

fn upload_vector(
    day: u32,
    alphabet: Alphabet,
    reports: &[(u64, Symbol)],
) -> anyhow::Result<UploadVector> {
    let pairs = reports
        .iter()
        .map(|&(arm, symbol)| Ok((CellIndex::new(usize::try_from(arm)?)?, symbol)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let sixteen = |start: u64| {
        let [high, low] = [word(start), word(start + 1)].map(u128::from);
        (high << 64 | low).to_be_bytes()
    };
    let upload = Upload {
        id: UploadId::new(sixteen(5000 + u64::from(day))),
        digest: Digest::new(sixteen(9000)),
        day: Day::new(day),
        reports: PackedReports::pack_symbols(pairs.clone(), alphabet)?,
    };
    Ok(UploadVector {
        upload_id: upload.id.to_string(),
        digest: upload.digest.to_string(),
        day,
        symbols: alphabet.len(),
        reports: pairs.into_iter().map(|(arm, symbol)| (arm.get(), symbol.get())).collect(),
        runs: upload.reports.flat_runs().collect(),
        bits: hex(upload.reports.bits()),
        bytes: hex(&upload.to_bytes()),
    })
}
