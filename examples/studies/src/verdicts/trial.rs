//! One simulated experiment, with a look after every policy.

use bandana_learners::harm::harmful;
use bandana_learners::{LearnerConfig, TallySnapshot, reports_until_policy};
use bandana_shared::cells::{Cell, Limit, Measurement, Metric, Segmentation};
use bandana_shared::channel::{Channel, Floor};
use bandana_shared::confidence::{Comparison, best_active_arm};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::private_mean_of;
use bandana_shared::identity::{ArmIndex, Day, ExperimentId};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::participation::Millionths;
use bandana_shared::policy::Weights;
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::tally::Tally;
use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Binomial, Distribution as _};

use super::instance::{Change, VerdictInstance};

/// What was seen in a run, at any look.
#[expect(clippy::struct_excessive_bools, reason = "each is counted by itself")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictRun {
    /// Users until the first verdict; none by the end.
    pub users: Option<u64>,
    /// Whether a verdict ever named an arm that another one equals or exceeds over the users of both.
    pub is_wrong: bool,
    /// As before, by the sums over all users, as if they had been drawn alike.
    pub is_wrong_pooled: bool,
    /// Whether the interval of a lift over the first arm ever missed it.
    pub has_missed: bool,
    /// Whether harm was ever found.
    pub has_harm: bool,
}

/// The experiment of an instance as a server has it.
struct World<'i> {
    instance: &'i VerdictInstance,
    specification: Specification,
    config: LearnerConfig,
    counted: TallySnapshot,
    day: Day,
    /// The users so far of each phase and segment.
    users: Vec<Vec<f64>>,
    /// For each phase, which arms are in play.
    in_play: Vec<Vec<bool>>,
    rng: Xoshiro256PlusPlus,
}

/// Runs an instance.
///
/// # Errors
/// When the learner fails, or the instance makes no experiment.
pub fn run(instance: &VerdictInstance, seed: u64) -> anyhow::Result<VerdictRun> {
    let specification = specification(instance)?;
    let mut world = World {
        instance,
        config: LearnerConfig::new(instance.learner),
        counted: TallySnapshot {
            tallies: vec![Tally::EMPTY; specification.cells().len()],
            ..TallySnapshot::default()
        },
        specification,
        day: Day::new(20_000),
        users: Vec::new(),
        in_play: Vec::new(),
        rng: Xoshiro256PlusPlus::seed_from_u64(seed),
    };
    let mut found = VerdictRun::default();
    let mut users = 0;
    for (number, phase) in instance.phases.iter().enumerate() {
        world.begin(phase.change)?;
        let end = users + phase.users;
        while users < end {
            let weights =
                world.config.weigh(&world.specification, instance.arms, &world.counted, &[])?;
            let batch = reports_until_policy(users).min(end - users);
            world.serve(number, &weights, batch)?;
            users += batch;
            world.look(users, &mut found);
        }
    }
    Ok(found)
}

