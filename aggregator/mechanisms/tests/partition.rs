//! Names that nobody knows before are told by a threshold.

use std::collections::BTreeMap;

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::partition::PartitionSelection;
use bandana_mechanisms::queries::price::{ConcentratedLoss, Price, PureLoss};
use bandana_shared::accounting::delta::Delta;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

fn pure(epsilon: f64) -> Price {
    Price::Pure(PureLoss::new(epsilon).expect("an epsilon"))
}

fn concentrated(rho: f64) -> Price {
    Price::Concentrated(ConcentratedLoss::new(rho).expect("a rho"))
}

fn selection(row: Price, delta: f64, rows: u32) -> PartitionSelection {
    let delta = Delta::new(delta).expect("a delta");
    PartitionSelection::new(row, delta, rows).expect("a selection")
}

/// Prices of a row, and how many rows each person has.
fn settings() -> [(Price, u32); 5] {
    [
        (pure(0.5), 1),
        (pure(2.0), 1),
        (concentrated(0.05), 1),
        (pure(0.3), 3),
        (concentrated(0.1), 3),
    ]
}

/// How often of a million tries some name is told, where each of so many has a number of rows.
fn told(selection: PartitionSelection, names: u32, rows: u64) -> f64 {
    let counts: BTreeMap<u32, u64> = (0..names).map(|name| (name, rows)).collect();
    let mut random = ChaCha20Rng::seed_from_u64(7);
    let tries = 1_000_000;
    let told = (0..tries).filter(|_| !selection.select(&counts, &mut random).is_empty()).count();
    told as f64 / f64::from(tries)
}

#[test]
fn the_names_of_one_person_are_told_with_probability_delta_at_most() {
    let delta = 1e-3;
    for (row, rows) in settings() {
        let selection = selection(row, delta, rows);
        // However a person puts the rows: all into one name, or each into one of its own.
        let ways = [told(selection, 1, u64::from(rows)), told(selection, rows, 1)];
        let most = ways.into_iter().fold(0.0, f64::max);
        // A million tries are off by a tenth at most, and the threshold is a whole number.
        assert!(most < 1.1 * delta, "{row:?} {rows}: {ways:?}");
        assert!(most > 0.1 * delta, "much noise is wasted: {row:?} {rows}: {ways:?}");
    }
}

#[test]
fn a_name_of_many_rows_is_found_as_often_as_is_said() {
    for (row, rows) in settings() {
        let selection = selection(row, 1e-9, rows);
        let least = selection.found_from(0.05).unwrap();
        assert!(told(selection, 1, least) > 0.949, "{row:?} {rows}");
        assert!(told(selection, 1, least * 9 / 10) < 0.95, "{row:?} {rows}");
    }
}

#[test]
fn only_names_of_rows_are_told_with_their_noisy_counts_in_their_order() {
    let counts = BTreeMap::from([("a", 900), ("b", 0), ("c", 1), ("d", 400)]);
    let mut random = ChaCha20Rng::seed_from_u64(1);
    let told = selection(pure(1.0), 1e-9, 1).select(&counts, &mut random);
    assert_eq!(told.iter().map(|(name, _)| **name).collect::<Vec<_>>(), ["a", "d"]);
    assert!(
        told.iter().zip([900, 400]).all(|((_, noisy), exact): (_, i64)| noisy.abs_diff(exact) < 60)
    );
}

#[test]
fn a_delta_out_of_range_is_refused() {
    for delta in [0.0, 0.0011, 1.0] {
        let refused = PartitionSelection::new(pure(1.0), Delta::new(delta).unwrap(), 1);
        assert_eq!(refused, Err(QueryError::SelectionDelta(delta)));
    }
    assert_eq!(pure(1.0).part(4), Ok(pure(0.25)));
    assert_eq!(concentrated(1.0).part(4), Ok(concentrated(0.25)));
    for price in [pure(1e-9), concentrated(1e-9)] {
        assert!(price.part(2).is_err() && price.part(0).is_err());
    }
}
