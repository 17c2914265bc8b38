//! Private contexts: features that never leave a device, and by which the device chooses an arm.
//!
//! An arm that a context chose reveals something of the context, so such an assignment makes no
//! report. Other assignments explore. A coin decides which ones do, and both the coin and the arm
//! are independent of the context. Each of these assignments reports one private bit about a
//! product of the reward and one coordinate of the context.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::identity::is_name;
use crate::limits::{FEATURES_MAX, NAME_CHARS_MAX};
use crate::participation::Millionths;
use crate::policy::Weights;

/// A feature of the moment, true or false, that only the device knows.
///
/// ```
/// use bandana_shared::context::Feature;
/// let weekend: Feature = "weekend=0.29".parse()?;
/// assert_eq!((weekend.name(), weekend.true_share().get()), ("weekend", 290_000));
/// // It is taken to be true as often as not, unless something else is known.
/// assert_eq!("returning".parse::<Feature>()?.to_string(), "returning");
/// # Ok::<(), bandana_shared::context::ContextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Feature {
    name: String,
    true_share: Millionths,
}

impl Feature {
    /// A feature that is true in about `true_share` of the assignments, above 0 and below 1. You
    /// know that share from elsewhere. Its name follows the rule of experiments' ids.
    ///
    /// # Errors
    /// [`ContextError::Name`]; [`ContextError::TrueShare`].
    pub fn new(name: impl Into<String>, true_share: Millionths) -> Result<Self, ContextError> {
        let name = name.into();
        if !is_name(&name, NAME_CHARS_MAX) {
            return Err(ContextError::Name(name));
        }
        if true_share == Millionths::NONE || true_share == Millionths::ALL {
            return Err(ContextError::TrueShare(name));
        }
        Ok(Self { name, true_share })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The approximate share of the assignments in which it is true. Only a learner uses it.
    pub fn true_share(&self) -> Millionths {
        self.true_share
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.true_share == Millionths::HALF {
            return Ok(());
        }
        write!(f, "={}", self.true_share.share())
    }
}

/// Reads `weekend=0.29`, or `returning` for one that is true as often as not.
impl FromStr for Feature {
    type Err = ContextError;

    fn from_str(text: &str) -> Result<Self, ContextError> {
        let Some((name, share)) = text.split_once('=') else {
            return Self::new(text.trim(), Millionths::HALF);
        };
        let name = name.trim();
        let unread = |()| ContextError::TrueShare(name.to_owned());
        let share: f64 = share.trim().parse().map_err(|_| unread(()))?;
        Self::new(name, Millionths::from_share(share).map_err(|_| unread(()))?)
    }
}

/// The features by which devices choose arms, and the share of the assignments that explore.
///
/// A context is one `bool` for each feature. Its coordinates are `x_0 = 1`, the constant, and for
/// each feature `x_h = 1` if it is true, otherwise -1.
///
/// ```
/// use bandana_shared::{context::PrivateContext, participation::Millionths};
/// let features = vec!["weekend=0.29".parse()?, "returning".parse()?];
/// let context = PrivateContext::new(features, Millionths::from_share(0.2)?)?;
/// assert_eq!(context.coordinates(), 3);
/// assert!(context.explores(0) && !context.explores(u32::MAX / 5 + 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrivateContext {
    features: Vec<Feature>,
    exploration: Millionths,
}

impl PrivateContext {
    /// A context of 1 to [`FEATURES_MAX`] features with different names. The share of the assignments
    /// that explore is above 0 and below 1.
    ///
    /// # Errors
    /// [`ContextError::Features`]; [`ContextError::SameFeature`]; [`ContextError::Exploration`].
    pub fn new(features: Vec<Feature>, exploration: Millionths) -> Result<Self, ContextError> {
        if !(1..=FEATURES_MAX).contains(&features.len()) {
            return Err(ContextError::Features(features.len()));
        }
        for (place, feature) in features.iter().enumerate() {
            if features[..place].iter().any(|before| before.name == feature.name) {
                return Err(ContextError::SameFeature(feature.name.clone()));
            }
        }
        if exploration == Millionths::NONE || exploration == Millionths::ALL {
            return Err(ContextError::Exploration);
        }
        Ok(Self { features, exploration })
    }

    /// The features, in the order of their coordinates.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// The names of the features, in the order of their coordinates.
    pub fn names(&self) -> Vec<String> {
        self.features.iter().map(|feature| feature.name.clone()).collect()
    }

    /// The mean of each coordinate, from -1 to 1, by the shares in which features are true.
    pub fn means(&self) -> Vec<f64> {
        let mean = |feature: &Feature| 2.0 * feature.true_share.share() - 1.0;
        std::iter::once(1.0).chain(self.features.iter().map(mean)).collect()
    }

