//! Estimates of the arms from the committed reports.

use bandana_learners::TallySnapshot;
use bandana_learners::contexts;
use bandana_learners::harm::{allowed, harmful};
use bandana_shared::alphabet::Symbol;
use bandana_shared::cells::{Cells, Limit, Metric};
use bandana_shared::channel::{Channel, KaryChannel};
use bandana_shared::confidence::{Comparison, Lead, LogOddsMixture, Mean, Strata, mean_over_all};
use bandana_shared::context::Feature;
use bandana_shared::estimate::{Estimand, manipulation_gain, manipulation_shift};
use bandana_shared::interval::{ErrorLevel, Interval};
use bandana_shared::refusals::{RefusalReason, are_asked_by};
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1;

use crate::central::shuffled;
use crate::holdout::earned;
use crate::lifts::difference_in_units;
use crate::registry::{Experiment, PublishedExperiment, shares};

/// Settings of estimates, beside those of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct EstimatesSettings {
    /// The error level of the intervals.
    pub alpha: ErrorLevel,
    /// The assumed share of dishonest reports, 0 to 1.
    pub dishonest_share: f64,
}

/// Estimates of every arm, with anytime-valid intervals, in the units of the estimand. Alarms and
/// lifts are not included, since they are not the experiment's alone.
pub fn estimates(experiment: &Experiment, settings: EstimatesSettings) -> v1::Estimates {
    let serving = experiment.serving();
    let specification = &*serving.specification;
    let cells = specification.cells();
    let snapshot = experiment.snapshot();
    let counted = &snapshot.tallies;
    let (channel, estimand) = (specification.channel(), specification.estimand());
    let initial = experiment.initial_arms();
    // An arm that does harm is not to be chosen, however good its rewards are.
    let active = allowed(specification, initial, &snapshot);
    let table =
        ArmTable { serving: &serving, snapshot: &snapshot, initial, active: &active, settings };
    let shares = shares(&serving.policy.weights);
    let strata = snapshot.strata(specification, 0, |_| true);
    let verdict = table.verdict(&strata, settings.alpha, &shares);
    v1::Estimates {
        experiment_id: experiment.id().to_string(),
        estimand: v1::Estimand::from(estimand).into(),
        arms: table.arms(0, &shares, (&cells.of_arms(counted, 0, None), &strata)),
        reports: counted.iter().copied().sum::<Tally>().reports(),
        alpha: settings.alpha.get(),
        manipulation_gain: estimand.difference_from_unit(manipulation_gain(channel)),
        best_arm: verdict.best_arm,
        policy_version: serving.policy.version,
        alarms: Vec::new(),
        epsilon: specification.epsilon().get(),
        shuffled: shuffled(specification),
        lead: verdict.lead,
        segments: table.segments(cells),
        metrics: table.metrics(cells),
        control_arm: 0,
        lifts: Vec::new(),
        features: table.features(cells),
        holdout: earned(specification, (&snapshot, &serving.costs()), settings.alpha),
    }
}

/// The reports of rewards and metrics among which so many are of rewards, about.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rounded number from 0 up; too large a one is cut"
)]
fn of_all(rewards: u64, specification: &Specification) -> u64 {
    // With a private context, one coordinate of all are the rewards.
    let of_one = rewards as f64 * specification.cells().coordinates() as f64;
    (of_one / specification.measurement().share(0)).ceil() as u64
}

/// Further reports until a lead is certain, of which so many were forecast after `reports`, if the arms
/// are as far apart as rewards can be: noise alone shows them further apart.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number from 0 up; too large a one is cut"
)]
fn at_the_widest(lead: &Lead, channel: Channel, left: u64, reports: f64) -> u64 {
    let beyond = (lead.difference / channel.contrast()).max(1.0);
    if left == 0 || beyond <= 1.0 {
        return left;
    }
    ((reports + left as f64) * beyond * beyond - reports).ceil() as u64
}

