//! The configuration of a learner in an experiment, and the weights computed with it.

use bandana_shared::channel::Channel;
use bandana_shared::identity::Day;
use bandana_shared::policy::Weights;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

use super::coarse::coarse;
use super::guardrails::Guardrails;
use super::snapshot::TallySnapshot;
use super::terms::ArmTerms;
use super::window::Memory;
use super::{Evidence, Learner, LearnerError, LearnerInput, contexts, features, harm, segments};

/// Minimum number of new reports that triggers a new policy.
const REPORTS_PER_POLICY_MIN: u64 = 100;

/// The configuration of an experiment's learner, in addition to the specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnerConfig {
    /// The learner. In an experiment with batches, its weights are rounded to few different ones.
    pub learner: Learner,
    /// Minimum share of the traffic for every arm in play.
    pub floor_weight: f64,
    /// The weight of old reports.
    pub memory: Memory,
    /// Limits on the learner's decisions.
    pub guardrails: Guardrails,
}

impl LearnerConfig {
    /// A learner without floor weight, guardrails or forgetting.
    pub const fn new(learner: Learner) -> Self {
        let (memory, guardrails) = (Memory::Everything, Guardrails::OFF);
        Self { learner, floor_weight: 0.0, memory, guardrails }
    }

    /// Computes the weights of the arms of a specification, for all installations and for each
    /// [segment](segments). `pending` has the pending selections of each arm. The first
    /// `initial_arms` arms were there from the start. Arms that do [harm] get no weight. With a
    /// private context, the arms get equal weights, and the learner computes [scores](contexts).
    ///
    /// # Errors
    /// [`LearnerError`], as for [`Learner::weights`].
    pub fn weigh(
        self,
        specification: &Specification,
        initial_arms: usize,
        snapshot: &TallySnapshot,
        pending: &[f64],
    ) -> Result<Weights, LearnerError> {
        self.weigh_on(specification, (initial_arms, &ArmTerms::default()), snapshot, pending)
    }

    /// Like [`Self::weigh`], with the priors and the costs of the arms.
    ///
    /// # Errors
    /// [`LearnerError`], as for [`Learner::weights`].
    pub fn weigh_on(
        self,
        specification: &Specification,
        (initial_arms, terms): (usize, &ArmTerms),
        snapshot: &TallySnapshot,
        pending: &[f64],
    ) -> Result<Weights, LearnerError> {
        let active = harm::allowed(specification, initial_arms, snapshot);
        let cells = specification.cells();
        if specification.private_context().is_some() {
            let scores = self.scores(specification, snapshot, &active);
            return Ok(contexts::policy(&scores, &active)?);
        }
        let of_arms = cells.of_arms(&snapshot.tallies, 0, None);
        let burning_in = self.guardrails.burning_in(&of_arms, &active, initial_arms);
        let ahead = reports_until_policy(snapshot.reports()) as f64;
        // What is forgotten in as many days as there have been is forgotten of a prior.
        let kept = if self.memory.is_everything() {
            1.0
        } else {
            self.memory.weight(u32::try_from(snapshot.days.len()).unwrap_or(u32::MAX))
        };
        let scale = (specification.channel(), specification.rewards().range());
        let weigh = |mut evidence: Vec<Evidence>, (share, known): (f64, f64)| {
            terms.apply(&mut evidence, &active, scale, known);
            let pending: Vec<f64> = pending.iter().map(|pending| share * pending).collect();
            let input = LearnerInput::of(evidence, &active, specification.channel())
                .with_pending(&pending)
                .with_ahead(share * ahead)
                .with_floor_weight(self.floor_weight)
                .with_burning_in(burning_in.clone())
                .with_holdout_share(self.guardrails.holdout_share);
            let weights = self.learner.weights(&input)?;
            Ok(if specification.batch().is_some() { coarse(&weights) } else { weights })
        };
        // A holdout draws evenly from all arms with a weight.
        let for_holdout = |weights: Weights| {
            if cells.has_holdout() { weights.with_every(&active) } else { weights }
        };
        let weights = weigh(self.evidence(specification, snapshot, None), (1.0, kept))?;
        if cells.segments() == 1 {
            return Ok(for_holdout(weights));
        }
        let mut evidence: Vec<Vec<Evidence>> = (0..cells.segments())
            .map(|segment| self.evidence(specification, snapshot, Some(segment)))
            .collect();
        let reports = |own: &Vec<Evidence>| own.iter().map(|arm| arm.reports()).sum::<f64>();
        // A segment without reports is taken for one of average size.
        let shares: Vec<f64> = evidence.iter().map(|own| 1.0 + reports(own)).collect();
        let all: f64 = shares.iter().sum();
        let sizes: Vec<usize> = specification.measurement().segmentations.sizes().collect();
        match &sizes[..] {
            [_] => segments::shrink(&mut evidence),
            several => features::shrink(&mut evidence, several),
        }
        let of_segments = evidence.into_iter().zip(shares);
        let of_segments: Vec<Weights> = of_segments
            .map(|(own, share)| weigh(own, (share / all, kept / cells.segments() as f64)))
            .collect::<Result<_, LearnerError>>()?;
        Ok(for_holdout(weights.with_segments(&of_segments)?))
    }

    /// The scores of the arms for each coordinate of a private context.
    fn scores(
        self,
        specification: &Specification,
        snapshot: &TallySnapshot,
        active: &[bool],
    ) -> Vec<Vec<f64>> {
        let (Channel::Bit(floor), Some(context)) =
            (specification.channel(), specification.private_context())
        else {
            return Vec::new();
        };
        let cells = specification.cells();
        let of = |coordinate| {
            let of_arms = |tallies: &[Tally]| cells.of_coordinate(tallies, coordinate);
            self.evidence_of(specification, snapshot, &of_arms)
        };
        let coordinates: Vec<Vec<Evidence>> = (0..cells.coordinates()).map(of).collect();
        contexts::scores(&coordinates, &context.means(), active, floor.contrast())
    }

    /// The evidence on each arm: of the rewards, in one segment or, with `None`, in all of them.
    fn evidence(
        self,
        specification: &Specification,
        snapshot: &TallySnapshot,
        segment: Option<usize>,
    ) -> Vec<Evidence> {
        let cells = specification.cells();
        let of_arms = |tallies: &[Tally]| cells.of_arms(tallies, 0, segment);
        self.evidence_of(specification, snapshot, &of_arms)
    }

    /// The evidence on each arm, by the tallies that `of_arms` takes from those of the cells.
    fn evidence_of(
        self,
        specification: &Specification,
        snapshot: &TallySnapshot,
        of_arms: &dyn Fn(&[Tally]) -> Vec<Tally>,
    ) -> Vec<Evidence> {
        let (cells, alphabet) = (specification.cells(), specification.channel().alphabet());
        let TallySnapshot { tallies, days, .. } = snapshot;
        if self.memory.is_everything() {
            return of_arms(tallies).iter().map(|tally| Evidence::of(tally, alphabet)).collect();
        }
        let of_day = |(day, tallies): (&Day, &Vec<Tally>)| (*day, of_arms(tallies));
        let days = days.iter().map(of_day).collect();
        self.memory.evidence(&days, cells.arms(), alphabet)
    }
}

/// The number of new reports that triggers a new policy, after a policy computed from `used`
/// reports.
pub fn reports_until_policy(used: u64) -> u64 {
    REPORTS_PER_POLICY_MIN.max(used / 100)
}
