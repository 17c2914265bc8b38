//! Sample-ratio mismatch: the arms' shares of the reports differ from those that the policies asked
//! for.
//!
//! Users of some arm do not report, an app does not play the arm that was drawn, or reports are
//! forged. The estimates then describe other users than intended.
//!
//! # The test
//! The only assumption is that each report, given all before it, is of an arm with a probability
//! within the [range](super::ServedShares::range) that the policies allow. The value within that
//! range, and its cause, are left open. For an arm whose probability is at most h, and for a factor
//! c > 1 of its odds, the product over all reports of
//!
//! ```text
//! c / (1 + h (c - 1))   if the report is of the arm,
//! 1 / (1 + h (c - 1))   if it is not
//! ```
//!
//! has an expectation of at most 1 after every report. Its factors are likelihood ratios of
//! Bernoulli variables with the odds `c h/(1-h)` and `h/(1-h)`, and their mean grows with the true
//! probability up to 1 at h. The same holds, with `1 - l`, for the reports of other arms than one
//! whose probability is at least l. The test uses a mixture over factors of the odds, over both
//! directions, over arms, and over the day since which reports are counted (so that a fault after
//! months is not offset by those months). Its weights are fixed in advance and sum to 1. The
//! mixture is a nonnegative supermartingale that begins at 1. By Ville's inequality it reaches
//! [`EVIDENCE`] with a probability of at most 1 in [`EVIDENCE`] over the whole run, however often
//! it is evaluated and however policies change. This is the test of Lindon and Malek,
//! "Anytime-Valid Inference for Multinomial Count Data" (2022), with a finite mixture and with
//! ranges in place of known probabilities.
//!
//! Both factors fall with h. So a range that is too wide, because policies were served only after
//! some of the reports came, makes the test weaker but never invalid.
//!
//! # False alarms
//! The probability is 1e-4 for each experiment in each run of a server, if reports come as
//! [assumed](super::ServedShares): whatever came before, each comes later than that with a
//! probability of at most 5%, and regardless of the arm that was drawn. The
//! `Acceptance::report_once` of early clients violates the latter, and the alarm then rings without a
//! fault; the server can't tell.
//!
//! # End of the alarm
//! After a repair the evidence falls again, over about as many reports as came with the fault, or
//! with a restart. The message has the numbers of the days that show the mismatch best.

use std::time::Duration;

use super::{Alarm, AlarmName, DAY, percent};

/// The evidence at which the alarm rings: the reciprocal of the error level.
pub const EVIDENCE: f64 = 1e4;

/// The factors of the odds in the mixture. A factor finds what changes the odds by half as much or
/// more, and the evidence grows fastest for about its own; each costs the others a little.
const FACTORS: [f64; 9] = [1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 16.0];

/// The least probability that the test uses, also for a probability of 0: errors are always
/// possible.
const PROBABILITY_MIN: f64 = 1e-4;

/// The share of the weight that the initial arms have together; the rest is for arms that are
/// added.
const INITIAL_SHARE: f64 = 0.75;

/// The test of the reports so far against the shares that the policies asked for.
#[derive(Clone, Debug)]
pub struct SampleRatio {
    initial: usize,
    arms: Vec<Arm>,
    reports: u64,
    /// The time since when the evidence suffices.
    crossed: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Arm {
    /// The time at which the arm was first counted, and the number of days begun since.
    begun: Duration,
    days: u64,
    /// For each factor, the products for too many reports and for too few.
    many: [Product; FACTORS.len()],
    few: [Product; FACTORS.len()],
}

/// The products for one factor.
#[derive(Clone, Copy, Debug)]
struct Product {
    /// The logarithm of the sum of the products that begin on each day, weighted by day. All are
    /// multiplied by the same factors.
    sum: f64,
    /// The logarithm of the largest product, and its counts.
    largest: f64,
    counted: Counted,
}

/// The counts of an arm since a day.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    from: Duration,
    /// The reports of the arm, and of all arms.
    reports: u64,
    of: u64,
    /// The sums of the least and of the greatest probabilities.
    least: f64,
    greatest: f64,
}

impl Product {
    const NONE: Self = Self {
        sum: f64::NEG_INFINITY,
        largest: f64::NEG_INFINITY,
        counted: Counted { from: Duration::ZERO, reports: 0, of: 0, least: 0.0, greatest: 0.0 },
    };

