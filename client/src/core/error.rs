//! Errors of a client.

use bandana_shared::identity::ExperimentId;
use thiserror::Error;

use crate::noise::EntropyError;
use crate::privatizer::PrivatizeError;
use crate::refusal::Refusal;

/// A call that the client can't carry out. The client's state does not change, with two exceptions:
/// the statistics, and the time of the next fetch after an answer that the client refused.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Budget, Client, ClientError};
///
/// # let id = specification()?.experiment_id().clone();
/// let mut client = Client::new(Budget::UNLIMITED);
/// assert!(matches!(client.draw(&id, now()), Err(ClientError::NotEnrolled { .. })));
/// client.enroll(id.clone(), acceptance()?);
/// let label = match client.draw(&id, now()) {
///     Ok(chosen) => chosen.label().to_owned(),
///     Err(ClientError::NoPolicy { .. }) => "the default".to_owned(),
///     Err(error) => return Err(error.into()),
/// };
/// assert_eq!(label, "the default");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The app does not take part in the experiment, see [`crate::Core::enroll`].
    #[error("the client is not enrolled in experiment {experiment_id}; call `enroll` first")]
    NotEnrolled {
        /// The id of the experiment.
        experiment_id: ExperimentId,
    },
    /// No server has answered yet, or no answer was within the app's acceptance.
    #[error("there is no policy for experiment {experiment_id} yet; show a default and try later")]
    NoPolicy {
        /// The id of the experiment.
        experiment_id: ExperimentId,
    },
    /// The signatures of the specification that the client holds have expired.
    #[error(
        "the signatures of experiment {experiment_id} have expired; show a default until its \
         operator signs it anew"
    )]
    SignaturesExpired {
        /// The id of the experiment.
        experiment_id: ExperimentId,
    },
    /// The experiment is for a part of the installations, and this is not one of them.
    #[error(
        "experiment {experiment_id} is for a part of the installations, and this is not one of \
         them; show a default"
    )]
    NotSampled {
        /// The id of the experiment.
        experiment_id: ExperimentId,
    },
    /// The experiment chooses arms by a private context. The call gave no context, or one with
    /// another number of features.
    #[error(
        "experiment {experiment_id} chooses arms by a private context of {expected} features, and \
         the call gave {given}; give one `bool` for each, in the order that the app agreed to"
    )]
    Context {
        /// The id of the experiment.
        experiment_id: ExperimentId,
        /// Number of the experiment's features.
        expected: usize,
        /// Number of the features given; 0 for a call without a context.
        given: usize,
    },
    /// The user has opted out.
    #[error("the user has opted out; show a default")]
    OptedOut,
    /// The assignment's attribution window has ended, or the assignment never reports.
    #[error("the assignment takes no more rewards")]
    NotOpen,
    /// The experiment does not admit the reward.
    #[error(transparent)]
    Reward(PrivatizeError),
    /// The server's answer is outside the app's acceptance.
    #[error("the server's answer was refused")]
    Refused(#[from] Refusal),
    /// The operating system has no randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

bandana_shared::debug_says!(ClientError);

impl From<PrivatizeError> for ClientError {
    fn from(error: PrivatizeError) -> Self {
        match error {
            PrivatizeError::Entropy(entropy) => Self::Entropy(entropy),
            other => Self::Reward(other),
        }
    }
}
