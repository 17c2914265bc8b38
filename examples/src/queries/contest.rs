//! Comparison on many adaptive counting queries: private multiplicative weights against independent
//! noise.

use std::collections::BTreeMap;

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::cells::CellSet;
use bandana_mechanisms::queries::counting::CountingMechanism;
use bandana_mechanisms::queries::price::{ConcentratedLoss, Price, PureLoss};
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::Universe;
use bandana_mechanisms::queries::weights::{
    MultiplicativeWeights, Round, SessionPlan, SessionSecret,
};
use bandana_shared::accounting::delta::Delta;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::{ChaCha8Rng, ChaCha20Rng};
use serde::Serialize;

use super::people::traits;

/// The δ of the Gaussian mechanism, whose guarantee is weaker than the others'.
pub const DELTA: f64 = 1e-6;

/// Number of points of a curve.
const POINTS: u64 = 200;

/// Settings of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of queries.
    pub queries: u64,
    /// The budget of each contestant.
    pub epsilon: f64,
    /// Maximum number of updates of the session.
    pub updates: u32,
    /// The session's threshold, as a share of the rows.
    pub threshold: f64,
    /// The seed of the queries. It also determines the noise, which makes pictures reproducible and
    /// is unsafe for data about people.
    pub seed: u64,
}

/// A mechanism and its errors.
#[derive(Clone, Debug, Serialize)]
pub struct Contestant {
    /// Its name.
    pub name: &'static str,
    /// Number of queries that it answered: all of them, unless its session ended before.
    pub answered: u64,
    /// Mean error of the answers, as a share of the rows.
    pub mean_error: f64,
    /// The largest error.
    pub largest_error: f64,
    /// Mean error so far, after a number of queries.
    #[serde(skip)]
    pub curve: Vec<(u64, f64)>,
}

/// The outcome of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Number of rows.
    pub rows: u64,
    /// Number of cells of the universe.
    pub cells: usize,
    /// Number of queries.
    pub queries: u64,
    /// Number of updates in the session.
    pub updates: u32,
    /// The contestants; multiplicative weights first.
    pub contestants: Vec<Contestant>,
}

/// Errors accumulated so far.
struct Score {
    name: &'static str,
    sum: f64,
    largest: f64,
    answered: u64,
    curve: Vec<(u64, f64)>,
}

impl Score {
    fn new(name: &'static str) -> Self {
        Self { name, sum: 0.0, largest: 0.0, answered: 0, curve: Vec::new() }
    }

    fn add(&mut self, error: f64, step: u64) {
        self.sum += error;
        self.largest = self.largest.max(error);
        self.answered += 1;
        if self.answered.is_multiple_of(step) {
            self.curve.push((self.answered, self.sum / self.answered as f64));
        }
    }

    fn finish(self) -> Contestant {
        let Self { name, sum, largest, answered, curve } = self;
        let mean_error = sum / answered.max(1) as f64;
        Contestant { name, answered, mean_error, largest_error: largest, curve }
    }
}

