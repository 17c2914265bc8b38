//! The coupling theorem behind lower bounds of regret, on a mechanism small enough to enumerate.

use std::collections::BTreeMap;

const PEOPLE: usize = 6;

/// The law of a noisy sum.
type Law = BTreeMap<i64, f64>;

/// The sum of independent bits of these means, with discrete Gaussian noise of ρ = 1/(2 σ²).
fn noisy_sum(means: &[f64; PEOPLE], rho: f64) -> Law {
    let mut sums = vec![1.0];
    for mean in means {
        let mut next = vec![0.0; sums.len() + 1];
        for (ones, probability) in sums.iter().enumerate() {
            next[ones] += probability * (1.0 - mean);
            next[ones + 1] += probability * mean;
        }
        sums = next;
    }
    let weight = |k: i64| (-(k * k) as f64 * rho).exp();
    let total: f64 = (-60..=60).map(weight).sum();
    let mut law = Law::new();
    for (ones, probability) in sums.into_iter().enumerate() {
        for k in -60..=60 {
            *law.entry(ones as i64 + k).or_default() += probability * weight(k) / total;
        }
    }
    law
}

fn kl(p: &Law, q: &Law) -> f64 {
    p.iter().filter(|(_, p)| **p > 1e-30).map(|(k, p)| p * (p / q[k].max(1e-300)).ln()).sum()
}

/// ρ times the mean square of the number of people who differ under the closest coupling: each
/// differs with probability t, the total variation distance of two bits.
fn bound(one: &[f64; PEOPLE], other: &[f64; PEOPLE], rho: f64) -> f64 {
    let distances = one.iter().zip(other).map(|(p, q)| (p - q).abs());
    let mean: f64 = distances.clone().sum();
    rho * (mean * mean + distances.map(|t| t * (1.0 - t)).sum::<f64>())
}

#[test]
fn who_is_close_to_each_other_is_told_apart_no_better_than_their_coupling_says() {
    let cases = [
        ([0.5; PEOPLE], [0.6; PEOPLE]),
        ([0.1; PEOPLE], [0.9; PEOPLE]),
        ([0.0; PEOPLE], [1.0; PEOPLE]),
        ([0.2, 0.5, 0.5, 0.7, 0.0, 1.0], [0.4, 0.5, 0.1, 0.9, 0.1, 1.0]),
        ([0.0, 0.5, 0.5, 0.5, 0.5, 0.5], [1.0, 0.5, 0.5, 0.5, 0.5, 0.5]),
    ];
    for rho in [0.01, 0.05, 0.2] {
        for (one, other) in cases {
            let found = kl(&noisy_sum(&one, rho), &noisy_sum(&other, rho));
            let most = bound(&one, &other, rho);
            assert!(found <= most * (1.0 + 1e-9), "{one:?} {other:?}: {found} above {most}");
        }
        // Where all people differ for certain it is attained: the price of a group, n² ρ.
        let found = kl(&noisy_sum(&[0.0; PEOPLE], rho), &noisy_sum(&[1.0; PEOPLE], rho));
        assert!(found > 0.99 * 36.0 * rho, "{found} for {rho}");
    }
    // And half of the noise is above it.
    let (one, other) = ([0.1; PEOPLE], [0.9; PEOPLE]);
    let found = kl(&noisy_sum(&one, 0.04), &noisy_sum(&other, 0.04));
    assert!(found > bound(&one, &other, 0.01), "{found}");
}
