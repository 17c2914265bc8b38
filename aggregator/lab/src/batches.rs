//! A trial by batches: the pulls of a batch and their signals, drawn as counts.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use bandana_learners::reports_until_policy;
use rand_distr::{Binomial, Distribution as _};

use crate::bandit::Bandit;
use crate::channel::Channel;
use crate::instance::largest;
use crate::learner::BatchLearner;
use crate::random::{Random, generator};
use crate::trial::Course;

/// Purpose of the numbers of pulls.
const PULLS: u64 = u64::MAX - 2;

/// Purpose of the first arm's signals.
const SIGNALS: u64 = 1 << 33;

/// For each arm of a bandit, the probability of each symbol in its reports by a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct SymbolLaws(Vec<Vec<f64>>);

impl SymbolLaws {
    /// The laws of this bandit's signals.
    ///
    /// # Errors
    /// When they are not known.
    pub fn of(bandit: &dyn Bandit, channel: &dyn Channel) -> anyhow::Result<Self> {
        let laws = (0..bandit.means().len()).map(|arm| channel.symbol_shares(bandit, arm));
        laws.collect::<Option<_>>().map(Self).context(
            "the probabilities of this bandit's signals are not known; play it round by round, or give \
             its trait `mean_of` and `curved_mean`",
        )
    }
}

/// The size of the batch that begins after so many rounds.
pub(crate) fn batch_after(rounds: u64, course: &Course) -> u64 {
    match course.batch {
        0 | 1 => reports_until_policy(rounds),
        size => size as u64,
    }
}

