//! Runs of the sparse vector technique have the law that their privacy is proved for, and its price.
//!
//! Divergences are computed from exact probabilities of worst cases; draws have fixed seeds and a
//! significance of about 10^-6.

use bandana_mechanisms::queries::threshold::{AboveThreshold, RunKey};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

use crate::renyi::rho;

/// P(a run ends with each query), and last P(it does not end), for queries of these weights.
fn law(weights: &[f64]) -> Vec<f64> {
    let mut sum = 1.0;
    let mut law: Vec<f64> = weights
        .iter()
        .map(|weight| {
            let before = sum;
            sum += weight;
            weight / (before * sum)
        })
        .collect();
    law.push(1.0 / sum);
    law
}

/// What a run costs, with this θ in thousandths.
fn price(thousandths: u32) -> f64 {
    AboveThreshold::of_step(u64::from(thousandths) * 1_000_000).rho_nanos(1) as f64 * 1e-9
}

fn step(thousandths: u32) -> f64 {
    f64::from(thousandths) * 1e-3
}

#[test]
fn no_few_queries_lose_more_than_the_price() {
    for thousandths in [10, 100, 300, 500] {
        let (step, price) = (step(thousandths), price(thousandths));
        let weights = [-2.0_f64, 0.0, 1.0, 3.0].map(f64::exp);
        for code in 0..4_usize.pow(4) {
            let queries = [0, 1, 2, 3].map(|place| weights[code / 4_usize.pow(place) % 4]);
            for signs in 0..16_u32 {
                let sign =
                    |place: usize| -> f64 { if signs >> place & 1 == 1 { 1.0 } else { -1.0 } };
                let other = [0, 1, 2, 3].map(|place| queries[place] * (sign(place) * step).exp());
                let needed = rho(&law(&queries), &law(&other));
                assert!(needed <= price, "{queries:?} {signs}: {needed}");
            }
        }
    }
}

#[test]
fn the_price_holds_for_the_worst_neighbours_and_could_hardly_be_lower() {
    for thousandths in [10, 100, 250, 500] {
        let (step, price) = (step(thousandths), price(thousandths));
        let mut most = 0.0_f64;
        // Each query raises the probability of an end by 2 %, and the neighbour's by more or by less,
        // whichever brings the ratio of what they add up to closer to a given one.
        for aim in 0..12 {
            let aim = f64::from(aim) * 0.05 * step;
            let (mut sum, mut other_sum) = (1.0_f64, 1.0_f64);
            let (mut weights, mut others) = (Vec::new(), Vec::new());
            for _ in 0..800 {
                let weight = 0.02 * sum;
                let sign = if (other_sum / sum).ln() < aim { 1.0 } else { -1.0 };
                let other = weight * (sign * step).exp();
                (sum, other_sum) = (sum + weight, other_sum + other);
                weights.push(weight);
                others.push(other);
            }
            most = most.max(rho(&law(&weights), &law(&others)));
            most = most.max(rho(&law(&others), &law(&weights)));
        }
        assert!(most <= price, "{step}: {most}");
        assert!(most > 0.85 * price, "{step}: {most} of {price}");
    }
}

/// ln(sinh(x)/x) and its derivative.
fn s(x: f64) -> f64 {
    if x < 1e-3 { x * x / 6.0 } else { (x.sinh() / x).ln() }
}

fn slope(x: f64) -> f64 {
    if x < 1e-3 { x / 3.0 } else { 1.0 / x.tanh() - 1.0 / x }
}

#[test]
fn the_inequalities_of_the_proof_hold() {
    // F(z) <= 0.545 z², for the z between 3/8 and 16/3 that matter, and around them.
    let mut largest = 0.0_f64;
    for thousandths in 50..8_000 {
        let z = f64::from(thousandths) * 1e-3;
        let v = z * slope(z);
        largest = largest.max((s(z) + v + v.cosh().ln()) / (z * z));
    }
    assert!((0.541..0.5412).contains(&largest), "{largest}");
    // ln h(1) <= 9/16 k α θ², by its definition.
    for thousandths in [1, 30, 200, 500] {
        let (step, price) = (step(thousandths), price(thousandths));
        for exponent in -80..=80 {
            let k = (f64::from(exponent) / 10.0).exp();
            let (x, y) = (k * step, (k + 1.0) * step);
            if y > 16.0 / 3.0 {
                continue;
            }
            let (q, p) = (x.sinh() / step.sinh(), y.sinh() / step.sinh());
            let place = k * p / ((k + 1.0) * q);
            let bound = ((q + p * place.powf(2.0 * k)) / (2.0 * k + 1.0)).ln();
            assert!(bound <= price * k * (k + 1.0) + 1e-12, "{step} {k}: {bound}");
        }
    }
}