    fn begin_day(&mut self, from: Duration, weight: f64) {
        self.sum = log_sum(&[self.sum, weight]);
        if weight > self.largest {
            (self.largest, self.counted) = (weight, Counted { from, ..Counted::default() });
        }
    }

    fn multiply(&mut self, logarithm: f64, (own, of): (u64, u64), (low, high): (f64, f64)) {
        self.sum += logarithm;
        self.largest += logarithm;
        self.counted.reports += own;
        self.counted.of += of;
        self.counted.least += of as f64 * low;
        self.counted.greatest += of as f64 * high;
    }
}

impl Arm {
    /// An arm before its first report.
    fn new(now: Duration) -> Self {
        let none = [Product::NONE; FACTORS.len()];
        Self { begun: now, days: 0, many: none, few: none }
    }

    /// Begins a product for each day that has begun since the last call. The weights `1/(d (d+1))`
    /// of all days d sum to 1.
    fn begin_days(&mut self, now: Duration) {
        let day = now.saturating_sub(self.begun).as_secs() / DAY.as_secs() + 1;
        while self.days < day {
            self.days += 1;
            let number = self.days as f64;
            let weight = -libm::log(number * (number + 1.0));
            for product in self.many.iter_mut().chain(&mut self.few) {
                product.begin_day(now, weight);
            }
        }
    }

    fn count(&mut self, reports: u64, of: u64, range: (f64, f64)) {
        let (own, all) = (reports as f64, of as f64);
        let (low, high) = range;
        let (most, fewest) = (high.max(PROBABILITY_MIN), (1.0 - low).max(PROBABILITY_MIN));
        for (place, factor) in FACTORS.iter().enumerate() {
            let logarithm = libm::log(*factor);
            let per_report = |bound: f64| libm::log1p(bound * (factor - 1.0));
            let many = own * logarithm - all * per_report(most);
            let few = (all - own) * logarithm - all * per_report(fewest);
            self.many[place].multiply(many, (reports, of), range);
            self.few[place].multiply(few, (reports, of), range);
        }
    }
}

impl SampleRatio {
    /// The test before the first report, with this number of initial arms.
    pub fn new(initial: usize) -> Self {
        Self { initial, arms: Vec::new(), reports: 0, crossed: None }
    }

    /// Counts reports of each arm. Each report is of an arm with a probability within the arm's
    /// range.
    pub fn count(&mut self, now: Duration, reports: &[u64], range: impl Fn(usize) -> (f64, f64)) {
        let of = reports.iter().sum();
        if of == 0 {
            return;
        }
        self.reports += of;
        self.arms.resize_with(self.arms.len().max(reports.len()), || Arm::new(now));
        for (place, arm) in self.arms.iter_mut().enumerate() {
            arm.begin_days(now);
            arm.count(reports.get(place).copied().unwrap_or(0), of, range(place));
        }
        if self.log_evidence() < libm::log(EVIDENCE) {
            self.crossed = None;
        } else {
            self.crossed.get_or_insert(now);
        }
    }

    /// The logarithm of the evidence. Without a fault, the evidence is at most 1 on average.
    pub fn log_evidence(&self) -> f64 {
        let arms: Vec<f64> = (0..self.arms.len()).map(|arm| self.log_evidence_of(arm)).collect();
        log_sum(&arms)
    }

    /// The part of the evidence for one arm, as a logarithm.
    fn log_evidence_of(&self, place: usize) -> f64 {
        let arm = &self.arms[place];
        let weight = weight_of(place, self.initial);
        let parts = 2.0 * FACTORS.len() as f64;
        let all: Vec<f64> = arm.many.iter().chain(&arm.few).map(|product| product.sum).collect();
        log_sum(&all) + libm::log(weight / parts)
    }

