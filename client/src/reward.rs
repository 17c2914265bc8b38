use std::fmt;

use thiserror::Error;

/// A raw reward: the one thing that never leaves the device.
///
/// It can't be printed, copied, cloned, compared or serialised, so it can't end
/// up in a log or in a message by accident:
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
    /// Wraps a finite number. Whether an experiment admits it is seen when it
    /// is added to an assignment.
    ///
    /// # Errors
    /// [`RewardError`] for infinities and for what is not a number.
    pub fn new(reward: f64) -> Result<Self, RewardError> {
        if reward.is_finite() { Ok(Self(reward)) } else { Err(RewardError) }
    }

    pub(crate) fn expose(&self) -> f64 {
        self.0
    }
}

impl fmt::Debug for Reward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reward(<private>)")
    }
}

/// A reward that is not a finite number.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a reward must be a finite number")]
pub struct RewardError;
