//! Prices in ρ hold for every order of the Rényi divergence, and no lower ones would.
//!
//! Outcomes of small instances are enumerated, with the exact probabilities of the definition.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::exponential::ExponentialMechanism;
use bandana_mechanisms::queries::noisy_max::NoisyMax;
use bandana_mechanisms::queries::price::{LossShape, Measure, Price, PureLoss};
use bandana_mechanisms::queries::questions::{Aim, Chooser, Class, Question, Size};

use crate::renyi::rho;

fn charge(epsilon: f64, shape: LossShape) -> Result<f64, QueryError> {
    let price = Price::Pure(PureLoss::new(epsilon)?);
    Ok(price.nanos(Measure::Concentrated, shape)? as f64 * 1e-9)
}

/// The choices of the exponential mechanism among candidates of these weights.
fn exponential(epsilon: f64, utilities: &[i32], weights: &[f64]) -> Vec<f64> {
    let weigh = |(u, w): (&i32, &f64)| w * (epsilon * f64::from(*u) / 2.0).exp();
    let weights: Vec<f64> = utilities.iter().zip(weights).map(weigh).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// All lists of this length of -1, 0 and 1.
fn steps(length: usize) -> Vec<Vec<i32>> {
    (0..length).fold(vec![Vec::new()], |lists, _| {
        let longer = |list: &Vec<i32>| [-1, 0, 1].map(|step| [&list[..], &[step]].concat());
        lists.iter().flat_map(longer).collect()
    })
}

#[test]
fn the_exponential_mechanism_costs_what_bounded_range_does_and_no_less() {
    for epsilon in [0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 12.0] {
        let mut most = 0.0_f64;
        for utilities in [&[0, 0][..], &[1, 0], &[2, 0], &[0, 1, 0], &[3, 1, 0, 0]] {
            for weights in [[1.0; 4], [1.0, 3.0, 9.0, 1.0], [1.0, 60.0, 0.2, 7.0]] {
                let before = exponential(epsilon, utilities, &weights);
                for step in steps(utilities.len()) {
                    let moved: Vec<i32> = utilities.iter().zip(&step).map(|(u, s)| u + s).collect();
                    most = most.max(rho(&exponential(epsilon, &moved, &weights), &before));
                }
            }
        }
        let charged = charge(epsilon, ExponentialMechanism::LOSS).unwrap();
        assert!(most <= charged, "epsilon {epsilon}: {most} is above the price {charged}");
        // The price can't be lowered by one percent, for an epsilon that is not large.
        assert!(epsilon > 0.5 || most > 0.99 * charged, "epsilon {epsilon}: {most} of {charged}");
    }
}

/// The choices of report noisy max: each set of coins that show heads, and one of them at random.
fn noisy_max(epsilon: f64, utilities: &[i32]) -> Vec<f64> {
    let best = utilities.iter().max().copied().unwrap_or(0);
    let heads: Vec<f64> =
        utilities.iter().map(|u| (-epsilon * f64::from(best - u) / 2.0).exp()).collect();
    let mut chosen = vec![0.0; utilities.len()];
    for set in 1_u32..1 << utilities.len() {
        let shows = |place: usize| set >> place & 1 == 1;
        let odds = |(place, head): (usize, &f64)| if shows(place) { *head } else { 1.0 - head };
        let odds: f64 = heads.iter().enumerate().map(odds).product();
        for (place, chosen) in chosen.iter_mut().enumerate().filter(|(place, _)| shows(*place)) {
            *chosen += odds / f64::from(set.count_ones()) * f64::from(u8::from(shows(place)));
        }
    }
    chosen
}

#[test]
fn noisy_max_is_private_and_costs_more_than_bounded_range() {
    for epsilon in [0.1, 0.25, 0.5, 1.0, 3.0] {
        let mut most = 0.0_f64;
        for utilities in [&[0, 0][..], &[0, 1], &[2, 0], &[0, 1, 0], &[1, 1, 0, 0]] {
            let before = noisy_max(epsilon, utilities);
            assert!((before.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            for step in steps(utilities.len()) {
                let moved: Vec<i32> = utilities.iter().zip(&step).map(|(u, s)| u + s).collect();
                let after = noisy_max(epsilon, &moved);
                for (before, after) in before.iter().zip(&after) {
                    assert!(
                        (before / after).ln().abs() <= epsilon + 1e-9,
                        "{utilities:?} {step:?}"
                    );
                }
                most = most.max(rho(&after, &before));
            }
        }
        let charged = charge(epsilon, NoisyMax::LOSS).unwrap();
        assert!(most <= charged, "epsilon {epsilon}: {most} is above the price {charged}");
        // Its price could not be that of the exponential mechanism.
        let bounded = charge(epsilon, LossShape::BoundedRange).unwrap();
        assert!(epsilon > 0.5 || most > 3.0 * bounded, "epsilon {epsilon}: {most}, {bounded}");
    }
}

#[test]
fn questions_are_charged_by_their_mechanism() {
    let choice = |chooser| Question::choice("city", Aim::MostCommon, chooser);
    let columns = vec!["city".to_owned()];
    let synthetic = Question::Synthetic {
        columns: columns.clone(),
        class: Class::Halfspaces,
        size: Size::Rows(3),
    };
    let half = Price::Pure(PureLoss::new(0.5).unwrap());
    // 0.5^2/8, and 0.5 tanh(0.25) = 0.1224593...
    for (question, rho) in [
        (choice(Chooser::Exponential(None)), 31_250_000),
        (choice(Chooser::Exponential(Some(vec![1, 2]))), 31_250_000),
        (synthetic, 31_250_000),
        (choice(Chooser::NoisyMax), 122_459_332),
        (Question::histogram(columns.clone()), 122_459_332),
        (Question::sums(&columns), 122_459_332),
        (Question::Counts { predicates: columns }, 122_459_332),
    ] {
        assert_eq!(question.charge(half, Measure::Concentrated), Ok(rho), "{question:?}");
        assert_eq!(question.charge(half, Measure::Pure), Ok(500_000_000), "{question:?}");
    }
}
