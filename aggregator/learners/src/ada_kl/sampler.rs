//! The sampler of Rand-AdaKL: draws an arm without computing the weights of all.

use rand::{Rng, RngExt as _};

use super::{Law, beginner_limit, shares};
use crate::divergence::kl;
use crate::input::Evidence;

/// Draws arms as [`Learner::RandAdaKl`](crate::Learner::RandAdaKl) does, one scale for each draw.
/// If the evidence changes after every draw, as in a simulation, a draw is much cheaper than
/// weights.
///
/// ```
/// use bandana_learners::AdaKlSampler;
/// use rand::SeedableRng;
///
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
/// let mut sampler = AdaKlSampler::new(2, 1.5);
/// let first = sampler.draw(&mut rng);
/// sampler.select(first);
/// // Whatever the first arm's bit will be, the other one has its turn before.
/// assert_eq!(sampler.draw(&mut rng), 1 - first);
/// ```
#[derive(Clone, Debug)]
pub struct AdaKlSampler {
    arms: Vec<Evidence>,
    roots: Vec<f64>,
    /// For each arm, the sum over all arms of the smaller of the two roots.
    sums: Vec<f64>,
    time: f64,
    scale_max: f64,
}

impl AdaKlSampler {
    /// A sampler for arms without reports, all of them active. The scale is uniform between 0 and
    /// `scale_max`. The learner uses [`scale_max`](crate::scale_max).
    pub fn new(arms: usize, scale_max: f64) -> Self {
        let zeros = vec![0.0; arms];
        Self {
            arms: vec![Evidence::default(); arms],
            roots: zeros.clone(),
            sums: zeros,
            time: 1.0,
            scale_max,
        }
    }

    /// A sampler for arms with this evidence.
    pub fn of(arms: Vec<Evidence>, scale_max: f64) -> Self {
        let roots: Vec<f64> = arms.iter().map(|arm| libm::sqrt(arm.selections())).collect();
        let least = |root: &f64| roots.iter().map(|other| root.min(*other)).sum();
        let sums = roots.iter().map(least).collect();
        let time = 1.0 + arms.iter().map(|arm| arm.selections()).sum::<f64>();
        Self { arms, roots, sums, time, scale_max }
    }

    /// Counts a selection, whose report is pending.
    ///
    /// # Panics
    /// When there is no such arm.
    pub fn select(&mut self, arm: usize) {
        self.arms[arm].add_pending();
        self.count(arm);
    }

    /// Counts a report. A report without a pending selection counts as a selection too.
    ///
    /// # Panics
    /// When there is no such arm.
    pub fn report(&mut self, arm: usize, bit: bool) {
        self.hear(arm, |evidence| evidence.add_bit(bit));
    }

    /// Counts a report of a symbol at this `position`, from 0 for the first to 1 for the last one.
    ///
    /// # Panics
    /// When there is no such arm.
    pub fn report_level(&mut self, arm: usize, position: f64) {
        self.hear(arm, |evidence| evidence.add_level(position));
    }

    fn hear(&mut self, arm: usize, add: impl FnOnce(&mut Evidence)) {
        let unsolicited = self.arms[arm].pending() < 1.0;
        add(&mut self.arms[arm]);
        if unsolicited {
            self.count(arm);
        }
    }

    /// Updates the sums after one more selection of an arm.
    fn count(&mut self, arm: usize) {
        self.time += 1.0;
        let before = self.roots[arm];
        let root = libm::sqrt(self.arms[arm].selections());
        self.roots[arm] = root;
        let mut own = 0.0;
        for (sum, other) in self.sums.iter_mut().zip(&self.roots) {
            let least = root.min(*other);
            *sum += least - before.min(*other);
            own += least;
        }
        self.sums[arm] = own;
    }

