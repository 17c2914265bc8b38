//! Refusals: the reasons why a client does not adopt a server's answer.

use std::time::Duration;

use bandana_shared::identity::Digest;
use bandana_shared::refusals::RefusalReason;
use bandana_shared::rewards::RewardKind;
use bandana_shared::transparency::ViewError;
use thiserror::Error;

use crate::signers::SignatureRefusal;

/// The reason for refusing a specification or a policy. The client keeps what it held.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::{Fetched, Refusal};
/// use bandana_shared::specification::Arm;
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// // A revision with a third arm, and a policy of two weights.
/// let specification = specification()?.with_arm(Arm::new("blue")?)?;
/// let fetched = Fetched { specification, ..answer(now())? };
/// let refused = client.on_fetched(&FetchTask::new(id.clone()), fetched, now());
/// assert!(refused.is_err());
/// assert_eq!(client.refusal(&id), Some(&Refusal::PolicyArms { weights: 2, arms: 3 }));
/// assert_ne!(client.draw(&id, now())?.label(), "blue");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Error, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// Real clients refuse simulated experiments, and simulated clients refuse real ones.
    #[error("the experiment's simulation mark is {experiment}, and the client's is the opposite")]
    SimulationMark {
        /// The experiment's mark.
        experiment: bool,
    },
    /// The experiment has more privacy loss than the app accepts.
    #[error("the experiment asks for an epsilon of {offered}; the app accepts at most {accepted}")]
    Epsilon {
        /// The experiment's ε, in nats.
        offered: f64,
        /// The largest ε that the app accepts, in nats.
        accepted: f64,
    },
    /// The experiment's reports are shuffled, and the app believes no relay: see
    #[cfg_attr(feature = "relay", doc = "[`crate::Acceptance::shuffled`].")]
    #[cfg_attr(not(feature = "relay"), doc = "`Acceptance::shuffled`, of the feature `relay`.")]
    #[error(
        "a relay shuffles the experiment's reports, {batch} at a time, and the app accepts no \
         relay that shuffles"
    )]
    NoRelay {
        /// The number of reports in a batch.
        batch: u32,
    },
    /// The app wants reports to be shuffled, and the experiment's reports are not.
    #[error("the app accepts shuffled reports only; those of the experiment go to the aggregator")]
    NotShuffled,
    /// The experiment has more central privacy loss than the app accepts.
    #[error(
        "a report in a batch of the experiment has a central epsilon of {offered}; the app accepts \
         at most {accepted}"
    )]
    CentralEpsilon {
        /// The central ε of the batch, in nats, with the app's δ and colluders.
        offered: f64,
        /// The largest central loss that the app accepts, in nats.
        accepted: f64,
    },
    /// The experiment has another range of rewards.
    #[error("the experiment's reward range is not the one that the app declared")]
    Range,
    /// The experiment has another kind of rewards.
    #[error("the experiment's rewards are not of the kind that the app declared ({accepted:?})")]
    Kind {
        /// The kind that the app declared.
        accepted: RewardKind,
    },
    /// Installations are divided by a property that the app has not agreed to: see
    /// [`crate::Acceptance::segment`].
    #[error("the experiment divides installations by {name:?}, which the app has not agreed to")]
    Segmentation {
        /// The name of the segmentation.
        name: String,
    },
    /// The experiment measures a metric that the app has not declared, or has declared with other
    /// values: see [`crate::Acceptance::metric`].
    #[error("the experiment's metric {name:?} is not one that the app has declared like this")]
    Metric {
        /// The name of the metric.
        name: String,
    },
    /// Arms are chosen by other features than those that the app has agreed to, or in another order:
    /// see [`crate::Acceptance::private_context`].
    #[error(
        "the experiment chooses arms by a private context of {features:?}, which the app has not \
         agreed to; this is research"
    )]
    PrivateContext {
        /// The features of the experiment.
        features: Vec<String>,
    },
    /// The experiment gives rewards less time than the app accepts.
    #[error(
        "the experiment's attribution window is {} s; the app accepts {} s or more",
        .offered.as_secs_f64(),
        .accepted.as_secs_f64()
    )]
    AttributionWindow {
        /// The experiment's attribution window.
        offered: Duration,
        /// The least attribution window that the app accepts.
        accepted: Duration,
    },
    /// The experiment has a shorter release delay than the app accepts.
    #[error(
        "the experiment's release delay is at most {} s; the app accepts one of {} s or more, since \
         the time of an upload tells whose it is",
        .offered.as_secs_f64(),
        .accepted.as_secs_f64()
    )]
    ReleaseDelay {
        /// The longest delay of the experiment.
        offered: Duration,
        /// The least value of that delay that the app accepts.
        accepted: Duration,
    },
    /// The specification lacks a valid signature by a key that the app pins.
    #[error(transparent)]
    Signature(#[from] SignatureRefusal),
    /// The public log that the app pins does not show that all devices get this answer: see
    /// [`crate::Acceptance::witnessed`].
    #[error(transparent)]
    Log(#[from] ViewError),
    /// The specification is not one of the pinned ones.
    #[error("the specification {0} is not one that the app has pinned")]
    Digest(Digest),
    /// The server offers an older revision, or another specification with the same revision.
    #[error("revision {offered} can't replace revision {held}: a change needs a later revision")]
    Revision {
        /// The offered revision.
        offered: u32,
        /// The revision that the client holds.
        held: u32,
    },
    /// A change that no revision may make: something other than the arms and the share that is
    /// enrolled changed, or arms were renamed, reordered or revived.
    #[error("a new revision may add and retire arms, enrol another share, and change nothing else")]
    Changed,
    /// The answer is about another experiment.
    #[error("the server answered with another experiment than the one asked for")]
    OtherExperiment,
    /// The policy has weights for another number of segments, or of coordinates of a private context.
    #[error(
        "the policy has weights for {lists} segments or coordinates, and the experiment has \
         {segments}"
    )]
    PolicySegments {
        /// Number of segments with weights.
        lists: usize,
        /// Number of the experiment's segments or coordinates; 0 if it has neither.
        segments: usize,
    },
    /// The numbers of weights and of arms differ.
    #[error("the policy has {weights} weights for {arms} arms")]
    PolicyArms {
        /// Number of weights.
        weights: usize,
        /// Number of arms.
        arms: usize,
    },
}

bandana_shared::debug_says!(Refusal);

impl Refusal {
    /// The coarse reason that the report on refusals can tell an operator.
    ///
    /// ```
    /// use bandana_client::Refusal;
    /// use bandana_shared::refusals::RefusalReason;
    /// assert_eq!(Refusal::Range.reason(), RefusalReason::Rewards);
    /// ```
    pub fn reason(&self) -> RefusalReason {
        match self {
            Self::Epsilon { .. } => RefusalReason::Epsilon,
            Self::Range | Self::Kind { .. } => RefusalReason::Rewards,
            Self::Segmentation { .. } | Self::Metric { .. } | Self::PrivateContext { .. } => {
                RefusalReason::Measurement
            }
            Self::AttributionWindow { .. } | Self::ReleaseDelay { .. } => RefusalReason::Timing,
            Self::Signature(_) | Self::Log(_) | Self::Digest(_) => RefusalReason::Signatures,
            Self::NoRelay { .. } | Self::NotShuffled | Self::CentralEpsilon { .. } => {
                RefusalReason::Shuffling
            }
            Self::SimulationMark { .. }
            | Self::Revision { .. }
            | Self::Changed
            | Self::OtherExperiment
            | Self::PolicySegments { .. }
            | Self::PolicyArms { .. } => RefusalReason::Server,
        }
    }
}
