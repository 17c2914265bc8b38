//! AdaC-UCB: upper confidence bounds on noisy means of episodes.

use serde::{Deserialize, Serialize};

use super::error::ZcdpError;
use super::lattice::{LatticeReward, NoiseScale, Protection, REWARDS_MAX, RewardRange, reward_of};

/// Maximum number of arms.
pub const ARMS_MAX: usize = 1024;

/// The use of an arm's earlier statistics after a new release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// They are discarded, as in the paper. The index uses the last episode only.
    Forgetting,
    /// They are added up, which is a variant of this project. No reward is lost, but the noise of
    /// all m releases accumulates too. The index is `mean + sqrt((1/(2N) + m/(ρ N²)) β ln t)`, with
    /// N the number of released rewards of the arm.
    Remembering,
}

/// Settings of an AdaC-UCB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UcbSettings {
    /// Number of arms, 2 to 1,024.
    pub arms: usize,
    /// The protection of rewards, which lie in 0..=1.
    pub protection: Protection,
    /// β of the index. The theory requires more than 3; the published experiments use 1.
    pub exploration: f64,
    /// The use of earlier statistics.
    pub memory: Memory,
}

/// The state of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ArmState {
    /// Number of rewards in released statistics.
    released: u64,
    /// Number of rewards in the statistic in use.
    counted: u64,
    /// Number of releases in the statistic in use.
    releases: u64,
    /// The noisy sum of the rewards in use.
    noisy_sum: i128,
    /// Number and sum of the rewards since: the buffer, of which nothing has been released.
    open: u64,
    open_sum: i128,
}

/// A released statistic, which is public.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReleasedMean {
    /// Number of rewards in it.
    pub rewards: u64,
    /// Mean with noise, which may lie outside the range of rewards.
    pub mean: f64,
    /// Standard deviation of the noise in the mean.
    pub noise_deviation: f64,
}

/// AdaC-UCB of Azize and Basu (arXiv 2309.00557), algorithm 1, for rewards in 0..=1.
///
/// Every arm is played once. Then, in episodes, the arm with the largest index is played as many
/// times as before. At the end of an episode of n plays its sum is released with N(0, 1/(2ρ)), so
/// the mean has N(0, 1/(2 ρ n²)). The index is `mean + sqrt((1/(2n) + 1/(ρ n²)) β ln t)`.
///
/// Without protection there is no noise and no term for it. That is the baseline for the price of
/// privacy.
///
/// A reward of an arm that is not recommended goes to that arm's buffer and is part of its next
/// release. An episode ends when the buffer of its arm holds as many rewards as were released of
/// it.
///
/// # Privacy
/// ρ-zCDP for each reward, by the claim in the [module](super): a reward enters the buffer of the
/// arm that was played, and a buffer's release depends on its number of rewards only. Sensitivity:
/// a changed reward in 0..=1 moves the sum by at most Δ = 1, so σ² = 1/(2ρ).
///
/// ```
/// use bandana_zcdp::adac_ucb::{AdacUcb, Memory, UcbSettings};
/// use bandana_zcdp::{Protection, RewardRange};
///
/// let settings = UcbSettings {
///     arms: 2,
///     protection: Protection::concentrated(0.5)?,
///     exploration: 1.0,
///     memory: Memory::Forgetting,
/// };
/// let mut ucb = AdacUcb::new(settings)?;
/// assert_eq!(ucb.recommended(), 0);
/// ucb.observe(0, RewardRange::Unit.reward(1.0)?)?;
/// // The episode of one play is over. Nothing goes on before its noise is there.
/// assert!(ucb.is_due());
/// ucb.release(&[-20_000])?;
/// assert_eq!(ucb.recommended(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdacUcb {
    settings: UcbSettings,
    arms: Vec<ArmState>,
    /// The arm of the episode, and the number of rewards in its buffer that ends the episode.
    arm: usize,
    goal: u64,
    rewards: u64,
}

impl AdacUcb {
    /// The initial state.
    ///
    /// # Errors
    /// For fewer than 2 or too many arms, and a β that is not positive and finite.
    pub fn new(settings: UcbSettings) -> Result<Self, ZcdpError> {
        check_arms(settings.arms)?;
        if !(settings.exploration > 0.0 && settings.exploration.is_finite()) {
            return Err(ZcdpError::Parameter {
                name: "the exploration beta",
                value: settings.exploration,
                expected: "a finite number above 0; 1 in the published experiments, more than 3 \
                           for the proof",
            });
        }
        let arms = vec![ArmState::default(); settings.arms];
        Ok(Self { settings, arms, arm: 0, goal: 1, rewards: 0 })
    }

