//! Confidence sequences, evaluated after every report.
//!
//! The simulations are seeded. Where they count failures, `allowed` is a number that a correct
//! procedure exceeds with probability at most 10^-3.

#![cfg(test)]
#![expect(clippy::float_cmp, reason = "results that are exact are compared exactly")]

use std::cell::RefCell;
use std::collections::HashMap;

use bandana_shared::channel::Floor;
use bandana_shared::confidence::{BetaBinomialMixture, LogOddsMixture, NormalMixture, best_arm};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::interval::{ErrorLevel, ErrorLevelError, Interval, wilson};
use bandana_shared::tally::{Tally, TallyError};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

pub(super) fn tally(reports: u64, ones: u64) -> Tally {
    Tally::new(reports, ones).unwrap()
}

pub(super) fn level(alpha: f64) -> ErrorLevel {
    ErrorLevel::new(alpha).unwrap()
}

/// The mean of a binomial number of failures plus 3.1 standard deviations.
pub(super) fn allowed(runs: u64, alpha: f64) -> u64 {
    let mean = runs as f64 * alpha;
    (0..runs).find(|&count| count as f64 >= mean + 3.1 * (mean * (1.0 - alpha)).sqrt()).unwrap()
}

/// Number of runs, of `runs`, that ever contradict `covers` in `steps` steps, given the tally and
/// the mean of the private means so far. `next_mean` gives the private mean of a step from its
/// number and the sum of deviations.
fn runs_that_miss(
    runs: u64,
    steps: u32,
    next_mean: impl Fn(u32, f64) -> f64,
    covers: impl Fn(Tally, f64) -> bool,
) -> u64 {
    let run_misses = |seed: &u64| {
        let mut random = ChaCha8Rng::seed_from_u64(*seed);
        let (mut total, mut sum) = (Tally::EMPTY, 0.0);
        (0..steps).any(|step| {
            let mean = next_mean(step, total.ones() as f64 - sum);
            total += Tally::of_bit(random.random_bool(mean));
            sum += mean;
            !covers(total, sum / total.reports() as f64)
        })
    };
    (0..runs).filter(run_misses).count() as u64
}

/// Users who drift slowly, who alternate between extremes, and an adversary who
/// adds variance whenever the sum already deviates.
const DRIFTING: [fn(u32, f64) -> f64; 3] = [
    |step, _| 0.5 + 0.4 * (f64::from(step) / 300.0).sin(),
    |step, _| [0.05, 0.5, 0.95, 0.5][step as usize % 4],
    |step, deviation| {
        if deviation.abs() * 2.0 > f64::from(step).sqrt() { 0.5 } else { 0.4 }
    },
];

#[test]
fn the_normal_mixture_covers_drifting_users_at_every_step() {
    const RUNS: u64 = 500;
    let sequence = NormalMixture::new(level(0.1));
    for next_mean in DRIFTING {
        let missed = runs_that_miss(RUNS, 3000, next_mean, |tally, mean| {
            sequence.private_mean(tally).contains(mean)
        });
        assert!(missed <= allowed(RUNS, 0.1), "{missed}");
    }
}

#[test]
fn the_simulation_can_tell_a_procedure_that_does_not_hold() {
    // Wilson's interval of 90%, looked at after each of 3000 reports.
    let missed =
        runs_that_miss(200, 3000, DRIFTING[2], |tally, mean| wilson(tally, 1.645).contains(mean));
    assert!(missed > 2 * allowed(200, 0.1), "{missed}");
}

#[test]
fn debiased_sequences_cover_the_mean_of_the_rewards() {
    const RUNS: u64 = 400;
    let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
    let (low, contrast) = (floor.lowest_private_mean(), floor.contrast());
    let sequence = NormalMixture::new(level(0.1));
    // Rewards that fall from 1 to 0 while reports come in.
    let next_mean = |step, _| low + contrast * (1.0 - f64::from(step) / 2000.0);
    let missed = runs_that_miss(RUNS, 2000, next_mean, |tally, private_mean| {
        let mean = (private_mean - low) / contrast;
        sequence.mean(floor, tally).contains(mean)
    });
    assert!(missed <= allowed(RUNS, 0.1), "{missed}");
    let interval = sequence.mean(floor, tally(1_000_000, 500_000));
    assert!(interval.contains(0.5) && interval.width() < 0.02, "{interval:?}");
}

