//! The final report of a simulation, as JSON and as a table.

use std::fmt::Write as _;

use bandana_lab::instance::{Instance, largest};
use bandana_shared::estimate::Estimand;
use bandana_shared::shuffling::BatchSize;
use bandana_shared::wire::v1::{
    ArmEstimate, Estimates, Learner, MetricEstimates, SegmentEstimates,
};
use serde::Serialize;

use crate::population::Population;
use crate::simulation::{Outcome, Settings};

/// The result of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Number of users.
    pub users: u64,
    /// Number of reports that left the clients.
    pub reports_sent: u64,
    /// The reports of a shuffled batch; none if they are not shuffled.
    pub shuffle_batch: Option<u32>,
    /// Number of reports that wait at the relay for others to fill their batch.
    pub reports_waiting: u64,
    /// Number of reports that the server, or a relay that shuffles, counted as new.
    pub reports_accepted: u64,
    /// Number of uploads that the server had counted before.
    pub duplicates: u64,
    /// Privacy loss bound of one report, in nats.
    pub epsilon: f64,
    /// The privacy loss that the channel's floor certifies.
    pub certified_epsilon: f64,
    /// Name of the mechanism.
    pub mechanism: String,
    /// Name of the learner.
    pub learner: String,
    /// Name of the estimand.
    pub estimand: String,
    /// Pseudo-regret in the true means.
    pub regret: f64,
    /// Expected pseudo-regret of uniform play.
    pub uniform_regret: f64,
    /// Duration of the users' part, in seconds.
    pub seconds: f64,
    /// The arm with the largest mean.
    pub best_arm: usize,
    /// The arm with the largest share in the last policy.
    pub learned_best_arm: usize,
    /// One entry for each arm.
    pub arms: Vec<ArmReport>,
    /// Number of visits of each user.
    pub visits: u32,
    /// One entry for each segment.
    pub segments: Vec<SegmentReport>,
    /// One entry for each metric beside the rewards.
    pub metrics: Vec<MetricReport>,
    /// What the replay of a log tells; none without one.
    pub replay: Option<Replay>,
}

/// What an experiment would have learned from the users of a log, and when.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    /// Number of impressions in the log.
    pub impressions: u64,
    /// Its mean reward, by the arms as they were logged.
    pub mean_logged: f64,
    /// The mean reward of the users of the experiment, by the means of the log.
    pub mean_earned: f64,
    /// The arm that was certainly best at the end, if any.
    pub verdict: Option<usize>,
    /// Number of users after which it was, and stayed so.
    pub verdict_users: Option<u64>,
    /// The time of the impression where the last of them came.
    pub verdict_timestamp: Option<String>,
}

impl Replay {
    fn new(settings: &Settings, instance: &Instance, outcome: &Outcome) -> Option<Self> {
        let log = settings.log.as_ref()?;
        let last = outcome.rounds.last()?;
        let verdict = last.verdict;
        let since = outcome.rounds.iter().rev().take_while(|round| round.verdict == verdict).last();
        let since = since.filter(|_| verdict.is_some()).map(|round| round.users);
        let best = |segment: usize| {
            settings.means(instance, segment).into_iter().fold(f64::NEG_INFINITY, f64::max)
        };
        let best: Vec<f64> = (0..log.segments()).map(best).collect();
        let of_best: f64 = (0..settings.users).map(|user| best[log.segment(user)]).sum();
        Some(Self {
            impressions: log.len() as u64,
            mean_logged: log.mean(),
            mean_earned: (of_best - last.regret) / settings.users as f64,
            verdict: verdict.map(|arm| arm as usize),
            verdict_users: since,
            verdict_timestamp: since
                .and_then(|users| log.timestamp(users.saturating_sub(1)))
                .map(str::to_owned),
        })
    }

    /// The replay in two lines.
    fn describe(&self, label: impl Fn(usize) -> String) -> String {
        let Self { impressions, mean_logged, mean_earned, .. } = self;
        let verdict = match (self.verdict, self.verdict_users) {
            (Some(arm), Some(users)) => {
                let at = self.verdict_timestamp.as_ref();
                let at = at.map_or_else(String::new, |time| format!(" ({time})"));
                let arm = label(arm);
                format!("best with confidence 95% after {users} users{at}, and to the end: {arm}")
            }
            _ => {
                "no arm was certainly best at the end; `bandana plan` says how many users it takes"
                    .to_owned()
            }
        };
        format!(
            "replayed a log of {impressions} impressions: {verdict}\n\
             mean reward {mean_earned:.4}, in the log {mean_logged:.4}\n"
        )
    }
}

