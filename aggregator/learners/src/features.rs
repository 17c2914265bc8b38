//! Features: the evidence on an arm in one segment, with what a linear model tells from the others.
//!
//! Segments are the combinations of the values of several public features. Most of many segments have
//! few reports, so each is also predicted from those that share some of its values.
//!
//! # The model
//! The private mean of arm a in segment x is `levels of the values in x + level of a + effects of
//! these values on a + deviation`. The levels of values are the same for all arms, and so change
//! nothing about their order. The effects are independent with a mean of 0 and one variance, and so
//! are the deviations: what no sum over features explains. If both variances are 0, features don't
//! matter; if that of the deviations is large, each segment is on its own.
//!
//! Levels are fitted by weighted least squares, effects by their posterior given the variances, which
//! is that of linear Thompson sampling (Agrawal and Goyal, "Thompson sampling for contextual bandits
//! with linear payoffs", 2013) with one model for each arm. Both variances are estimated from residuals:
//! that of deviations from those of effects that are as large as they like, that of effects from
//! those of levels alone, which is an upper bound. The prior of an arm in a segment is what the
//! model predicts without the reports of that arm in that segment, as a Beta law.

use nalgebra::{DMatrix, DVector};

use super::heterogeneity::{Cell, Residuals, cells, variance};
use super::input::Evidence;

/// Rounds of fitting levels. Each takes those of the arms and of each feature in turn.
const ROUNDS: usize = 8;

/// The variance that the level of an arm has before any report: more than a mean can have.
const LEVEL_VARIANCE: f64 = 0.25;

/// The least variance of an effect before any report, so that its precision is finite.
const EFFECT_VARIANCE_MIN: f64 = 1e-8;

/// The cells of all arms, and the place of each segment's value among those of all features.
struct Table {
    /// For each segment, the cells of the arms.
    cells: Vec<Vec<Cell>>,
    /// The cells with reports, each with its segment and its arm.
    filled: Vec<(usize, usize, Cell)>,
    /// For each segment, the column of its value of each feature.
    columns: Vec<Vec<usize>>,
    /// The number of columns: of the values of all features.
    width: usize,
    /// The number of arms.
    arms: usize,
    /// The variance of a report.
    variance: f64,
}

/// Levels of arms, and of the values of features.
struct Levels {
    arms: Vec<f64>,
    values: Vec<f64>,
}

/// Replaces the evidence of each segment's arms by one that includes what the other segments tell.
/// The outer slice has the segments, all with as many arms; the last feature changes fastest.
///
/// # Panics
/// When there are not as many segments as combinations of values.
pub fn shrink(segments: &mut [Vec<Evidence>], sizes: &[usize]) {
    assert_eq!(segments.len(), sizes.iter().product::<usize>(), "segments and features");
    let Some(table) = Table::new(segments, sizes) else { return };
    let levels = table.levels();
    // Residuals of the levels alone hold effects and deviations.
    let all = table.heterogeneity(&levels, &[]);
    let effects = (all / sizes.len() as f64).max(EFFECT_VARIANCE_MIN);
    // What is left by effects that are as large as they like holds deviations only.
    let free: Vec<Model> =
        (0..table.arms).map(|arm| table.model(arm, &levels, LEVEL_VARIANCE, 0.0)).collect();
    let deviations = table.heterogeneity(&levels, &free);
    for arm in 0..table.arms {
        let model = table.model(arm, &levels, effects, deviations);
        for (place, own) in segments.iter_mut().enumerate() {
            let (mean, variance) = model.without(&table, &levels, place);
            let weight = table.variance / (variance + deviations) - 1.0;
            let others = model.reports - table.cells[place][arm].reports;
            own[arm] = own[arm].with_prior(mean.clamp(0.0, 1.0), weight.clamp(0.0, others));
        }
    }
}

