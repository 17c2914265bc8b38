//! Partition selection: which names a column has, where nobody knows them before (Korolova, Kenthapadi, Mishra
//! and Ntoulas, "Releasing search queries and clicks privately", 2009; Desfontaines, Voss, Gipson and
//! Mandayam, "Differentially private partition selection", 2022).

use std::collections::BTreeMap;

use bandana_shared::accounting::delta::Delta;
use rand::Rng;

use super::QueryError;
use super::counting::CountingMechanism;
use super::price::{Price, check_beta};
use super::questions::signed;

/// The largest δ: one in a thousand.
const DELTA_MAX: f64 = 1e-3;

/// Counts the rows of each name with noise, and tells the names whose noisy count is above a threshold.
///
/// ```
/// use std::collections::BTreeMap;
/// use bandana_mechanisms::noise::secure_generator;
/// use bandana_mechanisms::queries::{partition::PartitionSelection, price::{Price, PureLoss}};
/// use bandana_shared::accounting::delta::Delta;
/// let price = Price::Pure(PureLoss::new(1.0)?);
/// let selection = PartitionSelection::new(price, Delta::new(1e-9)?, 1)?;
/// let counts = BTreeMap::from([("Bonn", 5_000), ("a street of one person", 1)]);
/// let told = selection.select(&counts, &mut secure_generator()?);
/// assert!(told.len() == 1 && *told[0].0 == "Bonn");
/// // A name of so many rows is found with probability 95 %.
/// assert_eq!(selection.found_from(0.05)?, 47);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// (ε, δ)-differentially private at a price of ε, and δ-approximately ρ-zero-concentrated differentially
/// private at a price of ρ (Bun and Steinke 2016, definition 8.1), for all rows of a person together: `row` is
/// the price of each of at most k rows, ε/k or ρ/k².
///
/// Take two data sets that differ in the rows of one person. A name is *the person's own* in one of them if
/// it has rows of that person alone there, at most k, and none in the other. Let E be the event that no name of
/// the person's own is told. All noise is independent, so given E, what is told of all other names has the
/// same distribution as without it. These other names have a row in both data sets. Their counts
/// differ by at most 2k in all, and by at most the root of 2k² in Euclidean distance. So the noise of
/// [`CountingMechanism`] for two counts, at ε/k or at ρ/k², keeps the price: given E in the one, and the same event in the other, what is told differs by no more.
///
/// E fails with probability at most δ. There are at most k such names, each of at most k rows. One is told if
/// k plus its noise is above the threshold t. The noise is symmetric, and t - k is the least m for which it
/// is beyond m, on either side, with probability at most 2δ/k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSelection {
    mechanism: CountingMechanism,
    threshold: u64,
}

impl PartitionSelection {
    /// The selection at a price for each row, where a person has at most so many rows.
    ///
    /// # Errors
    /// [`QueryError::SelectionDelta`] for a δ of 0 or above 1/1000, and [`QueryError::Noise`] when the noise is
    /// too large.
    pub fn new(row: Price, delta: Delta, rows_of_each: u32) -> Result<Self, QueryError> {
        if delta == Delta::ZERO || delta.get() > DELTA_MAX {
            return Err(QueryError::SelectionDelta(delta.get()));
        }
        let mechanism = CountingMechanism::new(2, row)?;
        let rows = rows_of_each.max(1);
        // Less by more than what floating point is off.
        let of_each = 2.0 * delta.get() / f64::from(rows) * (1.0 - 1e-9);
        let threshold = mechanism.accuracy(1, of_each)?.saturating_add(u64::from(rows));
        Ok(Self { mechanism, threshold })
    }

    /// The names that are told with their noisy counts, in the order of names: those whose count and noise
    /// exceed the threshold. A name without a row is never told.
    pub fn select<'n, N: Ord, R: Rng + ?Sized>(
        self,
        counts: &'n BTreeMap<N, u64>,
        rng: &mut R,
    ) -> Vec<(&'n N, i64)> {
        let threshold = i64::try_from(self.threshold).unwrap_or(i64::MAX);
        let present = || counts.iter().filter(|(_, count)| **count > 0);
        let exact: Vec<i64> = present().map(|(_, &count)| signed(count)).collect();
        let noisy = present().map(|(name, _)| name).zip(self.mechanism.release(&exact, rng));
        noisy.filter(|(_, noisy)| *noisy > threshold).collect()
    }

    /// The rows from which a name is told with probability 1 - β.
    ///
    /// # Errors
    /// [`QueryError::Beta`].
    pub fn found_from(self, beta: f64) -> Result<u64, QueryError> {
        // One side of the noise: half of the probability of both.
        let both = (2.0 * check_beta(beta)?).min(1.0_f64.next_down());
        let off = self.mechanism.accuracy(1, both)?;
        Ok(self.threshold.saturating_add(off).saturating_add(1))
    }
}
