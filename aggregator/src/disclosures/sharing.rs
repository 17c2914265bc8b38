//! Replicas that accept disclosures to the same experiment leave its commits to one of them, the
//! leader.
//!
//! A replica that collides with another one's commit requests the lease of the experiment. The
//! holder of the lease *leads*. The other replicas hand their disclosures over to the leader, which
//! reports the outcomes back. A replica whose commits are always first never collides, so it polls
//! now and then for a leader.
//!
//! Correctness does not depend on any of this: disclosures handed over may be lost, decided about
//! twice, or taken by a replica whose lease has expired. A disclosure still counts once, by its
//! name, because every commit is based on the current version.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bandana_edge::explain::explain;
use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_shared::stored::{self, Stored};
use bandana_store::{DISCLOSURES_MAX, Handover, HandoverMessage, OpenError, Slot, StoreError};
use bandana_zcdp::Action;
use bandana_zcdp::Played;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::handle::Answer;
use super::{DisclosureWriter, Group};
use crate::ingest::{IngestError, QUEUE_MAX};
use crate::trusted::{Disclosure, DisclosureVerdict, TrustedExperiment};

/// Interval of polling for messages of other replicas.
const POLL: Duration = Duration::from_millis(2);

/// Maximum number of batches that a replica has handed over at once: a few arrive during one
/// commit.
const SLOTS: i32 = 16;

/// Time without handovers after which the leader gives up the lease.
const IDLE: Duration = Duration::from_secs(5);

/// Time for which a leader that was seen is assumed to lead.
const LED: Duration = Duration::from_secs(1);

/// Time for which an experiment without a leader is assumed to have none.
const ALONE: Duration = Duration::from_millis(20);

/// Time limit for the leader's answer. After it, this replica decides about the disclosures itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// This replica's role in an experiment whose disclosures reach several replicas.
#[derive(Debug)]
enum Role {
    /// This replica commits its own disclosures, and there was no leader at the last poll.
    Alone { seen: Duration },
    /// This replica commits the disclosures of all replicas.
    Leads {
        /// Batches of other replicas whose outcomes are not yet reported.
        taken: Vec<Taken>,
        /// Time of the last handover.
        used: Duration,
    },
    /// Another replica leads.
    HandsOver {
        batches: Vec<Batch>,
        backlog: VecDeque<(Disclosure, Answer)>,
        /// When the leader was last seen.
        seen: Duration,
    },
}

impl Role {
    fn hands_over(now: Duration) -> Self {
        Self::HandsOver { batches: Vec::new(), backlog: VecDeque::new(), seen: now }
    }
}

/// A batch handed over by another replica.
#[derive(Debug)]
struct Taken {
    slot: Slot,
    outcomes: Arc<Outcomes>,
}

/// A batch that this replica has handed over, with the callers that wait for it.
#[derive(Debug)]
struct Batch {
    slot: Slot,
    waiting: Vec<(Disclosure, Answer)>,
    since: Duration,
}

/// The outcomes of a batch, in its order.
#[derive(Debug)]
pub(super) struct Outcomes(Vec<AtomicU8>);

/// The outcome is unknown, or the disclosure does not count: the sender must decide about it.
const UNDECIDED: u8 = 0;
const COUNTED: u8 = 1;
const DUPLICATE: u8 = 2;

impl Outcomes {
    /// Records the outcome of the disclosure at this index.
    pub(super) fn note(&self, place: usize, outcome: &Result<DisclosureVerdict, IngestError>) {
        let code = match outcome {
            Ok(DisclosureVerdict::Counted) => COUNTED,
            Ok(DisclosureVerdict::Duplicate) => DUPLICATE,
            _ => UNDECIDED,
        };
        if let Some(outcome) = self.0.get(place) {
            outcome.store(code, Ordering::Relaxed);
        }
    }
}

/// A batch of disclosures as sent to another replica. Its reader may be another version of the
/// program, which then rejects it as a whole.
#[derive(Serialize, Deserialize)]
struct Handed {
    experiment: String,
    replica: i64,
    number: i64,
    disclosures: Vec<HandedDisclosure>,
}

#[derive(Serialize, Deserialize)]
struct HandedDisclosure {
    id: [u8; 16],
    day: u32,
    played: HandedPlay,
    /// On the lattice, so the recipient rounds it to the same value.
    reward: f64,
}

#[derive(Serialize, Deserialize)]
enum HandedPlay {
    Arm(usize),
    Vector(Action),
}

impl Stored for Handed {
    const MAGIC: [u8; 4] = *b"BDho";
    const VERSION: u16 = 1;
}

/// The outcomes of a batch as sent back.
#[derive(Serialize, Deserialize)]
struct BatchOutcomes {
    replica: i64,
    number: i64,
    outcomes: Vec<u8>,
}

