//! Learners of the server in studies by batches.

use bandana_learners::{Evidence, Learner as ServedLearner, LearnerInput};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::policy::Weights;

use crate::channel::reports;
use crate::learner::BatchLearner;
use crate::learner::Setting;

/// A learner whose weights follow from the counts of each arm's symbols.
#[derive(Debug)]
pub(super) struct ServedByBatches {
    learner: ServedLearner,
    alphabet: Alphabet,
    counts: Vec<Vec<u64>>,
    input: LearnerInput,
    weights: Weights,
}

impl ServedByBatches {
    /// A learner without evidence.
    ///
    /// # Errors
    /// When there are too many arms.
    pub(super) fn new(learner: ServedLearner, setting: &Setting) -> anyhow::Result<Self> {
        let channel = reports(setting.privacy.mechanism, setting.privacy.epsilon);
        let alphabet = channel.alphabet();
        let counts = vec![vec![0; alphabet.symbols().count()]; setting.arms];
        let evidence = counts.iter().map(|counts| evidence(counts, alphabet)).collect();
        let input = LearnerInput::of(evidence, &vec![true; setting.arms], channel)
            .with_ahead(setting.batch as f64);
        let weights = learner.weights(&input)?;
        Ok(Self { learner, alphabet, counts, input, weights })
    }

    fn renew(&mut self, next: u64) -> anyhow::Result<()> {
        self.input.ahead = next as f64;
        self.weights = self.learner.weights(&self.input)?;
        Ok(())
    }
}

fn evidence(counts: &[u64], alphabet: Alphabet) -> Evidence {
    Evidence::of_counts(&counts.iter().map(|count| *count as f64), alphabet)
}

impl BatchLearner for ServedByBatches {
    fn weights(&self) -> &Weights {
        &self.weights
    }

    fn learn(&mut self, batch: &[Vec<u64>], next: u64) -> anyhow::Result<()> {
        for ((arm, counts), new) in self.input.arms.iter_mut().zip(&mut self.counts).zip(batch) {
            for (count, new) in counts.iter_mut().zip(new) {
                *count += new;
            }
            *arm = evidence(counts, self.alphabet);
        }
        self.renew(next)
    }

    fn replace(&mut self, evidence: Vec<Evidence>, next: u64) -> anyhow::Result<()> {
        self.input.arms = evidence;
        self.renew(next)
    }
}
