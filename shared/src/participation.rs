//! Participation: the installations that take part in an experiment, and how long each keeps its arm.
//!
//! A device decides both by numbers that it draws itself and never sends. So a server learns only
//! that a report came from somebody who takes part.

use std::fmt;

use thiserror::Error;

use crate::identity::is_name;
use crate::limits::{LAYER_NAME_CHARS_MAX, REPORT_DAYS_MAX};
use crate::policy::Weights;

/// Millionths of a whole, 0 to 1,000,000.
///
/// ```
/// use bandana_shared::participation::Millionths;
/// assert_eq!(Millionths::from_share(0.25)?, Millionths::new(250_000)?);
/// assert_eq!(Millionths::new(1)?.share(), 1e-6);
/// assert!(Millionths::from_share(1.5).is_err());
/// # Ok::<(), bandana_shared::participation::ParticipationError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millionths(u32);

impl Millionths {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// The whole.
    pub const ALL: Self = Self(1_000_000);

    /// One half.
    pub const HALF: Self = Self(500_000);

    /// Checks the range.
    ///
    /// # Errors
    /// [`ParticipationError::Millionths`] above 1,000,000.
    pub fn new(parts: u32) -> Result<Self, ParticipationError> {
        if parts <= Self::ALL.0 {
            Ok(Self(parts))
        } else {
            Err(ParticipationError::Millionths(parts))
        }
    }

    /// The nearest number of millionths to a share from 0 to 1.
    ///
    /// # Errors
    /// [`ParticipationError::Share`] for any other number.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rounded number from 0 to a million"
    )]
    pub fn from_share(share: f64) -> Result<Self, ParticipationError> {
        if (0.0..=1.0).contains(&share) {
            Ok(Self((share * f64::from(Self::ALL.0)).round() as u32))
        } else {
            Err(ParticipationError::Share)
        }
    }

    /// The number of millionths.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The share, 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }
}

/// An installation keeps its arm, and reports it at most once in each period.
///
/// It draws another arm when its own is retired, or weighs less than
/// [`Self::until_weight_below`] in the policy that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sticky {
    /// The least weight at which an arm is kept. With [`Millionths::NONE`] an arm is kept whatever
    /// it weighs.
    pub until_weight_below: Millionths,
    /// Length of a period in days (UTC, counted from 1970-01-01), at most [`REPORT_DAYS_MAX`]. With
    /// 0, the only period never ends.
    pub report_days: u32,
}

impl Sticky {
    /// An installation reports once, and takes another arm when its own has less than a hundredth
    /// of the traffic.
    pub const DEFAULT: Self = Self { until_weight_below: Millionths(10_000), report_days: 0 };

    /// Whether an arm of this weight is kept, in integers.
    ///
    /// ```
    /// use bandana_shared::{participation::Sticky, policy::Weights};
    /// let weights = Weights::from_shares(&[0.995, 0.005])?;
    /// assert_eq!([0, 1].map(|arm| Sticky::DEFAULT.keeps(weights.get(arm))), [true, false]);
    /// # Ok::<(), bandana_shared::policy::PolicyError>(())
    /// ```
    pub fn keeps(self, weight: u64) -> bool {
        let needed = u128::from(self.until_weight_below.0) * u128::from(Weights::TOTAL);
        u128::from(weight) * u128::from(Millionths::ALL.0) >= needed
    }
}

/// The name of a layer. It follows the rule for experiments' ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerName(String);

impl LayerName {
    /// Checks the characters.
    ///
    /// # Errors
    /// [`ParticipationError::LayerName`] when `name` breaks the rule.
    pub fn new(name: impl Into<String>) -> Result<Self, ParticipationError> {
        let name = name.into();
        if is_name(&name, LAYER_NAME_CHARS_MAX) {
            Ok(Self(name))
        } else {
            Err(ParticipationError::LayerName(name))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A part of a layer. Every installation has one position in a layer. So experiments with parts
/// that don't overlap share no installation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layer {
    name: LayerName,
    from: Millionths,
    to: Millionths,
}

impl Layer {
    /// The part that begins at `from` and ends before `to`.
    ///
    /// # Errors
    /// [`ParticipationError::EmptyPart`] unless `from` is below `to`.
    ///
    /// ```
    /// use bandana_shared::participation::{Layer, LayerName, Millionths};
    /// let checkout = LayerName::new("checkout")?;
    /// let half = Millionths::from_share(0.5)?;
    /// let first = Layer::new(checkout.clone(), Millionths::NONE, half)?;
    /// let second = Layer::new(checkout, half, Millionths::ALL)?;
    /// assert!(!first.overlaps(&second));
    /// # Ok::<(), bandana_shared::participation::ParticipationError>(())
    /// ```
    pub fn new(
        name: LayerName,
        from: Millionths,
        to: Millionths,
    ) -> Result<Self, ParticipationError> {
        if from < to {
            Ok(Self { name, from, to })
        } else {
            Err(ParticipationError::EmptyPart { from: from.share(), to: to.share() })
        }
    }

    /// The layer's name.
    pub fn name(&self) -> &LayerName {
        &self.name
    }

    /// The first position of the part.
    pub fn from(&self) -> Millionths {
        self.from
    }

    /// The first position after the part.
    pub fn to(&self) -> Millionths {
        self.to
    }

    /// Whether the part holds a position.
    pub fn holds(&self, position: Millionths) -> bool {
        (self.from..self.to).contains(&position)
    }

    /// Whether an installation could be in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.name == other.name && self.from < other.to && other.from < self.to
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}-{}", self.name, self.from.share(), self.to.share())
    }
}