impl Stored for BatchOutcomes {
    const MAGIC: [u8; 4] = *b"BDtl";
    const VERSION: u16 = 1;
}

impl HandedDisclosure {
    fn of(disclosure: &Disclosure) -> Self {
        let played = match &disclosure.played {
            Played::Arm(arm) => HandedPlay::Arm(*arm),
            Played::Vector(action) => HandedPlay::Vector(action.clone()),
        };
        let reward = disclosure.reward.disclose();
        let (id, day) = (*disclosure.id.as_bytes(), disclosure.day.get());
        Self { id, day, played, reward }
    }

    /// The disclosure, validated as if a device had sent it. None: invalid.
    fn read(self, experiment: &TrustedExperiment) -> Option<Disclosure> {
        let played = match self.played {
            HandedPlay::Arm(arm) => Played::Arm(arm),
            HandedPlay::Vector(action) => Played::Vector(action),
        };
        let reward = experiment.released.check(&played, self.reward).ok()?;
        let (id, day) = (UploadId::new(self.id), Day::new(self.day));
        Some(Disclosure { id, day, played, reward })
    }
}

/// The state that a writer keeps about sharing with other replicas.
#[derive(Debug)]
pub(super) struct Sharing {
    way: Handover,
    roles: BTreeMap<ExperimentId, Role>,
    /// Number of batches handed over so far.
    number: i64,
    /// Runtime for waiting with a timeout.
    runtime: Runtime,
}

impl Sharing {
    pub(super) fn new(way: Handover) -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|source| StoreError::Open(OpenError::Thread { source }))?;
        Ok(Self { way, roles: BTreeMap::new(), number: 0, runtime })
    }

    /// Whether messages of other replicas are expected.
    fn is_busy(&self) -> bool {
        self.roles.values().any(|role| match role {
            Role::Alone { .. } => false,
            Role::Leads { .. } => true,
            Role::HandsOver { batches, .. } => !batches.is_empty(),
        })
    }

    /// Polls for a leader, unless the last poll is recent.
    fn look_around(&mut self, id: &ExperimentId, now: Duration) {
        let is_known = |role: &Role| match role {
            Role::Alone { seen } => now.saturating_sub(*seen) <= ALONE,
            Role::Leads { .. } | Role::HandsOver { .. } => true,
        };
        if self.roles.get(id).is_some_and(is_known) {
            return;
        }
        let is_led = self.way.is_led(id).unwrap_or_else(|error| {
            log_limited(id, &error);
            false
        });
        let role = if is_led { Role::hands_over(now) } else { Role::Alone { seen: now } };
        self.roles.insert(id.clone(), role);
    }

    /// Requests the lease, and updates the role.
    fn contend(&mut self, id: &ExperimentId, now: Duration) {
        let next = match (self.way.lead(id), self.roles.remove(id)) {
            (Ok(true), Some(leads @ Role::Leads { .. })) => leads,
            (Ok(true), _) => {
                self.way.sweep().inspect_err(|error| log_limited(id, error)).ok();
                Role::Leads { taken: Vec::new(), used: now }
            }
            (Ok(false), Some(Role::HandsOver { batches, backlog, .. })) => {
                Role::HandsOver { batches, backlog, seen: now }
            }
            (Ok(false), _) => Role::hands_over(now),
            // No leader is needed.
            (Err(error), role) => {
                log_limited(id, &error);
                if let Some(role) = role {
                    self.roles.insert(id.clone(), role);
                }
                return;
            }
        };
        tracing::debug!(experiment = %id, leads = matches!(next, Role::Leads { .. }), "contended");
        self.roles.insert(id.clone(), next);
    }
}

/// Disclosures handed over that this replica must decide about. `unheard` ones got no answer and
/// may be handed over to a new leader. `undecided` ones the leader could not decide, so this
/// replica decides alone.
#[derive(Debug, Default)]
struct Returned {
    unheard: Vec<(Disclosure, Answer)>,
    undecided: Vec<(Disclosure, Answer)>,
}

impl DisclosureWriter {
    /// Waits for commands, or until the next poll is due. `false`: all handles are dropped.
    pub(super) fn receive(&mut self, batch: &mut Vec<super::Command>, waits: bool) -> bool {
        let Self { commands, sharing, .. } = self;
        let Some(sharing) = sharing.as_mut().filter(|sharing| !waits || sharing.is_busy()) else {
            return commands.blocking_recv_many(batch, DISCLOSURES_MAX) > 0;
        };
        let pause = if waits { POLL } else { Duration::ZERO };
        let received = sharing.runtime.block_on(async {
            tokio::time::timeout(pause, commands.recv_many(batch, DISCLOSURES_MAX)).await
        });
        received.is_err() || received.is_ok_and(|received| received > 0)
    }

