//! The canonical encoding of a specification, which its digest covers.

use super::SpecificationParts;
use crate::canonical::Writer;
use crate::cells::{Limit, Metric, Segmentation};
use crate::context::PrivateContext;
use crate::curve::Mechanism;
use crate::limits::{LABEL_BYTES_MAX, LAYER_NAME_CHARS_MAX};
use crate::participation::{Millionths, Participation};
use crate::rewards::{OutOfRange, RewardKind, Rewards};

/// The canonical encoding of `bandana.v1.Specification`.
pub(super) fn encode(parts: &SpecificationParts) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(128 + 32 * parts.arms.len());
    let mut writer = Writer::new(&mut buffer);
    writer.bytes(1, parts.experiment_id.as_str().as_bytes());
    writer.varint(2, u64::from(parts.revision.get()));
    writer.varint(3, u64::from(parts.simulation));
    writer.double(4, parts.epsilon.get());
    writer.fixed64(5, parts.floor);
    write_rewards(&mut writer, 6, parts.rewards);
    match parts.mechanism {
        Mechanism::Linear => writer.message(11, &[]),
        Mechanism::Quadratic(curvature) => {
            let mut inner = Vec::with_capacity(8);
            Writer::new(&mut inner).signed(1, curvature.units());
            writer.message(12, &inner);
        }
        Mechanism::Exponential => writer.message(13, &[]),
        Mechanism::RandomizedResponse => writer.message(14, &[]),
        Mechanism::Kary(alphabet) => {
            let mut inner = Vec::with_capacity(2);
            Writer::new(&mut inner).varint(1, u64::from(alphabet.len()));
            writer.message(14, &inner);
        }
    }
    for arm in &parts.arms {
        let mut inner = Vec::with_capacity(LABEL_BYTES_MAX + 8);
        let mut arm_writer = Writer::new(&mut inner);
        arm_writer.bytes(1, arm.label.as_bytes());
        arm_writer.varint(2, u64::from(arm.retired));
        writer.message(15, &inner);
    }
    writer.varint(16, u64::from(parts.timing.attribution_window_seconds));
    writer.varint(17, u64::from(parts.timing.release_delay_seconds_max));
    writer.varint(18, parts.batch.map_or(0, |batch| batch.get().into()));
    write_participation(&mut writer, &parts.participation);
    for segmentation in parts.measurement.segmentations.all() {
        write_segmentation(&mut writer, segmentation);
    }
    for metric in &parts.measurement.metrics {
        write_metric(&mut writer, metric);
    }
    if let Some(context) = &parts.measurement.context {
        write_context(&mut writer, context);
    }
    writer.varint(25, parts.measurement.holdout.get().into());
    buffer
}

/// Writes kind, range and default of rewards, as five fields from `first` on.
fn write_rewards(writer: &mut Writer<'_>, first: u32, rewards: Rewards) {
    let kind = match rewards.kind() {
        RewardKind::Binary => 1,
        RewardKind::Bounded => 2,
        RewardKind::Categorical => 3,
    };
    writer.varint(first, kind);
    writer.double(first + 1, rewards.range().low());
    writer.double(first + 2, rewards.range().high());
    let out_of_range = match rewards.out_of_range() {
        OutOfRange::Refuse => 1,
        OutOfRange::Clamp => 2,
    };
    writer.varint(first + 3, out_of_range);
    writer.double(first + 4, rewards.default_reward());
}

fn write_segmentation(writer: &mut Writer<'_>, segmentation: &Segmentation) {
    let mut inner = Vec::with_capacity(256);
    let mut inner_writer = Writer::new(&mut inner);
    inner_writer.bytes(1, segmentation.name().as_bytes());
    for value in segmentation.values() {
        inner_writer.bytes(2, value.as_bytes());
    }
    writer.message(22, &inner);
}

fn write_metric(writer: &mut Writer<'_>, metric: &Metric) {
    let mut inner = Vec::with_capacity(128);
    let mut inner_writer = Writer::new(&mut inner);
    inner_writer.bytes(1, metric.name().as_bytes());
    write_rewards(&mut inner_writer, 2, metric.values());
    inner_writer.varint(7, metric.share().get().into());
    // A limit of 0 is a limit too, so a message holds it.
    let mut limit = Vec::with_capacity(9);
    Writer::new(&mut limit).double(1, metric.limit().map_or(0.0, Limit::mean));
    match metric.limit() {
        None => {}
        Some(Limit::AtMost(_)) => inner_writer.message(8, &limit),
        Some(Limit::AtLeast(_)) => inner_writer.message(9, &limit),
    }
    writer.message(23, &inner);
}

fn write_context(writer: &mut Writer<'_>, context: &PrivateContext) {
    let mut inner = Vec::with_capacity(256);
    let mut inner_writer = Writer::new(&mut inner);
    for feature in context.features() {
        let mut of_feature = Vec::with_capacity(72);
        let mut feature_writer = Writer::new(&mut of_feature);
        feature_writer.bytes(1, feature.name().as_bytes());
        feature_writer.varint(2, feature.true_share().get().into());
        inner_writer.message(1, &of_feature);
    }
    inner_writer.varint(2, context.exploration().get().into());
    writer.message(24, &inner);
}

fn write_participation(writer: &mut Writer<'_>, participation: &Participation) {
    let Participation { sticky, layer, enrolment } = participation;
    if let Some(sticky) = sticky {
        let mut inner = Vec::with_capacity(8);
        let mut sticky_writer = Writer::new(&mut inner);
        sticky_writer.varint(1, sticky.until_weight_below.get().into());
        sticky_writer.varint(2, sticky.report_days.into());
        writer.message(19, &inner);
    }
    if let Some(layer) = layer {
        let mut inner = Vec::with_capacity(LAYER_NAME_CHARS_MAX + 10);
        let mut layer_writer = Writer::new(&mut inner);
        layer_writer.bytes(1, layer.name().as_str().as_bytes());
        layer_writer.varint(2, layer.from().get().into());
        layer_writer.varint(3, layer.to().get().into());
        writer.message(20, &inner);
    }
    let is_all = *enrolment == Millionths::ALL;
    writer.varint(21, if is_all { 0 } else { enrolment.get().into() });
}
