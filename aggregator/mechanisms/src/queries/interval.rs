//! The exponential mechanism over an interval of whole numbers, for a piecewise constant score.

use rand::Rng;

use super::QueryError;
use super::inverse::{Candidate, draw};
use super::price::{LossShape, PureLoss, check_beta};
use crate::noise::STEPS_MAX;
use crate::noise::coin::below;

/// Initial number of binary digits of the weights; lengths have up to 63 of them.
const PRECISION: u64 = 192;

/// Whole numbers that are next to each other and have the same score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first one; at most 2^62 in magnitude.
    pub first: i64,
    /// The last one.
    pub last: i64,
    /// Their score.
    pub score: i64,
}

/// Chooses point x with probability proportional to exp(ε u(x)/(2 Δ)), from an interval of any
/// length.
///
/// First a piece is drawn, with the number of its points as its weight, in integers and exactly
/// ([`super::exponential`]); then one of its points, uniformly. So the probabilities are those of
/// the exponential mechanism with every point as a candidate, at a cost that follows from the
/// number of pieces. Numbers of any unit are put on a [`Lattice`](crate::noise::Lattice) first.
///
/// ```
/// use bandana_mechanisms::queries::{interval::{IntervalMechanism, quantile}, price::PureLoss};
/// use bandana_mechanisms::noise::secure_generator;
/// let pay = [1_200, 3_100, 3_300, 3_350, 4_000, 90_000];
/// let pieces = quantile(&pay, 0, 1_000_000_000, 3)?;
/// let mechanism = IntervalMechanism::new(1, PureLoss::new(20.0)?)?;
/// let median = mechanism.choose(&pieces, &mut secure_generator()?)?;
/// assert!((1_000..90_000).contains(&median));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// ε-differentially private, with bounded range ε, so it costs ε²/8 of ρ. It is the exponential
/// mechanism over the points, and a neighbour changes each score by at most Δ. The ends of the
/// pieces may depend on the data, as they do for [`quantile`]. The interval must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalMechanism {
    sensitivity: u64,
    loss: PureLoss,
}

impl IntervalMechanism {
    /// The shape of its loss.
    pub const LOSS: LossShape = LossShape::BoundedRange;

    /// The mechanism for scores that one person changes by at most `sensitivity` at every point.
    ///
    /// # Errors
    /// [`QueryError::Insensitive`].
    pub fn new(sensitivity: u64, loss: PureLoss) -> Result<Self, QueryError> {
        if sensitivity == 0 {
            return Err(QueryError::Insensitive);
        }
        Ok(Self { sensitivity, loss })
    }

    /// The chosen point.
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`] without pieces, and [`QueryError::Pieces`] unless each begins
    /// right after the one before.
    pub fn choose<R: Rng + ?Sized>(self, pieces: &[Piece], rng: &mut R) -> Result<i64, QueryError> {
        check(pieces)?;
        let best = pieces.iter().map(|piece| piece.score).max().ok_or(QueryError::NoCandidates)?;
        let candidate = |place: usize| {
            let piece = pieces[place];
            Candidate { weight: piece.points(), gap: best.abs_diff(piece.score) }
        };
        // ε/(2 Δ), with ε in billionths.
        let denominator = 2 * u128::from(self.sensitivity) * 1_000_000_000;
        let step = (u128::from(self.loss.nanos()), denominator);
        let piece = pieces[draw(pieces.len(), candidate, step, PRECISION, rng)];
        let inside = below(piece.points().into(), rng);
        Ok(piece.first.saturating_add(i64::try_from(inside).unwrap_or(0)))
    }

    /// A bound on the shortfall of the chosen score below the best one, with probability 1 -
    /// `beta`, for an interval of `points` points, at least `best` of which have the best score: (2
    /// Δ/ε) ln(points/(best β)), rounded up.
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`] unless `best` is 1 to `points`, [`QueryError::Beta`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range becomes its end"
    )]
    pub fn shortfall(self, points: u64, best: u64, beta: f64) -> Result<u64, QueryError> {
        if best == 0 || best > points {
            return Err(QueryError::NoCandidates);
        }
        let logs = libm::log(points as f64 / best as f64) - libm::log(check_beta(beta)?);
        let scale = 2.0 * self.sensitivity as f64 / (self.loss.nanos() as f64 * 1e-9);
        Ok((scale * logs * (1.0 + 1e-12)).ceil() as u64)
    }
}

impl Piece {
    /// The number of points.
    fn points(self) -> u64 {
        self.first.abs_diff(self.last) + 1
    }
}

fn check(pieces: &[Piece]) -> Result<(), QueryError> {
    let is_within = |piece: &Piece| {
        -STEPS_MAX <= piece.first && piece.first <= piece.last && piece.last <= STEPS_MAX
    };
    let is_next = |pair: &[Piece]| match pair {
        [one, next] => one.last.checked_add(1) == Some(next.first),
        _ => true,
    };
    let fits = pieces.iter().all(is_within) && pieces.windows(2).all(is_next);
    fits.then_some(()).ok_or(QueryError::Pieces)
}

/// Scores every point of an interval as the value of rank t, 1 to n, among these values. The score
/// is -max(t - A, B + 1 - t, 0), with A the number of values at or below the point, and B the
/// number below it. Values outside count as the nearest end. A changed value changes every score by
/// at most 1.
///
/// # Errors
/// [`QueryError::Pieces`] for an interval without points, or beyond 2^62.
pub fn quantile(
    values: &[i64],
    lowest: i64,
    highest: i64,
    rank: u64,
) -> Result<Vec<Piece>, QueryError> {
    check(&[Piece { first: lowest, last: highest, score: 0 }])?;
    let mut sorted: Vec<i64> = values.iter().map(|value| *value.clamp(&lowest, &highest)).collect();
    sorted.sort_unstable();
    let rank = i64::try_from(rank).unwrap_or(i64::MAX);
    let score = |below: i64, here: i64| -(rank - below - here).max(below + 1 - rank).max(0);
    let (mut pieces, mut below, mut next) = (Vec::new(), 0, lowest);
    for group in sorted.chunk_by(|a, b| a == b) {
        let Some(&value) = group.first() else { continue };
        if next < value {
            pieces.push(Piece { first: next, last: value - 1, score: score(below, 0) });
        }
        let here = i64::try_from(group.len()).unwrap_or(i64::MAX);
        pieces.push(Piece { first: value, last: value, score: score(below, here) });
        (below, next) = (below + here, value + 1);
    }
    if next <= highest {
        pieces.push(Piece { first: next, last: highest, score: score(below, 0) });
    }
    Ok(pieces)
}