    /// The settings.
    pub fn settings(&self) -> UcbSettings {
        self.settings
    }

    /// The arm to play.
    pub fn recommended(&self) -> usize {
        self.arm
    }

    /// Plays of the recommended arm until a statistic is due.
    pub fn remaining(&self) -> u64 {
        self.goal.saturating_sub(self.arms[self.arm].open)
    }

    /// The noise of a release; none without protection.
    pub fn noise(&self) -> Option<NoiseScale> {
        self.settings.protection.noise(RewardRange::Unit, 1)
    }

    /// Whether a statistic is due for release.
    pub fn is_due(&self) -> bool {
        self.remaining() == 0
    }

    /// Adds a reward of the arm that was played, whether or not it was recommended.
    ///
    /// # Errors
    /// When there is no such arm, a statistic is due, or there are too many rewards.
    pub fn observe(&mut self, arm: usize, reward: LatticeReward) -> Result<(), ZcdpError> {
        self.observe_sum(arm, 1, reward.units())
    }

    /// Adds `count` rewards of an arm at once, at most [`Self::remaining`] of the recommended one,
    /// for simulations.
    ///
    /// # Errors
    /// As [`Self::observe`].
    pub fn observe_sum(&mut self, arm: usize, count: u64, sum: i128) -> Result<(), ZcdpError> {
        check_arm(arm, self.arms.len())?;
        if self.is_due() {
            return Err(ZcdpError::NoiseDue);
        }
        self.rewards = count_more(self.rewards, count)?;
        let state = &mut self.arms[arm];
        state.open += count;
        state.open_sum += sum;
        Ok(())
    }

    /// Releases the due statistic with its noise in lattice steps, and starts the next episode.
    /// Without protection `noise` is empty.
    ///
    /// # Errors
    /// When no statistic is due, or the length of `noise` is wrong.
    pub fn release(&mut self, noise: &[i64]) -> Result<(), ZcdpError> {
        if !self.is_due() {
            return Err(ZcdpError::NothingDue);
        }
        let noise = one_number(noise, self.noise())?;
        let memory = self.settings.memory;
        let state = &mut self.arms[self.arm];
        let (count, sum) = (state.open, state.open_sum + noise);
        state.released += count;
        match memory {
            Memory::Forgetting => {
                (state.counted, state.releases, state.noisy_sum) = (count, 1, sum);
            }
            Memory::Remembering => {
                state.counted += count;
                state.releases += 1;
                state.noisy_sum += sum;
            }
        }
        (state.open, state.open_sum) = (0, 0);
        self.open_episode();
        Ok(())
    }

    /// The due statistic without noise.
    pub(super) fn exact_statistic(&self) -> Vec<i128> {
        vec![self.arms[self.arm].open_sum]
    }

    fn open_episode(&mut self) {
        let index = |arm: &ArmState| self.index(arm);
        let mut best = (0, f64::NEG_INFINITY);
        for (place, arm) in self.arms.iter().enumerate() {
            let index = index(arm);
            if index > best.1 {
                best = (place, index);
            }
        }
        self.arm = best.0;
        self.goal = self.arms[best.0].released.max(1);
    }

    fn index(&self, arm: &ArmState) -> f64 {
        if arm.counted == 0 {
            return f64::INFINITY;
        }
        let count = arm.counted as f64;
        // t is the time of the next play.
        let log = libm::log(self.rewards as f64 + 1.0);
        let noise = self.settings.protection.inverse_rho() * arm.releases as f64 / (count * count);
        let width = libm::sqrt((0.5 / count + noise) * self.settings.exploration * log);
        reward_of(arm.noisy_sum) / count + width
    }

    /// The statistics in use, one for each arm.
    pub fn released(&self) -> Vec<Option<ReleasedMean>> {
        let noise = (0.5 * self.settings.protection.inverse_rho()).sqrt();
        let mean = |arm: &ArmState| {
            let count = arm.counted as f64;
            (arm.counted > 0).then(|| ReleasedMean {
                rewards: arm.counted,
                mean: reward_of(arm.noisy_sum) / count,
                noise_deviation: noise * (arm.releases as f64).sqrt() / count,
            })
        };
        self.arms.iter().map(mean).collect()
    }

    /// Erases the rewards of the open buffers, and keeps their numbers.
    pub(super) fn erase_buffers(&mut self) {
        self.arms.iter_mut().for_each(|arm| arm.open_sum = 0);
    }

    /// Number of rewards so far.
    pub fn rewards(&self) -> u64 {
        self.rewards
    }
}

