//! A study: many trials of learners on one bandit, on several threads.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::ensure;
use bandana_learners::bounds::{BoundArm, lower_bound};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::shuffling::Shuffling;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::bandit::Bandit;
use crate::learner::{Contestant, Privacy, Setting};
use crate::outcome::{Row, StudyOutcome, Summary, paired_ratio};
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
    /// The privacy loss bounds.
    pub epsilons: Vec<Epsilon>,
    /// The learners, of different names; ratios are to the first one.
    pub contestants: Vec<Arc<dyn Contestant>>,
    /// Number of trials of each learner on each channel.
    pub trials: usize,
    /// Settings of each trial.
    pub course: Course,
    /// The δ that the central loss of shuffled reports is stated with.
    pub delta: Delta,
    /// Whether arms are drawn from policies as a server would serve them.
    pub served: bool,
    /// The seed of all randomness.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

/// A learner on a channel.
#[derive(Clone, Copy, Debug)]
struct Entry<'s> {
    contestant: &'s dyn Contestant,
    privacy: Privacy,
}

impl Entry<'_> {
    fn mechanism_name(self) -> String {
        match (self.contestant.own_channel(), self.privacy.mechanism) {
            (Some(own), _) => own.to_owned(),
            (None, Mechanism::Kary(alphabet)) => format!("k-level, {} levels", alphabet.len()),
            (None, mechanism) => mechanism.name().to_owned(),
        }
    }

    fn epsilon(self) -> Option<f64> {
        (!self.contestant.is_nonprivate()).then_some(self.privacy.epsilon.get())
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.contestant.name(), self.mechanism_name())?;
        self.epsilon().map_or(Ok(()), |epsilon| write!(formatter, ", {epsilon}"))
    }
}

/// A trial that is done, to be kept: a study that is given it does not run it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinishedTrial {
    /// The learner, its mechanism and its ε, as rows name what their ratio is to.
    pub entry: String,
    /// Number of the trial, from 0.
    pub trial: usize,
    /// What the study's result depends on beside the entry; trials of others are not taken.
    pub settings: String,
    /// The pseudo-regret at every checkpoint.
    pub regrets: Vec<f64>,
    /// Processor time.
    pub seconds: f64,
}

/// The finished trials of an entry.
#[derive(Clone, Debug, Default)]
struct Finished {
    /// Number of each trial, and its regret at every checkpoint.
    trials: Vec<(usize, Vec<f64>)>,
    seconds: f64,
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
            course: Course::to(100_000),
            delta: Delta::new(1e-6).unwrap_or(Delta::ZERO),
            served: false,
            seed: 1,
            threads: 1,
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

    /// What a trial's regrets depend on beside its entry and its number.
    fn settings(&self) -> String {
        let Self { name, course, served, seed, .. } = self;
        format!("{name}, seed {seed}, served {served}, {course:?}")
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
        let done = AtomicUsize::new(0);
        self.resume(Vec::new(), stop, |_| {
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            Ok(())
        })
    }

