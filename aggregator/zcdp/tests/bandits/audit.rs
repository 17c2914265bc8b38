//! An audit of the actions: two tables of rewards that differ in one reward, many runs, and a
//! test of what zCDP says about them.
//!
//! Arm 1 gets many rewards before its release, so its noise per reward is small; arm 0 gets the
//! one reward in question. Whether arm 0 is recommended afterwards depends on the noise of that
//! reward alone.

use bandana_learners::divergence::kl;
use bandana_mechanisms::noise::{DiscreteGaussian, Ratio};
use bandana_zcdp::adac_ucb::{AdacUcb, Memory, UcbSettings};
use bandana_zcdp::lattice::UNITS;
use bandana_zcdp::{Protection, RewardRange};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

const RHO: f64 = 0.5;
const RUNS: u32 = 3000;
const MANY: u64 = 1000;

/// The significance of the test: an honest algorithm fails with at most this probability, over
/// seeds.
const SIGNIFICANCE: f64 = 1e-6;

/// The share of runs in which arm 0 is recommended, after a reward; `scaled` times the variance
/// that the algorithm asks for.
fn share(reward: f64, scaled: (u64, u64), rng: &mut ChaCha20Rng) -> f64 {
    let protection = Protection::concentrated(RHO).unwrap();
    let memory = Memory::Forgetting;
    let settings = UcbSettings { arms: 2, protection, exploration: 0.001, memory };
    let fresh = AdacUcb::new(settings).unwrap();
    let scale = fresh.noise().unwrap();
    let factor = Ratio::new(scaled.0, scaled.1).unwrap();
    let noise = DiscreteGaussian::new(scale.variance.times(factor).unwrap());
    let run = |rng: &mut ChaCha20Rng| {
        let mut ucb = fresh.clone();
        // Arm 0 is not played, even when recommended, until its one reward comes.
        let others = (0.63 * UNITS as f64) as i128 * i128::from(MANY);
        ucb.observe_sum(1, MANY, others).unwrap();
        ucb.observe(0, RewardRange::Unit.reward(reward).unwrap()).unwrap();
        while ucb.is_due() {
            ucb.release(&[noise.sample(rng)]).unwrap();
        }
        ucb.recommended() == 0
    };
    f64::from((0..RUNS).filter(|_| run(rng)).count() as u32) / f64::from(RUNS)
}

/// A lower bound on the divergence of the two recommendations, which holds with the
/// significance: the least kl of Bernoulli laws whose means are within Hoeffding's distance of the
/// shares seen. ρ-zCDP has it at most ρ, the limit of order 1.
fn divergence_at_least(one: f64, other: f64) -> f64 {
    let distance = ((4.0 / SIGNIFICANCE).ln() / (2.0 * f64::from(RUNS))).sqrt();
    let (low, high) = (one.min(other) + distance, one.max(other) - distance);
    if low >= high { 0.0 } else { kl(low, high).min(kl(high, low)) }
}

#[test]
fn actions_keep_to_the_bound_and_half_the_noise_is_caught() {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let mut audit = |scaled| {
        let one = share(1.0, scaled, &mut rng);
        let other = share(0.0, scaled, &mut rng);
        divergence_at_least(one, other)
    };
    let honest = audit((1, 1));
    assert!(honest > 0.1, "the audit sees nothing: {honest}");
    assert!(honest <= RHO, "{honest}");
    // Half the standard deviation.
    let halved = audit((1, 4));
    assert!(halved > RHO, "{halved}");
}
