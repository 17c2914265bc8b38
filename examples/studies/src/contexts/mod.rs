//! Private contexts: regret of devices that choose by features they never tell.

mod instance;
mod outcome;
mod picture;
mod trial;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bandana_shared::epsilon::Epsilon;
use bandana_shared::participation::Millionths;

use bandana_lab::on_threads;
pub use instance::ContextualArms;
pub use outcome::{ContextOutcome, ContextRow};

/// A study of private contexts.
#[derive(Clone, Debug)]
pub struct ContextStudy {
    /// The arms.
    pub instances: Vec<ContextualArms>,
    /// Privacy loss bounds of one report.
    pub epsilons: Vec<Epsilon>,
    /// The share of the assignments that explore.
    pub exploration: Millionths,
    /// Number of users, each of a random context, with one assignment.
    pub users: usize,
    /// Number of trials, each with arms of its own.
    pub trials: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

impl ContextStudy {
    /// The number of all trials.
    pub fn trial_count(&self) -> usize {
        self.trials * self.instances.len() * self.epsilons.len()
    }

    /// Runs the study. `progress` is called with the number of finished trials. Once `stop` is set,
    /// the trials under way are given up.
    ///
    /// # Errors
    /// For an exploration of nobody or everybody.
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: &(dyn Fn(usize) + Sync),
    ) -> anyhow::Result<ContextOutcome> {
        let instances = self.instances.iter();
        let of_arms = |arms| self.epsilons.iter().map(move |epsilon| (arms, *epsilon));
        let kinds: Vec<(&ContextualArms, Epsilon)> = instances.flat_map(of_arms).collect();
        let results = Mutex::new(vec![Vec::new(); kinds.len()]);
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        on_threads(self.threads, || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let (trial, kind) = (number / kinds.len(), number % kinds.len());
                if trial >= self.trials || stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                // The same arms and contexts come, whatever the epsilon.
                let seed = self.seed + trial as u64;
                let Some(regrets) = trial::run(self, kinds[kind], seed, stop)? else {
                    return Ok(());
                };
                let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                results[kind].push((trial, regrets));
                progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
        })?;
        let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(ContextOutcome::new(self, &kinds, results, stop.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of the contexts' worth that the last policy has.
    fn last_policy(arms: ContextualArms, epsilon: f64, users: usize) -> f64 {
        let study = ContextStudy {
            instances: vec![arms],
            epsilons: vec![Epsilon::new(epsilon).unwrap()],
            exploration: Millionths::from_share(0.2).unwrap(),
            users,
            trials: 4,
            seed: 1,
            threads: 2,
        };
        study.run(&AtomicBool::new(false), &|_| {}).unwrap().rows[0].last_policy
    }

    #[test]
    fn a_few_features_are_learnt_and_ones_that_do_not_matter_cost_little() {
        let few = last_policy(ContextualArms::independent(3), 4.0, 60_000);
        assert!(few > 0.7, "{few}");
        // What is left of the best arm's advantage over the mean of all arms; there is no more.
        let none = last_policy(ContextualArms::useless(15), 4.0, 60_000);
        assert!(none > -0.1, "{none}");
    }
}
