//! Cells: the groups in which reports are counted. Each is an arm, a segment and a metric.
//!
//! An experiment without segments and further metrics has one cell for each arm, with the arm's
//! index. Apart from its bit, a report says only the number of its cell.

mod metric;
mod numbering;
mod segmentation;

use thiserror::Error;

use crate::context::{ContextError, PrivateContext};
use crate::identity::{CellIndex, is_name};
use crate::limits::{
    LABEL_BYTES_MAX, METRICS_MAX, NAME_CHARS_MAX, SEGMENTATIONS_MAX, SEGMENTS_MAX, VALUES_MAX,
};
use crate::participation::Millionths;

pub use metric::{Limit, Metric};
pub use numbering::{Cell, Cells};
pub use segmentation::{Segmentation, Segmentations};

/// The segments, metrics and holdout of an experiment. None of them ever changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The segmentations, whose values divide the installations.
    pub segmentations: Segmentations,
    /// The metrics in addition to the rewards, at most [`METRICS_MAX`].
    pub metrics: Vec<Metric>,
    /// The share of the installations that are held out, less than all. Each installation draws
    /// once whether it is held out. If it is, it gets an arm by even weights, and says in its
    /// reports that it was held out.
    pub holdout: Millionths,
    /// The private context by which arms are chosen, or `None` if there is none.
    pub context: Option<PrivateContext>,
}

impl Default for Measurement {
    fn default() -> Self {
        Self::REWARDS_ONLY
    }
}

impl Measurement {
    /// No segments, no further metrics, nobody held out, and no private context.
    pub const REWARDS_ONLY: Self = Self {
        segmentations: Segmentations::NONE,
        metrics: Vec::new(),
        holdout: Millionths::NONE,
        context: None,
    };

    /// Checks the parts, and the number of cells with so many arms.
    pub(crate) fn check(&self, arms: usize) -> Result<(), CellsError> {
        if self.metrics.len() > METRICS_MAX {
            return Err(CellsError::Metrics(self.metrics.len()));
        }
        for (place, metric) in self.metrics.iter().enumerate() {
            if self.metrics[..place].iter().any(|before| before.name() == metric.name()) {
                return Err(CellsError::SameMetric(metric.name().to_owned()));
            }
        }
        if self.share_of_rewards().is_none() {
            return Err(CellsError::Shares);
        }
        if self.holdout == Millionths::ALL {
            return Err(CellsError::AllHeldOut);
        }
        if self.context.is_some() {
            self.check_context()?;
        }
        let cells = self.cells(arms);
        if cells.len() <= CellIndex::LIMIT { Ok(()) } else { Err(CellsError::Cells { cells }) }
    }

    fn check_context(&self) -> Result<(), ContextError> {
        let is_held_out = self.holdout != Millionths::NONE;
        let with = match (self.segmentations.is_empty(), self.metrics.is_empty()) {
            (false, _) => "segments",
            (true, false) => "metrics",
            (true, true) if is_held_out => "a holdout",
            (true, true) => return Ok(()),
        };
        Err(ContextError::Combination { with, instead: "make two experiments of it" })
    }

    /// The cells of an experiment with this number of arms.
    pub fn cells(&self, arms: usize) -> Cells {
        let segments = self.segmentations.segments();
        let groups = if self.holdout == Millionths::NONE { 1 } else { 2 };
        let coordinates = self.context.as_ref().map_or(1, PrivateContext::coordinates);
        Cells { arms, segments, groups, metrics: self.metrics.len() + 1, coordinates }
    }

    /// The number of lists in the weights of a policy after the one for all installations. There is
    /// one for each segment, or one for each coordinate of a private context.
    pub fn lists(&self) -> usize {
        let segments =
            if self.segmentations.is_empty() { 0 } else { self.segmentations.segments() };
        segments + self.context.as_ref().map_or(0, PrivateContext::coordinates)
    }

    /// Whether there are neither segments, nor further metrics, nor a holdout, nor a private context.
    pub fn is_rewards_only(&self) -> bool {
        *self == Self::REWARDS_ONLY
    }

    /// The share of the assignments that report their rewards, or `None` if there would be none.
    fn share_of_rewards(&self) -> Option<Millionths> {
        let others: u32 = self.metrics.iter().map(|metric| metric.share().get()).sum();
        let left = Millionths::ALL.get().checked_sub(others).filter(|left| *left > 0)?;
        Millionths::new(left).ok()
    }

    /// The share of the assignments that report a metric. 0 stands for the rewards.
    pub fn share(&self, metric: usize) -> f64 {
        let share = match metric.checked_sub(1) {
            None => self.share_of_rewards(),
            Some(place) => self.metrics.get(place).map(Metric::share),
        };
        share.map_or(0.0, Millionths::share)
    }

