//! The rows of a study's outcome, from the regrets of its trials.

use bandana_learners::bounds::{BoundArm, lower_bound};
use bandana_shared::accounting::shuffling::Shuffling;
use bandana_shared::curve::Mechanism;

use super::Study;
use super::entry::Entry;
use crate::learner::Privacy;
use crate::outcome::{Row, StudyOutcome, Summary, paired_ratio};

/// The finished trials of an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Finished {
    /// Number of each trial, and its regret at every checkpoint.
    pub(super) trials: Vec<(usize, Vec<f64>)>,
    pub(super) seconds: f64,
}

impl Study {
    /// The arms as inputs of bounds; `None`: the channel has none.
    fn bound_arms(&self, entry: Entry<'_>) -> Option<Vec<BoundArm>> {
        let channel = entry.contestant.channel(entry.privacy);
        let arm = |(place, mean)| {
            let private_mean = channel.private_mean(&*self.bandit, place)?;
            Some(BoundArm { mean, private_mean })
        };
        self.bandit.means().into_iter().enumerate().map(arm).collect()
    }

    /// The rows of all entries with a finished trial.
    pub(super) fn outcome(
        &self,
        entries: &[Entry<'_>],
        mut finished: Vec<Finished>,
        interrupted: bool,
    ) -> StudyOutcome {
        for finished in &mut finished {
            finished.trials.sort_by_key(|(trial, _)| *trial);
        }
        let mut rows = Vec::new();
        for (entry, done) in entries.iter().zip(&finished) {
            if done.trials.is_empty() {
                continue;
            }
            let base = entries.iter().position(|other| self.is_base(*other, entry.privacy));
            let base = base.unwrap_or_default();
            let base = (entries[base], &finished[base]);
            let arms = self.bound_arms(*entry);
            for checkpoint in 0..self.course.checkpoints.len() {
                rows.push(self.row(*entry, done, base, arms.as_deref(), checkpoint));
            }
        }
        let attack = (self.course.dishonest > 0.0)
            .then(|| format!("{:?}", self.course.attack).to_lowercase());
        StudyOutcome {
            instance: self.name.clone(),
            seed: self.seed,
            batch: self.course.batch,
            shuffle: self.course.shuffle,
            delta: self.course.shuffle.map(|_| self.delta.get()),
            served: self.served,
            by_batches: self.course.by_batches,
            dishonest: self.course.dishonest,
            attack,
            interrupted,
            rows,
        }
    }

    /// Whether this entry is the base of ratios for learners with such privacy. Levels are compared
    /// with the first channel, which may be one of bits.
    fn is_base(&self, entry: Entry<'_>, privacy: Privacy) -> bool {
        let Entry { contestant, privacy: own } = entry;
        let is_alike =
            own.mechanism == privacy.mechanism || matches!(privacy.mechanism, Mechanism::Kary(_));
        self.contestants.first().is_some_and(|first| first.name() == contestant.name())
            && (contestant.is_nonprivate() || own.epsilon == privacy.epsilon)
            && (contestant.own_channel().is_some() || is_alike)
    }

    /// The loss of a report of this entry once it is shuffled. There is a certificate for bits
    /// only.
    fn central_epsilon(&self, entry: Entry<'_>) -> Option<f64> {
        let floor = entry.contestant.channel(entry.privacy).floor()?;
        let shuffled = Shuffling::new(floor, self.course.shuffle?).ok()?;
        Some(shuffled.loss(self.delta).get())
    }

    /// `arms` are the inputs of bounds, if there are any.
    fn row(
        &self,
        entry: Entry<'_>,
        done: &Finished,
        (base_entry, base): (Entry<'_>, &Finished),
        arms: Option<&[BoundArm]>,
        checkpoint: usize,
    ) -> Row {
        let horizon = self.course.checkpoints[checkpoint];
        let regrets: Vec<f64> =
            done.trials.iter().map(|(_, regrets)| regrets[checkpoint]).collect();
        let (mine, bases): (Vec<f64>, Vec<f64>) = done
            .trials
            .iter()
            .filter_map(|(trial, regrets)| {
                let place = base.trials.binary_search_by_key(trial, |(trial, _)| *trial).ok()?;
                Some((regrets[checkpoint], base.trials[place].1[checkpoint]))
            })
            .unzip();
        let least = arms.map(lower_bound).filter(|factor| factor.is_finite());
        let summary = Summary::of(&regrets);
        let rounds = self.course.checkpoints.last().copied().unwrap_or(0) as f64;
        let ratio = paired_ratio(&mine, &bases);
        Row {
            learner: entry.contestant.name(),
            mechanism: entry.mechanism_name(),
            epsilon: entry.epsilon(),
            central_epsilon: self.central_epsilon(entry),
            horizon,
            trials: regrets.len(),
            mean_regret: summary.mean,
            ci95: summary.ci95,
            median: summary.median,
            p95: summary.p95,
            p99: summary.p99,
            lower_bound: least.map(|factor| factor * (horizon as f64).ln()),
            upper_bound: arms.and_then(|arms| entry.contestant.upper_bound(arms, horizon)),
            ratio: ratio.map(|(ratio, _)| ratio),
            ratio_to: base_entry.to_string(),
            ratio_ci95: ratio.map(|(_, half)| half),
            rounds_per_second: rounds * done.trials.len() as f64 / done.seconds,
        }
    }
}
