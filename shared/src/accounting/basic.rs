//! Basic composition: losses add up.
//!
//! Holds for mechanisms chosen adaptively and without any δ (Dwork and Roth 2014,
//! theorem 3.14 and its corollary 3.15), also when the losses are chosen adaptively
//! (Rogers, Roth, Ullman and Vadhan, "Privacy odometers and filters", 2016).

use crate::accounting::loss::PrivacyLoss;

/// The total loss of these mechanisms on the same data, rounded up after every addition.
///
/// ```
/// use bandana_shared::accounting::{basic, loss::PrivacyLoss};
/// let losses = [0.25, 0.5, 2.0].map(|nats| PrivacyLoss::new(nats).unwrap());
/// assert_eq!(basic::compose(losses).get(), 2.75);
/// ```
pub fn compose(losses: impl IntoIterator<Item = PrivacyLoss>) -> PrivacyLoss {
    losses.into_iter().fold(PrivacyLoss::ZERO, PrivacyLoss::plus)
}

/// The total loss of `rounds` mechanisms with the same loss, rounded up once.
pub fn repeat(loss: PrivacyLoss, rounds: u64) -> PrivacyLoss {
    loss.times(rounds)
}
