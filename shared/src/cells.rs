//! Cells: the groups that reports are counted in, each an arm, a segment and a metric.
//!
//! An experiment without segments and further metrics has one cell for each arm, with the arm's
//! index. The number of a cell is all that a report says beside its bit.

use std::fmt;

use thiserror::Error;

use crate::context::{ContextError, PrivateContext};
use crate::identity::{ArmIndex, CellIndex, is_name};
use crate::limits::{LABEL_BYTES_MAX, METRICS_MAX, NAME_CHARS_MAX, SEGMENTS_MAX};
use crate::participation::Millionths;
use crate::rewards::{RewardKind, RewardRange, Rewards};
use crate::tally::Tally;

/// A public property of installations, such as the platform, and the values that it can have.
///
/// A device reports which value it has, to whoever sees its reports; so an app must agree to each
/// segmentation by its name.
///
/// ```
/// use bandana_shared::cells::Segmentation;
/// let platform = Segmentation::new("platform", ["ios", "android"])?;
/// assert_eq!(platform.place_of("android"), Some(1));
/// assert_eq!(platform.place_of("web"), None);
/// # Ok::<(), bandana_shared::cells::CellsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segmentation {
    name: String,
    values: Vec<String>,
}

impl Segmentation {
    /// A segmentation with 2 to [`SEGMENTS_MAX`] values that differ. Its name follows the rule of
    /// experiments' ids, its values that of labels.
    ///
    /// # Errors
    /// [`CellsError::Name`]; [`CellsError::Segments`]; [`CellsError::Value`];
    /// [`CellsError::SameValue`].
    pub fn new<V: Into<String>>(
        name: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, CellsError> {
        let name = checked_name(name)?;
        let values: Vec<String> = values.into_iter().map(Into::into).collect();
        if !(2..=SEGMENTS_MAX).contains(&values.len()) {
            return Err(CellsError::Segments(values.len()));
        }
        for (place, value) in values.iter().enumerate() {
            let length = 1..=LABEL_BYTES_MAX;
            if !length.contains(&value.len()) || value.chars().any(char::is_control) {
                return Err(CellsError::Value(value.clone()));
            }
            if values[..place].contains(value) {
                return Err(CellsError::SameValue(value.clone()));
            }
        }
        Ok(Self { name, values })
    }

    /// The name of the property.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The values, in the order of their segments.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// The segment of the installations with this value.
    pub fn place_of(&self, value: &str) -> Option<usize> {
        self.values.iter().position(|known| known == value)
    }
}

impl fmt::Display for Segmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.values.join(","))
    }
}

/// Reads `platform=ios,android`.
impl std::str::FromStr for Segmentation {
    type Err = CellsError;

    fn from_str(text: &str) -> Result<Self, CellsError> {
        let unread = || CellsError::SegmentationForm(text.to_owned());
        let (name, values) = text.split_once('=').ok_or_else(unread)?;
        Self::new(name.trim(), values.split(',').map(str::trim))
    }
}

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

/// Something that is measured beside the rewards, by the mechanism of the experiment's bits and a
/// linear curve.
///
/// An assignment reports either its rewards or one metric. The device draws which before there is
/// any value, and then reports that one at the full ε.
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

    /// The same metric as a guardrail: an arm whose mean is certainly beyond the limit gets no
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

    /// The kind and range of its values, and the one of an assignment without any.
    pub fn values(&self) -> Rewards {
        self.values
    }

    /// The share of the assignments that report it.
    pub fn share(&self) -> Millionths {
        self.share
    }

    /// The mean beyond which an arm does harm. None: the metric is only shown.
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }
}

/// What `FromStr` reads, if values out of range are refused and the default is the least one.
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
/// number in this range, of which the least is the default; and either with a limit, as in
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

