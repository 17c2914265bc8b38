//! Bounds on regret from the literature, as functions.
//!
//! The bounds hold asymptotically, or up to constants that are not explicit. So they serve for
//! plots together with measured curves, and no run can violate them. At horizons up to `10^6`,
//! Thompson sampling stays well *below* the lower bound.

use bandana_shared::channel::Floor;

use super::divergence::kl;

/// An arm in a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundArm {
    /// Its mean reward.
    pub mean: f64,
    /// Its private mean.
    pub private_mean: f64,
}

/// The factor of `ln T` in the asymptotic lower bound on the regret of every consistent learner on
/// these private bits: the sum of `gap / kl(q, q*)` over all arms that are not best. Sources: Lai
/// and Robbins 1985, and for such channels theorem 1 of Gajane, Urvoy and Kaufmann 2018, arXiv
/// 1708.05033.
///
/// The factor is infinite where a worse arm has the same private mean as the best one, or a larger
/// one. There regret is linear.
///
/// ```
/// use bandana_learners::bounds::{BoundArm, lower_bound};
/// let arms = [0.75, 0.5].map(|mean| BoundArm { mean, private_mean: mean });
/// let expected = 0.25 / (0.5 * (4.0_f64 / 3.0).ln());
/// assert!((lower_bound(&arms) - expected).abs() < 1e-12);
/// ```
pub fn lower_bound(arms: &[BoundArm]) -> f64 {
    sum_over_worse(arms, |best, arm| kl(arm.private_mean, best.private_mean))
}

/// The factor of `ln T` in the bound of Jiang, Zhao and Li (2023, arXiv 2307.00863) on the regret
/// of LDP-TS, after Pinsker's inequality: the sum of `gap / (2 δ²)`, δ the difference of the
/// private means. Their theorems write δ out for each mechanism. For the linear one it is `s gap`,
/// with s = (e^ε - 1)/(e^ε + 1). For the others it has the second moments, or the means of `e^(ε
/// r)`, in place of the means. Without Pinsker's inequality the factor is [`lower_bound`] times 1 +
/// ψ, for any ψ > 0. Both bounds omit a constant.
pub fn thompson_sampling(arms: &[BoundArm]) -> f64 {
    sum_over_worse(arms, |best, arm| 2.0 * (best.private_mean - arm.private_mean).powi(2))
}

/// The bound of Auer, Cesa-Bianchi and Fischer (2002), theorem 1, for UCB1 on the private bits,
/// which is LDP-UCB-B of Ren et al. (2020, arXiv 2007.03121). Every worse arm is expected to be
/// played at most `8 ln T / δ² + 1 + π²/3` times. Unlike the others, this bound holds at every
/// horizon T.
pub fn ldp_ucb(arms: &[BoundArm], horizon: f64) -> f64 {
    let once: f64 = {
        let best = best(arms);
        arms.iter().map(|arm| best.mean - arm.mean).sum()
    };
    let squared =
        |best: BoundArm, arm: BoundArm| (best.private_mean - arm.private_mean).powi(2) / 8.0;
    let constant = 1.0 + std::f64::consts::PI.powi(2) / 3.0;
    sum_over_worse(arms, squared) * libm::log(horizon) + constant * once
}

/// The smallest share of colluding reports that can reverse the order of two arms whose means of
/// g(reward) differ by `gap`: `s gap / (1 + s gap)`, s the contrast of the channel.
///
/// Colluders send zeros for the better arm and ones for the other: the private means are then `(1 -
/// f) q*` and `(1 - f) q + f`.
pub fn order_breaking_share(floor: Floor, gap: f64) -> f64 {
    let private_gap = floor.contrast() * gap;
    private_gap / (1.0 + private_gap)
}

/// The arm with the largest mean; without arms, one of mean 0.
fn best(arms: &[BoundArm]) -> BoundArm {
    let none = BoundArm { mean: f64::NEG_INFINITY, private_mean: 0.0 };
    arms.iter().fold(none, |best, arm| if arm.mean > best.mean { *arm } else { best })
}

/// The sum over worse arms of gap divided by `information`, which is taken as 0 where the private
/// means are in the wrong order.
fn sum_over_worse(arms: &[BoundArm], information: impl Fn(BoundArm, BoundArm) -> f64) -> f64 {
    let best = best(arms);
    let term = |arm: &BoundArm| {
        let gap = best.mean - arm.mean;
        let ordered = arm.private_mean < best.private_mean;
        match (gap > 0.0, ordered) {
            (false, _) => 0.0,
            (true, true) => gap / information(best, *arm),
            (true, false) => f64::INFINITY,
        }
    };
    arms.iter().map(term).sum()
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact values are meant")]
mod tests {
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::estimate::private_mean_of;

    use super::*;

    #[test]
    fn bounds_are_ordered_and_infinite_where_the_order_is_lost() {
        let arm = |mean, private_mean| BoundArm { mean, private_mean };
        let arms = [arm(0.9, 0.7), arm(0.8, 0.65), arm(0.5, 0.5)];
        // Pinsker's inequality, and a factor of 16 from Thompson sampling to UCB1.
        assert!(lower_bound(&arms) <= thompson_sampling(&arms));
        let ratio = ldp_ucb(&arms, 1e9) / (thompson_sampling(&arms) * 1e9_f64.ln());
        assert!((16.0..16.1).contains(&ratio), "{ratio}");
        assert_eq!(lower_bound(&[arm(0.9, 0.6), arm(0.8, 0.65)]), f64::INFINITY);
        assert_eq!(lower_bound(&arms[..1]), 0.0);
    }

    #[test]
    fn the_order_breaks_at_the_share() {
        let floor = Floor::for_epsilon(Epsilon::new(0.2).unwrap());
        let share = order_breaking_share(floor, 0.1);
        assert!((share - 0.01).abs() < 2e-4, "{share}");
        let (better, worse) = (private_mean_of(floor, 0.9), private_mean_of(floor, 0.8));
        let turned = (1.0 - share) * better - ((1.0 - share) * worse + share);
        assert!(turned.abs() < 1e-12, "{turned}");
    }
}
