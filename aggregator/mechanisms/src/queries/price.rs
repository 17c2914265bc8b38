//! Prices of releases: whole billionths of ε or ρ, so that sums are exact.

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::accounting::renyi::{Orders, RenyiCurve};

use super::QueryError;
pub use crate::measure::Measure;
use crate::noise::{Ratio, RatioError};

/// Billionths in one.
const NANOS: u64 = 1_000_000_000;

/// The ε of a release: the nearest whole number of nano-nats, 1 to 32 billion of them. Noise and
/// price both follow from this number, so they agree exactly.
///
/// ```
/// use bandana_mechanisms::queries::price::PureLoss;
/// assert_eq!(PureLoss::new(0.1)?.nanos(), 100_000_000);
/// assert!(PureLoss::new(0.0).is_err() && PureLoss::new(f64::NAN).is_err());
/// # Ok::<(), bandana_mechanisms::queries::QueryError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PureLoss(u64);

impl PureLoss {
    /// The largest value, in billionths.
    const MAX: u64 = 32 * NANOS;

    /// Checks the range, and rounds to the nearest billionth.
    ///
    /// # Errors
    /// [`QueryError::Epsilon`].
    pub fn new(epsilon: f64) -> Result<Self, QueryError> {
        nanos(epsilon, 32.0).map(Self).ok_or(QueryError::Epsilon(epsilon))
    }

    /// This many nano-nats; 0 becomes 1.
    pub(super) fn of_nanos(nanos: u64) -> Self {
        Self(nanos.max(1))
    }

    /// ε in nano-nats.
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// ε in nats, rounded up.
    pub fn loss(self) -> PrivacyLoss {
        NanoNats::new(self.0).to_loss()
    }

    /// ε, exactly.
    pub(super) fn ratio(self) -> Result<Ratio, RatioError> {
        Ratio::new(self.0, NANOS)
    }

    /// The fraction `numerator`/`denominator` of this loss, rounded down.
    ///
    /// # Errors
    /// [`QueryError::TooManyParts`] when that is 0.
    pub(super) fn part(self, numerator: u64, denominator: u64) -> Result<Self, QueryError> {
        let part = u128::from(self.0) * u128::from(numerator) / u128::from(denominator.max(1));
        match u64::try_from(part) {
            Ok(part) if part > 0 => Ok(Self(part)),
            _ => Err(QueryError::TooManyParts { parts: denominator }),
        }
    }
}

/// The ρ of a zero-concentrated release: the nearest whole number of billionths, from one to
/// 512 billion of them.
///
/// ```
/// use bandana_mechanisms::queries::price::ConcentratedLoss;
/// use bandana_shared::accounting::{delta::Delta, loss::PrivacyLoss};
/// let delta = Delta::new(1e-6)?;
/// let rho = ConcentratedLoss::within(PrivacyLoss::new(1.0)?, delta)?;
/// assert!(rho.rho().loss(delta).get() <= 1.0 && rho.rho().get() > 0.02);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConcentratedLoss(u64);

impl ConcentratedLoss {
    /// The largest value, in billionths.
    const MAX: u64 = 512 * NANOS;

    /// Checks the range, and rounds to the nearest billionth.
    ///
    /// # Errors
    /// [`QueryError::Rho`].
    pub fn new(rho: f64) -> Result<Self, QueryError> {
        nanos(rho, 512.0).map(Self).ok_or(QueryError::Rho(rho))
    }

    /// The largest ρ that implies (ε, δ)-differential privacy.
    ///
    /// # Errors
    /// [`QueryError::Delta`] for a δ of 0 or 1, [`QueryError::NoRho`] when no ρ is small
    /// enough.
    pub fn within(epsilon: PrivacyLoss, delta: Delta) -> Result<Self, QueryError> {
        if delta == Delta::ZERO || delta == Delta::VACUOUS {
            return Err(QueryError::Delta(delta.get()));
        }
        let fits = |nanos: u64| Self(nanos).rho().loss(delta) <= epsilon;
        let (mut fitting, mut beyond) = (0, Self::MAX + 1);
        while beyond - fitting > 1 {
            let middle = fitting + (beyond - fitting) / 2;
            if fits(middle) { fitting = middle } else { beyond = middle }
        }
        let none = QueryError::NoRho { epsilon: epsilon.get(), delta: delta.get() };
        if fitting == 0 { Err(none) } else { Ok(Self(fitting)) }
    }

