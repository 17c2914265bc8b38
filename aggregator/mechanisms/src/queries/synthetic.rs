//! Release of a synthetic database by the exponential mechanism (Blum, Ligett and Roth, "A
//! learning theory approach to non-interactive database privacy", 2008).

use rand::Rng;

use super::QueryError;
use super::cells::CellSet;
use super::exponential::ExponentialMechanism;
use super::laplace::LaplaceMechanism;
use super::price::{PureLoss, check_beta};

/// Maximum number of candidates, and of steps in weighing them.
const CANDIDATES_MAX: u128 = 1 << 20;
const STEPS_MAX: u128 = 1 << 32;

/// The number of rows for which some synthetic database agrees with the data within `alpha`, as a
/// share of rows, on all predicates of a class: the least m with m > ln(2 |C|)/(2 α²).
///
/// Of m rows drawn from the data, each predicate is off by more than α with probability at most 2
/// exp(-2 m α²) (Hoeffding), so some m rows are within α for all |C| predicates. A class of VC
/// dimension d has at most the sum of C(|X|, i) over i <= d distinct predicates on a universe X
/// (Sauer), which takes the place of |C| where it is smaller.
///
/// ```
/// use bandana_mechanisms::queries::synthetic::rows_for;
/// // 104 halfspaces over {0,1}^3, of VC dimension 4.
/// assert_eq!(rows_for(0.2, 8, 104, Some(4))?, 67);
/// # Ok::<(), bandana_mechanisms::queries::QueryError>(())
/// ```
///
/// # Errors
/// [`QueryError::Alpha`], [`QueryError::NoQueries`] for an empty class.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float beyond the range becomes its end"
)]
pub fn rows_for(
    alpha: f64,
    cells: usize,
    predicates: usize,
    vc_dimension: Option<u32>,
) -> Result<u32, QueryError> {
    if !(alpha > 0.0 && alpha < 1.0) {
        return Err(QueryError::Alpha(alpha));
    }
    if predicates == 0 {
        return Err(QueryError::NoQueries);
    }
    let mut distinct = predicates as f64;
    if let Some(dimension) = vc_dimension {
        let (mut sum, mut term) = (1.0, 1.0);
        for i in 0..u64::from(dimension) {
            term *= (cells as f64 - i as f64).max(0.0) / (i + 1) as f64;
            sum += term;
        }
        distinct = distinct.min(sum);
    }
    let needed = libm::log(2.0 * distinct) / (2.0 * alpha * alpha);
    // One beyond 32 bits is cut to the largest, which is too many for any release.
    Ok((needed.floor() as u32).saturating_add(1))
}

/// The release of a database of m rows over a small universe, for a class of predicates.
///
/// Every multiset of m cells is a candidate, by a uniform base measure. Its utility is the
/// negative of the largest |m c(D) - n c(D')| over the class: n m times the largest
/// difference of shares, a whole number. A changed row of the data changes c(D) by at most 1,
/// so the sensitivity is m.
///
/// ```
/// use bandana_mechanisms::queries::{halfspaces::halfspaces, price::PureLoss};
/// use bandana_mechanisms::queries::synthetic::SyntheticRelease;
/// use bandana_mechanisms::noise::secure_generator;
/// let release = SyntheticRelease::new(4, 8, halfspaces(2)?, PureLoss::new(1.0)?)?;
/// let data = [400, 100, 100, 400];
/// let database = release.choose(&data, &mut secure_generator()?)?;
/// assert_eq!(database.iter().sum::<u64>(), 8);
/// assert!(release.error(&data, &database)? <= 0.2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SyntheticRelease {
    cells: usize,
    rows: u32,
    predicates: Vec<CellSet>,
    mechanism: ExponentialMechanism,
    candidates: u64,
}

