//! Exact draws of truncated Thompson sampling, for simulations.

use bandana_shared::channel::Channel;
use bandana_shared::identity::ArmIndex;
use bandana_shared::policy::PolicyError;
use rand::{Rng, RngExt as _};

use super::check_arm_count;
use super::input::Evidence;
use super::posterior::Posterior;
use super::thompson_sampler::BetaOdds;

/// Draws arms with the weights of [`Learner::TruncatedTs`](super::Learner::TruncatedTs).
#[derive(Clone, Debug)]
pub struct TruncatedSampler {
    arms: Vec<LogOdds>,
    /// Log-odds of the largest possible private mean.
    limit: f64,
}

impl TruncatedSampler {
    /// A sampler for 1 to 1,024 arms, all of them active.
    ///
    /// # Errors
    /// [`PolicyError::ArmCount`] for another number of arms.
    pub fn new(arms: &[Evidence], channel: impl Into<Channel>) -> Result<Self, PolicyError> {
        check_arm_count(arms.len())?;
        let limit = channel.into().highest_log_odds();
        Ok(Self { arms: arms.iter().map(|arm| LogOdds::of(*arm, limit)).collect(), limit })
    }

    /// Replaces the evidence of one arm.
    ///
    /// # Panics
    /// When there is no such arm.
    pub fn update(&mut self, arm: ArmIndex, evidence: Evidence) {
        self.arms[arm.get()] = LogOdds::of(evidence, self.limit);
    }

    /// Draws an arm.
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> ArmIndex {
        let mut best = (0, f64::NEG_INFINITY);
        for (arm, law) in self.arms.iter().enumerate() {
            let sample = law.sample(rng);
            if sample > best.1 {
                best = (arm, sample);
            }
        }
        ArmIndex::new(best.0).unwrap_or_else(|_| unreachable!("checked by `new`"))
    }
}

/// The log-concave law of an arm's log-odds, truncated to a window, with the sampling method that
/// rejects least.
#[derive(Clone, Copy, Debug)]
enum LogOdds {
    /// Rejection of samples of the whole Beta law outside the window: where the peak is inside or
    /// near, and the window is wide.
    Whole { odds: BetaOdds, limit: f64 },
    /// Rejection from the uniform law on the window: where the window is narrow.
    Narrow { posterior: Posterior, limit: f64 },
    /// Rejection from the exponential law tangent to the density at the window's end: where the
    /// peak is far outside.
    Outside { posterior: Posterior, limit: f64 },
}

impl LogOdds {
    fn of(arm: Evidence, limit: f64) -> Self {
        let posterior = Posterior::of(arm);
        let beyond = (posterior.centre().abs() - limit) / posterior.scale();
        if beyond > 1.0 {
            return Self::Outside { posterior: posterior.within(-limit, limit), limit };
        }
        if limit < posterior.scale() {
            return Self::Narrow { posterior: posterior.within(-limit, limit), limit };
        }
        Self::Whole { odds: BetaOdds::of(arm), limit }
    }

    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        match self {
            Self::Whole { odds, limit } => loop {
                let (ones, zeros) = odds.sample(rng);
                let sample = libm::log(ones / zeros);
                if sample.abs() <= *limit {
                    return sample;
                }
            },
            Self::Narrow { posterior, limit } => loop {
                let sample = limit * (2.0 * rng.random::<f64>() - 1.0);
                if accepted(posterior.fall(sample), rng) {
                    return sample;
                }
            },
            Self::Outside { posterior, limit } => {
                let (from, rate) = (posterior.centre(), posterior.slope());
                // The exponential law, truncated to the width of the window.
                let all = -libm::expm1(-2.0 * limit * rate);
                loop {
                    let distance = -libm::log1p(-all * rng.random::<f64>()) / rate;
                    let sample = from - from.signum() * distance.min(2.0 * limit);
                    if accepted(posterior.fall(sample) - rate * distance, rng) {
                        return sample;
                    }
                }
            }
        }
    }
}

/// Whether to accept a proposal whose density lies `fall` nats below its bound.
fn accepted<R: Rng + ?Sized>(fall: f64, rng: &mut R) -> bool {
    rng.random::<f64>() < libm::exp(-fall)
}

#[cfg(test)]
mod tests {
    use bandana_shared::epsilon::Epsilon;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{Learner, LearnerInput};
    use bandana_shared::channel::Floor;

    const DRAWS: u32 = 100_000;

    /// Peaks inside, next to and far outside of the window, wide and narrow ones.
    #[test]
    fn draws_agree_with_the_weights() {
        for (seed, epsilon, counts) in [
            (1, 1.0, vec![(0.0, 0.0), (3.0, 1.0), (40.0, 20.0), (9.0, 0.0)]),
            (2, 0.2, vec![(0.0, 0.0), (30.0, 10.0), (300.0, 200.0), (30.0, 29.0)]),
            (3, 0.5, vec![(700_000.0, 300_000.0), (650_000.0, 350_000.0), (1e3, 0.0), (5e9, 1e9)]),
            (4, 0.5, vec![(0.0, 1e6), (1e3, 1e6), (0.0, 1e6 + 5e3), (10.0, 1.01e6)]),
            (5, 8.0, vec![(20.0, 1.0), (50.0, 6.0), (0.0, 0.0), (2.0, 0.0)]),
        ] {
            let arms: Vec<Evidence> = counts.iter().map(|(a, b)| Evidence::new(*a, *b)).collect();
            let channel = Channel::from(Floor::for_epsilon(Epsilon::new(epsilon).unwrap()));
            let active = vec![true; arms.len()];
            let input = LearnerInput::of(arms.clone(), &active, channel);
            let weights = Learner::TruncatedTs.weights(&input).unwrap();
            let sampler = TruncatedSampler::new(&arms, channel).unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut drawn = vec![0_u32; arms.len()];
            for _ in 0..DRAWS {
                drawn[sampler.draw(&mut rng).get()] += 1;
            }
            for (arm, count) in drawn.iter().enumerate() {
                let expected = f64::from(DRAWS) * weights.share(arm);
                // Five and a half standard deviations, and two draws for rare arms.
                let slack = 5.5 * libm::sqrt(expected * (1.0 - weights.share(arm))) + 2.0;
                let off = f64::from(*count) - expected;
                assert!(off.abs() < slack, "epsilon {epsilon}, arm {arm}: {count}, {expected}");
            }
        }
    }
}
