//! Segments: the evidence on an arm in one segment, combined with the other segments.
//!
//! # The model
//! The private mean of arm a in segment s is `level of a + level of s + deviation`. The level of a
//! segment is the same for all arms, so it does not change the order of the arms. The deviations
//! are independent, with mean 0 and one variance, the heterogeneity. If it is 0, segments don't
//! matter, and the reports of all segments count for each. If it is large, each segment is on its
//! own.
//!
//! The levels are fitted by weighted least squares. The heterogeneity is estimated from the residuals,
//! with approximate degrees of freedom. This is empirical Bayes: the prior of an arm in a segment is a
//! Beta law around the mean that the other segments predict. Its weight in reports follows from the
//! heterogeneity and from the number of reports behind the prediction. The evidence of a learner is
//! that of the segment, with the prior's ones and zeros added.

use super::heterogeneity::{Cell, Residuals, cells, variance};
use super::input::Evidence;

/// Rounds of fitting. Each takes the levels of arms and segments in turn.
const ROUNDS: usize = 8;

/// Levels of arms and segments.
struct Levels {
    arms: Vec<f64>,
    segments: Vec<f64>,
}

/// Replaces the evidence of each segment's arms by one that includes the prior from the other
/// segments. The outer slice has one entry for each segment, all with the same number of arms.
pub fn shrink(segments: &mut [Vec<Evidence>]) {
    let cells = cells(segments);
    let arms = segments.first().map_or(0, Vec::len);
    let Some(variance) = variance(&cells).filter(|_| segments.len() > 1) else { return };
    let levels = fit(&cells, arms);
    let heterogeneity = heterogeneity(&cells, &levels, variance);
    for arm in 0..arms {
        let priors: Vec<Option<(f64, f64)>> = (0..segments.len())
            .map(|place| prior(&cells, &levels, (arm, place), (heterogeneity, variance)))
            .collect();
        for (own, prior) in segments.iter_mut().zip(priors) {
            if let Some((mean, weight)) = prior {
                own[arm] = own[arm].with_prior(mean, weight);
            }
        }
    }
}

/// The mean of some values with weights; `None` without weight.
fn weighted(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weight) = values.fold((0.0, 0.0), |(sum, all), (x, w)| (sum + x * w, all + w));
    (weight > 0.0).then(|| sum / weight)
}

/// The levels with the least sum of squares, weighted by reports, over the cells.
fn fit(cells: &[Vec<Cell>], arms: usize) -> Levels {
    let mut levels = Levels { arms: vec![0.5; arms], segments: vec![0.0; cells.len()] };
    for _ in 0..ROUNDS {
        for arm in 0..arms {
            let of_arm = cells.iter().zip(&levels.segments);
            let rest = of_arm.map(|(cells, level)| (cells[arm].mean - level, cells[arm].reports));
            levels.arms[arm] = weighted(rest).unwrap_or(levels.arms[arm]);
        }
        for (place, own) in cells.iter().enumerate() {
            let rest = own.iter().zip(&levels.arms).map(|(cell, l)| (cell.mean - l, cell.reports));
            levels.segments[place] = weighted(rest).unwrap_or(0.0);
        }
    }
    levels
}

/// The variance of the deviations between arms and segments, and its standard error.
fn heterogeneity(cells: &[Vec<Cell>], levels: &Levels, variance: f64) -> f64 {
    let in_segment = |own: &Vec<Cell>| own.iter().map(|cell| cell.reports).sum::<f64>();
    let on_arm = |arm: usize| cells.iter().map(|own| own[arm].reports).sum::<f64>();
    let of_segment: Vec<f64> = cells.iter().map(in_segment).collect();
    let of_arm: Vec<f64> = (0..levels.arms.len()).map(on_arm).collect();
    let mut residuals = Residuals::default();
    for (place, own) in cells.iter().enumerate() {
        for (arm, cell) in own.iter().enumerate().filter(|(_, cell)| cell.reports > 0.0) {
            let residual = cell.mean - levels.arms[arm] - levels.segments[place];
            // What of the cell the levels of its arm and its segment leave, about.
            let rest =
                (1.0 - cell.reports / of_arm[arm]) * (1.0 - cell.reports / of_segment[place]);
            residuals.add(*cell, residual, rest);
        }
    }
    residuals.heterogeneity(variance)
}