    /// The alarm, if it rings, with these labels of arms.
    pub fn alarm(&self, now: Duration, label: impl Fn(usize) -> String) -> Option<Alarm> {
        let since = self.crossed?;
        let worst =
            |a: &usize, b: &usize| self.log_evidence_of(*a).total_cmp(&self.log_evidence_of(*b));
        let place = (0..self.arms.len()).max_by(worst)?;
        let products = self.arms[place].many.iter().chain(&self.arms[place].few);
        let clearest = products.max_by(|a, b| a.largest.total_cmp(&b.largest))?;
        let Counted { from, reports, of, least, greatest } = clearest.counted;
        let days = now.saturating_sub(from).as_secs_f64() / DAY.as_secs_f64();
        let share = |count: f64| percent(count / of as f64);
        let (least, greatest) = (share(least), share(greatest));
        let asked = if least == greatest { least } else { format!("{least} to {greatest}") };
        Some(Alarm {
            name: AlarmName::SampleRatioMismatch,
            message: format!(
                "arm {place} ({}) has {} of {of} reports, and the policies asked for {asked}, in \
                 the last {days:.1} days. Look whether users of some arm fail to report, whether \
                 the app shows the arms that it is told, and whether somebody forges reports",
                label(place),
                share(reports as f64),
            ),
            age: Some(now.saturating_sub(since)),
            threshold: EVIDENCE,
            seen: libm::exp(self.log_evidence().min(690.0)),
        })
    }
}

/// The weight of an arm in a mixture over arms. Those of any number of arms sum to at most 1.
pub fn weight_of(place: usize, initial: usize) -> f64 {
    if place < initial {
        return INITIAL_SHARE / initial as f64;
    }
    let added = (place - initial + 1) as f64;
    (1.0 - INITIAL_SHARE) / (added * (added + 1.0))
}