    /// The divergence that the index of an arm may have at a scale.
    fn room(&self, place: usize, scale: f64) -> f64 {
        let rivalry = self.roots[place] * self.sums[place];
        scale * libm::log(self.time / rivalry).max(0.0) / self.arms[place].selections()
    }

    /// The probability of each arm to be drawn next. It costs much more than one draw, so it is for
    /// many draws in a row.
    pub fn shares(&self) -> Vec<f64> {
        shares(&self.arms, self.scale_max)
    }

    /// Draws an arm.
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> usize {
        let scale = self.scale_max * rng.random::<f64>();
        let start = rng.random_range(0..self.arms.len());
        // Arms are visited from a random start, to break ties at random. The arm with most plays
        // comes first: it nearly always leads, so few other indices are needed.
        let favourite = (start..self.arms.len())
            .chain(0..start)
            .fold(start, |best, arm| if self.roots[arm] > self.roots[best] { arm } else { best });
        let mut best = (favourite, f64::NEG_INFINITY);
        let limit = beginner_limit(&self.arms);
        let places = (start..self.arms.len()).chain(0..start);
        for place in std::iter::once(favourite).chain(places) {
            if self.arms[place].selections() <= limit {
                return place;
            }
            let Some(mean) = self.arms[place].mean() else { continue };
            let room = self.room(place, scale);
            let arm = self.arms[place];
            let law = Law::of(arm, mean, arm.zeros() / arm.reports());
            // An index exceeds the best one if the divergence to it is small enough. Pinsker's
            // inequality excludes most arms cheaply.
            if best.1 >= mean {
                let goal = law.ones_at(best.1);
                let distance = goal - law.ones;
                if room <= 2.0 * distance * distance || room <= kl(law.ones, goal) {
                    continue;
                }
            }
            let index = law.upper(room);
            if index > best.1 {
                best = (place, index);
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;
    use crate::ada_kl::shares_ahead;

    const SCALE_MAX: f64 = 1.5;

    #[test]
    fn a_sampler_draws_by_the_shares() {
        for levels in [false, true] {
            sampler_draws_by_the_shares(levels);
        }
    }

    fn sampler_draws_by_the_shares(levels: bool) {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let mut sampler = AdaKlSampler::new(6, SCALE_MAX);
        for step in 0..400 {
            let arm = sampler.draw(&mut rng);
            sampler.select(arm);
            // The last reports are withheld, so that pending counts matter.
            if step < 300 {
                let mean = 0.4 + 0.05 * arm as f64;
                if levels {
                    sampler.report_level(arm, (mean + 0.2 * rng.random::<f64>()).min(1.0));
                } else {
                    sampler.report(arm, rng.random::<f64>() < mean);
                }
            }
        }
        let shares = sampler.shares();
        let mut drawn = [0.0_f64; 6];
        for _ in 0..200_000 {
            drawn[sampler.draw(&mut rng)] += 1.0;
        }
        for (count, share) in drawn.iter().zip(&shares) {
            // Six standard deviations, and one draw.
            let slack = 6.0 * (200_000.0 * share * (1.0 - share)).sqrt() + 1.0;
            assert!((count - 200_000.0 * share).abs() < slack, "{drawn:?} {shares:?}");
        }
    }

    #[test]
    fn a_first_batch_is_spread_evenly() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(6);
        let mut sampler = AdaKlSampler::new(20, SCALE_MAX);
        let mut drawn = [0; 20];
        for _ in 0..1000 {
            let arm = sampler.draw(&mut rng);
            sampler.select(arm);
            drawn[arm] += 1;
        }
        assert_eq!(drawn, [50; 20]);
        let shares = shares_ahead(vec![Evidence::default(); 20], SCALE_MAX, 1000.0);
        assert!(shares.iter().all(|share| (share - 0.05).abs() < 1e-12), "{shares:?}");
        // The first report ends the burn-in of beginners: the indices decide.
        sampler.report(7, true);
        assert_eq!(sampler.draw(&mut rng), 7);
    }
}
