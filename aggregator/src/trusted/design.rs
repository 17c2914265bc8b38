//! G-optimal designs: how often to play which action, so that all are known equally well.

use nalgebra::{DMatrix, DVector};

use super::error::TrustedError;

/// The largest `||a||²` in V(π)⁻¹ is at most this times the dimension.
pub const TOLERANCE: f64 = 1.01;

/// Most steps.
const STEPS: usize = 200_000;

/// Shares below it are dropped in the end.
const LEAST_SHARE: f64 = 1e-4;

/// A probability over actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// The share of each action; they sum to 1.
    pub shares: Vec<f64>,
    /// `g(π)`, the largest `||a||²` in V(π)⁻¹ over all actions, where V(π) is the sum of `π(a)
    /// a aᵀ`. At least the dimension (Kiefer and Wolfowitz 1960), and at most
    /// [`TOLERANCE`] times that.
    pub worst: f64,
}

impl Design {
    /// The design for actions (columns) that span their space, by the method of Frank and Wolfe
    /// from equal shares, with the exact step of Fedorov (Todd, "Minimum-Volume Ellipsoids",
    /// 2016, section 3.2).
    ///
    /// # Errors
    /// [`TrustedError::Singular`] when arithmetic can't invert V, or the tolerance is not met.
    pub fn optimal(actions: &DMatrix<f64>) -> Result<Self, TrustedError> {
        let count = actions.ncols();
        let dimension = actions.nrows() as f64;
        let mut shares = DVector::from_element(count, 1.0 / count as f64);
        for _ in 0..STEPS {
            let norms = square_norms(actions, &shares)?;
            let (place, worst) = norms.argmax();
            // One less than the tolerance, so that dropping small shares does not exceed it.
            if worst <= dimension * f64::midpoint(1.0, TOLERANCE) {
                break;
            }
            let step = (worst / dimension - 1.0) / (worst - 1.0);
            shares *= 1.0 - step;
            shares[place] += step;
        }
        let kept = shares.map(|share| if share < LEAST_SHARE { 0.0 } else { share });
        let pruned = &kept / kept.sum();
        for shares in [pruned, shares] {
            // Without the small shares V may be singular.
            let Ok(norms) = square_norms(actions, &shares) else { continue };
            let worst = norms.max();
            if worst <= dimension * TOLERANCE {
                return Ok(Self { shares: shares.iter().copied().collect(), worst });
            }
        }
        Err(TrustedError::Singular)
    }
}

/// `||a||²` in V(π)⁻¹ for every action.
fn square_norms(
    actions: &DMatrix<f64>,
    shares: &DVector<f64>,
) -> Result<DVector<f64>, TrustedError> {
    let inverse = inverse(&gram(actions, shares.as_slice()))?;
    let turned = inverse * actions;
    let norm = |at| actions.column(at).dot(&turned.column(at));
    Ok(DVector::from_iterator(actions.ncols(), (0..actions.ncols()).map(norm)))
}

/// The sum of `weight a aᵀ`.
pub(super) fn gram(actions: &DMatrix<f64>, weights: &[f64]) -> DMatrix<f64> {
    let mut weighted = actions.clone();
    for (mut column, weight) in weighted.column_iter_mut().zip(weights) {
        column *= *weight;
    }
    weighted * actions.transpose()
}

/// The inverse of a symmetric positive definite matrix.
pub(super) fn inverse(matrix: &DMatrix<f64>) -> Result<DMatrix<f64>, TrustedError> {
    let inverse = matrix.clone().cholesky().map(|factor| factor.inverse());
    inverse.filter(|inverse| inverse.iter().all(|x| x.is_finite())).ok_or(TrustedError::Singular)
}

/// The actions (columns) in an orthonormal basis of their span.
///
/// # Errors
/// [`TrustedError::Singular`] when they span nothing.
pub(super) fn within_span(actions: &DMatrix<f64>) -> Result<DMatrix<f64>, TrustedError> {
    // Singular values below this fraction of the largest one count as 0.
    const RANK_PRECISION: f64 = 1e-7;
    let svd = actions.clone().svd(true, false);
    let largest = svd.singular_values.max();
    let basis = svd.u.ok_or(TrustedError::Singular)?;
    let kept: Vec<usize> = (0..svd.singular_values.len())
        .filter(|at| svd.singular_values[*at] > RANK_PRECISION * largest)
        .collect();
    if kept.is_empty() {
        return Err(TrustedError::Singular);
    }
    Ok(basis.select_columns(&kept).transpose() * actions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_design_is_optimal_to_its_tolerance() {
        // Of an orthonormal basis and something short inside, the basis is played equally.
        let actions = DMatrix::from_columns(&[
            DVector::from_vec(vec![1.0, 0.0, 0.0]),
            DVector::from_vec(vec![0.0, 1.0, 0.0]),
            DVector::from_vec(vec![0.0, 0.0, 1.0]),
            DVector::from_vec(vec![0.3, 0.3, 0.3]),
        ]);
        let design = Design::optimal(&actions).unwrap();
        assert!((3.0..=3.0 * TOLERANCE).contains(&design.worst), "{design:?}");
        assert!(design.shares[3] < 0.01 && (design.shares[0] - 1.0 / 3.0).abs() < 0.01);
        // Every choice of shares has at least the dimension.
        let equal = DVector::from_element(4, 0.25);
        assert!(square_norms(&actions, &equal).unwrap().max() >= 3.0);
    }

    #[test]
    fn dependent_actions_are_seen_in_their_span() {
        let actions = DMatrix::from_column_slice(3, 2, &[0.5, 0.5, 0.0, 0.6, 0.6, 0.0]);
        let inside = within_span(&actions).unwrap();
        assert_eq!(inside.nrows(), 1);
        assert!((inside[0].abs() - 0.5_f64.sqrt()).abs() < 1e-12);
        assert!(Design::optimal(&actions).is_err());
        let design = Design::optimal(&inside).unwrap();
        // A single action is enough for one dimension, the longer one.
        assert!((design.worst - 1.0).abs() < 0.01 && design.shares[1] > 0.99, "{design:?}");
    }
}
