//! The numbering of cells: the index of each, and the sums of tallies over them.

use std::fmt;

use crate::identity::{ArmIndex, CellIndex};
use crate::tally::Tally;

/// The numbers of arms, segments, groups and metrics of an experiment, or of arms and coordinates.
///
/// The index of a cell is `((arm * segments + segment) * groups + group) * metrics + metric`, so
/// that arms can be added. Group 1 is the held-out installations, if there are any. Metric 0 is the
/// rewards. With a [private context](crate::context::PrivateContext), cells have the index `arm *
/// coordinates + coordinate`, and the rewards are counted under coordinate 0, the constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    pub(super) arms: usize,
    pub(super) segments: usize,
    pub(super) groups: usize,
    pub(super) metrics: usize,
    /// 1 without a private context.
    pub(super) coordinates: usize,
}

/// The arm, segment, group and metric of a cell, or its arm and coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The arm.
    pub arm: ArmIndex,
    /// The segment, from 0; 0 without segments.
    pub segment: usize,
    /// Whether the cell is that of the held-out installations.
    pub is_held_out: bool,
    /// The metric, from 1; 0 stands for the rewards.
    pub metric: usize,
    /// The coordinate of a private context. It is 0 for the constant, and without a context.
    pub coordinate: usize,
}

impl Cell {
    /// The cell of an arm's rewards, in an experiment with one cell for each arm.
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

    /// The cell with an index, or `None` if the experiment has fewer cells.
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

    /// The arm of a cell. For a cell that the experiment does not have, it is the arm of that number.
    pub fn arm_of(self, index: CellIndex) -> ArmIndex {
        let same = || ArmIndex::new(index.get());
        let arm = self.cell(index).map_or_else(same, |cell| Ok(cell.arm));
        arm.unwrap_or_else(|_| unreachable!("both have one limit"))
    }

    /// The number of reports on each arm whose arm was drawn by the weights of a policy. It counts
    /// all metrics in all segments, or all coordinates. It leaves out the installations that are
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

    /// The tally of each arm for one metric, in one segment or, with `None`, in all segments.
    /// Held-out installations are included. With a private context, it is the tally of the
    /// constant. Cells that `tallies` lacks are empty.
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

    /// The tally of each arm for one coordinate of a private context. Cells that `tallies` lacks
    /// are empty.
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