#[test]
fn the_beta_binomial_mixture_covers_independent_bits_at_every_step() {
    const RUNS: u64 = 400;
    let sequence = BetaBinomialMixture::new(level(0.1));
    for q in [0.02, 0.3, 0.5, 0.95] {
        let missed = runs_that_miss(
            RUNS,
            250,
            |_, _| q,
            |tally, mean| sequence.private_mean(tally).contains(mean),
        );
        assert!(missed <= allowed(RUNS, 0.1), "{q}: {missed}");
    }
}

#[test]
fn the_beta_binomial_mixture_is_narrower_for_rare_bits() {
    for (reports, ones) in [(100, 0), (1000, 10), (10_000, 100), (10_000, 9990), (1_000_000, 3)] {
        let tally = tally(reports, ones);
        let beta = BetaBinomialMixture::new(ErrorLevel::FIVE_PERCENT).private_mean(tally);
        let normal = NormalMixture::new(ErrorLevel::FIVE_PERCENT).private_mean(tally);
        assert!(beta.width() < 0.6 * normal.width(), "{reports} {ones}");
    }
}

#[test]
fn normal_mixtures_match_values_computed_by_hand() {
    // α = 0.05: ρ = 250/(2 ln 20 + ln(1 + 2 ln 20)) = 31.5014...
    let sequence = NormalMixture::new(ErrorLevel::FIVE_PERCENT);
    for (reports, ones, radius) in [(10_000, 6000, 0.016_208_615_727), (100, 50, 0.192_752_731_677)]
    {
        let interval = sequence.private_mean(tally(reports, ones));
        let mean = ones as f64 / reports as f64;
        assert!((interval.high() - mean - radius).abs() < 1e-9, "{interval:?}");
        assert!((mean - interval.low() - radius).abs() < 1e-9, "{interval:?}");
    }
    // tuned_for(4) with α = e^-1/2: ρ = 1/(1 + ln 2), V = 1/4, so with
    // v = ρ + 1/4 the radius of one report is sqrt(v (ln(v/ρ) + 1)).
    let rho = 1.0 / (1.0 + 2.0_f64.ln());
    let v = rho + 0.25;
    let interval = NormalMixture::tuned_for(level((-0.5_f64).exp()), 4.0).private_mean(tally(1, 1));
    assert!((interval.width() / 2.0 - (v * ((v / rho).ln() + 1.0)).sqrt()).abs() < 1e-12);
}

#[test]
fn beta_binomial_mixtures_match_values_computed_by_hand() {
    let sequence = BetaBinomialMixture::new(ErrorLevel::FIVE_PERCENT);
    let near = |found: Interval, low: f64, high: f64| {
        assert!((found.low() - low).abs() < 1e-12, "{found:?} {low}");
        assert!((found.high() - high).abs() < 1e-12, "{found:?} {high}");
    };
    // No one among 9: (1/10)/(1-q)^9 = 20.
    let end = 1.0 - 200.0_f64.powf(-1.0 / 9.0);
    near(sequence.private_mean(tally(9, 0)), 0.0, end);
    near(sequence.private_mean(tally(9, 9)), 1.0 - end, 1.0);
    // One among 2: (1/6)/(q(1-q)) = 20.
    let root = (1.0_f64 - 4.0 / 120.0).sqrt();
    near(sequence.private_mean(tally(2, 1)), (1.0 - root) / 2.0, f64::midpoint(1.0, root));
}

