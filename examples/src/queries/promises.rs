//! Promises of sessions beside the errors of many of them.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::cells::CellSet;
use bandana_mechanisms::queries::price::{ConcentratedLoss, LossShape, Measure, Price, PureLoss};
use bandana_mechanisms::queries::weights::{
    MultiplicativeWeights, Promise, Round, SessionPlan, SessionSecret,
};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use serde::Serialize;

/// The sessions that are compared: 1,000 adaptive queries about 100,000 rows in 820 cells.
const PROMISE: Promise = Promise { rows: 100_000, cells: 820, queries: 1_000, beta: 0.05 };

/// Their price in ε, and in the ρ that it costs.
const EPSILON: f64 = 2.0;

/// A kind of session, its promise, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// The noise and the price.
    pub name: &'static str,
    /// The error that is promised, in rows.
    pub promise: f64,
    /// The mean of the sessions' largest errors.
    pub mean_largest: f64,
    /// The largest error in any session.
    pub largest: f64,
    /// The share of the sessions with an answer beyond the promise.
    pub broken: f64,
    /// The mean number of updates.
    pub updates: f64,
}

/// A way to plan a session with a promise.
type Plan = fn(Price, Promise) -> Result<(SessionPlan, f64), QueryError>;

/// Runs `sessions` sessions of each kind. The noise follows from the seed, too.
///
/// # Errors
/// When a session has fewer updates than it takes.
pub fn compare(sessions: u32, seed: u64) -> anyhow::Result<Vec<Kept>> {
    let pure = Price::Pure(PureLoss::new(EPSILON)?);
    let rho = pure.nanos(Measure::Concentrated, LossShape::Symmetric)? as f64 * 1e-9;
    let rho = Price::Concentrated(ConcentratedLoss::new(rho)?);
    let kinds: [(&str, Plan, Price); 4] = [
        ("weights, epsilon", SessionPlan::promised_by_weights, pure),
        ("each answer, epsilon", SessionPlan::promised_by_noise, pure),
        ("weights, rho", SessionPlan::promised_by_weights, rho),
        ("each answer, rho", SessionPlan::promised_by_noise, rho),
    ];
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let kept = |(name, plan, price): (&'static str, Plan, Price)| -> anyhow::Result<Kept> {
        let (plan, promise) = plan(price, PROMISE)?;
        let (mut sum, mut largest, mut broken, mut updates) = (0.0, 0.0_f64, 0, 0);
        for _ in 0..sessions {
            let (error, used) = largest_error(plan, &mut rng)?;
            (sum, largest) = (sum + error, largest.max(error));
            broken += u32::from(error > promise);
            updates += used;
        }
        let count = f64::from(sessions);
        let (broken, updates) = (f64::from(broken) / count, f64::from(updates) / count);
        Ok(Kept { name, promise, mean_largest: sum / count, largest, broken, updates })
    };
    kinds.into_iter().map(kept).collect()
}

/// Half of the rows in one cell, the rest in a tenth of the cells.
fn histogram() -> Vec<u64> {
    let Promise { rows, cells, .. } = PROMISE;
    let some = cells.div_ceil(10);
    let mut histogram = vec![0; cells];
    for count in histogram.iter_mut().take(some) {
        *count = rows / 2 / some as u64;
    }
    histogram[7] += rows - histogram.iter().sum::<u64>();
    histogram
}

/// The largest error of a session, and its updates. Every second query is the one whose answer was
/// farthest from that of uniform rows; the others are random.
fn largest_error(plan: SessionPlan, rng: &mut ChaCha20Rng) -> anyhow::Result<(f64, u32)> {
    let Promise { rows, cells, queries, .. } = PROMISE;
    let histogram = histogram();
    let secret = SessionSecret::draw(&plan, rng)?;
    let mut session = MultiplicativeWeights::new(plan, rows, cells, secret)?;
    let (mut largest, mut farthest, mut hardest) = (0.0_f64, -1.0, None);
    for round in 0..queries {
        let query = match &hardest {
            Some(query) if round % 2 == 0 => CellSet::clone(query),
            _ => {
                let words: Vec<u64> = (0..cells.div_ceil(64)).map(|_| rng.next_u64()).collect();
                let low = rng.random_range(0..cells);
                let is_random = |cell: usize| words[cell / 64] >> (cell % 64) & 1 == 1;
                CellSet::of(cells, |cell| is_random(cell) || (round % 4 == 1 && cell > low))?
            }
        };
        let given = match session.ask(&histogram, &query, rng)? {
            Round::Lazy { answer } => answer,
            Round::Update { answer } => {
                session.update(&query, answer)?;
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
