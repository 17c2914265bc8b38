//! Losses and slacks that the tests run over.

use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::epsilon::Epsilon;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

pub(crate) fn loss(nats: f64) -> PrivacyLoss {
    PrivacyLoss::new(nats).unwrap()
}

pub(crate) fn epsilon(nats: f64) -> Epsilon {
    Epsilon::new(nats).unwrap()
}

pub(crate) fn delta(probability: f64) -> Delta {
    Delta::new(probability).unwrap()
}

/// Slacks from the least float to nearly 1.
pub(crate) const SLACKS: [f64; 8] =
    [5e-324, 1e-300, 1e-30, 1e-9, 1e-6, 0.01, 0.5, 1.0 - f64::EPSILON / 2.0];

/// Losses of one report, from the least to the largest.
pub(crate) const SINGLES: [f64; 8] = [Epsilon::MIN, 1e-4, 0.01, 0.1, 0.7, 2.0, 8.0, Epsilon::MAX];

/// `2^low` to `2^high`, evenly in the exponent.
pub(crate) fn scales(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (low..high).prop_map(f64::exp2)
}

/// 1 to `2^bits`, small numbers as often as large ones.
pub(crate) fn counts(bits: u32) -> impl Strategy<Value = u32> {
    (0..=bits).prop_flat_map(|bits| 1..=1_u32 << bits)
}

pub(crate) fn seeded(cases: u32, seed: u64) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
