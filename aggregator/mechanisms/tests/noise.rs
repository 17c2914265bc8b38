//! Draws of exact noise against their exact probabilities.
//!
//! Every test has a fixed seed and a significance of 10^-6: with another seed it fails once
//! in a million times.

use bandana_mechanisms::noise::{DiscreteGaussian, DiscreteLaplace, Ratio, STEPS_MAX};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

const DRAWS: usize = 200_000;

/// The 1 - 10^-6 quantile of the standard normal distribution.
const NORMAL_QUANTILE: f64 = 4.753;

/// The 1 - 10^-6 quantile of Kolmogorov's distribution.
const KOLMOGOROV_QUANTILE: f64 = 2.694;

/// The 1 - 10^-6 quantile of the chi-square distribution (Wilson and Hilferty 1931).
fn chi_square_quantile(degrees: f64) -> f64 {
    let variance = 2.0 / (9.0 * degrees);
    degrees * (1.0 - variance + NORMAL_QUANTILE * variance.sqrt()).powi(3)
}

/// Tests whether draws have these probabilities, up to a factor, for 0, 1, -1, 2, -2 and so on.
/// Values with fewer than 20 expected draws share a bin.
fn fits(weight: impl Fn(i64) -> f64, mut draw: impl FnMut(&mut ChaCha20Rng) -> i64) -> bool {
    let mut rng = ChaCha20Rng::seed_from_u64(2_020);
    let total: f64 = (-5_000..=5_000).map(&weight).sum();
    let expected = |k: i64| weight(k) / total * DRAWS as f64;
    let reach = (0..5_000).take_while(|&k| expected(k) >= 20.0).last().unwrap_or(0);
    let width = usize::try_from(2 * reach + 1).unwrap_or(1);
    let (mut counts, mut beyond) = (vec![0_u32; width], 0_u32);
    for _ in 0..DRAWS {
        let place = usize::try_from(draw(&mut rng) + reach).ok();
        match place.and_then(|place| counts.get_mut(place)) {
            Some(count) => *count += 1,
            None => beyond += 1,
        }
    }
    let cell = |count: u32, expected: f64| (f64::from(count) - expected).powi(2) / expected;
    let inside: f64 = (-reach..=reach).map(expected).sum();
    let statistic: f64 = (-reach..=reach).zip(&counts).map(|(k, &n)| cell(n, expected(k))).sum();
    let rest = DRAWS as f64 - inside;
    let statistic = statistic + if rest > 1.0 { cell(beyond, rest) } else { 0.0 };
    statistic <= chi_square_quantile(width as f64)
}

fn laplace_weight(scale: f64) -> impl Fn(i64) -> f64 {
    move |k| (-(k.abs() as f64) / scale).exp()
}

fn gaussian_weight(variance: f64) -> impl Fn(i64) -> f64 {
    move |k| (-((k * k) as f64) / (2.0 * variance)).exp()
}

#[test]
fn laplace_draws_have_their_probabilities() {
    for (numerator, denominator) in [(1, 3), (1, 1), (5, 2), (40, 1), (123_456_789, 10_000_000)] {
        let noise = DiscreteLaplace::new(Ratio::new(numerator, denominator).unwrap());
        let scale = noise.scale().to_f64();
        assert!(fits(laplace_weight(scale), |rng| noise.sample(rng)), "{scale}");
        // The test detects a scale that is 3 % smaller.
        assert!(!fits(laplace_weight(scale * 0.97), |rng| noise.sample(rng)), "{scale}");
    }
}

#[test]
fn gaussian_draws_have_their_probabilities() {
    for (numerator, denominator) in [(1, 5), (1, 1), (7, 2), (900, 1), (98_765_432, 1_000_000)] {
        let noise = DiscreteGaussian::new(Ratio::new(numerator, denominator).unwrap());
        let variance = noise.variance().to_f64();
        assert!(fits(gaussian_weight(variance), |rng| noise.sample(rng)), "{variance}");
        assert!(!fits(gaussian_weight(variance * 0.95), |rng| noise.sample(rng)), "{variance}");
    }
}

