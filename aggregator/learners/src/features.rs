//! Features: the evidence on an arm in one segment, combined with the others by a linear model.
//!
//! Segments are the combinations of the values of several public features. If there are many
//! segments, most have few reports. So each is also predicted from those that share some of its
//! values.
//!
//! # The model
//! The private mean of arm a in segment x is `levels of the values in x + level of a + effects of
//! these values on a + deviation`. The levels of values are the same for all arms, so they do not
//! change the order of the arms. The effects are independent, with mean 0 and one variance. So are
//! the deviations, which are the part that no sum over features explains. If both variances are 0,
//! features don't matter. If the variance of the deviations is large, each segment is on its own.
//!
//! Levels are fitted by weighted least squares. Effects are fitted by their posterior given the
//! variances. This is linear Thompson sampling (Agrawal and Goyal, "Thompson sampling for
//! contextual bandits with linear payoffs", 2013) with one model for each arm.
//!
//! # Which of them matter
//! - **Deviations.** Each of a few sizes is a hypothesis. Its weight is its evidence: the
//!   probability that it gives to the means of the cells, averaged evenly over a few sizes of
//!   effects (Bayesian model averaging; Hoeting, Madigan, Raftery and Volinsky, 1999). The
//!   hypothesis of no deviations needs much evidence, because a learner that believes a linear
//!   model too soon never tries what would contradict it. Until the size is known, the disagreement
//!   of the hypotheses is part of the variance.
//! - **Effects.** A feature has effects on an arm if the evidence says so, given the effects of the
//!   other features. Otherwise they are left out. Effects that are kept have a wide prior, since a
//!   prior as narrow as the effects seem makes the learner greedy.
//!
//! The evidence of cells does not depend on the traffic that earlier reports have led to.
//!
//! The prior of an arm in a segment is a Beta law. Together with the segment's own reports, it has
//! the mean and the variance of the mixture.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::heterogeneity::{Cell, cells, variance};
use super::input::Evidence;

/// Rounds of fitting levels. Each takes those of the arms and of each feature in turn.
const ROUNDS: usize = 8;

/// The variance that the level of an arm has before any report: more than a mean can have.
const LEVEL_VARIANCE: f64 = 0.25;

/// The standard deviations that effects may have, as private means, where the evidence is weighed. The
/// first is nearly none, so that its precision is finite.
const EFFECTS: [f64; 5] = [NO_EFFECT, 0.01, 0.03, 0.1, 0.3];

/// Those by which a feature is found to have effects.
const SELECTED: [f64; 3] = [0.01, 0.03, 0.1];

/// The standard deviation of effects that are left out.
const NO_EFFECT: f64 = 1e-4;

/// The standard deviation of effects that are there, before any report.
const EFFECT_PRIOR: f64 = 0.3;

/// Rounds of finding the features that have effects. Each looks at every feature.
const SELECTIONS: usize = 2;

/// The standard deviations that deviations may have, as private means.
const DEVIATIONS: [f64; 4] = [0.0, 0.03, 0.06, 0.12];

/// The weight before any report of the hypothesis that there are no deviations; the others share the
/// rest.
const WEIGHT_OF_NONE: f64 = 1e-3;

/// The least weight of a hypothesis that is averaged over.
const WEIGHT_MIN: f64 = 1e-3;

/// The cells of all arms, and the place of each segment's value among those of all features.
struct Table {
    /// For each segment, the cells of the arms.
    cells: Vec<Vec<Cell>>,
    /// The cells with reports, each with its segment and its arm.
    filled: Vec<(usize, usize, Cell)>,
    /// For each segment, the column of its value of each feature.
    columns: Vec<Vec<usize>>,
    /// The number of values of each feature, and of all.
    sizes: Vec<usize>,
    width: usize,
    /// The number of arms.
    arms: usize,
    /// The reports on each arm.
    reports: Vec<f64>,
    /// The variance of a report.
    variance: f64,
}

/// Levels of arms, and of the values of features.
struct Levels {
    arms: Vec<f64>,
    values: Vec<f64>,
}