/// The segments, metrics and holdout of an experiment; none of them ever changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// None: all installations are in one segment.
    pub segmentation: Option<Segmentation>,
    /// The metrics beside the rewards, at most [`METRICS_MAX`].
    pub metrics: Vec<Metric>,
    /// The share of the installations that are held out: below the whole. Each draws once whether it
    /// is, gets an arm by even weights, and says in its reports that it was held out.
    pub holdout: Millionths,
    /// The private context that arms are chosen by. None: they are not.
    pub context: Option<PrivateContext>,
}

impl Default for Measurement {
    fn default() -> Self {
        Self::REWARDS_ONLY
    }
}

impl Measurement {
    /// No segments, no metric beside the rewards, nobody held out, and no private context.
    pub const REWARDS_ONLY: Self =
        Self { segmentation: None, metrics: Vec::new(), holdout: Millionths::NONE, context: None };

    /// Checks the parts, and the number of cells with so many arms.
    pub(crate) fn check(&self, arms: usize) -> Result<(), CellsError> {
        if self.metrics.len() > METRICS_MAX {
            return Err(CellsError::Metrics(self.metrics.len()));
        }
        for (place, metric) in self.metrics.iter().enumerate() {
            if self.metrics[..place].iter().any(|before| before.name == metric.name) {
                return Err(CellsError::SameMetric(metric.name.clone()));
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
        let with = match (&self.segmentation, self.metrics.is_empty()) {
            (Some(_), _) => "segments",
            (None, false) => "metrics",
            (None, true) if is_held_out => "a holdout",
            (None, true) => return Ok(()),
        };
        Err(ContextError::Combination { with, instead: "make two experiments of it" })
    }

    /// The cells with so many arms.
    pub fn cells(&self, arms: usize) -> Cells {
        let segments = self.segmentation.as_ref().map_or(1, |one| one.values.len());
        let groups = if self.holdout == Millionths::NONE { 1 } else { 2 };
        let coordinates = self.context.as_ref().map_or(1, PrivateContext::coordinates);
        Cells { arms, segments, groups, metrics: self.metrics.len() + 1, coordinates }
    }

    /// The number of lists in the weights of a policy beside those for all installations: one for
    /// each segment, or one for each coordinate of a private context.
    pub fn lists(&self) -> usize {
        let segments = self.segmentation.as_ref().map_or(0, |one| one.values.len());
        segments + self.context.as_ref().map_or(0, PrivateContext::coordinates)
    }

    /// Whether there are neither segments, nor further metrics, nor a holdout, nor a private context.
    pub fn is_rewards_only(&self) -> bool {
        *self == Self::REWARDS_ONLY
    }

    /// The share of the assignments that report their rewards; `None`: there would be none.
    fn share_of_rewards(&self) -> Option<Millionths> {
        let others: u32 = self.metrics.iter().map(|metric| metric.share.get()).sum();
        let left = Millionths::ALL.get().checked_sub(others).filter(|left| *left > 0)?;
        Millionths::new(left).ok()
    }

    /// The share of the assignments that report a metric; 0 stands for the rewards.
    pub fn share(&self, metric: usize) -> f64 {
        let share = match metric.checked_sub(1) {
            None => self.share_of_rewards(),
            Some(place) => self.metrics.get(place).map(Metric::share),
        };
        share.map_or(0.0, Millionths::share)
    }

    /// The number of the metric with a name, from 1 up.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.metrics.iter().position(|metric| metric.name == name).map(|place| place + 1)
    }

    /// The metric for a uniformly random number; 0 stands for the rewards.
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
            end += u64::from(metric.share.get());
            u64::from(uniform) < (end << 32) / u64::from(Millionths::ALL.get())
        };
        self.metrics.iter().position(below).map_or(0, |place| place + 1)
    }
}

/// The numbers of arms, segments, groups and metrics of an experiment, or of arms and coordinates.
///
/// The index of a cell is `((arm * segments + segment) * groups + group) * metrics + metric`, so
/// that arms can be added. Group 1 are the installations that are held out, if any are; metric 0
/// are the rewards. With a [private context](PrivateContext) it is `arm * coordinates + coordinate`;
/// the rewards are counted under coordinate 0, the constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    arms: usize,
    segments: usize,
    groups: usize,
    metrics: usize,
    /// 1 without a private context.
    coordinates: usize,
}

