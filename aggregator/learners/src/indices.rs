//! Index rules: each arm has an index, and the arm with the largest is played.
//!
//! Each rule takes the mean of an arm's private bits, or of its rewards where there is no privacy,
//! and their number. The index depends only on these two and on the time t, the number of all
//! reports of the arms in play plus one. Arms without reports come before all others.

use super::divergence::upper;
use super::input::Evidence;
use super::posterior::Posterior;

/// UCB1 of Auer, Cesa-Bianchi and Fischer, "Finite-time Analysis of the Multiarmed Bandit Problem"
/// (2002), figure 1: `mean + sqrt(2 ln t / n)`.
///
/// On private bits it is LDP-UCB-B of Ren, Zhou, Liu and Shroff (2020, arXiv
/// 2007.03121). Their index is the debiased mean plus `(e^ε + 1)/(e^ε - 1) sqrt(2
/// ln t / n)`, which for the linear curve is an increasing linear function of this,
/// the same for all arms. With a nonlinear curve it is the nonlinear form of Jiang,
/// Zhao and Li (2023, arXiv 2307.00863), which works on the private mean as well.
///
/// `exploration` is [`ucb1_exploration`], which is the same for all arms.
pub fn ucb1(mean: f64, reports: f64, exploration: f64) -> f64 {
    mean + libm::sqrt(exploration / reports)
}

/// `2 ln t`, and at least 0.
pub fn ucb1_exploration(time: f64) -> f64 {
    2.0 * libm::log(time.max(1.0))
}

/// Whether `mean + sqrt(exploration / reports)` can exceed `best`, without a root or a quotient:
/// most arms of an index rule need neither. It returns `true` also where rounding leaves it open.
pub fn may_exceed(best: f64, mean: f64, reports: f64, exploration: f64) -> bool {
    const SLACK: f64 = 1e-9;
    let gap = best - mean;
    gap <= 0.0 || gap * gap * reports <= exploration + SLACK * (1.0 + exploration)
}

/// kl-UCB of Garivier and Cappé (2011, arXiv 1102.2490): the largest number q with `n kl(mean, q)
/// <= ln t + 3 ln ln t`. On private bits it is kl-UCB-CF of Gajane, Urvoy and Kaufmann, "Corrupt
/// Bandits for Preserving Local Privacy" (2018, arXiv 1708.05033), algorithm 1.
///
/// The paper maps q back through the channel. That keeps the order of arms with one channel, so it
/// is omitted here.
pub fn kl_ucb(mean: f64, reports: f64, time: f64) -> f64 {
    upper(mean, kl_ucb_exploration(time) / reports)
}

/// `ln t + 3 ln ln t`, and at least 0.
pub fn kl_ucb_exploration(time: f64) -> f64 {
    let log = libm::log(time.max(1.0));
    (log + 3.0 * libm::log(log.max(1.0))).max(0.0)
}

/// IMED of Honda and Takemura, "Non-asymptotic analysis of a new bandit algorithm for semi-bounded
/// rewards" (2015), for Bernoulli laws. It plays the arm with the smallest `n kl(mean, best) + ln
/// n`, so this index is the negative of that. `best` is the largest mean of all arms.
pub fn imed(mean: f64, reports: f64, best: f64) -> f64 {
    -(reports * super::divergence::kl(mean, best) + libm::log(reports))
}

/// MOSS-anytime of Degenne and Perchet, "Anytime optimal algorithms in stochastic
/// multi-armed bandits" (2016), with α = 1.35 as in their experiments: `mean +
/// sqrt((1 + α)/2 max(0, ln(t/(K n)))/n)`.
pub fn moss_anytime(mean: f64, reports: f64, time: f64, arms: usize) -> f64 {
    let log = libm::log(time / (arms as f64 * reports));
    mean + libm::sqrt(moss_anytime_exploration(log) / reports)
}

/// `(1 + α)/2 max(0, log)`, with `log` the logarithm in [`moss_anytime`].
pub fn moss_anytime_exploration(log: f64) -> f64 {
    const ALPHA: f64 = 1.35;
    f64::midpoint(1.0, ALPHA) * log.max(0.0)
}

/// Bayes-UCB of Kaufmann, Cappé and Garivier, "On Bayesian Upper Confidence Bounds
/// for Bandit Problems" (2012), with c = 0 as in their experiments: the quantile
/// `1 - 1/t` of the posterior under the uniform prior.
///
/// The result is in log-odds, which have the order of the means.
pub fn bayes_ucb(arm: Evidence, time: f64) -> f64 {
    Posterior::of(arm).upper_quantile(1.0 / time.max(1.0))
}

