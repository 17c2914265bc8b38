//! One run of an experiment until its verdict.

use std::sync::atomic::{AtomicBool, Ordering};

use bandana_learners::reports_until_policy;
use bandana_shared::channel::Floor;
use bandana_shared::confidence::best_arm;
use bandana_shared::curve::{Curve, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::tally::Tally;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, SeedableRng as _};

use bandana_lab::instance::{Instance, largest};
use bandana_lab::{Channel as _, Contestant, Privacy, Setting as LabSetting, StandardChannel};

/// Settings of all runs of a study.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The privacy loss bound of one report.
    pub epsilon: Epsilon,
    /// The probability that a verdict is wrong, at most.
    pub alpha: ErrorLevel,
    /// Users after whom a run ends without a verdict.
    pub horizon: u64,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// The arm named best; none by the horizon.
    pub verdict: Option<usize>,
    /// Users until then.
    pub users: u64,
    /// Pseudo-regret until then, in the true means.
    pub regret: f64,
}

/// Runs an experiment with rewards sent through the linear curve. As on a server, a policy is
/// computed anew after a hundred reports or a hundredth of all, and the stopping rule is evaluated
/// then. `None` when stopped.
///
/// # Errors
/// When the learner fails, or has no weights.
pub fn run(
    instance: &Instance,
    learner: &dyn Contestant,
    setting: Setting,
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Run>> {
    let means = instance.means();
    let best = means[largest(&means)];
    let floor = Floor::for_epsilon(setting.epsilon);
    let channel = StandardChannel::Bit(Curve::new(Mechanism::Linear, setting.epsilon), floor);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tallies = vec![Tally::EMPTY; means.len()];
    let (mut users, mut regret) = (0, 0.0);
    let size = |users| reports_until_policy(users).min(setting.horizon - users);
    let mut learner = learner.batch_learner(&LabSetting {
        arms: means.len(),
        privacy: Privacy { mechanism: Mechanism::Linear, epsilon: setting.epsilon },
        batch: usize::try_from(size(0))?,
        fills_batches: false,
    })?;
    while users < setting.horizon {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let batch = size(users);
        let mut counts = vec![vec![0; 2]; means.len()];
        for _ in 0..batch {
            let arm = learner.weights().draw(rng.next_u32()).get();
            regret += best - means[arm];
            let reward = instance.arms[arm].rewards.draw(&mut rng);
            let bit = channel.send(reward, &mut rng) > 0.5;
            tallies[arm] += Tally::of_bit(bit);
            counts[arm][usize::from(bit)] += 1;
        }
        users += batch;
        if let Some(verdict) = best_arm(&tallies, setting.alpha) {
            return Ok(Some(Run { verdict: Some(verdict), users, regret }));
        }
        if users < setting.horizon {
            learner.learn(&counts, size(users))?;
        }
    }
    Ok(Some(Run { verdict: None, users, regret }))
}