/// Runs the comparison. The analyst adapts: every second query follows up a surprising answer. A
/// session that has used all its updates answers no more, and the analyst goes on with Laplace noise.
///
/// # Errors
/// When the settings are invalid.
pub fn play(people: &Rows, settings: Settings) -> anyhow::Result<Outcome> {
    let Settings { queries, epsilon, updates, threshold, seed } = settings;
    let universe = people.schema().universe(&traits())?;
    let (histogram, rows, cells) = (people.histogram(&universe), people.count(), universe.cells());
    let loss = PureLoss::new(epsilon)?;
    let threshold = whole(threshold * rows as f64).max(1);
    let plan = SessionPlan::chosen(Price::Pure(loss), updates, threshold)?;
    let mut noise = ChaCha20Rng::seed_from_u64(seed);
    let secret = SessionSecret::draw(&plan, &mut noise)?;
    let mut session = MultiplicativeWeights::new(plan, rows, cells, secret)?;
    let laplace = CountingMechanism::new(queries, Price::Pure(loss))?;
    let rho = ConcentratedLoss::within(loss.loss(), Delta::new(DELTA)?)?;
    let gaussian = CountingMechanism::new(queries, Price::Concentrated(rho))?;
    let mut scores = ["multiplicative weights", "Laplace", "Gaussian"].map(Score::new);
    let mut analyst = Analyst::new(&universe, seed);
    for _ in 0..queries {
        let query = analyst.next()?;
        let truth = query.count(&histogram)?;
        let given = match session.ask(&histogram, &query, &mut noise) {
            Ok(Round::Lazy { answer }) => Some(answer),
            Ok(Round::Update { answer }) => {
                session.update(&query, answer)?;
                Some(answer as f64)
            }
            Err(QueryError::SessionExhausted { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let exact = [i64::try_from(truth)?];
        let with = |mechanism: CountingMechanism, noise: &mut ChaCha20Rng| {
            mechanism.release(&exact, noise).first().copied().unwrap_or(0) as f64
        };
        let (by_laplace, by_gauss) = (with(laplace, &mut noise), with(gaussian, &mut noise));
        analyst.hear(&query, given.unwrap_or(by_laplace) / rows as f64);
        for (score, answer) in scores.iter_mut().zip([given, Some(by_laplace), Some(by_gauss)]) {
            if let Some(answer) = answer {
                let error = (answer - truth as f64).abs() / rows as f64;
                score.add(error, queries.div_ceil(POINTS));
            }
        }
    }
    let contestants = scores.into_iter().map(Score::finish).collect();
    Ok(Outcome { rows, cells, queries, updates: session.used(), contestants })
}

/// The nearest integer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float beyond the range becomes its end"
)]
pub(super) fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// An analyst's query: people who have one of two combinations of traits. A combination has for
/// each column a required value, or none.
type Thought = [Vec<Option<u32>>; 2];

/// The adaptive analyst.
struct Analyst<'u> {
    universe: &'u Universe,
    chance: ChaCha8Rng,
    thought: Thought,
    /// Queries by the surprise of their answer, in billionths.
    surprising: BTreeMap<u64, Thought>,
}

impl<'u> Analyst<'u> {
    fn new(universe: &'u Universe, seed: u64) -> Self {
        let chance = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        Self { universe, chance, thought: Thought::default(), surprising: BTreeMap::new() }
    }

    /// The next query. Every second one follows up the most surprising recent answer; the others
    /// are new.
    fn next(&mut self) -> anyhow::Result<CellSet> {
        let most = self.surprising.pop_last().filter(|_| self.chance.random_bool(0.5));
        self.thought = match most {
            Some((_, thought)) => self.follow_up(thought),
            None => [self.combination(), self.combination()],
        };
        let fits = |codes: &[u32], combination: &[Option<u32>]| {
            combination.iter().zip(codes).all(|(wanted, code)| wanted.is_none_or(|w| w == *code))
        };
        Ok(CellSet::of(self.universe.cells(), |cell| {
            let codes = self.universe.codes(cell);
            self.thought.iter().any(|combination| fits(&codes, combination))
        })?)
    }

    /// A random combination of one to three traits.
    fn combination(&mut self) -> Vec<Option<u32>> {
        let columns = self.universe.schema().columns().len();
        let mut combination = vec![None; columns];
        for _ in 0..self.chance.random_range(1..=3) {
            let place = self.chance.random_range(0..columns);
            if let Some(wanted) = combination.get_mut(place) {
                *wanted = Some(self.chance.random_range(0..2));
            }
        }
        combination
    }

    /// The query with one trait added, dropped or inverted.
    fn follow_up(&mut self, mut thought: Thought) -> Thought {
        let which = usize::from(self.chance.random_bool(0.5));
        let place = self.chance.random_range(0..self.universe.schema().columns().len());
        if let Some(wanted) = thought[which].get_mut(place) {
            *wanted = match *wanted {
                None => Some(self.chance.random_range(0..2)),
                Some(code) if self.chance.random_bool(0.5) => Some(1 - code),
                Some(_) => None,
            };
        }
        thought
    }

    /// Records queries whose answer is far from that of uniform data.
    fn hear(&mut self, query: &CellSet, share: f64) {
        let uniform = query.members().count() as f64 / self.universe.cells() as f64;
        let surprise = whole((share - uniform).abs() * 1e9);
        self.surprising.insert(surprise, self.thought.clone());
        if self.surprising.len() > 32 {
            self.surprising.pop_first();
        }
    }
}