/// Replaces the evidence of each segment's arms by one that includes the other segments. The outer
/// slice has one entry for each segment, all with the same number of arms. `sizes` has the number
/// of values of each feature. The value of the last feature changes fastest.
///
/// # Panics
/// When the number of segments is not the number of combinations of values.
pub fn shrink(segments: &mut [Vec<Evidence>], sizes: &[usize]) {
    assert_eq!(segments.len(), sizes.iter().product::<usize>(), "segments and features");
    let Some(table) = Table::new(segments, sizes) else { return };
    let levels = table.levels();
    let hypotheses = table.hypotheses(&levels);
    for (place, own) in segments.iter_mut().enumerate() {
        for (arm, evidence) in own.iter_mut().enumerate() {
            let others = table.reports[arm] - table.cells[place][arm].reports;
            let known = table.mixture(&hypotheses, &levels, (place, arm));
            *evidence = informed(*evidence, known, others);
        }
    }
}

/// The evidence with a prior that gives it a mean and a variance, and weighs no more than so many
/// reports.
fn informed(own: Evidence, (mean, variance): (f64, f64), others: f64) -> Evidence {
    let mean = mean.clamp(1e-3, 1.0 - 1e-3);
    let all = mean * (1.0 - mean) / variance - 1.0;
    let weight = (all - own.reports()).clamp(0.0, others);
    if weight <= 0.0 {
        return own;
    }
    let of_prior = (mean * (own.reports() + weight) - own.ones()) / weight;
    own.with_prior(of_prior.clamp(0.0, 1.0), weight)
}

impl Table {
    /// `None` without reports.
    fn new(segments: &[Vec<Evidence>], sizes: &[usize]) -> Option<Self> {
        let arms = segments.first()?.len();
        let cells = cells(segments);
        let variance = variance(&cells)?;
        let on_arm = |arm: usize| cells.iter().map(|own: &Vec<Cell>| own[arm].reports).sum();
        let reports = (0..arms).map(on_arm).collect();
        let mut filled = Vec::new();
        for (place, own) in cells.iter().enumerate() {
            let of_segment = own.iter().enumerate().filter(|(_, cell)| cell.reports > 0.0);
            filled.extend(of_segment.map(|(arm, cell)| (place, arm, *cell)));
        }
        let columns = (0..segments.len()).map(|segment| columns(segment, sizes)).collect();
        let width = sizes.iter().sum();
        let sizes = sizes.to_vec();
        Some(Self { cells, filled, columns, sizes, width, arms, reports, variance })
    }

    /// The levels with the least sum of squares, weighted by reports, over the cells.
    fn levels(&self) -> Levels {
        let mut levels = Levels { arms: vec![0.5; self.arms], values: vec![0.0; self.width] };
        let features = self.columns.first().map_or(0, Vec::len);
        for _ in 0..ROUNDS {
            let mut sums = vec![(0.0, 0.0); self.arms];
            for (place, arm, cell) in &self.filled {
                let rest = cell.mean - self.level(&levels, *place);
                add(&mut sums[*arm], cell.reports, rest);
            }
            renew(&mut levels.arms, &sums);
            for feature in 0..features {
                let mut sums = vec![(0.0, 0.0); self.width];
                for (place, arm, cell) in &self.filled {
                    let column = self.columns[*place][feature];
                    let others = self.level(&levels, *place) - levels.values[column];
                    add(&mut sums[column], cell.reports, cell.mean - levels.arms[*arm] - others);
                }
                renew(&mut levels.values, &sums);
            }
        }
        levels
    }

    /// The sum of the levels of a segment's values.
    fn level(&self, levels: &Levels, place: usize) -> f64 {
        self.columns[place].iter().map(|column| levels.values[*column]).sum()
    }

