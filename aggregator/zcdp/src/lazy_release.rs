//! Lazy release: releases are as rare as the noise requires, and all past rewards stay in use.

use bandana_learners::{AdaKlSampler, Evidence};
use rand::Rng;
use serde::{Deserialize, Serialize};

use super::adac_ucb::{ReleasedMean, check_arm, check_arms, count_more, one_number};
use super::error::ZcdpError;
use super::lattice::{LatticeReward, NoiseScale, Protection, RewardRange, reward_of};

/// Largest scale of Rand-AdaKL, which is uniform between 0 and this. Like
/// [`scale_max`](bandana_learners::scale_max) it is measured, not derived: it is the value used for
/// channels with almost no noise.
pub const SCALE_MAX: f64 = 1.2;

/// The range to which the assumed variance of a reward is clamped.
const VARIANCE: std::ops::RangeInclusive<f64> = 0.05..=0.25;

/// The state of an arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ArmState {
    /// Number of rewards and noisy sum of each release.
    releases: Vec<(u64, i128)>,
    released: u64,
    /// Number and sum of the rewards since: the buffer, of which nothing has been released.
    open: u64,
    open_sum: i128,
}

/// Rand-AdaKL on rare releases, for rewards in 0..=1. The rule is this project's, without a proven
/// regret bound.
///
/// The buffer of an arm is released with N(0, 1/(2ρ)) once it holds at least `max(ceil(1/sqrt(ρ)),
/// rewards released before)` rewards. So the noise never much exceeds the standard deviation of the
/// sum, and there are about log2 N releases. A release of n rewards of variance v is weighted by
/// its information, `w = n/(n + 1/(2ρv))`. Here v is p(1 - p), clamped to .05..=.25. The mean is `Σ
/// w sum / Σ w n`, and counts as `Σ w n` rewards without noise. With these means, the arm is drawn
/// as [`Learner::RandAdaKl`](bandana_learners::Learner::RandAdaKl) does.
///
/// # Privacy
/// ρ-zCDP for each reward. All arms have an open buffer at any time, and arms are drawn at random,
/// so the order of releases is random. The claim in the [module](super) covers both, since draws
/// use released statistics, counts and independent coins. Sensitivity: a changed reward in 0..=1
/// moves the one sum that it is in by at most Δ = 1, so σ² = 1/(2ρ).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "LazyState", into = "LazyState")]
pub struct LazyRelease {
    state: LazyState,
    sampler: AdaKlSampler,
}

/// The persistent state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LazyState {
    protection: Protection,
    arms: Vec<ArmState>,
    due: Option<usize>,
    rewards: u64,
}

impl LazyRelease {
    /// The initial state.
    ///
    /// # Errors
    /// For fewer than 2 or too many arms.
    pub fn new(arms: usize, protection: Protection) -> Result<Self, ZcdpError> {
        check_arms(arms)?;
        let arms = vec![ArmState::default(); arms];
        Ok(LazyState { protection, arms, due: None, rewards: 0 }.into())
    }

    /// Draws an arm. Arms without a release come first, in order of fewest rewards.
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> usize {
        let unknown = self.state.arms.iter().enumerate().filter(|(_, arm)| arm.released == 0);
        match unknown.min_by_key(|(_, arm)| arm.open) {
            Some((arm, _)) => arm,
            None => self.sampler.draw(rng),
        }
    }

    /// The probability of each arm to be drawn, which is the same until the next release. `None`
    /// while there are arms without a release, which come in turn.
    pub fn shares(&self) -> Option<Vec<f64>> {
        self.state.arms.iter().all(|arm| arm.released > 0).then(|| self.sampler.shares())
    }

    /// Number of rewards until an arm's buffer is due for release.
    ///
    /// # Panics
    /// When there is no such arm.
    pub fn remaining(&self, arm: usize) -> u64 {
        let arm = &self.state.arms[arm];
        least_release(self.state.protection).max(arm.released).saturating_sub(arm.open)
    }

    /// The noise of a release; none without protection.
    pub fn noise(&self) -> Option<NoiseScale> {
        self.state.protection.noise(RewardRange::Unit, 1)
    }

    /// Whether a statistic is due for release.
    pub fn is_due(&self) -> bool {
        self.state.due.is_some()
    }

    /// Adds a reward of the arm that was played.
    ///
    /// # Errors
    /// When there is no such arm, a statistic is due, or there are too many rewards.
    pub fn observe(&mut self, arm: usize, reward: LatticeReward) -> Result<(), ZcdpError> {
        self.observe_sum(arm, 1, reward.units())
    }

    /// Adds `count` rewards of an arm at once, at most [`Self::remaining`], for simulations.
    ///
    /// # Errors
    /// As [`Self::observe`].
    pub fn observe_sum(&mut self, arm: usize, count: u64, sum: i128) -> Result<(), ZcdpError> {
        check_arm(arm, self.state.arms.len())?;
        if self.state.due.is_some() {
            return Err(ZcdpError::NoiseDue);
        }
        self.state.rewards = count_more(self.state.rewards, count)?;
        let played = &mut self.state.arms[arm];
        played.open += count;
        played.open_sum += sum;
        if self.remaining(arm) == 0 {
            self.state.due = Some(arm);
        }
        Ok(())
    }

    /// Releases the due statistic with its noise in lattice steps.
    ///
    /// # Errors
    /// When no statistic is due, or the length of `noise` is wrong.
    pub fn release(&mut self, noise: &[i64]) -> Result<(), ZcdpError> {
        let arm = self.state.due.ok_or(ZcdpError::NothingDue)?;
        let noise = one_number(noise, self.noise())?;
        let released = &mut self.state.arms[arm];
        released.releases.push((released.open, released.open_sum + noise));
        released.released += released.open;
        (released.open, released.open_sum) = (0, 0);
        self.state.due = None;
        self.sampler = self.state.sampler();
        Ok(())
    }

