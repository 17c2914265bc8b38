//! Wrong verdicts where a learner moves traffic between groups and over time, and users until a verdict.

pub mod instance;
mod outcome;
mod picture;
pub mod table;
pub mod trial;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bandana_lab::on_threads;
use instance::VerdictInstance;
pub use outcome::{VerdictOutcome, VerdictRow};
use trial::VerdictRun;

/// A study of verdicts.
#[derive(Clone, Debug)]
pub struct VerdictStudy {
    /// The instances.
    pub instances: Vec<VerdictInstance>,
    /// Number of runs of each instance.
    pub trials: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

impl VerdictStudy {
    /// The number of all runs.
    pub fn trial_count(&self) -> usize {
        self.trials * (self.instances.len() + table::SETTINGS.len())
    }

    /// Runs the study. `progress` is called with the number of finished runs. Once `stop` is set, no
    /// further run begins.
    ///
    /// # Errors
    /// When a learner fails.
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: impl Fn(usize) + Sync,
    ) -> anyhow::Result<VerdictOutcome> {
        let count = self.instances.len();
        let runs: Vec<Mutex<Vec<VerdictRun>>> =
            self.instances.iter().map(|_| Mutex::default()).collect();
        let users: Vec<Mutex<Vec<table::UsersRun>>> =
            table::SETTINGS.iter().map(|_| Mutex::default()).collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        on_threads(self.threads, || {
            while let Some(job) = Some(next.fetch_add(1, Ordering::Relaxed))
                .filter(|job| *job < self.trial_count() && !stop.load(Ordering::Relaxed))
            {
                let (trial, place) = (job / (count + users.len()), job % (count + users.len()));
                let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(trial as u64);
                match self.instances.get(place) {
                    Some(instance) => held(&runs[place]).push(trial::run(instance, seed)?),
                    None => held(&users[place - count])
                        .push(table::users(&table::SETTINGS[place - count], seed)?),
                }
                progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
            Ok(())
        })?;
        let rows = self.instances.iter().zip(runs);
        let rows = rows.map(|(one, runs)| VerdictRow::of(one.name, &held(&runs))).collect();
        let settings = table::SETTINGS.iter().zip(users);
        let table = settings.map(|(one, users)| one.row(&mut held(&users))).collect();
        let interrupted = stop.load(Ordering::Relaxed);
        Ok(VerdictOutcome { seed: self.seed, interrupted, rows, table })
    }
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
