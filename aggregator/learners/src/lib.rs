//! Learners: rules that compute weights over the arms from the evidence.
//!
//! A learner is a pure function of a [`LearnerInput`]. It reads no clock and draws no randomness.
//! So equal inputs give equal weights on every machine. The randomness of a choice is drawn where
//! the choice is made.
//!
//! All arms of an experiment share one channel with an increasing curve, which keeps their order.
//! The learners therefore work on the private means, the shares of ones, and never debias them.
//! Reports of k-ary randomized response have private means too, between those of the first and the
//! last symbol. Their variance is below that of bits with the same mean, so they carry more
//! information.
//!
//! A policy serves many choices, until reports lead to a new policy and devices have received it.
//! Rules that give all traffic to the arm with the largest index perform badly under this delay.
//! [`Learner`] has one such rule. The others are functions in [`indices`], for simulations with one
//! choice at a time.
//!
//! # A learner, simulated
//! Two thousand users of three arms, whose rewards leave the device as private bits only:
//! ```
//! use bandana_learners::{Learner, LearnerInput};
//! use bandana_shared::channel::Floor;
//! use bandana_shared::curve::{Curve, Level, Mechanism};
//! use bandana_shared::epsilon::Epsilon;
//! use bandana_shared::tally::Tally;
//! use rand::{Rng, RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
//!
//! let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
//! let (means, epsilon) = ([0.2, 0.5, 0.8], Epsilon::new(2.0)?);
//! let (curve, floor) = (Curve::new(Mechanism::Linear, epsilon), Floor::for_epsilon(epsilon));
//! let mut tallies = [Tally::EMPTY; 3];
//! let mut regret = 0.0;
//! for _ in 0..20 {
//!     let weights = Learner::LdpTs.weights(&LearnerInput::new(&tallies, &[true; 3], floor))?;
//!     for _ in 0..100 {
//!         let arm = weights.draw(rng.next_u32()).get();
//!         let reward = if rng.random_bool(means[arm]) { 1.0 } else { 0.0 };
//!         let threshold = floor.threshold(curve.apply(Level::from_unit(reward)?));
//!         let bit = threshold.bit(rng.next_u64(), rng.next_u64());
//!         tallies[arm] += Tally::of_bit(bit);
//!         regret += 0.8 - means[arm];
//!     }
//! }
//! // Choosing blindly costs 600.
//! assert!(regret < 200.0, "{regret}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ada_kl;
pub mod bounds;
mod challengers;
mod coarse;
mod config;
pub mod contexts;
pub mod divergence;
pub mod features;
pub mod guardrails;
pub mod harm;
mod heterogeneity;
pub mod history;
pub mod indices;
mod input;
mod ldp_ts;
mod ldp_ucb;
pub mod pending;
pub mod plan;
mod posterior;
pub mod segments;
pub mod shuffle_plan;
mod snapshot;
pub mod terms;
mod thompson_sampler;
mod top_two;
mod truncated_sampler;
pub mod window;

use std::fmt;
use std::str::FromStr;

use bandana_shared::limits::ARMS_MAX;
use bandana_shared::policy::{PolicyError, Weights};
use bandana_shared::wire::v1;
use serde::Deserialize;
use thiserror::Error;

pub use ada_kl::{AdaKlSampler, scale_max};
pub use config::{LearnerConfig, reports_until_policy};
use guardrails::{Guardrails, GuardrailsError};
pub use input::{Evidence, LearnerInput};
pub use snapshot::TallySnapshot;
pub use thompson_sampler::ThompsonSampler;
pub use truncated_sampler::TruncatedSampler;