    /// The hypotheses that are not out of the question, with weights that sum to 1.
    fn hypotheses(&self, levels: &Levels) -> Vec<Hypothesis> {
        // With one feature, every deviation is an effect.
        let several = self.sizes.len() > 1;
        let deviations = if several { &DEVIATIONS[..] } else { &DEVIATIONS[..1] };
        let none = if several { WEIGHT_OF_NONE } else { 1.0 };
        let mut all = Vec::new();
        for (place, deviation) in deviations.iter().enumerate() {
            let variance = deviation * deviation;
            let sums = (0..self.arms).map(|arm| self.sums(arm, levels, variance));
            let sums: Vec<Sums> = sums.collect();
            let same = |effect: &f64| sums.iter().map(|one| one.evidence_of(*effect)).sum::<f64>();
            let evidence = log_mean(&EFFECTS.iter().map(same).collect::<Vec<f64>>());
            let models: Option<Vec<Model>> = sums.iter().map(Sums::selected).collect();
            // The diagonal is positive and the rest a sum of squares, so there is a factor.
            let Some(models) = models else { continue };
            let before =
                if place == 0 { none } else { (1.0 - none) / (deviations.len() - 1) as f64 };
            let weight = evidence + libm::log(before);
            all.push(Hypothesis { models, deviations: variance, weight });
        }
        let largest = all.iter().map(|one| one.weight).fold(f64::NEG_INFINITY, f64::max);
        for one in &mut all {
            one.weight = libm::exp(one.weight - largest);
        }
        let sum: f64 = all.iter().map(|one| one.weight).sum();
        all.retain(|one| one.weight >= WEIGHT_MIN * sum);
        let sum: f64 = all.iter().map(|one| one.weight).sum();
        for one in &mut all {
            one.weight /= sum;
        }
        all
    }

    /// What the cells tell of an arm, with deviations of this variance.
    fn sums(&self, arm: usize, levels: &Levels, deviations: f64) -> Sums {
        // The arm's level comes first, then a column for each value.
        let size = 1 + self.width;
        let (mut precision, mut sums) = (DMatrix::zeros(size, size), DVector::zeros(size));
        precision[(0, 0)] = 1.0 / LEVEL_VARIANCE;
        // The prior mean of the arm's level is that of a coin.
        sums[0] = 0.5 / LEVEL_VARIANCE;
        let mut constant = -0.5 * 0.25 / LEVEL_VARIANCE;
        for (place, own) in self.cells.iter().enumerate() {
            let cell = own[arm];
            if cell.reports <= 0.0 {
                continue;
            }
            let weight = 1.0 / (self.variance / cell.reports + deviations);
            let rest = cell.mean - self.level(levels, place);
            constant += 0.5 * (libm::log(weight) - weight * rest * rest);
            for row in rows(&self.columns[place]) {
                sums[row] += weight * rest;
                for column in rows(&self.columns[place]) {
                    precision[(row, column)] += weight;
                }
            }
        }
        Sums { precision, weighted: sums, constant, sizes: self.sizes.clone() }
    }

    /// The mean and the variance of an arm's private mean in a segment, by the hypotheses and its
    /// own reports.
    fn mixture(
        &self,
        hypotheses: &[Hypothesis],
        levels: &Levels,
        (place, arm): (usize, usize),
    ) -> (f64, f64) {
        let cell = self.cells[place][arm];
        let level = self.level(levels, place);
        let (mut mean, mut square) = (0.0, 0.0);
        for Hypothesis { models, deviations, weight } in hypotheses {
            let (fit, variance) = models[arm].at(&self.columns[place]);
            // The posterior of the sum of effects knows the cell's reports already. Given that sum,
            // they tell of the deviation what they tell beyond the noise.
            let own = cell.reports * deviations / (self.variance + cell.reports * deviations);
            let of_cell = level + fit + own * (cell.mean - level - fit);
            let rest = 1.0 - own;
            let variance = rest * rest * variance + rest * deviations;
            mean += weight * of_cell;
            square += weight * (variance + of_cell * of_cell);
        }
        (mean, (square - mean * mean).max(f64::MIN_POSITIVE))
    }
}

/// Standard deviations of effects and deviations, with what follows for each arm.
struct Hypothesis {
    models: Vec<Model>,
    /// The variance of the deviations.
    deviations: f64,
    /// Its weight; as a logarithm until all are known.
    weight: f64,
}

/// The logarithm of the mean of numbers, from their logarithms.
fn log_mean(logarithms: &[f64]) -> f64 {
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    let sum: f64 = logarithms.iter().map(|one| libm::exp(one - largest)).sum();
    largest + libm::log(sum / logarithms.len() as f64)
}

/// The rows of a level and of these columns.
fn rows(columns: &[usize]) -> impl Iterator<Item = usize> + Clone {
    std::iter::once(0).chain(columns.iter().map(|one| 1 + one))
}

