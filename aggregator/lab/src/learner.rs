//! Learners, which choose the arms of a trial and learn from signals.

use std::fmt::Debug;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use bandana_learners::Evidence;
use bandana_learners::bounds::BoundArm;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::policy::Weights;

use crate::channel::{Channel, StandardChannel};
use crate::random::Random;

/// The privacy of a study's rewards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Privacy {
    /// The mechanism: a curve for bits, or levels.
    pub mechanism: Mechanism,
    /// The privacy loss bound of one report, in nats.
    pub epsilon: Epsilon,
}

/// The facts that are known before the first round of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Number of arms.
    pub arms: usize,
    /// The privacy of the rewards.
    pub privacy: Privacy,
    /// Number of reports that arrive together.
    pub batch: usize,
    /// Whether a batch is of one arm, and its reports come only once it is full. That is so for
    /// shuffled reports.
    pub fills_batches: bool,
}

/// A learner during a trial.
///
/// Each round it chooses an arm. The signal of that arm's reward comes later, with those of its
/// batch. [The crate's page](crate) has an example.
pub trait Learner: Send {
    /// Chooses an arm, from 0; its report is pending.
    fn choose(&mut self, rng: &mut Random) -> usize;

    /// Processes the signal of a report: 0 or 1 for private bits, 0 to 1 for levels.
    ///
    /// # Errors
    /// When the learner fails, which ends the study.
    fn learn(&mut self, arm: usize, signal: f64) -> anyhow::Result<()>;

    /// Ends a batch: all its reports have arrived.
    ///
    /// # Errors
    /// When the learner fails, which ends the study.
    fn end_batch(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl<L: Learner + ?Sized> Learner for Box<L> {
    #[inline]
    fn choose(&mut self, rng: &mut Random) -> usize {
        (**self).choose(rng)
    }

    #[inline]
    fn learn(&mut self, arm: usize, signal: f64) -> anyhow::Result<()> {
        (**self).learn(arm, signal)
    }

    fn end_batch(&mut self) -> anyhow::Result<()> {
        (**self).end_batch()
    }
}

/// A learner that draws all arms of a batch from weights that are fixed at its start.
pub trait BatchLearner {
    /// The weights of the batch under way.
    fn weights(&self) -> &Weights;

    /// Processes a batch. `counts` has, for each arm, the number of signals with each symbol: for
    /// bits, zeros and ones. The next batch has `next` rounds, where 0 means unknown.
    ///
    /// # Errors
    /// When the learner fails, which ends the study.
    fn learn(&mut self, counts: &[Vec<u64>], next: u64) -> anyhow::Result<()>;

    /// Replaces the evidence on each arm, for evidence that comes partly from elsewhere, such as
    /// other segments of users. The next batch has `next` rounds, where 0 means unknown.
    ///
    /// # Errors
    /// When the learner fails, or has no use for such evidence, as by default.
    fn replace(&mut self, _evidence: Vec<Evidence>, _next: u64) -> anyhow::Result<()> {
        bail!("this learner learns from its own reports only")
    }
}

/// A participant of a study: makes a learner for each trial.
pub trait Contestant: Debug + Send + Sync {
    /// The name in results, different from the others of a study.
    fn name(&self) -> String;

    /// Makes a learner without evidence.
    ///
    /// # Errors
    /// When there can be none with this setting.
    fn learner(&self, setting: &Setting) -> anyhow::Result<Box<dyn Learner>>;

    /// The same learner as a server runs it: it draws the arms of a batch from weights computed at
    /// the start of the batch. `None` if servers have no such learner.
    ///
    /// # Errors
    /// When there can be none with this setting.
    fn served(&self, _setting: &Setting) -> anyhow::Result<Option<Box<dyn Learner>>> {
        Ok(None)
    }

    /// The same learner for studies by batches, or `None` if it does not play by weights. The first
    /// batch has the size of the setting.
    ///
    /// # Errors
    /// When there can be none with this setting.
    fn by_batches(&self, _setting: &Setting) -> anyhow::Result<Option<Box<dyn BatchLearner>>> {
        Ok(None)
    }

    /// [`Self::by_batches`], for studies that need it.
    ///
    /// # Errors
    /// When there can be none.
    fn batch_learner(&self, setting: &Setting) -> anyhow::Result<Box<dyn BatchLearner>> {
        self.by_batches(setting)?.with_context(|| {
            let name = self.name();
            format!(
                "{name} chooses arm by arm; by batches, only learners that servers have can be \
                 played"
            )
        })
    }

    /// The channel from which it learns. By default it is that of a device.
    fn channel(&self, privacy: Privacy) -> Arc<dyn Channel> {
        Arc::new(StandardChannel::of(privacy.mechanism, privacy.epsilon))
    }

    /// The name of the channel in results, if it is not the mechanism of the study. A study runs
    /// such a contestant once for each ε.
    fn own_channel(&self) -> Option<&'static str> {
        None
    }

    /// Whether the channel protects nothing. A study runs such a contestant once.
    fn is_nonprivate(&self) -> bool {
        false
    }

    /// The proven bound on its regret after `horizon` rounds, or `None` if there is none or it is
    /// not finite.
    fn upper_bound(&self, _arms: &[BoundArm], _horizon: u64) -> Option<f64> {
        None
    }
}