    /// Like [`Self::within`], for numbers that are not checked yet.
    ///
    /// # Errors
    /// As there, and [`QueryError::Epsilon`].
    pub fn within_numbers(epsilon: f64, delta: f64) -> Result<Self, QueryError> {
        let loss = PureLoss::new(epsilon)?.nanos() as f64 * 1e-9;
        let loss = PrivacyLoss::new(loss).map_err(|_| QueryError::Epsilon(epsilon))?;
        Self::within(loss, Delta::new(delta).map_err(|_| QueryError::Delta(delta))?)
    }

    /// This many billionths; 0 becomes 1.
    pub(super) fn of_nanos(nanos: u64) -> Self {
        Self(nanos.max(1))
    }

    /// ρ in billionths.
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// ρ, rounded up.
    pub fn rho(self) -> Rho {
        rho_of_nanos(self.0)
    }

    /// The Rényi divergence at these orders, rounded up.
    pub fn renyi(self, orders: &Orders) -> RenyiCurve {
        RenyiCurve::concentrated(orders, self.rho())
    }

    /// ρ, exactly.
    pub(super) fn ratio(self) -> Result<Ratio, RatioError> {
        Ratio::new(self.0, NANOS)
    }
}

/// This many billionths of ρ, rounded up.
pub fn rho_of_nanos(nanos: u64) -> Rho {
    // Nats and ρ have the same conversion from billionths.
    Rho::new(NanoNats::new(nanos).to_loss().get()).unwrap_or(Rho::ZERO)
}

/// The shape of the privacy loss of a purely differentially private release. It decides the price
/// in ρ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossShape {
    /// The loss of an outcome lies between -ε and ε, which costs ρ = ε tanh(ε/2) ([`Rho::of_pure`]).
    Symmetric,
    /// The losses of any two outcomes differ by at most ε, for every pair of neighbours: the
    /// release has **bounded range** (Dong, Durfee and Rogers, "Optimal differential privacy
    /// composition for exponential mechanisms", 2020). It costs ρ = ε²/8 (Cesar and Rogers,
    /// "Bounding, concentrating, and truncating", 2021), or as much as [`Self::Symmetric`] if that
    /// is less, for an ε above 8.
    ///
    /// Let L be the loss under the second distribution Q, and K(s) = ln E exp(s L). K(0) = 0, and K(1)
    /// = 0 as probabilities sum to 1. K''(s) is the variance of L under Q tilted by exp(s L), at most
    /// ε²/4, since L lies in an interval of length ε. So K(s) - s (s - 1) ε²/8 is concave and 0 at 0
    /// and 1, and not above 0 beyond: the divergence of order α, K(α)/(α - 1), is at most α ε²/8.
    BoundedRange,
}

impl LossShape {
    /// The price of ε in billionths of ρ, rounded up.
    fn rho_nanos(self, loss: PureLoss) -> Result<u64, QueryError> {
        let rho = Rho::of_pure(loss.loss()).get();
        let too_large = || QueryError::Rho(rho);
        let general = PrivacyLoss::new(rho).map_err(|_| too_large())?;
        let general = NanoNats::from_loss(general).map_err(|_| too_large())?.get();
        match self {
            Self::Symmetric => Ok(general),
            Self::BoundedRange => {
                let eighth = u128::from(loss.nanos()).pow(2).div_ceil(8 * u128::from(NANOS));
                Ok(u64::try_from(eighth).map_or(general, |eighth| eighth.min(general)))
            }
        }
    }
}

