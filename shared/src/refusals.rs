//! Refusals: the reasons why installations take no part, as the categories of an experiment.
//!
//! An installation whose app agrees to such an experiment makes a report like any other: a
//! category, by k-ary randomized response, at an ε of its own. So an operator whose experiment runs
//! without reports learns the reasons. The operator learns of no single installation whether it
//! refuses anything.

use crate::alphabet::Alphabet;
use crate::rewards::Rewards;
use crate::specification::Specification;

/// The label of the only arm of an experiment about refusals.
pub const ARM_LABEL: &str = "refusals";

/// The reason why an installation refuses an experiment, as coarse as an operator can act on.
///
/// ```
/// use bandana_shared::refusals::RefusalReason;
/// assert_eq!(RefusalReason::Epsilon.category(), 1);
/// assert_eq!(RefusalReason::ALL.map(|reason| reason.category()), [0, 1, 2, 3, 4, 5, 6, 7]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// Nothing is refused.
    Nothing,
    /// More privacy loss than the app accepts.
    Epsilon,
    /// Other rewards than the app declared, or a reward of the app's that its experiment does not admit.
    Rewards,
    /// Segments, metrics or contexts that the app has not agreed to.
    Measurement,
    /// A shorter attribution window or release delay than the app accepts.
    Timing,
    /// No valid signature by the keys that the app pins, or another specification than it pins.
    Signatures,
    /// Reports are shuffled, or not shuffled, against the app's terms.
    Shuffling,
    /// A change that no revision may make, a policy that fits no specification, or anything else.
    Server,
}

impl RefusalReason {
    /// All reasons, in the order of their categories.
    pub const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Epsilon,
        Self::Rewards,
        Self::Measurement,
        Self::Timing,
        Self::Signatures,
        Self::Shuffling,
        Self::Server,
    ];

    /// The category, from 0.
    pub fn category(self) -> u8 {
        self as u8
    }

    /// The reason in words, for an operator.
    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing is refused",
            Self::Epsilon => "more epsilon than the app accepts",
            Self::Rewards => "rewards on which the app and its experiment do not agree",
            Self::Measurement => "segments or metrics that the app did not agree to",
            Self::Timing => "a shorter window or delay than the app accepts",
            Self::Signatures => "no signature that the app demands",
            Self::Shuffling => "shuffling that the app does not want, or none",
            Self::Server => "a change that no revision may make, or a faulty server",
        }
    }
}

/// The rewards of an experiment about refusals: one category for each reason.
///
/// ```
/// use bandana_shared::refusals::{RefusalReason, rewards};
/// let categories = rewards().categories().map(|all| usize::from(all.len()));
/// assert_eq!(categories, Some(RefusalReason::ALL.len()));
/// ```
///
/// # Panics
/// Never: there are as many categories as an alphabet can have.
pub fn rewards() -> Rewards {
    let count = RefusalReason::ALL.len();
    let alphabet = u32::try_from(count).ok().and_then(|count| Alphabet::new(count).ok());
    Rewards::categorical(alphabet.unwrap_or_else(|| unreachable!("8 of at most 16 symbols")))
}

/// Whether an experiment is about refusals: it has their rewards, and one arm with their label.
pub fn are_asked_by(specification: &Specification) -> bool {
    let [arm] = specification.arms() else { return false };
    arm.label() == ARM_LABEL && specification.rewards() == rewards()
}