/// What the cells tell of an arm: the precision and the weighted means, without effects.
struct Sums {
    precision: DMatrix<f64>,
    weighted: DVector<f64>,
    /// The part of the logarithm of the evidence that effects do not change.
    constant: f64,
    /// The number of values of each feature.
    sizes: Vec<usize>,
}

impl Sums {
    /// The posterior with the features that have effects by their evidence.
    fn selected(&self) -> Option<Model> {
        let mut effects = vec![NO_EFFECT; self.sizes.len()];
        for _ in 0..SELECTIONS {
            for feature in 0..effects.len() {
                let mut with = |effect: f64| {
                    effects[feature] = effect;
                    self.evidence(&effects)
                };
                let none = with(NO_EFFECT);
                let some: Vec<f64> = SELECTED.iter().map(|effect| with(*effect)).collect();
                let largest = (0..some.len()).max_by(|a, b| some[*a].total_cmp(&some[*b]));
                let found = largest.map_or(NO_EFFECT, |place| SELECTED[place]);
                effects[feature] = if log_mean(&some) > none { found } else { NO_EFFECT };
            }
        }
        let is_there = |effect: &f64| *effect > NO_EFFECT;
        let wide = |effect: &f64| if is_there(effect) { EFFECT_PRIOR } else { NO_EFFECT };
        self.model(&effects.iter().map(wide).collect::<Vec<f64>>())
    }

    /// The logarithm of the evidence with the same standard deviation of all effects.
    fn evidence_of(&self, effect: f64) -> f64 {
        self.evidence(&vec![effect; self.sizes.len()])
    }

    /// The logarithm of the evidence with these standard deviations of the features' effects.
    fn evidence(&self, effects: &[f64]) -> f64 {
        self.model(effects).map_or(f64::NEG_INFINITY, |model| model.log_evidence)
    }

    /// The posterior of the arm's level and effects, with these standard deviations of the features'
    /// effects.
    fn model(&self, effects: &[f64]) -> Option<Model> {
        let mut precision = self.precision.clone();
        let mut before = -0.5 * libm::log(LEVEL_VARIANCE);
        let mut row = 1;
        for (effect, size) in effects.iter().zip(&self.sizes) {
            for _ in 0..*size {
                precision[(row, row)] += 1.0 / (effect * effect);
                before -= libm::log(*effect);
                row += 1;
            }
        }
        let factor = Cholesky::new(precision)?;
        let means = factor.solve(&self.weighted);
        let volume: f64 = factor.l_dirty().diagonal().iter().map(|one| libm::log(*one)).sum();
        let fit = 0.5 * self.weighted.dot(&means);
        Some(Model { means, factor, log_evidence: self.constant + before - volume + fit })
    }
}

/// The posterior of an arm's level and effects.
struct Model {
    means: DVector<f64>,
    factor: Cholesky<f64, Dyn>,
    /// The logarithm of the probability of the cells' means, up to a constant.
    log_evidence: f64,
}

impl Model {
    /// The mean and the variance of the sum of the level and some values' effects.
    fn at(&self, columns: &[usize]) -> (f64, f64) {
        let mean = rows(columns).map(|row| self.means[row]).sum();
        let mut chosen = DVector::<f64>::zeros(self.means.len());
        for row in rows(columns) {
            chosen[row] = 1.0;
        }
        (mean, chosen.dot(&self.factor.solve(&chosen)))
    }
}

/// Adds a number with a weight to a weighted sum.
fn add(sum: &mut (f64, f64), weight: f64, number: f64) {
    *sum = (sum.0 + weight * number, sum.1 + weight);
}

/// Sets each level to the mean of a weighted sum; those without weight stay.
fn renew(levels: &mut [f64], sums: &[(f64, f64)]) {
    for (level, (sum, weight)) in levels.iter_mut().zip(sums) {
        if *weight > 0.0 {
            *level = sum / weight;
        }
    }
}

