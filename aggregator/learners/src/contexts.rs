//! Scores of arms in private contexts, from private means of products of rewards and features.
//!
//! # The model
//! With r the level of a reward, 0 to 1, and `x_h` the coordinates of a context, 1 or -1, the mean of
//! `2 r - 1` for arm a is the sum of `theta[a][h] x_h`. Reports are of `(2 r - 1) x_h` for a uniform
//! coordinate h, so a cell's debiased mean estimates the moment `m[a][h] = E[(2 r - 1) x_h]`. If features
//! are independent, with means `u_h` that are known from elsewhere, then for a feature h
//!
//! ```text
//! theta[a][h] = (m[a][h] - u_h m[a][0]) / (1 - u_h^2)
//! ```
//!
//! and the mean in a context is `m[a][0]` plus the sum of `theta[a][h] (x_h - u_h)`. If features
//! are not independent, or the means are wrong, it is the score of a model that assumes both, as
//! naive Bayes does. Only the joint distribution of the features would tell more, and no report is
//! about two of them.
//!
//! # Shrinkage
//! Only differences between arms matter. Those of a coordinate have a mean of 0 and a variance. For
//! the features together, the variance is estimated by the method of moments (DerSimonian and
//! Laird, "Meta-analysis in clinical trials", 1986), and one standard error is subtracted. So
//! features that matter no more than chance have the score 0, and the arm with the greatest mean is
//! chosen in every context. For the constant, one standard error is added, so that there is always
//! an order. A score is the posterior mean for this variance, which is empirical Bayes. The
//! standard errors include that the coefficients of an arm share the error of its constant.
//!
//! Scores are computed by additions, multiplications, divisions and square roots only, which every
//! machine rounds in the same way.

use bandana_shared::policy::{PolicyError, Weights};

use super::input::Evidence;

/// A score of 1 in parts of an even share: scores from -4 to 4 have a share.
const SHARE_OF_SCORE: f64 = 0.25;

/// Units of the scores that are shown.
const UNITS_OF_SCORE: f64 = 65_536.0;

/// The greatest score, before scores are centred: means lie between -1 and 1.
const SCORE_MAX: f64 = 2.0;

/// A debiased mean of products, or a coefficient, and its variance.
#[derive(Clone, Copy, Debug)]
struct Moment {
    mean: f64,
    variance: f64,
    /// The part of the variance that comes from the constant, and so is the same error for all
    /// features: 0 to 1.
    shared: f64,
}

impl Moment {
    /// The moment of a cell, from its private bits; `None` without reports.
    fn of(evidence: &Evidence, contrast: f64) -> Option<Self> {
        let (ones, reports) = (evidence.ones(), evidence.reports());
        // Smoothed: few reports that agree are not certain.
        let smoothed = (ones + 1.0) / (reports + 2.0);
        let of_product = 2.0 / contrast;
        (reports > 0.0).then(|| Self {
            mean: of_product * (ones / reports - 0.5),
            variance: of_product * of_product * smoothed * (1.0 - smoothed) / reports,
            shared: 0.0,
        })
    }

    /// The moment of a coefficient, from those of the feature and of the constant, for a feature with
    /// this mean; `None`: the constant is needed, and has no reports.
    fn coefficient(self, constant: Option<Self>, mean: f64) -> Option<Self> {
        let rest = 1.0 - mean * mean;
        let constant = match constant {
            Some(constant) => constant,
            None if mean == 0.0 => Self { mean: 0.0, variance: 0.0, shared: 0.0 },
            None => return None,
        };
        let of_constant = mean * mean * constant.variance;
        let variance = self.variance + of_constant;
        Some(Self {
            mean: (self.mean - mean * constant.mean) / rest,
            variance: variance / (rest * rest),
            shared: of_constant / variance,
        })
    }
}

/// Cochran's statistic of the moments of some coordinates, its degrees of freedom, and the information
/// about the variance of the differences.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    statistic: f64,
    degrees: f64,
    information: f64,
    /// Sums over the coordinates of the part of the error that they share, times the root of their
    /// degrees of freedom, and of its square.
    shared: f64,
    shared_squares: f64,
}

impl Spread {
    fn of(moments: &[Moment]) -> Self {
        let sum = |of: &dyn Fn(&Moment) -> f64| moments.iter().map(of).sum::<f64>();
        let all = sum(&|one| 1.0 / one.variance);
        if moments.len() < 2 {
            return Self::default();
        }
        let mean = sum(&|one| one.mean / one.variance) / all;
        let squared = sum(&|one| 1.0 / (one.variance * one.variance));
        let degrees = moments.len() as f64 - 1.0;
        let shared = degrees.sqrt() * sum(&|one| one.shared) / moments.len() as f64;
        Self {
            shared,
            shared_squares: shared * shared,
            statistic: sum(&|one| (one.mean - mean) * (one.mean - mean) / one.variance),
            degrees,
            information: all - squared / all,
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            statistic: self.statistic + other.statistic,
            degrees: self.degrees + other.degrees,
            information: self.information + other.information,
            shared: self.shared + other.shared,
            shared_squares: self.shared_squares + other.shared_squares,
        }
    }

