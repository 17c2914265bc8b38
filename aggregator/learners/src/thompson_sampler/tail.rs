//! Tails of posteriors beyond a level, drawn only as often as they may occur.

use bandana_shared::identity::ArmIndex;
use rand::{Rng, RngExt as _};
use rand_distr::{Distribution, Exp1};

use crate::input::Evidence;
use crate::posterior::stirling_remainder;

/// The level lies this many standard deviations below the mean of the arm that is best by it. Where
/// it is higher, fewer arms reach it, and more often none does.
const DEVIATIONS: f64 = 2.0;

/// The largest mass of a tail that is worth its coin: beyond it, a sample of the whole law is cheaper.
const MASS_MAX: f64 = 0.2;

/// Shares this near to 0 and 1 are no levels: there the tails would lose digits.
const SHARE_MIN: f64 = 1e-6;

/// A private mean that the best of all samples will most likely exceed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    share: f64,
    odds: f64,
    log_share: f64,
    log_rest: f64,
}

impl Level {
    pub(super) fn at(share: f64) -> Option<Self> {
        let rest = 1.0 - share;
        (share > SHARE_MIN && rest > SHARE_MIN).then(|| Self {
            share,
            odds: share / rest,
            log_share: libm::log(share),
            log_rest: libm::log(rest),
        })
    }

    /// The level for these arms; `None` where it would be too near to 0 or 1.
    pub(super) fn of(arms: impl Iterator<Item = Evidence>) -> Option<Self> {
        let low = |arm: Evidence| {
            let (ones, reports) = (1.0 + arm.ones(), 2.0 + arm.reports());
            let mean = ones / reports;
            mean - DEVIATIONS * libm::sqrt(mean * (1.0 - mean) / (reports + 1.0))
        };
        Self::at(arms.map(low).fold(0.0, f64::max))
    }

    /// Whether odds, given as a ratio, are no higher than the level.
    pub(super) fn holds(&self, ones: f64, zeros: f64) -> bool {
        ones <= self.odds * zeros
    }
}

/// The tail of Beta(a, b) beyond a level, below an exponential law.
///
/// The density of the log-odds y, `x^a (1-x)^b / B(a, b)`, is log-concave, so beyond the level, at
/// share s, it is at most `top e^(-rate (y - level))` with the slope there, `rate = (a + b) s - a`.
/// That has the mass `top/rate`. Who proposes from it as often as this mass says, and accepts by the
/// ratio of the two, has drawn the tail exactly, without knowing its own mass. `top` need not be the
/// density itself: Stirling's remainders are replaced by their bound, `1/(12 (a + b))`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    /// The mass of the proposals.
    pub(super) mass: f64,
    rate: f64,
}

impl Tail {
    /// The tail of this arm's posterior; `None` where its mass is too large.
    pub(super) fn of(arm: Evidence, level: &Level) -> Option<Self> {
        let (a, b) = (1.0 + arm.ones(), 1.0 + arm.zeros());
        let sum = a + b;
        let rate = sum * level.share - a;
        if rate <= 0.0 {
            return None;
        }
        let fall =
            a * (libm::log(a / sum) - level.log_share) + b * (libm::log(b / sum) - level.log_rest);
        let peak = libm::sqrt(a * b / (std::f64::consts::TAU * sum));
        let mass = peak * libm::exp(1.0 / (12.0 * sum) - fall) / rate;
        (mass <= MASS_MAX).then_some(Self { mass, rate })
    }

    /// The odds in the tail, or `None` if the arm is below the level after all.
    pub(super) fn sample<R: Rng + ?Sized>(
        &self,
        arm: Evidence,
        level: &Level,
        rng: &mut R,
    ) -> Option<f64> {
        let (a, b) = (1.0 + arm.ones(), 1.0 + arm.zeros());
        let sum = a + b;
        let exponential: f64 = Exp1.sample(rng);
        let distance = exponential / self.rate;
        let fall = libm::log1p(level.share * libm::expm1(distance)) - level.share * distance;
        let remainders = stirling_remainder(sum) - stirling_remainder(a) - stirling_remainder(b);
        let log_ratio = remainders - 1.0 / (12.0 * sum) - sum * fall;
        (rng.random::<f64>() < libm::exp(log_ratio)).then(|| level.odds * libm::exp(distance))
    }
}

/// The best of some samples: an arm, and its odds as a ratio.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    arm: usize,
    pub(super) ones: f64,
    pub(super) zeros: f64,
}

impl Best {
    /// No sample yet.
    pub(super) const NONE: Self = Self { arm: 0, ones: 0.0, zeros: 1.0 };

    /// Takes a sample that is better.
    #[inline]
    pub(super) fn consider(&mut self, arm: usize, (ones, zeros): (f64, f64)) {
        if ones * self.zeros > self.ones * zeros {
            *self = Self { arm, ones, zeros };
        }
    }

    pub(super) fn arm(self) -> ArmIndex {
        ArmIndex::new(self.arm).unwrap_or_else(|_| unreachable!("checked by the sampler's `new`"))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// A function of the law that a test compares.
    type Beyond<'t> = &'t dyn Fn(f64) -> f64;

    #[test]
    fn tails_are_drawn_as_often_and_as_far_as_they_reach() {
        // Beta(k, 1) exceeds x with the probability 1 - x^k; Beta(1, k) with (1 - x)^k.
        const PROPOSALS: u32 = 400_000;
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let up = |k: f64, x: f64| 1.0 - libm::pow(x, k);
        let down = |k: f64, x: f64| libm::pow(1.0 - x, k);
        let laws: [(Evidence, Beyond<'_>, f64); 5] = [
            (Evidence::new(0.0, 0.0), &|x| up(1.0, x), 0.9),
            (Evidence::new(4.0, 0.0), &|x| up(5.0, x), 0.985),
            (Evidence::new(200.0, 0.0), &|x| up(201.0, x), 0.9996),
            (Evidence::new(0.0, 9.0), &|x| down(10.0, x), 0.3),
            (Evidence::new(0.0, 3000.0), &|x| down(3001.0, x), 0.002),
        ];
        for (arm, beyond, share) in laws {
            let level = Level::at(share).unwrap();
            let tail = Tail::of(arm, &level).unwrap();
            let draws: Vec<f64> = (0..PROPOSALS)
                .filter_map(|_| tail.sample(arm, &level, &mut rng))
                .map(|odds| odds / (1.0 + odds))
                .collect();
            assert!(draws.iter().all(|x| *x > share));
            for x in [share, 0.7 * share + 0.3, 0.98 * share + 0.02, 1.3 * share] {
                if x >= 1.0 {
                    continue;
                }
                let found = draws.iter().filter(|draw| **draw > x).count() as f64;
                let rate = beyond(x) / tail.mass;
                let expected = f64::from(PROPOSALS) * rate;
                let off = (found - expected) / libm::sqrt(expected.max(1.0) * (1.0 - rate));
                assert!(off.abs() < 5.5, "{arm:?} beyond {x}: {off} deviations");
            }
        }
    }

    #[test]
    fn an_arm_that_often_reaches_the_level_has_no_tail() {
        let level = Level::at(0.5).unwrap();
        assert!(Tail::of(Evidence::new(500.0, 500.0), &level).is_none());
        assert!(Tail::of(Evidence::new(600.0, 400.0), &level).is_none());
        assert!(Tail::of(Evidence::new(400.0, 600.0), &level).unwrap().mass < 1e-8);
    }
}