    /// The share of the assignments that explore.
    pub fn exploration(&self) -> Millionths {
        self.exploration
    }

    /// The number of coordinates: the constant, and one for each feature.
    pub fn coordinates(&self) -> usize {
        self.features.len() + 1
    }

    /// Whether the assignment with this uniformly random number explores.
    ///
    /// # Privacy
    /// A function of the number and the specification alone: no server and no context changes it.
    pub fn explores(&self, uniform: u32) -> bool {
        let share = u64::from(self.exploration.get());
        u64::from(uniform) < (share << 32) / u64::from(Millionths::ALL.get())
    }

    /// The coordinate for a uniformly random number.
    pub fn draw(&self, uniform: u32) -> usize {
        // The product is below `coordinates << 32`, so this is below `coordinates`.
        let scaled = u64::from(uniform) * self.coordinates() as u64;
        usize::try_from(scaled >> 32).unwrap_or_default()
    }

    /// Whether a coordinate of a context is 1, and not -1. Coordinates that the context lacks count
    /// as 1.
    pub fn is_positive(coordinate: usize, context: &[bool]) -> bool {
        coordinate.checked_sub(1).and_then(|feature| context.get(feature)).copied().unwrap_or(true)
    }

    /// The arms in play with the greatest score in a context, by the scores of a policy.
    ///
    /// The score of an arm is the sum of its [weights](Weights::get_in) of the coordinates, each with
    /// its sign. A weight is rounded by less than 1, so scores that differ by at most twice the number
    /// of coordinates count as equal.
    ///
    /// ```
    /// use bandana_shared::context::PrivateContext;
    /// use bandana_shared::{participation::Millionths, policy::Weights};
    /// let context = PrivateContext::new(vec!["weekend".parse()?], Millionths::from_share(0.2)?)?;
    /// let even = Weights::uniform(&[true; 3])?;
    /// // The second arm is for weekends, the third one for other days.
    /// let by_feature = Weights::from_shares(&[1.0, 1.5, 0.5])?;
    /// let policy = even.clone().with_segments(&[even, by_feature])?;
    /// assert_eq!(context.best_arms(&policy, &[true; 3], &[true]), [1]);
    /// assert_eq!(context.best_arms(&policy, &[true; 3], &[false]), [2]);
    /// assert_eq!(context.best_arms(&policy, &[true, false, false], &[true]), [0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn best_arms(&self, policy: &Weights, active: &[bool], context: &[bool]) -> Vec<usize> {
        let score = |arm: usize| -> i64 {
            let signed = (0..self.coordinates()).map(|coordinate| {
                // At most 2^32.
                let weight = i64::try_from(policy.get_in(Some(coordinate), arm)).unwrap_or(0);
                if Self::is_positive(coordinate, context) { weight } else { -weight }
            });
            signed.sum()
        };
        let in_play = active.iter().enumerate().filter(|(_, active)| **active);
        let scores: Vec<(usize, i64)> = in_play.map(|(arm, _)| (arm, score(arm))).collect();
        let greatest = scores.iter().map(|(_, score)| *score).max().unwrap_or_default();
        let rounding = 2 * i64::try_from(self.coordinates()).unwrap_or_default();
        let is_best = |&&(_, score): &&(usize, i64)| greatest - score <= rounding;
        scores.iter().filter(is_best).map(|(arm, _)| *arm).collect()
    }
}

/// An invalid declaration of a private context.
#[derive(Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextError {
    /// Too few or too many features.
    #[error("a private context has 1 to {max} features; this one has {0}", max = FEATURES_MAX)]
    Features(usize),
    /// The name breaks the rule.
    #[error(
        "feature {0:?} is not 1 to {max} characters of a-z, 0-9, '.', '_' and '-' that start with a \
         letter or a digit", max = NAME_CHARS_MAX
    )]
    Name(String),
    /// The feature would be true never, or always.
    #[error(
        "feature {0:?} needs a share of the assignments in which it is true, above 0 and below 1, \
         such as weekend=0.29; without one it is 0.5"
    )]
    TrueShare(String),
    /// Two features have the same name.
    #[error("two features are named {0:?}; names must differ")]
    SameFeature(String),
    /// Nobody would explore, or everybody.
    #[error(
        "the share of the assignments that explore must be above 0 and below 1, of a millionth or \
         more"
    )]
    Exploration,
    /// A private context can't be combined with another part of the experiment.
    #[error("a private context does not go with {with}; {instead}")]
    Combination {
        /// The other part.
        with: &'static str,
        /// The advice: what to do instead.
        instead: &'static str,
    },
}

crate::debug_says!(ContextError);