/// A rule that turns tallies into weights.
///
/// ```
/// use bandana_learners::{Learner, LearnerInput};
/// use bandana_shared::{channel::Floor, epsilon::Epsilon, tally::Tally};
///
/// let learner: Learner = "ldp-ts".parse()?;
/// let floor = Floor::for_epsilon(Epsilon::new(1.0)?);
/// // Posteriors Beta(1, 1) and Beta(2, 1): the second sample wins 2 times in 3.
/// let tallies = [Tally::EMPTY, Tally::of_bit(true)];
/// let weights = learner.weights(&LearnerInput::new(&tallies, &[true, true], floor))?;
/// assert!((weights.share(1) - 2.0 / 3.0).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learner {
    /// Thompson sampling (LDP-TS of Jiang, Zhao and Li, "Thompson Sampling under Bernoulli Rewards
    /// with Local Differential Privacy", 2023, arXiv 2307.00863). The weight of an arm is the
    /// posterior probability that its private mean is the largest. Each mean has the posterior
    /// Beta(1 + ones, 1 + zeros).
    ///
    /// This implementation computes that probability to within `1e-6`, whereas the paper draws one
    /// sample per step. Reports with more than two symbols count as the number of bits with equal
    /// information: [`Evidence::as_bits`].
    ///
    /// The default.
    #[default]
    LdpTs,
    /// Upper confidence bounds (LDP-UCB-B of Ren, Zhou, Liu and Shroff, "Multi-Armed Bandits with
    /// Local Differential Privacy", 2020, arXiv 2007.03121). Arms without reports come first. Then
    /// the arm with the largest `p + sqrt(2 ln t / n)` has all the weight. Here p is its private
    /// mean, n its reports and t the reports of all active arms. Arms that come first together
    /// share equally.
    ///
    /// The paper's index is the debiased mean plus `(e^ε + 1)/(e^ε - 1) sqrt(2 ln t / n)`. For the
    /// linear curve, that is an increasing linear function of the index used here. The function is
    /// the same for all arms, so both indices put the arms in the same order.
    LdpUcb,
    /// Thompson sampling from the exact posterior. A private mean lies between `t0/2^64` and `1 -
    /// t0/2^64`, where t0 is the channel's floor. So a uniform prior on the mean of g(reward) gives
    /// the posterior of [`Self::LdpTs`], truncated to that range.
    ///
    /// For a linear curve this is the exact Bayesian posterior. It differs little from LDP-TS.
    TruncatedTs,
    /// Rand-AdaKL, a rule of this project without a proven regret bound. The index of an arm is the
    /// largest q with `N kl(p, q) <= c max(0, ln(t/H))`. Here p is its private mean, N its reports
    /// including pending ones, t all of them plus one, and H the sum of `min(N, sqrt(N N'))` over
    /// the N' of all arms, itself included. The scale c is uniform between 0 and [`scale_max`], and
    /// the same for all arms. The weight of an arm is the exact probability that its index is the
    /// largest. Arms without selections come first. Before the first report, those with the fewest
    /// selections do. For a policy that serves many selections, the weights are averaged over the
    /// sequence that the rule would pass through meanwhile.
    ///
    /// It combines the confidence level of Lattimore, "Refining the Confidence Level for Optimistic
    /// Bandit Strategies" (2018), the divergence of Garivier and Cappé (2011), and the shared
    /// random scale of Vaswani, Mehrabian, Durand and Kveton, "Old Dog Learns New Tricks:
    /// Randomized UCB for Bandit Problems" (2020).
    ///
    /// Its mean regret was below that of LDP-TS on most tested instances, but not on all. Its 99th
    /// percentile was not below on all either. So it is not the default.
    /// `docs/studies/regret-study.md` has the figures.
    ///
    /// For reports with more than two symbols the variance v is known too. The first symbol is at 0
    /// and the last one at 1. Then `kl` is the divergence of the law on 1 and a lower number with
    /// mean p and variance v, of which 1 becomes more likely. For bits this is the same. Two such
    /// indices may cross twice, so a lead on less than a 128th of the scales may be missed.
    RandAdaKl,
    /// Top-two Thompson sampling (Russo, "Simple Bayesian Algorithms for Best-Arm Identification",
    /// 2020, arXiv 1602.08448), for a verdict which arm is best rather than for rewards. In half of
    /// the rounds it plays the arm that is best in a sample of the posterior of [`Self::LdpTs`]. In
    /// the other half it samples again until another arm is best, and plays that. With p the
    /// probabilities of being best, the weight of an arm is `p_a (1/2 + 1/2 sum over b != a of p_b
    /// / (1 - p_b))`.
    ///
    /// The best arm gets half of the traffic in the long run, however certain it is. The others get
    /// such shares that all are distinguished from it at the same time, which is the fastest for
    /// these halves. Two arms always get the same. The weights are exact to within `1e-6`. The
    /// conditional probabilities of arms far behind are as precise as those of others.
    TopTwo,
    /// The same share for every arm in play. It is for comparing arms with equal certainty, and for
    /// categories, whose arms have no order.
    Uniform,
}

