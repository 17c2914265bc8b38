//! Halfspaces over {0,1}^k, a class of predicates of VC dimension k + 1.

use std::collections::BTreeSet;

use super::QueryError;
use super::cells::CellSet;

/// All linearly separable subsets of {0,1}^k, for k of 1 to 4: 4, 14, 104 and 1882 of them. Cell c
/// is the point whose coordinates are the binary digits of c, the lowest digit first.
///
/// Weights of -3 to 3 suffice up to four dimensions: the largest weight that a threshold
/// function of four variables needs is 3 (Muroga, "Threshold logic and its applications",
/// 1971).
///
/// ```
/// use bandana_mechanisms::queries::halfspaces::halfspaces;
/// assert_eq!(halfspaces(3)?.len(), 104);
/// # Ok::<(), bandana_mechanisms::queries::QueryError>(())
/// ```
///
/// # Errors
/// [`QueryError::Dimensions`].
pub fn halfspaces(dimensions: u32) -> Result<Vec<CellSet>, QueryError> {
    if !(1..=4).contains(&dimensions) {
        return Err(QueryError::Dimensions(dimensions));
    }
    let points = 1_usize << dimensions;
    let mut found = BTreeSet::new();
    for code in 0..7_i32.pow(dimensions) {
        let weights: Vec<i32> = (0..dimensions).map(|i| code / 7_i32.pow(i) % 7 - 3).collect();
        let height = |point: usize| -> i32 {
            let on = weights.iter().enumerate().filter(|(i, _)| point >> i & 1 == 1);
            on.map(|(_, weight)| weight).sum()
        };
        let heights: BTreeSet<i32> = (0..points).map(height).collect();
        for threshold in heights.iter().copied().chain([i32::MAX]) {
            found.insert(CellSet::of(points, |point| height(point) >= threshold)?);
        }
    }
    Ok(found.into_iter().collect())
}

/// The VC dimension of halfspaces in k dimensions, k + 1.
pub fn vc_dimension(dimensions: u32) -> u32 {
    dimensions + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_there_are_threshold_functions() {
        let counts: Vec<usize> = (1..=4).map(|k| halfspaces(k).unwrap().len()).collect();
        assert_eq!(counts, [4, 14, 104, 1_882]);
        assert_eq!(halfspaces(5), Err(QueryError::Dimensions(5)));
        // Exclusive or is not a halfspace.
        let parity = CellSet::of(4, |point| point == 1 || point == 2).unwrap();
        assert!(!halfspaces(2).unwrap().contains(&parity));
    }
}