/// Reads what [`Layer`]'s `Display` writes: `checkout:0-0.5`.
impl std::str::FromStr for Layer {
    type Err = ParticipationError;

    fn from_str(text: &str) -> Result<Self, ParticipationError> {
        let unread = || ParticipationError::LayerForm(text.to_owned());
        let (name, part) = text.split_once(':').ok_or_else(unread)?;
        let (from, to) = part.split_once('-').ok_or_else(unread)?;
        let share = |text: &str| Millionths::from_share(text.trim().parse().map_err(|_| unread())?);
        Self::new(LayerName::new(name.trim())?, share(from)?, share(to)?)
    }
}

/// The installations that take part, and how long each keeps its arm.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Participation {
    /// The rule by which an installation keeps its arm. If `None`, each assignment draws its own
    /// arm, and every assignment can report.
    pub sticky: Option<Sticky>,
    /// The part of a layer that takes part. If `None`, everybody who is enrolled takes part.
    pub layer: Option<Layer>,
    /// The share of installations that are enrolled, above 0. Each installation has one position in
    /// an experiment. So an installation that is enrolled at one share is enrolled at each larger
    /// share.
    pub enrolment: Millionths,
}

impl Participation {
    /// Everyone takes part, and each assignment draws its own arm.
    pub const EVERYONE: Self = Self { sticky: None, layer: None, enrolment: Millionths::ALL };

    /// Checks the parts.
    ///
    /// # Errors
    /// [`ParticipationError::NobodyEnrolled`]; [`ParticipationError::ReportDays`].
    pub(crate) fn check(&self) -> Result<(), ParticipationError> {
        if self.enrolment == Millionths::NONE {
            return Err(ParticipationError::NobodyEnrolled);
        }
        match self.sticky {
            Some(Sticky { report_days, .. }) if report_days > REPORT_DAYS_MAX => {
                Err(ParticipationError::ReportDays(report_days))
            }
            _ => Ok(()),
        }
    }

    /// Whether every installation takes part.
    pub fn is_for_all(&self) -> bool {
        self.layer.is_none() && self.enrolment == Millionths::ALL
    }
}

impl Default for Participation {
    fn default() -> Self {
        Self::EVERYONE
    }
}

/// An invalid declaration of who takes part.
#[derive(Clone, Error, PartialEq)]
#[non_exhaustive]
pub enum ParticipationError {
    /// More than a whole.
    #[error("{0} millionths are more than a whole; give at most 1000000")]
    Millionths(u32),
    /// Not a share.
    #[error("a share is a number from 0 to 1")]
    Share,
    /// See [`LayerName`].
    #[error(
        "layer {0:?} is not 1 to {max} characters of a-z, 0-9, '.', '_' and '-' that start with a \
         letter or a digit", max = LAYER_NAME_CHARS_MAX
    )]
    LayerName(String),
    /// The text is not a part of a layer.
    #[error("{0:?} is not a part of a layer; give NAME:FROM-TO, such as checkout:0-0.5")]
    LayerForm(String),
    /// A part without positions.
    #[error("a part of a layer ends after it begins; this one goes from {from} to {to}")]
    EmptyPart {
        /// Its begin, as a share.
        from: f64,
        /// Its end, as a share.
        to: f64,
    },
    /// An experiment for nobody.
    #[error("nobody would be enrolled; give an enrolment share above 0")]
    NobodyEnrolled,
    /// The period is too long.
    #[error("a period between reports has at most {max} days, or 0 for one report ever; got {0}",
        max = REPORT_DAYS_MAX)]
    ReportDays(u32),
}

crate::debug_says!(ParticipationError);
