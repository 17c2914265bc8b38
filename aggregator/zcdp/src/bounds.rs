//! Bounds on regret in trusted mode, as functions.
//!
//! Upper bounds follow Azize and Basu, "Concentrated Differential Privacy for Bandits" (arXiv
//! 2309.00557); their derivations are adapted to this implementation, and so are the constants.
//! Rewards lie in 0..=1 for arms, in -1..=1 for linear rewards.

use bandana_shared::accounting::concentrated::Rho;

use super::gaussian_tail::square_norm;

/// The part of AdaC-UCB's regret that grows with the horizon: for every arm with a gap Δ > 0, `8 β
/// ln T/Δ + 8 sqrt(β ln T/ρ)`. For β > 3 a constant is added; infinite ρ means no privacy.
///
/// While all intervals hold, an episode of a worse arm begins only if twice the width of the
/// statistic before it, of n plays, is at least Δ: `(1/(2n) + 1/(ρ n²)) β ln T >= Δ²/4`, so
/// `n <= 2 β ln T/Δ² + 2 sqrt(β ln T/ρ)/Δ`. Those n were half of all plays of the arm, and the
/// episode doubles these: 4n plays, each of which costs Δ.
///
/// ```
/// use bandana_zcdp::bounds::adac_ucb;
/// use bandana_shared::accounting::concentrated::Rho;
/// let bare = adac_ucb(&[0.75, 0.5], Rho::new(f64::INFINITY)?, 1.0, 1e6);
/// let private = adac_ucb(&[0.75, 0.5], Rho::new(0.01)?, 1.0, 1e6);
/// // The price grows with the root of the logarithm only: 8 sqrt(ln T/ρ).
/// assert!((private - bare - 8.0 * (1e6_f64.ln() / 0.01).sqrt()).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn adac_ucb(means: &[f64], rho: Rho, exploration: f64, horizon: f64) -> f64 {
    let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log = exploration * libm::log(horizon);
    let gaps = means.iter().map(|mean| best - mean).filter(|gap| *gap > 0.0);
    gaps.map(|gap| 8.0 * log / gap + 8.0 * (log / rho.get()).sqrt()).sum()
}

/// AdaC-GOPE's regret with probability 1 - δ, published phases: over the phases that fit into
/// the horizon, the sum of plays times the largest gap left.
///
/// Actions left after phase l - 1 are within `4 β_(l-1) = 8 β_l` of the best one, and any two means
/// within 2 of each other. A phase has at most c plays plus one per action, and its g is within 1 %
/// of d.
pub fn adac_gope(actions: usize, dimension: usize, failure: f64, rho: Rho, horizon: f64) -> f64 {
    let d = super::design::TOLERANCE * dimension as f64;
    let (mut regret, mut left) = (0.0, horizon);
    for phase in 1..=60 {
        let (level, precision) = (f64::from(phase), 0.5_f64.powi(phase));
        let failure = failure / (actions as f64 * level * (level + 1.0));
        let noise = (2.0 / rho.get() * square_norm(dimension, failure)).sqrt();
        let sampling = 8.0 * d * libm::log(4.0 / failure) / (precision * precision);
        let plays = (sampling + 2.0 * d * noise / precision + actions as f64).min(left);
        regret += plays * (8.0 * precision).min(2.0);
        left -= plays;
        if left <= 0.0 {
            break;
        }
    }
    regret
}

/// The parameters of [`adac_oful`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfulBound {
    /// Coordinates of an action.
    pub dimension: usize,
    /// C.
    pub growth: f64,
    /// λ.
    pub regularisation: f64,
    /// δ.
    pub failure: f64,
    /// Bound on the norm of the true parameter.
    pub parameter_norm: f64,
    /// κ with `λ_min(V) >= λ + κ t` after t plays: the spread of the contexts.
    pub spread: f64,
}

/// AdaC-OFUL's regret with probability 1 - δ, for rewards in -1..=1.
///
/// A step costs at most `2 w |a|`, the norm in the inverse of V at the last renewal, which is at
/// most sqrt(1 + C) times that in V⁻¹ now. For the two terms of w without noise, the norms sum to
/// `sqrt(2 T max(1, 1/λ) ln(det V/λ^d))` (Abbasi-Yadkori, Pál and Szepesvári 2011, lemma 11). For
/// the third, `|a| <= 1/sqrt(λ_min)`, so a step costs at most `2 sqrt(2 m f/ρ)/λ_min(V)` for the V
/// of the last renewal. That V has λ_min of at least `(λ + κ t)/(1 + C)`, so the sum over t is a
/// logarithm. Privacy costs about `ln^1.5 T/sqrt(ρ)` times constants, and no root of T.
pub fn adac_oful(bound: OfulBound, rho: Rho, horizon: f64) -> f64 {
    let OfulBound { regularisation: lambda, growth, .. } = bound;
    let d = bound.dimension as f64;
    let log_determinant = d * libm::log1p(horizon / (lambda * d));
    let sampling = (2.0 * libm::log(2.0 / bound.failure) + log_determinant).sqrt();
    let width = sampling + lambda.sqrt() * bound.parameter_norm;
    let norms = 2.0 * horizon * (1.0 / lambda).max(1.0) * log_determinant;
    let bare = 2.0 * width * ((1.0 + growth) * norms).sqrt();
    let episodes = (log_determinant / growth.ln_1p()).max(1.0);
    let failure = bound.failure / (2.0 * episodes * (episodes + 1.0));
    let noise = (2.0 * episodes / rho.get() * square_norm(bound.dimension, failure)).sqrt();
    let harmonic = 1.0 / lambda + libm::log1p(bound.spread * horizon / lambda) / bound.spread;
    bare + 2.0 * noise * (1.0 + growth) * harmonic
}

