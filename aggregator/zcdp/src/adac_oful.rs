//! AdaC-OFUL: optimism for linear rewards with contexts.

use nalgebra::{DMatrix, DVector};
use serde::{Deserialize, Serialize};

use super::adac_ucb::count_more;
use super::design::inverse;
use super::error::ZcdpError;
use super::gaussian_tail::square_norm;
use super::lattice::{
    Action, LatticeReward, NoiseScale, Protection, RewardRange, UNITS, check_dimension,
};

/// Settings of an AdaC-OFUL.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfulSettings {
    /// Coordinates of an action, 1 to 64.
    pub dimension: usize,
    /// The range of rewards.
    pub range: RewardRange,
    /// The protection of rewards.
    pub protection: Protection,
    /// C: the estimate is renewed when `det V` has grown by a factor of 1 + C.
    pub growth: f64,
    /// λ: `V = λ I + Σ a aᵀ`.
    pub regularisation: f64,
    /// The probability δ that any interval fails, between 0 and 1.
    pub failure: f64,
    /// Bound on the norm of the true parameter.
    pub parameter_norm: f64,
}

impl OfulSettings {
    /// The settings of the published experiments: C = 1, λ = .1, δ = .001, |θ*| <= 1, rewards in
    /// -1..=1.
    pub fn published(dimension: usize, protection: Protection) -> Self {
        Self {
            dimension,
            range: RewardRange::Symmetric,
            protection,
            growth: 1.0,
            regularisation: 0.1,
            failure: 0.001,
            parameter_norm: 1.0,
        }
    }

    fn check(&self) -> Result<(), ZcdpError> {
        check_dimension(self.dimension)?;
        let positive = "a finite number above 0";
        for (name, value) in [
            ("the growth C", self.growth),
            ("the regularisation lambda", self.regularisation),
            ("the bound on the parameter's norm", self.parameter_norm),
        ] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(ZcdpError::Parameter { name, value, expected: positive });
            }
        }
        if self.failure > 0.0 && self.failure < 1.0 {
            return Ok(());
        }
        Err(ZcdpError::Parameter {
            name: "the failure probability delta",
            value: self.failure,
            expected: "a number between 0 and 1, like 0.001",
        })
    }
}

/// The persistent state, in integers, so that it is identical after a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct OfulState {
    settings: OfulSettings,
    /// `Σ a aᵀ`, row-major, currently and at the last renewal.
    gram: Vec<i128>,
    gram_then: Vec<i128>,
    /// The noisy sum of all finished episodes, and their number.
    released: Vec<i128>,
    episodes: u64,
    /// `Σ a r` of this episode: the buffer, of which nothing has been released.
    open: Vec<i128>,
    rewards: u64,
    is_due: bool,
}

impl OfulState {
    /// Adds the reward of an action to the buffer, or subtracts it again.
    fn add(&mut self, action: &Action, reward: LatticeReward, sign: i128) {
        let d = action.dimension();
        for (row, x) in action.units().iter().enumerate() {
            self.open[row] += sign * product(*x, reward);
            for (column, y) in action.units().iter().enumerate() {
                self.gram[row * d + column] += sign * i128::from(*x) * i128::from(*y);
            }
        }
    }
}

/// Derived quantities for the choice of an action, as of the last renewal.
#[derive(Clone, Debug)]
struct Outlook {
    estimate: Vec<f64>,
    /// V⁻¹, row-major.
    inverse: Vec<f64>,
    width: f64,
    log_determinant: f64,
}

