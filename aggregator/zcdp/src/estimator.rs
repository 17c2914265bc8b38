//! A private least-squares estimate from the reward sums of a phase.

use nalgebra::{DMatrix, DVector};
use serde::{Deserialize, Serialize};

use super::design::{gram, inverse};
use super::error::ZcdpError;
use super::lattice::UNITS;

/// The stage at which noise enters the estimate of a phase with V = Σ a aᵀ over its plays. N is
/// standard Gaussian, and Δ the length of the range of rewards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// On the least-squares estimate, shaped by V: `θ + V^(-1/2) g (Δ/sqrt(2ρ)) N`, where g is the
    /// largest norm of an action played in V⁻¹. The noise along any such action is then at most g²
    /// times Δ/sqrt(2ρ), as in the paper.
    Shaped,
    /// On the reward sum of each action, before least squares; for comparison.
    RewardSums,
    /// On the least-squares estimate, isotropic: `θ + h (Δ/sqrt(2ρ)) N`, where h is the largest
    /// `|V⁻¹ a|`; for comparison.
    Output,
}

impl Placement {
    /// The factor of the noise along an action, `factor/c · Δ/sqrt(2ρ) · |N|`, when actions are
    /// played `c π(a)` times; and the dimension of N. For [`Self::Shaped`] the factor is g(π). The
    /// others have no smaller one:
    /// - [`Self::RewardSums`]: with z the plays' noise, `<b, V⁻¹ Σ a z_a>` is at most `|z|`
    ///   times the root of `bᵀ V⁻¹ (Σ_support a aᵀ) V⁻¹ b`. At the optimum that root is at
    ///   least g, since `a aᵀ` sum to at least `V(π)/max π`, and N has a
    ///   coordinate for each action played.
    /// - [`Self::Output`]: `|b| h >= <b, V⁻¹ b>` by Cauchy and Schwarz.
    pub(super) fn factor(
        self,
        actions: &DMatrix<f64>,
        shares: &[f64],
    ) -> Result<(f64, usize), ZcdpError> {
        let inverse = inverse(&gram(actions, shares))?;
        let turned = &inverse * actions;
        let largest =
            |number: &dyn Fn(usize) -> f64| (0..actions.ncols()).map(number).fold(0.0, f64::max);
        Ok(match self {
            Self::Shaped => {
                let worst = largest(&|at| actions.column(at).dot(&turned.column(at)));
                (worst, actions.nrows())
            }
            Self::RewardSums => {
                let support: Vec<f64> =
                    shares.iter().map(|share| f64::from(u8::from(*share > 0.0))).collect();
                let middle = gram(actions, &support);
                let square = |at: usize| {
                    let turned = turned.column(at);
                    turned.dot(&(&middle * turned))
                };
                let played = support.iter().filter(|weight| **weight > 0.0).count();
                (largest(&square).sqrt(), played)
            }
            Self::Output => {
                let longest = largest(&|at| actions.column(at).norm());
                (longest * largest(&|at| turned.column(at).norm()), actions.nrows())
            }
        })
    }
}

/// The statistic of a phase: an integer matrix W times the vector of reward sums, and the estimate
/// computed from it.
///
/// # Sensitivity
/// Another reward changes the sum of one action a by at most the length L of the range in steps, 1
/// or 2 times [`UNITS`], and so W times the sums by at most `L |W_a|` in Euclidean distance. Each
/// coordinate of that is divided by [`UNITS`] and rounded down, which adds less than 1 to its
/// change. The columns of W are rounded towards 0 and their squares are summed in integers: `|W_a|
/// <= UNITS - 8` exactly, and there are at most 64 = 8² coordinates. So the statistic moves by at
/// most `L (UNITS - 8)/UNITS + 8 <= L` steps: for every phase Δ = L, the noise never depends on the
/// plays, and floating-point errors in W can make an estimate less accurate but not less private.
/// For [`Placement::RewardSums`] the statistic is the sums themselves.
///
/// The estimate inverts the same W, rounding included: without noise it is a weighted least-squares
/// estimate that is exact when rewards are linear.
#[derive(Clone, Debug)]
pub(super) struct Estimator {
    /// Row-major, one row for each number of the statistic.
    rows: Vec<Vec<i128>>,
    decoder: DMatrix<f64>,
}

