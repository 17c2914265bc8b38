//! Sessions of multiplicative weights under ρ cost no more than their price, and keep their promise.
//!
//! Seeds are fixed.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::cells::CellSet;
use bandana_mechanisms::queries::price::{ConcentratedLoss, Price, PureLoss};
use bandana_mechanisms::queries::threshold::RunKey;
use bandana_mechanisms::queries::weights::{
    MultiplicativeWeights, Promise, Round, SessionPlan, SessionSecret,
};
use rand::{Rng as _, RngExt as _};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

const PROMISE: Promise = Promise { rows: 100_000, cells: 820, queries: 1_000, beta: 0.05 };

/// The ρ of epsilon = 2: 2 tanh(1).
fn rho() -> Result<Price, QueryError> {
    ConcentratedLoss::new(1.523_188_312).map(Price::Concentrated)
}

/// Rows far from uniform: half of them in one cell, the rest in a tenth of the cells.
fn skewed(rows: u64, cells: usize) -> Vec<u64> {
    let mut histogram = vec![0; cells];
    let some = cells.div_ceil(10);
    for (cell, count) in histogram.iter_mut().take(some).enumerate() {
        *count = rows / 2 / some as u64 + cell as u64 % 3;
    }
    histogram[7] += rows - histogram.iter().sum::<u64>();
    histogram
}

/// The divergence of the hypothesis from the data.
fn divergence(histogram: &[u64], hypothesis: &[f64]) -> f64 {
    let rows: u64 = histogram.iter().sum();
    let term = |(&count, &expected): (&u64, &f64)| {
        let share = count as f64 / rows as f64;
        if count == 0 { 0.0 } else { share * (share / expected).ln() }
    };
    histogram.iter().zip(hypothesis).map(term).sum()
}

/// Asks queries, every second of which repeats or widens the one whose answer was farthest from
/// uniform. Returns the largest error and the number of updates.
fn largest_error(plan: SessionPlan, promise: Promise, seed: u64) -> Result<(f64, u32), QueryError> {
    let Promise { rows, cells, queries, .. } = promise;
    let histogram = skewed(rows, cells);
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let secret = SessionSecret::draw(&plan, &mut rng)?;
    let mut session = MultiplicativeWeights::new(plan, rows, cells, secret)?;
    let (mut largest, mut farthest, mut hardest) = (0.0_f64, -1.0, None);
    for round in 0..queries {
        let query = match &hardest {
            Some(query) if round % 2 == 0 => CellSet::clone(query),
            _ => {
                let words: Vec<u64> = (0..cells.div_ceil(64)).map(|_| rng.next_u64()).collect();
                let low = rng.random_range(0..cells);
                CellSet::of(cells, |cell| {
                    words[cell / 64] >> (cell % 64) & 1 == 1 || (round % 4 == 1 && cell > low)
                })?
            }
        };
        let given = match session.ask(&histogram, &query, &mut rng)? {
            Round::Lazy { answer } => answer,
            Round::Update { answer } => {
                let before = divergence(&histogram, session.hypothesis());
                session.update(&query, answer)?;
                // 2 (g/n)² with the plan's g, which the promised number of updates rests on.
                let step = (cells as f64).ln() / f64::from(plan.updates());
                let fell = before - divergence(&histogram, session.hypothesis());
                assert!(plan.threshold() == 0 || fell >= step, "{fell} is below {step}");
                answer as f64
            }
        };
        largest = largest.max((given - query.count(&histogram)? as f64).abs());
        let uniform = rows as f64 * query.members().count() as f64 / cells as f64;
        if (given - uniform).abs() > farthest {
            (farthest, hardest) = ((given - uniform).abs(), Some(query));
        }
    }
    Ok((largest, session.used()))
}

#[test]
fn what_is_promised_for_rho_is_far_below_what_is_for_epsilon() {
    // The table of docs/queries.md.
    let pure = Price::Pure(PureLoss::new(2.0).unwrap());
    let rho = rho().unwrap();
    let rows = |planned: Result<(SessionPlan, f64), QueryError>| {
        planned.map_or_else(|_| "none".to_owned(), |(_, alpha)| format!("{alpha:.0}"))
    };
    for (queries, promised) in [
        (1_000, ["19216", "4939", "6252", "73"]),
        (100_000, ["21534", "none", "3816", "910"]),
        (10_000_000, ["23441", "none", "4056", "none"]),
        (1_000_000_000, ["25079", "none", "4284", "none"]),
    ] {
        let promise = Promise { queries, ..PROMISE };
        let found = [pure, rho].map(|price| {
            let plans = [SessionPlan::promised_by_weights, SessionPlan::promised_by_noise];
            plans.map(|plan| rows(plan(price, promise)))
        });
        assert_eq!(found.concat(), promised, "{queries}");
        for (price, [weights, noise]) in [pure, rho].into_iter().zip(found) {
            let best = if noise == "none" { weights } else { noise };
            assert_eq!(rows(SessionPlan::promised(price, promise)), best);
        }
    }
}

