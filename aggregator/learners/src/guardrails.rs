//! Guardrails: limits on a learner's decisions. In the burn-in, all arms get equal traffic. The
//! holdout share of the traffic is always spread evenly.
//!
//! The weights follow from the learner's shares in three steps. First, each arm in its burn-in gets
//! one over the number of arms in play, and the learner divides the rest among the others. Second,
//! the result is scaled by `1 - floor weight * arms`, and every arm in play gets the floor weight
//! in addition. Third, that is scaled by `1 - holdout share`, and the holdout share is spread
//! evenly. The last two are mixtures with even weights, so their order does not matter: the learner
//! decides about `(1 - floor weight * arms) (1 - holdout share)` of the traffic, and the rest is
//! even.
//!
//! # Use and limits of a holdout
//! A device draws from one vector of weights, and a report carries no mark. So the evenly drawn
//! reports can't be identified. The holdout is a minimum share of `holdout share / arms` for every
//! arm in play: a floor that follows the number of arms. Every arm keeps some traffic, so its
//! estimate keeps improving and drift is detected. You can't analyse the holdout as a sample of its
//! own.

use std::fmt;

use bandana_shared::tally::Tally;
use thiserror::Error;

/// Limits on a learner's decisions, in addition to the floor weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guardrails {
    /// Reports that an arm must have before the learner decides about its traffic. With 0 there is
    /// no burn-in.
    pub burn_in_reports: u32,
    /// Share of the traffic that is spread evenly over the arms in play: 0 to 1.
    pub holdout_share: f64,
}

impl Guardrails {
    /// No guardrails.
    pub const OFF: Self = Self { burn_in_reports: 0, holdout_share: 0.0 };

    /// Guardrails with these numbers.
    ///
    /// # Errors
    /// [`GuardrailsError`] unless the holdout share is a number from 0 to 1.
    pub fn new(burn_in_reports: u32, holdout_share: f64) -> Result<Self, GuardrailsError> {
        if (0.0..=1.0).contains(&holdout_share) {
            Ok(Self { burn_in_reports, holdout_share })
        } else {
            Err(GuardrailsError { holdout_share })
        }
    }

    /// Returns one flag for each arm: whether it is in its burn-in. `active` has one flag for each
    /// arm: whether it is in play. The first `initial` arms leave the burn-in together, when all of
    /// them that are in play have enough reports. Each later arm leaves on its own. Reports of all
    /// days count, also those beyond the learner's memory.
    pub fn burning_in(self, tallies: &[Tally], active: &[bool], initial: usize) -> Vec<bool> {
        let lacks = |arm: usize| {
            let reports = tallies.get(arm).map_or(0, |tally| tally.reports());
            active[arm] && reports < u64::from(self.burn_in_reports)
        };
        let first_lack = (0..initial.min(active.len())).any(lacks);
        let flag = |arm| active[arm] && if arm < initial { first_lack } else { lacks(arm) };
        (0..active.len()).map(flag).collect()
    }
}

/// Formats the guardrails in words, to follow the learner's name; empty without guardrails.
impl fmt::Display for Guardrails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.burn_in_reports > 0 {
            write!(f, " after a burn-in of {} reports for each arm", self.burn_in_reports)?;
        }
        if self.holdout_share > 0.0 {
            write!(f, " with a holdout of {}", self.holdout_share)?;
        }
        Ok(())
    }
}

/// A holdout share out of range.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[error(
    "the holdout share {holdout_share} is not a share of the traffic; expected a number from 0 to \
     1, such as 0.05"
)]
pub struct GuardrailsError {
    holdout_share: f64,
}

#[cfg(test)]
mod tests {
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::policy::Weights;

    use super::*;
    use crate::{Learner, LearnerError, LearnerInput};

    fn tallies(counts: &[(u64, u64)]) -> Vec<Tally> {
        counts.iter().map(|&(reports, ones)| Tally::new(reports, ones).unwrap()).collect()
    }

    fn weights(
        learner: Learner,
        guardrails: Guardrails,
        counts: &[(u64, u64)],
        active: &[bool],
        initial: usize,
    ) -> Weights {
        let tallies = tallies(counts);
        let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
        let burning_in = guardrails.burning_in(&tallies, active, initial);
        let input = LearnerInput::new(&tallies, active, floor)
            .with_burning_in(burning_in)
            .with_holdout_share(guardrails.holdout_share);
        learner.weights(&input).unwrap()
    }