/// What the reports on an arm say of a metric.
#[derive(Clone, Debug)]
pub(crate) struct ArmMean {
    /// The debiased mean over all users, in the units of the estimand; `None` without reports and for
    /// categories.
    pub(crate) mean: Option<f64>,
    /// Its interval, cut to the range of the estimand.
    pub(crate) interval: Interval,
    /// The share of the users that it speaks for.
    pub(crate) coverage: f64,
    /// The share of each symbol among the reports; empty where a report is a bit.
    pub(crate) symbols: Vec<v1::SymbolEstimate>,
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
    let interval = found.map_or(range, |Mean { interval, .. }| {
        Interval::between(in_units(interval.low()), in_units(interval.high()))
    });
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

/// A verdict with the lead that it follows from.
#[derive(Default)]
struct ArmVerdict {
    best_arm: Option<u32>,
    lead: Option<v1::Lead>,
}

/// A segment, and the rewards in it.
struct Segment {
    number: usize,
    /// The place of its value in each segmentation.
    places: Vec<usize>,
    /// The tally of each arm.
    tallies: Vec<Tally>,
}

impl Segment {
    /// The number of its users, about: as the learner does, one without reports is taken to have
    /// some.
    fn users(&self) -> f64 {
        1.0 + self.tallies.iter().copied().sum::<Tally>().reports() as f64
    }
}

/// What is the same for all estimates of arms.
#[derive(Clone, Copy)]
struct ArmTable<'a> {
    serving: &'a PublishedExperiment,
    snapshot: &'a TallySnapshot,
    /// The number of arms that were there from the start, and the arms to compare.
    initial: usize,
    active: &'a [bool],
    settings: EstimatesSettings,
}