/// The arm, segment, group and metric of a cell, or its arm and coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The arm.
    pub arm: ArmIndex,
    /// The segment, from 0; 0 without segments.
    pub segment: usize,
    /// Whether the installations are those that are held out.
    pub is_held_out: bool,
    /// The metric, from 1; 0 stands for the rewards.
    pub metric: usize,
    /// The coordinate of a private context; 0 is the constant, and without a context.
    pub coordinate: usize,
}

impl Cell {
    /// The cell of the rewards of an arm, where nothing else tells cells apart.
    pub const fn of(arm: ArmIndex) -> Self {
        Self { arm, segment: 0, is_held_out: false, metric: 0, coordinate: 0 }
    }
}

impl Cells {
    /// The number of cells.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(self) -> usize {
        self.arms * self.segments * self.groups * self.metrics * self.coordinates
    }

    /// The number of arms.
    pub fn arms(self) -> usize {
        self.arms
    }

    /// The number of segments, at least 1.
    pub fn segments(self) -> usize {
        self.segments
    }

    /// The number of metrics, the rewards included.
    pub fn metrics(self) -> usize {
        self.metrics
    }

    /// Whether some installations are held out.
    pub fn has_holdout(self) -> bool {
        self.groups == 2
    }

    /// The number of coordinates of the private context; 1 without one.
    pub fn coordinates(self) -> usize {
        self.coordinates
    }

    /// The index of a cell.
    ///
    /// # Panics
    /// When the experiment has no such cell.
    pub fn index(self, cell: Cell) -> CellIndex {
        let Cell { arm, segment, is_held_out, metric, coordinate } = cell;
        let group = usize::from(is_held_out);
        assert!(segment < self.segments && metric < self.metrics, "segment or metric too large");
        assert!(
            group < self.groups && coordinate < self.coordinates,
            "no such group or coordinate"
        );
        let index = ((arm.get() * self.segments + segment) * self.groups + group) * self.metrics;
        let index = CellIndex::new((index + metric) * self.coordinates + coordinate);
        index.unwrap_or_else(|_| unreachable!("checked with the specification"))
    }

    /// The cell with an index; `None`: the experiment has fewer cells.
    pub fn cell(self, index: CellIndex) -> Option<Cell> {
        let index = index.get();
        if index >= self.len() {
            return None;
        }
        let (rest, coordinate) = (index / self.coordinates, index % self.coordinates);
        let (rest, metric) = (rest / self.metrics, rest % self.metrics);
        let (rest, group) = (rest / self.groups, rest % self.groups);
        let arm = ArmIndex::new(rest / self.segments).ok()?;
        let (segment, is_held_out) = (rest % self.segments, group == 1);
        Some(Cell { arm, segment, is_held_out, metric, coordinate })
    }

    /// The number of reports of each arm that was drawn by the weights of a policy, of all metrics
    /// in all segments, or of all coordinates: all reports but those of the installations that are
    /// held out.
    pub fn reports_of_arms(self, tallies: &[Tally]) -> Vec<u64> {
        let mut reports = vec![0; self.arms];
        let of_group = self.metrics * self.coordinates;
        let of_arm = self.segments * self.groups * of_group;
        for (place, tally) in tallies.iter().enumerate().take(self.len()) {
            if (place / of_group).is_multiple_of(self.groups) {
                reports[place / of_arm] += tally.reports();
            }
        }
        reports
    }

    /// The tally of each arm: of one metric, in one segment or, with `None`, in all of them, whoever
    /// is held out or not; with a private context, of the constant. Cells that `tallies` lacks are
    /// empty.
    pub fn of_arms(self, tallies: &[Tally], metric: usize, segment: Option<usize>) -> Vec<Tally> {
        self.sums(tallies, metric, (segment, None))
    }

    /// The tally of the rewards of each arm among the installations that are held out, or among the
    /// others. Cells that `tallies` lacks are empty.
    pub fn of_group(self, tallies: &[Tally], is_held_out: bool) -> Vec<Tally> {
        self.sums(tallies, 0, (None, Some(is_held_out)))
    }

    fn sums(
        self,
        tallies: &[Tally],
        metric: usize,
        (segment, is_held_out): (Option<usize>, Option<bool>),
    ) -> Vec<Tally> {
        let segments = segment.map_or(0..self.segments, |one| one..one + 1);
        let groups = is_held_out.map_or(0..self.groups, |is| usize::from(is)..usize::from(is) + 1);
        let groups = groups.start..groups.end.min(self.groups);
        let of_arm = |arm: usize| {
            let places = segments.clone().flat_map(|one| {
                let first = (arm * self.segments + one) * self.groups;
                let place =
                    move |group| ((first + group) * self.metrics + metric) * self.coordinates;
                groups.clone().map(place)
            });
            places.filter_map(|place| tallies.get(place)).copied().sum()
        };
        (0..self.arms).map(of_arm).collect()
    }

    /// The tally of each arm: of one coordinate of a private context. Cells that `tallies` lacks are
    /// empty.
    pub fn of_coordinate(self, tallies: &[Tally], coordinate: usize) -> Vec<Tally> {
        let place = |arm: usize| arm * self.coordinates + coordinate;
        (0..self.arms).map(|arm| tallies.get(place(arm)).copied().unwrap_or_default()).collect()
    }
}

