//! Counters of a client.

/// Counts since the client was made; a restart begins at zero again.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Reward, Statistics};
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// let chosen = client.choose(&id, now())?;
/// // Binary rewards are 0 or 1.
/// assert!(client.reward(chosen.id(), Reward::new(3.0)?, now()).is_err());
/// let expected = Statistics { assignments: 1, rewards_refused: 1, ..Statistics::default() };
/// assert_eq!(client.statistics(), expected);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// They stay on the device. `rewards_refused` is about rewards: an app that sends it
/// anywhere says so much about its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Arms given.
    pub assignments: u64,
    /// Arms given without a report to come.
    pub assignments_without_report: u64,
    /// Private bits made, one for each assignment that reports.
    pub reports_made: u64,
    /// Reports dropped because no server had counted them 60 days after their release
    /// time.
    pub reports_expired: u64,
    /// Server days that were not believed: more than a day from the device's own.
    pub days_refused: u64,
    /// Writes to the storage that failed; each is tried again.
    pub writes_failed: u64,
    /// Rewards that were not added: no finite number, not one that the experiment
    /// admits, or for an assignment that never reports or takes no more.
    pub rewards_refused: u64,
    /// Uploads that a server counted on this answer.
    pub uploads_accepted: u64,
    /// Uploads that a server had counted before.
    pub uploads_duplicate: u64,
    /// Uploads refused for good.
    pub uploads_refused: u64,
    /// Attempts to upload that will be repeated.
    pub uploads_postponed: u64,
    /// Questions for an experiment that no server answered.
    pub fetches_failed: u64,
    /// Answers that the client refused.
    pub answers_refused: u64,
}