impl Learner {
    /// All learners.
    pub const ALL: [Self; 6] = [
        Self::LdpTs,
        Self::LdpUcb,
        Self::TruncatedTs,
        Self::RandAdaKl,
        Self::TopTwo,
        Self::Uniform,
    ];

    /// The name in configuration files and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::LdpTs => "ldp-ts",
            Self::LdpUcb => "ldp-ucb",
            Self::TruncatedTs => "truncated-ts",
            Self::RandAdaKl => "rand-ada-kl",
            Self::TopTwo => "top-two",
            Self::Uniform => "uniform",
        }
    }

    /// Computes the weights of the arms.
    ///
    /// An arm that is not active weighs exactly 0 and does not influence the others. Every active
    /// arm has at least the input's `floor_weight`, up to the rounding of [`Weights`], which is
    /// less than `2^-32`. The floor weight is at least 0 and at most 1 divided by the number of
    /// active arms. [`guardrails`] describes further limits, and their order.
    ///
    /// # Errors
    /// [`LearnerError::Policy`] without arms or with more than 1,024. [`LearnerError::Lengths`]
    /// when the numbers of flags and arms differ. [`LearnerError::NoActiveArm`] when no arm is
    /// active. [`LearnerError::FloorWeight`] for a floor weight out of its range.
    /// [`LearnerError::Guardrails`] for a holdout share out of its range.
    pub fn weights(self, input: &LearnerInput) -> Result<Weights, LearnerError> {
        let LearnerInput { arms, active, floor_weight, holdout_share, .. } = input;
        check_arm_count(arms.len())?;
        if arms.len() != active.len() {
            return Err(LearnerError::Lengths { arms: arms.len(), active: active.len() });
        }
        let count = active.iter().filter(|active| **active).count();
        if count == 0 {
            return Err(LearnerError::NoActiveArm);
        }
        if !(0.0..=1.0 / count as f64).contains(floor_weight) {
            let floor_weight = *floor_weight;
            return Err(LearnerError::FloorWeight { floor_weight, arms: count });
        }
        Guardrails::new(0, *holdout_share)?;
        let even = 1.0 / count as f64;
        let burns = |arm: usize| input.burning_in.get(arm).copied().unwrap_or(false);
        let is_judged = |arm: &usize| active[*arm] && !burns(*arm);
        let judged: Vec<usize> = (0..arms.len()).filter(is_judged).collect();
        let mut learnt = vec![0.0; arms.len()];
        let part = judged.len() as f64 / count as f64;
        for (arm, share) in judged.iter().zip(self.shares(input, &judged)) {
            learnt[*arm] = part * share;
        }
        // Rounding can put the product just above 1.
        let free = (1.0 - count as f64 * floor_weight).max(0.0);
        let mixed = |arm: usize| {
            let learnt = if burns(arm) { even } else { learnt[arm] };
            let floored = floor_weight + free * learnt;
            (1.0 - holdout_share) * floored + holdout_share * even
        };
        let spread: Vec<f64> =
            active.iter().enumerate().map(|(arm, on)| if *on { mixed(arm) } else { 0.0 }).collect();
        Ok(Weights::from_shares(&spread)?)
    }

    /// The rule's shares of these arms, disregarding all others.
    fn shares(self, input: &LearnerInput, judged: &[usize]) -> Vec<f64> {
        let contenders: Vec<Evidence> = judged.iter().map(|arm| input.arms[*arm]).collect();
        if contenders.is_empty() {
            return Vec::new();
        }
        let channel = input.channel;
        match self {
            Self::LdpTs => ldp_ts::shares(&as_bits(&contenders)),
            Self::LdpUcb => ldp_ucb::shares(&contenders),
            Self::TruncatedTs => {
                ldp_ts::truncated_shares(&as_bits(&contenders), channel.highest_log_odds())
            }
            Self::RandAdaKl => ada_kl::shares_ahead(contenders, scale_max(channel), input.ahead),
            Self::TopTwo => top_two::shares(&as_bits(&contenders)),
            Self::Uniform => vec![1.0 / contenders.len() as f64; contenders.len()],
        }
    }
}

