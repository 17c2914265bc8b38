//! The engine decides about a group of disclosures to an experiment, without side effects.
//!
//! Pure and synchronous, as [`store::decide`](bandana_store::decide) is: the disclosure writer
//! carries the decision out.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_shared::wire::v1::TrustedSpecification;
use bandana_store::{
    DISCLOSURES_MAX, DecodedRecord, ExperimentState, StoreError, TrustedRecord, TrustedVersion,
};
use bandana_zcdp::LatticeReward;
use bandana_zcdp::Played;
use bandana_zcdp::ZcdpError;
use bandana_zcdp::state::{ReleasedState, SecretState};

use super::answers::TrustedAnswers;

/// A trusted experiment as of its last commit.
#[derive(Clone, Debug)]
pub struct TrustedExperiment {
    /// The experiment's name.
    pub id: ExperimentId,
    /// The specification as devices receive it.
    pub specification: TrustedSpecification,
    /// The state in the lifecycle; never a draft.
    pub state: ExperimentState,
    /// The version of this state.
    pub version: TrustedVersion,
    /// The oldest day whose disclosures are accepted.
    pub oldest: Day,
    /// The algorithm's secret state. None: the experiment was stopped.
    pub secret: Option<SecretState>,
    /// The released state, which may be published.
    pub released: ReleasedState,
    /// Whether lists omit the experiment.
    pub is_archived: bool,
    /// Encoded answers to devices, shared by all versions of this experiment.
    pub answers: Arc<TrustedAnswers>,
}

impl TryFrom<&TrustedRecord> for TrustedExperiment {
    type Error = StoreError;

    fn try_from(record: &TrustedRecord) -> Result<Self, StoreError> {
        let TrustedRecord { id, state, version, oldest, is_archived, .. } = record;
        let DecodedRecord { specification, secret, released } = record.decode()?;
        Ok(Self {
            id: id.clone(),
            specification,
            state: *state,
            version: *version,
            oldest: *oldest,
            secret,
            released,
            is_archived: *is_archived,
            answers: Arc::default(),
        })
    }
}

impl TrustedExperiment {
    /// Whether a statistic can be released.
    pub fn is_due(&self) -> bool {
        let runs = self.state == ExperimentState::Running;
        runs && self.secret.as_ref().is_some_and(SecretState::is_due)
    }

    /// The experiment with another secret state, as the given version.
    pub(crate) fn with(&self, version: TrustedVersion, secret: SecretState) -> Self {
        let released = secret.released();
        Self { version, released, secret: Some(secret), ..self.clone() }
    }
}

/// A disclosed reward, syntactically valid.
#[derive(Clone)]
pub struct Disclosure {
    /// The disclosure's name, unique within its day.
    pub id: UploadId,
    /// The day stated in the disclosure.
    pub day: Day,
    /// The arm or action that was played.
    pub played: Played,
    /// The reward.
    pub reward: LatticeReward,
}

impl fmt::Debug for Disclosure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disclosure(<private>)")
    }
}

/// The verdict on a disclosure once its group is committed.
#[derive(Clone, Debug, PartialEq)]
pub enum DisclosureVerdict {
    /// It counts.
    Counted,
    /// It counted before, or occurs earlier in the same group.
    Duplicate,
    /// It is invalid.
    Malformed(ZcdpError),
    /// Its day is before the window.
    Expired {
        /// Oldest accepted day.
        oldest: Day,
    },
    /// Its day is after today.
    FutureDay {
        /// The server's day.
        today: Day,
    },
    /// The experiment is paused.
    Paused,
    /// The experiment has ended.
    Stopped,
    /// The experiment has as many rewards as its sums can hold.
    Full(ZcdpError),
    /// The statistic that is due can't be released, for this reason, so the experiment accepts no
    /// more disclosures.
    Halted(String),
    /// The window lies after today: the clock is wrong, so no verdict is possible.
    ClockBehind,
    /// The experiment was deleted.
    Gone,
}

/// The external facts that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct DisclosureContext<'w> {
    /// The server's day.
    pub today: Day,
    /// Disclosures known to count already.
    pub known: &'w HashSet<(Day, UploadId)>,
}

/// A decision: the state to commit, and the verdicts to return afterwards.
#[derive(Clone, Debug, Default)]
pub struct GroupDecision {
    /// Verdicts on the first disclosures, in order. The remaining ones belong to a later group.
    pub verdicts: Vec<DisclosureVerdict>,
    /// The names of the disclosures that count.
    pub counted: Vec<(Day, UploadId)>,
    /// The resulting state, if any disclosure counts.
    pub next: Option<SecretState>,
}

