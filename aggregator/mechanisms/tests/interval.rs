//! Choices from an interval have the probabilities of the exponential mechanism over all of its
//! points.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::interval::{IntervalMechanism, Piece, quantile};
use bandana_mechanisms::queries::price::{Measure, Price, PureLoss};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

const VALUES: [i64; 7] = [-3, 1, 1, 4, 9, 12, 40];
const ENDS: (i64, i64) = (-5, 14);

/// The score of a point as the value of this rank, by counting.
fn score(values: &[i64], rank: i64, point: i64) -> i64 {
    let clamped = values.iter().map(|value| value.clamp(&ENDS.0, &ENDS.1));
    let below = clamped.clone().filter(|&&value| value < point).count();
    let until = clamped.filter(|&&value| value <= point).count();
    let [below, until] = [below, until].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    -(rank - until).max(below + 1 - rank).max(0)
}

/// The probability of every point, by the definition.
fn probabilities(values: &[i64], rank: i64, epsilon: f64) -> Vec<f64> {
    let weight = |point| (epsilon * score(values, rank, point) as f64 / 2.0).exp();
    let weights: Vec<f64> = (ENDS.0..=ENDS.1).map(weight).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

#[test]
fn every_point_has_the_probability_of_the_definition() {
    const DRAWS: u32 = 20_000;
    for (rank, epsilon, seed) in [(4, 1.0, 1), (1, 0.3, 2), (7, 3.0, 3)] {
        let pieces = quantile(&VALUES, ENDS.0, ENDS.1, rank).unwrap();
        let mechanism = IntervalMechanism::new(1, PureLoss::new(epsilon).unwrap()).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut found = vec![0.0; 20];
        for _ in 0..DRAWS {
            let point = mechanism.choose(&pieces, &mut rng).unwrap();
            found[usize::try_from(point - ENDS.0).unwrap()] += 1.0;
        }
        let expected = probabilities(&VALUES, i64::try_from(rank).unwrap(), epsilon);
        let parts = found.iter().zip(&expected).map(|(found, share)| {
            let expected = share * f64::from(DRAWS);
            (found - expected).powi(2) / expected
        });
        // 19 degrees of freedom: above 66 with a probability of about 4e-7.
        let distance: f64 = parts.sum();
        assert!(distance < 66.0, "rank {rank}: {distance}: {found:?}");
    }
}

#[test]
fn pieces_have_the_scores_of_their_points() {
    for rank in 1..=7 {
        let pieces = quantile(&VALUES, ENDS.0, ENDS.1, rank).unwrap();
        let points = pieces
            .iter()
            .flat_map(|piece| (piece.first..=piece.last).map(move |point| (point, piece.score)));
        let points: Vec<(i64, i64)> = points.collect();
        let rank = i64::try_from(rank).unwrap();
        let expected: Vec<(i64, i64)> =
            (ENDS.0..=ENDS.1).map(|point| (point, score(&VALUES, rank, point))).collect();
        assert_eq!(points, expected);
    }
}

#[test]
fn its_price_in_rho_holds_for_every_neighbour() {
    for epsilon in [0.1, 0.5, 2.0] {
        let before = probabilities(&VALUES, 4, epsilon);
        let mut most = 0.0_f64;
        for place in 0..VALUES.len() {
            for other in ENDS.0..=ENDS.1 {
                let mut values = VALUES;
                values[place] = other;
                let after = probabilities(&values, 4, epsilon);
                most = most
                    .max(crate::renyi::rho(&before, &after))
                    .max(crate::renyi::rho(&after, &before));
                let ratios = before.iter().zip(&after).map(|(p, q)| (p / q).ln().abs());
                assert!(ratios.fold(0.0, f64::max) <= epsilon * (1.0 + 1e-9));
            }
        }
        let price = Price::Pure(PureLoss::new(epsilon).unwrap());
        let nanos = price.nanos(Measure::Concentrated, IntervalMechanism::LOSS).unwrap();
        assert!(most <= nanos as f64 * 1e-9, "{epsilon}: {most}");
        assert!(most > 0.2 * nanos as f64 * 1e-9, "{epsilon}: {most}");
    }
}

#[test]
fn the_longest_interval_is_no_burden_and_the_best_point_is_found() {
    let end = 1_i64 << 62;
    let values: Vec<i64> = (0..101).map(|place| 1_000 + place).collect();
    let pieces = quantile(&values, -end, end, 51).unwrap();
    let mechanism = IntervalMechanism::new(1, PureLoss::new(2.0).unwrap()).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    // One point of 2^63 + 1 has the best score.
    let most = mechanism.shortfall((1 << 63) + 1, 1, 0.001).unwrap();
    assert_eq!(most, 51);
    for _ in 0..50 {
        let point = mechanism.choose(&pieces, &mut rng).unwrap();
        let piece = pieces.iter().find(|piece| (piece.first..=piece.last).contains(&point));
        assert!(piece.unwrap().score >= -51, "{point}");
    }
}

#[test]
fn pieces_that_leave_a_gap_are_refused() {
    let mechanism = IntervalMechanism::new(1, PureLoss::new(1.0).unwrap()).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    let mut choose = |pieces: &[(i64, i64)]| {
        let piece = |&(first, last): &(i64, i64)| Piece { first, last, score: 0 };
        mechanism.choose(&pieces.iter().map(piece).collect::<Vec<_>>(), &mut rng)
    };
    assert_eq!(choose(&[]), Err(QueryError::NoCandidates));
    for wrong in [&[(0, 3), (5, 9)][..], &[(0, 3), (3, 9)], &[(4, 3)], &[(0, i64::MAX)]] {
        assert_eq!(choose(wrong), Err(QueryError::Pieces), "{wrong:?}");
    }
    assert!((0..=9).contains(&choose(&[(0, 3), (4, 9)]).unwrap()));
    assert_eq!(quantile(&[1], 3, 2, 1), Err(QueryError::Pieces));
}