/// The logarithm of a sum, from the logarithms of its terms.
pub(super) fn log_sum(logarithms: &[f64]) -> f64 {
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    let sum: f64 = logarithms.iter().map(|logarithm| libm::exp(logarithm - largest)).sum();
    largest + libm::log(sum)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn drawn(shares: &[f64], rng: &mut ChaCha8Rng) -> usize {
        let mut place: f64 = rng.random();
        let arm = shares.iter().position(|share| {
            place -= share;
            place < 0.0
        });
        arm.unwrap_or(shares.len() - 1)
    }

    /// The largest evidence in a run of this many reports, evaluated after every ten. The policy of
    /// the next ten depends on the reports before, and is known exactly.
    fn largest_evidence(tens: usize, played: impl Fn(&[f64]) -> Vec<f64>, seed: u64) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut ratio = SampleRatio::new(3);
        let mut shares = vec![0.5, 0.3, 0.2];
        let mut largest = f64::NEG_INFINITY;
        for ten in 0..tens {
            let played = played(&shares);
            let mut counts = vec![0; shares.len()];
            for _ in 0..10 {
                counts[drawn(&played, &mut rng)] += 1;
            }
            // Thirty reports a day.
            let now = DAY / 3 * u32::try_from(ten).unwrap();
            ratio.count(now, &counts, |arm| (shares[arm], shares[arm]));
            largest = largest.max(ratio.log_evidence());
            // A policy that follows its own luck.
            let leads = counts[0] > 5;
            shares = if leads { vec![0.8, 0.15, 0.05] } else { vec![0.2, 0.3, 0.5] };
        }
        largest
    }

    #[test]
    fn it_rings_for_nothing_no_more_often_than_its_level_says() {
        // The level holds for every threshold, so a low one shows it in few runs. If it is exceeded
        // with a probability of 5%, 42 or more of 500 runs do so with a probability of 1e-3.
        const RUNS: u64 = 500;
        let exceeds = |seed: &u64| largest_evidence(300, <[f64]>::to_vec, *seed) >= libm::log(20.0);
        let rung = (0..RUNS).filter(exceeds).count();
        assert!(rung < 42, "{rung} of {RUNS} runs");
        // The alarm can ring at all.
        assert!(rung > 0);
        let worst = (0..RUNS).map(|seed| largest_evidence(300, <[f64]>::to_vec, seed));
        assert!(worst.fold(0.0, f64::max) < libm::log(EVIDENCE));
    }

    #[test]
    fn reports_of_an_arm_that_get_lost_are_noticed() {
        // A fifth of the first arm's reports is lost.
        let lost = |shares: &[f64]| {
            let rest = 1.0 - 0.2 * shares[0];
            vec![0.8 * shares[0] / rest, shares[1] / rest, shares[2] / rest]
        };
        for seed in 0..20 {
            assert!(largest_evidence(1000, lost, seed) >= libm::log(EVIDENCE), "seed {seed}");
        }
    }

    /// The reports until the alarm rings, in steps of 1,000, if all arms are asked for alike and this
    /// share of the first one's is lost; within a day.
    fn reports_until_alarm(arms: usize, lost: f64, seed: u64) -> u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let asked = 1.0 / arms as f64;
        let rest = 1.0 - lost * asked;
        let shares: Vec<f64> = (0..arms)
            .map(|arm| if arm == 0 { (1.0 - lost) * asked } else { asked } / rest)
            .collect();
        let mut ratio = SampleRatio::new(arms);
        while ratio.log_evidence() < libm::log(EVIDENCE) && ratio.reports < 5_000_000 {
            let mut counts = vec![0; arms];
            for _ in 0..1000 {
                counts[drawn(&shares, &mut rng)] += 1;
            }
            ratio.count(Duration::ZERO, &counts, |_| (asked, asked));
        }
        ratio.reports
    }

    #[test]
    fn a_fiftieth_of_an_arms_reports_is_missed_and_a_tenth_as_soon_as_ever() {
        let median = |lost: f64| {
            let mut reports: Vec<u64> =
                (0..9).map(|seed| reports_until_alarm(2, lost, seed)).collect();
            reports.sort_unstable();
            reports[4]
        };
        // With the odds .98 to 1, 13 nats of evidence take about 13/(.02^2/8) reports.
        assert!((150_000..400_000).contains(&median(0.02)), "{}", median(0.02));
        // Without the fine factors the median is 12,000.
        assert!(median(0.1) <= 13_000, "{}", median(0.1));
    }

    #[test]
    fn a_single_arm_has_all_reports_and_a_wide_range_allows_all() {
        let mut ratio = SampleRatio::new(1);
        ratio.count(Duration::ZERO, &[10_000_000], |_| (1.0, 1.0));
        assert_eq!(ratio.alarm(Duration::ZERO, |_| String::new()), None);
        let mut ratio = SampleRatio::new(2);
        ratio.count(Duration::ZERO, &[900_000, 100_000], |_| (0.1, 0.9));
        assert!(ratio.log_evidence() < 0.0);
        ratio.count(Duration::from_secs(1), &[100_000, 0], |_| (0.1, 0.9));
        assert!(ratio.log_evidence() > 0.0);
    }

    #[test]
    fn the_alarm_tells_of_the_days_that_show_it() {
        let mut ratio = SampleRatio::new(2);
        for day in 0..30 {
            ratio.count(DAY * day, &[500, 500], |_| (0.5, 0.5));
        }
        ratio.count(DAY * 30, &[350, 650], |_| (0.5, 0.5));
        let alarm = ratio.alarm(DAY * 31, |_| String::new()).unwrap();
        let of_day = "of 1000 reports, and the policies asked for 50.0%, in the last 1.0 days";
        assert!(alarm.message.contains(of_day), "{alarm:?}");
        // After as many correct reports as wrong ones, the alarm ends.
        ratio.count(DAY * 31, &[800, 800], |_| (0.5, 0.5));
        assert_eq!(ratio.alarm(DAY * 31, |_| String::new()), None);
    }

    #[test]
    fn the_alarm_names_the_arm_and_what_was_asked_for() {
        let mut ratio = SampleRatio::new(2);
        let count = |ratio: &mut SampleRatio, second, reports: &[u64]| {
            ratio.count(Duration::from_secs(second), reports, |arm| [(0.2, 0.3), (0.7, 0.8)][arm]);
        };
        count(&mut ratio, 1, &[25, 75]);
        assert_eq!(ratio.alarm(Duration::from_secs(1), |_| String::new()), None);
        count(&mut ratio, 5, &[75, 25]);
        let alarm = ratio.alarm(Duration::from_secs(9), |arm| format!("label {arm}")).unwrap();
        assert_eq!(alarm.age, Some(Duration::from_secs(4)));
        assert!(alarm.seen >= alarm.threshold);
        let said = "arm 0 (label 0) has 50.0% of 200 reports, and the policies asked for 20.0% to \
                    30.0%";
        let other = "arm 1 (label 1) has 50.0% of 200 reports, and the policies asked for 70.0% to \
                     80.0%";
        assert!(alarm.message.starts_with(said) || alarm.message.starts_with(other), "{alarm:?}");
        // An arm that is added, and never asked for.
        let mut ratio = SampleRatio::new(2);
        count(&mut ratio, 1, &[250, 750]);
        ratio.count(Duration::ZERO, &[25, 75, 10], |arm| [(0.2, 0.3), (0.7, 0.8), (0., 0.)][arm]);
        let alarm = ratio.alarm(Duration::ZERO, |_| String::new()).unwrap();
        assert!(alarm.message.starts_with("arm 2 "), "{alarm:?}");
    }
}
