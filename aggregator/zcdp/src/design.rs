//! G-optimal designs: frequencies of actions that minimise the largest variance of the estimates.

use nalgebra::{DMatrix, DVector};

use super::error::ZcdpError;

/// The target for the largest `||a||²` in V(π)⁻¹, as a multiple of the dimension.
pub const TOLERANCE: f64 = 1.01;

/// Maximum number of steps: seconds for the largest problems, which need far fewer.
const STEPS: usize = 20_000;

/// Number of steps after which V⁻¹ is recomputed, to remove accumulated errors of updates.
const RENEWAL: usize = 200;

/// Shares below this are dropped in the end.
const LEAST_SHARE: f64 = 1e-4;

/// A probability over actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// The share of each action; they sum to 1.
    pub shares: Vec<f64>,
    /// `g(π)`, the largest `||a||²` in V(π)⁻¹ over all actions, where V(π) is the sum of `π(a) a
    /// aᵀ`. At least the dimension (Kiefer and Wolfowitz 1960), and at most [`TOLERANCE`] times
    /// that unless the search was given up. Algorithms that use this value are correct for any
    /// design; a larger value means more plays.
    pub worst: f64,
}

impl Design {
    /// The design for actions (columns) that span their space, by the method of Frank and Wolfe
    /// from equal shares, with steps away from an action as well, and exact step lengths (Todd,
    /// "Minimum-Volume Ellipsoids", 2016, sections 3.2 and 3.3).
    ///
    /// # Errors
    /// [`ZcdpError::Singular`] when arithmetic can't invert V.
    pub fn optimal(actions: &DMatrix<f64>) -> Result<Self, ZcdpError> {
        let count = actions.ncols();
        let dimension = actions.nrows() as f64;
        let equal = DVector::from_element(count, 1.0 / count as f64);
        let mut search = Search::new(actions, equal.clone())?;
        for step in 1..=STEPS {
            // Tighter than the tolerance, so that dropping small shares does not exceed it.
            if search.norms.max() <= dimension * f64::midpoint(1.0, TOLERANCE) {
                break;
            }
            if !search.step() || step % RENEWAL == 0 {
                match Search::new(actions, search.shares.clone()) {
                    Ok(renewed) => search = renewed,
                    Err(_) => break,
                }
            }
        }
        let shares = search.shares.map(|share| share.max(0.0));
        let kept = shares.map(|share| if share < LEAST_SHARE { 0.0 } else { share });
        let mut best: Option<Self> = None;
        for shares in [kept, shares, equal] {
            let shares = &shares / shares.sum();
            // Without the small shares V may be singular.
            let Ok(norms) = square_norms(actions, &shares) else { continue };
            let worst = norms.max();
            if best.as_ref().is_none_or(|best| worst < best.worst) {
                best = Some(Self { shares: shares.iter().copied().collect(), worst });
            }
            if worst <= dimension * TOLERANCE {
                break;
            }
        }
        best.ok_or(ZcdpError::Singular)
    }
}

/// The state of the search for the optimal shares.
struct Search<'a> {
    actions: &'a DMatrix<f64>,
    shares: DVector<f64>,
    inverse: DMatrix<f64>,
    /// `||a||²` in V⁻¹ of each action. Weighted with the shares they sum to the dimension.
    norms: DVector<f64>,
}

impl<'a> Search<'a> {
    fn new(actions: &'a DMatrix<f64>, shares: DVector<f64>) -> Result<Self, ZcdpError> {
        let inverse = inverse(&gram(actions, shares.as_slice()))?;
        let norms = norms_in(actions, &inverse);
        Ok(Self { actions, shares, inverse, norms })
    }

    /// Moves towards the action with the largest norm, or away from the one with the smallest norm
    /// among those with a share, whichever is further from the optimum. `false`: rounding errors
    /// are too large, and everything except the shares must be recomputed.
    fn step(&mut self) -> bool {
        let dimension = self.inverse.nrows() as f64;
        let (towards, largest) = self.norms.argmax();
        let with_share = (0..self.shares.len()).filter(|at| self.shares[*at] > 0.0);
        let least = with_share.min_by(|one, two| self.norms[*one].total_cmp(&self.norms[*two]));
        let away = least.filter(|at| dimension - self.norms[*at] > largest - dimension);
        let (place, rate) = match away {
            None => (towards, (largest / dimension - 1.0) / (largest - 1.0)),
            Some(at) => {
                let (norm, share) = (self.norms[at], self.shares[at]);
                let all = share / (1.0 - share);
                let best = (1.0 - norm / dimension) / (norm - 1.0);
                (at, -if norm > 1.0 { best.min(all) } else { all })
            }
        };
        self.shares *= 1.0 - rate;
        self.shares[place] = (self.shares[place] + rate).max(0.0);
        // V becomes (1 - rate) V + rate a aᵀ: Sherman and Morrison.
        let turned = &self.inverse * self.actions.column(place);
        let ratio = rate / (1.0 - rate);
        let factor = ratio / (1.0 + ratio * self.norms[place]);
        let products = self.actions.tr_mul(&turned);
        self.inverse.ger(-factor, &turned, &turned, 1.0);
        self.inverse /= 1.0 - rate;
        self.norms.zip_apply(&products, |norm, x| *norm = (*norm - factor * x * x) / (1.0 - rate));
        self.norms.iter().all(|norm| norm.is_finite() && *norm > 0.0)
    }
}

