//! A study: many trials of learners on one bandit, on several threads.

mod entry;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::ensure;
use bandana_shared::accounting::delta::Delta;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use entry::Entry;
use rows::Finished;

use crate::bandit::Bandit;
use crate::batches::{SymbolLaws, batch_after, run_by_batches};
use crate::learner::{Contestant, Privacy, Setting};
use crate::outcome::StudyOutcome;
use crate::threads::on_threads;
use crate::trial::{Course, run_trial};

/// Settings of a study.
#[derive(Clone, Debug)]
pub struct Study {
    /// Name of the instance.
    pub name: String,
    /// The arms.
    pub bandit: Arc<dyn Bandit>,
    /// The curves.
    pub mechanisms: Vec<Mechanism>,
    /// The privacy loss bounds of one report, in nats.
    pub epsilons: Vec<Epsilon>,
    /// The learners, of different names; ratios are to the first one.
    pub contestants: Vec<Arc<dyn Contestant>>,
    /// Number of trials of each learner on each channel.
    pub trials: usize,
    /// Number of the first trial that is run, from 0. Those before it are left to others.
    pub first_trial: usize,
    /// Settings of each trial.
    pub course: Course,
    /// The δ of the central loss of shuffled reports.
    pub delta: Delta,
    /// Whether arms are drawn from policies as a server would serve them.
    pub served: bool,
    /// The seed of all randomness.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
    /// The function that is called on each thread with all of its work. A program whose learners
    /// need a prepared thread, such as an interpreter of another language, prepares it here, once
    /// for all trials.
    pub host: fn(&mut (dyn FnMut() + Send)),
}

/// A finished trial, to be kept. A study that gets it does not run it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinishedTrial {
    /// Name of the learner.
    pub learner: String,
    /// Name of the mechanism, as in rows.
    pub mechanism: String,
    /// The privacy loss bound of one report, in nats; none without privacy.
    pub epsilon: Option<f64>,
    /// Number of the trial, from 0.
    pub trial: usize,
    /// The pseudo-regret at every checkpoint.
    pub regrets: Vec<f64>,
    /// Processor time, in seconds.
    pub seconds: f64,
    /// A digest of everything that the regrets depend on, except the number of the trial.
    pub conditions: String,
}

impl Study {
    /// A study of these learners with privacy of one kind: 50 trials of 100,000 rounds on one thread,
    /// with seed 1.
    pub fn new(
        name: impl Into<String>,
        bandit: Arc<dyn Bandit>,
        privacy: Privacy,
        contestants: Vec<Arc<dyn Contestant>>,
    ) -> Self {
        Self {
            name: name.into(),
            bandit,
            mechanisms: vec![privacy.mechanism],
            epsilons: vec![privacy.epsilon],
            contestants,
            trials: 50,
            first_trial: 0,
            course: Course::to(100_000),
            delta: Delta::new(1e-6).unwrap_or(Delta::ZERO),
            served: false,
            seed: 1,
            threads: 1,
            host: |work| work(),
        }
    }

    /// Total number of trials.
    pub fn trial_count(&self) -> usize {
        self.entries().len() * self.trials
    }