/// AdaC-OFUL of Azize and Basu (arXiv 2309.00557), algorithm 3: linear rewards, with public
/// contexts that may change at every step.
///
/// When `det V` exceeds 1 + C times `det V` at the last renewal, the episode's `Σ a r` is released
/// with noise Y ~ N(0, (Δ²/(2ρ)) I), where Δ = 2 for rewards in -1..=1. The estimate is `θ = V⁻¹ (Σ
/// over episodes of (Σ a r + Y))`. The action with the largest `<θ, a> + w |a|` is chosen, with the
/// norm in V⁻¹ and
///
/// `w = σ sqrt(2 ln(2/δ) + ln(det V/λ^d)) + sqrt(λ) |θ*| + sqrt(m Δ²/(2ρ) f(d, δ_m)/λ_min(V))`
///
/// after m episodes, σ = Δ/2. The first two terms are those of Abbasi-Yadkori, Pál and Szepesvári
/// (2011), theorem 2, with δ/2. The last one bounds the m noises together with `δ_m = δ/(2 m (m +
/// 1))`, which sum to δ/2. (A printed form with `γ/sqrt(t)` in its place does not hold at small t.)
/// V and w are those of the last renewal.
///
/// # Privacy
/// ρ-zCDP for each reward, by the claim in the [module](super): an episode is one buffer, and its
/// end follows from the actions played alone. Sensitivity: a reward r adds to each coordinate the
/// integer next to `a_i r`, in steps. This integer rises or falls with r. At the ends of the range
/// it is exactly `a_i` times r, since `a_i` is on the lattice. So a changed reward moves a
/// coordinate by at most the range's length times `|a_i|`, and the vector by at most the length
/// times |a| <= 1, rounding included. So Δ is the length of the range.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "OfulState", into = "OfulState")]
pub struct AdacOful {
    state: OfulState,
    outlook: Outlook,
}

impl AdacOful {
    /// The initial state.
    ///
    /// # Errors
    /// For settings out of range.
    pub fn new(settings: OfulSettings) -> Result<Self, ZcdpError> {
        settings.check()?;
        let d = settings.dimension;
        let gram = vec![0; d * d];
        OfulState {
            settings,
            gram_then: gram.clone(),
            gram,
            released: vec![0; d],
            episodes: 0,
            open: vec![0; d],
            rewards: 0,
            is_due: false,
        }
        .try_into()
    }

    /// The settings.
    pub fn settings(&self) -> OfulSettings {
        self.state.settings
    }

    /// The index of the best of these actions; of ties, the first.
    ///
    /// # Errors
    /// Without an action, or when one has another dimension.
    pub fn choose(&self, actions: &[Action]) -> Result<usize, ZcdpError> {
        let mut best = (None, f64::NEG_INFINITY);
        for (at, action) in actions.iter().enumerate() {
            self.check(action, at)?;
            let index = self.index(action);
            if index > best.1 {
                best = (Some(at), index);
            }
        }
        let none = ZcdpError::Arms { count: actions.len(), max: super::adac_ucb::ARMS_MAX };
        best.0.ok_or(none)
    }

    pub(super) fn check(&self, action: &Action, at: usize) -> Result<(), ZcdpError> {
        let (found, expected) = (action.dimension(), self.state.settings.dimension);
        if found == expected {
            return Ok(());
        }
        Err(ZcdpError::Dimension { action: at, found, expected })
    }

    fn index(&self, action: &Action) -> f64 {
        let Outlook { estimate, inverse, width, .. } = &self.outlook;
        let (mut mean, mut square) = (0.0, 0.0);
        let rows = inverse.chunks_exact(estimate.len());
        for ((x, theta), row) in action.coordinates().zip(estimate).zip(rows) {
            mean += x * theta;
            square += x * row.iter().zip(action.coordinates()).map(|(v, y)| v * y).sum::<f64>();
        }
        mean + width * square.max(0.0).sqrt()
    }

    /// The noise of a release; none without protection.
    pub fn noise(&self) -> Option<NoiseScale> {
        let OfulSettings { protection, range, dimension, .. } = self.state.settings;
        protection.noise(range, dimension)
    }

    /// Whether a statistic is due for release.
    pub fn is_due(&self) -> bool {
        self.state.is_due
    }

    /// Adds the reward of the action that was played, whether or not it was recommended.
    ///
    /// # Errors
    /// For another dimension, when a statistic is due, or there are too many rewards.
    pub fn observe(&mut self, action: &Action, reward: LatticeReward) -> Result<(), ZcdpError> {
        self.check(action, 0)?;
        let state = &mut self.state;
        if state.is_due {
            return Err(ZcdpError::NoiseDue);
        }
        let rewards = count_more(state.rewards, 1)?;
        state.add(action, reward, 1);
        let log = match log_determinant(&state.gram, state.settings) {
            Ok(log) => log,
            Err(error) => {
                // A refused reward leaves the state unchanged.
                state.add(action, reward, -1);
                return Err(error);
            }
        };
        state.rewards = rewards;
        let growth = state.settings.growth.ln_1p();
        state.is_due = log > self.outlook.log_determinant + growth;
        Ok(())
    }