impl Learner {
    /// The learner of a wire message, or `None` if it is unknown.
    pub fn from_wire(learner: v1::Learner) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.to_wire() == learner)
    }

    /// The wire form of the learner.
    pub fn to_wire(self) -> v1::Learner {
        match self {
            Self::LdpTs => v1::Learner::LdpTs,
            Self::LdpUcb => v1::Learner::LdpUcb,
            Self::TruncatedTs => v1::Learner::TruncatedTs,
            Self::RandAdaKl => v1::Learner::RandAdaKl,
            Self::TopTwo => v1::Learner::TopTwo,
            Self::Uniform => v1::Learner::Uniform,
        }
    }
}

impl fmt::Display for Learner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Learner {
    type Err = LearnerError;

    fn from_str(name: &str) -> Result<Self, LearnerError> {
        Self::ALL
            .into_iter()
            .find(|learner| learner.name() == name)
            .ok_or_else(|| LearnerError::UnknownName(name.to_owned()))
    }
}

/// The reason why a learner can't compute weights.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum LearnerError {
    /// An unknown name of a learner.
    #[error("there is no learner {0:?}; the learners are {names}", names = names())]
    UnknownName(String),
    /// Slices for different numbers of arms.
    #[error("there are {arms} arms and {active} activity flags; give one flag for each arm")]
    Lengths {
        /// Number of arms.
        arms: usize,
        /// Number of flags.
        active: usize,
    },
    /// No arm is active.
    #[error("all arms are retired; keep at least one active")]
    NoActiveArm,
    /// A floor weight too large for the number of active arms.
    #[error("floor weight {floor_weight} is not between 0 and 1/{arms}, for {arms} active arms")]
    FloorWeight {
        /// The floor.
        floor_weight: f64,
        /// Number of active arms.
        arms: usize,
    },
    /// A holdout share out of range.
    #[error(transparent)]
    Guardrails(#[from] GuardrailsError),
    /// Weights that are no valid policy.
    #[error("no policy can be made of these arms")]
    Policy(#[from] PolicyError),
}

/// The evidence converted to bits, for learners that use bits only.
fn as_bits(arms: &[Evidence]) -> Vec<Evidence> {
    arms.iter().map(|arm| arm.as_bits()).collect()
}

/// The names of all learners, for error messages.
fn names() -> String {
    Learner::ALL.map(Learner::name).join(", ")
}

/// Refuses a number of arms that [`Weights`] can't represent, before any computation.
fn check_arm_count(arms: usize) -> Result<(), PolicyError> {
    if (1..=ARMS_MAX).contains(&arms) { Ok(()) } else { Err(PolicyError::ArmCount { arms }) }
}

/// Equal shares for the arms whose score is the largest, exact ties included.
/// At least one score is a number.
#[expect(clippy::float_cmp, reason = "exact ties are meant")]
fn shared_by_largest(scores: &[f64]) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let winners = scores.iter().filter(|score| **score == largest).count();
    let share = 1.0 / winners as f64;
    scores.iter().map(|score| if *score == largest { share } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::tally::Tally;

    use super::*;

    fn input(tallies: &[Tally], active: &[bool], floor_weight: f64) -> LearnerInput {
        let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
        LearnerInput::new(tallies, active, floor).with_floor_weight(floor_weight)
    }

    fn tallies(counts: &[(u64, u64)]) -> Vec<Tally> {
        counts.iter().filter_map(|&(reports, ones)| Tally::new(reports, ones).ok()).collect()
    }

    #[test]
    fn names_are_read_back_and_others_refused() {
        for learner in Learner::ALL {
            assert_eq!(learner.name().parse(), Ok(learner));
            assert_eq!(Learner::from_wire(learner.to_wire()), Some(learner));
        }
        let message = "LDP-TS".parse::<Learner>().unwrap_err().to_string();
        assert!(message.contains("\"LDP-TS\""), "{message}");
        let names = "ldp-ts, ldp-ucb, truncated-ts, rand-ada-kl, top-two, uniform";
        assert!(message.contains(names), "{message}");
    }

    #[test]
    fn retired_arms_weigh_nothing_and_change_nothing() {
        let all = tallies(&[(40, 30), (1_000_000, 999_999), (50, 33), (0, 0), (9, 4)]);
        let active = [true, false, true, false, true];
        let kept = tallies(&[(40, 30), (50, 33), (9, 4)]);
        for learner in Learner::ALL {
            for floor_weight in [0.0, 0.1] {
                let some = learner.weights(&input(&all, &active, floor_weight)).unwrap();
                let alone = learner.weights(&input(&kept, &[true; 3], floor_weight)).unwrap();
                let of_kept = [some.get(0), some.get(2), some.get(4)];
                assert_eq!(of_kept.to_vec(), alone.iter().collect::<Vec<u64>>());
                assert_eq!((some.get(1), some.get(3)), (0, 0));
            }
        }
    }

    #[test]
    fn a_single_active_arm_takes_all() {
        let all = tallies(&[(40, 30), (7, 0), (50, 33)]);
        for learner in Learner::ALL {
            for floor_weight in [0.0, 0.5, 1.0] {
                let only = input(&all, &[false, true, false], floor_weight);
                let weights = learner.weights(&only).unwrap();
                assert_eq!(weights.get(1), Weights::TOTAL);
            }
        }
    }

    #[test]
    fn the_floor_is_kept_and_the_rest_is_mixed() {
        // The second arm wins with certainty, so the others get the bare floor weight.
        let all = tallies(&[(1_000_000, 1), (1_000_000, 900_000), (1_000_000, 2)]);
        for learner in Learner::ALL.into_iter().filter(|learner| *learner != Learner::Uniform) {
            let weights = learner.weights(&input(&all, &[true; 3], 0.05)).unwrap();
            // Top-two sampling gives half of the rest to the nearest rival.
            let (of_rival, tolerance) =
                if learner == Learner::TopTwo { (0.425, 1e-5) } else { (0.0, 1e-9) };
            let shares = [0.05, 0.90 - of_rival, 0.05 + of_rival];
            for (arm, expected) in shares.into_iter().enumerate() {
                assert!((weights.share(arm) - expected).abs() < tolerance, "{learner:?}");
            }
            let uniform = learner.weights(&input(&all, &[true; 3], 1.0 / 3.0)).unwrap();
            assert!(uniform.iter().all(|w| w.abs_diff(Weights::TOTAL / 3) <= 1));
        }
        // A mixture, not a clamp: 2/3 and 1/3 under a floor of 1/4.
        let pair = [Tally::of_bit(true), Tally::EMPTY];
        let weights = Learner::LdpTs.weights(&input(&pair, &[true; 2], 0.25)).unwrap();
        assert!((weights.share(0) - (0.25 + 0.5 * 2.0 / 3.0)).abs() < 1e-6);
    }

    #[test]
    fn impossible_requests_are_refused() {
        let two = tallies(&[(4, 3), (5, 3)]);
        for learner in Learner::ALL {
            let refused = |tallies: &[Tally], active: &[bool], floor_weight: f64| {
                learner.weights(&input(tallies, active, floor_weight)).unwrap_err()
            };
            let many = vec![Tally::EMPTY; ARMS_MAX + 1];
            for arms in [0, ARMS_MAX + 1] {
                let error = refused(&many[..arms], &vec![true; arms], 0.0);
                assert_eq!(error, LearnerError::Policy(PolicyError::ArmCount { arms }));
            }
            let lengths = LearnerError::Lengths { arms: 2, active: 3 };
            assert_eq!(refused(&two, &[true; 3], 0.0), lengths);
            assert_eq!(refused(&two, &[false; 2], 0.0), LearnerError::NoActiveArm);
            for floor in [-0.001, 0.501, f64::NAN, f64::INFINITY] {
                let error = refused(&two, &[true; 2], floor);
                assert!(matches!(error, LearnerError::FloorWeight { arms: 2, .. }), "{error}");
            }
            // With one more retired arm, the same floor is small enough.
            assert!(learner.weights(&input(&two, &[true, false], 0.501)).is_ok());
            assert!(learner.weights(&input(&many[1..], &[true; ARMS_MAX], 0.0)).is_ok());
        }
    }
}