    /// The variance of the differences, with so many standard errors added.
    fn variance(self, errors: f64) -> f64 {
        if self.information <= 0.0 {
            return 0.0;
        }
        let excess = (self.statistic - self.degrees).max(0.0);
        // Of correlated normal errors, the statistic has as variance twice the sum of the squares of
        // all correlations: that of two features is the root of the product of their shared parts.
        let correlated = self.shared * self.shared - self.shared_squares;
        let error = (2.0 * (self.degrees + correlated)).sqrt();
        ((excess + errors * error) / self.information).max(0.0)
    }
}

/// The scores of the arms for each coordinate, from the evidence on each arm in each coordinate.
/// Arms that are not active have a score of 0 and change nothing. The scores of each coordinate sum
/// to 0.
///
/// `means` has the mean of each coordinate, strictly between -1 and 1 except for the constant.
/// `contrast` is the contrast of the channel of the bits.
pub fn scores(
    coordinates: &[Vec<Evidence>],
    means: &[f64],
    active: &[bool],
    contrast: f64,
) -> Vec<Vec<f64>> {
    let moments = |own: &Vec<Evidence>| -> Vec<Option<Moment>> {
        let of_arms = own.iter().zip(active);
        of_arms.map(|(arm, on)| Moment::of(arm, contrast).filter(|_| *on)).collect()
    };
    let Some((constant, features)) = coordinates.split_first() else { return Vec::new() };
    let constant = moments(constant);
    let coefficients = |(own, mean): (&Vec<Evidence>, &f64)| -> Vec<Option<Moment>> {
        let of_arms = moments(own).into_iter().zip(&constant);
        of_arms.map(|(one, constant)| one?.coefficient(*constant, *mean)).collect()
    };
    let means = means.get(1..).unwrap_or_default();
    let features: Vec<Vec<Option<Moment>>> = features.iter().zip(means).map(coefficients).collect();
    let spread = |own: &Vec<Option<Moment>>| {
        Spread::of(&own.iter().copied().flatten().collect::<Vec<Moment>>())
    };
    let of_features = features.iter().map(spread).fold(Spread::default(), Spread::with);
    let variance = of_features.variance(-1.0);
    let features: Vec<Vec<f64>> =
        features.iter().map(|own| centred(&shrunk(own, variance), active)).collect();
    let mut of_constant = shrunk(&constant, spread(&constant).variance(1.0));
    for (arm, score) in of_constant.iter_mut().enumerate() {
        *score -= features.iter().zip(means).map(|(own, mean)| own[arm] * mean).sum::<f64>();
    }
    std::iter::once(centred(&of_constant, active)).chain(features).collect()
}

/// The posterior means of the differences of one coordinate, for a prior of this variance. Without
/// reports it is 0.
fn shrunk(moments: &[Option<Moment>], variance: f64) -> Vec<f64> {
    let known = || moments.iter().flatten();
    let weight = |one: &Moment| 1.0 / (variance + one.variance);
    let all: f64 = known().map(weight).sum();
    let mean = known().map(|one| one.mean * weight(one)).sum::<f64>() / all;
    let shrink = |one: &Moment| variance * weight(one) * (one.mean - mean);
    moments.iter().map(|one| one.as_ref().map_or(0.0, shrink)).collect()
}

/// Scores within bounds and with a sum of 0 over the active arms, and 0 for the others.
fn centred(scores: &[f64], active: &[bool]) -> Vec<f64> {
    let bounded = |score: &f64| score.clamp(-SCORE_MAX, SCORE_MAX);
    let in_play = || scores.iter().zip(active).filter(|(_, on)| **on).map(|(score, _)| score);
    let count = in_play().count().max(1) as f64;
    let mean = in_play().map(bounded).sum::<f64>() / count;
    let centre = |(score, on): (&f64, &bool)| if *on { bounded(score) - mean } else { 0.0 };
    scores.iter().zip(active).map(centre).collect()
}

/// The policy of an experiment with a private context: even weights of the active arms, by which
/// assignments explore, and the scores of each coordinate. The weight of arm a for a coordinate is
/// `2^32 / arms (1 + score / 4)`, rounded.
///
/// # Errors
/// [`PolicyError`] without active arms, or for too many arms.
pub fn policy(scores: &[Vec<f64>], active: &[bool]) -> Result<Weights, PolicyError> {
    let list = |own: &Vec<f64>| {
        let shares: Vec<f64> = own.iter().map(|score| 1.0 + SHARE_OF_SCORE * score).collect();
        Weights::from_shares(&shares)
    };
    let lists: Vec<Weights> = scores.iter().map(list).collect::<Result<_, _>>()?;
    Weights::uniform(active)?.with_segments(&lists)
}

/// The score of an arm for a coordinate in a [`policy`], to the nearest multiple of `2^-16`: weights are
/// rounded, and 1,024 arms share `2^32`.
pub fn score(policy: &Weights, coordinate: usize, arm: usize) -> f64 {
    let share = policy.share_in(Some(coordinate), arm) * policy.len() as f64;
    let score = (share - 1.0) / SHARE_OF_SCORE;
    // Not -0.
    (score * UNITS_OF_SCORE).round() / UNITS_OF_SCORE + 0.0
}
