//! A metric: a quantity that is measured in addition to the rewards.

use std::fmt;

use super::{CellsError, checked_name};
use crate::participation::Millionths;
use crate::rewards::{RewardKind, RewardRange, Rewards};

/// The mean of a metric beyond which an arm does harm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Harm is a mean above this.
    AtMost(f64),
    /// Harm is a mean below this.
    AtLeast(f64),
}

impl Limit {
    /// The mean at the limit.
    pub fn mean(self) -> f64 {
        match self {
            Self::AtMost(mean) | Self::AtLeast(mean) => mean,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(mean) => write!(f, "at most {mean}"),
            Self::AtLeast(mean) => write!(f, "at least {mean}"),
        }
    }
}

/// The name that no metric has: it stands for the rewards.
const REWARDS: &str = "rewards";

/// A quantity that is measured in addition to the rewards, by the mechanism of the experiment's
/// bits and a linear curve.
///
/// An assignment reports either its rewards or one metric. The device draws which of them before
/// there is any value, and reports it at the full ε.
///
/// ```
/// use bandana_shared::cells::{Limit, Metric};
/// use bandana_shared::participation::Millionths;
/// use bandana_shared::rewards::Rewards;
/// let fifth = Millionths::from_share(0.2)?;
/// let returned = Metric::new("returned", Rewards::binary(), fifth)?;
/// let guarded = returned.limited(Limit::AtMost(0.3))?;
/// assert_eq!(guarded.limit(), Some(Limit::AtMost(0.3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    name: String,
    values: Rewards,
    share: Millionths,
    limit: Option<Limit>,
}

impl Metric {
    /// A metric with these values, reported by this share of the assignments. Its name follows the
    /// rule of experiments' ids.
    ///
    /// # Errors
    /// [`CellsError::Name`]; [`CellsError::Rewards`]; [`CellsError::Categories`];
    /// [`CellsError::NoShare`].
    pub fn new(
        name: impl Into<String>,
        values: Rewards,
        share: Millionths,
    ) -> Result<Self, CellsError> {
        let name = checked_name(name)?;
        if name == REWARDS {
            return Err(CellsError::Rewards);
        }
        if values.kind() == RewardKind::Categorical {
            return Err(CellsError::Categories { metric: name });
        }
        if share == Millionths::NONE || share == Millionths::ALL {
            return Err(CellsError::NoShare { metric: name });
        }
        Ok(Self { name, values, share, limit: None })
    }

    /// The same metric as a guardrail. An arm whose mean is certainly beyond the limit gets no
    /// further traffic.
    ///
    /// # Errors
    /// [`CellsError::Limit`] unless the limit lies inside the range of the values.
    pub fn limited(self, limit: Limit) -> Result<Self, CellsError> {
        let range = self.values.range();
        if range.low() < limit.mean() && limit.mean() < range.high() {
            let limit = match limit {
                // Not -0, which would have another encoding.
                Limit::AtMost(mean) => Limit::AtMost(mean + 0.0),
                Limit::AtLeast(mean) => Limit::AtLeast(mean + 0.0),
            };
            Ok(Self { limit: Some(limit), ..self })
        } else {
            Err(CellsError::Limit { metric: self.name, limit: limit.mean() })
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind and range of its values, and the value that counts for an assignment without any.
    pub fn values(&self) -> Rewards {
        self.values
    }

    /// The share of the assignments that report it.
    pub fn share(&self) -> Millionths {
        self.share
    }

    /// The mean beyond which an arm does harm, or `None` if the metric is only shown.
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }
}

/// What `FromStr` reads, if numbers out of range are clamped and the default is the least one.
impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.share.share())?;
        let range = self.values.range();
        if self.values != Rewards::binary() {
            write!(f, ":{}..{}", range.low(), range.high())?;
        }
        match self.limit {
            None => Ok(()),
            Some(Limit::AtMost(mean)) => write!(f, ":at-most={mean}"),
            Some(Limit::AtLeast(mean)) => write!(f, ":at-least={mean}"),
        }
    }
}

/// Reads `returned:0.1`, a yes or no that a tenth of the assignments report; `minutes:0.1:0..60`, a
/// number in this range, those beyond it as its nearer end, of which the least is the default; and either with a limit, as in
/// `returned:0.1:at-most=0.3`.
impl std::str::FromStr for Metric {
    type Err = CellsError;

    fn from_str(text: &str) -> Result<Self, CellsError> {
        let unread = || CellsError::MetricForm(text.to_owned());
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| unread());
        let mut parts = text.split(':');
        let (name, share) = (parts.next().ok_or_else(unread)?, parts.next().ok_or_else(unread)?);
        let share = Millionths::from_share(number(share)?).map_err(|_| unread())?;
        let (mut values, mut limit) = (Rewards::binary(), None);
        let mut has_range = false;
        for part in parts {
            if let Some((low, high)) = part.split_once("..") {
                if std::mem::replace(&mut has_range, true) {
                    return Err(CellsError::TwoOfAKind(text.to_owned()));
                }
                let range = RewardRange::new(number(low)?, number(high)?).map_err(|_| unread())?;
                values = Rewards::bounded(range);
            } else {
                if limit.is_some() {
                    return Err(CellsError::TwoOfAKind(text.to_owned()));
                }
                limit = Some(match part.split_once('=').ok_or_else(unread)? {
                    ("at-most", mean) => Limit::AtMost(number(mean)?),
                    ("at-least", mean) => Limit::AtLeast(number(mean)?),
                    _ => return Err(unread()),
                });
            }
        }
        let metric = Self::new(name.trim(), values, share)?;
        limit.map_or(Ok(metric.clone()), |limit| metric.limited(limit))
    }
}
