//! One trial of one algorithm.

use std::sync::atomic::{AtomicBool, Ordering};

use bandana_lab::generator;
use bandana_zcdp::adac_gope::AdacGope;
use bandana_zcdp::adac_oful::{AdacOful, OfulSettings};
use bandana_zcdp::adac_ucb::{AdacUcb, UcbSettings};
use bandana_zcdp::lattice::UNITS;
use bandana_zcdp::lazy_release::LazyRelease;
use bandana_zcdp::{Action, NoiseScale, Protection, RewardRange};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt as _};
use rand_distr::{Binomial, Distribution as _, Gamma, StandardNormal};

use super::algorithm::{Algorithm, Finite, Setting, gope};
use super::rewards::Rewards;

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
/// Actions, the true parameter and the rewards of an arm's first play, of its second and so on
/// depend on the seed only, so they are the same for all algorithms and every ρ, and without
/// privacy. With contexts the coin of each step is.
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
    let mut chance = Chance::new(seed);
    let checkpoints = &course.checkpoints;
    let mut regret = Regret { checkpoints, noted: Vec::new(), round: 0, sum: 0.0 };
    match algorithm.setting() {
        Setting::Finite(finite) => {
            let arms = Arms::new(&course.means, &course.means, seed)?;
            let (count, exploration) = (course.means.len(), course.exploration);
            match finite {
                Finite::Ucb(memory) => {
                    let settings = UcbSettings { arms: count, protection, exploration, memory };
                    play_ucb(AdacUcb::new(settings)?, arms, &mut regret, &mut chance, stop)?;
                }
                Finite::Lazy => {
                    let lazy = LazyRelease::new(count, protection)?;
                    play_lazy(lazy, arms, &mut regret, &mut chance, stop)?;
                }
            }
        }
        Setting::Linear(length, placement) => {
            let actions = on_sphere(course.actions, course.dimension, &mut chance.world)?;
            let means = means(&actions, &direction(course.dimension, &mut chance.world));
            // Rewards of -1 and 1.
            let ones: Vec<f64> = means.iter().map(|mean| f64::midpoint(1.0, *mean)).collect();
            let arms = Arms::new(&means, &ones, seed)?;
            let gope = AdacGope::new(gope(actions, protection, length, placement))?;
            play_gope(gope, arms, &mut regret, &mut chance, stop)?;
        }
        Setting::Contextual => {
            let oful = AdacOful::new(OfulSettings::published(course.dimension, protection))?;
            play_oful(oful, course, &mut regret, &mut chance, stop)?;
        }
    }
    Ok((regret.left() == 0).then_some(regret.noted))
}

/// Generators for what must not depend on each other.
struct Chance {
    /// Actions, the parameter, contexts.
    world: Xoshiro256PlusPlus,
    /// Coins for the rewards of contexts.
    coins: Xoshiro256PlusPlus,
    /// What an algorithm draws.
    choices: Xoshiro256PlusPlus,
    noise: Xoshiro256PlusPlus,
}

impl Chance {
    fn new(seed: u64) -> Self {
        // The arms have the purposes from 0 on.
        let of = |purpose| generator(seed, u64::MAX - purpose);
        Self { world: of(0), coins: of(1), choices: of(2), noise: of(3) }
    }

    fn noise(&mut self, scale: Option<NoiseScale>) -> Vec<i64> {
        scale.map_or(Vec::new(), |scale| scale.sample(&mut self.noise))
    }
}

/// The arms of a trial: what a play costs, and rewards.
struct Arms {
    gaps: Vec<f64>,
    rewards: Vec<Rewards>,
}

impl Arms {
    /// Arms with these means, and these probabilities of the better one of two rewards.
    fn new(means: &[f64], ones: &[f64], seed: u64) -> anyhow::Result<Self> {
        let best = largest(means);
        let rewards = |(arm, ones): (usize, &f64)| Rewards::new(seed, arm, ones.clamp(0.0, 1.0));
        Ok(Self {
            gaps: means.iter().map(|mean| best - mean).collect(),
            rewards: ones.iter().enumerate().map(rewards).collect::<anyhow::Result<_>>()?,
        })
    }

    /// The number of better rewards in the next plays of an arm.
    fn next_sum(&mut self, arm: usize, count: u64) -> anyhow::Result<i128> {
        Ok(i128::from(self.rewards[arm].next_sum(count)?))
    }
}

fn largest(means: &[f64]) -> f64 {
    means.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Plays whole episodes at once.
fn play_ucb(
    mut ucb: AdacUcb,
    mut arms: Arms,
    regret: &mut Regret<'_>,
    chance: &mut Chance,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let (arm, rounds) = (ucb.recommended(), ucb.remaining());
        regret.add(rounds, arms.gaps[arm]);
        if regret.left() == 0 {
            return Ok(());
        }
        ucb.observe_sum(arm, rounds, arms.next_sum(arm, rounds)? * UNITS)?;
        if ucb.is_due() {
            ucb.release(&chance.noise(ucb.noise()))?;
        }
    }
    Ok(())
}