impl World<'_> {
    fn begin(&mut self, change: Change) -> anyhow::Result<()> {
        match change {
            Change::None => {}
            Change::Day => self.day = self.day.forward(1),
            Change::Add => {
                let label = self.specification.arms().len().to_string();
                self.specification = self.specification.with_arm(Arm::new(label)?)?;
            }
            Change::Retire(arm) => {
                self.specification = self.specification.without_arm(ArmIndex::new(arm)?)?;
            }
        }
        self.counted.tallies.resize(self.specification.cells().len(), Tally::EMPTY);
        self.users.push(vec![0.0; self.instance.segments.len()]);
        self.in_play.push(self.specification.active_arms());
        Ok(())
    }

    /// Users of all segments get arms by these weights, and report.
    fn serve(&mut self, phase: usize, weights: &Weights, users: u64) -> anyhow::Result<()> {
        let shares = self.instance.segments.clone();
        let of_segments = split(users, &shares, &mut self.rng)?;
        for (segment, users) in of_segments.into_iter().enumerate() {
            self.users[phase][segment] += users as f64;
            let place = (shares.len() > 1).then_some(segment);
            let of_arms: Vec<f64> =
                (0..weights.len()).map(|arm| weights.share_in(place, arm)).collect();
            for (arm, users) in split(users, &of_arms, &mut self.rng)?.into_iter().enumerate() {
                self.report(phase, (arm, segment), users)?;
            }
        }
        Ok(())
    }

    fn report(
        &mut self,
        phase: usize,
        (arm, segment): (usize, usize),
        users: u64,
    ) -> anyhow::Result<()> {
        let reward = self.instance.phases[phase].means[segment].get(arm).copied().unwrap_or(0.0);
        let metric = self.instance.guardrail.as_ref().map(|(_, means)| means[segment]);
        let share = metric.map_or(0.0, |_| METRIC_SHARE);
        let [metrics, rewards] = split(users, &[share, 1.0 - share], &mut self.rng)?[..] else {
            anyhow::bail!("two parts");
        };
        let parts = [(0, rewards, reward), (1, metrics, metric.unwrap_or(0.0))];
        for (metric, users, mean) in parts.into_iter().filter(|(_, users, _)| *users > 0) {
            let q = private_mean_of(self.floor()?, mean);
            let ones = Binomial::new(users, q)?.sample(&mut self.rng);
            let cells = self.specification.cells();
            let cell = cells.index(Cell { segment, metric, ..Cell::of(ArmIndex::new(arm)?) });
            let (day, revision) = (self.day, Some(self.specification.revision()));
            let tally = Tally::new(users, ones)?;
            self.counted.add(self.config.memory, (day, revision, cell, tally));
        }
        Ok(())
    }

    fn floor(&self) -> anyhow::Result<Floor> {
        match self.specification.channel() {
            Channel::Bit(floor) => Ok(floor),
            Channel::Kary(_) => anyhow::bail!("reports are bits"),
        }
    }

    /// The difference of two arms over the users of both.
    fn truth(&self, arm: usize, other: usize) -> f64 {
        let (mut sum, mut users) = (0.0, 0.0);
        for (phase, in_play) in self.instance.phases.iter().zip(&self.in_play) {
            let plays = |arm: usize| in_play.get(arm).copied().unwrap_or(false);
            if !plays(arm) || !plays(other) {
                continue;
            }
            let number = phase_number(self.instance, phase);
            for (means, of_segment) in phase.means.iter().zip(&self.users[number]) {
                sum += of_segment * (means[arm] - means[other]);
                users += of_segment;
            }
        }
        if users > 0.0 { sum / users } else { 0.0 }
    }

    fn look(&self, users: u64, found: &mut VerdictRun) {
        let (specification, initial) = (&self.specification, self.instance.arms);
        let strata = self.counted.strata(specification, 0, |_| true);
        let active = specification.active_arms();
        let alpha = ErrorLevel::FIVE_PERCENT;
        let comparison =
            Comparison { strata: &strata, active: &active, initial, alpha, costs: &[] };
        let is_wrong = |named: usize| {
            let rivals = (0..active.len()).filter(|arm| active[*arm] && *arm != named);
            rivals.map(|rival| self.truth(named, rival)).any(|lead| lead <= 1e-12)
        };
        if let Some(named) = comparison.best() {
            found.users = found.users.or(Some(users));
            found.is_wrong |= is_wrong(named);
        }
        let pooled = specification.cells().of_arms(&self.counted.tallies, 0, None);
        if let Some(named) = best_active_arm(&pooled, &active, initial, alpha) {
            found.is_wrong_pooled |= is_wrong(named);
        }
        let channel = specification.channel();
        let control = (0..active.len()).find(|arm| active[*arm]).unwrap_or(0);
        for lift in comparison.differences_from(control, None) {
            let truth = self.truth(lift.arm, control) * channel.contrast();
            let (low, high) = (lift.interval.low() - 1e-9, lift.interval.high() + 1e-9);
            found.has_missed |= !(low..=high).contains(&truth);
        }
        if self.instance.guardrail.is_some() {
            let harm = harmful(specification, initial, &self.counted, 1);
            found.has_harm |= harm.contains(&true);
        }
    }
}

/// The share of the assignments that report the guardrail metric.
const METRIC_SHARE: f64 = 0.3;

fn phase_number(instance: &VerdictInstance, phase: &super::instance::Phase) -> usize {
    instance.phases.iter().position(|one| std::ptr::eq(one, phase)).unwrap_or(0)
}

/// Splits users by shares.
fn split(users: u64, shares: &[f64], rng: &mut Xoshiro256PlusPlus) -> anyhow::Result<Vec<u64>> {
    let (mut left, mut rest) = (users, shares.iter().sum::<f64>());
    let mut parts = Vec::with_capacity(shares.len());
    for share in shares {
        let part = if *share >= rest {
            left
        } else {
            Binomial::new(left, (share / rest).clamp(0.0, 1.0))?.sample(rng)
        };
        parts.push(part);
        left -= part;
        rest -= share;
    }
    Ok(parts)
}

fn specification(instance: &VerdictInstance) -> anyhow::Result<Specification> {
    let labels = (0..instance.arms).map(|arm| Arm::new(arm.to_string()));
    let first = Specification::first(
        ExperimentId::new("verdict-study")?,
        Epsilon::new(instance.epsilon)?,
        Rewards::binary(),
        Mechanism::Linear,
        labels.collect::<Result<_, _>>()?,
        ReleaseTiming::IMMEDIATE,
    )?;
    let mut measurement = Measurement::REWARDS_ONLY;
    if instance.segments.len() > 1 {
        let values = (0..instance.segments.len()).map(|value| value.to_string());
        measurement.segmentations = Segmentation::new("segment", values)?.into();
    }
    if let Some((limit, _)) = instance.guardrail {
        let share = Millionths::from_share(METRIC_SHARE)?;
        let metric = Metric::new("returned", Rewards::binary(), share)?;
        measurement.metrics = vec![metric.limited(Limit::AtMost(limit))?];
    }
    Ok(first.measuring(measurement)?)
}