    /// The due statistic without noise.
    pub(super) fn exact_statistic(&self) -> Vec<i128> {
        self.state.due.map(|arm| self.state.arms[arm].open_sum).into_iter().collect()
    }

    /// The statistics in use, one for each arm.
    pub fn released(&self) -> Vec<Option<ReleasedMean>> {
        let noise = 0.5 * self.state.protection.inverse_rho();
        let mean = |arm: &ArmState| {
            let (mean, weights) = self.state.weigh(arm)?;
            let counts = || weights.iter().zip(&arm.releases);
            let total: f64 = counts().map(|(w, (n, _))| w * *n as f64).sum();
            let squares: f64 = weights.iter().map(|w| w * w).sum();
            let noise_deviation = (noise * squares).sqrt() / total;
            Some(ReleasedMean { rewards: arm.released, mean, noise_deviation })
        };
        self.state.arms.iter().map(mean).collect()
    }

    /// The settings: number of arms, and protection of rewards.
    pub fn settings(&self) -> (usize, Protection) {
        (self.state.arms.len(), self.state.protection)
    }

    /// Erases the rewards of the open buffers, and keeps their numbers.
    pub(super) fn erase_buffers(&mut self) {
        self.state.arms.iter_mut().for_each(|arm| arm.open_sum = 0);
    }

    /// Number of rewards so far.
    pub fn rewards(&self) -> u64 {
        self.state.rewards
    }
}

/// Minimum number of rewards of a release.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 2^15, the root of the largest 1/rho"
)]
fn least_release(protection: Protection) -> u64 {
    (protection.inverse_rho().sqrt().ceil() as u64).max(1)
}

impl LazyState {
    /// The weighted mean of an arm's releases, and their weights.
    fn weigh(&self, arm: &ArmState) -> Option<(f64, Vec<f64>)> {
        if arm.releases.is_empty() {
            return None;
        }
        let noise = 0.5 * self.protection.inverse_rho();
        let mean_with = |weights: &[f64]| {
            let (mut sum, mut count) = (0.0, 0.0);
            for (weight, (n, noisy)) in weights.iter().zip(&arm.releases) {
                sum += weight * reward_of(*noisy);
                count += weight * *n as f64;
            }
            sum / count
        };
        let plain = mean_with(&vec![1.0; arm.releases.len()]).clamp(0.0, 1.0);
        let variance = (plain * (1.0 - plain)).clamp(*VARIANCE.start(), *VARIANCE.end());
        let weight = |(n, _): &(u64, i128)| *n as f64 / (*n as f64 + noise / variance);
        let weights: Vec<f64> = arm.releases.iter().map(weight).collect();
        Some((mean_with(&weights), weights))
    }

    fn sampler(&self) -> AdaKlSampler {
        let evidence = |arm: &ArmState| {
            let Some((mean, weights)) = self.weigh(arm) else { return Evidence::default() };
            let count: f64 =
                weights.iter().zip(&arm.releases).map(|(w, (n, _))| w * *n as f64).sum();
            let ones = mean.clamp(0.0, 1.0) * count;
            Evidence::new(ones, count - ones)
        };
        AdaKlSampler::of(self.arms.iter().map(evidence).collect(), SCALE_MAX)
    }
}

impl From<LazyState> for LazyRelease {
    fn from(state: LazyState) -> Self {
        Self { sampler: state.sampler(), state }
    }
}

impl From<LazyRelease> for LazyState {
    fn from(lazy: LazyRelease) -> Self {
        lazy.state
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_buffer_is_released_when_it_is_large_enough() {
        let protection = Protection::concentrated(0.0625).unwrap();
        let mut lazy = LazyRelease::new(2, protection).unwrap();
        let half = RewardRange::Unit.reward(0.5).unwrap();
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        // 1/sqrt(ρ) is 4; both arms in turn until then, and then as many as before.
        let mut counts = [0; 2];
        for _ in 0..7 {
            let arm = lazy.draw(&mut rng);
            lazy.observe(arm, half).unwrap();
            counts[arm] += 1;
        }
        assert_eq!((lazy.is_due(), counts), (true, [4, 3]));
        for release in [4, 8, 16, 32] {
            lazy.release(&[1 << 16]).unwrap();
            assert_eq!(lazy.released()[0].unwrap().rewards, release);
            for _ in 0..release {
                assert!(!lazy.is_due());
                lazy.observe(0, half).unwrap();
            }
        }
    }

    #[test]
    fn a_stored_state_draws_as_before() {
        let mut lazy = LazyRelease::new(3, Protection::concentrated(0.1).unwrap()).unwrap();
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(2);
        for step in 0..500 {
            let arm = lazy.draw(&mut rng);
            let reward = RewardRange::Unit.reward(f64::from(step % 10) / 10.0).unwrap();
            lazy.observe(arm, reward).unwrap();
            if lazy.is_due() {
                lazy.release(&[i64::from(step) << 6]).unwrap();
            }
        }
        let json = serde_json::to_string(&lazy).unwrap();
        let again: LazyRelease = serde_json::from_str(&json).unwrap();
        let (mut one, mut two) = (rng.clone(), rng);
        for _ in 0..200 {
            assert_eq!(lazy.draw(&mut one), again.draw(&mut two));
        }
    }
}