/// Plays until a release at once: until then, each choice has the same probabilities.
fn play_lazy(
    mut lazy: LazyRelease,
    mut arms: Arms,
    regret: &mut Regret<'_>,
    chance: &mut Chance,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let (counts, last) = match lazy.shares() {
            Some(shares) => {
                let rest: Vec<u64> = (0..shares.len()).map(|arm| lazy.remaining(arm)).collect();
                race(&shares, &rest, &mut chance.choices)?
            }
            None => (vec![0; arms.gaps.len()], lazy.draw(&mut chance.choices)),
        };
        // Regret between the choices at its mean, given how often each arm came before the last.
        let rounds: u64 = counts.iter().sum();
        let sum: f64 = counts.iter().zip(&arms.gaps).map(|(count, gap)| *count as f64 * gap).sum();
        if rounds > 0 {
            regret.add(rounds, sum / rounds as f64);
        }
        regret.add(1, arms.gaps[last]);
        if regret.left() == 0 {
            return Ok(());
        }
        for (arm, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            lazy.observe_sum(arm, count, arms.next_sum(arm, count)? * UNITS)?;
        }
        lazy.observe_sum(last, 1, arms.next_sum(last, 1)? * UNITS)?;
        if lazy.is_due() {
            lazy.release(&chance.noise(lazy.noise()))?;
        }
    }
    Ok(())
}

/// Draws arms with these shares until one has been drawn as often as its rest says: how often each
/// was before the last draw, and the arm of the last draw.
///
/// With draws at the events of a Poisson process of rate 1, those of an arm are another one whose
/// rate is its share. The arms are independent then, an arm's rest ends after a gamma distributed
/// time, and its earlier draws are uniform over that.
fn race(
    shares: &[f64],
    rest: &[u64],
    rng: &mut Xoshiro256PlusPlus,
) -> anyhow::Result<(Vec<u64>, usize)> {
    let mut ends = Vec::with_capacity(shares.len());
    for (share, rest) in shares.iter().zip(rest) {
        let end = Gamma::new(*rest as f64, 1.0)?.sample(rng);
        ends.push(if *share > 0.0 { end / share } else { f64::INFINITY });
    }
    let sooner = |one: usize, other: usize| if ends[other] < ends[one] { other } else { one };
    let last = (0..ends.len()).fold(0, sooner);
    let before = |(arm, end): (usize, &f64)| {
        let part = if arm == last { 1.0 } else { ends[last] / end };
        Ok(Binomial::new(rest[arm] - 1, part)?.sample(rng))
    };
    Ok((ends.iter().enumerate().map(before).collect::<anyhow::Result<_>>()?, last))
}

/// Plays with rewards of -1 and 1 and linear means; all plays of an action in a phase at once.
fn play_gope(
    mut gope: AdacGope,
    mut arms: Arms,
    regret: &mut Regret<'_>,
    chance: &mut Chance,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let (action, rounds) = (gope.recommended(), gope.remaining());
        regret.add(rounds, arms.gaps[action]);
        if regret.left() == 0 {
            return Ok(());
        }
        let sum = 2 * arms.next_sum(action, rounds)? - i128::from(rounds);
        gope.observe_sum(action, rounds, sum * UNITS)?;
        if gope.is_due() {
            gope.release(&chance.noise(gope.noise()))?;
        }
    }
    Ok(())
}

fn play_oful(
    mut oful: AdacOful,
    course: &Course,
    regret: &mut Regret<'_>,
    chance: &mut Chance,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let parameter = direction(course.dimension, &mut chance.world);
    let rewards = [-1.0, 1.0].map(|reward| RewardRange::Symmetric.reward(reward));
    while regret.left() > 0 {
        if regret.round.is_multiple_of(PATIENCE) && stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let actions = on_sphere(course.actions, course.dimension, &mut chance.world)?;
        let means = means(&actions, &parameter);
        let choice = oful.choose(&actions)?;
        let is_good = chance.coins.random::<f64>() < f64::midpoint(1.0, means[choice]);
        oful.observe(&actions[choice], rewards[usize::from(is_good)].clone()?)?;
        regret.add(1, largest(&means) - means[choice]);
        if oful.is_due() {
            oful.release(&chance.noise(oful.noise()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lazy_release_played_at_once_has_the_regret_of_single_steps() {
        let course = Course {
            means: vec![0.7, 0.5, 0.4],
            exploration: 1.0,
            actions: 2,
            dimension: 2,
            checkpoints: vec![300, 1000],
        };
        let protection = Protection::concentrated(0.05).unwrap();
        let (mut at_once, mut stepwise) = ([0.0; 2], [0.0; 2]);
        let (mut squares, trials) = ([0.0; 2], 1500);
        for seed in 0..trials {
            let stop = AtomicBool::new(false);
            let noted = run(Algorithm::LazyRelease, protection, &course, seed, &stop).unwrap();
            let single = step_by_step(&course, protection, seed + trials);
            for (at, noted) in noted.unwrap().into_iter().enumerate() {
                at_once[at] += noted;
                stepwise[at] += single[at];
                squares[at] += noted * noted + single[at] * single[at];
            }
        }
        for at in 0..2 {
            // Five standard errors, with the means in the squares, which makes them larger.
            let slack = 5.0 * squares[at].sqrt();
            let off = (at_once[at] - stepwise[at]).abs();
            assert!(off < slack && slack < 0.25 * stepwise[at], "{at_once:?} {stepwise:?}");
        }
    }

    fn step_by_step(course: &Course, protection: Protection, seed: u64) -> Vec<f64> {
        let mut lazy = LazyRelease::new(course.means.len(), protection).unwrap();
        let mut arms = Arms::new(&course.means, &course.means, seed).unwrap();
        let mut chance = Chance::new(seed);
        let mut regret =
            Regret { checkpoints: &course.checkpoints, noted: Vec::new(), round: 0, sum: 0.0 };
        while regret.left() > 0 {
            let arm = lazy.draw(&mut chance.choices);
            lazy.observe_sum(arm, 1, arms.next_sum(arm, 1).unwrap() * UNITS).unwrap();
            regret.add(1, arms.gaps[arm]);
            if lazy.is_due() {
                let noise = chance.noise(lazy.noise());
                lazy.release(&noise).unwrap();
            }
        }
        regret.noted
    }
}
