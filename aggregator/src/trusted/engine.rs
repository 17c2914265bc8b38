//! What a group of disclosures does to an experiment, decided without doing it.
//!
//! Pure and synchronous, as [`ingest::plan`](crate::ingest::plan) is: the keeper carries it out.

use std::collections::HashSet;
use std::fmt;

use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_shared::stored;
use bandana_shared::wire::v1::TrustedSpecification;
use prost::Message as _;

use super::algorithm::Played;
use super::error::TrustedError;
use super::lattice::LatticeReward;
use super::state::{ReleasedState, SecretState};
use crate::store::{DISCLOSURES_MAX, ExperimentState, StoreError, TrustedRecord, TrustedVersion};

/// A trusted experiment as of its last commit.
#[derive(Clone, Debug)]
pub struct TrustedExperiment {
    /// Its name.
    pub id: ExperimentId,
    /// As devices are told of it.
    pub specification: TrustedSpecification,
    /// Where it stands; never a draft.
    pub state: ExperimentState,
    /// Which state this is.
    pub version: TrustedVersion,
    /// The oldest day whose disclosures are taken.
    pub oldest: Day,
    /// Its secret state. None: it was stopped.
    pub secret: Option<SecretState>,
    /// What may be shown of it.
    pub released: ReleasedState,
}

impl TryFrom<&TrustedRecord> for TrustedExperiment {
    type Error = StoreError;

    fn try_from(record: &TrustedRecord) -> Result<Self, StoreError> {
        let TrustedRecord { id, state, version, oldest, private, released, .. } = record;
        let specification = TrustedSpecification::decode(&record.specification[..]);
        let secret = private.as_deref().map(stored::from_bytes).transpose()?;
        Ok(Self {
            id: id.clone(),
            specification: specification.map_err(|error| StoreError::Damaged {
                what: format!("the specification of a trusted experiment: {error}"),
            })?,
            state: *state,
            version: *version,
            oldest: *oldest,
            secret,
            released: stored::from_bytes(released)?,
        })
    }
}

impl TrustedExperiment {
    /// Whether a statistic can be released.
    pub fn is_due(&self) -> bool {
        let runs = self.state == ExperimentState::Running;
        runs && self.secret.as_ref().is_some_and(SecretState::is_due)
    }

    /// The experiment with another secret state, under its next version.
    pub(super) fn with(&self, version: TrustedVersion, secret: SecretState) -> Self {
        let released = secret.released();
        Self { version, released, secret: Some(secret), ..self.clone() }
    }
}

/// A reward that was disclosed, of valid form.
#[derive(Clone)]
pub struct Disclosure {
    /// Its name, together with the day.
    pub id: UploadId,
    /// The day that it carries.
    pub day: Day,
    /// What was played.
    pub played: Played,
    /// The reward.
    pub reward: LatticeReward,
}

impl fmt::Debug for Disclosure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disclosure(<private>)")
    }
}

/// What becomes of a disclosure once its group is committed.
#[derive(Clone, Debug, PartialEq)]
pub enum DisclosureVerdict {
    /// It counts.
    Counted,
    /// It counted before, or under the same name in the same group.
    Duplicate,
    /// It can't be taken.
    Malformed(TrustedError),
    /// Its day is before the window.
    Expired {
        /// Oldest day that is taken.
        oldest: Day,
    },
    /// Its day is after today.
    FutureDay {
        /// The server's day.
        today: Day,
    },
    /// The experiment takes nothing for now.
    Paused,
    /// The experiment has ended.
    Stopped,
    /// The experiment has as many rewards as it can add up.
    Full(TrustedError),
    /// The window lies after today: the clock is wrong, and nothing can be said.
    ClockBehind,
    /// There is no such experiment any more.
    Gone,
}

/// The world that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'w> {
    /// The server's day.
    pub today: Day,
    /// Disclosures of which it is known that they count.
    pub known: &'w HashSet<(Day, UploadId)>,
}

/// What is to be committed, and what to answer then.
#[derive(Clone, Debug, Default)]
pub struct GroupPlan {
    /// Verdicts of the first disclosures, in their order. The others belong to a later group.
    pub verdicts: Vec<DisclosureVerdict>,
    /// The names of those that count.
    pub counted: Vec<(Day, UploadId)>,
    /// The state that they lead to, when any count.
    pub next: Option<SecretState>,
}

/// Decides about disclosures to an experiment, until a statistic is due or the group is full.
pub fn plan(
    experiment: &TrustedExperiment,
    disclosures: &mut dyn Iterator<Item = &Disclosure>,
    situation: Situation<'_>,
) -> GroupPlan {
    let mut plan = GroupPlan::default();
    let mut fresh = HashSet::new();
    for disclosure in disclosures {
        let is_due = plan.next.as_ref().is_some_and(SecretState::is_due);
        if is_due || plan.counted.len() >= DISCLOSURES_MAX {
            break;
        }
        let name = (disclosure.day, disclosure.id);
        let is_known = situation.known.contains(&name) || fresh.contains(&name);
        let mut verdict = judge(experiment, disclosure, situation.today, is_known);
        if verdict == DisclosureVerdict::Counted {
            verdict = match observe(&mut plan, experiment, disclosure) {
                Ok(()) => {
                    fresh.insert(name);
                    plan.counted.push(name);
                    DisclosureVerdict::Counted
                }
                Err(error @ TrustedError::Full { .. }) => DisclosureVerdict::Full(error),
                Err(error) => DisclosureVerdict::Malformed(error),
            };
        }
        plan.verdicts.push(verdict);
    }
    if plan.counted.is_empty() {
        plan.next = None;
    }
    plan
}

/// Everything but whether the algorithm takes it. What was counted is a success whatever has
/// happened since.
fn judge(
    experiment: &TrustedExperiment,
    disclosure: &Disclosure,
    today: Day,
    is_known: bool,
) -> DisclosureVerdict {
    let oldest = experiment.oldest;
    if oldest > today {
        return DisclosureVerdict::ClockBehind;
    }
    if disclosure.day > today {
        return DisclosureVerdict::FutureDay { today };
    }
    if disclosure.day < oldest {
        return DisclosureVerdict::Expired { oldest };
    }
    match experiment.state {
        _ if is_known => DisclosureVerdict::Duplicate,
        ExperimentState::Running => DisclosureVerdict::Counted,
        ExperimentState::Stopped => DisclosureVerdict::Stopped,
        ExperimentState::Draft | ExperimentState::Paused => DisclosureVerdict::Paused,
    }
}

fn observe(
    plan: &mut GroupPlan,
    experiment: &TrustedExperiment,
    disclosure: &Disclosure,
) -> Result<(), TrustedError> {
    // One that runs has its secret state.
    let secret = experiment.secret.as_ref().ok_or(TrustedError::NothingDue)?;
    // What is refused changes nothing.
    let next = plan.next.get_or_insert_with(|| secret.clone());
    next.observe(&disclosure.played, disclosure.reward)
}