    /// Releases the episode's statistic with its noise in lattice steps, and renews the estimate.
    ///
    /// # Errors
    /// When no statistic is due, or the lengths of `noise` and of the statistic differ.
    pub fn release(&mut self, noise: &[i64]) -> Result<(), ZcdpError> {
        if !self.state.is_due {
            return Err(ZcdpError::NothingDue);
        }
        let expected = self.noise().map_or(0, |scale| scale.draws);
        if noise.len() != expected {
            return Err(ZcdpError::NoiseLength { found: noise.len(), expected });
        }
        let mut state = self.state.clone();
        let noise = noise.iter().map(|noise| i128::from(*noise)).chain(std::iter::repeat(0));
        for ((sum, open), noise) in state.released.iter_mut().zip(&mut state.open).zip(noise) {
            *sum += std::mem::take(open) + noise;
        }
        state.episodes += 1;
        state.is_due = false;
        state.gram_then.clone_from(&state.gram);
        *self = state.try_into()?;
        Ok(())
    }

    /// The due statistic without noise.
    pub(super) fn exact_statistic(&self) -> Vec<i128> {
        self.state.open.clone()
    }

    /// The estimate of θ, from released statistics only.
    pub fn estimate(&self) -> &[f64] {
        &self.outlook.estimate
    }

    /// Number of releases so far.
    pub fn episodes(&self) -> u64 {
        self.state.episodes
    }

    /// Erases the rewards of the open buffer. Actions are public and remain.
    pub(super) fn erase_buffers(&mut self) {
        self.state.open.fill(0);
    }

    /// Number of rewards so far.
    pub fn rewards(&self) -> u64 {
        self.state.rewards
    }
}

/// The step of `Σ a aᵀ`.
const GRAM_UNIT: f64 = (UNITS * UNITS) as f64;

/// The integer nearest to a coordinate times a reward, in steps; halves away from 0.
fn product(coordinate: i64, reward: LatticeReward) -> i128 {
    let exact = i128::from(coordinate) * reward.units();
    (exact + exact.signum() * UNITS / 2) / UNITS
}

fn moments(gram: &[i128], settings: OfulSettings) -> DMatrix<f64> {
    let d = settings.dimension;
    let sum = DMatrix::from_iterator(d, d, gram.iter().map(|x| *x as f64 / GRAM_UNIT));
    sum + DMatrix::identity(d, d) * settings.regularisation
}

/// `ln det V`, by in-place elimination, because it is needed after every reward.
fn log_determinant(gram: &[i128], settings: OfulSettings) -> Result<f64, ZcdpError> {
    let d = settings.dimension;
    let mut v: Vec<f64> = gram.iter().map(|x| *x as f64 / GRAM_UNIT).collect();
    (0..d).for_each(|at| v[at * d + at] += settings.regularisation);
    let mut determinant = 1.0_f64;
    let mut log = 0.0;
    for pivot in 0..d {
        let head = v[pivot * d + pivot];
        if head.is_nan() || head <= 0.0 {
            return Err(ZcdpError::Singular);
        }
        determinant *= head;
        // Logarithms are expensive, so several pivots share one.
        if !(1e-100..1e100).contains(&determinant) {
            log += libm::log(determinant);
            determinant = 1.0;
        }
        for row in pivot + 1..d {
            let factor = v[row * d + pivot] / head;
            for column in pivot + 1..d {
                v[row * d + column] -= factor * v[pivot * d + column];
            }
        }
    }
    Ok(log + libm::log(determinant))
}

impl TryFrom<OfulState> for AdacOful {
    type Error = ZcdpError;

    fn try_from(state: OfulState) -> Result<Self, ZcdpError> {
        let settings = state.settings;
        settings.check()?;
        let d = settings.dimension;
        let lengths = [state.gram.len(), state.gram_then.len(), state.released.len() * d];
        if lengths != [d * d; 3] || state.open.len() != d {
            return Err(ZcdpError::Dimension { action: 0, found: lengths[0], expected: d });
        }
        let moments = moments(&state.gram_then, settings);
        let inverse = inverse(&moments)?;
        let released = state.released.iter().map(|x| *x as f64 / UNITS as f64);
        let estimate = &inverse * DVector::from_iterator(d, released);
        let log_determinant = log_determinant(&state.gram_then, settings)?;
        let least = moments.symmetric_eigenvalues().min();
        let outlook = Outlook {
            estimate: estimate.iter().copied().collect(),
            inverse: inverse.iter().copied().collect(),
            width: width(settings, state.episodes as f64, log_determinant, least),
            log_determinant,
        };
        Ok(Self { state, outlook })
    }
}

