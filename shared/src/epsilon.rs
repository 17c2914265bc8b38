//! The privacy loss of one report.

use thiserror::Error;

/// A privacy loss bound ε in nats, within [`Epsilon::MIN`]..=[`Epsilon::MAX`].
///
/// ```
/// use bandana_shared::epsilon::Epsilon;
/// assert_eq!(Epsilon::new(2.0)?.get(), 2.0);
/// assert!(Epsilon::new(0.0).is_err());
/// assert!(Epsilon::new(f64::NAN).is_err());
/// # Ok::<(), bandana_shared::epsilon::EpsilonError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Epsilon(f64);

impl Epsilon {
    /// The smallest ε, 2^-20: below it a 64-bit word has too few values to distinguish the two
    /// rewards.
    pub const MIN: f64 = 1.0 / 1_048_576.0;
    /// The largest ε, 32: beyond it a bit gives no meaningful privacy.
    pub const MAX: f64 = 32.0;

    /// Checks the range.
    ///
    /// # Errors
    /// [`EpsilonError`] when `nats` is not a number in
    /// [`Self::MIN`]..=[`Self::MAX`].
    pub fn new(nats: f64) -> Result<Self, EpsilonError> {
        if (Self::MIN..=Self::MAX).contains(&nats) {
            Ok(Self(nats))
        } else {
            Err(EpsilonError(nats))
        }
    }

    /// The bound in nats.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// An ε outside the range that the channel supports.
#[derive(Clone, Copy, Error, PartialEq)]
#[error("epsilon is {0}; it must be a number from 2^-20 (about 9.5e-7) to 32")]
pub struct EpsilonError(f64);

crate::debug_says!(EpsilonError);