/// The mean that other segments predict for an arm in a segment, and the number of reports that the
/// prediction weighs; `None`: they tell nothing.
fn prior(
    cells: &[Vec<Cell>],
    levels: &Levels,
    (arm, place): (usize, usize),
    (heterogeneity, variance): (f64, f64),
) -> Option<(f64, f64)> {
    let others = || cells.iter().zip(&levels.segments).enumerate().filter(|(s, _)| *s != place);
    let elsewhere =
        others().map(|(_, (cells, level))| (cells[arm].mean - level, cells[arm].reports));
    let reports: f64 = others().map(|(_, (cells, _))| cells[arm].reports).sum();
    let of_others = cells[place].iter().zip(&levels.arms).enumerate().filter(|(a, _)| *a != arm);
    let here = of_others.map(|(_, (cell, level))| (cell.mean - level, cell.reports));
    let mean = weighted(elsewhere)? + weighted(here).unwrap_or(0.0);
    let mean = mean.clamp(0.0, 1.0);
    // The uncertainty of the segment's level is the same for all arms, and left out.
    let uncertainty = heterogeneity + variance / reports;
    let weight = (variance / uncertainty - 1.0).clamp(0.0, reports);
    Some((mean, weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(reports: f64, mean: f64) -> Evidence {
        Evidence::new(reports * mean, reports * (1.0 - mean))
    }

    /// Segments of two arms each, with these means and 10,000 reports.
    fn segments(means: &[[f64; 2]]) -> Vec<Vec<Evidence>> {
        means.iter().map(|arms| arms.map(|mean| evidence(10_000.0, mean)).to_vec()).collect()
    }

    #[test]
    fn segments_that_do_not_matter_share_all_reports() {
        let mut equal = segments(&[[0.5, 0.55]; 4]);
        shrink(&mut equal);
        for own in equal.iter().flatten() {
            // Nearly twice its own, of the reports of all four segments.
            assert!((18_000.0..=40_000.0).contains(&own.reports()), "{own:?}");
        }
    }

    #[test]
    fn segments_of_other_levels_but_equal_differences_share_all_reports() {
        let mut shifted = segments(&[[0.3, 0.35], [0.5, 0.55], [0.6, 0.65]]);
        shrink(&mut shifted);
        for (own, expected) in shifted.iter().zip([0.3, 0.5, 0.6]) {
            let means = [own[0], own[1]].map(|arm| arm.mean().unwrap());
            assert!((means[0] - expected).abs() < 1e-3, "{means:?}");
            assert!((means[1] - means[0] - 0.05).abs() < 1e-3, "{means:?}");
            assert!(own[0].reports() > 16_000.0, "{own:?}");
        }
    }

    #[test]
    fn segments_that_matter_stay_on_their_own() {
        let mut apart = segments(&[[0.4, 0.6], [0.6, 0.4], [0.4, 0.6], [0.6, 0.4]]);
        shrink(&mut apart);
        for own in apart.iter().flatten() {
            assert!((10_000.0..10_100.0).contains(&own.reports()), "{own:?}");
        }
    }

    #[test]
    fn a_segment_without_reports_is_weighed_by_the_others() {
        let mut some = segments(&[[0.4, 0.6], [0.41, 0.59], [0.4, 0.6]]);
        some[2] = vec![Evidence::default(); 2];
        shrink(&mut some);
        let means = [some[2][0], some[2][1]].map(|arm| arm.mean().unwrap());
        assert!((means[0] - 0.4).abs() < 0.01 && (means[1] - 0.6).abs() < 0.01, "{means:?}");
        assert!(some[2][0].reports() > 100.0, "{some:?}");
    }

    #[test]
    fn nothing_comes_of_nothing() {
        let mut empty = vec![vec![Evidence::default(); 3]; 4];
        shrink(&mut empty);
        assert!(empty.iter().flatten().all(|own| own.reports() == 0.0));
        let mut one = vec![vec![evidence(10.0, 0.5); 3]];
        shrink(&mut one);
        assert!(one.iter().flatten().all(|own| (own.reports() - 10.0).abs() < 1e-12));
    }
}
