//! Messages of estimates and alarms.

use std::time::Duration;

use bandana_shared::cells::Limit;
use bandana_shared::channel::Channel;
use bandana_shared::confidence::{Difference, Lead};
use bandana_shared::context::Feature;
use bandana_shared::interval::Interval;
use bandana_shared::refusals::RefusalReason;
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::wire::v1;

use crate::alarms::Alarm;
use crate::estimates::{
    ArmEstimate, ArmMean, ArmVerdict, CentralLoss, Estimates, FeatureScore, Holdout,
    MetricEstimates, SegmentEstimates, SymbolEstimate,
};

/// The message of estimates. `now` is the time since 1970-01-01 (UTC).
pub(super) fn estimates_message(estimates: Estimates, now: Duration) -> v1::Estimates {
    let of = &*estimates.serving.specification;
    let features = of.private_context().map_or(&[][..], |context| context.features());
    let features = features.iter().zip(estimates.features);
    v1::Estimates {
        experiment_id: of.experiment_id().to_string(),
        estimand: v1::Estimand::from(of.estimand()).into(),
        arms: arm_messages(estimates.arms, of),
        reports: estimates.reports,
        alpha: estimates.alpha.get(),
        manipulation_gain: estimates.manipulation_gain,
        best_arm: estimates.verdict.best_arm.map(index),
        policy_version: estimates.serving.policy.version,
        alarms: estimates.alarms.into_iter().map(|alarm| alarm_message(alarm, now)).collect(),
        epsilon: of.epsilon().get(),
        shuffled: estimates.central_loss.map(shuffled_message),
        lead: lead_message(estimates.verdict),
        segments: estimates.segments.into_iter().map(|one| segment_message(one, of)).collect(),
        metrics: estimates.metrics.into_iter().map(|one| metric_message(one, of)).collect(),
        control_arm: estimates.control_arm,
        lifts: estimates.lifts.into_iter().map(lift_message).collect(),
        features: features.map(feature_message).collect(),
        holdout: estimates.holdout.map(holdout_message),
    }
}

/// The message of an alarm. `now` is the time since 1970-01-01 (UTC).
pub(super) fn alarm_message(alarm: Alarm, now: Duration) -> v1::Alarm {
    let Alarm { name, message, age, threshold, seen } = alarm;
    let (name, since) = (name.name().to_owned(), age.map(|age| now.saturating_sub(age).as_secs()));
    v1::Alarm { name, message, since_unix_seconds: since, threshold, seen }
}

fn index(arm: usize) -> u32 {
    u32::try_from(arm).unwrap_or(u32::MAX)
}

fn arm_messages(estimates: Vec<ArmEstimate>, of: &Specification) -> Vec<v1::ArmEstimate> {
    let message = |(place, (arm, estimate)): (u32, (&Arm, ArmEstimate))| {
        let ArmEstimate { tally, told, weight, manipulation_shift, cost } = estimate;
        let ArmMean { mean, interval, coverage, symbols } = told;
        v1::ArmEstimate {
            arm: place,
            label: arm.label().to_owned(),
            retired: arm.is_retired(),
            reports: tally.reports(),
            ones: match of.channel() {
                Channel::Bit(_) => tally.ones(),
                Channel::Kary(_) => 0,
            },
            estimate: mean,
            low: interval.low(),
            high: interval.high(),
            weight,
            manipulation_shift,
            symbols: symbols.into_iter().map(symbol_message).collect(),
            coverage,
            cost,
        }
    };
    (0..).zip(of.arms().iter().zip(estimates)).map(message).collect()
}

fn symbol_message(symbol: SymbolEstimate) -> v1::SymbolEstimate {
    let SymbolEstimate { count, frequency, interval, reason } = symbol;
    let meaning = reason.map_or("", RefusalReason::words).to_owned();
    let (low, high) = (interval.low(), interval.high());
    v1::SymbolEstimate { count, frequency, low, high, meaning }
}

fn segment_message(segment: SegmentEstimates, of: &Specification) -> v1::SegmentEstimates {
    let SegmentEstimates { segmentation, value, arms, verdict } = segment;
    let (arms, best_arm) = (arm_messages(arms, of), verdict.best_arm.map(index));
    v1::SegmentEstimates { value, arms, segmentation, best_arm, lead: lead_message(verdict) }
}

fn metric_message(estimates: MetricEstimates, of: &Specification) -> v1::MetricEstimates {
    let MetricEstimates { metric, arms, harmful_arms } = estimates;
    let (at_most, at_least) = match metric.limit() {
        Some(Limit::AtMost(mean)) => (Some(mean), None),
        Some(Limit::AtLeast(mean)) => (None, Some(mean)),
        None => (None, None),
    };
    v1::MetricEstimates {
        name: metric.name().to_owned(),
        share: metric.share().share(),
        low: metric.values().range().low(),
        high: metric.values().range().high(),
        at_most,
        at_least,
        arms: arm_messages(arms, of),
        harmful_arms: harmful_arms.into_iter().map(index).collect(),
    }
}

fn feature_message((feature, scores): (&Feature, Vec<FeatureScore>)) -> v1::FeatureEstimates {
    let message = |(arm, one): (u32, FeatureScore)| {
        let FeatureScore { reports, estimate, interval, score } = one;
        let (low, high) = (interval.low(), interval.high());
        v1::FeatureScore { arm, reports, estimate, low, high, score }
    };
    let scores = (0..).zip(scores).map(message).collect();
    v1::FeatureEstimates { feature: feature.name().to_owned(), scores }
}

fn lead_message(verdict: ArmVerdict) -> Option<v1::Lead> {
    let Lead { leader, rival, difference, interval, coverage } = verdict.lead?;
    let (arm, rival, reports_left) = (index(leader), index(rival), verdict.reports_left);
    let (low, high) = (interval.low(), interval.high());
    Some(v1::Lead { arm, rival, difference, low, high, reports_left, coverage })
}

fn lift_message(lift: Difference) -> v1::Lift {
    let Difference { arm, difference, interval, relative, relative_interval, coverage } = lift;
    v1::Lift {
        arm: index(arm),
        difference,
        low: interval.low(),
        high: interval.high(),
        relative,
        relative_low: relative_interval.map(Interval::low),
        relative_high: relative_interval.map(Interval::high),
        coverage,
    }
}

fn holdout_message(holdout: Holdout) -> v1::Holdout {
    v1::Holdout {
        share: holdout.share,
        reports: holdout.reports,
        reports_of_others: holdout.reports_of_others,
        mean: holdout.mean,
        mean_of_others: holdout.mean_of_others,
        earned: holdout.earned,
        low: holdout.interval.low(),
        high: holdout.interval.high(),
    }
}

fn shuffled_message(loss: CentralLoss) -> v1::Shuffled {
    let CentralLoss { batch, delta, central_epsilon, central_epsilon_with_colluders } = loss;
    v1::Shuffled { batch: batch.get(), delta, central_epsilon, central_epsilon_with_colluders }
}
