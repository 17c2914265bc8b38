//! AdaC-GOPE: phases of optimal designs with elimination, for fixed actions.

use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};

use super::adac_ucb::{ARMS_MAX, check_arm, count_more};
use super::design::{Design, within_span};
use super::error::ZcdpError;
use super::estimator::{Estimator, Placement};
use super::gaussian_tail::square_norm;
use super::lattice::{Action, LatticeReward, NoiseScale, Protection, RewardRange};

/// The length of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PhaseLength {
    /// `c = (8 g/β²) ln(4/δ) + (2 F/β) sqrt((2/ρ) f)`, as published.
    Published,
    /// The least c with the same guarantee, derived in this project: the root of `sqrt(2 g L/c) + F
    /// P/c = β`, that is `c = ((sqrt(2 g L) + sqrt(2 g L + 4 β F P))/(2β))²` with L = ln(4/δ) and P
    /// = sqrt(2 f/ρ). Phases are 1.7 to 4 times shorter.
    Exact,
}

/// Settings of an AdaC-GOPE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GopeSettings {
    /// The actions, which are public. Their mean rewards are `<θ, a>`.
    pub actions: Vec<Action>,
    /// The range of rewards.
    pub range: RewardRange,
    /// The protection of rewards.
    pub protection: Protection,
    /// The probability δ that the best action is eliminated, between 0 and 1.
    pub failure: f64,
    /// The length of phases.
    pub length: PhaseLength,
    /// The stage at which noise is added.
    pub placement: Placement,
}

/// A phase of plays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Phase {
    /// From 1.
    number: u32,
    /// Required number of plays of each action.
    goals: Vec<u64>,
    counts: Vec<u64>,
    /// The buffer: reward sums of which nothing has been released.
    sums: Vec<i128>,
}

impl Phase {
    /// The phase restarted from its beginning.
    fn again(&self) -> Self {
        let count = self.goals.len();
        Self { counts: vec![0; count], sums: vec![0; count], ..self.clone() }
    }
}

/// AdaC-GOPE of Azize and Basu (arXiv 2309.00557), algorithm 2, for K fixed actions.
///
/// In phase l, with precision β = 2^-l and `δ_l = δ/(K l (l + 1))`, the actions left are played
/// `ceil(c π(a))` times, with π their G-optimal design. Then θ is estimated with noise, and an
/// action a is kept when no other action b has `<θ, b - a> > 2β`. With probability 1 - δ the best
/// action stays, and those left after phase l are within 4β of it. Sampling adds at most `sqrt(2 g
/// L/c)` to an error, and noise at most `F sqrt(2 f/ρ)/c`. Here F follows from the [`Placement`],
/// and is g for the published one; f bounds the square of the noise's norm. All lengths are for
/// rewards in -1..=1. For 0..=1 both terms are half as large, so β doubles in them.
///
/// When the actions left don't span the space, design and estimate are computed within their span.
///
/// # Numerical failures
/// A phase is planned only if its estimate will be computable. If the actions left are too nearly
/// dependent for that, none is eliminated, and the next phase is for the same actions. If the plays
/// admit no estimate, the phase is repeated. Both depend on counts, actions and released means
/// only, so they cost no privacy, and no release fails.
///
/// # Users who play another arm
/// A reward counts if its action is in the phase's plan, whether or not it is recommended at the
/// moment. Other rewards are ignored. A phase ends when each action of the plan has its required
/// plays. So V is never singular, and additional plays only shrink the norms.
///
/// # Privacy
/// ρ-zCDP for each reward, by the claim in the [module](super): a phase is one buffer, which
/// ends by counts; `Estimator` derives the sensitivity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdacGope {
    settings: GopeSettings,
    active: Vec<bool>,
    phase: Phase,
    /// The last released statistic, and the means of all actions computed from it.
    statistic: Vec<i128>,
    means: Vec<Option<f64>>,
    rewards: u64,
}

impl AdacGope {
    /// The initial state.
    ///
    /// # Errors
    /// For fewer than 2 or too many actions, actions that don't span their space, and a δ that
    /// is not between 0 and 1.
    pub fn new(settings: GopeSettings) -> Result<Self, ZcdpError> {
        let count = settings.actions.len();
        if !(2..=ARMS_MAX).contains(&count) {
            return Err(ZcdpError::Arms { count, max: ARMS_MAX });
        }
        if !(settings.failure > 0.0 && settings.failure < 1.0) {
            return Err(ZcdpError::Parameter {
                name: "the failure probability delta",
                value: settings.failure,
                expected: "a number between 0 and 1, like 0.001",
            });
        }
        let dimension = settings.actions[0].dimension();
        for (at, action) in settings.actions.iter().enumerate() {
            if action.dimension() != dimension {
                let found = action.dimension();
                return Err(ZcdpError::Dimension { action: at, found, expected: dimension });
            }
        }
        let active = vec![true; count];
        let rank = within_span(&matrix(&settings.actions, &active))?.nrows();
        if rank < dimension {
            return Err(ZcdpError::Dependent { rank, dimension });
        }
        let phase = plan(&settings, &active, 1)?;
        let means = vec![None; count];
        Ok(Self { settings, active, phase, statistic: Vec::new(), means, rewards: 0 })
    }

