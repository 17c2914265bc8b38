//! Plans for shuffled reports: the size of a batch and the loss of a report that cost the least
//! regret.
//!
//! A larger batch hides a report among more others, so the report may be less noisy for the same
//! central loss. But an arm's first batch is spent before anything is known about it. With K arms,
//! a gap g between the best arm and all others, T users, and a batch of B reports, the regret is
//! estimated as
//!
//! (K - 1) g (B + n/2), at most (K - 1) g T/K,
//!
//! where `n = ln T/kl(q, q*)` is the number of times that each worse arm must be played, by the
//! channel's lower bound at the local loss that B allows. The first term is the cost before
//! anything is known: a batch of every worse arm. The second is the cost of Thompson sampling at
//! practical horizons, a third to two thirds of the bound. In the study of shuffled reports the sum
//! is 1 to 2.1 times the measured regret. Its best B is within a factor of three of the true best.
//!
//! The number of arms raises both terms alike. The best batch is small if the gap is large, or if
//! there are few users for each arm: a batch must be full long before T/K.
//!
//! The other arms of a real experiment are not equal. Filling a batch of a much worse arm costs more
//! than g, and dropping it takes fewer reports. So `g` should be a typical gap, not the least.

use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::shuffling::{REPORTS_MAX, Shuffling, largest_local_loss};
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::limits::ARMS_MAX;
use bandana_shared::shuffling::Permille;

use super::bounds::{BoundArm, lower_bound};
use super::plan::PlanError;

/// The share of the lower bound that Thompson sampling has as regret at practical horizons.
const SHARE_OF_BOUND: f64 = 0.5;

/// The sizes that are tried are these, times powers of ten.
const STEPS: [u32; 6] = [10, 15, 20, 30, 50, 70];

/// An experiment with shuffled reports to plan: one arm is better than all others by a gap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShufflePlan {
    arms: usize,
    gap: f64,
    users: u64,
    central: Guarantee,
    colluders: Permille,
}

/// A size of batches, with the losses and the estimated regret.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchChoice {
    /// Reports of one arm that are shuffled and seen together. 1 is no shuffling.
    pub reports: u32,
    /// Loss of one report before shuffling.
    pub local: Epsilon,
    /// Loss of a report after shuffling, with the plan's δ. It is at most the wanted loss.
    pub central: PrivacyLoss,
    /// Users until the first batch of every arm is full, if each arm gets the same number: arms
    /// times reports.
    pub first_batches: u64,
    /// Estimated regret over all users, in rewards scaled to 0..=1.
    pub regret: f64,
}

