//! Pure mechanisms with different losses.

use crate::accounting::concentrated::Rho;
use crate::accounting::delta::Delta;
use crate::accounting::loss::PrivacyLoss;
use crate::accounting::optimal::OptimalComposition;
use crate::accounting::{advanced, basic};
use crate::epsilon::Epsilon;

/// An ε, rounded up, with which mechanisms of these losses together are (ε, `delta`)-differentially
/// private. The losses must be fixed in advance.
///
/// The exact value is #P-complete to compute (Murtagh and Vadhan 2016). This is the least of four
/// valid bounds: basic composition; advanced composition; zero-concentrated privacy; and the exact
/// composition of the same number of mechanisms with the largest of the losses, if number and loss
/// are in its range. For equal losses the last bound is exact.
///
/// ```
/// use bandana_shared::accounting::{basic, delta::Delta, heterogeneous, loss::PrivacyLoss};
/// let losses = [PrivacyLoss::new(0.1)?, PrivacyLoss::new(0.05)?].repeat(500);
/// let together = heterogeneous::compose(&losses, Delta::new(1e-6)?);
/// assert!(together.get() < 17.0);
/// assert!(basic::compose(losses).get() > 74.9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compose(losses: &[PrivacyLoss], delta: Delta) -> PrivacyLoss {
    let bounds = [
        basic::compose(losses.iter().copied()),
        advanced::heterogeneous(losses, delta),
        losses.iter().copied().map(Rho::of_pure).fold(Rho::ZERO, Rho::plus).loss(delta),
        as_if_equal(losses, delta),
    ];
    bounds.into_iter().fold(PrivacyLoss::UNBOUNDED, |a, b| if b < a { b } else { a })
}

/// The exact composition with the largest loss, if it is in range. Losses of 0 are left out. Losses
/// below [`Epsilon::MIN`] count as that.
fn as_if_equal(losses: &[PrivacyLoss], delta: Delta) -> PrivacyLoss {
    let counted = losses.iter().filter(|&&loss| loss > PrivacyLoss::ZERO);
    let largest = counted.clone().fold(Epsilon::MIN, |a, b| a.max(b.get()));
    let composition = Epsilon::new(largest).ok().and_then(|epsilon| {
        let rounds = u64::try_from(counted.count()).ok()?;
        OptimalComposition::new(epsilon, rounds).ok()
    });
    composition.map_or(PrivacyLoss::UNBOUNDED, |composition| composition.loss(delta))
}
