//! Rewards, which can't be printed, copied or serialised.

use std::fmt;

use thiserror::Error;
use zeroize::Zeroize as _;

/// A raw reward, which never leaves the device.
///
/// It is erased from memory when it is dropped. It can't be printed, copied, cloned, compared or
/// serialised, so it can't reach a log or a message by accident:
///
/// ```
/// let reward = bandana_client::Reward::new(0.25)?;
/// assert_eq!(format!("{reward:?}"), "Reward(<private>)");
/// # Ok::<(), bandana_client::RewardError>(())
/// ```
/// ```compile_fail,E0277
/// let reward = bandana_client::Reward::new(0.25).unwrap();
/// println!("{reward}");
/// ```
/// ```compile_fail,E0382
/// let reward = bandana_client::Reward::new(0.25).unwrap();
/// let (first, second) = (reward, reward);
/// ```
/// ```compile_fail,E0599
/// let reward = bandana_client::Reward::new(0.25).unwrap();
/// let copy = reward.clone();
/// ```
/// ```compile_fail,E0277
/// fn send<T: serde::Serialize>(_: T) {}
/// send(bandana_client::Reward::new(0.25).unwrap());
/// ```
pub struct Reward(f64);

impl Reward {
    /// Wraps a finite number. The client checks whether the experiment admits it when you add it to
    /// an assignment.
    ///
    /// ```
    /// use bandana_client::{Reward, RewardError};
    /// assert!(Reward::new(-12.5).is_ok());
    /// assert_eq!(Reward::new(f64::NAN).unwrap_err(), RewardError);
    /// ```
    ///
    /// # Errors
    /// [`RewardError`] for infinities and NaN.
    pub fn new(reward: f64) -> Result<Self, RewardError> {
        if reward.is_finite() { Ok(Self(reward)) } else { Err(RewardError) }
    }

    pub(crate) fn expose(&self) -> f64 {
        self.0
    }
}

/// Erases the value from memory.
impl Drop for Reward {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Reward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reward(<private>)")
    }
}

/// A reward that is not a finite number.
///
/// ```
/// use bandana_client::{Reward, RewardError};
///
/// // An app's reward may be NaN: here the share of no clicks in no views.
/// let share = |clicks: f64, views: f64| Reward::new(clicks / views);
/// assert!(matches!(share(0.0, 0.0), Err(RewardError)));
/// assert!(share(1.0, 4.0).is_ok());
/// ```
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("a reward must be a finite number")]
pub struct RewardError;

bandana_shared::debug_says!(RewardError);
