//! One trial of one algorithm.

use std::sync::atomic::{AtomicBool, Ordering};

use bandana_zcdp::adac_gope::AdacGope;
use bandana_zcdp::adac_oful::{AdacOful, OfulSettings};
use bandana_zcdp::adac_ucb::{AdacUcb, UcbSettings};
use bandana_zcdp::lattice::UNITS;
use bandana_zcdp::lazy_release::LazyRelease;
use bandana_zcdp::{Action, NoiseScale, Protection, RewardRange};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_distr::{Binomial, Distribution as _, StandardNormal};

use super::algorithm::{Algorithm, Finite, Setting, gope};

/// Number of steps between two checks of the stop flag.
const PATIENCE: u64 = 1 << 12;

/// Settings of a trial.
#[derive(Clone, Debug)]
pub struct Course {
    /// Means of Bernoulli arms, in the setting with arms.
    pub means: Vec<f64>,
    /// β of AdaC-UCB.
    pub exploration: f64,
    /// Number of actions, in the settings with vectors.
    pub actions: usize,
    /// Dimension of the actions.
    pub dimension: usize,
    /// Rounds after which regret is recorded, ascending.
    pub checkpoints: Vec<u64>,
}

/// The pseudo-regret in the true means, recorded at every checkpoint.
struct Regret<'c> {
    checkpoints: &'c [u64],
    noted: Vec<f64>,
    round: u64,
    sum: f64,
}

impl Regret<'_> {
    /// Adds `rounds` rounds that cost `gap` each; rounds after the last checkpoint don't count.
    fn add(&mut self, rounds: u64, gap: f64) {
        let end = self.round.saturating_add(rounds);
        while let Some(next) = self.checkpoints.get(self.noted.len()).filter(|next| **next <= end) {
            self.noted.push(self.sum + gap * (next - self.round) as f64);
        }
        self.sum += gap * rounds as f64;
        self.round = end;
    }

    fn left(&self) -> u64 {
        self.checkpoints.last().map_or(0, |last| last - self.round.min(*last))
    }
}

/// Runs a trial: the regret at every checkpoint. `None` when stopped.
///
/// Actions and the true parameter depend on the seed only, so they are the same for all algorithms
/// and every ρ.
///
/// # Errors
/// When the algorithm refuses its settings or a step.
pub fn run(
    algorithm: Algorithm,
    protection: Protection,
    course: &Course,
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<f64>>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let checkpoints = &course.checkpoints;
    let mut regret = Regret { checkpoints, noted: Vec::new(), round: 0, sum: 0.0 };
    match algorithm.setting() {
        Setting::Finite(Finite::Ucb(memory)) => {
            let (arms, exploration) = (course.means.len(), course.exploration);
            let ucb = AdacUcb::new(UcbSettings { arms, protection, exploration, memory })?;
            play_ucb(ucb, course, &mut regret, &mut rng, stop)?;
        }
        Setting::Finite(Finite::Lazy) => {
            let lazy = LazyRelease::new(course.means.len(), protection)?;
            play_lazy(lazy, course, &mut regret, &mut rng, stop)?;
        }
        Setting::Linear(length, placement) => {
            let actions = on_sphere(course.actions, course.dimension, &mut rng)?;
            let parameter = direction(course.dimension, &mut rng);
            let means = means(&actions, &parameter);
            let gope = AdacGope::new(gope(actions, protection, length, placement))?;
            play_gope(gope, &means, &mut regret, &mut rng, stop)?;
        }
        Setting::Contextual => {
            let oful = AdacOful::new(OfulSettings::published(course.dimension, protection))?;
            play_oful(oful, course, &mut regret, &mut rng, stop)?;
        }
    }
    Ok((regret.left() == 0).then_some(regret.noted))
}

fn draw(scale: Option<NoiseScale>, rng: &mut Xoshiro256PlusPlus) -> Vec<i64> {
    scale.map_or(Vec::new(), |scale| scale.sample(rng))
}

