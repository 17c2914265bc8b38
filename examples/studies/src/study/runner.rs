//! Execution of many trials on several threads.

use std::fmt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::ensure;
use bandana_learners::bounds::{BoundArm, lower_bound};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::shuffling::Shuffling;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use rustix::time::{ClockId, clock_gettime};

use super::channel::Channel;
use super::contestant::{Contestant, Privacy};
use super::outcome::{Row, StudyOutcome, Summary, paired_ratio};
use super::player::Player;
use super::trial::{self, Course};
use crate::instance::Instance;
use crate::program::on_threads;

/// Settings of a study.
#[derive(Clone, Debug)]
pub struct Study {
    /// Name of the instance.
    pub name: String,
    /// The arms.
    pub instance: Instance,
    /// The curves.
    pub mechanisms: Vec<Mechanism>,
    /// The privacy loss bounds.
    pub epsilons: Vec<Epsilon>,
    /// The learners; ratios are to the first one.
    pub contestants: Vec<Contestant>,
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
struct Entry {
    contestant: Contestant,
    privacy: Privacy,
}

impl Entry {
    fn mechanism_name(self) -> String {
        match (self.contestant, self.privacy.mechanism) {
            (Contestant::LdpUcbLaplace, _) => "laplace".to_owned(),
            (contestant, _) if contestant.is_nonprivate() => "none".to_owned(),
            (_, Mechanism::Kary(alphabet)) => format!("k-level, {} levels", alphabet.len()),
            (_, mechanism) => mechanism.name().to_owned(),
        }
    }

    fn epsilon(self) -> Option<f64> {
        (!self.contestant.is_nonprivate()).then_some(self.privacy.epsilon.get())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.contestant.name(), self.mechanism_name())?;
        self.epsilon().map_or(Ok(()), |epsilon| write!(formatter, ", {epsilon}"))
    }
}

/// The finished trials of an entry.
#[derive(Clone, Debug, Default)]
struct Finished {
    /// Number of each trial, and its regret at every checkpoint.
    trials: Vec<(usize, Vec<f64>)>,
    seconds: f64,
}

impl Study {
    /// Total number of trials.
    pub fn trial_count(&self) -> usize {
        self.entries().len() * self.trials
    }