    #[test]
    fn the_first_arms_stay_alike_until_all_of_them_have_their_reports() {
        let guardrails = Guardrails::new(100, 0.0).unwrap();
        let even = Weights::uniform(&[true; 3]).unwrap();
        for learner in Learner::ALL {
            let of = |last| {
                let counts = [(5000, 100), (900, 800), (last, last / 2)];
                weights(learner, guardrails, &counts, &[true; 3], 3)
            };
            assert_eq!(of(99), even, "{learner:?}");
            let off = [(5000, 100), (900, 800), (100, 50)];
            let off = weights(learner, Guardrails::OFF, &off, &[true; 3], 3);
            assert_eq!(of(100), off, "{learner:?}");
        }
        // A retired arm delays no others.
        let counts = [(5000, 100), (900, 800), (3, 1)];
        let shown = weights(Learner::LdpTs, guardrails, &counts, &[true, true, false], 3);
        assert!(shown.share(1) > 0.99 && shown.get(2) == 0, "{shown:?}");
    }

    #[test]
    fn an_arm_that_is_added_gets_an_even_share_and_takes_nothing_from_what_was_learnt() {
        let guardrails = Guardrails::new(100, 0.0).unwrap();
        let counts = [(5000, 1000), (5000, 4000), (40, 40), (99, 1)];
        let shown = weights(Learner::LdpTs, guardrails, &counts, &[true; 4], 2);
        let shares = [0, 1, 2, 3].map(|arm| shown.share(arm));
        for (share, expected) in shares.into_iter().zip([0.0, 0.5, 0.25, 0.25]) {
            assert!((share - expected).abs() < 1e-6, "{shares:?}");
        }
        // One arm has enough reports, so the learner decides about it.
        let counts = [(5000, 1000), (5000, 4000), (40, 40), (100, 1)];
        let shown = weights(Learner::LdpTs, guardrails, &counts, &[true; 4], 2);
        let shares = [0, 1, 2, 3].map(|arm| shown.share(arm));
        for (share, expected) in shares.into_iter().zip([0.0, 0.75, 0.25, 0.0]) {
            assert!((share - expected).abs() < 1e-6, "{shares:?}");
        }
    }

    #[test]
    fn a_holdout_is_spread_evenly_whatever_the_learner_says() {
        let counts = [(1_000_000, 1), (1_000_000, 900_000), (7, 7), (1_000_000, 2)];
        let active = [true, true, false, true];
        let guardrails = Guardrails::new(0, 0.3).unwrap();
        for learner in Learner::ALL.into_iter().filter(|learner| *learner != Learner::Uniform) {
            let shown = weights(learner, guardrails, &counts, &active, 4);
            // Top-two sampling gives half of the rest to the nearest rival.
            let (of_rival, tolerance) =
                if learner == Learner::TopTwo { (0.35, 1e-5) } else { (0.0, 1e-9) };
            let shares = [0.1, 0.8 - of_rival, 0.0, 0.1 + of_rival];
            for (arm, expected) in shares.into_iter().enumerate() {
                assert!((shown.share(arm) - expected).abs() < tolerance, "{learner:?} {shown:?}");
            }
        }
        let all = Guardrails::new(0, 1.0).unwrap();
        let shown = weights(Learner::LdpTs, all, &counts, &active, 4);
        assert_eq!(shown, Weights::uniform(&active).unwrap());
    }

    #[test]
    fn floor_weight_and_holdout_leave_the_learner_what_is_stated() {
        let tallies = tallies(&[(1_000_000, 1), (1_000_000, 900_000)]);
        let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
        let input = LearnerInput::new(&tallies, &[true; 2], floor)
            .with_floor_weight(0.1)
            .with_holdout_share(0.5);
        let shown = Learner::LdpTs.weights(&input).unwrap();
        assert!((shown.share(0) - (1.0 - 0.8 * 0.5) / 2.0).abs() < 1e-9, "{shown:?}");
    }

    #[test]
    fn senseless_holdouts_are_refused() {
        let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
        for share in [-0.1, 1.1, f64::NAN] {
            let message = Guardrails::new(5, share).unwrap_err().to_string();
            assert!(message.contains(&share.to_string()), "{message}");
            let input = LearnerInput::new(&[Tally::EMPTY], &[true], floor);
            let refused = Learner::LdpTs.weights(&input.with_holdout_share(share));
            assert!(matches!(refused, Err(LearnerError::Guardrails(_))), "{refused:?}");
        }
    }
}
