//! Execution of many runs on several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bandana_lab::instance::{Instance, largest};
use bandana_lab::{Contestant, on_threads};

use super::outcome::{DecisionOutcome, Row};
use super::trial::{self, Run, Setting};

/// Settings of a study.
#[derive(Clone, Debug)]
pub struct DecisionStudy {
    /// The instances with their names.
    pub instances: Vec<(String, Instance)>,
    /// The learners, which must have weights.
    pub learners: Vec<Arc<dyn Contestant>>,
    /// Settings of all runs.
    pub setting: Setting,
    /// Number of runs of each learner on each instance.
    pub trials: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

impl DecisionStudy {
    /// Total number of runs.
    pub fn trial_count(&self) -> usize {
        self.instances.len() * self.learners.len() * self.trials
    }

    /// Runs the study. `progress` is called with the number of finished runs. Once `stop` is set,
    /// runs under way are abandoned, and the outcome covers the finished ones.
    ///
    /// # Errors
    /// When a learner fails, or has no weights.
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: impl Fn(usize) + Sync,
    ) -> anyhow::Result<DecisionOutcome> {
        let entries: Vec<(&(String, Instance), &dyn Contestant)> = self
            .instances
            .iter()
            .flat_map(|instance| self.learners.iter().map(move |learner| (instance, &**learner)))
            .collect();
        let finished: Vec<Mutex<Vec<(usize, Run)>>> =
            entries.iter().map(|_| Mutex::default()).collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        on_threads(self.threads, || {
            while let Some(job) = Some(next.fetch_add(1, Ordering::Relaxed))
                .filter(|job| *job < entries.len() * self.trials)
            {
                let (trial, place) = (job / entries.len(), job % entries.len());
                let ((_, instance), learner) = entries[place];
                let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(trial as u64);
                let Some(run) = trial::run(instance, learner, self.setting, seed, stop)? else {
                    return Ok(());
                };
                finished[place].lock().unwrap_or_else(PoisonError::into_inner).push((trial, run));
                progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
            Ok(())
        })?;
        let mut rows = Vec::new();
        for (((name, instance), learner), runs) in entries.into_iter().zip(finished) {
            let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
            runs.sort_by_key(|(trial, _)| *trial);
            let runs: Vec<Run> = runs.into_iter().map(|(_, run)| run).collect();
            let means = instance.means();
            let is_best = |arm: usize| means[arm] >= means[largest(&means)];
            if !runs.is_empty() {
                rows.push(Row::of((name, &learner.name()), &runs, is_best));
            }
        }
        let Setting { epsilon, alpha, horizon } = self.setting;
        Ok(DecisionOutcome {
            epsilon: epsilon.get(),
            confidence: 1.0 - alpha.get(),
            horizon,
            seed: self.seed,
            interrupted: stop.load(Ordering::Relaxed),
            rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use bandana_lab::StandardLearner;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::interval::ErrorLevel;

    use super::*;
    use crate::program::Outcome as _;

    #[test]
    fn top_two_sampling_decides_where_thompson_sampling_earns() {
        let setting = Setting {
            epsilon: Epsilon::new(5.0).unwrap(),
            alpha: ErrorLevel::FIVE_PERCENT,
            horizon: 50_000,
        };
        let study = DecisionStudy {
            instances: vec![("five-arms".to_owned(), Instance::named("five-arms").unwrap())],
            learners: vec![
                Arc::new(StandardLearner::Uniform),
                Arc::new(StandardLearner::LdpTs),
                Arc::new(StandardLearner::TopTwo),
            ],
            setting,
            trials: 20,
            seed: 1,
            threads: 2,
        };
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let [uniform, ldp_ts, top_two] = &outcome.rows[..] else { unreachable!() };
        assert!(ldp_ts.verdicts < 10 && ldp_ts.mean_regret < top_two.mean_regret, "{outcome:?}");
        assert!(top_two.verdicts >= 18, "{outcome:?}");
        assert!(top_two.median_users < uniform.median_users.or(Some(u64::MAX)), "{outcome:?}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("decision.svg");
        outcome.draw(&path.to_str().unwrap().parse().unwrap()).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        assert!(["uniform", "ldp-ts", "top-two", "five-arms"].iter().all(|n| picture.contains(n)));
        // The result does not depend on the threads.
        let alone = DecisionStudy { threads: 1, ..study }.run(&AtomicBool::new(false), |_| {});
        assert_eq!(format!("{:?}", alone.unwrap()), format!("{outcome:?}"));
        // Wrong verdicts have a probability of 5% at most, and come far more rarely.
        assert!(outcome.rows.iter().all(|row| row.wrong <= 1), "{outcome:?}");
    }
}
