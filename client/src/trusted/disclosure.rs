//! Disclosures of one reward to the server.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::wire::v1::DiscloseRequest;
use bandana_shared::wire::v1::disclose_request::Played;

use super::TrustedError;
use super::rho_ledger::Counted;

/// A reward that its user discloses. It can't be printed, copied or serialised by accident.
///
/// ```
/// use bandana_client::trusted::DisclosedReward;
/// let reward = DisclosedReward::new(0.25)?;
/// assert_eq!(format!("{reward:?}"), "DisclosedReward(<private>)");
/// # Ok::<(), bandana_client::trusted::TrustedError>(())
/// ```
/// ```compile_fail,E0382
/// let reward = bandana_client::trusted::DisclosedReward::new(0.25).unwrap();
/// let (first, second) = (reward, reward);
/// ```
pub struct DisclosedReward(f64);

impl DisclosedReward {
    /// Wraps a finite number. When you send it, the client checks that it is in the experiment's
    /// range.
    ///
    /// ```
    /// use bandana_client::trusted::DisclosedReward;
    /// assert!(DisclosedReward::new(f64::NAN).is_err());
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Reward`] for infinities and NaN.
    pub fn new(reward: f64) -> Result<Self, TrustedError> {
        if reward.is_finite() { Ok(Self(reward)) } else { Err(TrustedError::Reward) }
    }
}

impl fmt::Debug for DisclosedReward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DisclosedReward(<private>)")
    }
}

/// A reward that is to be sent. It counts once under its name, which is 16 random bytes, and under
/// the server's day at the first attempt. Name and day stay the same.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::trusted::DisclosedReward;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
/// assert_eq!(format!("{disclosure:?}"), "Disclosure(<private>)");
/// experiment.disclose(&disclosure, &ledger()?).await?;
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
pub struct Disclosure {
    experiment_id: ExperimentId,
    name: [u8; 16],
    played: Played,
    reward: f64,
    /// The server's day, fixed at the first attempt.
    day: OnceLock<Day>,
    /// The ledger of this process that has counted it first, and how.
    counted_by: Arc<OnceLock<(u64, Counted)>>,
}

/// What a ledger has to know of a disclosure.
#[derive(Debug)]
pub(super) struct Debtor {
    pub(super) experiment_id: ExperimentId,
    pub(super) name: [u8; 16],
    /// The ledger of this process that has counted it first, and how.
    pub(super) counted_by: Arc<OnceLock<(u64, Counted)>>,
}

impl fmt::Debug for Disclosure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disclosure(<private>)")
    }
}

impl Disclosure {
    pub(super) fn new(
        experiment_id: ExperimentId,
        played: Played,
        DisclosedReward(reward): DisclosedReward,
    ) -> Result<Self, TrustedError> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(TrustedError::Entropy)?;
        Ok(Self {
            experiment_id,
            name,
            played,
            reward,
            day: OnceLock::new(),
            counted_by: Arc::default(),
        })
    }

    pub(crate) fn experiment_id(&self) -> &ExperimentId {
        &self.experiment_id
    }

    /// The day, if a first attempt was made.
    pub(crate) fn day(&self) -> Option<Day> {
        self.day.get().copied()
    }

    /// Sets the day, unless it is already set, and returns the day in force.
    pub(crate) fn fix_day(&self, day: Day) -> Day {
        *self.day.get_or_init(|| day)
    }

    /// How this ledger has counted it. A second ledger counts every attempt.
    pub(super) fn counted_by(&self, ledger: u64) -> Option<Counted> {
        self.counted_by.get().filter(|(by, _)| *by == ledger).map(|(_, counted)| *counted)
    }

    pub(super) fn debtor(&self) -> Debtor {
        Debtor {
            experiment_id: self.experiment_id.clone(),
            name: self.name,
            counted_by: Arc::clone(&self.counted_by),
        }
    }

    /// The message to be sent, the same at every attempt.
    pub(super) fn message(&self, day: Day) -> DiscloseRequest {
        DiscloseRequest {
            experiment_id: self.experiment_id.to_string(),
            disclosure_id: self.name.to_vec().into(),
            played: Some(self.played.clone()),
            reward: self.reward,
            day: day.get(),
        }
    }
}

/// The stored parts of a disclosure.
impl Disclosure {
    pub(crate) fn restored(
        experiment_id: ExperimentId,
        name: [u8; 16],
        played: Played,
        reward: f64,
        day: Option<Day>,
    ) -> Option<Self> {
        let day = day.map_or_else(OnceLock::new, OnceLock::from);
        let counted_by = Arc::default();
        let disclosure = Self { experiment_id, name, played, reward, day, counted_by };
        reward.is_finite().then_some(disclosure)
    }

    pub(crate) fn name(&self) -> [u8; 16] {
        self.name
    }

    pub(crate) fn played(&self) -> &Played {
        &self.played
    }

    pub(crate) fn expose(&self) -> f64 {
        self.reward
    }
}