impl LossShape {
    /// The largest ε that costs no more than this ρ.
    fn largest_epsilon(self, rho: ConcentratedLoss) -> Result<PureLoss, QueryError> {
        let fits = |nanos: u64| {
            self.rho_nanos(PureLoss::of_nanos(nanos)).is_ok_and(|price| price <= rho.nanos())
        };
        let (mut fitting, mut beyond) = (0, PureLoss::MAX + 1);
        while beyond - fitting > 1 {
            let middle = fitting + (beyond - fitting) / 2;
            if fits(middle) { fitting = middle } else { beyond = middle }
        }
        if fitting == 0 { Err(QueryError::Epsilon(0.0)) } else { Ok(PureLoss::of_nanos(fitting)) }
    }
}

/// The price of a release, which determines the kind of its noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// ε: Laplace noise, and choices.
    Pure(PureLoss),
    /// ρ: Gaussian noise.
    Concentrated(ConcentratedLoss),
}

impl Price {
    /// The charge to a budget of this measure, in billionths, rounded up. From a budget of ρ, ε
    /// costs as much as [`LossShape`] says.
    ///
    /// # Errors
    /// [`QueryError::NotPure`] for ρ from a budget of ε.
    pub fn nanos(self, measure: Measure, shape: LossShape) -> Result<u64, QueryError> {
        match (self, measure) {
            (Self::Pure(loss), Measure::Pure) => Ok(loss.nanos()),
            (Self::Pure(loss), Measure::Concentrated) => shape.rho_nanos(loss),
            (Self::Concentrated(loss), Measure::Concentrated) => Ok(loss.nanos()),
            (Self::Concentrated(_), Measure::Pure) => Err(QueryError::NotPure),
        }
    }

    /// What each of several rows may cost, so that all cost no more: a part of ε, and the square of a part of
    /// ρ, rounded down. `None`: less than a billionth.
    pub(super) fn of_each_row(self, rows: u32) -> Option<Self> {
        let rows = u64::from(rows.max(1));
        Some(match self {
            Self::Pure(loss) => Self::Pure(loss.part(1, rows).ok()?),
            Self::Concentrated(ConcentratedLoss(nanos)) => {
                let part = nanos / rows.checked_mul(rows)?;
                Self::Concentrated(Some(ConcentratedLoss(part)).filter(|_| part > 0)?)
            }
        })
    }

    /// What each of so many releases may cost, so that all cost no more, rounded down.
    ///
    /// # Errors
    /// [`QueryError::TooManyParts`] for less than a billionth, and for no release.
    pub fn part(self, parts: u32) -> Result<Self, QueryError> {
        let parts = u64::from(parts);
        let part = |nanos: u64| {
            let part = nanos.checked_div(parts).filter(|part| *part > 0);
            part.ok_or(QueryError::TooManyParts { parts })
        };
        match self {
            Self::Pure(loss) => part(loss.0).map(PureLoss).map(Self::Pure),
            Self::Concentrated(loss) => part(loss.0).map(ConcentratedLoss).map(Self::Concentrated),
        }
    }

    /// ρ, for mechanisms that have no other price.
    pub(super) fn concentrated(self, what: &'static str) -> Result<ConcentratedLoss, QueryError> {
        match self {
            Self::Concentrated(loss) => Ok(loss),
            Self::Pure(_) => Err(QueryError::NeedsRho { what }),
        }
    }

    /// The largest ε that a purely private release of this shape may have at this price.
    pub(super) fn epsilon(self, shape: LossShape) -> Result<PureLoss, QueryError> {
        match self {
            Self::Pure(loss) => Ok(loss),
            Self::Concentrated(rho) => shape.largest_epsilon(rho),
        }
    }
}

/// The nearest number of billionths, if that is at least one and `value` is at most `most`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number below 2^40"
)]
fn nanos(value: f64, most: f64) -> Option<u64> {
    let nanos = (value * NANOS as f64).round();
    (value <= most && nanos >= 1.0).then_some(nanos as u64)
}