#[test]
fn fine_lattices_give_what_the_continuous_distributions_would() {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    // 2^20 steps of standard deviation: a step is far below the test's resolution.
    let fine = f64::from(1 << 20);
    let gaussian = DiscreteGaussian::new(Ratio::whole(1 << 40).unwrap());
    let normal = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    assert!(distance(|| gaussian.sample(&mut rng) as f64 / fine, normal) < KOLMOGOROV_QUANTILE);
    let laplace = DiscreteLaplace::new(Ratio::whole(1 << 20).unwrap());
    let double = |x: f64| if x < 0.0 { x.exp() / 2.0 } else { 1.0 - (-x).exp() / 2.0 };
    assert!(distance(|| laplace.sample(&mut rng) as f64 / fine, double) < KOLMOGOROV_QUANTILE);
    assert!(distance(|| laplace.sample(&mut rng) as f64 / fine, normal) > KOLMOGOROV_QUANTILE);
}

/// Kolmogorov's statistic: the largest distance of the distribution functions, times sqrt(n).
fn distance(mut draw: impl FnMut() -> f64, distribution: impl Fn(f64) -> f64) -> f64 {
    let mut draws: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    draws.sort_by(f64::total_cmp);
    let n = DRAWS as f64;
    let gaps = draws.iter().enumerate().map(|(i, &x)| {
        let (f, i) = (distribution(x), i as f64);
        (f - i / n).max((i + 1.0) / n - f)
    });
    gaps.fold(0.0, f64::max) * n.sqrt()
}

#[test]
fn quantiles_are_those_of_the_distribution() {
    for (numerator, denominator, beta) in [(1, 3, 0.2), (5, 2, 0.01), (400, 1, 1e-9), (3, 1, 0.9)] {
        let noise = DiscreteLaplace::new(Ratio::new(numerator, denominator).unwrap());
        let steps = noise.quantile(beta);
        assert!(noise.log_tail(steps) <= beta.ln());
        assert!(steps == 0 || noise.log_tail(steps - 1) > beta.ln());
    }
    // P(|k| > 0) = 2 q/(1 + q), by hand.
    let q = (-1.0_f64).exp();
    let tail = DiscreteLaplace::new(Ratio::ONE).log_tail(0).exp();
    assert!((tail - 2.0 * q / (1.0 + q)).abs() < 1e-15);
}

/// Reference vectors, from another implementation with arbitrarily long integers: the key is
/// the bytes 0 to 31, words are 64 bits, the low half first.
#[test]
fn seeds_give_the_same_draws_everywhere() {
    let mut rng = ChaCha20Rng::from_seed(std::array::from_fn(|i| u8::try_from(i).unwrap()));
    let laplace = DiscreteLaplace::new(Ratio::new(21, 2).unwrap());
    let draws: Vec<i64> = (0..12).map(|_| laplace.sample(&mut rng)).collect();
    assert_eq!(draws, LAPLACE_DRAWS);
    let gaussian = DiscreteGaussian::new(Ratio::new(1_001, 10).unwrap());
    let draws: Vec<i64> = (0..12).map(|_| gaussian.sample(&mut rng)).collect();
    assert_eq!(draws, GAUSSIAN_DRAWS);
}

const LAPLACE_DRAWS: [i64; 12] = [5, 6, -3, -17, -1, 21, -1, -10, -3, 0, 6, -3];
const GAUSSIAN_DRAWS: [i64; 12] = [3, -5, 12, -9, 2, 10, 1, 0, 11, -8, -18, -8];

#[test]
fn the_largest_and_the_smallest_parameters_work() {
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let most = Ratio::whole((1 << 62) - 1).unwrap();
    let least = Ratio::new(1, (1 << 62) - 1).unwrap();
    let awkward = Ratio::new((1 << 62) - 1, (1 << 62) - 3).unwrap();
    let (wide, narrow) = (DiscreteGaussian::new(most), DiscreteGaussian::new(least));
    let draws: Vec<i64> = (0..200).map(|_| wide.sample(&mut rng)).collect();
    let within = draws.iter().filter(|k| k.unsigned_abs() < 1 << 31).count();
    assert!((110..165).contains(&within), "{within} of 200 within one deviation of 2^31");
    assert!((0..100).all(|_| narrow.sample(&mut rng) == 0));
    let awkward = DiscreteGaussian::new(awkward);
    assert!((0..1_000).all(|_| awkward.sample(&mut rng).abs() < 8));
    let wide = DiscreteLaplace::new(most);
    for value in [i64::MAX, i64::MIN, 0] {
        assert!((0..100).all(|_| wide.release(value, &mut rng).abs() <= STEPS_MAX));
    }
    let narrow = DiscreteLaplace::new(least);
    assert_eq!(narrow.release(i64::MAX, &mut rng), STEPS_MAX);
    assert_eq!(narrow.release(42, &mut rng), 42);
}