#[test]
fn beta_binomial_mixtures_end_where_the_mixture_says() {
    // ln k! as a plain sum, for counts where that is precise.
    let log_factorial = |k: u64| (1..=k).map(|i| (i as f64).ln()).sum::<f64>();
    let alpha: f64 = 0.01;
    let sequence = BetaBinomialMixture::new(level(alpha));
    for (reports, ones) in [(3, 1), (40, 9), (64, 32), (70, 33), (500, 499), (2000, 31)] {
        let (k, m) = (ones as f64, (reports - ones) as f64);
        let log_beta =
            log_factorial(ones) + log_factorial(reports - ones) - log_factorial(reports + 1);
        let interval = sequence.private_mean(tally(reports, ones));
        for q in [interval.low(), interval.high()] {
            let log_ratio = log_beta - k * q.ln() - m * (-q).ln_1p();
            assert!((log_ratio + alpha.ln()).abs() < 1e-8, "{ones}/{reports} at {q}");
        }
    }
}

#[test]
fn beta_binomial_mixtures_keep_their_width_at_large_counts() {
    // Half ones: by Stirling's formula and the second-order term of the
    // divergence, 2 n d^2 = ln 20 + ln(2n/π)/2 for the radius d.
    let sequence = BetaBinomialMixture::new(ErrorLevel::FIVE_PERCENT);
    for exponent in [24, 36, 48, 50, 56, 62] {
        let reports = 1_u64 << exponent;
        let n = reports as f64;
        let radius =
            ((20.0_f64.ln() + (2.0 * n / std::f64::consts::PI).ln() / 2.0) / (2.0 * n)).sqrt();
        let interval = sequence.private_mean(tally(reports, reports / 2));
        assert!(
            ((interval.high() - 0.5) / radius - 1.0).abs() < 1e-5,
            "2^{exponent}: {interval:?}"
        );
        assert!(((0.5 - interval.low()) / radius - 1.0).abs() < 1e-5, "2^{exponent}: {interval:?}");
    }
    // A single one: (n + 1) n q (1-q)^(n-1) = 1/20, so n q - ln(n q) is about
    // ln(20 n), 46: the upper end is about 50/n.
    let rare = sequence.private_mean(tally(1 << 62, 1));
    let share = 2.0_f64.powi(-62);
    assert!(rare.low() < share && rare.high() > share, "{rare:?}");
    let scaled = rare.high() / share;
    assert!((scaled - scaled.ln() - (20.0 / share).ln()).abs() < 0.2, "{scaled}");
}

#[test]
fn the_default_sequence_is_as_wide_as_its_documentation_says() {
    let alpha = ErrorLevel::FIVE_PERCENT;
    let width = |tuned_for: f64, reports: u64| {
        NormalMixture::tuned_for(alpha, tuned_for).private_mean(tally(reports, reports / 2)).width()
    };
    let best = |reports: u64| {
        (-40..=40)
            .map(|i| width(reports as f64 * 1.1_f64.powi(i), reports))
            .fold(f64::INFINITY, f64::min)
    };
    for (reports, low, high) in [(100, 1.22, 1.28), (1000, 1.0, 1.001), (20_000, 1.08, 1.12)] {
        let default = NormalMixture::new(alpha).private_mean(tally(reports, reports / 2)).width();
        let ratio = default / best(reports);
        assert!((low..=high).contains(&ratio), "{reports}: {ratio}");
        assert_eq!(default, width(NormalMixture::TUNED_FOR, reports));
    }
}

#[test]
fn nothing_panics_at_the_ends() {
    let largest = Tally::REPORTS_MAX;
    let tallies = [
        Tally::EMPTY,
        tally(1, 0),
        tally(1, 1),
        tally(1000, 0),
        tally(1000, 1000),
        tally(largest, 0),
        tally(largest, 1),
        tally(largest, largest / 2),
        tally(largest, largest),
    ];
    let floor = Floor::for_epsilon(Epsilon::new(Epsilon::MIN).unwrap());
    for alpha in [1e-12, 0.05, 0.999].map(level) {
        for tally in tallies {
            let mean = tally.private_mean();
            let normal = NormalMixture::new(alpha);
            let beta = BetaBinomialMixture::new(alpha);
            for interval in [normal.private_mean(tally), beta.private_mean(tally)] {
                assert!(interval.low() <= interval.high(), "{tally:?} {interval:?}");
                assert!(mean.is_none_or(|mean| interval.contains(mean)), "{tally:?} {interval:?}");
            }
            for interval in [normal.mean(floor, tally), beta.mean(floor, tally)] {
                assert!(interval.low() <= interval.high(), "{tally:?} {interval:?}");
            }
        }
        let verdict = best_arm(&tallies, alpha);
        assert_eq!(verdict, None, "an arm without reports is never ruled out");
        assert_eq!(best_arm(&tallies[7..], alpha), Some(1));
    }
    assert_eq!(NormalMixture::new(level(0.05)).private_mean(Tally::EMPTY), Interval::UNBOUNDED);
    assert_eq!(best_arm(&[], level(0.05)), None);
    assert_eq!(best_arm(&[Tally::EMPTY], level(0.05)), Some(0));
}

