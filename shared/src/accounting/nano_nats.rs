//! Whole nano-nats, the unit of a ledger.

use thiserror::Error;

use crate::accounting::loss::PrivacyLoss;
use crate::accounting::rounding::{count_up, div_up};
use crate::epsilon::Epsilon;

/// A privacy loss of 0 to 2^64 - 1 nano-nats, about 1.8e10 nats.
///
/// Sums of whole numbers don't depend on their order and don't drift, so a ledger of a million
/// reports is exact. The price of one report is rounded up, unless its channel loses less.
///
/// ```
/// use bandana_shared::{accounting::nano_nats::NanoNats, epsilon::Epsilon};
/// let price = NanoNats::from_epsilon(Epsilon::new(0.5)?);
/// assert_eq!(price.get(), 500_000_000);
/// let cap = NanoNats::new(2_000_000_001);
/// assert_eq!(cap.reports(price), 4);
/// # Ok::<(), bandana_shared::epsilon::EpsilonError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NanoNats(u64);

impl NanoNats {
    /// No loss.
    pub const ZERO: Self = Self(0);
    /// The largest loss that can be counted.
    pub const MAX: Self = Self(u64::MAX);
    /// Nano-nats in one nat.
    pub const PER_NAT: u64 = 1_000_000_000;

    /// A loss of this many nano-nats.
    pub const fn new(nano_nats: u64) -> Self {
        Self(nano_nats)
    }

    /// The number of nano-nats.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The whole number of nano-nats whose nearest floating-point number is `nats`, or `None` if
    /// there is none. For 0.2 it is 200 000 000, although the number 0.2 is a little more than a
    /// fifth.
    ///
    /// ```
    /// use bandana_shared::accounting::nano_nats::NanoNats;
    /// assert_eq!(NanoNats::of_decimal(0.2), Some(NanoNats::new(200_000_000)));
    /// assert_eq!(NanoNats::of_decimal(2.0_f64.ln()), None);
    /// ```
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::float_cmp,
        reason = "the number is whole, and the nearest one is meant"
    )]
    pub fn of_decimal(nats: f64) -> Option<Self> {
        let nano_nats = (nats * Self::PER_NAT as f64).round();
        // Both whole numbers are exact, so the quotient is the nearest number to theirs.
        let is_exact = (0.0..=(1_u64 << f64::MANTISSA_DIGITS) as f64).contains(&nano_nats);
        (is_exact && nano_nats / Self::PER_NAT as f64 == nats).then_some(Self(nano_nats as u64))
    }

    /// The price of one report by its ε alone, rounded up: 954 to 32 000 000 000. For a report of
    /// an experiment, see [`crate::specification::Specification::price`].
    pub fn from_epsilon(epsilon: Epsilon) -> Self {
        Self(ceiling_of_nats(epsilon.get()).unwrap_or(u64::MAX))
    }

    /// A loss in whole nano-nats, rounded up.
    ///
    /// # Errors
    /// [`NanoNatsError`] when it is above [`Self::MAX`].
    pub fn from_loss(loss: PrivacyLoss) -> Result<Self, NanoNatsError> {
        ceiling_of_nats(loss.get()).map(Self).ok_or(NanoNatsError(loss.get()))
    }

    /// A cap in whole nano-nats: [`Self::of_decimal`] of the loss, or the loss rounded down where
    /// that is `None`. It is at most [`Self::MAX`].
    ///
    /// ```
    /// use bandana_shared::accounting::{loss::PrivacyLoss, nano_nats::NanoNats};
    /// // Three tenths, of which the nearest floating-point number is a little less.
    /// assert_eq!(NanoNats::cap(PrivacyLoss::new(0.3)?), NanoNats::new(300_000_000));
    /// # Ok::<(), bandana_shared::accounting::loss::PrivacyLossError>(())
    /// ```
    pub fn cap(loss: PrivacyLoss) -> Self {
        if let Some(decimal) = Self::of_decimal(loss.get()) {
            return decimal;
        }
        match ceiling_of_nats(loss.get()) {
            Some(ceiling) if Self(ceiling).to_loss() > loss => Self(ceiling.saturating_sub(1)),
            Some(ceiling) => Self(ceiling),
            None => Self::MAX,
        }
    }

    /// The loss in nats, rounded up.
    pub fn to_loss(self) -> PrivacyLoss {
        PrivacyLoss::at_most(div_up(count_up(self.0), Self::PER_NAT as f64))
    }

    /// The sum, or `None` above [`Self::MAX`].
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The sum, at most [`Self::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The rest of a cap after `spent`, at least 0.
    #[must_use]
    pub const fn saturating_sub(self, spent: Self) -> Self {
        Self(self.0.saturating_sub(spent.0))
    }

    /// The price of `reports` reports, or `None` above [`Self::MAX`].
    pub const fn checked_mul(self, reports: u64) -> Option<Self> {
        match self.0.checked_mul(reports) {
            Some(product) => Some(Self(product)),
            None => None,
        }
    }

    /// The number of reports of `price` that a cap of this size admits, by basic composition;
    /// `u64::MAX` for a price of 0.
    pub const fn reports(self, price: Self) -> u64 {
        match self.0.checked_div(price.0) {
            Some(reports) => reports,
            None => u64::MAX,
        }
    }

    /// The highest price at which `reports` reports fit a cap of this size, by basic composition.
    /// For 0 reports it is the whole cap.
    #[must_use]
    pub const fn price_of(self, reports: u64) -> Self {
        match self.0.checked_div(reports) {
            Some(price) => Self(price),
            None => self,
        }
    }
}

/// `ceil(10^9 nats)` in integers, for `nats >= 0`.
fn ceiling_of_nats(nats: f64) -> Option<u64> {
    let bits = nats.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as u32;
    let fraction = bits & ((1 << 52) - 1);
    if exponent == 0x7ff {
        return None;
    }
    // nats = mantissa 2^(exponent - 1075), and mantissa 10^9 < 2^83.
    let (mantissa, exponent) =
        if exponent == 0 { (fraction, 1) } else { (fraction | (1 << 52), exponent) };
    let scaled = u128::from(mantissa) * u128::from(NanoNats::PER_NAT);
    let ceiling = match 1075_u32.checked_sub(exponent) {
        // Above 2^-127 the quotient is at most 1.
        Some(right) if right > 126 => u128::from(scaled > 0),
        Some(right) => scaled.div_ceil(1 << right),
        // mantissa >= 2^52, so anything shifted by 12 or more is too large.
        None => scaled << (exponent - 1075).min(12),
    };
    u64::try_from(ceiling).ok()
}

/// A loss too large for a ledger.
#[derive(Clone, Copy, Error, PartialEq)]
#[error("a loss of {0} nats is beyond 2^64 nano-nats, about 1.8e10 nats")]
pub struct NanoNatsError(f64);

crate::debug_says!(NanoNatsError);
