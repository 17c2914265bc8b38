//! One trial: users of random contexts choose and some report, and scores follow their reports.

use std::sync::atomic::{AtomicBool, Ordering};

use bandana_learners::{Learner, LearnerConfig, TallySnapshot, reports_until_policy};
use bandana_shared::cells::{Cell, Measurement};
use bandana_shared::channel::Channel;
use bandana_shared::context::PrivateContext;
use bandana_shared::curve::{Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::policy::Weights;
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::tally::Tally;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

use super::instance::{ARMS, Coefficients};
use super::{ContextStudy, ContextualArms};

/// Contexts by which a policy is judged.
const JUDGED: usize = 4096;

/// Mean pseudo-regrets of a user in a trial, against the best arm in each context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Regrets {
    /// With the same arm for everybody, the best such one: what contexts are worth.
    pub(super) best_arm: f64,
    /// With private contexts, those who explore included.
    pub(super) contexts: f64,
    /// With the last policy, of those who don't explore.
    pub(super) last_policy: f64,
}

/// Runs a trial. `None`: it was stopped.
pub(super) fn run(
    study: &ContextStudy,
    (arms, epsilon): (&ContextualArms, Epsilon),
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Regrets>> {
    let specification = specification(arms, epsilon, study)?;
    let Some(private) = specification.private_context() else { anyhow::bail!("no context") };
    let Channel::Bit(floor) = specification.channel() else { anyhow::bail!("no bits") };
    let bits = [Level::ZERO, Level::ONE].map(|level| floor.threshold(level));
    let coefficients = arms.coefficients(seed);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let learner = LearnerConfig::new(Learner::Uniform);
    let (cells, active) = (specification.cells(), specification.active_arms());
    let mut counted =
        TallySnapshot { tallies: vec![Tally::EMPTY; cells.len()], ..Default::default() };
    let mut policy = learner.weigh(&specification, ARMS, &counted, &[])?;
    let (mut reports, mut due, mut regret) = (0, 0, 0.0);
    for _ in 0..study.users {
        if reports >= due {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            policy = learner.weigh(&specification, ARMS, &counted, &[])?;
            due = reports + reports_until_policy(reports);
        }
        let context = arms.context(&mut rng);
        let means = coefficients.means(&context);
        let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if !private.explores(rng.next_u32()) {
            regret += best - chosen(private, &policy, &active, &context, &means);
            continue;
        }
        let arm = policy.draw(rng.next_u32());
        let coordinate = private.draw(rng.next_u32());
        let reward = rng.random_bool(means[arm.get()]);
        let is_one = reward == PrivateContext::is_positive(coordinate, &context);
        let bit = bits[usize::from(is_one)].bit(rng.random(), rng.random());
        let cell = cells.index(Cell { coordinate, ..Cell::of(arm) });
        counted.tallies[cell.get()] += Tally::of_bit(bit);
        reports += 1;
        regret += best - means[arm.get()];
    }
    policy = learner.weigh(&specification, ARMS, &counted, &[])?;
    let (best_arm, last_policy) = judged(arms, &coefficients, seed, |context, means| {
        chosen(private, &policy, &active, context, means)
    });
    Ok(Some(Regrets { best_arm, contexts: regret / study.users as f64, last_policy }))
}

/// The mean reward of the arm with the greatest score, or of those with it.
fn chosen(
    private: &PrivateContext,
    policy: &Weights,
    active: &[bool],
    context: &[bool],
    means: &[f64],
) -> f64 {
    let best = private.best_arms(policy, active, context);
    best.iter().map(|arm| means[*arm]).sum::<f64>() / best.len() as f64
}

/// The mean regret of the best arm for everybody, and of a policy, over contexts of their own.
fn judged(
    arms: &ContextualArms,
    coefficients: &Coefficients,
    seed: u64,
    policy: impl Fn(&[bool], &[f64]) -> f64,
) -> (f64, f64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 1 << 63);
    let (mut sums, mut best_sum, mut of_policy) = (vec![0.0; ARMS], 0.0, 0.0);
    for _ in 0..JUDGED {
        let context = arms.context(&mut rng);
        let means = coefficients.means(&context);
        best_sum += means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        of_policy += policy(&context, &means);
        sums.iter_mut().zip(&means).for_each(|(sum, mean)| *sum += mean);
    }
    let best_arm = sums.into_iter().fold(f64::NEG_INFINITY, f64::max);
    let count = JUDGED as f64;
    ((best_sum - best_arm) / count, (best_sum - of_policy) / count)
}

fn specification(
    arms: &ContextualArms,
    epsilon: Epsilon,
    study: &ContextStudy,
) -> anyhow::Result<Specification> {
    let context = PrivateContext::new(arms.declared()?, study.exploration)?;
    let labels = (0..ARMS).map(|arm| Arm::new(arm.to_string())).collect::<Result<_, _>>()?;
    let first = Specification::first(
        ExperimentId::new("context-study")?,
        epsilon,
        Rewards::binary(),
        Mechanism::Linear,
        labels,
        ReleaseTiming::IMMEDIATE,
    )?;
    Ok(first.measuring(Measurement { context: Some(context), ..Measurement::REWARDS_ONLY })?)
}