    /// The settings.
    pub fn settings(&self) -> &GopeSettings {
        &self.settings
    }

    /// The action to play.
    pub fn recommended(&self) -> usize {
        self.wanting().unwrap_or(0)
    }

    /// The first action with fewer plays than required.
    fn wanting(&self) -> Option<usize> {
        let mut plan = self.phase.goals.iter().zip(&self.phase.counts);
        plan.position(|(goal, count)| count < goal)
    }

    /// Plays of the recommended action until another one is recommended or a statistic is due.
    pub fn remaining(&self) -> u64 {
        self.wanting().map_or(0, |at| self.phase.goals[at] - self.phase.counts[at])
    }

    /// The actions still in play.
    pub fn active(&self) -> &[bool] {
        &self.active
    }

    /// The phase, from 1.
    pub fn phase(&self) -> u32 {
        self.phase.number
    }

    /// Total number of plays of the phase; `u64::MAX` when one action is left.
    pub fn phase_length(&self) -> u64 {
        self.phase.goals.iter().fold(0, |sum, goal| sum.saturating_add(*goal))
    }

    /// The noise of the next release; none without protection.
    pub fn noise(&self) -> Option<NoiseScale> {
        let GopeSettings { protection, range, .. } = self.settings;
        let draws = match self.settings.placement {
            Placement::RewardSums => self.planned().len(),
            Placement::Shaped | Placement::Output => {
                let within = within_span(&matrix(&self.settings.actions, &self.active));
                within.map_or(0, |within| within.nrows())
            }
        };
        protection.noise(range, draws)
    }

    /// Whether a statistic is due for release.
    pub fn is_due(&self) -> bool {
        self.wanting().is_none()
    }

    /// Adds a reward of the action that was played.
    ///
    /// # Errors
    /// When there is no such action, a statistic is due, or there are too many rewards.
    pub fn observe(&mut self, action: usize, reward: LatticeReward) -> Result<(), ZcdpError> {
        self.observe_sum(action, 1, reward.units())
    }

    /// Adds `n` rewards of an action at once, for simulations.
    ///
    /// # Errors
    /// As [`Self::observe`].
    pub fn observe_sum(&mut self, action: usize, n: u64, sum: i128) -> Result<(), ZcdpError> {
        check_arm(action, self.active.len())?;
        if self.is_due() {
            return Err(ZcdpError::NoiseDue);
        }
        self.rewards = count_more(self.rewards, n)?;
        if self.phase.goals[action] > 0 {
            self.phase.counts[action] += n;
            self.phase.sums[action] += sum;
        }
        Ok(())
    }

    /// Releases the due statistic with its noise, eliminates actions, and plans the next phase.
    ///
    /// # Errors
    /// When no statistic is due, or the length of `noise` is wrong; nothing is released then.
    pub fn release(&mut self, noise: &[i64]) -> Result<(), ZcdpError> {
        if !self.is_due() {
            return Err(ZcdpError::NothingDue);
        }
        let expected = self.noise().map_or(0, |scale| scale.draws);
        if noise.len() != expected {
            return Err(ZcdpError::NoiseLength { found: noise.len(), expected });
        }
        let Ok((within, estimator)) = self.estimator() else {
            self.phase = self.phase.again();
            return Ok(());
        };
        debug_assert!(noise.is_empty() || estimator.draws() == noise.len(), "one number each");
        let statistic = estimator.statistic(&self.sums(), noise);
        let means = within.transpose() * estimator.estimate(&statistic);
        let in_play = places(&self.active);
        let best = means.max();
        let mut active = vec![false; self.active.len()];
        let mut shown = vec![None; self.active.len()];
        for (mean, at) in means.iter().zip(&in_play) {
            active[*at] = best - mean <= 2.0 * precision(self.phase.number);
            shown[*at] = Some(*mean);
        }
        let next = self.phase.number + 1;
        self.phase = if let Ok(phase) = plan(&self.settings, &active, next) {
            self.active = active;
            phase
        } else {
            let same = plan(&self.settings, &self.active, next);
            same.unwrap_or_else(|_| self.phase.again())
        };
        (self.statistic, self.means) = (statistic, shown);
        Ok(())
    }

