//! Counters of a client.

/// Counts since the client was made. After a restart they begin at zero.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Reward, Statistics};
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// let chosen = client.draw(&id, now())?;
/// // Binary rewards are 0 or 1.
/// assert!(client.reward(chosen.id(), Reward::new(3.0)?, now()).is_err());
/// let expected = Statistics { assignments: 1, rewards_refused: 1, ..Statistics::default() };
/// assert_eq!(client.statistics(), expected);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// The counts stay on the device. `rewards_refused` depends on rewards. An app that sends it
/// anywhere reveals something about its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Arms drawn.
    pub assignments: u64,
    /// Arms drawn whose assignment never reports.
    pub assignments_without_report: u64,
    /// Private bits made, one for each assignment that reports.
    pub reports_made: u64,
    /// Reports dropped because no server had counted them 60 days after their release
    /// time.
    pub reports_expired: u64,
    /// Days of a server that the client did not accept, since they were more than a day from the
    /// device's own.
    pub days_refused: u64,
    /// Writes to the storage that failed. Each is tried again.
    pub writes_failed: u64,
    /// Rewards that were not added. The reward was not a finite number, or the experiment does not
    /// admit it, or its assignment never reports or no longer takes rewards.
    pub rewards_refused: u64,
    /// Uploads that a server counted on this call.
    pub uploads_accepted: u64,
    /// Uploads that a server had already counted before.
    pub uploads_duplicate: u64,
    /// Uploads refused for good.
    pub uploads_refused: u64,
    /// Attempts to upload that will be repeated.
    pub uploads_postponed: u64,
    /// Fetches of an experiment that no server answered.
    pub fetches_failed: u64,
    /// Answers that the client refused.
    pub answers_refused: u64,
}