/// The column of each feature's value in a segment.
fn columns(segment: usize, sizes: &[usize]) -> Vec<usize> {
    let (mut rest, mut end) = (segment, sizes.iter().sum::<usize>());
    let mut columns: Vec<usize> = sizes
        .iter()
        .rev()
        .map(|size| {
            end -= size;
            let column = end + rest % size;
            rest /= size;
            column
        })
        .collect();
    columns.reverse();
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments of three binary features with these means of two arms and so many reports each.
    fn segments(reports: f64, mean: impl Fn([f64; 3]) -> [f64; 2]) -> Vec<Vec<Evidence>> {
        let sign = |segment: usize, bit: usize| if segment >> bit & 1 == 1 { 1.0 } else { -1.0 };
        let arms = |segment| {
            let means = mean([sign(segment, 2), sign(segment, 1), sign(segment, 0)]);
            means.map(|mean| Evidence::new(reports * mean, reports * (1.0 - mean))).to_vec()
        };
        (0..8).map(arms).collect()
    }

    fn shrunk(mut segments: Vec<Vec<Evidence>>) -> Vec<Vec<Evidence>> {
        shrink(&mut segments, &[2, 2, 2]);
        segments
    }

    #[test]
    fn values_have_columns_in_the_order_of_features() {
        assert_eq!(columns(0, &[2, 3]), [0, 2]);
        assert_eq!(columns(5, &[2, 3]), [1, 4]);
        assert_eq!(columns(3, &[2, 3]), [1, 2]);
    }

    #[test]
    fn sums_over_features_let_segments_tell_of_each_other() {
        let all = shrunk(segments(1_000.0, |[a, b, _]| [0.5 + 0.1 * a, 0.5 - 0.05 * b]));
        for own in all.iter().flatten() {
            // Of its own 1,000, and of 7,000 others, which four numbers are fitted to.
            assert!((1_400.0..6_000.0).contains(&own.reports()), "{own:?}");
        }
        assert!((all[0][0].mean().unwrap() - 0.4).abs() < 0.01, "{:?}", all[0]);
        assert!((all[7][0].mean().unwrap() - 0.6).abs() < 0.01, "{:?}", all[7]);
    }

    #[test]
    fn features_that_do_not_matter_cost_little() {
        for own in shrunk(segments(1_000.0, |_| [0.5, 0.55])).iter().flatten() {
            assert!(own.reports() > 1_700.0, "{own:?}");
        }
    }

    #[test]
    fn levels_of_values_are_no_difference_between_arms() {
        let all = shrunk(segments(1_000.0, |[a, _, c]| {
            [0.4 + 0.1 * a + 0.05 * c, 0.5 + 0.1 * a + 0.05 * c]
        }));
        for own in &all {
            let means = [own[0], own[1]].map(|arm| arm.mean().unwrap());
            assert!((means[1] - means[0] - 0.1).abs() < 1e-2, "{means:?}");
            assert!(own[0].reports() > 1_700.0, "{own:?}");
        }
    }

    #[test]
    fn what_no_sum_explains_is_left_to_each_segment() {
        let all = shrunk(segments(10_000.0, |[a, b, _]| [0.5 + 0.1 * a * b, 0.5 - 0.1 * a * b]));
        for (segment, own) in all.iter().enumerate() {
            assert!(own[0].reports() < 10_200.0, "{own:?}");
            let is_same = (segment >> 2 & 1) == (segment >> 1 & 1);
            let expected = if is_same { 0.6 } else { 0.4 };
            assert!((own[0].mean().unwrap() - expected).abs() < 0.01, "{own:?}");
        }
    }

    #[test]
    fn a_segment_without_reports_is_predicted_by_its_values() {
        let mut some = segments(10_000.0, |[a, b, _]| [0.5 + 0.1 * a, 0.5 - 0.1 * b]);
        some[5] = vec![Evidence::default(); 2];
        let means = shrunk(some)[5].iter().map(|arm| arm.mean().unwrap()).collect::<Vec<_>>();
        assert!((means[0] - 0.6).abs() < 0.02 && (means[1] - 0.6).abs() < 0.02, "{means:?}");
    }

    #[test]
    fn nothing_comes_of_nothing() {
        let empty = shrunk(vec![vec![Evidence::default(); 3]; 8]);
        assert!(empty.iter().flatten().all(|own| own.reports() == 0.0));
    }
}
