//! An upload of a shuffled report, which leaves sealed for a relay or not at all.

use std::fmt;

use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::{Day, UploadId};
use bandana_shared::shuffling::{BatchSize, ShuffledReport};

/// An upload of a report that a relay shuffles. With the feature `relay`, a host can seal it
/// (`seal`). It can do nothing else with it, and never sees the report.
///
/// ```
/// use bandana_client::{Task, UploadOutcome};
///
/// /// What becomes of a task of a host that has no relay.
/// fn without_relay(task: &Task) -> Option<UploadOutcome> {
///     match task {
///         // The report waits; to send it to the aggregator is not possible.
///         Task::Shuffled(task) => {
///             println!("upload {} needs a relay", task.id());
///             Some(UploadOutcome::NoRelay)
///         }
///         _ => None,
///     }
/// }
/// assert_eq!(without_relay(&Task::Done), None);
/// ```
///
/// # Privacy
/// The task holds only the private bit of the reward, and does not print it.
#[derive(Clone)]
pub struct ShuffledTask {
    id: UploadId,
    #[cfg_attr(not(feature = "relay"), expect(dead_code, reason = "read by what seals"))]
    content: Content,
}

/// What is sealed, and for which relay.
#[derive(Clone)]
#[cfg_attr(not(feature = "relay"), expect(dead_code, reason = "read by what seals"))]
struct Content {
    day: Day,
    report: ShuffledReport,
    batch: BatchSize,
    relay: GatewayKeys,
}

impl fmt::Debug for ShuffledTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShuffledTask").field("id", &self.id).finish_non_exhaustive()
    }
}

impl ShuffledTask {
    pub(crate) fn new(
        (id, day): (UploadId, Day),
        report: ShuffledReport,
        batch: BatchSize,
        relay: GatewayKeys,
    ) -> Self {
        Self { id, content: Content { day, report, batch, relay } }
    }

    /// The upload's id, for [`crate::Core::on_upload_result`].
    pub fn id(&self) -> UploadId {
        self.id
    }
}

#[cfg(feature = "relay")]
mod sealing {
    use bandana_shared::gateway::GatewayKeys;
    use bandana_shared::shuffling::Envelope;
    use bandana_shared::wire::v1::SubmitShuffledRequest;
    use ohttp::ClientRequest;
    use thiserror::Error;

    use super::{Content, ShuffledTask};

    impl ShuffledTask {
        /// Seals the report for the aggregator, and seals the result for the relay that the app
        /// believes. Each call makes another seal, and all results have the same length. Send one
        /// of them to the relay, by `Shuffler/SubmitShuffled`, and tell
        /// [`crate::Core::on_upload_result`] what the relay answered.
        ///
        /// ```
        #[doc = include_str!("example.txt")]
        /// # use std::time::Duration;
        /// # use bandana_client::{Client, Fetched, Shuffled};
        /// # use bandana_shared::accounting::{delta::Delta, loss::PrivacyLoss};
        /// use bandana_client::{SealError, Task, UploadOutcome};
        /// use bandana_shared::gateway::GatewayKeys;
        /// use bandana_shared::shuffling::{BatchSize, Envelope};
        ///
        /// # let relay =
        /// #     "00290100208520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a000400010003";
        /// # let terms = Shuffled::by(relay.parse()?, PrivacyLoss::new(0.2)?, Delta::new(1e-6)?);
        /// # let specification = specification()?.in_batches(BatchSize::new(1000)?)?;
        /// # let id = specification.experiment_id().clone();
        /// # let mut client = Client::new(budget()?);
        /// # client.enroll(id.clone(), acceptance()?.shuffled(terms));
        /// # let fetched = |now| Ok::<_, Failure>(Fetched { specification: specification.clone(), ..answer(now)? });
        /// # client.on_fetched(&FetchTask::new(id.clone()), fetched(now())?, now())?;
        /// # client.draw(&id, now())?;
        /// # let later = now().after(Duration::from_secs(600 + 3600));
        /// # client.on_fetched(&FetchTask::new(id.clone()), fetched(later)?, later)?;
        /// let Task::Shuffled(task) = client.next_task(later)? else { return Err("not yet".into()) };
        /// // The key of the aggregator's gateway, which the operator has signed.
        /// let aggregator: GatewayKeys =
        ///     "0029070020de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f000400010003"
        ///         .parse()?;
        /// let request = task.seal(&aggregator)?;
        /// assert_eq!(request.envelope.len(), Envelope::SEALED_BYTES);
        /// assert_ne!(request, task.seal(&aggregator)?, "sealed anew");
        /// // A relay that names its own key could open the report.
        /// assert!(matches!(task.seal(&relay.parse()?), Err(SealError::SameKey)));
        ///
        /// client.on_upload_result(task.id(), &UploadOutcome::Accepted, later)?;
        /// assert_eq!(client.waiting_reports(), 0);
        /// # Ok::<(), Failure>(())
        /// ```
        ///
        /// # Errors
        /// [`SealError`] when one of the keys can't be used. Then tell
        /// [`crate::UploadOutcome::NoRelay`].
        ///
        /// # Privacy
        /// The relay learns the address of the device, the upload's id, its day, the experiment and
        /// the arm. The aggregator learns the bit, in its batch. Nobody learns anything from the
        /// length. Anybody who holds the secret to `aggregator` can read the bit. So take keys that
        /// the app's signers have signed.
        pub fn seal(&self, aggregator: &GatewayKeys) -> Result<SubmitShuffledRequest, SealError> {
            let Content { day, report, batch, relay } = &self.content;
            if relay.has_key_of(aggregator) {
                return Err(SealError::SameKey);
            }
            let sealed = encapsulate(aggregator, &report.to_bytes())?;
            let envelope = Envelope {
                id: self.id,
                day: *day,
                digest: report.digest,
                cell: report.cell,
                batch: *batch,
                keys: aggregator.digest(),
                report: sealed.try_into().map_err(|_| SealError::Key)?,
            };
            let envelope = encapsulate(relay, &envelope.to_bytes())?;
            debug_assert_eq!(envelope.len(), Envelope::SEALED_BYTES, "an envelope of another size");
            Ok(SubmitShuffledRequest { envelope: envelope.into() })
        }
    }

    /// Seals bytes for a key, to which nothing is answered.
    fn encapsulate(keys: &GatewayKeys, bytes: &[u8]) -> Result<Vec<u8>, SealError> {
        let client = ClientRequest::from_encoded_config_list(keys.configurations());
        let sealed = client.and_then(|client| client.encapsulate(bytes));
        sealed.map(|(sealed, _)| sealed).map_err(|_| SealError::Key)
    }

    /// A report that can't be sealed.
    ///
    /// ```
    /// use bandana_client::SealError;
    /// assert!(SealError::SameKey.to_string().contains("relay"));
    /// ```
    #[derive(Clone, Copy, Error, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum SealError {
        /// The relay has the key that is to be the aggregator's, and could read the report.
        #[error("the key of the aggregator is the relay's, which could read the report")]
        SameKey,
        /// Nothing can be sealed for one of the keys.
        #[error("nothing can be sealed for the key of the relay or of the aggregator")]
        Key,
    }

    bandana_shared::debug_says!(SealError);
}

#[cfg(feature = "relay")]
pub use sealing::SealError;