#[test]
fn the_mixture_over_log_odds_holds_for_users_who_differ_and_drift() {
    const RUNS: u64 = 300;
    let sequence = LogOddsMixture::new(level(0.1));
    // An interval is a search, and runs meet the same tallies again and again.
    let found = RefCell::new(HashMap::new());
    let covers = |tally: Tally, mean: f64| {
        let mut found = found.borrow_mut();
        let key = (tally.reports(), tally.ones());
        found.entry(key).or_insert_with(|| sequence.private_mean(tally)).contains(mean)
    };
    for next_mean in DRIFTING {
        let missed = runs_that_miss(RUNS, 600, next_mean, covers);
        assert!(missed <= allowed(RUNS, 0.1), "{missed}");
    }
    // Rare ones too.
    let rare =
        runs_that_miss(RUNS, 1000, |step, _| if step % 50 == 0 { 0.9 } else { 0.002 }, covers);
    assert!(rare <= allowed(RUNS, 0.1), "{rare}");
}

#[test]
fn intervals_are_as_narrow_as_those_of_the_largest_variance_and_narrower_at_the_ends() {
    let (now, before) =
        (LogOddsMixture::new(level(0.05)), NormalMixture::new(ErrorLevel::FIVE_PERCENT));
    let ratio = |reports: u64, ones: u64| {
        let tally = tally(reports, ones);
        now.private_mean(tally).width() / before.private_mean(tally).width()
    };
    for reports in [100, 300, 1000, 10_000, 100_000, 10_000_000] {
        assert!(ratio(reports, reports / 2) < 1.035, "{reports}: {}", ratio(reports, reports / 2));
        if reports >= 1000 {
            assert!(ratio(reports, reports / 50) < 0.33, "{reports}");
        }
    }
    // The law of the iterated logarithm at n = 10,000, as Howard et al. 2021, equation 2 bounds it for
    // any variance: 1.7 sqrt(v (ln ln(2 n v) + .72 ln(10.4/α))/n).
    let n = 10_000.0_f64;
    let stitched = 3.4 * (0.25 / n * ((n / 2.0).ln().ln() + 0.72 * (10.4_f64 / 0.05).ln())).sqrt();
    assert!(now.private_mean(tally(10_000, 5000)).width() < stitched);
}

#[test]
fn error_levels_and_tallies_are_checked() {
    for alpha in [0.0, -0.0, 1.0, -0.1, 1.1, f64::NAN, f64::INFINITY] {
        let refused: Result<ErrorLevel, ErrorLevelError> = ErrorLevel::new(alpha);
        assert!(refused.is_err(), "{alpha}");
    }
    assert_eq!(level(0.2).shared_by(4).get(), 0.05);
    assert_eq!(level(0.2).shared_by(0).get(), 0.2);
    let refused: [Result<Tally, TallyError>; 2] =
        [Tally::new(3, 4), Tally::new(Tally::REPORTS_MAX + 1, 0)];
    assert!(refused.iter().all(Result::is_err));
    // Sums saturate instead of overflowing.
    let largest = tally(Tally::REPORTS_MAX, Tally::REPORTS_MAX);
    let sum: Tally = [largest, largest, tally(5, 2)].into_iter().sum();
    assert_eq!(sum, largest);
    assert_eq!((tally(5, 2).zeros(), Tally::EMPTY.zeros()), (3, 0));
}