    /// The number of the metric with a name, from 1 up.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.metrics.iter().position(|metric| metric.name() == name).map(|place| place + 1)
    }

    /// The metric for a uniformly random number. 0 stands for the rewards.
    ///
    /// ```
    /// use bandana_shared::cells::{Measurement, Metric};
    /// use bandana_shared::participation::Millionths;
    /// use bandana_shared::rewards::Rewards;
    /// let quarter = Millionths::from_share(0.25)?;
    /// let metrics = vec![Metric::new("returned", Rewards::binary(), quarter)?];
    /// let measurement = Measurement { metrics, ..Measurement::REWARDS_ONLY };
    /// assert_eq!([0, (1 << 30) - 1, 1 << 30].map(|u| measurement.draw(u)), [1, 1, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn draw(&self, uniform: u32) -> usize {
        // Each metric has the numbers below its part of 2^32, rounded down.
        let mut end = 0_u64;
        let below = |metric: &Metric| {
            end += u64::from(metric.share().get());
            u64::from(uniform) < (end << 32) / u64::from(Millionths::ALL.get())
        };
        self.metrics.iter().position(below).map_or(0, |place| place + 1)
    }
}

fn checked_name(name: impl Into<String>) -> Result<String, CellsError> {
    let name = name.into();
    if is_name(&name, NAME_CHARS_MAX) { Ok(name) } else { Err(CellsError::Name(name)) }
}

/// An invalid declaration of segments or metrics.
#[derive(Clone, Error, PartialEq)]
#[non_exhaustive]
pub enum CellsError {
    /// The name breaks the rule.
    #[error(
        "{0:?} is not 1 to {max} characters of a-z, 0-9, '.', '_' and '-' that start with a letter \
         or a digit", max = NAME_CHARS_MAX
    )]
    Name(String),
    /// The text is not a segmentation.
    #[error("{0:?} is not a segmentation; give NAME=VALUE,VALUE, such as platform=ios,android")]
    SegmentationForm(String),
    /// The text is not a metric.
    #[error(
        "{0:?} is not a metric; give NAME:SHARE, NAME:SHARE:LOW..HIGH, and a limit as \
         :at-most=MEAN or :at-least=MEAN, such as returned:0.1:at-most=0.3"
    )]
    MetricForm(String),
    /// The text has two ranges or two limits.
    #[error("{0:?} has two ranges or two limits; give one of each at most")]
    TwoOfAKind(String),
    /// A metric has the name that stands for the rewards.
    #[error("a metric beside the rewards can't be named \"rewards\"; give it another name")]
    Rewards,
    /// Too few or too many values.
    #[error("a segmentation has 2 to {max} values; this one has {0}", max = VALUES_MAX)]
    Values(usize),
    /// The value can't be shown.
    #[error(
        "value {0:?} must have 1 to {max} bytes and no control characters", max = LABEL_BYTES_MAX
    )]
    Value(String),
    /// Two values of a segmentation are the same.
    #[error("a segmentation has two values {0:?}; values must differ")]
    SameValue(String),
    /// Too many segmentations.
    #[error("an experiment has at most {max} segmentations; got {0}", max = SEGMENTATIONS_MAX)]
    Segmentations(usize),
    /// Two segmentations have the same name.
    #[error("two segmentations are named {0:?}; names must differ")]
    SameSegmentation(String),
    /// The segmentations make too many segments.
    #[error(
        "the segmentations make {0} segments, as many as their values have combinations; at most \
         {max} are possible", max = SEGMENTS_MAX
    )]
    Segments(usize),
    /// A metric has categories as its values, and they must be numbers.
    #[error("metric {metric:?} is a number or a yes or no; categories can only be the rewards")]
    Categories {
        /// The metric's name.
        metric: String,
    },
    /// No assignment, or each one, would report the metric.
    #[error(
        "metric {metric:?} needs a share of the assignments above 0 and below 1, of a millionth or more"
    )]
    NoShare {
        /// The metric's name.
        metric: String,
    },
    /// The limit lies at the end of the range or beyond it.
    #[error("the limit {limit} of metric {metric:?} must lie between the ends of its range")]
    Limit {
        /// The metric's name.
        metric: String,
        /// The limit.
        limit: f64,
    },
    /// Too many metrics.
    #[error("an experiment has at most {max} metrics beside its rewards; got {0}",
        max = METRICS_MAX)]
    Metrics(usize),
    /// Two metrics have the same name.
    #[error("two metrics are named {0:?}; names must differ")]
    SameMetric(String),
    /// No assignment would report its rewards.
    #[error("the shares of the metrics must sum to less than 1, to leave some for the rewards")]
    Shares,
    /// Nobody would be left for the learner.
    #[error("a holdout of everybody leaves nobody to learn from; give a share below 1")]
    AllHeldOut,
    /// Too many cells.
    #[error("{cells} make {} cells; at most {max} are possible", cells.len(), max = CellIndex::LIMIT)]
    Cells {
        /// The numbers of arms, segments, groups and metrics.
        cells: Cells,
    },
    /// Metrics need reports that are bits.
    #[error(
        "only experiments whose reports are bits have metrics, and k-ary randomized response sends \
         symbols; take another mechanism, or no metrics"
    )]
    MetricsNeedBits,
    /// The private context is not valid, or can't be combined with the rest.
    #[error(transparent)]
    Context(#[from] ContextError),
}

crate::debug_says!(CellsError);