impl fmt::Display for Cells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arms, segments, groups, metrics, coordinates } = self;
        if *coordinates > 1 {
            return write!(f, "{arms} arms and {coordinates} coordinates of a context");
        }
        let beside = metrics - 1;
        write!(f, "{arms} arms, {segments} segments and {beside} metrics beside the rewards")?;
        if *groups == 2 { f.write_str(", each with a holdout") } else { Ok(()) }
    }
}

fn checked_name(name: impl Into<String>) -> Result<String, CellsError> {
    let name = name.into();
    if is_name(&name, NAME_CHARS_MAX) { Ok(name) } else { Err(CellsError::Name(name)) }
}

/// An invalid declaration of segments or metrics.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum CellsError {
    /// The name breaks the rule.
    #[error(
        "{0:?} is not 1 to {max} characters of a-z, 0-9, '.', '_' and '-' that start with a letter \
         or a digit", max = NAME_CHARS_MAX
    )]
    Name(String),
    /// Text that names no segmentation.
    #[error("{0:?} is not a segmentation; give NAME=VALUE,VALUE, such as platform=ios,android")]
    SegmentationForm(String),
    /// Text that names no metric.
    #[error(
        "{0:?} is not a metric; give NAME:SHARE, NAME:SHARE:LOW..HIGH, and a limit as \
         :at-most=MEAN or :at-least=MEAN, such as returned:0.1:at-most=0.3"
    )]
    MetricForm(String),
    /// A second range, or a second limit.
    #[error("{0:?} has two ranges or two limits; give one of each at most")]
    TwoOfAKind(String),
    /// A metric that is called as what it is beside.
    #[error("a metric beside the rewards can't be named \"rewards\"; give it another name")]
    Rewards,
    /// Too few or too many values.
    #[error("a segmentation has 2 to {max} values; this one has {0}", max = SEGMENTS_MAX)]
    Segments(usize),
    /// The value can't be shown.
    #[error(
        "segment {0:?} must have 1 to {max} bytes and no control characters", max = LABEL_BYTES_MAX
    )]
    Value(String),
    /// Two segments have the same value.
    #[error("two segments are {0:?}; values must differ")]
    SameValue(String),
    /// Metrics are numbers.
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
        /// The numbers of what makes them.
        cells: Cells,
    },
    /// Reports have no room for it.
    #[error(
        "only experiments whose reports are bits have metrics, and k-ary randomized response sends \
         symbols; take another mechanism, or no metrics"
    )]
    MetricsNeedBits,
    /// The private context is not valid, or does not go with the rest.
    #[error(transparent)]
    Context(#[from] ContextError),
}