/// Runs a trial with the same law as [`run_trial`](crate::run_trial). A batch costs as much as a
/// policy and a few binomial numbers, whatever its size.
///
/// Rewards of an arm are independent and of one law, and weights don't change within a batch. So
/// the pulls of a batch are a multinomial number, and the symbols of an arm's reports are another.
/// Unlike in [`run_trial`](crate::run_trial), learners don't meet the same rewards.
///
/// # Errors
/// When the learner fails.
pub fn run_by_batches(
    bandit: &dyn Bandit,
    SymbolLaws(laws): &SymbolLaws,
    learner: &mut dyn BatchLearner,
    course: &Course,
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<f64>>> {
    let means = bandit.means();
    let best = means[largest(&means)];
    let mut sources: Vec<_> =
        (0..means.len() as u64).map(|arm| generator(seed, SIGNALS + arm)).collect();
    let mut choices = generator(seed, PULLS);
    let mut counts: Vec<Vec<u64>> = laws.iter().map(|law| vec![0; law.len()]).collect();
    let mut regrets = Vec::with_capacity(course.checkpoints.len());
    let (mut regret, mut round, mut due) = (0.0, 0, batch_after(0, course));
    for checkpoint in &course.checkpoints {
        while round < *checkpoint {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            // A batch may have a checkpoint within: its parts are two multinomial numbers.
            let rounds = due.min(*checkpoint) - round;
            let shares: Vec<f64> =
                (0..means.len()).map(|arm| learner.weights().share(arm)).collect();
            for (arm, pulls) in multinomial(rounds, &shares, &mut choices)?.into_iter().enumerate()
            {
                regret += (best - means[arm]) * pulls as f64;
                let signals = multinomial(pulls, &laws[arm], &mut sources[arm])?;
                for (count, new) in counts[arm].iter_mut().zip(signals) {
                    *count += new;
                }
            }
            round += rounds;
            if round == due {
                let next = batch_after(round, course);
                learner.learn(&counts, next)?;
                for counts in &mut counts {
                    counts.fill(0);
                }
                due += next;
            }
        }
        regrets.push(regret);
    }
    Ok(Some(regrets))
}

/// A multinomial number: one binomial after the other, each given those before. The shares need not
/// sum to 1.
fn multinomial(total: u64, shares: &[f64], rng: &mut Random) -> anyhow::Result<Vec<u64>> {
    // From the end, so that the last share is certain of what is left.
    let mut beyond = vec![0.0; shares.len()];
    for place in (1..shares.len()).rev() {
        beyond[place - 1] = beyond[place] + shares[place];
    }
    let mut left = total;
    let mut numbers = Vec::with_capacity(shares.len());
    for (share, beyond) in shares.iter().zip(beyond) {
        let number = if left == 0 || *share <= 0.0 {
            0
        } else {
            Binomial::new(left, share / (share + beyond))?.sample(rng)
        };
        left -= number;
        numbers.push(number);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use bandana_shared::alphabet::Alphabet;
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;

    use super::*;
    use bandana_shared::policy::Weights;

    use crate::channel::StandardChannel;
    use crate::instance::Instance;

    /// A number among a batch's counts.
    type Count<'c> = &'c dyn Fn(&[Vec<u64>]) -> u64;

    #[derive(Debug)]
    struct Fixed {
        weights: Weights,
        batches: Vec<(Vec<Vec<u64>>, u64)>,
    }

    impl Fixed {
        fn of(shares: &[f64]) -> Self {
            Self { weights: Weights::from_shares(shares).unwrap(), batches: Vec::new() }
        }
    }

    impl BatchLearner for Fixed {
        fn weights(&self) -> &Weights {
            &self.weights
        }

        fn learn(&mut self, counts: &[Vec<u64>], next: u64) -> anyhow::Result<()> {
            self.batches.push((counts.to_vec(), next));
            Ok(())
        }
    }

    fn run(learner: &mut Fixed, course: &Course, channel: StandardChannel) -> Vec<f64> {
        let instance = Instance::named("two-arms").unwrap();
        let stop = AtomicBool::new(false);
        let laws = SymbolLaws::of(&instance, &channel).unwrap();
        run_by_batches(&instance, &laws, learner, course, 5, &stop).unwrap().unwrap()
    }

    #[test]
    fn batches_grow_as_those_of_a_server_and_lose_no_round_at_checkpoints() {
        let mut learner = Fixed::of(&[1.0, 3.0]);
        let regrets = run(
            &mut learner,
            &Course { by_batches: true, ..Course::to(20_000) },
            StandardChannel::Coin,
        );
        let sizes: Vec<u64> =
            learner.batches.iter().map(|(counts, _)| counts.iter().flatten().sum()).collect();
        assert_eq!(sizes[..100], [100; 100]);
        assert_eq!(sizes[100..104], [100, 101, 102, 103]);
        // What each batch was told of the next one.
        let told: Vec<u64> = learner.batches.iter().map(|(_, next)| *next).collect();
        assert_eq!(told[..told.len() - 1], sizes[1..]);
        // The second arm is .4 worse, and has three quarters of the pulls.
        let (rounds, regret) = (20_000.0_f64, regrets[regrets.len() - 1]);
        assert!((regret - 0.3 * rounds).abs() < 5.0 * 0.4 * (rounds * 0.1875).sqrt(), "{regret}");
    }

    #[test]
    fn counts_have_the_means_and_the_variances_of_single_draws() {
        // 4,000 batches of 300. Of five standard errors a right sampler is beyond once in a million.
        let batches = 4000_u32;
        let course = Course {
            checkpoints: vec![300 * u64::from(batches)],
            batch: 300,
            by_batches: true,
            ..Course::to(1)
        };
        let mut learner = Fixed::of(&[1.0, 3.0]);
        run(&mut learner, &course, StandardChannel::Coin);
        assert_eq!(learner.batches.len(), batches as usize);
        // Pulls of the second arm, and among all 300 rounds, ones of the first, whose mean is .9.
        let of: [(Count<'_>, f64); 2] =
            [(&|counts| counts[1].iter().sum(), 0.75), (&|counts| counts[0][1], 0.25 * 0.9)];
        for (number, share) in of {
            let numbers: Vec<f64> =
                learner.batches.iter().map(|(counts, _)| number(counts) as f64).collect();
            let mean = numbers.iter().sum::<f64>() / f64::from(batches);
            let variance = numbers.iter().map(|one| (one - mean).powi(2)).sum::<f64>()
                / f64::from(batches - 1);
            let expected = 300.0 * share * (1.0 - share);
            let errors = (mean - 300.0 * share) / (expected / f64::from(batches)).sqrt();
            assert!(errors.abs() < 5.0, "{share}: {mean}");
            let errors = (variance / expected - 1.0) / (2.0 / f64::from(batches)).sqrt();
            assert!(errors.abs() < 5.0, "{share}: {variance} for {expected}");
        }
    }

    #[test]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rounded number from 0 to 5"
    )]
    fn shares_of_symbols_are_those_that_a_device_sends() {
        // 400,000 reports for each arm and channel: five standard errors are at most .004.
        let (epsilon, reports) = (Epsilon::new(1.5).unwrap(), 400_000);
        let six = Mechanism::Kary(Alphabet::new(6).unwrap());
        let instance = Instance::paper_20();
        for (mechanism, last) in
            [(Mechanism::Linear, 1.0), (Mechanism::Exponential, 1.0), (six, 5.0)]
        {
            let channel = StandardChannel::of(mechanism, epsilon);
            // One arm of each kind.
            for arm in [0, 1, 6, 16] {
                let shares = channel.symbol_shares(&instance, arm).unwrap();
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                let mut rng = generator(1, arm as u64);
                let mut found = vec![0.0; shares.len()];
                for _ in 0..reports {
                    let reward = instance.arms[arm].rewards.draw(&mut rng);
                    let symbol = (last * channel.send(reward, &mut rng)).round();
                    found[symbol as usize] += 1.0 / f64::from(reports);
                }
                for (share, found) in shares.iter().zip(&found) {
                    assert!(
                        (share - found).abs() < 0.004,
                        "{mechanism:?} {arm}: {shares:?} {found:?}"
                    );
                }
            }
        }
        let reward = StandardChannel::Reward.symbol_shares(&instance, 0);
        assert!(reward.is_none(), "rewards are no symbols");
    }
}
