//! Whole units of δ, the unit of a ledger.

use crate::accounting::delta::Delta;
use crate::accounting::rounding::count_up;

/// A δ, or a sum of them, in whole units of 2^-64: 0 to 2^64 - 1.
///
/// Sums of whole numbers don't depend on their order and don't drift. The δ of one report is
/// rounded up, a cap down.
///
/// ```
/// use bandana_shared::accounting::{delta::Delta, delta_units::DeltaUnits};
/// let price = DeltaUnits::from_delta(Delta::new(1e-9)?);
/// assert_eq!(price.get(), 18_446_744_074);
/// assert!(price.to_delta().get() >= 1e-9);
/// # Ok::<(), bandana_shared::accounting::delta::DeltaError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeltaUnits(u64);

/// 2^64.
const PER_ONE: f64 = (1_u128 << 64) as f64;

impl DeltaUnits {
    /// Pure differential privacy.
    pub const ZERO: Self = Self(0);
    /// The largest number of units. A sum of so many is no promise: no cap admits it, and as a cap
    /// it means no cap.
    pub const MAX: Self = Self(u64::MAX);

    /// A δ of this many units of 2^-64.
    pub const fn new(units: u64) -> Self {
        Self(units)
    }

    /// The number of units.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The δ of one report, rounded up; [`Self::MAX`] for a δ of 1.
    pub fn from_delta(delta: Delta) -> Self {
        // A product with a power of two is exact, except below 2^-1022, where it is not needed.
        Self(whole((delta.get() * PER_ONE).ceil()).unwrap_or(u64::MAX))
    }

    /// A cap, rounded down; [`Self::MAX`], which is no cap, for a δ of 1.
    pub fn cap(delta: Delta) -> Self {
        Self(whole((delta.get() * PER_ONE).floor()).unwrap_or(u64::MAX))
    }

    /// The δ, rounded up.
    pub fn to_delta(self) -> Delta {
        Delta::at_most(count_up(self.0) / PER_ONE)
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
}

/// A whole number of 0 to 2^64 as an integer; `None` for 2^64.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float that is whole, and not negative"
)]
fn whole(units: f64) -> Option<u64> {
    (units < PER_ONE).then_some(units as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(probability: f64) -> Delta {
        Delta::new(probability).unwrap()
    }

    #[test]
    fn prices_are_rounded_up_and_caps_down() {
        let unit = 1.0 / PER_ONE;
        for (probability, price, cap) in [
            (0.0, 0, 0),
            (f64::from_bits(1), 1, 0),
            (f64::MIN_POSITIVE, 1, 0),
            (unit / 2.0, 1, 0),
            (unit, 1, 1),
            (unit * 1.5, 2, 1),
            (unit * 3.0, 3, 3),
            (0.5, 1 << 63, 1 << 63),
            (1.0_f64.next_down(), u64::MAX - 2047, u64::MAX - 2047),
            (1.0, u64::MAX, u64::MAX),
        ] {
            let delta = delta(probability);
            assert_eq!(DeltaUnits::from_delta(delta).get(), price, "{probability}");
            assert_eq!(DeltaUnits::cap(delta).get(), cap, "{probability}");
            assert!(DeltaUnits::from_delta(delta).to_delta() >= delta, "{probability}");
            assert!(DeltaUnits::cap(delta).to_delta() <= delta, "{probability}");
        }
        assert_eq!(DeltaUnits::MAX.to_delta(), Delta::VACUOUS);
        assert!(DeltaUnits::new((1 << 53) + 1).to_delta().get() * PER_ONE > (1_u64 << 53) as f64);
    }

    #[test]
    fn sums_stop_at_the_largest_number() {
        let (one, most) = (DeltaUnits::new(1), DeltaUnits::MAX);
        assert_eq!((most.checked_add(one), most.saturating_add(one)), (None, most));
        assert_eq!(one.checked_add(one), Some(DeltaUnits::new(2)));
        assert_eq!(one.saturating_sub(most), DeltaUnits::ZERO);
    }
}
