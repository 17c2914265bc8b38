//! Errors of disclosures.

use std::time::Duration;

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::identity::Day;
use thiserror::Error;
use tonic::Status;

use super::RhoExhausted;
use crate::grpc::{LATER, pushback};
use crate::outbox::PUSHBACK_MAX;
use crate::storage::StorageError;

/// A failure of a call for disclosed rewards.
///
/// ```
/// use bandana_client::trusted::{DisclosedReward, TrustedError};
/// let refused = DisclosedReward::new(f64::INFINITY).unwrap_err();
/// assert!(matches!(refused, TrustedError::Reward));
/// ```
#[derive(Error)]
#[non_exhaustive]
pub enum TrustedError {
    /// The price of a reward exceeds the agreement.
    #[error(
        "the experiment asks for rho = {} for each reward, the app agreed to {}; nothing was \
         disclosed", asked.get(), agreed.get()
    )]
    Beyond {
        /// The experiment's price.
        asked: Rho,
        /// The agreed price.
        agreed: Rho,
    },
    /// The budget of ρ has no room for the reward. The refusal is final unless there is room again
    /// when the window is over.
    #[error(transparent)]
    Budget(#[from] RhoExhausted),
    /// The client could not make the price of the reward durable, so this attempt did not disclose
    /// it.
    #[error("the ledger of rho could not be written, so nothing was disclosed; try it again")]
    Ledger(#[source] StorageError),
    /// This client does not understand the specification.
    #[error("the experiment is not one that this client understands; nothing was disclosed")]
    NotUnderstood,
    /// The reward is not a finite number.
    #[error("a reward must be a finite number")]
    Reward,
    /// The disclosure belongs to another experiment.
    #[error("the disclosure is one of another experiment; nothing was disclosed")]
    OtherExperiment,
    /// The operating system has no randomness.
    #[error("the operating system's random source failed; nothing was disclosed")]
    Entropy(#[source] getrandom::Error),
    /// The server's day is not within one of the device's own, so the reward can't get a day. Send
    /// the reward again once the clocks agree.
    #[error(
        "it is day {device} here and day {server} for the server, so nothing was disclosed; try \
         again when they are at most one day apart"
    )]
    Day {
        /// The device's day (UTC).
        device: Day,
        /// The server's day.
        server: Day,
    },
    /// The experiment is paused. Send the disclosure again later.
    #[error("the experiment is paused; send the disclosure again later")]
    Paused,
    /// The server has not reached the day of the disclosure: its clock was set back. Send it again
    /// later.
    #[error("the server's clock was set back; send the disclosure again when its day has come")]
    FutureDay,
    /// This client does not know the server's verdict. Send the disclosure again later.
    #[error("the server's verdict is not one that this client knows; send the disclosure again")]
    Undecided,
    /// The experiment can never count the disclosure.
    #[error("the server refused the disclosure for good: {message}")]
    Malformed {
        /// The server's message.
        message: String,
    },
    /// The disclosure came after the server's replay window and was refused for good. The server no
    /// longer knows whether the disclosure came before, so it may have counted then. Don't disclose
    /// the reward again.
    #[error(
        "the disclosure came too late, and was refused for good: {message}; it may have counted \
         before, so don't disclose the reward again"
    )]
    Expired {
        /// The server's message.
        message: String,
    },
    /// The experiment has ended: the disclosure was refused for good.
    #[error("the experiment has ended, so the disclosure was refused for good: {message}")]
    Stopped {
        /// The server's message.
        message: String,
    },
    /// The disclosure was kept for too long and was erased. If an attempt was made, it may have
    /// counted. Don't disclose the reward again.
    #[error(
        "no server has said in {} days what became of the disclosure, so it was erased; it may \
         have counted before, so don't disclose the reward again",
        days
    )]
    KeptTooLong {
        /// The longest time for keeping a disclosure.
        days: u32,
    },
    /// The server did not answer, or refused. The disclosure may have counted. Send it again.
    #[error("the server refused or did not answer")]
    Call(#[from] Box<Status>),
}

bandana_shared::debug_says!(TrustedError);

impl TrustedError {
    /// Whether it is of no use to send the disclosure again. That does not mean that it never
    /// counted: an answer to an earlier attempt may have been lost. Only a disclosure without a
    /// day, for which no attempt was made, certainly did not count.
    ///
    /// ```
    /// use bandana_client::trusted::TrustedError;
    /// assert!(TrustedError::Expired { message: String::new() }.is_final());
    /// assert!(!TrustedError::Paused.is_final());
    /// ```
    pub fn is_final(&self) -> bool {
        match self {
            Self::Malformed { .. }
            | Self::Expired { .. }
            | Self::Stopped { .. }
            | Self::KeptTooLong { .. } => true,
            Self::Budget(exhausted) => !exhausted.passes(),
            _ => false,
        }
    }

    /// The shortest wait before you send the disclosure again, if the server has asked for one. It
    /// is one hour at most. Add a random wait that grows with every failure.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bandana_client::trusted::TrustedError;
    /// let mut busy = tonic::Status::resource_exhausted("too much to do");
    /// busy.metadata_mut().insert("grpc-retry-pushback-ms", 1500.into());
    /// let busy = TrustedError::from(busy);
    /// assert_eq!(busy.retry_after(), Some(Duration::from_millis(1500)));
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Call(status) => pushback(status).map(|wait| wait.min(PUSHBACK_MAX)),
            Self::Paused | Self::FutureDay => Some(LATER),
            _ => None,
        }
    }
}

impl From<Status> for TrustedError {
    fn from(status: Status) -> Self {
        Self::Call(Box::new(status))
    }
}