impl Table {
    /// `None` without reports.
    fn new(segments: &[Vec<Evidence>], sizes: &[usize]) -> Option<Self> {
        let arms = segments.first()?.len();
        let cells = cells(segments);
        let variance = variance(&cells)?;
        let mut filled = Vec::new();
        for (place, own) in cells.iter().enumerate() {
            let of_segment = own.iter().enumerate().filter(|(_, cell)| cell.reports > 0.0);
            filled.extend(of_segment.map(|(arm, cell)| (place, arm, *cell)));
        }
        let columns = (0..segments.len()).map(|segment| columns(segment, sizes)).collect();
        Some(Self { cells, filled, columns, width: sizes.iter().sum(), arms, variance })
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

    /// The heterogeneity of what the levels leave, and the models of the arms if there are any.
    fn heterogeneity(&self, levels: &Levels, models: &[Model]) -> f64 {
        let mut of_values = vec![0.0; self.width];
        let mut of_arms = vec![0.0; self.arms];
        for (place, arm, cell) in &self.filled {
            of_arms[*arm] += cell.reports;
            for column in &self.columns[*place] {
                of_values[*column] += cell.reports;
            }
        }
        let all: f64 = of_arms.iter().sum();
        let mut residuals = Residuals::default();
        for (place, arm, cell) in &self.filled {
            let columns = &self.columns[*place];
            // The share of the cell's own mean in its fit, about, for the levels.
            let values = columns.iter().map(|column| 1.0 / of_values[*column]);
            let of_levels = values.map(|share| share - 1.0 / all).sum::<f64>();
            let (mean, share) = match models.get(*arm) {
                None => (levels.arms[*arm], cell.reports / of_arms[*arm]),
                Some(model) => {
                    let (mean, variance) = model.at(columns);
                    (mean, cell.reports * variance / self.variance)
                }
            };
            let rest = (1.0 - share - cell.reports * of_levels).max(0.0);
            residuals.add(*cell, cell.mean - self.level(levels, *place) - mean, rest);
        }
        residuals.heterogeneity(self.variance)
    }

    /// The posterior of an arm's level and effects, with these variances of effects and deviations.
    fn model(&self, arm: usize, levels: &Levels, effects: f64, deviations: f64) -> Model {
        // The arm's level comes first, then a column for each value.
        let mut precision = DMatrix::<f64>::zeros(1 + self.width, 1 + self.width);
        precision.fill_diagonal(1.0 / effects);
        precision[(0, 0)] = 1.0 / LEVEL_VARIANCE;
        let mut sums = DVector::<f64>::zeros(1 + self.width);
        // The prior mean of the arm's level is that of a coin.
        sums[0] = 0.5 / LEVEL_VARIANCE;
        let mut reports = 0.0;
        for (place, own) in self.cells.iter().enumerate() {
            let cell = own[arm];
            if cell.reports <= 0.0 {
                continue;
            }
            reports += cell.reports;
            let weight = 1.0 / (self.variance / cell.reports + deviations);
            let rest = cell.mean - self.level(levels, place);
            let rows = || std::iter::once(0).chain(self.columns[place].iter().map(|one| 1 + one));
            for row in rows() {
                sums[row] += weight * rest;
                for column in rows() {
                    precision[(row, column)] += weight;
                }
            }
        }
        // The diagonal is positive and the rest a sum of squares, so there is an inverse.
        let covariance = precision
            .cholesky()
            .map_or_else(|| DMatrix::identity(1 + self.width, 1 + self.width), |one| one.inverse());
        let means = &covariance * sums;
        Model { arm, means, covariance, deviations, reports }
    }
}

/// The posterior of an arm's level and effects.
struct Model {
    arm: usize,
    means: DVector<f64>,
    covariance: DMatrix<f64>,
    /// The variance of the deviations.
    deviations: f64,
    /// The number of reports that it was made from.
    reports: f64,
}

impl Model {
    /// The mean and the variance of the sum of the level and some values' effects.
    fn at(&self, columns: &[usize]) -> (f64, f64) {
        let rows = || std::iter::once(0).chain(columns.iter().map(|one| 1 + one));
        let mean = rows().map(|row| self.means[row]).sum();
        let pairs = rows().flat_map(|row| rows().map(move |column| (row, column)));
        (mean, pairs.map(|pair| self.covariance[pair]).sum())
    }

    /// The mean that is predicted for a segment without its own reports on the arm, and the variance
    /// of this prediction, the deviation left out.
    fn without(&self, table: &Table, levels: &Levels, place: usize) -> (f64, f64) {
        let (mean, variance) = self.at(&table.columns[place]);
        let (level, cell) = (table.level(levels, place), table.cells[place][self.arm]);
        if cell.reports <= 0.0 {
            return (level + mean, variance);
        }
        // The posterior is the product of the two, so its precision is the sum of theirs.
        let own = variance / (table.variance / cell.reports + self.deviations);
        let rest = 1.0 - own;
        (level + (mean - own * (cell.mean - level)) / rest, variance / rest)
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