impl SyntheticRelease {
    /// A release of `rows` rows over a universe of `cells`.
    ///
    /// # Errors
    /// [`QueryError::NoQueries`], [`QueryError::EmptyUniverse`],
    /// [`QueryError::OtherUniverse`], [`QueryError::NoRows`] for a database without rows,
    /// and [`QueryError::TooManyCandidates`].
    pub fn new(
        cells: usize,
        rows: u32,
        predicates: Vec<CellSet>,
        loss: PureLoss,
    ) -> Result<Self, QueryError> {
        if cells == 0 {
            return Err(QueryError::EmptyUniverse);
        }
        if predicates.is_empty() {
            return Err(QueryError::NoQueries);
        }
        if rows == 0 {
            return Err(QueryError::NoRows);
        }
        predicates.iter().try_for_each(|predicate| predicate.check(cells))?;
        let too_many =
            || QueryError::TooManyCandidates { rows, cells, predicates: predicates.len() };
        let candidates = multisets(cells, rows).ok_or_else(too_many)?;
        let steps = candidates.saturating_mul(predicates.len() as u128 * cells as u128);
        if steps > STEPS_MAX {
            return Err(too_many());
        }
        let candidates = u64::try_from(candidates).map_err(|_| too_many())?;
        let mechanism = ExponentialMechanism::new(u64::from(rows), loss)?;
        Ok(Self { cells, rows, predicates, mechanism, candidates })
    }

    /// The number of candidate databases.
    pub fn candidates(&self) -> u64 {
        self.candidates
    }

    /// The number of rows in each cell of the chosen database.
    ///
    /// # Errors
    /// [`QueryError::OtherUniverse`], [`QueryError::NoRows`] for data without any.
    pub fn choose<R: Rng + ?Sized>(
        &self,
        histogram: &[u64],
        rng: &mut R,
    ) -> Result<Vec<u64>, QueryError> {
        let (counts, rows) = self.counts(histogram)?;
        let mut utilities = Vec::new();
        self.each_candidate(&mut |database| {
            utilities
                .push(-i64::try_from(self.distance(&counts, rows, database)).unwrap_or(i64::MAX));
            true
        });
        let chosen = self.mechanism.choose(&utilities, None, rng)?;
        let (mut place, mut found) = (0, Vec::new());
        self.each_candidate(&mut |database| {
            if place == chosen {
                found = database.to_vec();
            }
            place += 1;
            found.is_empty()
        });
        Ok(found)
    }

    /// A bound on the excess of the chosen database's error over that of the best one, with
    /// probability 1 - `beta`, as a share of rows: (2 m/ε) ln(|R|/β)/(n m).
    ///
    /// # Errors
    /// [`QueryError::Beta`], [`QueryError::NoRows`].
    pub fn accuracy(&self, rows: u64, beta: f64) -> Result<f64, QueryError> {
        if rows == 0 {
            return Err(QueryError::NoRows);
        }
        let shortfall = self.mechanism.shortfall(self.candidates, check_beta(beta)?)?;
        Ok(shortfall as f64 / (rows as f64 * f64::from(self.rows)))
    }

    /// A bound on the error of the best database of this size: the α of [`rows_for`], for these
    /// predicates.
    pub fn error_of_best(&self) -> f64 {
        let logs = libm::log(2.0 * self.predicates.len() as f64);
        (logs / (2.0 * f64::from(self.rows))).sqrt()
    }

    /// The error of a database: the largest difference in the share of rows over the class. Not
    /// private: for holders of the data only.
    ///
    /// # Errors
    /// [`QueryError::OtherUniverse`], [`QueryError::NoRows`].
    pub fn error(&self, histogram: &[u64], database: &[u64]) -> Result<f64, QueryError> {
        let (counts, rows) = self.counts(histogram)?;
        if database.len() != self.cells {
            let (found, expected) = (database.len(), self.cells);
            return Err(QueryError::OtherUniverse { found, expected });
        }
        let distance = self.distance(&counts, rows, database);
        Ok(distance as f64 / (rows as f64 * f64::from(self.rows)))
    }

    /// The error with Laplace noise, which may be released: a changed row changes it by at most m
    /// of its n m steps.
    ///
    /// # Errors
    /// As [`Self::error`], and [`QueryError::Noise`].
    pub fn noisy_error<R: Rng + ?Sized>(
        &self,
        histogram: &[u64],
        database: &[u64],
        loss: PureLoss,
        rng: &mut R,
    ) -> Result<f64, QueryError> {
        self.error(histogram, database)?;
        let (counts, rows) = self.counts(histogram)?;
        let distance = i64::try_from(self.distance(&counts, rows, database)).unwrap_or(i64::MAX);
        let noisy = LaplaceMechanism::new(self.rows.into(), loss)?.release(&[distance], rng);
        let noisy = noisy.first().copied().unwrap_or(distance);
        Ok(noisy as f64 / (rows as f64 * f64::from(self.rows)))
    }