impl ArmTable<'_> {
    /// The verdict of this level among the users of these strata. `shares` are those of the traffic.
    fn verdict(self, strata: &Strata, alpha: ErrorLevel, shares: &[f64]) -> ArmVerdict {
        let specification = &*self.serving.specification;
        let (channel, estimand) = (specification.channel(), specification.estimand());
        if estimand == Estimand::Frequencies {
            return ArmVerdict::default();
        }
        let Self { active, initial, .. } = self;
        let costs = self.serving.costs();
        let comparison = Comparison { strata, active, initial, alpha, costs: &costs };
        let lead = comparison.lead().map(|lead| {
            let left = comparison.reports_left(shares);
            let left =
                left.map(|left| left.max(at_the_widest(&lead, channel, left, strata.users())));
            let reports_left = left.map(|left| of_all(left, specification));
            v1::Lead { reports_left, ..lead_in_units(&lead, (channel, estimand), &costs) }
        });
        let best_arm = comparison.best().and_then(|arm| u32::try_from(arm).ok());
        ArmVerdict { best_arm, lead }
    }

    /// The estimates of a metric, or of the rewards for 0, from the tallies of the arms and the strata of
    /// the users. `shares` are those of the traffic.
    fn arms(
        self,
        metric: usize,
        shares: &[f64],
        (tallies, strata): (&[Tally], &Strata),
    ) -> Vec<v1::ArmEstimate> {
        let Self { serving, settings, .. } = self;
        let specification = &*serving.specification;
        let (channel, estimand) = (specification.channel(), specification.estimand_of(metric));
        let shift = manipulation_shift(channel, settings.dishonest_share);
        let of_metric = (metric, settings.alpha);
        // A metric beside the rewards costs nothing.
        let terms = serving.written.terms(specification).ok().filter(|_| metric == 0);
        let arm = |((arm, tally), place): ((&Arm, &Tally), usize)| {
            let told = arm_mean(specification, of_metric, strata, (place, tally));
            v1::ArmEstimate {
                arm: u32::try_from(place).unwrap_or(u32::MAX),
                label: arm.label().to_owned(),
                retired: arm.is_retired(),
                reports: tally.reports(),
                ones: match channel {
                    Channel::Bit(_) => tally.ones(),
                    Channel::Kary(_) => 0,
                },
                estimate: told.mean,
                low: told.interval.low(),
                high: told.interval.high(),
                weight: shares.get(place).copied().unwrap_or_default(),
                manipulation_shift: estimand.difference_from_unit(shift),
                symbols: told.symbols,
                coverage: told.coverage,
                cost: terms.as_ref().map_or(0.0, |terms| terms.cost(place)),
            }
        };
        specification.arms().iter().zip(tallies).zip(0..).map(arm).collect()
    }

    /// The rewards by each value of each segmentation. The verdicts share one error level.
    fn segments(self, cells: Cells) -> Vec<v1::SegmentEstimates> {
        let specification = &*self.serving.specification;
        let segmentations = &specification.measurement().segmentations;
        let counted = &self.snapshot.tallies;
        let segment = |number| Segment {
            number,
            places: segmentations.places(number),
            tallies: cells.of_arms(counted, 0, Some(number)),
        };
        let all: Vec<Segment> = (0..segmentations.segments()).map(segment).collect();
        let alpha = self.settings.alpha.shared_by(segmentations.sizes().sum());
        let mut estimates = Vec::new();
        for (place, segmentation) in segmentations.all().iter().enumerate() {
            for (number, value) in segmentation.values().iter().enumerate() {
                let is_mine = |one: &Segment| one.places[place] == number;
                let mine: Vec<&Segment> = all.iter().filter(|one| is_mine(one)).collect();
                let strata = self.snapshot.strata(specification, 0, |one| is_mine(&all[one]));
                let shares = self.shares_of(&mine, cells.arms());
                let tally = |arm: usize| mine.iter().map(|one| one.tallies[arm]).sum();
                let tallies: Vec<Tally> = (0..cells.arms()).map(tally).collect();
                let verdict = self.verdict(&strata, alpha, &shares);
                estimates.push(v1::SegmentEstimates {
                    value: value.clone(),
                    arms: self.arms(0, &shares, (&tallies, &strata)),
                    segmentation: segmentation.name().to_owned(),
                    best_arm: verdict.best_arm,
                    lead: verdict.lead,
                });
            }
        }
        estimates
    }

    /// The shares of the traffic in some segments together.
    fn shares_of(self, segments: &[&Segment], arms: usize) -> Vec<f64> {
        let weights = &self.serving.policy.weights;
        let users: f64 = segments.iter().map(|one| one.users()).sum();
        let share = |arm| {
            let of = |one: &&Segment| one.users() * weights.share_in(Some(one.number), arm);
            segments.iter().map(of).sum::<f64>() / users
        };
        (0..arms).map(share).collect()
    }

    /// The scores of the arms for each feature of a private context.
    fn features(self, cells: Cells) -> Vec<v1::FeatureEstimates> {
        let Self { serving, settings, snapshot, .. } = self;
        let counted = &snapshot.tallies;
        let channel = serving.specification.channel();
        let sequence = LogOddsMixture::new(settings.alpha);
        // The level of a product is 0 for -1 and 1 for 1.
        let product = |level: f64| 2.0 * level - 1.0;
        let context = serving.specification.private_context();
        let features = context.map_or(&[][..], |one| one.features());
        let feature = |(coordinate, feature): (usize, &Feature)| {
            let score = |(arm, tally): (usize, &Tally)| {
                let interval = sequence.mean_through(channel, tally).clamped(0.0, 1.0);
                v1::FeatureScore {
                    arm: u32::try_from(arm).unwrap_or(u32::MAX),
                    reports: tally.reports(),
                    estimate: channel.debiased_mean(tally).map(product),
                    low: product(interval.low()),
                    high: product(interval.high()),
                    score: contexts::score(&serving.policy.weights, coordinate, arm),
                }
            };
            let tallies = cells.of_coordinate(counted, coordinate);
            let scores = tallies.iter().enumerate().map(score).collect();
            v1::FeatureEstimates { feature: feature.name().to_owned(), scores }
        };
        (1..).zip(features).map(feature).collect()
    }

    fn metrics(self, cells: Cells) -> Vec<v1::MetricEstimates> {
        let specification = &*self.serving.specification;
        let counted = &self.snapshot.tallies;
        let shares = shares(&self.serving.policy.weights);
        let estimates = |(number, metric): (usize, &Metric)| {
            let harms = harmful(specification, self.initial, self.snapshot, number);
            let strata = self.snapshot.strata(specification, number, |_| true);
            let tallies = cells.of_arms(counted, number, None);
            let harmful_arms =
                harms.iter().zip(0..).filter_map(|(harms, arm)| harms.then_some(arm));
            v1::MetricEstimates {
                name: metric.name().to_owned(),
                share: metric.share().share(),
                low: metric.values().range().low(),
                high: metric.values().range().high(),
                at_most: match metric.limit() {
                    Some(Limit::AtMost(mean)) => Some(mean),
                    _ => None,
                },
                at_least: match metric.limit() {
                    Some(Limit::AtLeast(mean)) => Some(mean),
                    _ => None,
                },
                arms: self.arms(number, &shares, (&tallies, &strata)),
                harmful_arms: harmful_arms.collect(),
            }
        };
        (1..).zip(&specification.measurement().metrics).map(estimates).collect()
    }
}

