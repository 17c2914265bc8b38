//! Mean shortfalls of the exponential mechanism are within their bound, which the worst utilities attain.
//!
//! Means are computed from the probabilities of the definition.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::exponential::ExponentialMechanism;
use bandana_mechanisms::queries::price::PureLoss;

const EPSILON: f64 = 0.05;

/// 2/ε: rows within which a weight falls by e.
const SCALE: f64 = 2.0 / EPSILON;

/// The mean shortfall of candidates with these shortfalls and weights.
fn mean(candidates: &[(f64, f64)]) -> f64 {
    let power = |(short, weight): &(f64, f64)| weight * (-short / SCALE).exp();
    let total: f64 = candidates.iter().map(power).sum();
    candidates.iter().map(|candidate| candidate.0 * power(candidate)).sum::<f64>() / total
}

fn mechanism() -> Result<ExponentialMechanism, QueryError> {
    ExponentialMechanism::new(1, PureLoss::new(EPSILON)?)
}

#[test]
fn no_utilities_have_a_larger_mean_and_the_worst_have_just_that() {
    for share in [0.9, 0.5, 0.1, 0.01, 1e-4, 1e-9] {
        let bound = mechanism().unwrap().mean_shortfall(share, 0).unwrap();
        let mut worst = 0.0_f64;
        for short in 1..2_000_u32 {
            let short = f64::from(short);
            worst = worst.max(mean(&[(0.0, share), (short, 1.0 - share)]));
            let half = (1.0 - share) / 2.0;
            let two = mean(&[(0.0, share), (short, half), (short / 3.0, half)]);
            assert!(two <= bound, "{share} {short}: {two} is above {bound}");
        }
        assert!(worst <= bound && worst > 0.999 * bound, "{share}: {worst} of {bound}");
    }
    assert!(mechanism().unwrap().mean_shortfall(1.0, 0).unwrap().abs() < 1e-6);
}

#[test]
fn candidates_that_are_nearly_best_help() {
    let mechanism = mechanism().unwrap();
    for within in [1_u64, 20, 100] {
        for share in [0.3, 0.02] {
            let bound = mechanism.mean_shortfall(share, within).unwrap();
            let near = within as f64;
            for short in 1..1_000_u32 {
                let far = near + f64::from(short);
                let found = mean(&[(0.0, 1e-6), (near, share), (far, 1.0 - share)]);
                assert!(found <= bound, "{within} {share} {short}: {found} is above {bound}");
            }
        }
    }
}

#[test]
fn the_textbooks_bound_is_never_closer() {
    let mechanism = mechanism().unwrap();
    for best in [1_000.0_f64, 1e5, 1e7] {
        for share in [0.5, 0.01, 1e-5] {
            // The least t with t >= b ln(OPT/(t s)).
            let enough = |t: &u64| *t as f64 >= SCALE * (best / (*t as f64 * share)).ln();
            let t = (1..100_000).find(enough).unwrap();
            let ours = mechanism.mean_shortfall(share, t).unwrap();
            assert!(ours <= 2.0 * t as f64, "{best} {share}: {ours} for t = {t}");
        }
    }
}

#[test]
fn the_planned_epsilon_is_the_least() {
    for (share, within, most) in [(0.01, 0, 50.0), (1e-6, 10, 500.5), (0.3, 0, 0.7)] {
        let planned = ExponentialMechanism::for_mean_shortfall(3, share, within, most).unwrap();
        assert!(planned.mean_shortfall(share, within).unwrap() <= most);
        let less = PureLoss::new((planned.loss().nanos() - 1) as f64 * 1e-9).unwrap();
        let less = ExponentialMechanism::new(3, less).unwrap();
        assert!(less.mean_shortfall(share, within).unwrap() > most, "{share} {within} {most}");
    }
    let plan = |share, most| ExponentialMechanism::for_mean_shortfall(1, share, 5, most);
    for most in [5.0, 1.0, f64::NAN, 5.000_001] {
        assert!(matches!(plan(0.1, most), Err(QueryError::Epsilon(_))), "{most}");
    }
    assert_eq!(plan(0.0, 9.0), Err(QueryError::NoCandidates));
    assert_eq!(mechanism().unwrap().mean_shortfall(1.5, 0), Err(QueryError::NoCandidates));
}
