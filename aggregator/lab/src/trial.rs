//! One trial of one learner on one instance.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use rand::RngExt as _;

use crate::bandit::Bandit;
use crate::channel::Channel;
use crate::instance::largest;
use crate::learner::Learner;
use crate::random::generator;

/// Number of rounds between two checks of the stop flag.
const PATIENCE: u64 = 1 << 14;

/// Purpose of the first arm's noise; the rewards of the arms come before.
const NOISE: u64 = 1 << 32;

/// The behaviour of dishonest people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Report zeros for the best arm and ones for all others, on the arms they are given.
    Flip,
    /// Report ones for the worst arm, in addition to the users and without an assignment.
    Stuff,
}

impl FromStr for Attack {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "flip" => Ok(Self::Flip),
            "stuff" => Ok(Self::Stuff),
            _ => bail!("there is no attack {text:?}: flip or stuff"),
        }
    }
}

/// Settings of a trial.
#[derive(Clone, Debug)]
pub struct Course {
    /// Rounds after which the regret is recorded, ascending.
    pub checkpoints: Vec<u64>,
    /// Number of reports that arrive together.
    pub batch: usize,
    /// Number of reports of an arm that arrive together, if reports are shuffled. Those of other
    /// arms don't count then, and `batch` is not used.
    pub shuffle: Option<u32>,
    /// Share of dishonest people, 0 to 1.
    pub dishonest: f64,
    /// The attack of dishonest people.
    pub attack: Attack,
    /// Whether the pulls and the signals of a batch are drawn as counts. With a `batch` of 1,
    /// batches grow as those of a server, which computes its policy again after 100 reports, or 1%
    /// if that is more.
    pub by_batches: bool,
}

impl Course {
    /// A course of this number of rounds with honest people, where each report arrives on its own.
    pub fn to(horizon: u64) -> Self {
        Self {
            checkpoints: Self::checkpoints_to(horizon),
            batch: 1,
            shuffle: None,
            dishonest: 0.0,
            attack: Attack::Flip,
            by_batches: false,
        }
    }

    /// Ten checkpoints for each power of ten, from 100 on, and the horizon.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rounded number up to the horizon"
    )]
    pub fn checkpoints_to(horizon: u64) -> Vec<u64> {
        let grid = (20..200).map(|tenth| 10_f64.powf(f64::from(tenth) / 10.0).round() as u64);
        let mut checkpoints: Vec<u64> = grid.take_while(|round| *round < horizon).collect();
        checkpoints.push(horizon);
        checkpoints
    }
}