fn largest(means: &[f64]) -> f64 {
    means.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Plays whole episodes at once: the sum of n rewards is binomial.
fn play_ucb(
    mut ucb: AdacUcb,
    course: &Course,
    regret: &mut Regret<'_>,
    rng: &mut Xoshiro256PlusPlus,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let best = largest(&course.means);
    while regret.left() > 0 && !stop.load(Ordering::Relaxed) {
        let (arm, rounds) = (ucb.recommended(), ucb.remaining().min(regret.left()));
        let mean = course.means[arm];
        let ones = Binomial::new(rounds, mean)?.sample(rng);
        ucb.observe_sum(arm, rounds, i128::from(ones) * UNITS)?;
        regret.add(rounds, best - mean);
        if ucb.is_due() {
            ucb.release(&draw(ucb.noise(), rng))?;
        }
    }
    Ok(())
}

fn play_lazy(
    mut lazy: LazyRelease,
    course: &Course,
    regret: &mut Regret<'_>,
    rng: &mut Xoshiro256PlusPlus,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let best = largest(&course.means);
    let rewards = [0.0, 1.0].map(|reward| RewardRange::Unit.reward(reward));
    while regret.left() > 0 {
        if regret.round.is_multiple_of(PATIENCE) && stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let arm = lazy.draw(rng);
        let mean = course.means[arm];
        lazy.observe(arm, rewards[usize::from(rng.random_bool(mean))].clone()?)?;
        regret.add(1, best - mean);
        if lazy.is_due() {
            lazy.release(&draw(lazy.noise(), rng))?;
        }
    }
    Ok(())
}

/// Plays with rewards of -1 and 1 and linear means; all plays of an action in a phase at once.
fn play_gope(
    mut gope: AdacGope,
    means: &[f64],
    regret: &mut Regret<'_>,
    rng: &mut Xoshiro256PlusPlus,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let best = largest(means);
    while regret.left() > 0 && !stop.load(Ordering::Relaxed) {
        let (action, rounds) = (gope.recommended(), gope.remaining().min(regret.left()));
        let mean = means[action];
        let ones = Binomial::new(rounds, f64::midpoint(1.0, mean))?.sample(rng);
        let sum = 2 * i128::from(ones) - i128::from(rounds);
        gope.observe_sum(action, rounds, sum * UNITS)?;
        regret.add(rounds, best - mean);
        if gope.is_due() {
            gope.release(&draw(gope.noise(), rng))?;
        }
    }
    Ok(())
}

fn play_oful(
    mut oful: AdacOful,
    course: &Course,
    regret: &mut Regret<'_>,
    rng: &mut Xoshiro256PlusPlus,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let parameter = direction(course.dimension, rng);
    let rewards = [-1.0, 1.0].map(|reward| RewardRange::Symmetric.reward(reward));
    while regret.left() > 0 {
        if regret.round.is_multiple_of(PATIENCE) && stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let actions = on_sphere(course.actions, course.dimension, rng)?;
        let means = means(&actions, &parameter);
        let choice = oful.choose(&actions)?;
        let is_good = rng.random_bool(f64::midpoint(1.0, means[choice]).clamp(0.0, 1.0));
        oful.observe(&actions[choice], rewards[usize::from(is_good)].clone()?)?;
        regret.add(1, largest(&means) - means[choice]);
        if oful.is_due() {
            oful.release(&draw(oful.noise(), rng))?;
        }
    }
    Ok(())
}

/// A uniformly random point on the unit sphere.
pub fn direction(dimension: usize, rng: &mut impl Rng) -> Vec<f64> {
    let gaussian: Vec<f64> = (0..dimension).map(|_| StandardNormal.sample(rng)).collect();
    let norm = gaussian.iter().map(|x: &f64| x * x).sum::<f64>().sqrt();
    gaussian.iter().map(|x| x / norm).collect()
}

fn on_sphere(
    count: usize,
    dimension: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> anyhow::Result<Vec<Action>> {
    let action = |at| Ok(Action::new(&direction(dimension, rng), dimension, at)?);
    (0..count).map(action).collect()
}

fn means(actions: &[Action], parameter: &[f64]) -> Vec<f64> {
    let mean = |action: &Action| action.coordinates().zip(parameter).map(|(a, b)| a * b).sum();
    actions.iter().map(mean).collect()
}
