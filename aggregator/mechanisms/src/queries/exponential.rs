//! The exponential mechanism (McSherry and Talwar, "Mechanism design via differential
//! privacy", 2007), sampled exactly.

use rand::Rng;

use super::QueryError;
use super::inverse::{Candidate, draw};
use super::price::{LossShape, PureLoss, check_beta};

/// Initial number of binary digits of the weights; further digits are computed on demand.
const PRECISION: u64 = 128;

/// Chooses candidate r with probability proportional to w(r) exp(ε u(r)/(2 Δ)), for integer
/// utilities u and a base measure w.
///
/// Sampling is by inversion, in integers: weights are known within bounds, which are refined until
/// they decide. No float is involved, so the probabilities are exactly those of the definition. The
/// time hardly depends on utilities and weights, so callers can't make it long.
///
/// ```
/// use bandana_mechanisms::queries::{exponential::ExponentialMechanism, price::PureLoss};
/// use bandana_mechanisms::noise::secure_generator;
/// // Which colour is the most common? A changed row changes each count by at most 1.
/// let mechanism = ExponentialMechanism::new(1, PureLoss::new(0.5)?)?;
/// let chosen = mechanism.choose(&[900, 100, 120], None, &mut secure_generator()?)?;
/// assert_eq!(chosen, 0);
/// assert_eq!(mechanism.shortfall(3, 0.05)?, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// ε-differentially private (McSherry and Talwar 2007, theorem 6; Dwork and Roth 2014, theorem
/// 3.10): a neighbour changes each weight by a factor of at most exp(ε/2), and so their sum.
/// The base measure must not depend on the data.
///
/// The log of the ratio of two probabilities is ε/(2 Δ) times the difference of two utilities, which
/// a neighbour changes by at most 2 Δ, and so the mechanism has bounded range ε
/// ([`LossShape::BoundedRange`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExponentialMechanism {
    sensitivity: u64,
    loss: PureLoss,
}

impl ExponentialMechanism {
    /// The shape of its loss.
    pub const LOSS: LossShape = LossShape::BoundedRange;

    /// The mechanism for utilities that one person changes by at most `sensitivity` each.
    ///
    /// # Errors
    /// [`QueryError::Insensitive`].
    pub fn new(sensitivity: u64, loss: PureLoss) -> Result<Self, QueryError> {
        if sensitivity == 0 {
            return Err(QueryError::Insensitive);
        }
        Ok(Self { sensitivity, loss })
    }