/// The result for one segment.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentReport {
    /// Its value.
    pub value: String,
    /// The arm with the largest mean in it.
    pub best_arm: usize,
    /// The arm with the largest share in its last policy.
    pub learned_best_arm: usize,
    /// Number of reports of rewards counted in it.
    pub reports: u64,
}

/// The result for one metric.
#[derive(Clone, Debug, Serialize)]
pub struct MetricReport {
    /// Its name.
    pub name: String,
    /// Number of reports counted for it.
    pub reports: u64,
    /// Number of arms whose anytime-valid 95% interval holds the true mean.
    pub intervals_that_hold: usize,
}

/// The result for one arm.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    /// Its index.
    pub arm: usize,
    /// Its name.
    pub label: String,
    /// Its mean reward.
    pub true_mean: f64,
    /// The true value of its estimand.
    pub true_estimand: f64,
    /// Number of reports counted for it.
    pub reports: u64,
    /// Debiased estimate; none without reports.
    pub estimate: Option<f64>,
    /// Lower end of the anytime-valid 95% interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Report {
    /// Combines a simulation's outcome with the true values.
    pub fn new(settings: &Settings, instance: &Instance, outcome: &Outcome, seconds: f64) -> Self {
        let specification = &outcome.specification;
        let estimand = specification.estimand();
        let means = settings.over_all_users(|segment| settings.means(instance, segment));
        let truths = match estimand {
            Estimand::MeanReward(_) => means.clone(),
            _ => instance.true_estimands(estimand, &specification.curve()),
        };
        let uniform_regret = uniform_regret(settings, instance);
        let weights: Vec<f64> = outcome.estimates.arms.iter().map(|arm| arm.weight).collect();
        let arm = |((arm, true_mean), true_estimand): ((&ArmEstimate, &f64), &f64)| ArmReport {
            arm: arm.arm as usize,
            label: arm.label.clone(),
            true_mean: *true_mean,
            true_estimand: *true_estimand,
            reports: arm.reports,
            estimate: arm.estimate,
            low: arm.low,
            high: arm.high,
        };
        let statistics = outcome.statistics;
        Self {
            users: settings.users,
            reports_sent: statistics.reports_made,
            shuffle_batch: specification.batch().map(BatchSize::get),
            reports_waiting: settings.users.saturating_sub(outcome.estimates.reports),
            reports_accepted: statistics.uploads_accepted,
            duplicates: statistics.uploads_duplicate,
            epsilon: settings.epsilon.get(),
            certified_epsilon: specification.certified_epsilon(),
            mechanism: settings.mechanism.name().to_owned(),
            learner: learner_name(settings.learner),
            estimand: estimand.name().to_owned(),
            regret: outcome.rounds.last().map_or(0.0, |round| round.regret),
            uniform_regret,
            seconds,
            best_arm: largest(&means),
            learned_best_arm: largest(&weights),
            arms: outcome.estimates.arms.iter().zip(&means).zip(&truths).map(arm).collect(),
            visits: settings.population.visits,
            segments: segments(settings, instance, &outcome.estimates),
            metrics: metrics(&outcome.estimates),
            replay: Replay::new(settings, instance, outcome),
        }
    }

    /// A line for each segment and each metric, and what a replay tells.
    fn cells(&self) -> String {
        let label = |arm: usize| self.arms.get(arm).map_or("?", |arm| arm.label.as_str());
        let segment = |one: &SegmentReport| {
            let (learned, best) = (label(one.learned_best_arm), label(one.best_arm));
            let property = if self.replay.is_some() { "segment" } else { "group" };
            format!(
                "{property} {}: {} reports, learned: {learned}; best: {best}\n",
                one.value, one.reports
            )
        };
        let metric = |one: &MetricReport| {
            let (holding, arms) = (one.intervals_that_hold, self.arms.len());
            format!("{}: {} reports, {holding} of {arms} intervals hold\n", one.name, one.reports)
        };
        let segments = self.segments.iter().map(segment);
        let replay = self.replay.iter().map(|replay| replay.describe(|arm| label(arm).to_owned()));
        segments.chain(self.metrics.iter().map(metric)).chain(replay).collect()
    }

    /// The report as a text table.
    pub fn table(&self) -> String {
        let widest = self.arms.iter().map(|arm| arm.label.chars().count()).max().unwrap_or(5);
        let width = widest.clamp(5, 40);
        let mut table = format!(
            "{:>3}  {:width$}  {:>9}  {:>8}  {:>19}  {:>7}  {:>8}\n",
            "arm", "label", "true mean", "estimate", "95% interval", "traffic", "reports"
        );
        let total: u64 = self.arms.iter().map(|arm| arm.reports).sum();
        for arm in &self.arms {
            let label: String = arm.label.chars().take(width).collect();
            let estimate = arm.estimate.map_or("-".to_owned(), |mean| format!("{mean:.4}"));
            let interval = format!("{:.4} to {:.4}", arm.low, arm.high);
            let traffic = 100.0 * arm.reports as f64 / total.max(1) as f64;
            // Writing to a string does not fail.
            writeln!(
                table,
                "{:>3}  {label:width$}  {:>9.4}  {estimate:>8}  {interval:>19}  {traffic:>6.2}%  {:>8}",
                arm.arm, arm.true_mean, arm.reports
            )
            .ok();
        }
        table
    }

    /// The report in a few lines of text.
    pub fn summary(&self) -> String {
        let Self { users, reports_accepted, duplicates, seconds, .. } = self;
        let label = |arm: usize| self.arms.get(arm).map_or("?", |arm| arm.label.as_str());
        let verdict = if self.learned_best_arm == self.best_arm {
            "the best arm"
        } else {
            "not the best arm"
        };
        // The one whose weights are those of two arms decides by the verdict below, not by its weights.
        let learned = if self.learner.starts_with("top-two") {
            String::new()
        } else {
            format!("learned: {} ({verdict}); ", label(self.learned_best_arm))
        };
        let shuffled = self.shuffle_batch.map_or_else(String::new, |batch| {
            let waiting = self.reports_waiting;
            format!(
                "shuffled in batches of {batch}: {waiting} reports wait for theirs to be full\n"
            )
        });
        format!(
            "{users} users, {reports_accepted} reports accepted, {duplicates} duplicates, {seconds:.1} s\n\
             privacy: epsilon {}, certified {:.15}; mechanism {}, learner {}\n\
             {shuffled}\
             estimates are of the {}\n\
             regret {:.0}, {:.3} of uniform play ({:.0})\n\
             {learned}best: {}\n{}",
            self.epsilon,
            self.certified_epsilon,
            self.mechanism,
            self.learner,
            self.estimand,
            self.regret,
            self.regret / self.uniform_regret.max(f64::MIN_POSITIVE),
            self.uniform_regret,
            label(self.best_arm),
            self.cells(),
        )
    }
}