impl Estimator {
    /// The estimator for actions (columns) with these counts of plays, all positive.
    pub(super) fn new(
        placement: Placement,
        actions: &DMatrix<f64>,
        counts: &[u64],
    ) -> Result<Self, ZcdpError> {
        let counts: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
        let moments = gram(actions, &counts);
        let inverse = inverse(&moments)?;
        let shape = match placement {
            Placement::Shaped => inverse_root(&moments) * actions,
            Placement::Output => &inverse * actions,
            Placement::RewardSums => {
                let size = actions.ncols();
                let unit = |row, at| if row == at { UNITS } else { 0 };
                let rows = (0..size).map(|row| (0..size).map(|at| unit(row, at)).collect());
                return Ok(Self { rows: rows.collect(), decoder: inverse * actions });
            }
        };
        // Slightly less than the units, because floating-point norms may be underestimated.
        let longest = shape.column_iter().map(|column| column.norm()).fold(0.0, f64::max);
        let scale = LONGEST as f64 * (1.0 - 1e-9) / longest;
        let whole = shape.map(|x| (x * scale).trunc());
        let rows = to_rows(&whole);
        let norms = (0..actions.ncols()).map(|at| rows.iter().map(|row| row[at] * row[at]).sum());
        if !scale.is_finite() || norms.max().is_none_or(|square: i128| square > LONGEST * LONGEST) {
            return Err(ZcdpError::Singular);
        }
        // E[W s]/UNITS = Σ n_a W_a aᵀ θ/UNITS.
        let mut weighted = actions.clone();
        for (mut column, count) in weighted.column_iter_mut().zip(&counts) {
            column *= *count;
        }
        let response = whole * weighted.transpose() / UNITS as f64;
        let decoder = response.try_inverse().ok_or(ZcdpError::Singular)?;
        Ok(Self { rows, decoder })
    }

    /// The number of coordinates of the statistic.
    pub(super) fn draws(&self) -> usize {
        self.rows.len()
    }

    /// The statistic plus noise, in lattice steps.
    pub(super) fn statistic(&self, sums: &[i128], noise: &[i64]) -> Vec<i128> {
        let exact = |row: &Vec<i128>| {
            row.iter().zip(sums).map(|(w, sum)| w * sum).sum::<i128>().div_euclid(UNITS)
        };
        let noise = noise.iter().map(|noise| i128::from(*noise)).chain(std::iter::repeat(0));
        self.rows.iter().map(exact).zip(noise).map(|(exact, noise)| exact + noise).collect()
    }

    /// The estimate from a statistic.
    pub(super) fn estimate(&self, statistic: &[i128]) -> DVector<f64> {
        let numbers = statistic.iter().map(|number| *number as f64 / UNITS as f64);
        &self.decoder * DVector::from_iterator(statistic.len(), numbers)
    }
}

/// Maximum length of a column of W.
const LONGEST: i128 = UNITS - 8;

#[expect(clippy::cast_possible_truncation, reason = "whole numbers up to the units")]
fn to_rows(whole: &DMatrix<f64>) -> Vec<Vec<i128>> {
    whole.row_iter().map(|row| row.iter().map(|x| *x as i128).collect()).collect()
}

/// The root of the inverse of a symmetric positive definite matrix.
fn inverse_root(matrix: &DMatrix<f64>) -> DMatrix<f64> {
    let eigen = matrix.clone().symmetric_eigen();
    let roots = eigen.eigenvalues.map(|value| 1.0 / value.max(f64::MIN_POSITIVE).sqrt());
    &eigen.eigenvectors * DMatrix::from_diagonal(&roots) * eigen.eigenvectors.transpose()
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;

    fn actions() -> DMatrix<f64> {
        DMatrix::from_column_slice(2, 3, &[1.0, 0.0, 0.6, 0.8, -0.28, 0.5])
    }

    const ALL: [Placement; 3] = [Placement::Shaped, Placement::RewardSums, Placement::Output];

    #[test]
    fn without_noise_linear_rewards_give_their_parameter() {
        let (actions, counts) = (actions(), [100, 7, 30]);
        for placement in ALL {
            let estimator = Estimator::new(placement, &actions, &counts).unwrap();
            let theta = DVector::from_vec(vec![0.25, -0.5]);
            let sum = |at: usize| {
                let mean = actions.column(at).dot(&theta);
                (mean * counts[at] as f64 * UNITS as f64).round() as i128
            };
            let statistic = estimator.statistic(&[sum(0), sum(1), sum(2)], &[]);
            let found = estimator.estimate(&statistic);
            assert!((found - theta).norm() < 1e-4, "{placement:?}");
        }
    }

    #[test]
    fn one_reward_moves_a_statistic_by_its_sensitivity_at_most() {
        let length = 2 * UNITS;
        for placement in ALL {
            let estimator = Estimator::new(placement, &actions(), &[5, 1, 900]).unwrap();
            let before = estimator.statistic(&[3, -9, 77], &[]);
            let mut farthest = 0;
            for changed in 0..3 {
                let mut sums = [3, -9, 77];
                sums[changed] += length;
                let after = estimator.statistic(&sums, &[]);
                let square: i128 = before.iter().zip(&after).map(|(a, b)| (a - b).pow(2)).sum();
                farthest = farthest.max(square);
            }
            assert!(farthest <= length * length, "{placement:?}");
            assert!(farthest as f64 > 0.999 * (length * length) as f64, "{placement:?}");
        }
    }

    #[test]
    fn shaped_noise_grows_least() {
        let actions = actions();
        let design = super::super::design::Design::optimal(&actions).unwrap();
        let factor = |placement: Placement| placement.factor(&actions, &design.shares).unwrap().0;
        let shaped = factor(Placement::Shaped);
        assert!((shaped - design.worst).abs() < 1e-9);
        assert!(ALL.iter().all(|other| factor(*other) >= shaped * 0.99));
        assert!(factor(Placement::Output) > 1.05 * shaped);
    }
}