    /// The index of the chosen candidate. Without `weights` the base measure is uniform; a
    /// candidate of weight 0 is never chosen.
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`], [`QueryError::Weights`].
    pub fn choose<R: Rng + ?Sized>(
        self,
        utilities: &[i64],
        weights: Option<&[u32]>,
        rng: &mut R,
    ) -> Result<usize, QueryError> {
        let candidates = utilities.len();
        if let Some(weights) = weights.filter(|weights| weights.len() != candidates) {
            return Err(QueryError::Weights { candidates, weights: weights.len() });
        }
        let weight =
            |place| weights.map_or(1, |weights: &[u32]| weights.get(place).copied().unwrap_or(0));
        let possible = utilities.iter().enumerate().filter(|(place, _)| weight(*place) > 0);
        let best = possible.map(|(_, &utility)| utility).max();
        let best = best.ok_or(QueryError::NoCandidates)?;
        let candidate = |place: usize| {
            let utility = utilities[place];
            // Candidates of weight 0 may have a better utility than the best eligible one.
            let gap = if utility < best { best.abs_diff(utility) } else { 0 };
            Candidate { weight: weight(place).into(), gap }
        };
        // ε/(2 Δ), with ε in billionths.
        let denominator = 2 * u128::from(self.sensitivity) * 1_000_000_000;
        let step = (u128::from(self.loss.nanos()), denominator);
        Ok(draw(candidates, candidate, step, PRECISION, rng))
    }

    /// A bound on the shortfall of the chosen utility below the best one, with probability 1 -
    /// `beta`, for a uniform base measure on `candidates`: (2 Δ/ε) ln(|R|/β), rounded up (Dwork and
    /// Roth 2014, corollary 3.12).
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`], [`QueryError::Beta`].
    pub fn shortfall(self, candidates: u64, beta: f64) -> Result<u64, QueryError> {
        if candidates == 0 {
            return Err(QueryError::NoCandidates);
        }
        self.shortfall_of_share(1.0 / candidates as f64, beta)
    }

    /// The bound of [`Self::shortfall`] for a base measure in which the best candidates have the
    /// share `best`.
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`] for a share that is not above 0 and at most 1,
    /// [`QueryError::Beta`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range becomes its end"
    )]
    pub fn shortfall_of_share(self, best: f64, beta: f64) -> Result<u64, QueryError> {
        if !(best > 0.0 && best <= 1.0) {
            return Err(QueryError::NoCandidates);
        }
        let logs = -(libm::log(best) + libm::log(check_beta(beta)?));
        Ok((self.scale() * logs * (1.0 + 1e-12)).ceil() as u64)
    }

    /// 2 Δ/ε.
    fn scale(self) -> f64 {
        2.0 * self.sensitivity as f64 / (self.loss.nanos() as f64 * 1e-9)
    }

    /// The largest possible mean of the shortfall of the chosen utility below the best one, if the
    /// candidates within t = `within` of the best have the share s = `share` of the base measure. It is
    /// t + b W((1 - s)/(e s)), rounded up, with b = 2 Δ/ε, Euler's e, and Lambert's W.
    ///
    /// A candidate that falls short by t + x has at most exp(-x/b) times the weight of those within
    /// t. So the mean of what is beyond t is at most the mean of x over weights s at 0 and (1 - s)
    /// exp(-x/b) at each x, a quotient of two sums that is largest if all x are the same: x/(1 +
    /// exp(x/b) s/(1 - s)). That has its maximum b W where x = b (1 + W). For t = 0 some utilities
    /// attain it. (McSherry and Talwar 2007, theorem 8, have a mean utility of at least OPT - 3 t for
    /// every t of at least b ln(OPT/(t s)). There this is at most 2 t, as W is at most ln(1/s).)
    ///
    /// ```
    /// use bandana_mechanisms::queries::{exponential::ExponentialMechanism, price::PureLoss};
    /// let mechanism = ExponentialMechanism::new(1, PureLoss::new(0.1)?)?;
    /// let mean = mechanism.mean_shortfall(1.0 / 100.0, 0)?;
    /// assert!((52.4..52.6).contains(&mean));
    /// assert_eq!(mechanism.shortfall(100, 0.05)?, 153);
    /// # Ok::<(), bandana_mechanisms::queries::QueryError>(())
    /// ```
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`] for a share that is not above 0 and at most 1.
    pub fn mean_shortfall(self, share: f64, within: u64) -> Result<f64, QueryError> {
        Ok(within as f64 + self.scale() * worst_mean(share)? * (1.0 + 1e-12))
    }

    /// The mechanism with the least ε whose [`Self::mean_shortfall`] for this share is at most `most`.
    ///
    /// # Errors
    /// [`QueryError::Insensitive`], [`QueryError::NoCandidates`], and [`QueryError::Epsilon`] when that ε
    /// is out of range, or none is enough.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range becomes its end"
    )]
    pub fn for_mean_shortfall(
        sensitivity: u64,
        share: f64,
        within: u64,
        most: f64,
    ) -> Result<Self, QueryError> {
        let room = most - within as f64;
        let epsilon = 2.0 * sensitivity as f64 * worst_mean(share)? / room;
        if !(room > 0.0 && epsilon <= 32.0) {
            return Err(QueryError::Epsilon(epsilon));
        }
        let mut nanos = ((epsilon * 1e9) as u64).saturating_sub(1);
        loop {
            let mechanism = Self::new(sensitivity, PureLoss::of_nanos(nanos))?;
            if mechanism.mean_shortfall(share, within)? <= most {
                return Ok(mechanism);
            }
            nanos += 1;
        }
    }

    /// ε.
    pub fn loss(self) -> PureLoss {
        self.loss
    }
}

/// W((1 - s)/(e s)), rounded up: the w with w exp(w) of that size.
fn worst_mean(share: f64) -> Result<f64, QueryError> {
    if !(share > 0.0 && share <= 1.0) {
        return Err(QueryError::NoCandidates);
    }
    let wanted = (1.0 - share) / share * libm::exp(-1.0) * (1.0 + 1e-12);
    // W(a) is at most ln(1 + a), as (1 + a) ln(1 + a) is at least a.
    let (mut low, mut high) = (0.0, libm::log1p(wanted));
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if middle * libm::exp(middle) < wanted { low = middle } else { high = middle }
    }
    Ok(high)
}
