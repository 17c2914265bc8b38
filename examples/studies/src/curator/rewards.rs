//! Rewards of one arm: the same for all runs of a trial, however many are drawn at once.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt as _};
use rand_distr::{Binomial, Distribution as _, Hypergeometric};

use bandana_lab::generator;

/// Number of ones, or of zeros, up to which they are dealt one by one.
const FEW: u64 = 64;

/// The rewards of an arm in the order of its plays, each 1 with probability `mean` or else 0.
///
/// The number of ones among the first n depends on the seed only, for every n, so two algorithms
/// under one seed get the same rewards in their first plays of an arm, whether in one episode or in
/// many. It is found without drawing each reward: those from play 2^k to 2^(k+1) have a binomial
/// number of ones, and of a half of them a hypergeometric number, and so on.
#[derive(Clone, Debug)]
pub struct Rewards {
    seed: u64,
    mean: f64,
    plays: u64,
    /// The ones among the plays so far.
    sum: u64,
    block: Block,
    /// The ones before the block.
    before: u64,
}

/// Successive rewards: the place of the first one, their number, and the ones among them.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: u64,
    size: u64,
    ones: u64,
}

impl Rewards {
    /// The rewards of the arm with this number, in the trial of this seed.
    ///
    /// # Errors
    /// When the mean is not a probability.
    pub fn new(seed: u64, arm: usize, mean: f64) -> anyhow::Result<Self> {
        let seed = generator(seed, arm as u64).random();
        let block = Block { start: 0, size: 1, ones: 0 };
        let mut rewards = Self { seed, mean, plays: 0, sum: 0, block, before: 0 };
        rewards.block.ones = rewards.ones_of(0, 1)?;
        Ok(rewards)
    }

    /// The sum of the next `count` rewards.
    ///
    /// # Errors
    /// None with a mean that is a probability.
    pub fn next_sum(&mut self, count: u64) -> anyhow::Result<u64> {
        self.plays += count;
        let sum = self.sum_of(self.plays)?;
        let added = sum - self.sum;
        self.sum = sum;
        Ok(added)
    }

    /// The ones among the first `plays` rewards, at least as many as were asked for before.
    fn sum_of(&mut self, plays: u64) -> anyhow::Result<u64> {
        while plays > self.block.start + self.block.size {
            let start = self.block.start + self.block.size;
            self.before += self.block.ones;
            self.block = Block { start, size: start, ones: self.ones_of(start, start)? };
        }
        let (mut block, mut sum) = (self.block, self.before);
        while plays > block.start {
            if plays == block.start + block.size {
                return Ok(sum + block.ones);
            }
            let half = block.size / 2;
            let left = ones_in_half(block, &mut self.generator(block.start, block.size))?;
            if plays >= block.start + half {
                sum += left;
                block = Block { start: block.start + half, size: half, ones: block.ones - left };
            } else {
                block = Block { size: half, ones: left, ..block };
            }
        }
        Ok(sum)
    }

    /// The ones of a whole block.
    fn ones_of(&self, start: u64, size: u64) -> anyhow::Result<u64> {
        Ok(Binomial::new(size, self.mean)?.sample(&mut generator(self.seed, start << 1)))
    }

    /// The generator that halves a block. Sizes are powers of two, so no two blocks share one.
    fn generator(&self, start: u64, size: u64) -> Xoshiro256PlusPlus {
        generator(self.seed, (2 * start + size) << 1 | 1)
    }
}

/// The ones in the first half of a block, whose rewards are in an order uniform over all orders.
fn ones_in_half(block: Block, rng: &mut impl Rng) -> anyhow::Result<u64> {
    let Block { size, ones, .. } = block;
    let half = size / 2;
    if ones <= FEW {
        return Ok(dealt(size, ones, rng));
    }
    if size - ones <= FEW {
        return Ok(half - dealt(size, size - ones, rng));
    }
    Ok(Hypergeometric::new(size, ones, half)?.sample(rng))
}

/// Of `count` places among `size`, the number in the first half.
fn dealt(size: u64, count: u64, rng: &mut impl Rng) -> u64 {
    let mut free = size / 2;
    for taken in 0..count {
        free -= u64::from(rng.random_range(0..size - taken) < free);
    }
    size / 2 - free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_depend_on_the_number_of_plays_only() {
        for mean in [0.0, 0.01, 0.6, 0.999, 1.0] {
            let rewards = || Rewards::new(5, 1, mean).unwrap();
            let mut one_by_one = rewards();
            let mut sums = vec![0];
            for _ in 0..3000 {
                let reward = one_by_one.next_sum(1).unwrap();
                assert!(reward <= 1);
                sums.push(sums[sums.len() - 1] + reward);
            }
            for step in [2, 7, 100, 512, 3000] {
                let mut at_once = rewards();
                for end in (step..=3000).step_by(step) {
                    let added = at_once.next_sum(step as u64).unwrap();
                    assert_eq!(added, sums[end] - sums[end - step], "{mean} {step} {end}");
                }
            }
        }
    }

    #[test]
    fn sums_have_the_mean_and_the_variance_of_independent_rewards() {
        // Ones among 700 rewards after 300 others: 20,000 times, so the mean has a standard error
        // of .09, the variance of 1.6 and the covariance with the 300 before of .7; five of each.
        let (mut sum, mut squares, mut products) = (0.0, 0.0, 0.0);
        for seed in 0..20_000 {
            let mut rewards = Rewards::new(seed, 0, 0.4).unwrap();
            let before = rewards.next_sum(300).unwrap() as f64 - 120.0;
            let after = rewards.next_sum(700).unwrap() as f64 - 280.0;
            sum += after;
            squares += after * after;
            products += before * after;
        }
        let per = |sum: f64| sum / 20_000.0;
        assert!(per(sum).abs() < 0.5, "{}", per(sum));
        assert!((per(squares) - 168.0).abs() < 8.5, "{}", per(squares));
        assert!(per(products).abs() < 4.0, "{}", per(products));
    }
}
