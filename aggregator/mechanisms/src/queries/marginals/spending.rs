//! The shares of a price in ρ, handed out one release at a time.

use crate::noise::Ratio;
use crate::queries::QueryError;
use crate::queries::exponential::ExponentialMechanism;
use crate::queries::gaussian::GaussianMechanism;
use crate::queries::price::{ConcentratedLoss, Measure, Price, PureLoss};

/// One release out of a budget, as it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    /// A choice, by the exponential mechanism.
    Choice(PureLoss),
    /// Gaussian noise of this variance, for this squared sensitivity.
    Noise {
        /// The squared sensitivity.
        square: u64,
        /// The mechanism.
        mechanism: GaussianMechanism,
    },
}

/// A budget of ρ: what is left of it, and what it was spent on.
#[derive(Clone, Debug)]
pub(super) struct Spending {
    left: u64,
    spent: Vec<Spent>,
}

impl Spending {
    pub(super) fn new(budget: ConcentratedLoss) -> Self {
        Self { left: budget.nanos(), spent: Vec::new() }
    }

    /// Billionths of ρ that are left.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The releases so far.
    #[cfg(test)]
    pub(super) fn spent(&self) -> &[Spent] {
        &self.spent
    }

    fn take(&mut self, nanos: u64) -> Result<(), QueryError> {
        let left = self.left.checked_sub(nanos).filter(|_| nanos > 0);
        self.left = left.ok_or(QueryError::TooLittle)?;
        Ok(())
    }

    /// A choice for so much: the largest ε whose price, ε²/8, is within it.
    pub(super) fn choice(
        &mut self,
        nanos: u64,
        sensitivity: u64,
    ) -> Result<ExponentialMechanism, QueryError> {
        let epsilon = (8_000_000_000 * u128::from(nanos)).isqrt().min(32_000_000_000);
        let loss = PureLoss::of_nanos(u64::try_from(epsilon).unwrap_or(1));
        let shape = ExponentialMechanism::LOSS;
        self.take(Price::Pure(loss).nanos(Measure::Concentrated, shape)?)?;
        self.spent.push(Spent::Choice(loss));
        ExponentialMechanism::new(sensitivity, loss)
    }

    /// Noise for so much, on a vector that a changed row moves by at most the root of `square`.
    pub(super) fn noise(
        &mut self,
        nanos: u64,
        square: u64,
    ) -> Result<GaussianMechanism, QueryError> {
        self.take(nanos)?;
        let loss = ConcentratedLoss::of_nanos(nanos);
        let mechanism = GaussianMechanism::new(Ratio::whole(square)?, loss)?;
        self.spent.push(Spent::Noise { square, mechanism });
        Ok(mechanism)
    }
}