    /// Runs the trials of the study that are not among `kept`, and calls `finished` with each, so that
    /// it can be kept: with those of a study that was interrupted, the outcome is the same as if it
    /// had not been. Trials of other studies are left aside.
    ///
    /// # Errors
    /// As [`Self::run`], and those of `finished`.
    pub fn resume(
        &self,
        kept: Vec<FinishedTrial>,
        stop: &AtomicBool,
        finished: impl Fn(&FinishedTrial) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<StudyOutcome> {
        let entries = self.entries();
        self.check(&entries)?;
        let (names, settings): (Vec<String>, _) =
            (entries.iter().map(ToString::to_string).collect(), self.settings());
        let places: HashMap<&str, usize> = names.iter().map(|name| &**name).zip(0..).collect();
        let (trials, checkpoints) = (self.trials, self.course.checkpoints.len());
        let mut known: HashMap<(usize, usize), FinishedTrial> = HashMap::new();
        for one in kept {
            let fits = one.settings == settings && one.regrets.len() == checkpoints;
            if let (Some(place), true) = (places.get(&*one.entry), fits && one.trial < trials) {
                known.insert((*place, one.trial), one);
            }
        }
        let results = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        let work = || -> anyhow::Result<()> {
            // One trial of every entry, then the next one, so that an interrupted study has about
            // equally many of each.
            while let Some(job) = Some(next.fetch_add(1, Ordering::Relaxed))
                .filter(|job| *job < entries.len() * trials)
            {
                let (trial, place) = (job / entries.len(), job % entries.len());
                if known.contains_key(&(place, trial)) {
                    continue;
                }
                let start = processor_seconds();
                let Some(regrets) = self.run_trial(entries[place], trial as u64, stop)? else {
                    return Ok(());
                };
                let seconds = processor_seconds() - start;
                let (entry, settings) = (names[place].clone(), settings.clone());
                let done = FinishedTrial { entry, trial, settings, regrets, seconds };
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                finished(&done)?;
                results.push((place, done));
            }
            Ok(())
        };
        on_threads(self.threads, work)?;
        let mut of_entries: Vec<Finished> = entries.iter().map(|_| Finished::default()).collect();
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let known = known.into_iter().map(|((place, _), done)| (place, done));
        for (place, done) in known.chain(results) {
            of_entries[place].seconds += done.seconds;
            of_entries[place].trials.push((done.trial, done.regrets));
        }
        Ok(self.outcome(&entries, of_entries, stop.load(Ordering::Relaxed)))
    }

    fn check(&self, entries: &[Entry<'_>]) -> anyhow::Result<()> {
        for (place, contestant) in self.contestants.iter().enumerate() {
            let name = contestant.name();
            let is_new = self.contestants[..place].iter().all(|other| other.name() != name);
            ensure!(is_new, "two learners of the study are named {name:?}; names must differ");
            if let (true, Some(entry)) = (self.served, entries.first()) {
                let served = contestant.served(&self.setting(entry.privacy))?;
                ensure!(served.is_some(), "a server has no learner {name}");
            }
        }
        Ok(())
    }

    fn setting(&self, privacy: Privacy) -> Setting {
        let Course { batch, shuffle, .. } = self.course;
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
        trial: u64,
        stop: &AtomicBool,
    ) -> anyhow::Result<Option<Vec<f64>>> {
        let setting = self.setting(entry.privacy);
        let served = if self.served { entry.contestant.served(&setting)? } else { None };
        let mut learner = match served {
            Some(served) => served,
            None => entry.contestant.learner(&setting)?,
        };
        let channel = entry.contestant.channel(entry.privacy);
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(trial);
        run_trial(&*self.bandit, &*channel, &mut *learner, &self.course, seed, stop)
    }

    /// The arms as inputs of bounds; `None`: the channel has none.
    fn bound_arms(&self, entry: Entry<'_>) -> Option<Vec<BoundArm>> {
        let channel = entry.contestant.channel(entry.privacy);
        let arm = |(place, mean)| {
            let private_mean = channel.private_mean(&*self.bandit, place)?;
            Some(BoundArm { mean, private_mean })
        };
        self.bandit.means().into_iter().enumerate().map(arm).collect()
    }

    fn outcome(
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

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Instance;
    use crate::standard::StandardLearner;
    use crate::trial::Attack;
    use bandana_shared::accounting::guarantee::Guarantee;
    use bandana_shared::accounting::loss::PrivacyLoss;
    use bandana_shared::accounting::shuffling::largest_local_loss;
    use bandana_shared::alphabet::Alphabet;

    fn study(learners: &[StandardLearner], horizon: u64, trials: usize) -> Study {
        let privacy = Privacy { mechanism: Mechanism::Linear, epsilon: Epsilon::new(2.0).unwrap() };
        let bandit = Arc::new(Instance::paper_20());
        Study {
            mechanisms: vec![Mechanism::Linear, Mechanism::Exponential],
            trials,
            course: Course::to(horizon),
            seed: 3,
            threads: 2,
            ..Study::new("paper-20", bandit, privacy, these(learners))
        }
    }

    fn these(learners: &[StandardLearner]) -> Vec<Arc<dyn Contestant>> {
        learners.iter().map(|one| Arc::new(*one) as Arc<dyn Contestant>).collect()
    }

    /// The results that a seed determines: all but the speed.
    fn regrets(outcome: &StudyOutcome) -> Vec<(String, String, u64, f64, f64)> {
        let rows = outcome.rows.iter();
        rows.map(|r| (r.learner.clone(), r.mechanism.clone(), r.horizon, r.mean_regret, r.p99))
            .collect()
    }

    #[test]
    fn a_seed_fixes_the_result_whatever_the_threads() {
        let all: Vec<StandardLearner> = StandardLearner::all().collect();
        let two = study(&all, 300, 2);
        let one = Study { threads: 1, ..two.clone() };
        let stop = AtomicBool::new(false);
        let outcome = two.run(&stop, |_| {}).unwrap();
        assert_eq!(regrets(&outcome), regrets(&one.run(&stop, |_| {}).unwrap()));
        // Learners without a curve are studied once, the others with each of two curves.
        let curveless = all.iter().filter(|contestant| contestant.own_channel().is_some()).count();
        let entries = 2 * (all.len() - curveless) + curveless;
        assert_eq!(outcome.rows.len(), entries * one.course.checkpoints.len());
        let other = Study { seed: 4, ..one };
        assert_ne!(regrets(&outcome), regrets(&other.run(&stop, |_| {}).unwrap()));
    }

    #[test]
    fn levels_tell_more_than_bits_at_a_large_epsilon() {
        // At epsilon = 5 the ratio of all learners lies near .8 in the long run; with 20
        // trials its standard error is about .05, and this seed is fixed.
        let mut study = study(&[StandardLearner::LdpTs, StandardLearner::RandAdaKl], 10_000, 20);
        study.mechanisms = vec![Mechanism::Linear, Mechanism::Kary(Alphabet::new(6).unwrap())];
        study.epsilons = vec![Epsilon::new(5.0).unwrap()];
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let of = |mechanism: &str| {
            let rows = outcome.rows.iter().filter(|row| row.horizon == 10_000);
            let rows = rows.filter(|row| row.mechanism.starts_with(mechanism));
            rows.map(|row| (row.ratio.unwrap(), row.mean_regret)).collect::<Vec<_>>()
        };
        let (bits, levels) = (of("linear"), of("k-level"));
        assert!(
            (bits[0].0 - 1.0).abs() < 1e-12 && levels[0].0 < 0.95 && levels[1].0 < 0.85,
            "{levels:?}"
        );
        // Ratios of levels are to the first learner on the first channel.
        assert!((levels[1].0 - levels[1].1 / bits[0].1).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_to_the_first_learner_wherever_it_was_run() {
        let learners =
            [StandardLearner::NonprivateTs, StandardLearner::LdpTs, StandardLearner::LdpUcbLaplace];
        let mut study = study(&learners, 1000, 2);
        study.epsilons.push(Epsilon::new(1.0).unwrap());
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let base = outcome.rows[outcome.rows.len() / 7 - 1].mean_regret;
        let last: Vec<_> = outcome.rows.iter().filter(|row| row.horizon == 1000).collect();
        // One without privacy, two with a curve and one without, for each of two epsilons.
        assert_eq!(last.len(), 7);
        for row in &last {
            assert_eq!(row.ratio_to, "nonprivate-ts, none");
            assert!((row.ratio.unwrap() - row.mean_regret / base).abs() < 1e-12, "{row:?}");
        }
        study.contestants.reverse();
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        for row in outcome.rows.iter().filter(|row| row.epsilon == Some(1.0)) {
            assert_eq!(row.ratio_to, "ldp-ucb-laplace, laplace, 1");
        }
    }

    #[test]
    fn top_two_lies_between_uniform_play_and_thompson_sampling() {
        // Uniform play loses .23 each round, 4,600 +- 20 here in a trial; top-two sampling gives
        // half of the rounds to rivals that are .1 worse or a little more: 1,000 at least.
        let learners = [StandardLearner::Uniform, StandardLearner::TopTwo, StandardLearner::LdpTs];
        let mut study = study(&learners, 20_000, 3);
        study.mechanisms.truncate(1);
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let last = outcome.rows.iter().filter(|row| row.horizon == 20_000);
        let [uniform, top_two, thompson] = last.collect::<Vec<_>>()[..] else { unreachable!() };
        assert!((uniform.mean_regret - 4_600.0).abs() < 60.0, "{uniform:?}");
        assert!((1_000.0..1_800.0).contains(&top_two.mean_regret), "{top_two:?}");
        assert!(thompson.mean_regret < 600.0, "{thompson:?}");
    }

    #[test]
    fn learners_beat_uniform_play_and_learn_in_batches() {
        // Uniform play loses .23 each round, 1,150 here. Every learner is far below in
        // the mean of 3 trials; one that learnt nothing would be at 1,150 +- 10.
        let learners = [
            StandardLearner::LdpTs,
            StandardLearner::RandAdaKl,
            StandardLearner::TruncatedTs,
            StandardLearner::KlUcb,
        ];
        let mut study = study(&learners, 5_000, 3);
        study.mechanisms.truncate(1);
        for batch in [1, 100] {
            study.course.batch = batch;
            let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
            for row in outcome.rows.iter().filter(|row| row.horizon == 5_000) {
                assert!(row.mean_regret < 800.0, "{batch} {row:?}");
            }
        }
        // The same holds for learners that play by a server's policies, and for levels.
        study.served = true;
        study.contestants = these(&[StandardLearner::LdpTs, StandardLearner::RandAdaKl]);
        study.mechanisms.push(Mechanism::Kary(Alphabet::new(4).unwrap()));
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let last = outcome.rows.iter().filter(|row| row.horizon == 5_000);
        assert!(last.clone().all(|row| row.mean_regret < 800.0), "{outcome:?}");
        study.contestants = these(&[StandardLearner::Imed]);
        assert!(study.run(&AtomicBool::new(false), |_| {}).is_err());
    }

    #[test]
    fn shuffled_reports_cost_less_regret_at_the_same_loss() {
        // 20 arms, an epsilon of .2 and 100,000 rounds: about 11,400 by local noise, 4,000 shuffled
        // among 100; one that learnt nothing would be at 23,000.
        let mut study = study(&[StandardLearner::LdpTs], 100_000, 3);
        study.mechanisms.truncate(1);
        let central = Guarantee::new(PrivacyLoss::new(0.2).unwrap(), study.delta);
        let mut regret = |local: Epsilon, shuffle: Option<u32>| {
            study.epsilons = vec![local];
            study.course.shuffle = shuffle;
            let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
            let last = outcome.rows.last().unwrap();
            (last.mean_regret, last.central_epsilon)
        };
        let (local, none) = regret(Epsilon::new(0.2).unwrap(), None);
        let larger = largest_local_loss(100, central).unwrap().unwrap();
        let (shuffled, certified) = regret(larger, Some(100));
        assert!(shuffled < 0.5 * local, "{shuffled} {local}");
        assert!(none.is_none() && (certified.unwrap() - 0.2).abs() < 1e-6, "{certified:?}");
        // Batches that never fill teach nothing, whatever the noise.
        let (unseen, _) = regret(larger, Some(16_384));
        let (noisy, _) = regret(Epsilon::new(4.0).unwrap(), Some(16_384));
        assert!(unseen > 20_000.0 && (unseen - noisy).abs() < 1e-9, "{unseen} {noisy}");
    }

    #[test]
    fn every_learner_learns_from_shuffled_reports() {
        // Uniform play loses .23 each round, 1,150 here, and waiting for an arm without reports
        // would settle on the first arm whose batch is full.
        let all: Vec<StandardLearner> = StandardLearner::all().collect();
        let mut study = study(&all, 5_000, 4);
        // One does not learn, and one learns for a verdict.
        study.contestants.retain(|one| !["uniform", "top-two"].contains(&&*one.name()));
        study.mechanisms.truncate(1);
        study.epsilons = vec![Epsilon::new(4.0).unwrap()];
        study.course.shuffle = Some(10);
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        for row in outcome.rows.iter().filter(|row| row.horizon == 5_000) {
            assert!(row.mean_regret < 1_000.0, "{row:?}");
            let is_bits = row.mechanism == "linear";
            assert_eq!(row.central_epsilon.is_some(), is_bits, "{row:?}");
        }
        study.served = true;
        study.contestants = these(&[StandardLearner::LdpTs, StandardLearner::RandAdaKl]);
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let last = outcome.rows.iter().filter(|row| row.horizon == 5_000);
        assert!(last.clone().all(|row| row.mean_regret < 800.0), "{outcome:?}");
        assert!(outcome.table().contains("shuffled among 10 of its arm"), "{}", outcome.table());
    }

    #[test]
    fn lies_cost_regret_and_an_interrupt_keeps_what_is_finished() {
        let mut study = study(&[StandardLearner::LdpTs], 5_000, 6);
        study.mechanisms.truncate(1);
        let last = |study: &Study| {
            let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
            outcome.rows.last().unwrap().mean_regret
        };
        let honest = last(&study);
        study.course.dishonest = 0.2;
        assert!(last(&study) > 1.3 * honest);
        study.course.attack = Attack::Stuff;
        assert!(last(&study) > 1.3 * honest);

        let stop = AtomicBool::new(false);
        study.threads = 1;
        let outcome = study.run(&stop, |done| stop.store(done == 2, Ordering::Relaxed)).unwrap();
        assert!(outcome.interrupted);
        assert!(outcome.rows.iter().all(|row| row.trials == 2), "{outcome:?}");
    }
}
