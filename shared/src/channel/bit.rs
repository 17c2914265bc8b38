//! The one-bit channel, in integers.
//!
//! The privacy of the channel follows from one integer, the floor `t0`. A device computes a
//! threshold `T` from the reward and sends `u < T` for one uniform random `u`. Whatever the
//! computation of `T`, an integer clamp keeps `t0/2^64 <= P(1) <= 1 - t0/2^64`. So the likelihood
//! ratio of either bit between any two rewards is at most `(2^64 - t0)/t0`. The channel is
//! ε-locally differentially private with `ε = ln((2^64 - t0)/t0)`.
//!
//! The threshold has 128 bits: with 64, its rounding would bias an estimate by
//! up to `2^-43` at the smallest ε. The lower word of `u` matters only when the
//! upper word equals that of the threshold, which happens once in `2^64`
//! reports, so in practice a report costs one word of randomness.

use std::hint::select_unpredictable;

use super::TWO_POW_64;
use super::share::{FloorError, Share};
use crate::curve::Level;
use crate::epsilon::Epsilon;

/// The floor `t0` of a channel, with `1 <= t0 < 2^63`.
///
/// `P(1)` is `t0/2^64` for the lowest reward and `1 - t0/2^64` for the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor(u64);

impl Floor {
    /// The smallest floor for `epsilon`, rounded to the private side:
    /// `ceil(2^64 / (1 + e^ε))`, with `e^ε - 1` taken `2^-48` too small, which
    /// is more than any math library errs. [`Self::verify`] accepts it.
    ///
    /// ```
    /// use bandana_shared::{channel::Floor, epsilon::Epsilon};
    /// let floor = Floor::for_epsilon(Epsilon::new(1.0)?);
    /// assert!(floor.certified_epsilon() <= 1.0);
    /// assert!(floor.certified_epsilon() > 1.0 - 1e-13);
    /// # Ok::<(), bandana_shared::epsilon::EpsilonError>(())
    /// ```
    pub fn for_epsilon(epsilon: Epsilon) -> Self {
        Self(Share::for_epsilon(2, epsilon).get())
    }

    /// Accepts a floor from another party, if its loss is at most ε: `(2^64 - t0)/t0 <= e^ε`. In
    /// integers, with [`Growth`](super::Growth) for `e^ε - 1`.
    ///
    /// # Errors
    /// [`FloorError::OutOfRange`] for 0 and for `2^63` and above,
    /// [`FloorError::LossTooLarge`] when the loss would exceed `epsilon`.
    ///
    /// # Privacy
    /// This check makes a device independent of its server: the guarantee of every report follows
    /// from it alone.
    pub fn verify(floor: u64, epsilon: Epsilon) -> Result<Self, FloorError> {
        let share = Share::verify(floor, 2, epsilon)?;
        Ok(Self(share.get()))
    }

    /// `t0`.
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }

    /// `2^64 - 2 t0`, the number of words for which the bit distinguishes the highest reward from
    /// the lowest.
    #[inline]
    pub fn width(self) -> u64 {
        0_u64.wrapping_sub(self.0 << 1)
    }

    /// The smallest ε that this floor certifies, `ln((2^64 - t0)/t0)` in nats,
    /// rounded up.
    pub fn certified_epsilon(self) -> f64 {
        Share::loss(self.width(), self.0)
    }

    /// `1 - 2 t0/2^64`, in (0, 1): the factor by which the channel scales the difference between
    /// the means of two rewards.
    pub fn contrast(self) -> f64 {
        self.width() as f64 / TWO_POW_64
    }

    /// `t0/2^64`, the private mean of the lowest reward, in (0, 1/2).
    pub fn lowest_private_mean(self) -> f64 {
        self.0 as f64 / TWO_POW_64
    }

    /// The threshold for a curved reward `level`: linear from `t0` to
    /// `2^64 - t0`, without rounding, then clamped to that range.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken apart")]
    pub fn threshold(self, level: Level) -> Threshold {
        // In units of 2^-128: t0 2^64 + level width 2^11. level <= 2^53 and width < 2^64, so the
        // upper half is at most 2^64 - t0, with equality only if the lower half is 0. The clamp
        // holds even if that were wrong.
        let (lowest, highest) = (self.0, 0_u64.wrapping_sub(self.0));
        let rise = u128::from(level.get()) * u128::from(self.width());
        // `clamp` would become branches in a program that is optimised for size.
        let whole = lowest.wrapping_add((rise >> 53) as u64);
        let whole = select_unpredictable(whole < lowest, lowest, whole);
        let whole = select_unpredictable(whole > highest, highest, whole);
        let fraction = (rise << 11) as u64 * u64::from(whole != highest);
        Threshold { whole, fraction }
    }
}

/// `P(1)` of one report, in units of `2^-128`.
///
/// It is computed from a raw reward, and is as secret as the reward.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    whole: u64,
    fraction: u64,
}

impl Threshold {
    /// The private bit for a uniform random number `high 2^64 + low`.
    #[inline]
    pub fn bit(self, high: u64, low: u64) -> bool {
        ((u128::from(high) << 64) | u128::from(low)) < self.to_u128()
    }

    /// The private bit, drawing uniform random words from `word`. A second word is drawn only if
    /// the first does not decide, once in `2^64` reports.
    ///
    /// # Errors
    /// Returns the error of `word`; there is no bit then.
    #[inline]
    pub fn draw<E>(self, mut word: impl FnMut() -> Result<u64, E>) -> Result<bool, E> {
        let high = word()?;
        if high == self.whole { Ok(word()? < self.fraction) } else { Ok(high < self.whole) }
    }

    /// `2^128 P(1)`, for proofs and vectors.
    #[inline]
    pub fn to_u128(self) -> u128 {
        (u128::from(self.whole) << 64) | u128::from(self.fraction)
    }
}

impl std::fmt::Debug for Threshold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Threshold(<private>)")
    }
}
