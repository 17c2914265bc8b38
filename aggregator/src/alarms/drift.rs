//! The alarm about drift, which is a day's mean reward that differs from that of the days before it.
//!
//! What an experiment tells of all its days then mixes two truths, and a learner that forgets nothing
//! goes on by the older one.
//!
//! # The test
//! It uses the tallies of each day, one for each arm in each segment. It assumes that the reports of
//! such a cell are independent with one law, in whatever number and order they come. For a day d, let
//! KT be the probability of the counts under Krichevsky and Trofimov's mixture, with a Dirichlet prior
//! of 1/2, and ML the largest probability that any law gives them. Then
//!
//! ```text
//! KT(counts before d) KT(counts from d on) / ML(all counts)
//! ```
//!
//! is at most the likelihood ratio of a fixed law on sequences of reports to the true one, so its
//! mean is at most 1 whenever it is evaluated, also within a day and whatever traffic the reports have
//! led to. This is universal inference (Wasserman, Ramdas and Balakrishnan, 2020), a segment at a
//! time as in Shin, Ramdas and Rinaldo, "E-detectors" (2022). Cells without reports before d do not
//! take part. The evidence is a mixture over days, with the weights `1/(n (n+1))` for the n-th day
//! after the first, over cells, and over all cells together, as when the mood of all users changes.
//! All weights are fixed in advance and sum to 1. By Ville's inequality the evidence reaches
//! [`EVIDENCE`] with a probability of at most 1 in [`EVIDENCE`] in the whole life of an experiment,
//! restarts included, if nothing moves. Days older than [`Memory::DAYS_APART`](Memory) are one, which
//! leaves out summands.
//!
//! # Weekdays
//! Where Saturdays differ from Mondays, means move each week and come back, and forgetting is no
//! remedy. From the second week on the alarm also needs as much evidence from the comparison of each
//! weekday with itself, in the days that are apart. So it can ring for weekdays in the first week only.
//! That comparison makes the alarm rarer, so the level above still holds; no level of its own is
//! claimed for it.
//!
//! # End of the alarm
//! The evidence is that of now: it falls when the means come back, or when a day differed for once.
//! Experiments with `--window-days` or `--discount-per-day` expect what moves, and are not watched.

use std::time::Duration;

use bandana_learners::window::{Days, Memory};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::identity::Day;
use bandana_shared::tally::Tally;

use super::sample_ratio::{EVIDENCE, log_sum};
use super::{Alarm, AlarmName};

/// The rewards of one cell before and after a day.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// The number of the cell.
    pub cell: usize,
    /// The first day of the later rewards.
    pub since: Day,
    /// What was reported before that day, and from it on.
    pub before: Tally,
    /// What was reported from that day on.
    pub after: Tally,
    /// The evidence, of which 1 is the mean if nothing moves.
    pub evidence: f64,
}

/// The rewards that have moved most clearly, if the evidence suffices. `days` has a tally for each
/// cell; `weights` are those of the cells, with a sum of at most 1.
pub fn moved(days: &Days, alphabet: Alphabet, weights: &[f64]) -> Option<Moved> {
    let (first, newest) = (*days.first_key_value()?.0, *days.last_key_value()?.0);
    let look = Look { alphabet, weights };
    let (evidence, clearest) = look.since_each_day(days)?;
    let needed = libm::log(EVIDENCE);
    let is_known_by_weekdays = newest.get() - first.get() >= WEEK;
    if evidence < needed || is_known_by_weekdays && look.by_weekdays(days) < needed {
        return None;
    }
    let sum = |days: &mut dyn Iterator<Item = (&Day, &Vec<Tally>)>| {
        days.filter_map(|(_, tallies)| tallies.get(clearest.cell)).copied().sum()
    };
    Some(Moved {
        cell: clearest.cell,
        since: clearest.day,
        before: sum(&mut days.range(..clearest.day)),
        after: sum(&mut days.range(clearest.day..)),
        evidence: libm::exp(evidence.min(690.0)),
    })
}

/// The alarm about what has moved, with the arm and its means in words. `age` is the time since the
/// beginning of the day.
pub(crate) fn alarm(moved: &Moved, words: &str, age: Duration) -> Alarm {
    let days = age.as_secs_f64() / super::DAY.as_secs_f64();
    Alarm {
        name: AlarmName::RewardsMoved,
        message: format!(
            "rewards have moved, {days:.0} days ago: {words}. The learner and the estimates weigh \
             the time before and after alike. See how it went with `bandana estimate --over-time`. \
             If it stays so, create the experiment anew with --window-days 14. It then learns from \
             the last two weeks only (whole weeks, since weekdays may differ)"
        ),
        age: Some(age),
        threshold: EVIDENCE,
        seen: moved.evidence,
    }
}

/// The number of days after which the same weekday comes again.
const WEEK: u32 = 7;