pub(super) fn check_arms(count: usize) -> Result<(), ZcdpError> {
    if (2..=ARMS_MAX).contains(&count) {
        Ok(())
    } else {
        Err(ZcdpError::Arms { count, max: ARMS_MAX })
    }
}

pub(super) fn check_arm(arm: usize, count: usize) -> Result<(), ZcdpError> {
    if arm < count { Ok(()) } else { Err(ZcdpError::NoSuchArm { arm, last: count - 1 }) }
}

pub(super) fn count_more(rewards: u64, more: u64) -> Result<u64, ZcdpError> {
    let sum = rewards.saturating_add(more);
    if sum <= REWARDS_MAX { Ok(sum) } else { Err(ZcdpError::Full { max: REWARDS_MAX }) }
}

/// The noise of a scalar statistic, which is one number.
pub(super) fn one_number(noise: &[i64], scale: Option<NoiseScale>) -> Result<i128, ZcdpError> {
    match (noise, scale) {
        ([noise], Some(_)) => Ok(i128::from(*noise)),
        ([], None) => Ok(0),
        _ => {
            let expected = usize::from(scale.is_some());
            Err(ZcdpError::NoiseLength { found: noise.len(), expected })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ucb(arms: usize, protection: Protection, memory: Memory) -> AdacUcb {
        AdacUcb::new(UcbSettings { arms, protection, exploration: 1.0, memory }).unwrap()
    }

    fn reward(value: f64) -> LatticeReward {
        RewardRange::Unit.reward(value).unwrap()
    }

    #[test]
    fn an_arm_is_played_as_often_as_before() {
        let mut ucb = ucb(2, Protection::None, Memory::Forgetting);
        let mut played = [0_u64; 2];
        for _ in 0..200 {
            let (arm, length) = (ucb.recommended(), ucb.remaining());
            assert_eq!(length, played[arm].max(1));
            for _ in 0..length {
                assert_eq!(ucb.recommended(), arm);
                ucb.observe(arm, reward(if arm == 1 { 0.9 } else { 0.2 })).unwrap();
            }
            played[arm] += length;
            assert_eq!(ucb.observe(arm, reward(0.0)), Err(ZcdpError::NoiseDue));
            ucb.release(&[]).unwrap();
            if played[1] > 100_000 {
                break;
            }
        }
        assert!(played[1] > 1000 * played[0], "{played:?}");
    }

    #[test]
    fn the_statistic_is_that_of_the_last_episode_with_its_noise() {
        let protection = Protection::concentrated(0.5).unwrap();
        for (memory, mean, deviation) in [
            // Episodes 1 and 1 of arm 0 with rewards 1 and 0, noise of 1/4 and -1/8; σ = 1.
            (Memory::Forgetting, -0.125, 1.0),
            (Memory::Remembering, 1.125 / 2.0, 2.0_f64.sqrt() / 2.0),
        ] {
            let mut ucb = ucb(2, protection, memory);
            ucb.observe(0, reward(1.0)).unwrap();
            assert_eq!(
                ucb.release(&[]).unwrap_err().to_string(),
                "there are 0 numbers of noise; expected 1"
            );
            ucb.release(&[1 << 14]).unwrap();
            assert_eq!(ucb.release(&[0]), Err(ZcdpError::NothingDue));
            ucb.observe(1, reward(0.0)).unwrap();
            ucb.release(&[0]).unwrap();
            assert_eq!(ucb.recommended(), 0);
            ucb.observe(0, reward(0.0)).unwrap();
            ucb.release(&[-(1 << 13)]).unwrap();
            let statistic = ucb.released()[0].unwrap();
            assert!((statistic.mean - mean).abs() < 1e-12, "{statistic:?}");
            assert!((statistic.noise_deviation - deviation).abs() < 1e-12, "{statistic:?}");
        }
    }

    #[test]
    fn whoever_plays_another_arm_is_heard_when_that_arm_is_released() {
        let mut ucb = ucb(2, Protection::concentrated(1.0).unwrap(), Memory::Forgetting);
        for _ in 0..5 {
            ucb.observe(1, reward(1.0)).unwrap();
            assert!(!ucb.is_due() && ucb.recommended() == 0);
        }
        ucb.observe(0, reward(0.0)).unwrap();
        ucb.release(&[0]).unwrap();
        // Arm 1 already has the rewards that its first episode needs.
        assert_eq!((ucb.recommended(), ucb.is_due()), (1, true));
        ucb.release(&[0]).unwrap();
        assert_eq!(ucb.released()[1].unwrap().rewards, 5);
        assert!(ucb.observe(2, reward(0.0)).is_err());
    }
}