/// The probability with which each of `count` independent errors may exceed its bound, so that all
/// keep theirs with probability 1 - `beta`: 1 - (1 - β)^(1/k), rounded down. A little above β/k.
pub(super) fn of_each(beta: f64, count: u64) -> Result<f64, QueryError> {
    let each = -libm::expm1(libm::log1p(-check_beta(beta)?) / count.max(1) as f64);
    Ok(each * (1.0 - 1e-12))
}

/// Checks a probability of failure.
pub(super) fn check_beta(beta: f64) -> Result<f64, QueryError> {
    if beta > 0.0 && beta < 1.0 { Ok(beta) } else { Err(QueryError::Beta(beta)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_exact_and_never_below_the_loss() {
        let tenth = Price::Pure(PureLoss::new(0.1).unwrap());
        for shape in [LossShape::Symmetric, LossShape::BoundedRange] {
            assert_eq!(tenth.nanos(Measure::Pure, shape), Ok(100_000_000));
            let rho = Price::Concentrated(ConcentratedLoss::new(0.5).unwrap());
            assert_eq!(rho.nanos(Measure::Concentrated, shape), Ok(500_000_000));
            assert_eq!(rho.nanos(Measure::Pure, shape), Err(QueryError::NotPure));
        }
        // 0.1 tanh(0.05) = 0.004995837495788..., and 0.01/8.
        assert_eq!(tenth.nanos(Measure::Concentrated, LossShape::Symmetric), Ok(4_995_838));
        assert_eq!(tenth.nanos(Measure::Concentrated, LossShape::BoundedRange), Ok(1_250_000));
        for (nanos, rho) in [(1, 1), (89_442, 1), (89_443, 2), (1_000_000_001, 125_000_001)] {
            let price = Price::Pure(PureLoss::of_nanos(nanos));
            assert_eq!(price.nanos(Measure::Concentrated, LossShape::BoundedRange), Ok(rho));
        }
        for shape in [LossShape::Symmetric, LossShape::BoundedRange] {
            for nanos in [1, 2, 1_000_000, 31_250_000, 9_000_000_000] {
                let rho = Price::Concentrated(ConcentratedLoss::of_nanos(nanos));
                let epsilon = rho.epsilon(shape).unwrap().nanos();
                assert!(shape.rho_nanos(PureLoss::of_nanos(epsilon)).unwrap() <= nanos);
                assert!(shape.rho_nanos(PureLoss::of_nanos(epsilon + 1)).unwrap() > nanos);
            }
            assert_eq!(tenth.epsilon(shape), PureLoss::new(0.1));
        }
        let large = Price::Pure(PureLoss::new(32.0).unwrap());
        assert_eq!(
            large.nanos(Measure::Concentrated, LossShape::BoundedRange),
            large.nanos(Measure::Concentrated, LossShape::Symmetric)
        );
    }

    #[test]
    fn losses_out_of_range_are_refused() {
        for epsilon in [0.0, -1.0, 1e-10, 32.1, f64::NAN, f64::INFINITY] {
            assert!(PureLoss::new(epsilon).is_err(), "{epsilon}");
        }
        for rho in [0.0, -1.0, 513.0, f64::NAN, f64::INFINITY] {
            assert!(ConcentratedLoss::new(rho).is_err(), "{rho}");
        }
        let one = PrivacyLoss::new(1.0).unwrap();
        for delta in [Delta::ZERO, Delta::VACUOUS] {
            assert!(ConcentratedLoss::within(one, delta).is_err());
        }
        let delta = Delta::new(1e-9).unwrap();
        assert!(ConcentratedLoss::within(PrivacyLoss::ZERO, delta).is_err());
        let most = ConcentratedLoss::within(one, delta).unwrap();
        assert!(rho_of_nanos(most.nanos() + 1).loss(delta) > one);
    }
}