/// An upper bound on [`bayes_ucb`], as a mean, not as log-odds.
///
/// A Beta(ones + 1, zeros + 1) variable exceeds q as often as n + 1 coins of bias q show at most
/// `ones` heads, which has a probability of at most `exp(-(n + 1) kl(ones/(n + 1), q))` (Chernoff).
pub fn bayes_ucb_ceiling(arm: Evidence, time: f64) -> f64 {
    let coins = arm.reports() + 1.0;
    super::divergence::ceiling(arm.ones() / coins, libm::log(time.max(1.0)) / coins)
}

/// LDP-UCB-L of Ren, Zhou, Liu and Shroff (2020, arXiv 2007.03121), algorithm 2: each
/// report is the reward plus Laplace(1/ε) noise, which is neither clipped nor
/// debiased, since the noise has mean 0. `mean + sqrt(2 ln t / n) + sqrt(32 ln t /
/// (ε² n))`, and infinite while `n <= 4 ln(t + 1)`.
///
/// Comparison with bits: the noise adds the variance `2/ε²` to that of the reward. A debiased bit
/// has `1/(4 s²) - (μ - 1/2)²`, with s = tanh(ε/2) and μ the mean, which for small ε is about
/// `1/ε²`. So a bit is worth about twice as much there. For binary rewards it stays ahead at every
/// ε; rewards that hardly vary around 1/2 are better served by Laplace noise from ε of about 2.3
/// on. Bandana's devices send bits, so only studies use this rule.
pub fn ldp_ucb_laplace(mean: f64, reports: f64, time: f64, epsilon: f64) -> f64 {
    let log = libm::log(time.max(1.0));
    if reports <= 4.0 * libm::log(time + 1.0) {
        return f64::INFINITY;
    }
    mean + libm::sqrt(2.0 * log / reports) + libm::sqrt(32.0 * log / (epsilon * epsilon * reports))
}

/// The r-coin of Agrawal and Goyal, "Analysis of Thompson Sampling for the Multi-armed Bandit
/// Problem" (2012, arXiv 1111.1797), algorithm 2. It turns a reward in 0..=1, known to a trusted
/// server, into a bit with that mean, as input to Thompson sampling with Beta posteriors. `uniform`
/// is in 0..1.
pub fn reward_coin(reward: f64, uniform: f64) -> bool {
    uniform < reward
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact values are meant")]
mod tests {
    use super::*;

    #[test]
    fn indices_agree_with_calculations_by_hand() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-4, "{a} instead of {b}");
        // t = 100, ln t = 4.60517.
        near(ucb1(0.5, 10.0, ucb1_exploration(100.0)), 0.5 + 0.959_70);
        // ln t + 3 ln ln t = 9.18674; kl(.5, q) = .0918674 where 4q(1-q) = exp(-.1837348).
        near(kl_ucb(0.5, 100.0, 100.0), 0.704_84);
        near(imed(0.5, 10.0, 0.75), -(1.438_41 + std::f64::consts::LN_10));
        near(moss_anytime(0.5, 10.0, 100.0, 2), 0.5 + 0.434_86);
        assert_eq!(moss_anytime(0.5, 10.0, 15.0, 2), 0.5);
        near(ldp_ucb_laplace(0.5, 100.0, 100.0, 2.0), 0.5 + 0.303_49 + 0.606_97);
        assert_eq!(ldp_ucb_laplace(0.5, 18.0, 100.0, 2.0), f64::INFINITY);
    }

    #[test]
    fn what_may_exceed_is_all_that_does_and_little_more() {
        for (mean, reports, exploration) in [(0.5, 10.0, 9.2), (0.2, 1e9, 41.0), (0.7, 3.0, 0.0)] {
            let index = ucb1(mean, reports, exploration);
            let may = |best| may_exceed(best, mean, reports, exploration);
            assert!(may(index - 1e-9) && may(index.next_down()) && may(mean), "{index}");
            assert!(!may(index + 1e-4), "{index}");
        }
    }

    #[test]
    fn bayes_ucb_is_a_quantile_below_its_ceiling() {
        // Beta(k + 1, 1) has the distribution function x^(k+1).
        let quantile = libm::pow(1.0 - 1.0 / 50.0, 1.0 / 8.0);
        let index = bayes_ucb(Evidence::new(7.0, 0.0), 50.0);
        assert!((index - libm::log(quantile / (1.0 - quantile))).abs() < 1e-6, "{index}");
        for (ones, zeros) in [(0.0, 0.0), (3.0, 9.0), (4e5, 3e5), (1e9, 2e9)] {
            let arm = Evidence::new(ones, zeros);
            for time in [2.0, 100.0, 1e9] {
                let index = bayes_ucb(arm, time);
                let mean = 1.0 / (1.0 + libm::exp(-index));
                assert!(mean <= bayes_ucb_ceiling(arm, time) + 1e-12, "{arm:?} {time}");
            }
        }
    }
}