impl ShufflePlan {
    /// A plan for this number of users, whose reports are to have the `central` guarantee against
    /// everyone but the shuffler. `gap` is the difference of the mean rewards, scaled to 0..=1.
    ///
    /// # Errors
    /// [`PlanError`] for fewer than two arms or too many, for a gap out of 0..=1, and for fewer
    /// users than arms.
    ///
    /// ```
    /// use bandana_learners::shuffle_plan::ShufflePlan;
    /// use bandana_shared::accounting::{delta::Delta, guarantee::Guarantee, loss::PrivacyLoss};
    /// let central = Guarantee::new(PrivacyLoss::new(0.2)?, Delta::new(1e-6)?);
    /// let choice = ShufflePlan::new(5, 0.05, 1_000_000, central)?.choose()?;
    /// assert_eq!((choice.reports, choice.first_batches), (1500, 7500));
    /// assert!((1.69..1.7).contains(&choice.local.get()), "{choice:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(arms: usize, gap: f64, users: u64, central: Guarantee) -> Result<Self, PlanError> {
        if !(2..=ARMS_MAX).contains(&arms) {
            return Err(PlanError::Arms { arms });
        }
        if !(gap > 0.0 && gap <= 1.0) {
            return Err(PlanError::Gap { gap });
        }
        if users < arms as u64 {
            return Err(PlanError::Users { users, arms });
        }
        Ok(Self { arms, gap, users, central, colluders: Permille::ZERO })
    }

    /// The same plan, if this share of the users, in thousandths, collude with whoever sees the
    /// batches. Their reports hide nobody's.
    #[must_use]
    pub fn with_colluders(self, colluders: Permille) -> Self {
        Self { colluders, ..self }
    }

    /// The size with the least estimated regret. Of equal ones, it is the smallest. The sizes that
    /// are tried go from 1 to [`REPORTS_MAX`] in steps of about 1.5, as long as every arm can fill
    /// a batch.
    ///
    /// # Errors
    /// [`PlanError::Central`] when no channel is as private as that.
    pub fn choose(&self) -> Result<BatchChoice, PlanError> {
        let sizes = (0..5).flat_map(|power| STEPS.map(|step| step * 10_u32.pow(power)));
        let mut best = self.at(1)?;
        for reports in [2, 3, 5, 7].into_iter().chain(sizes) {
            let fits = self.arms as u64 * u64::from(reports) <= self.users;
            if reports <= REPORTS_MAX && fits {
                let choice = self.at(reports)?;
                if choice.regret < best.regret {
                    best = choice;
                }
            }
        }
        Ok(best)
    }

    /// The losses and the estimated regret with batches of this size.
    ///
    /// # Errors
    /// [`PlanError::Central`] when no channel is as private as that, and [`PlanError::Batch`] for a
    /// size of 0 or above [`REPORTS_MAX`].
    pub fn at(&self, reports: u32) -> Result<BatchChoice, PlanError> {
        let central = self.central;
        // A report is its own cover, whoever colludes: that is its local loss.
        let honest = (reports - self.colluders.of(reports)).max(1.min(reports));
        let local = largest_local_loss(honest, central)
            .map_err(|_| PlanError::Batch { reports })?
            .ok_or(PlanError::Central { loss: central.loss().get() })?;
        let floor = Floor::for_epsilon(local);
        let shuffled = Shuffling::new(floor, honest).map_err(|_| PlanError::Batch { reports })?;
        Ok(BatchChoice {
            reports,
            local,
            central: shuffled.loss(central.delta()),
            first_batches: self.arms as u64 * u64::from(reports),
            regret: self.regret(floor, reports),
        })
    }

    /// The estimated regret, see the module.
    fn regret(&self, floor: Floor, reports: u32) -> f64 {
        let (rivals, users) = ((self.arms - 1) as f64, self.users as f64);
        let arm = |mean| BoundArm { mean, private_mean: 0.5 + floor.contrast() * mean };
        let mut arms = vec![arm(-self.gap / 2.0); self.arms];
        arms[0] = arm(self.gap / 2.0);
        let filling = rivals * self.gap * f64::from(reports);
        let learning = SHARE_OF_BOUND * lower_bound(&arms) * libm::log(users);
        (filling + learning).min(rivals * self.gap * users / self.arms as f64)
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::accounting::delta::Delta;

    use super::*;

    fn plan(arms: usize, gap: f64, users: u64, central: f64) -> ShufflePlan {
        let loss = PrivacyLoss::new(central).unwrap();
        let central = Guarantee::new(loss, Delta::new(1e-6).unwrap());
        ShufflePlan::new(arms, gap, users, central).unwrap()
    }

    #[test]
    fn choices_are_near_the_best_sizes_of_the_study() {
        // The sizes with the least regret of LDP-TS in a million rounds, and the typical gap.
        for (arms, gap, central, best) in
            [(5, 0.05, 0.2, 1000), (5, 0.05, 1.0, 1000), (20, 0.2, 0.2, 300), (20, 0.2, 1.0, 100)]
        {
            let choice = plan(arms, gap, 1_000_000, central).choose().unwrap();
            let ratio = f64::from(choice.reports) / f64::from(best);
            assert!((0.3..=2.0).contains(&ratio), "{arms} {central}: {choice:?}");
            assert_eq!(choice.first_batches, arms as u64 * u64::from(choice.reports));
            assert!(choice.central.get() <= central * (1.0 + 1e-6), "{choice:?}");
            assert!(choice.local.get() > 1.5 * central, "{choice:?}");
        }
    }

    #[test]
    fn many_arms_and_few_users_make_batches_small() {
        let reports = |plan: ShufflePlan| plan.choose().unwrap().reports;
        let few = reports(plan(5, 0.2, 100_000, 0.5));
        assert!(reports(plan(5, 0.05, 100_000, 0.5)) > few);
        // Batches that some arm could never fill are not chosen.
        assert!(reports(plan(200, 0.05, 1000, 0.2)) <= 5);
        let crowd = plan(200, 0.2, 1_000_000, 0.5);
        assert!(crowd.at(1000).unwrap().regret > 2.0 * crowd.choose().unwrap().regret);
    }

    #[test]
    fn colluders_take_from_what_a_report_may_lose_before_shuffling() {
        let plan = plan(5, 0.05, 1_000_000, 0.2);
        let tenth = plan.with_colluders(Permille::new(100).unwrap());
        let (honest, colluded) = (plan.at(1000).unwrap(), tenth.at(1000).unwrap());
        assert!(colluded.local < honest.local && colluded.regret > honest.regret);
        assert_eq!(colluded.local, plan.at(900).unwrap().local);
        // Alone a report has its own noise, and nothing else.
        assert_eq!(plan.at(1).unwrap(), tenth.at(1).unwrap());
    }

    #[test]
    fn what_no_plan_can_be_made_for_is_refused() {
        let central = Guarantee::pure(PrivacyLoss::new(1e-9).unwrap());
        let refused = |arms, gap, users| ShufflePlan::new(arms, gap, users, central).unwrap_err();
        assert_eq!(refused(1, 0.1, 100), PlanError::Arms { arms: 1 });
        assert_eq!(refused(2, 0.0, 100), PlanError::Gap { gap: 0.0 });
        assert_eq!(refused(5, 0.1, 4), PlanError::Users { users: 4, arms: 5 });
        let plan = ShufflePlan::new(5, 0.1, 100, central).unwrap();
        assert_eq!(plan.choose().unwrap_err(), PlanError::Central { loss: 1e-9 });
        assert_eq!(plan.at(0).unwrap_err(), PlanError::Batch { reports: 0 });
    }
}