    /// Each learner on each distinct channel.
    fn entries(&self) -> Vec<Entry<'_>> {
        let mut entries = Vec::new();
        for (place, epsilon) in self.epsilons.iter().enumerate() {
            for (turn, mechanism) in self.mechanisms.iter().enumerate() {
                let privacy = Privacy { mechanism: *mechanism, epsilon: *epsilon };
                let is_new = |contestant: &&dyn Contestant| {
                    let known = contestant.own_channel().is_some() && turn > 0
                        || contestant.is_nonprivate() && place > 0;
                    !known
                };
                let contestants = self.contestants.iter().map(|one| &**one).filter(is_new);
                entries.extend(contestants.map(|contestant| Entry { contestant, privacy }));
            }
        }
        entries
    }

    /// A digest of all that the regrets of an entry depend on beside the number of a trial: of the
    /// bandit, the learner, its privacy and the course, as they are shown for debugging.
    fn conditions(&self, entry: Entry<'_>) -> String {
        let Self { bandit, course, served, seed, .. } = self;
        let digest = Sha256::digest(format!("{bandit:?} {entry:?} {course:?} {served} {seed}"));
        let (half, _) = digest.split_at(16);
        half.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// Runs the study. `progress` is called with the number of finished trials. Once `stop` is set,
    /// trials under way are abandoned, and the outcome covers the finished ones.
    ///
    /// # Errors
    /// When a learner fails, or has no served form; when two have the same name.
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: impl Fn(usize) + Sync,
    ) -> anyhow::Result<StudyOutcome> {
        self.resume(Vec::new(), stop, |_, done| {
            progress(done);
            Ok(())
        })
    }

    /// Runs the trials of the study that are not among `kept`. It calls `finished` with each trial,
    /// one at a time, and with the number of those that are done. With the trials of an interrupted
    /// study, the outcome is the same as without the interruption. Trials of other studies are
    /// ignored. If a learner or a bandit now behaves otherwise, its `Debug` output or its name must
    /// differ too.
    ///
    /// # Errors
    /// As [`Self::run`]; those of `finished`, which is not called again then.
    pub fn resume(
        &self,
        kept: Vec<FinishedTrial>,
        stop: &AtomicBool,
        finished: impl FnMut(&FinishedTrial, usize) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<StudyOutcome> {
        let entries = self.entries();
        self.check(&entries)?;
        let conditions: Vec<String> = entries.iter().map(|one| self.conditions(*one)).collect();
        let laws = self.symbol_laws(&entries)?;
        let kept = self.of_this_study(kept, &conditions);
        let is_kept = |place, trial| kept.contains_key(&(place, trial));
        let done = Mutex::new((Vec::new(), finished));
        let first = self.first_trial.saturating_mul(entries.len());
        let (next, failed) = (AtomicUsize::new(first), AtomicBool::new(false));
        let work = || -> anyhow::Result<()> {
            // One trial of every entry, then the next one, so that an interrupted study has about
            // equally many of each.
            while let Some(job) = Some(next.fetch_add(1, Ordering::Relaxed))
                .filter(|job| *job < entries.len() * self.trials)
            {
                let (trial, place) = (job / entries.len(), job % entries.len());
                if is_kept(place, trial) {
                    continue;
                }
                let (entry, start) = (entries[place], processor_seconds());
                let law = laws[place].as_ref();
                let regrets = self.run_trial(entry, law, trial as u64, stop)?;
                // A learner may know of the flag, and have gone on with anything.
                let is_over = stop.load(Ordering::Relaxed);
                let Some(regrets) = regrets.filter(|_| !is_over) else { return Ok(()) };
                let one = FinishedTrial {
                    learner: entry.contestant.name(),
                    mechanism: entry.mechanism_name(),
                    epsilon: entry.epsilon(),
                    trial,
                    regrets,
                    seconds: processor_seconds() - start,
                    conditions: conditions[place].clone(),
                };
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                let (results, finished) = &mut *done;
                if failed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let told = finished(&one, kept.len() + results.len() + 1);
                failed.store(told.is_err(), Ordering::Relaxed);
                told?;
                results.push(((place, trial), one));
            }
            Ok(())
        };
        let hosted = || {
            // A host that does not call the work has done none.
            let mut result = Ok(());
            (self.host)(&mut || result = work());
            result
        };
        on_threads(self.threads, hosted)?;
        let (results, _) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut of_entries: Vec<Finished> = entries.iter().map(|_| Finished::default()).collect();
        for ((place, trial), done) in kept.into_iter().chain(results) {
            of_entries[place].seconds += done.seconds;
            of_entries[place].trials.push((trial, done.regrets));
        }
        Ok(self.outcome(&entries, of_entries, stop.load(Ordering::Relaxed)))
    }

    /// For each entry, the laws of its signals if it is played by batches: to compute them takes longer
    /// than a trial.
    fn symbol_laws(&self, entries: &[Entry<'_>]) -> anyhow::Result<Vec<Option<SymbolLaws>>> {
        let laws = |entry: &Entry<'_>| {
            let channel = entry.contestant.channel(entry.privacy);
            let of = || SymbolLaws::of(&*self.bandit, &*channel);
            self.course.by_batches.then(of).transpose()
        };
        entries.iter().map(laws).collect()
    }

    /// The trials of this study among others, which [`Self::resume`] takes. If a trial occurs
    /// twice, the last one counts.
    pub fn trials_among(&self, kept: Vec<FinishedTrial>) -> Vec<FinishedTrial> {
        let conditions: Vec<String> =
            self.entries().into_iter().map(|one| self.conditions(one)).collect();
        self.of_this_study(kept, &conditions).into_values().collect()
    }

    /// The trials of this study among others, by the place of their entry and their number.
    fn of_this_study(
        &self,
        kept: Vec<FinishedTrial>,
        conditions: &[String],
    ) -> BTreeMap<(usize, usize), FinishedTrial> {
        let place = |one: FinishedTrial| {
            let place = conditions.iter().position(|known| *known == one.conditions)?;
            let fits =
                one.trial < self.trials && one.regrets.len() == self.course.checkpoints.len();
            fits.then_some(((place, one.trial), one))
        };
        kept.into_iter().filter_map(place).collect()
    }

    fn check(&self, entries: &[Entry<'_>]) -> anyhow::Result<()> {
        let Course { by_batches, shuffle, dishonest, .. } = self.course;
        ensure!(
            !by_batches || shuffle.is_none() && dishonest <= 0.0,
            "by batches, there are no shuffled reports and no dishonest people; leave one of them \
             out"
        );
        for (place, contestant) in self.contestants.iter().enumerate() {
            let name = contestant.name();
            let is_new = self.contestants[..place].iter().all(|other| other.name() != name);
            ensure!(is_new, "two learners of the study are named {name:?}; names must differ");
            if let (true, Some(entry)) = (self.served, entries.first()) {
                let served = contestant.served(&self.setting(entry.privacy))?;
                ensure!(served.is_some(), "a server has no learner {name}");
            }
            if let (true, Some(entry)) = (self.course.by_batches, entries.first()) {
                contestant.batch_learner(&self.setting(entry.privacy))?;
            }
        }
        Ok(())
    }

    fn setting(&self, privacy: Privacy) -> Setting {
        let Course { batch, shuffle, by_batches, .. } = self.course;
        let first = || usize::try_from(batch_after(0, &self.course)).unwrap_or(usize::MAX);
        let batch = if by_batches { first() } else { batch };
        Setting {
            arms: self.bandit.means().len(),
            privacy,
            batch: shuffle.map_or(batch, |size| size as usize),
            fills_batches: shuffle.is_some(),
        }
    }

    fn run_trial(
        &self,
        entry: Entry<'_>,
        laws: Option<&SymbolLaws>,
        trial: u64,
        stop: &AtomicBool,
    ) -> anyhow::Result<Option<Vec<f64>>> {
        let setting = self.setting(entry.privacy);
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(trial);
        if let Some(laws) = laws {
            let mut learner = entry.contestant.batch_learner(&setting)?;
            return run_by_batches(&*self.bandit, laws, &mut *learner, &self.course, seed, stop);
        }
        let served = if self.served { entry.contestant.served(&setting)? } else { None };
        let mut learner = match served {
            Some(served) => served,
            None => entry.contestant.learner(&setting)?,
        };
        let channel = entry.contestant.channel(entry.privacy);
        run_trial(&*self.bandit, &*channel, &mut *learner, &self.course, seed, stop)
    }
}

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