#[test]
fn sessions_of_rho_are_as_accurate_as_they_promise() {
    let small = Promise { rows: 40_000, cells: 200, queries: 400, beta: 1e-4 };
    let mut updates = 0;
    for seed in 0..6 {
        let (plan, alpha) = SessionPlan::promised_by_weights(rho().unwrap(), small).unwrap();
        assert!((plan.accuracy(small.queries, small.beta).unwrap() - alpha).abs() < 1.0);
        let (largest, used) = largest_error(plan, small, seed).unwrap();
        assert!(largest <= alpha, "{largest} is above {alpha}");
        assert!(used > 0 && used < plan.updates(), "{used} of {}", plan.updates());
        updates += used;
        let (plan, alpha) = SessionPlan::promised_by_noise(rho().unwrap(), small).unwrap();
        let (largest, used) = largest_error(plan, small, seed).unwrap();
        assert!(largest <= alpha && u64::from(used) == small.queries, "{largest} of {alpha}");
    }
    assert!(updates > 12, "{updates}");
}

#[test]
fn each_run_of_a_session_has_a_secret_number_of_its_own() {
    // Two cells with 300 rows more than expected, at the threshold: a comparison with either is above
    // with probability 1/2 at the start of a run.
    let histogram: Vec<u64> = (0..64).map(|cell| if cell < 2 { 1_300 } else { 990 }).collect();
    let rows = histogram.iter().sum();
    let cell = |wanted: usize| CellSet::of(64, |cell| cell == wanted).unwrap();
    let price = Price::Concentrated(ConcentratedLoss::new(0.000_15).unwrap());
    let plan = SessionPlan::chosen(price, 2, 300).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(6);
    let [mut first, mut both] = [0; 2];
    for _ in 0..1_000 {
        let secret = SessionSecret::draw(&plan, &mut rng).unwrap();
        let mut session = MultiplicativeWeights::new(plan, rows, 64, secret).unwrap();
        let Round::Update { answer } = session.ask(&histogram, &cell(0), &mut rng).unwrap() else {
            continue;
        };
        session.update(&cell(0), answer).unwrap();
        first += 1;
        let second = session.ask(&histogram, &cell(1), &mut rng).unwrap();
        both += u32::from(matches!(second, Round::Update { .. }));
    }
    // With one number for both runs, the second would follow the first in 2 of 3 cases.
    assert!((420..580).contains(&first), "{first}");
    let share = f64::from(both) / f64::from(first);
    assert!((0.42..0.58).contains(&share), "{share}");
}

#[test]
fn plans_cost_no_more_than_their_price() {
    let prices = |nanos: f64| -> [Price; 2] {
        let rho = Price::Concentrated(ConcentratedLoss::new(nanos).unwrap());
        [Price::Pure(PureLoss::new(nanos).unwrap()), rho]
    };
    for amount in [0.000_012_345, 0.001, 0.7, 1.523_188_312, 31.0] {
        for price in prices(amount) {
            let most = ConcentratedLoss::new(amount).unwrap().nanos();
            let plans = [1, 2, 77, 1_000, 100_000]
                .map(|updates| SessionPlan::chosen(price, updates, 300))
                .into_iter()
                .chain([SessionPlan::promised_by_weights, SessionPlan::promised_by_noise].map(
                    |plan| plan(price, Promise { rows: 1 << 40, ..PROMISE }).map(|(plan, _)| plan),
                ));
            for plan in plans.flatten() {
                let lost = plan.loss_nanos();
                assert!(lost <= most, "{price:?}: {plan:?}");
                // Nor is any of it wasted, but for the largest θ that is proved.
                let capped = matches!(price, Price::Concentrated(_)) && amount > 0.1;
                assert!(capped || lost as f64 > 0.98 * most as f64, "{price:?}: {plan:?}");
            }
        }
    }
}

#[test]
fn the_secret_of_another_plan_is_refused() {
    let key = SessionSecret::Key(RunKey::from_bytes([3; 32]));
    let of_rho = SessionPlan::chosen(rho().unwrap(), 10, 300).unwrap();
    let of_epsilon = SessionPlan::chosen(Price::Pure(PureLoss::new(1.0).unwrap()), 10, 300);
    let new = |plan, secret| MultiplicativeWeights::new(plan, 1_000, 64, secret);
    assert!(new(of_rho, SessionSecret::Threshold(0)).is_err());
    assert!(new(of_epsilon.unwrap(), key.clone()).is_err());
    let session = new(of_rho, key).unwrap();
    let shown = format!("{session:?}");
    assert!(!shown.contains("secret") && !shown.contains('['), "{shown}");
}
