//! Users in segments: regret, by how a learner uses the reports of the other segments.

mod outcome;
mod picture;
mod trial;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bandana_shared::epsilon::Epsilon;

use bandana_lab::{Contestant, on_threads};
pub use outcome::{SegmentsOutcome, SegmentsRow};

/// What a learner weighs the arms of a segment by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The reports of all segments, without difference: no context.
    Everything,
    /// Its own reports only.
    Nothing,
    /// Its own, and what the others tell: see `bandana_learners::segments`.
    Shrinkage,
    /// Its own, and what a linear model tells of the segments with some of its values: see
    /// `bandana_learners::features`.
    Features,
}

impl Pooling {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Everything, Self::Nothing, Self::Shrinkage, Self::Features];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Everything => "all segments as one",
            Self::Nothing => "each segment alone",
            Self::Shrinkage => "shrunk towards the others",
            Self::Features => "by features",
        }
    }
}

/// The mean rewards of each arm in each segment.
#[derive(Clone, Debug)]
pub struct SegmentedArms {
    /// The name in tables.
    pub name: &'static str,
    /// For each segment, the means of the arms, 0 to 1. Segments are the combinations of the values
    /// of binary features, so their number is a power of 2.
    pub means: Vec<Vec<f64>>,
}

impl SegmentedArms {
    /// Segments by so many binary features, and four arms: two of which one value of the first
    /// feature likes by .12 more than .5 and the other by .12 less, and two for the second feature.
    fn interaction(name: &'static str, features: u32) -> Self {
        let of = |segment: usize| {
            let sign = |bit: usize| if segment >> bit & 1 == 1 { 0.12 } else { -0.12 };
            vec![0.5 + sign(0), 0.5 - sign(0), 0.5 + sign(1), 0.5 - sign(1)]
        };
        Self { name, means: (0..1 << features).map(of).collect() }
    }

    /// Eight segments by three features, of which two change what is liked.
    pub fn three_features() -> Self {
        Self::interaction("interaction of .12", 3)
    }

    /// 128 segments by seven features, of which two change what is liked.
    pub fn seven_features() -> Self {
        Self::interaction("the same of 7 features", 7)
    }

    /// Eight segments that like two arms by whether their first two values are the same, which is no
    /// sum over features.
    pub fn product() -> Self {
        let of = |segment: usize| {
            let taste = if (segment ^ segment >> 1) & 1 == 1 { 0.12 } else { -0.12 };
            vec![0.5 + taste, 0.5 - taste, 0.5, 0.5]
        };
        Self { name: "no sum over features", means: (0..8).map(of).collect() }
    }

    /// The same arms in eight segments that don't matter.
    pub fn alike() -> Self {
        Self { name: "segments that don't matter", means: vec![vec![0.5, 0.62, 0.5, 0.56]; 8] }
    }

    /// Eight segments that like everything more or less, and the same arm best.
    pub fn levels() -> Self {
        let of = |segment: usize| {
            let level = 0.2 + 0.05 * segment as f64;
            vec![level, level + 0.12, level, level + 0.06]
        };
        Self { name: "segments of other levels", means: (0..8).map(of).collect() }
    }
}

/// A study of users in segments.
#[derive(Clone, Debug)]
pub struct SegmentsStudy {
    /// The arms.
    pub instances: Vec<SegmentedArms>,
    /// Privacy loss bound of one report.
    pub epsilon: Epsilon,
    /// The learner, which must have weights and take evidence of other segments.
    pub learner: Arc<dyn Contestant>,
    /// Number of users, each of a uniformly random segment, with one report.
    pub users: usize,
    /// Number of trials.
    pub trials: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

impl SegmentsStudy {
    /// The number of all trials.
    pub fn trial_count(&self) -> usize {
        self.trials * self.instances.len() * Pooling::ALL.len()
    }

    /// Runs the study. `progress` is called with the number of finished trials. Once `stop` is set,
    /// the trials under way are given up.
    ///
    /// # Errors
    /// When the learner fails, has no weights, or takes no evidence of other segments.
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: &(dyn Fn(usize) + Sync),
    ) -> anyhow::Result<SegmentsOutcome> {
        let instances = self.instances.iter();
        let kinds: Vec<_> =
            instances.flat_map(|arms| Pooling::ALL.map(|pooling| (arms, pooling))).collect();
        let regrets = Mutex::new(vec![Vec::new(); kinds.len()]);
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        on_threads(self.threads, || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let (trial, kind) = (number / kinds.len(), number % kinds.len());
                if trial >= self.trials || stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                // The same users come in the same order, however their reports are used.
                let seed = self.seed + trial as u64;
                let Some(regret) = trial::run(self, kinds[kind], seed, stop)? else {
                    return Ok(());
                };
                let mut regrets = regrets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                regrets[kind].push((trial, regret));
                progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
        })?;
        let regrets = regrets.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(SegmentsOutcome::new(self, &kinds, regrets, stop.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use bandana_lab::StandardLearner;

    use super::*;

    /// The mean regrets with each pooling.
    fn regrets(arms: SegmentedArms, users: usize) -> [f64; 4] {
        let study = SegmentsStudy {
            instances: vec![arms],
            epsilon: Epsilon::new(2.0).unwrap(),
            learner: Arc::new(StandardLearner::LdpTs),
            users,
            trials: 6,
            seed: 1,
            threads: 2,
        };
        let outcome = study.run(&AtomicBool::new(false), &|_| {}).unwrap();
        [0, 1, 2, 3].map(|row: usize| outcome.rows[row].regret_per_user)
    }

    #[test]
    fn what_others_tell_halves_regret_where_segments_are_alike_and_costs_little_where_not() {
        for arms in [SegmentedArms::alike(), SegmentedArms::levels()] {
            let [all, alone, shrunk, _] = regrets(arms, 20_000);
            assert!(shrunk < 0.6 * alone && all < shrunk, "{all} {alone} {shrunk}");
        }
        let [all, alone, shrunk, _] = regrets(SegmentedArms::three_features(), 20_000);
        assert!(shrunk < 1.7 * alone && shrunk < 0.15 * all, "{all} {alone} {shrunk}");
    }
}