    /// Each learner on each distinct channel.
    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (place, epsilon) in self.epsilons.iter().enumerate() {
            for (turn, mechanism) in self.mechanisms.iter().enumerate() {
                let privacy = Privacy { mechanism: *mechanism, epsilon: *epsilon };
                let is_new = |contestant: &&Contestant| {
                    let known = contestant.has_no_curve() && turn > 0
                        || contestant.is_nonprivate() && place > 0;
                    !known
                };
                let contestants = self.contestants.iter().filter(is_new);
                entries.extend(contestants.map(|c| Entry { contestant: *c, privacy }));
            }
        }
        entries
    }

    /// Runs the study. `progress` is called with the number of finished trials. Once `stop` is set,
    /// trials under way are abandoned, and the outcome covers the finished ones.
    ///
    /// # Errors
    /// When a learner fails, or has no served form.
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: impl Fn(usize) + Sync,
    ) -> anyhow::Result<StudyOutcome> {
        let entries = self.entries();
        if let (true, Some(entry)) = (self.served, entries.first()) {
            for contestant in &self.contestants {
                let player = Player::served(*contestant, 1, entry.privacy, self.course.batch)?;
                ensure!(player.is_some(), "a server has no learner {}", contestant.name());
            }
        }
        let finished: Vec<Mutex<Finished>> = entries.iter().map(|_| Mutex::default()).collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || -> anyhow::Result<()> {
            // One trial of every entry, then the next one, so that an interrupted study has about
            // equally many of each.
            while let Some(job) = Some(next.fetch_add(1, Ordering::Relaxed))
                .filter(|job| *job < entries.len() * self.trials)
            {
                let (trial, place) = (job / entries.len(), job % entries.len());
                let start = processor_seconds();
                let Some(regrets) = self.run_trial(entries[place], trial as u64, stop)? else {
                    return Ok(());
                };
                let mut finished = finished[place].lock().unwrap_or_else(PoisonError::into_inner);
                finished.trials.push((trial, regrets));
                finished.seconds += processor_seconds() - start;
                progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
            Ok(())
        };
        on_threads(self.threads, work)?;
        let finished: Vec<Finished> = finished
            .into_iter()
            .map(|cell| cell.into_inner().unwrap_or_else(PoisonError::into_inner))
            .collect();
        Ok(self.outcome(&entries, finished, stop.load(Ordering::Relaxed)))
    }

    fn run_trial(
        &self,
        entry: Entry,
        trial: u64,
        stop: &AtomicBool,
    ) -> anyhow::Result<Option<Vec<f64>>> {
        let arms = self.instance.arms.len();
        let batch = self.course.shuffle.map_or(self.course.batch, |size| size as usize);
        let served = if self.served {
            Player::served(entry.contestant, arms, entry.privacy, batch)?
        } else {
            None
        };
        let mut player = match served {
            Some(player) => player,
            None => Player::new(entry.contestant, arms, entry.privacy)?,
        };
        if self.course.shuffle.is_some() {
            player = player.filling_batches(arms);
        }
        let channel = entry.contestant.channel(entry.privacy);
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(trial);
        trial::run(&self.instance, &channel, &mut player, &self.course, seed, stop)
    }

    fn outcome(
        &self,
        entries: &[Entry],
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
            let arms = entry.contestant.channel(entry.privacy).bound_arms(&self.instance);
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
    fn is_base(&self, entry: Entry, privacy: Privacy) -> bool {
        let Entry { contestant, privacy: own } = entry;
        let is_alike =
            own.mechanism == privacy.mechanism || matches!(privacy.mechanism, Mechanism::Kary(_));
        self.contestants.first() == Some(&contestant)
            && (contestant.is_nonprivate() || own.epsilon == privacy.epsilon)
            && (contestant.has_no_curve() || is_alike)
    }

    /// The loss of a report of this entry once it is shuffled. There is a certificate for bits
    /// only.
    fn central_epsilon(&self, entry: Entry) -> Option<f64> {
        let Channel::Bit(_, floor) = entry.contestant.channel(entry.privacy) else { return None };
        let shuffled = Shuffling::new(floor, self.course.shuffle?).ok()?;
        Some(shuffled.loss(self.delta).get())
    }

    /// `arms` are the inputs of bounds, if there are any.
    fn row(
        &self,
        entry: Entry,
        done: &Finished,
        (base_entry, base): (Entry, &Finished),
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
    use crate::study::trial::Attack;
    use bandana_shared::accounting::guarantee::Guarantee;
    use bandana_shared::accounting::loss::PrivacyLoss;
    use bandana_shared::accounting::shuffling::largest_local_loss;
    use bandana_shared::alphabet::Alphabet;

    fn study(learners: &[Contestant], horizon: u64, trials: usize) -> Study {
        Study {
            name: "paper-20".to_owned(),
            instance: Instance::paper_20(),
            mechanisms: vec![Mechanism::Linear, Mechanism::Exponential],
            epsilons: vec![Epsilon::new(2.0).unwrap()],
            contestants: learners.to_vec(),
            trials,
            course: Course {
                checkpoints: Course::checkpoints_to(horizon),
                batch: 1,
                shuffle: None,
                dishonest: 0.0,
                attack: Attack::Flip,
            },
            delta: Delta::new(1e-6).unwrap(),
            served: false,
            seed: 3,
            threads: 2,
        }
    }

    /// The results that a seed determines: all but the speed.
    fn regrets(outcome: &StudyOutcome) -> Vec<(String, String, u64, f64, f64)> {
        let rows = outcome.rows.iter();
        rows.map(|r| (r.learner.clone(), r.mechanism.clone(), r.horizon, r.mean_regret, r.p99))
            .collect()
    }

    #[test]
    fn a_seed_fixes_the_result_whatever_the_threads() {
        let all = <Contestant as clap::ValueEnum>::value_variants();
        let two = study(all, 300, 2);
        let one = Study { threads: 1, ..two.clone() };
        let stop = AtomicBool::new(false);
        let outcome = two.run(&stop, |_| {}).unwrap();
        assert_eq!(regrets(&outcome), regrets(&one.run(&stop, |_| {}).unwrap()));
        // Learners without a curve are studied once, the others with each of two curves.
        let curveless = all.iter().filter(|contestant| contestant.has_no_curve()).count();
        let entries = 2 * (all.len() - curveless) + curveless;
        assert_eq!(outcome.rows.len(), entries * one.course.checkpoints.len());
        let other = Study { seed: 4, ..one };
        assert_ne!(regrets(&outcome), regrets(&other.run(&stop, |_| {}).unwrap()));
    }

    #[test]
    fn levels_tell_more_than_bits_at_a_large_epsilon() {
        // At epsilon = 5 the ratio of all learners lies near .8 in the long run; with 20
        // trials its standard error is about .05, and this seed is fixed.
        let mut study = study(&[Contestant::LdpTs, Contestant::RandAdaKl], 10_000, 20);
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
    fn a_picture_names_its_curves_and_its_bounds() {
        use crate::program::Outcome as _;
        let study = study(&[Contestant::LdpTs, Contestant::Imed], 1000, 2);
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("regret.svg");
        outcome.draw(&path).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        for name in
            ["ldp-ts, linear", "imed, exponential", "lower bound of", "upper bound", "epsilon 2"]
        {
            assert!(picture.contains(name), "{name}");
        }
    }

    #[test]
    fn ratios_are_to_the_first_learner_wherever_it_was_run() {
        let learners = [Contestant::NonprivateTs, Contestant::LdpTs, Contestant::LdpUcbLaplace];
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
        let learners = [Contestant::Uniform, Contestant::TopTwo, Contestant::LdpTs];
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
        let learners =
            [Contestant::LdpTs, Contestant::RandAdaKl, Contestant::TruncatedTs, Contestant::KlUcb];
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
        study.contestants = vec![Contestant::LdpTs, Contestant::RandAdaKl];
        study.mechanisms.push(Mechanism::Kary(Alphabet::new(4).unwrap()));
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let last = outcome.rows.iter().filter(|row| row.horizon == 5_000);
        assert!(last.clone().all(|row| row.mean_regret < 800.0), "{outcome:?}");
        study.contestants = vec![Contestant::Imed];
        assert!(study.run(&AtomicBool::new(false), |_| {}).is_err());
    }

    #[test]
    fn shuffled_reports_cost_less_regret_at_the_same_loss() {
        // 20 arms, an epsilon of .2 and 100,000 rounds: about 11,400 by local noise, 4,000 shuffled
        // among 100; one that learnt nothing would be at 23,000.
        let mut study = study(&[Contestant::LdpTs], 100_000, 3);
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
        let all = <Contestant as clap::ValueEnum>::value_variants();
        let mut study = study(all, 5_000, 4);
        // One does not learn, and one learns for a verdict.
        let learns =
            |learner: &Contestant| ![Contestant::Uniform, Contestant::TopTwo].contains(learner);
        study.contestants.retain(learns);
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
        study.contestants = vec![Contestant::LdpTs, Contestant::RandAdaKl];
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let last = outcome.rows.iter().filter(|row| row.horizon == 5_000);
        assert!(last.clone().all(|row| row.mean_regret < 800.0), "{outcome:?}");
        assert!(outcome.table().contains("shuffled among 10 of its arm"), "{}", outcome.table());
    }

    #[test]
    fn lies_cost_regret_and_an_interrupt_keeps_what_is_finished() {
        let mut study = study(&[Contestant::LdpTs], 5_000, 6);
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