/// Runs a trial. Returns the pseudo-regret in the true means at every checkpoint, or `None` when
/// stopped.
///
/// The rewards of an arm come from a separate generator, and its noise from another. So under one
/// `seed` all learners get the same reward at an arm's first pull, at its second, and so on. If
/// they have the same channel, they also get the same noise.
///
/// # Errors
/// When the learner fails.
pub fn run_trial(
    bandit: &dyn Bandit,
    channel: &dyn Channel,
    learner: &mut dyn Learner,
    course: &Course,
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<f64>>> {
    let means = bandit.means();
    let best = largest(&means);
    let negated: Vec<f64> = means.iter().map(|mean| -mean).collect();
    let worst = largest(&negated);
    let source = |arm| (generator(seed, arm), generator(seed, NOISE + arm));
    let mut sources: Vec<_> = (0..means.len() as u64).map(source).collect();
    let mut choices = generator(seed, u64::MAX);
    let mut liars = generator(seed, u64::MAX - 1);
    let mut waiting = Waiting::new(course, means.len());
    let mut regrets = Vec::with_capacity(course.checkpoints.len());
    let (mut regret, mut round) = (0.0, 0);
    for checkpoint in &course.checkpoints {
        while round < *checkpoint {
            if round % PATIENCE == 0 && stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            round += 1;
            let arm = learner.choose(&mut choices);
            regret += means[best] - means[arm];
            let (rewards, noise) = &mut sources[arm];
            let reward = bandit.draw(arm, rewards);
            let mut signal = channel.send(reward, noise);
            if course.dishonest > 0.0 && liars.random::<f64>() < course.dishonest {
                match course.attack {
                    Attack::Flip => signal = f64::from(u8::from(arm != best)),
                    Attack::Stuff => waiting.push(worst, 1.0),
                }
            }
            waiting.push(arm, signal);
            waiting.deliver(learner)?;
        }
        regrets.push(regret);
    }
    Ok(Some(regrets))
}

/// The reports on their way to the learner, in batches of which each becomes known when it is full.
#[derive(Debug)]
struct Waiting {
    /// One batch, or one for each arm.
    batches: Vec<Vec<(usize, f64)>>,
    size: usize,
    is_shuffled: bool,
}

impl Waiting {
    fn new(course: &Course, arms: usize) -> Self {
        let is_shuffled = course.shuffle.is_some();
        let size = course.shuffle.map_or(course.batch, |size| size as usize);
        let batches = vec![Vec::with_capacity(size); if is_shuffled { arms } else { 1 }];
        Self { batches, size, is_shuffled }
    }

    fn push(&mut self, arm: usize, signal: f64) {
        self.batches[if self.is_shuffled { arm } else { 0 }].push((arm, signal));
    }

    /// Hands over what is full.
    fn deliver(&mut self, learner: &mut dyn Learner) -> anyhow::Result<()> {
        for batch in &mut self.batches {
            if batch.len() >= self.size {
                for (arm, signal) in batch.drain(..) {
                    learner.learn(arm, signal)?;
                }
                learner.end_batch()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;

    use super::*;
    use crate::channel::StandardChannel;
    use crate::instance::Instance;
    use crate::learner::Privacy;
    use crate::standard::StandardLearner;
    use crate::standard::player::Player;

    #[test]
    fn shuffled_reports_are_seen_once_a_batch_of_their_arm_is_full() {
        let privacy = Privacy { mechanism: Mechanism::Linear, epsilon: Epsilon::new(1.0).unwrap() };
        let course = Course { checkpoints: vec![], shuffle: Some(3), ..Course::to(1) };
        let mut player = Player::new(StandardLearner::LdpTs, 2, privacy).unwrap();
        let mut waiting = Waiting::new(&course, 2);
        // Three ones of the second arm, and two of the first, which stay unseen to the end.
        let mut seen = Vec::new();
        for arm in [1, 0, 1, 0, 1, 1] {
            waiting.push(arm, 1.0);
            waiting.deliver(&mut player).unwrap();
            let Player::Thompson(_, evidence) = &player else { unreachable!() };
            seen.push([0, 1].map(|arm: usize| evidence[arm].reports()));
        }
        let (none, full) = ([0.0, 0.0], [0.0, 3.0]);
        assert_eq!(seen, [none, none, none, none, full, full]);
    }

    #[test]
    fn rewards_do_not_depend_on_the_noise() {
        // A coin for a reward of 0 or 1 equals the reward, and uses separate randomness.
        let instance = Instance::named("five-arms").unwrap();
        let course = Course::to(2000);
        let epsilon = Epsilon::new(1.0).unwrap();
        let privacy = Privacy { mechanism: Mechanism::Linear, epsilon };
        let regrets = |channel: StandardChannel| {
            let mut player = Player::new(StandardLearner::NonprivateTs, 5, privacy).unwrap();
            let stop = AtomicBool::new(false);
            run_trial(&instance, &channel, &mut player, &course, 7, &stop).unwrap().unwrap()
        };
        assert_eq!(regrets(StandardChannel::Reward), regrets(StandardChannel::Coin));
        assert_ne!(
            regrets(StandardChannel::Reward),
            regrets(StandardChannel::of(Mechanism::Linear, epsilon))
        );
    }
}