    /// Determines the leader, after a collision with another replica.
    pub(super) fn contend(&mut self, id: &ExperimentId) {
        let now = self.clock.monotonic();
        if let Some(sharing) = &mut self.sharing {
            sharing.contend(id, now);
        }
    }

    /// Hands a group over, if another replica leads. `false`: this replica must commit it.
    pub(super) fn hand_over(&mut self, id: &ExperimentId, group: &mut Group) -> bool {
        let now = self.clock.monotonic();
        let Some(sharing) = &mut self.sharing else { return false };
        let is_stale = |role: &Role| match role {
            Role::HandsOver { seen, .. } => now.saturating_sub(*seen) > LED,
            Role::Leads { .. } | Role::Alone { .. } => false,
        };
        sharing.look_around(id, now);
        if sharing.roles.get(id).is_some_and(is_stale) {
            sharing.contend(id, now);
        }
        let Some(Role::HandsOver { backlog, .. }) = sharing.roles.get_mut(id) else { return false };
        // Disclosures of other replicas are dropped here: their senders withdraw them.
        let own = group.waiting.drain(..).filter(|(_, answer)| answer.is_of_caller());
        backlog.extend(own);
        let excess = backlog.split_off(backlog.len().min(QUEUE_MAX));
        self.send(id, now);
        for (_, answer) in excess {
            self.answer(answer, Err(IngestError::QueueFull));
        }
        true
    }

    /// Writes the backlog into free slots.
    fn send(&mut self, id: &ExperimentId, now: Duration) {
        let Some(Sharing { way, roles, number, .. }) = &mut self.sharing else { return };
        let Some(Role::HandsOver { batches, backlog, .. }) = roles.get_mut(id) else { return };
        let is_free = |place: &i32| batches.iter().all(|batch| batch.slot.place != *place);
        let free: Vec<i32> = (0..SLOTS).filter(is_free).collect();
        for place in free {
            if backlog.is_empty() {
                return;
            }
            *number += 1;
            let slot = Slot { replica: way.replica(), place, number: *number };
            let waiting: Vec<_> = backlog.drain(..backlog.len().min(DISCLOSURES_MAX)).collect();
            let handed = Handed {
                experiment: id.to_string(),
                replica: slot.replica,
                number: slot.number,
                disclosures: waiting.iter().map(|(d, _)| HandedDisclosure::of(d)).collect(),
            };
            let sent = stored::to_bytes(&handed).map_err(StoreError::from);
            if let Err(error) = sent.and_then(|bytes| way.hand_over(id, &(slot, bytes))) {
                // The next poll returns them as unanswered.
                log_limited(id, &error);
            }
            self.metrics.handed_over(waiting.len());
            batches.push(Batch { slot, waiting, since: now });
        }
    }

    /// Reports outcomes to other replicas, and takes the batches that they have handed over since.
    pub(super) fn take_over(&mut self) -> BTreeMap<ExperimentId, Group> {
        let mut groups = BTreeMap::new();
        let now = self.clock.monotonic();
        let Some(Sharing { way, roles, .. }) = &mut self.sharing else { return groups };
        roles.retain(|id, role| {
            let Role::Leads { taken, used } = role else { return true };
            let told: Vec<HandoverMessage> = taken.drain(..).filter_map(Taken::told).collect();
            let messages = match way.take(id, &told) {
                Ok(Some(messages)) => messages,
                Ok(None) => {
                    *role = Role::hands_over(now);
                    return true;
                }
                Err(error) => {
                    log_limited(id, &error);
                    return false;
                }
            };
            if !messages.is_empty() {
                *used = now;
                let Some(experiment) = self.registry.trusted().get(id) else { return false };
                let group: &mut Group = groups.entry(id.clone()).or_default();
                taken.extend(messages.into_iter().map(|letter| group.take(letter, &experiment)));
            } else if now.saturating_sub(*used) > IDLE {
                way.resign(id).inspect_err(|error| log_limited(id, error)).ok();
                return false;
            }
            true
        });
        groups
    }

    /// Answers disclosures that the leader has decided, and decides about the others.
    pub(super) fn answer_decided(&mut self) {
        let Some(sharing) = &self.sharing else { return };
        let handing =
            |role: &Role| matches!(role, Role::HandsOver { batches, .. } if !batches.is_empty());
        let ids: Vec<_> = sharing.roles.iter().filter(|(_, role)| handing(role)).collect();
        let ids: Vec<ExperimentId> = ids.into_iter().map(|(id, _)| id.clone()).collect();
        for id in ids {
            let now = self.clock.monotonic();
            let Returned { unheard, undecided } = self.returned(&id, now);
            self.send(&id, now);
            for (waiting, is_own) in [(unheard, false), (undecided, true)] {
                if !waiting.is_empty() {
                    let group = Group { waiting: waiting.into(), is_own, ..Group::default() };
                    self.disclose_all(BTreeMap::from([(id.clone(), group)]));
                }
            }
        }
    }

