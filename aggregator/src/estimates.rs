//! Estimates of the arms from the committed reports.

use bandana_shared::channel::{Channel, KaryChannel};
use bandana_shared::confidence::{Lead, NormalMixture, best_among, lead_among, reports_left};
use bandana_shared::estimate::{Estimand, manipulation_gain, manipulation_shift};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1;

use crate::central::shuffled;
use crate::registry::Experiment;

/// Settings of estimates, beside those of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct EstimatesSettings {
    /// The error level of the intervals.
    pub alpha: ErrorLevel,
    /// The assumed share of dishonest reports, 0 to 1.
    pub dishonest_share: f64,
}

/// Estimates of every arm, with anytime-valid intervals, in the units of the estimand. Alarms are
/// not included, since some are not the experiment's.
pub fn estimates(experiment: &Experiment, settings: EstimatesSettings) -> v1::Estimates {
    let serving = experiment.serving();
    let specification = &*serving.specification;
    let mut tallies = experiment.tallies();
    tallies.resize(specification.arms().len(), Tally::EMPTY);
    let channel = specification.channel();
    let estimand = specification.estimand();
    let sequence = NormalMixture::new(settings.alpha);
    let range = estimand.range();

    let shift = manipulation_shift(channel, settings.dishonest_share);
    let arm = |((arm, tally), place): ((&bandana_shared::specification::Arm, &Tally), usize)| {
        let (mean, interval) = match estimand {
            Estimand::Frequencies => (None, range),
            _ => (channel.debiased_mean(tally), sequence.mean_through(channel, tally)),
        };
        let interval = estimand.interval_from_unit(interval).clamped(range.low(), range.high());
        v1::ArmEstimate {
            arm: u32::try_from(place).unwrap_or(u32::MAX),
            label: arm.label().to_owned(),
            retired: arm.is_retired(),
            reports: tally.reports(),
            ones: match channel {
                Channel::Bit(_) => tally.ones(),
                Channel::Kary(_) => 0,
            },
            estimate: mean.map(|mean| estimand.from_unit(mean)),
            low: interval.low(),
            high: interval.high(),
            weight: serving.policy.weights.share(place),
            manipulation_shift: estimand.difference_from_unit(shift),
            symbols: match channel {
                Channel::Bit(_) => Vec::new(),
                Channel::Kary(kary) => symbols(kary, &sequence, tally),
            },
        }
    };
    let (active, initial) = (specification.active_arms(), experiment.initial_arms());
    let best = match estimand {
        Estimand::Frequencies => None,
        _ => best_among(&tallies, channel.alphabet(), &active, initial, settings.alpha),
    };
    let weights = &serving.policy.weights;
    let shares: Vec<f64> = (0..weights.len()).map(|arm| weights.share(arm)).collect();
    let (alphabet, alpha) = (channel.alphabet(), settings.alpha);
    let lead = match estimand {
        Estimand::Frequencies => None,
        _ => lead_among(&tallies, alphabet, &active, initial, alpha),
    };
    let lead = lead.map(|lead| v1::Lead {
        reports_left: reports_left(&tallies, alphabet, (&active, &shares), initial, alpha),
        ..lead_in_units(&lead, channel, estimand)
    });
    v1::Estimates {
        experiment_id: experiment.id().to_string(),
        estimand: v1::Estimand::from(estimand).into(),
        arms: specification.arms().iter().zip(&tallies).zip(0..).map(arm).collect(),
        reports: tallies.iter().copied().sum::<Tally>().reports(),
        alpha: settings.alpha.get(),
        manipulation_gain: estimand.difference_from_unit(manipulation_gain(channel)),
        best_arm: best.and_then(|arm| u32::try_from(arm).ok()),
        policy_version: serving.policy.version,
        alarms: Vec::new(),
        epsilon: specification.epsilon().get(),
        shuffled: shuffled(specification),
        lead,
        control_arm: 0,
        lifts: Vec::new(),
    }
}

/// A lead, debiased, in the units of the estimand.
fn lead_in_units(lead: &Lead, channel: Channel, estimand: Estimand) -> v1::Lead {
    let Lead { leader, rival, difference, interval } = *lead;
    let range = estimand.range();
    let widest = range.high() - range.low();
    // One report moves a debiased sum by the reciprocal of the channel's contrast.
    let debiased = |private: f64| {
        estimand.difference_from_unit(private * manipulation_gain(channel)).clamp(-widest, widest)
    };
    let index = |arm| u32::try_from(arm).unwrap_or(u32::MAX);
    v1::Lead {
        arm: index(leader),
        rival: index(rival),
        difference: debiased(difference),
        low: debiased(interval.low()),
        high: debiased(interval.high()),
        reports_left: None,
    }
}

/// The estimated share of each true symbol.
fn symbols(
    channel: KaryChannel,
    sequence: &NormalMixture,
    tally: &Tally,
) -> Vec<v1::SymbolEstimate> {
    let estimate = |symbol| {
        let interval = sequence.frequency(channel, tally, symbol).clamped(0.0, 1.0);
        v1::SymbolEstimate {
            count: tally.count(symbol),
            frequency: channel.frequency(tally, symbol),
            low: interval.low(),
            high: interval.high(),
        }
    };
    channel.alphabet().symbols().map(estimate).collect()
}