/// `||a||²` in V(π)⁻¹ for every action.
fn square_norms(actions: &DMatrix<f64>, shares: &DVector<f64>) -> Result<DVector<f64>, ZcdpError> {
    Ok(norms_in(actions, &inverse(&gram(actions, shares.as_slice()))?))
}

fn norms_in(actions: &DMatrix<f64>, inverse: &DMatrix<f64>) -> DVector<f64> {
    let turned = inverse * actions;
    let norm = |at| actions.column(at).dot(&turned.column(at));
    DVector::from_iterator(actions.ncols(), (0..actions.ncols()).map(norm))
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
pub(super) fn inverse(matrix: &DMatrix<f64>) -> Result<DMatrix<f64>, ZcdpError> {
    let inverse = matrix.clone().cholesky().map(|factor| factor.inverse());
    inverse.filter(|inverse| inverse.iter().all(|x| x.is_finite())).ok_or(ZcdpError::Singular)
}

/// The actions (columns) in an orthonormal basis of their span.
///
/// # Errors
/// [`ZcdpError::Singular`] when the span is empty.
pub(super) fn within_span(actions: &DMatrix<f64>) -> Result<DMatrix<f64>, ZcdpError> {
    // Singular values below this fraction of the largest one count as 0.
    const RANK_PRECISION: f64 = 1e-7;
    let svd = actions.clone().svd(true, false);
    let largest = svd.singular_values.max();
    let basis = svd.u.ok_or(ZcdpError::Singular)?;
    let kept: Vec<usize> = (0..svd.singular_values.len())
        .filter(|at| svd.singular_values[*at] > RANK_PRECISION * largest)
        .collect();
    if kept.is_empty() {
        return Err(ZcdpError::Singular);
    }
    Ok(basis.select_columns(&kept).transpose() * actions)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn the_design_is_optimal_to_its_tolerance() {
        // With an orthonormal basis and a short action inside, the basis is played equally.
        let actions = DMatrix::from_columns(&[
            DVector::from_vec(vec![1.0, 0.0, 0.0]),
            DVector::from_vec(vec![0.0, 1.0, 0.0]),
            DVector::from_vec(vec![0.0, 0.0, 1.0]),
            DVector::from_vec(vec![0.3, 0.3, 0.3]),
        ]);
        let design = Design::optimal(&actions).unwrap();
        assert!((3.0..=3.0 * TOLERANCE).contains(&design.worst), "{design:?}");
        assert!(design.shares[3] < 0.01 && (design.shares[0] - 1.0 / 3.0).abs() < 0.01);
        // Every design has at least the dimension as its largest norm.
        let equal = DVector::from_element(4, 0.25);
        assert!(square_norms(&actions, &equal).unwrap().max() >= 3.0);
    }

    #[test]
    fn designs_for_many_actions_are_reached_in_few_steps() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        for (dimension, count) in [(2, 200), (8, 300), (24, 60)] {
            let numbers = || rand::RngExt::random_range(&mut rng, -1.0..1.0);
            let actions = DMatrix::from_iterator(
                dimension,
                count,
                std::iter::repeat_with(numbers).take(dimension * count),
            );
            let design = Design::optimal(&actions).unwrap();
            let bounds = dimension as f64..=dimension as f64 * TOLERANCE;
            assert!(bounds.contains(&design.worst), "{dimension} {count} {}", design.worst);
            assert!((design.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let mut search =
                Search::new(&actions, DVector::from_element(count, 1.0 / count as f64)).unwrap();
            // After updates the norms match the shares.
            for _ in 0..RENEWAL {
                assert!(search.step());
            }
            let exact = square_norms(&actions, &search.shares).unwrap();
            assert!((exact - &search.norms).amax() < 1e-6);
        }
    }

    #[test]
    fn dependent_actions_are_seen_in_their_span() {
        let actions = DMatrix::from_column_slice(3, 2, &[0.5, 0.5, 0.0, 0.6, 0.6, 0.0]);
        let inside = within_span(&actions).unwrap();
        assert_eq!(inside.nrows(), 1);
        assert!((inside[0].abs() - 0.5_f64.sqrt()).abs() < 1e-12);
        assert!(Design::optimal(&actions).is_err());
        let design = Design::optimal(&inside).unwrap();
        // In one dimension a single action suffices, the longer one.
        assert!((design.worst - 1.0).abs() < 0.01 && design.shares[1] > 0.99, "{design:?}");
    }
}
