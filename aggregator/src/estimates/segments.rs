//! Estimates of the rewards by each value of each segmentation.

use bandana_shared::cells::Cells;
use bandana_shared::tally::Tally;

use super::{ArmEstimate, ArmTable, ArmVerdict};

/// The rewards of the installations with one value of a segmentation.
#[derive(Clone, Debug)]
pub struct SegmentEstimates {
    /// The name of the segmentation.
    pub segmentation: String,
    /// The value.
    pub value: String,
    /// The rewards of each arm.
    pub arms: Vec<ArmEstimate>,
    /// The verdict among these installations; those of all values share one error level.
    pub verdict: ArmVerdict,
}

/// A segment, and the rewards in it.
struct Segment {
    number: usize,
    /// The place of its value in each segmentation.
    places: Vec<usize>,
    /// The tally of each arm.
    tallies: Vec<Tally>,
}

impl Segment {
    /// The number of its users, about: as the learner does, one without reports is taken to have
    /// some.
    fn users(&self) -> f64 {
        1.0 + self.tallies.iter().copied().sum::<Tally>().reports() as f64
    }
}

impl ArmTable<'_> {
    /// The rewards by each value of each segmentation. The verdicts share one error level.
    pub(super) fn segments(self, cells: Cells) -> Vec<SegmentEstimates> {
        let specification = &*self.serving.specification;
        let segmentations = &specification.measurement().segmentations;
        let counted = &self.snapshot.tallies;
        let segment = |number| Segment {
            number,
            places: segmentations.places(number),
            tallies: cells.of_arms(counted, 0, Some(number)),
        };
        let all: Vec<Segment> = (0..segmentations.segments()).map(segment).collect();
        let alpha = self.settings.alpha.shared_by(segmentations.sizes().sum());
        let mut estimates = Vec::new();
        for (place, segmentation) in segmentations.all().iter().enumerate() {
            for (number, value) in segmentation.values().iter().enumerate() {
                let is_mine = |one: &Segment| one.places[place] == number;
                let mine: Vec<&Segment> = all.iter().filter(|one| is_mine(one)).collect();
                let strata = self.snapshot.strata(specification, 0, |one| is_mine(&all[one]));
                let shares = self.shares_of(&mine, cells.arms());
                let tally = |arm: usize| mine.iter().map(|one| one.tallies[arm]).sum();
                let tallies: Vec<Tally> = (0..cells.arms()).map(tally).collect();
                estimates.push(SegmentEstimates {
                    segmentation: segmentation.name().to_owned(),
                    value: value.clone(),
                    arms: self.arms(0, &shares, (&tallies, &strata)),
                    verdict: self.verdict(&strata, alpha, &shares),
                });
            }
        }
        estimates
    }

    /// The shares of the traffic in some segments together.
    fn shares_of(self, segments: &[&Segment], arms: usize) -> Vec<f64> {
        let weights = &self.serving.policy.weights;
        let users: f64 = segments.iter().map(|one| one.users()).sum();
        let share = |arm| {
            let of = |one: &&Segment| one.users() * weights.share_in(Some(one.number), arm);
            segments.iter().map(of).sum::<f64>() / users
        };
        (0..arms).map(share).collect()
    }
}