    /// The counts of the data for the class, and the number of rows.
    fn counts(&self, histogram: &[u64]) -> Result<(Vec<u64>, u64), QueryError> {
        if histogram.len() != self.cells {
            let (found, expected) = (histogram.len(), self.cells);
            return Err(QueryError::OtherUniverse { found, expected });
        }
        let rows = histogram.iter().sum();
        if rows == 0 {
            return Err(QueryError::NoRows);
        }
        let counts = self.predicates.iter().map(|predicate| predicate.count(histogram));
        Ok((counts.collect::<Result<_, _>>()?, rows))
    }

    /// The largest |m c(D) - n c(D')|.
    fn distance(&self, counts: &[u64], rows: u64, database: &[u64]) -> u128 {
        let (n, m) = (u128::from(rows), u128::from(self.rows));
        let gap = |(predicate, &count): (&CellSet, &u64)| {
            let synthetic: u64 = predicate.members().filter_map(|cell| database.get(cell)).sum();
            (m * u128::from(count)).abs_diff(n * u128::from(synthetic))
        };
        self.predicates.iter().zip(counts).map(gap).max().unwrap_or(0)
    }

    /// Visits every candidate in a fixed order, until `visit` returns false.
    fn each_candidate(&self, visit: &mut impl FnMut(&[u64]) -> bool) {
        let mut database = vec![0_u64; self.cells];
        if let Some(first) = database.first_mut() {
            *first = self.rows.into();
        }
        while visit(&database) {
            // The next composition in reverse lexicographic order. One row moves on from the last
            // nonempty cell before the final one, and the rows of the final cell move after it.
            let Some((last, body)) = database.split_last_mut() else { return };
            let moved = std::mem::take(last);
            let Some(place) = body.iter().rposition(|&rows| rows > 0) else { return };
            if let Some(rows) = body.get_mut(place) {
                *rows -= 1;
            }
            if let Some(next) = database.get_mut(place + 1) {
                *next = moved + 1;
            }
        }
    }
}

/// C(cells + rows - 1, rows), if it is not too large.
fn multisets(cells: usize, rows: u32) -> Option<u128> {
    let mut count = 1_u128;
    for i in 1..=u128::from(rows) {
        count = count.checked_mul(cells as u128 - 1 + i)? / i;
        if count > CANDIDATES_MAX {
            return None;
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::halfspaces::halfspaces;

    #[test]
    fn every_database_is_a_candidate_once() {
        let loss = PureLoss::new(1.0).unwrap();
        let release = SyntheticRelease::new(4, 5, halfspaces(2).unwrap(), loss).unwrap();
        let mut all = Vec::new();
        release.each_candidate(&mut |database| {
            all.push(database.to_vec());
            true
        });
        assert_eq!(all.len() as u64, release.candidates());
        assert_eq!(release.candidates(), 56);
        assert!(all.iter().all(|database| database.iter().sum::<u64>() == 5));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 56);
    }

    #[test]
    fn sizes_follow_from_the_smaller_of_class_and_dimension() {
        assert_eq!(rows_for(0.1, 16, 1_882, None).unwrap(), 412);
        assert_eq!(rows_for(0.1, 16, 1_882, Some(1)).unwrap(), 177);
        for alpha in [0.0, 1.0, -1.0, f64::NAN] {
            assert!(rows_for(alpha, 16, 4, None).is_err(), "{alpha}");
        }
        let loss = PureLoss::new(1.0).unwrap();
        for rows in
            [60, rows_for(1e-5, 16, 4, None).unwrap(), rows_for(1e-300, 2, 4, None).unwrap()]
        {
            let refused = SyntheticRelease::new(16, rows, halfspaces(4).unwrap(), loss);
            assert!(matches!(refused, Err(QueryError::TooManyCandidates { .. })), "{rows}");
        }
    }
}