/// The evidence for a change on one day.
struct Change {
    day: Day,
    /// Its logarithm.
    evidence: f64,
    /// The cell with the most evidence of its own.
    cell: usize,
}

/// The counts of a cell before and after a change.
#[derive(Clone, Copy, Default)]
struct Pair {
    before: Tally,
    after: Tally,
}

/// How counts are compared.
#[derive(Clone, Copy)]
struct Look<'a> {
    alphabet: Alphabet,
    weights: &'a [f64],
}

impl Look<'_> {
    /// The logarithm of the evidence, with weights for the days, and the clearest change. `None`
    /// before the second day.
    fn since_each_day(self, days: &Days) -> Option<(f64, Change)> {
        let first = days.first_key_value()?.0.get();
        let mut sums = vec![Pair::default(); self.weights.len()];
        for tallies in days.values() {
            for (sum, tally) in sums.iter_mut().zip(tallies) {
                sum.after += *tally;
            }
        }
        let mut parts = Vec::new();
        let mut clearest: Option<Change> = None;
        for (day, tallies) in days {
            let number = f64::from(day.get() - first);
            if number > 0.0 {
                let ratios: Vec<f64> = sums.iter().map(|pair| self.ratio(*pair)).collect();
                let change = self.mixed(*day, &ratios);
                let evidence = change.evidence - libm::log(number * (number + 1.0));
                parts.push(evidence);
                if clearest.as_ref().is_none_or(|best| evidence > best.evidence) {
                    clearest = Some(Change { evidence, ..change });
                }
            }
            for (sum, tally) in sums.iter_mut().zip(tallies) {
                sum.before += *tally;
                sum.after = sum.after.without(tally);
            }
        }
        Some((log_sum(&parts), clearest?))
    }

    /// The mixture over cells, and over all of them together, for a change on a day.
    fn mixed(self, day: Day, ratios: &[f64]) -> Change {
        let half = libm::log(0.5);
        let of_one = |(ratio, weight): (&f64, &f64)| half + libm::log(*weight) + ratio;
        let mut parts: Vec<f64> = ratios.iter().zip(self.weights).map(of_one).collect();
        let clearest = (0..parts.len()).max_by(|a, b| parts[*a].total_cmp(&parts[*b]));
        parts.push(half + ratios.iter().sum::<f64>());
        Change { day, evidence: log_sum(&parts), cell: clearest.unwrap_or_default() }
    }

    /// The logarithm of the evidence of one cell.
    fn ratio(self, Pair { before, after }: Pair) -> f64 {
        if before.reports() == 0 {
            return 0.0;
        }
        let all = [before, after].into_iter().sum();
        self.mixture(&before) + self.mixture(&after) - self.largest(&all)
    }

    /// The logarithm of the probability of a sequence with these counts, by Krichevsky and Trofimov.
    fn mixture(self, tally: &Tally) -> f64 {
        let (mut symbols, mut sum) = (0.0, 0.0);
        for count in tally.counts(self.alphabet) {
            symbols += 1.0;
            if count > 0 {
                sum += libm::lgamma(count as f64 + 0.5) - libm::lgamma(0.5);
            }
        }
        sum + libm::lgamma(0.5 * symbols) - libm::lgamma(tally.reports() as f64 + 0.5 * symbols)
    }

    /// The logarithm of the largest probability of a sequence with these counts.
    fn largest(self, tally: &Tally) -> f64 {
        let reports = tally.reports() as f64;
        let counts = tally.counts(self.alphabet).filter(|count| *count > 0);
        counts.map(|count| count as f64 * libm::log(count as f64 / reports)).sum()
    }

    /// The logarithm of the evidence when each weekday is compared with itself, for all days that
    /// are apart alike.
    fn by_weekdays(self, days: &Days) -> f64 {
        // A full memory begins with the sum of many days.
        let folded = usize::from(days.len() > Memory::DAYS_APART);
        let apart: Vec<(&Day, &Vec<Tally>)> = days.iter().skip(folded).collect();
        let weekday = |day: Day| (day.get() % WEEK) as usize;
        let changes = apart.iter().skip(1).map(|(since, _)| {
            let mut cells = vec![[Pair::default(); WEEK as usize]; self.weights.len()];
            for (day, tallies) in &apart {
                for (cell, tally) in cells.iter_mut().zip(*tallies) {
                    let pair = &mut cell[weekday(**day)];
                    *(if day < since { &mut pair.before } else { &mut pair.after }) += *tally;
                }
            }
            let ratio =
                |cell: &[Pair; WEEK as usize]| cell.iter().map(|one| self.ratio(*one)).sum();
            let ratios: Vec<f64> = cells.iter().map(ratio).collect();
            self.mixed(**since, &ratios).evidence
        });
        let changes: Vec<f64> = changes.collect();
        log_sum(&changes) - libm::log(changes.len().max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// The private bits of three arms on one day after the other.
    struct World {
        rng: ChaCha8Rng,
        days: Days,
        today: u32,
    }

    const WEIGHTS: [f64; 3] = [0.25; 3];

    impl World {
        fn new(seed: u64) -> Self {
            Self { rng: ChaCha8Rng::seed_from_u64(seed), days: Days::new(), today: 0 }
        }

        /// Reports with these private means. The traffic follows their luck.
        fn report(&mut self, means: [f64; 3], reports: usize) {
            let today = self.days.entry(Day::new(self.today)).or_default();
            today.resize(3, Tally::EMPTY);
            for _ in 0..reports {
                let luck: Vec<f64> =
                    today.iter().map(|t| t.private_mean().unwrap_or(1.0)).collect();
                let best = (0..3).max_by(|a, b| luck[*a].total_cmp(&luck[*b])).unwrap();
                let arm =
                    if self.rng.random_bool(0.5) { best } else { self.rng.random_range(0..3) };
                today[arm] += Tally::of_bit(self.rng.random_bool(means[arm]));
            }
        }

        fn end_day(&mut self) {
            self.today += 1;
            Memory::Everything.prune(&mut self.days);
        }

        fn log_evidence(&self) -> f64 {
            let look = Look { alphabet: Alphabet::BITS, weights: &WEIGHTS };
            look.since_each_day(&self.days).map_or(f64::NEG_INFINITY, |(evidence, _)| evidence)
        }

        fn moved(&self) -> Option<Moved> {
            moved(&self.days, Alphabet::BITS, &WEIGHTS)
        }
    }

    #[test]
    fn it_rings_in_healthy_experiments_no_more_often_than_its_level_says() {
        // The level holds for every threshold, so a low one shows it in few runs. If it is exceeded
        // with a probability of 5%, 72 or more of 1,000 runs do so with a probability of 1e-3.
        const RUNS: u64 = 1000;
        let largest = |seed: u64| {
            let mut world = World::new(seed);
            let mut largest = f64::NEG_INFINITY;
            for _ in 0..30 {
                for _ in 0..3 {
                    world.report([0.5, 0.45, 0.3], 10);
                    largest = f64::max(largest, world.log_evidence());
                }
                world.end_day();
            }
            largest
        };
        let all: Vec<f64> = (0..RUNS).map(largest).collect();
        let rung = all.iter().filter(|evidence| **evidence >= libm::log(20.0)).count();
        assert!(rung < 72, "{rung} of {RUNS} runs");
        // The alarm can ring at all.
        assert!(rung > 0);
        assert!(all.iter().all(|evidence| *evidence < libm::log(EVIDENCE)));
    }

    #[test]
    fn a_fall_of_all_arms_or_of_one_is_noticed_with_the_day_and_its_means() {
        for (later, cell) in [([0.4, 0.3, 0.2], None), ([0.6, 0.5, 0.7], Some(2))] {
            for (seed, before, after) in [(1, 5, 2), (2, 20, 3), (3, 100, 2)] {
                let mut world = World::new(seed);
                for _ in 0..before {
                    world.report([0.6, 0.5, 0.4], 3000);
                    assert_eq!(world.moved(), None);
                    world.end_day();
                }
                for _ in 0..after {
                    world.report(later, 3000);
                    world.end_day();
                }
                let moved = world.moved().unwrap();
                assert_eq!(moved.since, Day::new(before));
                assert!(cell.is_none_or(|cell| cell == moved.cell), "{moved:?}");
                let change =
                    moved.after.private_mean().unwrap() - moved.before.private_mean().unwrap();
                assert!(change.abs() > 0.1, "{moved:?}");
                assert!(moved.evidence >= EVIDENCE);
            }
        }
    }

    #[test]
    fn weekdays_that_differ_do_not_ring_from_the_second_week_on_and_a_fall_among_them_does() {
        let mut world = World::new(4);
        let on = |day: u32, fall: f64| {
            let weekend = if day % 7 >= 5 { 0.1 } else { 0.0 };
            [0.6, 0.5, 0.4].map(|mean| mean - weekend - fall)
        };
        for day in 0..90 {
            world.report(on(day, 0.0), 2000);
            assert!(day < 7 || world.moved().is_none(), "day {day}");
            world.end_day();
        }
        for day in 90..93 {
            world.report(on(day, 0.2), 2000);
            world.end_day();
        }
        assert_eq!(world.moved().unwrap().since, Day::new(90));
    }

    #[test]
    fn an_arm_that_is_added_and_a_single_day_tell_nothing() {
        let mut world = World::new(5);
        world.report([0.9, 0.1, 0.5], 5000);
        assert_eq!(world.moved(), None);
        let old = [Tally::new(1000, 700).unwrap(), Tally::EMPTY, Tally::EMPTY];
        let new = [old[0], Tally::new(1000, 300).unwrap(), Tally::new(1000, 500).unwrap()];
        world.days = [(Day::new(1), old.to_vec()), (Day::new(9), new.to_vec())].into();
        assert_eq!(world.moved(), None);
    }
}
