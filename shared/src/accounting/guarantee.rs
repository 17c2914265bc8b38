//! A pair of ε and δ.

use crate::accounting::delta::Delta;
use crate::accounting::loss::PrivacyLoss;

/// (ε, δ)-differential privacy, as a statement or as a budget.
///
/// ```
/// use bandana_shared::accounting::{delta::Delta, guarantee::Guarantee, loss::PrivacyLoss};
/// let survey = Guarantee::new(PrivacyLoss::new(1.0)?, Delta::new(1e-9)?);
/// let report = Guarantee::pure(PrivacyLoss::new(0.5)?);
/// assert_eq!(survey.plus(report), Guarantee::new(PrivacyLoss::new(1.5)?, Delta::new(1e-9)?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guarantee {
    loss: PrivacyLoss,
    delta: Delta,
}

impl Guarantee {
    /// (ε, δ)-differential privacy.
    pub fn new(loss: PrivacyLoss, delta: Delta) -> Self {
        Self { loss, delta }
    }

    /// ε-differential privacy.
    pub fn pure(loss: PrivacyLoss) -> Self {
        Self::new(loss, Delta::ZERO)
    }

    /// ε in nats.
    pub fn loss(self) -> PrivacyLoss {
        self.loss
    }

    /// δ.
    pub fn delta(self) -> Delta {
        self.delta
    }

    /// Basic composition on the same data, rounded up: both ε and δ are summed (Dwork and Roth
    /// 2014, theorem 3.16).
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self::new(self.loss.plus(other.loss), self.delta.plus(other.delta))
    }

    /// Composition on disjoint data: the larger ε and the larger δ. Either the partition must not
    /// depend on the data, or neighbours must differ by adding or removing one person: otherwise a
    /// change of one person's data could move that person from one part to the other.
    #[must_use]
    pub fn alongside(self, other: Self) -> Self {
        let delta = if self.delta < other.delta { other.delta } else { self.delta };
        Self::new(self.loss.alongside(other.loss), delta)
    }
}