    /// The due statistic without noise; empty when it can't be computed.
    pub(super) fn exact_statistic(&self) -> Vec<i128> {
        let exact = self.estimator().map(|(_, estimator)| estimator.statistic(&self.sums(), &[]));
        exact.unwrap_or_default()
    }

    /// The actions in play within their span, and the estimator for the plays of the phase.
    fn estimator(&self) -> Result<(DMatrix<f64>, Estimator), ZcdpError> {
        let GopeSettings { actions, placement, .. } = &self.settings;
        let within = within_span(&matrix(actions, &self.active))?;
        let planned = self.planned();
        let counts: Vec<u64> = planned.iter().map(|at| self.phase.counts[*at]).collect();
        let played = columns(&within, &places(&self.active), &planned);
        let estimator = Estimator::new(*placement, &played, &counts)?;
        Ok((within, estimator))
    }

    fn sums(&self) -> Vec<i128> {
        self.planned().iter().map(|at| self.phase.sums[*at]).collect()
    }

    fn planned(&self) -> Vec<usize> {
        (0..self.active.len()).filter(|at| self.phase.goals[*at] > 0).collect()
    }

    /// The mean of each action by the last statistic; none before the first one, and for those
    /// that were eliminated earlier.
    pub fn released(&self) -> &[Option<f64>] {
        &self.means
    }

    /// Erases the rewards of the open buffer, and keeps their number.
    pub(super) fn erase_buffers(&mut self) {
        self.phase.sums.fill(0);
    }

    /// Number of rewards so far.
    pub fn rewards(&self) -> u64 {
        self.rewards
    }
}

fn precision(phase: u32) -> f64 {
    0.5_f64.powi(i32::try_from(phase).unwrap_or(i32::MAX))
}

fn places(active: &[bool]) -> Vec<usize> {
    (0..active.len()).filter(|at| active[*at]).collect()
}

fn matrix(actions: &[Action], active: &[bool]) -> DMatrix<f64> {
    let chosen = || actions.iter().zip(active).filter(|(_, is_active)| **is_active);
    let rows = actions.first().map_or(0, Action::dimension);
    let numbers = chosen().flat_map(|(action, _)| action.coordinates());
    DMatrix::from_iterator(rows, chosen().count(), numbers)
}

/// The columns of planned actions, among the columns of actions in play.
fn columns(within: &DMatrix<f64>, in_play: &[usize], planned: &[usize]) -> DMatrix<f64> {
    let chosen: Vec<usize> =
        (0..in_play.len()).filter(|at| planned.contains(&in_play[*at])).collect();
    within.select_columns(&chosen)
}

/// Plans a phase.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float above all integers becomes the largest"
)]
fn plan(settings: &GopeSettings, active: &[bool], number: u32) -> Result<Phase, ZcdpError> {
    let count = active.len();
    let mut phase =
        Phase { number, goals: vec![0; count], counts: vec![0; count], sums: vec![0; count] };
    let in_play = places(active);
    if let [last] = in_play[..] {
        phase.goals[last] = u64::MAX;
        return Ok(phase);
    }
    let within = within_span(&matrix(&settings.actions, active))?;
    let design = Design::optimal(&within)?;
    let level = f64::from(number);
    let failure = settings.failure / (count as f64 * level * (level + 1.0));
    let (factor, size) = settings.placement.factor(&within, &design.shares)?;
    let noise = 2.0 * settings.protection.inverse_rho() * square_norm(size, failure);
    let precision = precision(number) / settings.range.deviation();
    let plays = length(settings.length, design.worst, precision, failure, factor * noise.sqrt());
    for (at, share) in in_play.iter().zip(&design.shares) {
        phase.goals[*at] = (plays * share).ceil() as u64;
    }
    let planned: Vec<usize> = (0..count).filter(|at| phase.goals[*at] > 0).collect();
    let goals: Vec<u64> = planned.iter().map(|at| phase.goals[*at]).collect();
    Estimator::new(settings.placement, &columns(&within, &in_play, &planned), &goals)?;
    Ok(phase)
}

