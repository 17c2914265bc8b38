use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::Digest;
use bandana_shared::rewards::{RewardKind, Rewards};
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use thiserror::Error;

use crate::signers::{SignatureRefusal, Signers};
use crate::time::Timestamp;

/// What an app agrees to for one experiment. The client is the judge: a
/// specification beyond it is refused, whoever sent it.
#[derive(Clone, Debug)]
pub struct Acceptance {
    epsilon_max: Epsilon,
    rewards: Rewards,
    digests: Option<Vec<Digest>>,
    once_days: Option<u32>,
    signers: Option<Signers>,
}

impl Acceptance {
    /// Accepts experiments on exactly these `rewards` (kind, range, what happens
    /// outside it, default) whose reports lose at most `epsilon_max`.
    pub fn new(epsilon_max: Epsilon, rewards: Rewards) -> Self {
        Self { epsilon_max, rewards, digests: None, once_days: None, signers: None }
    }

    /// Accepts only specifications with one of these digests.
    #[must_use]
    pub fn pinned(self, digests: Vec<Digest>) -> Self {
        Self { digests: Some(digests), ..self }
    }

    /// Accepts only specifications that these keys have signed, while their signatures
    /// last.
    #[must_use]
    pub fn signed_by(self, signers: Signers) -> Self {
        Self { signers: Some(signers), ..self }
    }

    /// Reports at most once for every arm in each period of `days` days (UTC, counted
    /// from 1970-01-01); `days` of 0 is once ever. Further assignments of the arm get
    /// no report.
    ///
    /// # Privacy
    /// A user who sees an arm a hundred times then loses ε once, not a hundred times.
    /// The first bit is resent if need be, never drawn again.
    #[must_use]
    pub fn report_once(self, days: u32) -> Self {
        Self { once_days: Some(days), ..self }
    }

    /// Length of the periods in which an arm reports once, if it does.
    pub(crate) fn once_days(&self) -> Option<u32> {
        self.once_days
    }

    /// Judges a specification and its signatures for a client whose noise is or is not
    /// simulated, beside the one that it holds. Says until when the signatures last.
    pub(crate) fn judge(
        &self,
        (offered, signatures): (&Specification, &[Signature]),
        held: Option<&Specification>,
        simulated: bool,
        now: Timestamp,
    ) -> Result<Timestamp, Refusal> {
        if offered.is_simulation() != simulated {
            return Err(Refusal::SimulationMark { experiment: offered.is_simulation() });
        }
        if offered.epsilon() > self.epsilon_max {
            return Err(Refusal::Epsilon {
                offered: offered.epsilon().get(),
                accepted: self.epsilon_max.get(),
            });
        }
        if offered.rewards().range() != self.rewards.range() {
            return Err(Refusal::Range);
        }
        if offered.rewards().kind() != self.rewards.kind() {
            return Err(Refusal::Kind { accepted: self.rewards.kind() });
        }
        if offered.rewards() != self.rewards {
            return Err(Refusal::Rewards);
        }
        if self.digests.as_ref().is_some_and(|known| !known.contains(&offered.digest())) {
            return Err(Refusal::Digest(offered.digest()));
        }
        if let Some(held) = held {
            judge_change(offered, held)?;
        }
        match &self.signers {
            Some(signers) => Ok(signers.judge(offered, signatures, now)?),
            None => Ok(Timestamp::MAX),
        }
    }
}

/// Between revisions the arms may be appended to and retired, and nothing else
/// may change; within one revision nothing may.
fn judge_change(offered: &Specification, held: &Specification) -> Result<(), Refusal> {
    if offered.digest() == held.digest() {
        return Ok(());
    }
    if offered.revision() <= held.revision() {
        return Err(Refusal::Revision {
            offered: offered.revision().get(),
            held: held.revision().get(),
        });
    }
    let mut expected = held.to_parts();
    let offered_parts = offered.to_parts();
    expected.revision = offered_parts.revision;
    let old_arms = std::mem::take(&mut expected.arms);
    expected.arms.clone_from(&offered_parts.arms);
    let kept = old_arms.len() <= offered_parts.arms.len()
        && old_arms.iter().zip(&offered_parts.arms).all(|(old, new)| {
            old.label() == new.label() && (new.is_retired() || !old.is_retired())
        });
    if kept && expected == offered_parts { Ok(()) } else { Err(Refusal::Changed) }
}

/// Why a specification was refused. Nothing changed; the client goes on with
/// what it held.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// Real clients and simulated experiments do not mix, nor the other way.
    #[error("the experiment's simulation mark is {experiment}, the client's the opposite")]
    SimulationMark {
        /// The experiment's mark.
        experiment: bool,
    },
    /// More privacy loss than the app accepts.
    #[error("the experiment asks for an epsilon of {offered}; the app accepts {accepted}")]
    Epsilon {
        /// What the experiment asks for.
        offered: f64,
        /// What the app accepts.
        accepted: f64,
    },
    /// Another range of rewards.
    #[error("the experiment's reward range is not the one that the app declared")]
    Range,
    /// Another kind of rewards.
    #[error("the experiment's rewards are not of the kind that the app declared ({accepted:?})")]
    Kind {
        /// What the app declared.
        accepted: RewardKind,
    },
    /// Another default reward, or another treatment of rewards out of range.
    #[error(
        "the experiment's default reward, or what it does with rewards out of range, is not what \
         the app declared"
    )]
    Rewards,
    /// Not signed by the keys that the app pins.
    #[error(transparent)]
    Signature(#[from] SignatureRefusal),
    /// Not one of the pinned specifications.
    #[error("the specification {0} is not one that the app has pinned")]
    Digest(Digest),
    /// An older revision, or another specification under the same one.
    #[error("revision {offered} can't replace revision {held}: a change needs a later revision")]
    Revision {
        /// The offered revision.
        offered: u32,
        /// The revision held.
        held: u32,
    },
    /// Something other than the arms changed, or arms were renamed, reordered
    /// or revived.
    #[error("a new revision may add and retire arms and change nothing else")]
    Changed,
    /// The answer is about another experiment.
    #[error("the server answered with another experiment than the one asked for")]
    OtherExperiment,
    /// Weights and arms differ in number.
    #[error("the policy has {weights} weights for {arms} arms")]
    PolicyArms {
        /// Number of weights.
        weights: usize,
        /// Number of arms.
        arms: usize,
    },
}
