//! A bandit: arms, and the distribution of each arm's rewards.

use std::fmt::Debug;

use bandana_shared::curve::Curve;

use crate::instance::Instance;
use crate::random::Random;

/// Arms whose rewards are drawn, and whose true means are known to the study.
///
/// ```
/// use bandana_lab::{Bandit, Random, generator};
/// use rand::RngExt as _;
///
/// /// Two coins.
/// #[derive(Debug)]
/// struct Coins([f64; 2]);
///
/// impl Bandit for Coins {
///     fn means(&self) -> Vec<f64> {
///         self.0.to_vec()
///     }
///
///     fn draw(&self, arm: usize, rng: &mut Random) -> f64 {
///         f64::from(u8::from(rng.random_bool(self.0[arm])))
///     }
/// }
/// assert_eq!(Coins([0.0, 1.0]).draw(1, &mut generator(1, 0)), 1.0);
/// ```
pub trait Bandit: Debug + Send + Sync {
    /// The mean reward of each arm, at least one, from 0 to 1.
    fn means(&self) -> Vec<f64>;

    /// Draws a reward of an arm, from 0 to 1.
    fn draw(&self, arm: usize, rng: &mut Random) -> f64;

    /// The mean of g(reward) of an arm, for the bounds of a channel with a curve, or `None` if it
    /// is not known. The study then has no bounds.
    fn curved_mean(&self, _arm: usize, _curve: &Curve) -> Option<f64> {
        None
    }

    /// The mean of a function of an arm's reward, for channels of more than a bit by batches, or
    /// `None` if it is not known. Such a study then fails.
    fn mean_of(&self, _arm: usize, _function: &dyn Fn(f64) -> f64) -> Option<f64> {
        None
    }
}

impl Bandit for Instance {
    fn means(&self) -> Vec<f64> {
        Self::means(self)
    }

    #[inline]
    fn draw(&self, arm: usize, rng: &mut Random) -> f64 {
        self.arms[arm].rewards.draw(rng)
    }

    fn curved_mean(&self, arm: usize, curve: &Curve) -> Option<f64> {
        self.arms.get(arm).map(|arm| arm.rewards.mean_of(curve))
    }

    fn mean_of(&self, arm: usize, function: &dyn Fn(f64) -> f64) -> Option<f64> {
        self.arms.get(arm).map(|arm| arm.rewards.expectation(function))
    }
}