/// The c of a phase's length; `noise` is F P.
fn length(rule: PhaseLength, worst: f64, precision: f64, failure: f64, noise: f64) -> f64 {
    let log = libm::log(4.0 / failure);
    match rule {
        PhaseLength::Published => {
            8.0 * worst * log / (precision * precision) + 2.0 * noise / precision
        }
        PhaseLength::Exact => {
            let sampling = 2.0 * worst * log;
            let root = sampling.sqrt() + (sampling + 4.0 * precision * noise).sqrt();
            (root / (2.0 * precision)).powi(2)
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;

    fn settings(protection: Protection, length: PhaseLength) -> GopeSettings {
        let actions = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-0.8, 0.6]].map(|v| v.to_vec());
        GopeSettings {
            actions: Action::list(&actions).unwrap(),
            range: RewardRange::Symmetric,
            protection,
            failure: 0.001,
            length,
            placement: Placement::Shaped,
        }
    }

    /// Plays until one action is left; every reward is its action's mean.
    fn play_out(mut gope: AdacGope, theta: [f64; 2], noise: i64) -> AdacGope {
        for _ in 0..20 {
            while !gope.is_due() && gope.remaining() < 1 << 40 {
                let (action, plays) = (gope.recommended(), gope.remaining());
                let vector = gope.settings.actions[action].coordinates();
                let mean: f64 = vector.zip(theta).map(|(a, b)| a * b).sum();
                let units = (mean * f64::from(1 << 16)) as i128 * i128::from(plays);
                gope.observe_sum(action, plays, units).unwrap();
            }
            if !gope.is_due() {
                break;
            }
            let noise = vec![noise; gope.noise().map_or(0, |scale| scale.draws)];
            gope.release(&noise).unwrap();
        }
        gope
    }

    #[test]
    fn the_best_action_stays_and_the_others_go() {
        for length in [PhaseLength::Published, PhaseLength::Exact] {
            for (protection, noise) in [
                (Protection::None, 0),
                // One standard deviation in each coordinate.
                (Protection::concentrated(0.1).unwrap(), (1 << 17) * 22 / 10),
            ] {
                let gope = AdacGope::new(settings(protection, length)).unwrap();
                let gope = play_out(gope, [0.3, 0.7], noise);
                assert_eq!(gope.active(), [false, false, true, false]);
            }
        }
    }

    #[test]
    fn exact_phases_are_shorter() {
        let plays = |length, rho| {
            let protection = Protection::concentrated(rho).unwrap();
            AdacGope::new(settings(protection, length)).unwrap().phase_length() as f64
        };
        for rho in [0.001, 0.01, 0.1, 1.0] {
            let ratio = plays(PhaseLength::Published, rho) / plays(PhaseLength::Exact, rho);
            assert!((1.7..4.0).contains(&ratio), "{rho} {ratio}");
        }
        // d = 2, β = 1/2, δ_1 = .001/8: 8 · 2 · 4 ln 32000 without noise.
        let bare = AdacGope::new(settings(Protection::None, PhaseLength::Published)).unwrap();
        let expected = 64.0 * 32_000.0_f64.ln();
        let length = bare.phase_length() as f64;
        assert!((1.0..1.02).contains(&(length / expected)), "{length} {expected}");
    }

    #[test]
    fn a_release_that_arithmetic_can_t_make_plays_the_phase_again() {
        let protection = Protection::concentrated(1.0).unwrap();
        let mut gope = AdacGope::new(settings(protection, PhaseLength::Exact)).unwrap();
        // A plan of one action, which no valid state has in two dimensions.
        (gope.phase.goals, gope.phase.counts) = (vec![1, 0, 0, 0], vec![1, 0, 0, 0]);
        assert!(gope.estimator().is_err() && gope.exact_statistic().is_empty());
        assert!(gope.is_due());
        let noise = vec![5; gope.noise().map_or(0, |scale| scale.draws)];
        gope.release(&noise).unwrap();
        assert!(!gope.is_due() && gope.active().iter().all(|active| *active));
        assert_eq!(gope.phase(), 1);
    }

    #[test]
    fn plays_out_of_plan_are_not_used_and_bad_settings_refused() {
        let protection = Protection::concentrated(1.0).unwrap();
        let mut gope = AdacGope::new(settings(protection, PhaseLength::Exact)).unwrap();
        let one = RewardRange::Symmetric.reward(1.0).unwrap();
        let unplanned = (0..4).find(|at| gope.phase.goals[*at] == 0);
        if let Some(action) = unplanned {
            let before = gope.phase.clone();
            gope.observe(action, one).unwrap();
            assert_eq!(gope.phase, before);
        }
        assert!(gope.observe(4, one).is_err());
        assert_eq!(gope.release(&[0, 0]), Err(ZcdpError::NothingDue));
        let flat = [[0.5, 0.5], [0.25, 0.25]].map(|v| v.to_vec());
        let actions = Action::list(&flat).unwrap();
        let flat = GopeSettings { actions, ..settings(protection, PhaseLength::Exact) };
        let refused = AdacGope::new(flat).unwrap_err();
        assert_eq!(refused, ZcdpError::Dependent { rank: 1, dimension: 2 });
    }
}