/// A minimax lower bound: every ρ-zCDP policy for K >= 2 arms has at least this regret on some
/// instance with rewards 0 and 1. It is the larger one of
/// - `min(sqrt(K T), T)/20` (Auer, Cesa-Bianchi, Freund and Schapire, "The Nonstochastic
///   Multiarmed Bandit Problem", 2002, theorem 5.1), and
/// - `x/8 exp(-ρ (2x + 4x²))` for any x <= T/2, about `1/(50 sqrt(ρ))` for the best x and small ρ.
///
/// The second term does not depend on K. The bound of Azize and Basu (theorem on minimax lower
/// bounds) grows with `sqrt(K/ρ)`; privacy is free in the worst case, up to constants, once ρ T
/// exceeds a constant.
///
/// *Proof of the second.* Arm 1 has the mean 1/2, arm 2 has 1/2 - Δ in one instance and 1/2 + Δ in
/// the other, Δ = x/T, all others 0. Couple the tables so that entries of arm 2 differ with probability
/// 2Δ, independently; the number D of rows that differ is binomial. By group privacy and
/// convexity, the divergence of the views is at most ρ `E[D²]` <= ρ (2x + 4x²). In the first
/// instance regret is at least ΔT/2 when arm 2 is played more than T/2 times, in the other when
/// it is not, and by Bretagnolle and Huber's inequality these have together a probability
/// of at least exp(-divergence)/2.
///
/// ```
/// use bandana_zcdp::bounds::minimax;
/// use bandana_shared::accounting::concentrated::Rho;
/// let bound = |rho| Ok::<_, Box<dyn std::error::Error>>(minimax(2, 1e4, Rho::new(rho)?));
/// // Privacy dominates only where ρ is small beside 1/T.
/// assert_eq!(bound(1e-3)?, bound(f64::INFINITY)?);
/// assert!(bound(1e-8)? > 10.0 * bound(1e-3)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn minimax(arms: usize, horizon: f64, rho: Rho) -> f64 {
    let bare = (arms as f64 * horizon).sqrt().min(horizon) / 20.0;
    let rho = rho.get();
    if rho.is_infinite() {
        return bare;
    }
    // Where the derivative of the bound is 0: 1 = ρ (2x + 8x²).
    let free = ((4.0 + 32.0 / rho).sqrt() - 2.0) / 16.0;
    let x = free.min(horizon / 2.0);
    bare.max(x / 8.0 * libm::exp(-rho * (2.0 * x + 4.0 * x * x)))
}

/// The order of the minimax lower bound for ρ-zCDP policies with linear rewards in d dimensions,
/// without its constant: `max(d sqrt(T), d/sqrt(ρ))` (Azize and Basu, arXiv 2309.00557, the theorem
/// on minimax lower bounds; without privacy Lattimore and Szepesvári, "Bandit Algorithms", 2020,
/// theorem 24.1).
pub fn linear_minimax_order(dimension: usize, horizon: f64, rho: Rho) -> f64 {
    let d = dimension as f64;
    (d * horizon.sqrt()).max(d / rho.get().sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privacy_costs_a_logarithm_in_the_upper_bounds() {
        let (bare, private) = (Rho::new(f64::INFINITY).unwrap(), Rho::new(0.1).unwrap());
        let oful = OfulBound {
            dimension: 3,
            growth: 1.0,
            regularisation: 0.1,
            failure: 0.001,
            parameter_norm: 1.0,
            spread: 0.1,
        };
        let price = |bound: &dyn Fn(Rho, f64) -> f64, horizon| {
            bound(private, horizon) - bound(bare, horizon)
        };
        for bound in
            [&|rho, horizon| adac_ucb(&[0.75, 0.5, 0.25], rho, 3.1, horizon), &|rho, horizon| {
                adac_oful(oful, rho, horizon)
            }] as [&dyn Fn(Rho, f64) -> f64; 2]
        {
            let (early, late) = (price(bound, 1e5), price(bound, 1e9));
            assert!(early > 0.0 && (1.0..4.0).contains(&(late / early)), "{early} {late}");
        }
        // Phases with noise are longer, so fewer precise ones fit; no gap exceeds 2.
        let (one, ten) =
            (adac_gope(10, 3, 0.001, private, 1e6), adac_gope(10, 3, 0.001, bare, 1e6));
        assert!(one > ten && one < 2e6, "{one} {ten}");
        assert!(linear_minimax_order(3, 1e6, private) < adac_gope(10, 3, 0.001, private, 1e6));
    }

    #[test]
    fn the_lower_bound_is_below_the_upper_ones() {
        for rho in [1e-6, 1e-3, 1.0] {
            let rho = Rho::new(rho).unwrap();
            // A minimax bound concerns the hardest gap for each horizon.
            for horizon in [1e3, 1e5, 1e7] {
                let worst = (1..1000).map(|part| {
                    let gap = f64::from(part) / 1000.0;
                    adac_ucb(&[gap, 0.0], rho, 3.1, horizon).min(gap * horizon)
                });
                let worst = worst.fold(0.0, f64::max);
                assert!(minimax(2, horizon, rho) < worst, "{rho:?} {horizon}");
            }
        }
    }
}
