//! What a learner knows.

use bandana_shared::channel::Floor;
use bandana_shared::tally::Tally;

/// What is known of one arm: private bits by their value, and selections whose
/// report has not come yet.
///
/// Counts are real numbers: those of a discounted tally are no whole ones, and
/// pending selections are often estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    ones: f64,
    zeros: f64,
    pending: f64,
}

impl Evidence {
    /// Evidence of so many ones and zeros; what is not a positive number counts as 0.
    pub fn new(ones: f64, zeros: f64) -> Self {
        Self { ones: count(ones), zeros: count(zeros), pending: 0.0 }
    }

    /// The same with so many selections not yet reported.
    #[must_use]
    pub fn with_pending(self, pending: f64) -> Self {
        Self { pending: count(pending), ..self }
    }

    /// Bits that are 1.
    pub fn ones(self) -> f64 {
        self.ones
    }

    /// Bits that are 0.
    pub fn zeros(self) -> f64 {
        self.zeros
    }

    /// All bits.
    pub fn reports(self) -> f64 {
        self.ones + self.zeros
    }

    /// Selections not yet reported.
    pub fn pending(self) -> f64 {
        self.pending
    }

    /// Reports that have come or are to come.
    pub fn selections(self) -> f64 {
        self.reports() + self.pending
    }

    /// Share of ones; `None` without reports.
    pub fn mean(self) -> Option<f64> {
        (self.reports() > 0.0).then(|| self.ones / self.reports())
    }

    /// Counts one report, which was pending if anything was.
    pub fn add_bit(&mut self, bit: bool) {
        *(if bit { &mut self.ones } else { &mut self.zeros }) += 1.0;
        self.pending = (self.pending - 1.0).max(0.0);
    }

    /// Counts one selection.
    pub fn add_pending(&mut self) {
        self.pending += 1.0;
    }
}

impl From<Tally> for Evidence {
    fn from(tally: Tally) -> Self {
        Self::new(tally.ones() as f64, tally.zeros() as f64)
    }
}

fn count(count: f64) -> f64 {
    if count.is_finite() { count.max(0.0) } else { 0.0 }
}

/// All that a learner decides from.
#[derive(Clone, Debug)]
pub struct Situation {
    /// One entry for each arm, retired ones too.
    pub arms: Vec<Evidence>,
    /// Whether the arm is in play, one entry for each.
    pub active: Vec<bool>,
    /// Floor of the channel that all bits went through.
    pub floor: Floor,
    /// Least share of the traffic for every arm in play.
    pub floor_weight: f64,
    /// Selections that the policy will serve before there is another.
    pub ahead: f64,
}

impl Situation {
    /// What these tallies say, with nothing pending and no floor weight.
    pub fn new(tallies: &[Tally], active: &[bool], floor: Floor) -> Self {
        Self {
            arms: tallies.iter().copied().map(Evidence::from).collect(),
            active: active.to_vec(),
            floor,
            floor_weight: 0.0,
            ahead: 0.0,
        }
    }

    /// The same with selections not yet reported, one number for each arm. Arms
    /// that the slice does not reach have none.
    #[must_use]
    pub fn with_pending(mut self, pending: &[f64]) -> Self {
        for (arm, pending) in self.arms.iter_mut().zip(pending) {
            *arm = arm.with_pending(*pending);
        }
        self
    }

    /// The same for a policy that will serve so many selections.
    #[must_use]
    pub fn with_ahead(mut self, ahead: f64) -> Self {
        self.ahead = count(ahead);
        self
    }

    /// The same with a least share for every arm in play.
    #[must_use]
    pub fn with_floor_weight(mut self, floor_weight: f64) -> Self {
        self.floor_weight = floor_weight;
        self
    }
}