impl From<AdacOful> for OfulState {
    fn from(oful: AdacOful) -> Self {
        oful.state
    }
}

/// `least` is the least eigenvalue of V.
fn width(settings: OfulSettings, episodes: f64, log_determinant: f64, least: f64) -> f64 {
    let lambda = settings.regularisation;
    let growth = (log_determinant - settings.dimension as f64 * lambda.ln()).max(0.0);
    let sampling = (2.0 * libm::log(2.0 / settings.failure) + growth).sqrt();
    let bare = settings.range.deviation() * sampling + lambda.sqrt() * settings.parameter_norm;
    if episodes == 0.0 {
        return bare;
    }
    let failure = settings.failure / (2.0 * episodes * (episodes + 1.0));
    let variance = 0.5 * settings.range.length().powi(2) * settings.protection.inverse_rho();
    let noise = episodes * variance * square_norm(settings.dimension, failure);
    bare + (noise / least).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_mechanisms::noise::Ratio;

    fn action(x: f64, y: f64) -> Action {
        Action::new(&[x, y], 2, 0).unwrap()
    }

    #[test]
    fn the_estimate_is_least_squares_of_what_was_released() {
        let settings = OfulSettings::published(2, Protection::concentrated(0.5).unwrap());
        let mut oful = AdacOful::new(settings).unwrap();
        let reward = RewardRange::Symmetric.reward(0.5).unwrap();
        // det V is .01 at first: one action more than doubles it.
        oful.observe(&action(1.0, 0.0), reward).unwrap();
        assert!(oful.is_due());
        assert_eq!(oful.observe(&action(1.0, 0.0), reward), Err(ZcdpError::NoiseDue));
        // σ² = Δ²/(2ρ) = 4.
        let scale = oful.noise().unwrap();
        assert_eq!(scale.variance, Ratio::whole(4 << 32).unwrap());
        assert!(oful.release(&[1]).is_err());
        oful.release(&[1 << 14, -(1 << 16)]).unwrap();
        // V = diag(1.1, .1); Σ a r + Y = (.5 + .25, -1).
        let estimate = oful.estimate();
        assert!((estimate[0] - 0.75 / 1.1).abs() < 1e-12, "{estimate:?}");
        assert!((estimate[1] + 10.0).abs() < 1e-12, "{estimate:?}");
    }

    #[test]
    fn it_prefers_what_pays_and_what_is_unknown() {
        let mut oful = AdacOful::new(OfulSettings::published(2, Protection::None)).unwrap();
        let choices = [action(1.0, 0.0), action(0.0, 1.0)];
        let pays = |at: usize| RewardRange::Symmetric.reward(if at == 0 { 0.9 } else { 0.1 });
        let mut counts = [0; 2];
        for _ in 0..3000 {
            let at = oful.choose(&choices).unwrap();
            counts[at] += 1;
            oful.observe(&choices[at], pays(at).unwrap()).unwrap();
            if oful.is_due() {
                oful.release(&[]).unwrap();
            }
        }
        assert!(counts[1] >= 1 && counts[0] > 2500, "{counts:?}");
        assert!(oful.choose(&[]).is_err());
        assert!(oful.choose(&[Action::new(&[1.0], 1, 0).unwrap()]).is_err());
    }

    #[test]
    fn bad_settings_are_refused() {
        let good = OfulSettings::published(2, Protection::None);
        for bad in [
            OfulSettings { dimension: 0, ..good },
            OfulSettings { dimension: 65, ..good },
            OfulSettings { growth: 0.0, ..good },
            OfulSettings { regularisation: f64::NAN, ..good },
            OfulSettings { failure: 1.0, ..good },
            OfulSettings { parameter_norm: f64::INFINITY, ..good },
        ] {
            assert!(matches!(AdacOful::new(bad), Err(ZcdpError::Parameter { .. })), "{bad:?}");
        }
    }
}