#[test]
fn runs_end_with_the_probabilities_of_the_law() {
    const RUNS: u32 = 6_000;
    let distances = [-9_i64, 2, -1, 0, 2, 4, 7, -3];
    let mechanism = AboveThreshold::of_step(250_000_000);
    let weights: Vec<f64> = distances.iter().map(|&m| (0.25 * m as f64).exp()).collect();
    let expected = law(&weights);
    let mut rng = ChaCha20Rng::seed_from_u64(31);
    let key = RunKey::draw(&mut rng);
    let mut found = vec![0.0; expected.len()];
    for run in 0..RUNS {
        let is_above = |distance: &i64| mechanism.is_above(&key, run, *distance, &mut rng);
        let end = distances.iter().position(is_above).unwrap_or(distances.len());
        found[end] += 1.0;
    }
    let distance: f64 = found
        .iter()
        .zip(&expected)
        .map(|(found, p)| (found - p * f64::from(RUNS)).powi(2) / (p * f64::from(RUNS)))
        .sum();
    // Eight degrees of freedom: above 43 once in a million times.
    assert!(distance < 43.0, "{found:?} is not {expected:?}: {distance}");
    // With a secret number for each comparison the run would end later.
    let apart: f64 = weights.iter().map(|weight| 1.0 / (1.0 + weight)).product();
    assert!(apart * f64::from(RUNS) + 100.0 < found[distances.len()], "{apart}");
}

#[test]
fn a_run_has_the_same_secret_number_whenever_it_is_asked() {
    let mechanism = AboveThreshold::of_step(1_000_000);
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    let key = RunKey::draw(&mut rng);
    let again = RunKey::from_bytes(key.to_bytes());
    // With an almost flat weight, the answers to one distance are alike in a run that has a very
    // small or large number, and differ between runs.
    let shares: Vec<usize> = (0..20)
        .map(|run| (0..40).filter(|_| mechanism.is_above(&again, run, 0, &mut rng)).count())
        .collect();
    let repeated: Vec<usize> = (0..20)
        .map(|run| (0..40).filter(|_| mechanism.is_above(&key, run, 0, &mut rng)).count())
        .collect();
    let between = shares.iter().max().unwrap() - shares.iter().min().unwrap();
    let within = shares.iter().zip(&repeated).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(between > 25 && within < 20, "{shares:?} {repeated:?}");
    assert_eq!(format!("{key:?}"), "RunKey(<secret>)");
}

#[test]
fn prices_are_rounded_up_and_steps_down() {
    for (nanos, runs) in [(500_000_000, 20), (1_523_188_312, 997), (1, 1), (12_345, 3)] {
        let mechanism = AboveThreshold::within(nanos, runs).unwrap();
        assert!(mechanism.rho_nanos(runs) <= nanos, "{nanos} {runs}");
        let next = AboveThreshold::of_step(mechanism.step() + 1);
        assert!(next.rho_nanos(runs) >= nanos, "{nanos} {runs}");
    }
    // 9/16 at θ = 1/2, the largest for which the price is proved.
    let largest = AboveThreshold::within(u64::MAX, 1).unwrap();
    assert_eq!((largest.step(), largest.rho_nanos(1)), (500_000_000, 140_625_000));
    for (nanos, runs) in [(0, 1), (1, 0), (1, u32::MAX)] {
        assert!(AboveThreshold::within(nanos, runs).is_err(), "{nanos} {runs}");
    }
}

#[test]
fn comparisons_err_by_less_than_they_say() {
    const RUNS: u32 = 600;
    let (mechanism, beta) = (AboveThreshold::of_step(200_000_000), 0.2);
    // Five comparisons far below in each of four runs, and then one far above.
    let [under, over] = mechanism.errors(20, 4, beta).unwrap();
    let (under, over) = (-under.cast_signed(), over.cast_signed());
    let mut rng = ChaCha20Rng::seed_from_u64(17);
    let mut failures = [0; 2];
    for _ in 0..RUNS {
        let key = RunKey::draw(&mut rng);
        let mut compare = |run, distance| mechanism.is_above(&key, run, distance, &mut rng);
        failures[0] += u32::from((0..4).any(|run| (0..5).any(|_| compare(run, under))));
        failures[1] += u32::from((0..4).any(|run| !compare(run, over)));
    }
    // 10 % of the sessions each would be 60; more than 102 once in a million times.
    assert!(failures.iter().all(|&failures| failures <= 70), "{failures:?}");
    assert!(failures.iter().all(|&failures| failures >= 20), "{failures:?}: the bounds are wide");
    assert!(mechanism.errors(20, 4, 0.0).is_err() && mechanism.errors(20, 4, 1e-40).is_err());
    let extremes = [i64::MIN, i64::MAX]
        .map(|m| mechanism.is_above(&RunKey::from_bytes([7; 32]), 0, m, &mut rng));
    assert_eq!(extremes, [false, true]);
}