/// Decides about disclosures to an experiment until a statistic is due or the group is full.
pub fn plan(
    experiment: &TrustedExperiment,
    disclosures: &mut dyn Iterator<Item = &Disclosure>,
    context: DisclosureContext<'_>,
) -> GroupDecision {
    let mut plan = GroupDecision::default();
    let mut fresh = HashSet::new();
    for disclosure in disclosures {
        let is_due = plan.next.as_ref().is_some_and(SecretState::is_due);
        if is_due || plan.counted.len() >= DISCLOSURES_MAX {
            break;
        }
        let name = (disclosure.day, disclosure.id);
        let is_known = context.known.contains(&name) || fresh.contains(&name);
        let mut verdict = judge(experiment, disclosure, context.today, is_known);
        if verdict == DisclosureVerdict::Counted {
            verdict = match observe(&mut plan, experiment, disclosure) {
                Ok(()) => {
                    fresh.insert(name);
                    plan.counted.push(name);
                    DisclosureVerdict::Counted
                }
                Err(error @ ZcdpError::Full { .. }) => DisclosureVerdict::Full(error),
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

/// Checks everything except the algorithm's own conditions. A disclosure that has counted is a
/// success regardless of later changes.
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
    plan: &mut GroupDecision,
    experiment: &TrustedExperiment,
    disclosure: &Disclosure,
) -> Result<(), ZcdpError> {
    // A running experiment has its secret state.
    let secret = experiment.secret.as_ref().ok_or(ZcdpError::NothingDue)?;
    // A refused disclosure leaves the state unchanged.
    let next = plan.next.get_or_insert_with(|| secret.clone());
    next.observe(&disclosure.played, disclosure.reward)
}

#[cfg(test)]
mod tests {
    use bandana_shared::stored;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use bandana_zcdp::AlgorithmSettings;
    use bandana_zcdp::lattice::{Protection, RewardRange};
    use bandana_zcdp::state::NoiseKey;

    const TODAY: Day = Day::new(100);

    fn experiment(plan: &AlgorithmSettings) -> TrustedExperiment {
        let secret = SecretState::new(plan.clone(), NoiseKey::insecure([0; 32])).unwrap();
        let id = ExperimentId::new("headlines").unwrap();
        TrustedExperiment {
            is_archived: false,
            answers: Arc::default(),
            specification: plan.message(&id),
            id,
            state: ExperimentState::Running,
            version: TrustedVersion { sequence: 0, stamp: 0 },
            oldest: Day::new(94),
            released: secret.released(),
            secret: Some(secret),
        }
    }

    fn lazy() -> AlgorithmSettings {
        AlgorithmSettings::Lazy { arms: 3, protection: Protection::concentrated(0.5).unwrap() }
    }

    fn ucb() -> AlgorithmSettings {
        AlgorithmSettings::Ucb(bandana_zcdp::adac_ucb::UcbSettings {
            arms: 3,
            protection: Protection::concentrated(0.5).unwrap(),
            exploration: 1.0,
            memory: bandana_zcdp::adac_ucb::Memory::Forgetting,
        })
    }

    fn disclosure(number: u128, day: Day, arm: usize) -> Disclosure {
        let reward = RewardRange::Unit.reward(f64::from(u8::from(arm == 1))).unwrap();
        let id = UploadId::new(number.to_be_bytes());
        Disclosure { id, day, played: Played::Arm(arm), reward }
    }

    /// The experiment after a crash: reloaded from its stored form.
    fn restarted(experiment: &TrustedExperiment) -> TrustedExperiment {
        let secret = experiment.secret.as_ref().unwrap();
        let bytes = stored::to_bytes(secret).unwrap();
        let released = stored::to_bytes(&secret.released()).unwrap();
        TrustedExperiment {
            secret: Some(stored::from_bytes(&bytes).unwrap()),
            released: stored::from_bytes(&released).unwrap(),
            ..experiment.clone()
        }
    }

    /// Processes disclosures in groups of these sizes, with a crash before or after some commits,
    /// and returns everything that was ever published.
    fn shown_to_the_world(
        plan_of: &AlgorithmSettings,
        disclosures: &[Disclosure],
        steps: &[(usize, bool)],
    ) -> Vec<String> {
        let mut experiment = experiment(plan_of);
        let (mut shown, mut rest) = (Vec::new(), disclosures);
        let mut steps = steps.iter().cycle();
        let known = HashSet::new();
        while !rest.is_empty() || experiment.is_due() {
            let &(size, crash) = steps.next().unwrap();
            if crash {
                experiment = restarted(&experiment);
            }
            let version = TrustedVersion { sequence: experiment.version.sequence + 1, stamp: 0 };
            if experiment.is_due() {
                let number = u8::try_from(experiment.released.releases() + 1).unwrap_or(255);
                let mut secret = experiment.secret.clone().unwrap();
                secret.release(NoiseKey::insecure([number; 32])).unwrap();
                if crash {
                    // The commit did not happen, so the group is submitted again.
                    continue;
                }
                experiment = experiment.with(version, secret);
                shown.push(format!("{:?}", experiment.released.shown()));
                continue;
            }
            let group = &rest[..size.min(rest.len())];
            let context = DisclosureContext { today: TODAY, known: &known };
            let planned = plan(&experiment, &mut group.iter(), context);
            assert!(planned.verdicts.iter().all(|v| *v == DisclosureVerdict::Counted));
            rest = &rest[planned.verdicts.len()..];
            experiment = experiment.with(version, planned.next.unwrap());
        }
        shown
    }

    proptest! {
        #[test]
        fn groups_and_crashes_change_no_statistic(
            arms in vec(0_usize..3, 1..200),
            steps in vec((1_usize..20, any::<bool>()), 1..20),
            lazily in any::<bool>(),
        ) {
            // Crashes alone make no progress.
            prop_assume!(steps.iter().any(|(_, crash)| !crash));
            let disclosures: Vec<Disclosure> = (0..)
                .zip(&arms)
                .map(|(number, arm)| disclosure(number, TODAY, *arm))
                .collect();
            let plan = || if lazily { lazy() } else { ucb() };
            let one_by_one = shown_to_the_world(&plan(), &disclosures, &[(1, false)]);
            prop_assert_eq!(shown_to_the_world(&plan(), &disclosures, &steps), one_by_one);
        }
    }

    #[test]
    fn a_name_counts_once_and_what_counted_is_a_success_whatever_the_state() {
        use DisclosureVerdict::{ClockBehind, Counted, Duplicate, Expired, FutureDay};
        let experiment = experiment(&lazy());
        let twice = [disclosure(1, TODAY, 0), disclosure(1, TODAY, 2), disclosure(2, TODAY, 2)];
        let nothing = HashSet::new();
        let context = DisclosureContext { today: TODAY, known: &nothing };
        let planned = plan(&experiment, &mut twice.iter(), context);
        assert_eq!(planned.verdicts[..2], [Counted, Duplicate]);
        let known = HashSet::from([(TODAY, UploadId::new(1_u128.to_be_bytes()))]);
        let context = DisclosureContext { today: TODAY, known: &known };
        for (state, other) in [
            (ExperimentState::Paused, DisclosureVerdict::Paused),
            (ExperimentState::Stopped, DisclosureVerdict::Stopped),
        ] {
            let ended = TrustedExperiment { state, ..experiment.clone() };
            let planned = plan(&ended, &mut twice.iter(), context);
            assert_eq!(planned.verdicts, [Duplicate, Duplicate, other]);
            assert!(planned.next.is_none());
        }
        let days = [93, 101].map(|day| disclosure(9, Day::new(day), 0));
        let planned = plan(&experiment, &mut days.iter(), context);
        let oldest = experiment.oldest;
        assert_eq!(planned.verdicts, [Expired { oldest }, FutureDay { today: TODAY }]);
        let context = DisclosureContext { today: Day::new(90), known: &known };
        assert_eq!(
            plan(&experiment, &mut days.iter(), context).verdicts,
            [ClockBehind, ClockBehind]
        );
    }

    #[test]
    fn what_may_be_shown_has_no_reward_in_it_that_was_not_released() {
        for arm in [0, 1] {
            let experiment = experiment(&ucb());
            let first = [disclosure(1, TODAY, arm)];
            let known = HashSet::new();
            let context = DisclosureContext { today: TODAY, known: &known };
            let mut played = Vec::new();
            for reward in [0.0, 1.0] {
                let reward = RewardRange::Unit.reward(reward).unwrap();
                let first = [Disclosure { reward, ..first[0].clone() }];
                let next = plan(&experiment, &mut first.iter(), context).next.unwrap();
                assert_ne!(
                    stored::to_bytes(&next).unwrap(),
                    stored::to_bytes(experiment.secret.as_ref().unwrap()).unwrap()
                );
                played.push(stored::to_bytes(&next.released()).unwrap());
            }
            assert_eq!(played[0], played[1]);
        }
    }
}