/// A lead, debiased, in the units of the estimand.
fn lead_in_units(lead: &Lead, units: (Channel, Estimand), costs: &[f64]) -> v1::Lead {
    let Lead { leader, rival, difference, interval, coverage } = *lead;
    let cost = |arm: usize| costs.get(arm).copied().unwrap_or_default();
    let debiased = |scaled| difference_in_units(units, scaled, cost(leader) - cost(rival));
    let index = |arm| u32::try_from(arm).unwrap_or(u32::MAX);
    v1::Lead {
        arm: index(leader),
        rival: index(rival),
        difference: debiased(difference),
        low: debiased(interval.low()),
        high: debiased(interval.high()),
        reports_left: None,
        coverage,
    }
}

/// The estimated share of each true symbol.
fn symbols(
    channel: KaryChannel,
    sequence: LogOddsMixture,
    (tally, is_of_refusals): (&Tally, bool),
) -> Vec<v1::SymbolEstimate> {
    let meaning = |symbol: Symbol| {
        let reason = RefusalReason::ALL.get(usize::from(symbol.get())).filter(|_| is_of_refusals);
        reason.map_or_else(String::new, |reason| reason.words().to_owned())
    };
    let estimate = |symbol| {
        let interval = sequence.frequency(channel, tally, symbol).clamped(0.0, 1.0);
        v1::SymbolEstimate {
            count: tally.count(symbol),
            frequency: channel.frequency(tally, symbol),
            low: interval.low(),
            high: interval.high(),
            meaning: meaning(symbol),
        }
    };
    channel.alphabet().symbols().map(estimate).collect()
}

#[cfg(test)]
mod tests {
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;

    use super::*;

    #[test]
    fn a_forecast_believes_in_no_difference_that_there_can_not_be() {
        let channel = Channel::Bit(Floor::for_epsilon(Epsilon::new(0.01).unwrap()));
        let lead = |difference| Lead {
            leader: 0,
            rival: 1,
            difference,
            interval: Interval::between(-1.0, 1.0),
            coverage: 1.0,
        };
        let widest = channel.contrast();
        assert_eq!(at_the_widest(&lead(0.5 * widest), channel, 700, 100.0), 700);
        // Ten times too far apart, it takes a hundred times the reports.
        assert_eq!(at_the_widest(&lead(10.0 * widest), channel, 900, 100.0), 99_900);
        assert_eq!(at_the_widest(&lead(10.0 * widest), channel, 0, 100.0), 0);
    }
}
