//! Estimates of each arm: its mean over all users, or the share of each symbol.

use bandana_shared::alphabet::Symbol;
use bandana_shared::channel::{Channel, KaryChannel};
use bandana_shared::confidence::{LogOddsMixture, Mean, Strata, mean_over_all};
use bandana_shared::estimate::{Estimand, manipulation_shift};
use bandana_shared::interval::{ErrorLevel, Interval};
use bandana_shared::refusals::{RefusalReason, are_asked_by};
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

use super::ArmTable;

/// The estimate of an arm.
#[derive(Clone, Debug)]
pub struct ArmEstimate {
    /// The reports on the arm.
    pub tally: Tally,
    /// What they say.
    pub told: ArmMean,
    /// The share of the traffic that the policy gives to the arm, 0 to 1.
    pub weight: f64,
    /// How far the mean can be from what honest reports would have shown.
    pub manipulation_shift: f64,
    /// What a choice of the arm costs, in the unit of the rewards.
    pub cost: f64,
}

/// What the reports on an arm say of a metric.
#[derive(Clone, Debug)]
pub struct ArmMean {
    /// The debiased mean over all users, in the units of the estimand; `None` without reports and for
    /// categories.
    pub mean: Option<f64>,
    /// Its interval, cut to the range of the estimand.
    pub interval: Interval,
    /// The share of the users that it speaks for.
    pub coverage: f64,
    /// The share of each symbol among the reports; empty where a report is a bit.
    pub symbols: Vec<SymbolEstimate>,
}

/// The share of a symbol among the true ones, before randomized response.
#[derive(Clone, Copy, Debug)]
pub struct SymbolEstimate {
    /// The number of reports that say it.
    pub count: u64,
    /// The debiased share, not cut to 0 to 1; `None` without reports.
    pub frequency: Option<f64>,
    /// An interval for the share, within 0 to 1, each symbol on its own.
    pub interval: Interval,
    /// What it stands for, if that is known: a reason for which users refuse.
    pub reason: Option<RefusalReason>,
}

/// The estimate of a metric, or of the rewards for 0, for one arm, with intervals of this level that hold
/// at all times at once. `tally` has all reports on the arm.
pub(crate) fn arm_mean(
    specification: &Specification,
    (metric, alpha): (usize, ErrorLevel),
    strata: &Strata,
    (arm, tally): (usize, &Tally),
) -> ArmMean {
    let (channel, estimand) = (specification.channel(), specification.estimand_of(metric));
    let (sequence, range) = (LogOddsMixture::new(alpha), estimand.range());
    let found = match estimand {
        Estimand::Frequencies => None,
        _ => mean_over_all(strata, arm, alpha),
    };
    let in_units = |scaled: f64| estimand.from_unit(channel.debiased(scaled));
    let interval = found.map_or(range, |Mean { interval, .. }| interval.map(in_units));
    ArmMean {
        mean: found.map(|found| in_units(found.mean)),
        interval: interval.clamped(range.low(), range.high()),
        coverage: found.map_or(0.0, |found| found.coverage),
        symbols: match channel {
            Channel::Bit(_) => Vec::new(),
            Channel::Kary(kary) => symbols(kary, sequence, (tally, are_asked_by(specification))),
        },
    }
}

/// The estimated share of each true symbol.
fn symbols(
    channel: KaryChannel,
    sequence: LogOddsMixture,
    (tally, is_of_refusals): (&Tally, bool),
) -> Vec<SymbolEstimate> {
    let reason = |symbol: Symbol| RefusalReason::ALL.get(usize::from(symbol.get())).copied();
    let estimate = |symbol| SymbolEstimate {
        count: tally.count(symbol),
        frequency: channel.frequency(tally, symbol),
        interval: sequence.frequency(channel, tally, symbol).clamped(0.0, 1.0),
        reason: reason(symbol).filter(|_| is_of_refusals),
    };
    channel.alphabet().symbols().map(estimate).collect()
}

impl ArmTable<'_> {
    /// The estimates of a metric, or of the rewards for 0, from the tallies of the arms and the strata of
    /// the users. `shares` are those of the traffic.
    pub(super) fn arms(
        self,
        metric: usize,
        shares: &[f64],
        (tallies, strata): (&[Tally], &Strata),
    ) -> Vec<ArmEstimate> {
        let Self { serving, settings, .. } = self;
        let specification = &*serving.specification;
        let (channel, estimand) = (specification.channel(), specification.estimand_of(metric));
        let shift = manipulation_shift(channel, settings.dishonest_share);
        let of_metric = (metric, settings.alpha);
        // A metric beside the rewards costs nothing.
        let terms = serving.written.terms(specification).ok().filter(|_| metric == 0);
        let arm = |(place, tally): (usize, &Tally)| ArmEstimate {
            tally: *tally,
            told: arm_mean(specification, of_metric, strata, (place, tally)),
            weight: shares.get(place).copied().unwrap_or_default(),
            manipulation_shift: estimand.difference_from_unit(shift),
            cost: terms.as_ref().map_or(0.0, |terms| terms.cost(place)),
        };
        (0..specification.arms().len()).zip(tallies).map(arm).collect()
    }
}