    fn returned(&mut self, id: &ExperimentId, now: Duration) -> Returned {
        let mut returned = Returned::default();
        let Some(Sharing { way, roles, .. }) = &mut self.sharing else { return returned };
        let Some(Role::HandsOver { batches, backlog, seen }) = roles.get_mut(id) else {
            return returned;
        };
        let (messages, is_led) = way.collect_decisions(id).unwrap_or_else(|error| {
            log_limited(id, &error);
            (Vec::new(), false)
        });
        let mut answers = Vec::new();
        for (slot, told) in messages {
            let Some(place) = batches.iter().position(|batch| batch.slot == slot) else { continue };
            let Batch { waiting, .. } = batches.swap_remove(place);
            let outcomes = outcomes(slot, &told, waiting.len());
            for ((disclosure, answer), outcome) in waiting.into_iter().zip(outcomes) {
                match outcome {
                    COUNTED => answers.push((answer, DisclosureVerdict::Counted)),
                    DUPLICATE => answers.push((answer, DisclosureVerdict::Duplicate)),
                    _ => returned.undecided.push((disclosure, answer)),
                }
            }
        }
        let is_late = batches.iter().any(|batch| now.saturating_sub(batch.since) > PATIENCE);
        if is_led && !is_late {
            *seen = now;
        } else {
            tracing::debug!(experiment = %id, is_led, is_late, "nobody takes disclosures over");
            way.withdraw(id).inspect_err(|error| log_limited(id, error)).ok();
            returned.unheard.extend(batches.drain(..).flat_map(|batch| batch.waiting));
            returned.unheard.extend(backlog.drain(..));
            roles.remove(id);
        }
        for (answer, verdict) in answers {
            self.answer(answer, Ok(verdict));
        }
        returned
    }

    /// Gives up all leases, so that another replica can lead at once.
    pub(super) fn leave(&mut self) {
        let Some(Sharing { way, roles, .. }) = &mut self.sharing else { return };
        let leads = |role: &Role| matches!(role, Role::Leads { .. });
        for (id, _) in roles.iter().filter(|(_, role)| leads(role)) {
            way.resign(id).inspect_err(|error| log_limited(id, error)).ok();
        }
    }
}

impl Group {
    /// Adds the readable disclosures of another replica's batch.
    fn take(&mut self, (slot, handed): HandoverMessage, experiment: &TrustedExperiment) -> Taken {
        let read: Option<Handed> = stored::from_bytes(&handed).ok();
        let is_meant = |read: &Handed| {
            (read.replica, read.number) == (slot.replica, slot.number)
                && read.experiment == experiment.id.as_str()
        };
        let disclosures = read.filter(is_meant).map(|read| read.disclosures).unwrap_or_default();
        let outcomes = disclosures.iter().map(|_| AtomicU8::new(UNDECIDED)).collect();
        let outcomes = Arc::new(Outcomes(outcomes));
        for (place, disclosure) in disclosures.into_iter().enumerate() {
            if let Some(disclosure) = disclosure.read(experiment) {
                let answer = Answer::Partner(Arc::clone(&outcomes), place);
                self.waiting.push_back((disclosure, answer));
            }
        }
        Taken { slot, outcomes }
    }
}

impl Taken {
    fn told(self) -> Option<HandoverMessage> {
        let Self { slot, outcomes } = self;
        let outcomes = outcomes.0.iter().map(|outcome| outcome.load(Ordering::Relaxed)).collect();
        let told = BatchOutcomes { replica: slot.replica, number: slot.number, outcomes };
        stored::to_bytes(&told).ok().map(|told| (slot, told))
    }
}

/// The reported outcomes of a batch of `most` disclosures; all undecided if the report is
/// unreadable.
fn outcomes(slot: Slot, told: &[u8], most: usize) -> Vec<u8> {
    let told: Option<BatchOutcomes> = stored::from_bytes(told).ok();
    let is_meant =
        |told: &BatchOutcomes| (told.replica, told.number) == (slot.replica, slot.number);
    let outcomes = told.filter(is_meant).map(|told| told.outcomes);
    let outcomes = outcomes.filter(|outcomes| outcomes.len() == most);
    outcomes.unwrap_or_else(|| vec![UNDECIDED; most])
}

/// Logs a failed handover at debug: callers can cause any number, and the failure is harmless.
fn log_limited(id: &ExperimentId, error: &StoreError) {
    tracing::debug!(experiment = %id, error = explain(error), "disclosures are not handed over");
}
