//! Many adaptive counting queries, by private multiplicative weights and with noise on each.

use std::collections::BTreeMap;

use bandana_aggregator::curator::cells::CellSet;
use bandana_aggregator::curator::counting::CountingMechanism;
use bandana_aggregator::curator::price::{ConcentratedLoss, Price, PureLoss};
use bandana_aggregator::curator::rows::Rows;
use bandana_aggregator::curator::weights::{MultiplicativeWeights, Round, SessionPlan};
use bandana_shared::accounting::delta::Delta;
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_chacha::{ChaCha8Rng, ChaCha20Rng};
use serde::Serialize;

use super::people::traits;

/// The δ of the Gaussian mechanism, which promises less than the others.
pub const DELTA: f64 = 1e-6;

/// Points of a curve.
const POINTS: u64 = 200;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Queries.
    pub queries: u64,
    /// The budget of each contestant.
    pub epsilon: f64,
    /// Most updates of the session.
    pub updates: u32,
    /// Its threshold, as a share of the rows.
    pub threshold: f64,
    /// The queries follow from it. Noise does, too, which is for pictures that can be
    /// repeated, and not for people.
    pub seed: u64,
}

/// One way to answer, and how it went.
#[derive(Clone, Debug, Serialize)]
pub struct Contestant {
    /// Its name.
    pub name: &'static str,
    /// Mean distance of answers from the truth, as a share of the rows.
    pub mean_error: f64,
    /// The largest distance.
    pub largest_error: f64,
    /// Mean distance so far, after a number of queries.
    #[serde(skip)]
    pub curve: Vec<(u64, f64)>,
}

/// How it went.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Rows.
    pub rows: u64,
    /// Cells of the universe.
    pub cells: usize,
    /// Queries that all have answered.
    pub queries: u64,
    /// Updates that the session took.
    pub updates: u32,
    /// The contestants; multiplicative weights first.
    pub contestants: Vec<Contestant>,
}

/// Errors so far.
struct Score {
    name: &'static str,
    sum: f64,
    largest: f64,
    curve: Vec<(u64, f64)>,
}

impl Score {
    fn new(name: &'static str) -> Self {
        Self { name, sum: 0.0, largest: 0.0, curve: Vec::new() }
    }

    fn add(&mut self, error: f64, round: u64, step: u64) {
        self.sum += error;
        self.largest = self.largest.max(error);
        if (round + 1).is_multiple_of(step) {
            self.curve.push((round + 1, self.sum / (round + 1) as f64));
        }
    }

    fn finish(self, queries: u64) -> Contestant {
        let Self { name, sum, largest, curve } = self;
        Contestant { name, mean_error: sum / queries as f64, largest_error: largest, curve }
    }
}

/// Plays. The analyst adapts: every second query is a neighbour of the one whose answer
/// surprised most so far.
///
/// # Errors
/// When the settings make no sense, or the session has used up its updates before the end.
pub fn play(people: &Rows, settings: Settings) -> anyhow::Result<Outcome> {
    let Settings { queries, epsilon, updates, threshold, seed } = settings;
    let universe = people.schema().universe(&traits())?;
    let (histogram, rows, cells) = (people.histogram(&universe), people.count(), universe.cells());
    let loss = PureLoss::new(epsilon)?;
    let threshold = (threshold * rows as f64).max(1.0) as u64;
    let plan = SessionPlan::chosen(loss, updates, threshold)?;
    let mut noise = ChaCha20Rng::seed_from_u64(seed);
    let first = MultiplicativeWeights::draw_threshold_noise(&plan, &mut noise)?;
    let mut session = MultiplicativeWeights::new(plan, rows, cells, first)?;
    let laplace = CountingMechanism::new(queries, Price::Pure(loss))?;
    let rho = ConcentratedLoss::within(loss.loss(), Delta::new(DELTA)?)?;
    let gaussian = CountingMechanism::new(queries, Price::Concentrated(rho))?;
    let mut scores = ["multiplicative weights", "Laplace", "Gaussian"].map(Score::new);
    let mut analyst = Analyst::new(cells, seed)?;
    for round in 0..queries {
        let query = analyst.next()?;
        let truth = query.count(&histogram)?;
        let given = match session.ask(&histogram, &query, &mut noise)? {
            Round::Lazy { answer } => answer,
            Round::Update { answer } => {
                session.update(&query, answer)?;
                answer as f64
            }
        };
        analyst.hear(&query, given / rows as f64);
        let exact = [i64::try_from(truth)?];
        let with = |mechanism: CountingMechanism, noise: &mut ChaCha20Rng| {
            mechanism.release(&exact, noise).first().copied().unwrap_or(0) as f64
        };
        let answers = [given, with(laplace, &mut noise), with(gaussian, &mut noise)];
        for (score, answer) in scores.iter_mut().zip(answers) {
            let error = (answer - truth as f64).abs() / rows as f64;
            score.add(error, round, queries.div_ceil(POINTS));
        }
    }
    let contestants = scores.into_iter().map(|score| score.finish(queries)).collect();
    Ok(Outcome { rows, cells, queries, updates: session.used(), contestants })
}

/// Whoever asks, and adapts to the answers.
struct Analyst {
    cells: usize,
    chance: ChaCha8Rng,
    surprising: BTreeMap<u64, u64>,
}

impl Analyst {
    fn new(cells: usize, seed: u64) -> anyhow::Result<Self> {
        anyhow::ensure!(cells <= 64, "the analyst thinks in 64 cells");
        let chance = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        Ok(Self { cells, chance, surprising: BTreeMap::new() })
    }

    fn next(&mut self) -> anyhow::Result<CellSet> {
        let most = self.surprising.last_key_value().map(|(_, &word)| word);
        let word = match most.filter(|_| self.chance.random_bool(0.5)) {
            Some(word) => word ^ (1 << self.chance.random_range(0..self.cells)),
            None => self.chance.next_u64(),
        };
        Ok(CellSet::of(self.cells, |cell| word >> cell & 1 == 1)?)
    }

    /// Remembers queries whose answer is far from what uniform data would give.
    fn hear(&mut self, query: &CellSet, share: f64) {
        let word = query.members().fold(0_u64, |word, cell| word | 1 << cell);
        let uniform = query.members().count() as f64 / self.cells as f64;
        self.surprising.insert(((share - uniform).abs() * 1e9) as u64, word);
        if self.surprising.len() > 32 {
            self.surprising.pop_first();
        }
    }
}