/// The expected pseudo-regret of giving all arms alike.
fn uniform_regret(settings: &Settings, instance: &Instance) -> f64 {
    let of_segment = |segment: usize| {
        let means = settings.means(instance, segment);
        let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        means.iter().map(|mean| best - mean).sum::<f64>() / means.len() as f64
    };
    let visits = f64::from(settings.population.visits.max(1));
    let Some(log) = &settings.log else {
        return of_segment(0) * settings.users as f64 * visits;
    };
    let mut users = vec![0_u64; log.segments()];
    for user in 0..settings.users {
        users[log.segment(user)] += 1;
    }
    (0..).zip(users).map(|(segment, users)| of_segment(segment) * users as f64).sum()
}

fn segments(settings: &Settings, instance: &Instance, estimates: &Estimates) -> Vec<SegmentReport> {
    let of = |(place, segment): (usize, &SegmentEstimates)| {
        let own = settings.means(instance, place);
        let weights: Vec<f64> = segment.arms.iter().map(|arm| arm.weight).collect();
        SegmentReport {
            value: segment.value.clone(),
            best_arm: largest(&own),
            learned_best_arm: largest(&weights),
            reports: segment.arms.iter().map(|arm| arm.reports).sum(),
        }
    };
    estimates.segments.iter().enumerate().map(of).collect()
}

fn metrics(estimates: &Estimates) -> Vec<MetricReport> {
    let of = |metric: &MetricEstimates| {
        let arms = metric.arms.len();
        let holds = |(place, arm): &(usize, &ArmEstimate)| {
            let truth = Population::metric_mean(*place, arms);
            arm.low <= truth && truth <= arm.high
        };
        MetricReport {
            name: metric.name.clone(),
            reports: metric.arms.iter().map(|arm| arm.reports).sum(),
            intervals_that_hold: metric.arms.iter().enumerate().filter(holds).count(),
        }
    };
    estimates.metrics.iter().map(of).collect()
}

/// The option name of a learner: `ldp-ts` for `LEARNER_LDP_TS`.
fn learner_name(learner: Learner) -> String {
    learner.as_str_name().trim_start_matches("LEARNER_").replace('_', "-").to_lowercase()
}
