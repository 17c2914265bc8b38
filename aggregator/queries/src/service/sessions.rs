//! Sessions in memory: their stored state, and the hypothesis computed from it.
//!
//! Rounds of a session are made one after the other. A round compares a query with the store's
//! state, and its result is sent once the store has added the round to exactly that state. The
//! result of a round that could not be added is dropped. Whether a round can be added does not
//! depend on the result of the comparison: rounds without an update are added, too. So all callers,
//! on all replicas, see one transcript of the sparse vector technique.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bandana_mechanisms::queries::cells::CellSet;
use bandana_mechanisms::queries::threshold::RunKey;
use bandana_mechanisms::queries::universe::Universe;
use bandana_mechanisms::queries::weights::{
    MultiplicativeWeights, Round, SessionPlan, SessionSecret,
};
use bandana_shared::wire::v1::AskSessionResponse;
use bandana_store::{CuratorName, CuratorRefusal, SessionRecord, SessionRound, SessionUpdate};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::kept::KeptQuestion;
use super::{Inner, generator, internal, refuse, unreadable};

/// Most sessions whose hypotheses are in memory; others are rebuilt on demand.
const SESSIONS_MAX: usize = 16;

/// Most questions that wait for one session.
const WAITING_MAX: usize = 256;

/// Updates that are read from the store at a time: predicates can be as large as requests.
const UPDATES_AT_ONCE: u32 = 64;

/// The longest time that a question waits for those before it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A plan as it is stored, with the key of a session of ρ and what was promised beside it. Plans of
/// earlier versions have neither, and a version that knows no keys can't read a plan that has one.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredPlan {
    #[serde(flatten)]
    plan: SessionPlan,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<[u8; 32]>,
    /// The promised accuracy in rows, if one is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accuracy: Option<f64>,
}

impl StoredPlan {
    /// The stored form of a plan, its secret and its promise, and the noise of the threshold.
    pub(super) fn of(plan: SessionPlan, secret: SessionSecret, accuracy: f64) -> (Self, i64) {
        let accuracy = (accuracy > 0.0).then_some(accuracy);
        match secret {
            SessionSecret::Threshold(noise) => (Self { plan, key: None, accuracy }, noise),
            SessionSecret::Key(key) => (Self { plan, key: Some(key.to_bytes()), accuracy }, 0),
        }
    }

    fn with(self, threshold_noise: i64) -> (SessionPlan, SessionSecret) {
        let key = self.key.map(|key| SessionSecret::Key(RunKey::from_bytes(key)));
        (self.plan, key.unwrap_or(SessionSecret::Threshold(threshold_noise)))
    }
}

/// The sessions that were asked.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<CuratorName, Slot>>);

/// The slot of a session, whether the session is in memory or not.
#[derive(Clone, Debug)]
struct Slot {
    session: Arc<AsyncMutex<Option<LoadedSession>>>,
    places: Arc<Semaphore>,
}

/// A session that is locked against other calls in this process.
#[derive(Debug)]
pub(super) struct HeldSession {
    name: CuratorName,
    session: OwnedMutexGuard<Option<LoadedSession>>,
    _place: OwnedSemaphorePermit,
}

/// A session as of the last known update.
#[derive(Debug)]
struct LoadedSession {
    data_set: CuratorName,
    universe: Universe,
    histogram: Vec<u64>,
    weights: MultiplicativeWeights,
    /// The promised accuracy in rows, or 0.
    accuracy: f64,
    /// The store's number of rounds at the last read.
    rounds: u64,
    /// The last predicate, and its cells.
    selected: Option<(String, CellSet)>,
}

/// A question to a session.
#[derive(Clone, Debug)]
pub(super) struct SessionQuestion {
    pub(super) predicate: String,
    /// The question's key, if it has an id.
    pub(super) question: Option<KeptQuestion>,
}

/// An answer, with the round to store before the answer is sent. No round: the answer was sent
/// before.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) round: Option<SessionRound>,
    pub(super) answer: AskSessionResponse,
}

impl Sessions {
    /// Waits for exclusive use of the session with this name, in order of arrival.
    pub(super) async fn hold(&self, name: CuratorName) -> Result<HeldSession, Status> {
        let Slot { session, places } = self.slot(&name);
        let place = places.try_acquire_owned().map_err(|_| {
            let message = format!("{WAITING_MAX} questions wait for this session; ask again later");
            Status::resource_exhausted(message)
        })?;
        let held = tokio::time::timeout(PATIENCE, session.lock_owned()).await;
        let session = held.map_err(|_| {
            Status::unavailable("the questions before this one take too long; ask again later")
        })?;
        Ok(HeldSession { name, session, _place: place })
    }

    fn slot(&self, name: &CuratorName) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= SESSIONS_MAX && !slots.contains_key(name) {
            slots.retain(|_, slot| Arc::strong_count(&slot.session) > 1);
        }
        let slot = slots.entry(name.clone()).or_insert_with(|| Slot {
            session: Arc::default(),
            places: Arc::new(Semaphore::new(WAITING_MAX)),
        });
        slot.clone()
    }
}

impl HeldSession {
    /// Compares a query with the store's present state, unless the query was answered before.
    pub(super) fn compare(
        &mut self,
        SessionQuestion { predicate, question }: &SessionQuestion,
        inner: &Inner,
    ) -> Result<Compared, Status> {
        if let Some(question) = question
            && let Some(answer) = question.answer(inner)?
        {
            return Ok(Compared { round: None, answer });
        }
        // An error on the way must not leave a partial state behind.
        let kept = self.session.take();
        let mut session = LoadedSession::current(kept, &self.name, inner)?;
        let compared = session.compare(&self.name, predicate);
        *self.session = Some(session);
        compared
    }
}

impl LoadedSession {
    /// The session in the store's present state.
    fn current(kept: Option<Self>, name: &CuratorName, inner: &Inner) -> Result<Self, Status> {
        let none = || Status::not_found(CuratorRefusal::NoSession(name.clone()).to_string());
        // In this order: updates of later rounds do no harm, since a round that is based on them is
        // not added.
        let rounds = inner.reader.session_rounds(name).map_err(unreadable)?.ok_or_else(none)?;
        // A store that was set back in time has another state under the same name.
        let kept = kept.filter(|session| session.rounds <= rounds);
        let mut session = if let Some(session) = kept {
            // Its file may be another one by now, or gone.
            inner.rows(&inner.record(&session.data_set)?)?;
            session
        } else {
            let record = inner.reader.session(name).map_err(unreadable)?;
            Self::new(&record.ok_or_else(none)?, inner)?
        };
        session.rounds = rounds;
        session.follow(name, inner)?;
        Ok(session)
    }

    fn new(record: &SessionRecord, inner: &Inner) -> Result<Self, Status> {
        let data_set = inner.record(&record.data_set)?;
        let rows = inner.rows(&data_set)?;
        let columns: Vec<&str> = record.columns.lines().collect();
        let universe = rows.schema().universe_of_places(&columns).map_err(refuse)?;
        let stored: StoredPlan = serde_json::from_str(&record.plan)
            .map_err(|error| internal("the session's plan can't be read", error))?;
        let accuracy = stored.accuracy.unwrap_or(0.0);
        let (plan, secret) = stored.with(record.threshold_noise);
        let (count, cells) = (rows.count(), universe.cells());
        let weights = MultiplicativeWeights::new(plan, count, cells, secret);
        let (histogram, weights) = (rows.histogram(&universe), weights.map_err(refuse)?);
        let data_set = data_set.name;
        Ok(Self { data_set, universe, histogram, weights, accuracy, rounds: 0, selected: None })
    }

    /// Applies the updates committed since the last read, by any replica.
    fn follow(&mut self, name: &CuratorName, inner: &Inner) -> Result<(), Status> {
        loop {
            let updates = inner.reader.session_updates(name, self.weights.used(), UPDATES_AT_ONCE);
            let updates = updates.map_err(unreadable)?;
            let is_last = updates.len() < UPDATES_AT_ONCE as usize;
            for update in updates {
                let query = self.select(&update.predicate)?;
                self.weights.update(&query, update.answer).map_err(refuse)?;
                self.selected = Some((update.predicate, query));
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn select(&mut self, predicate: &str) -> Result<CellSet, Status> {
        match self.selected.take() {
            Some((text, cells)) if text == predicate => Ok(cells),
            _ => self.universe.select(predicate).map_err(refuse),
        }
    }

    /// Makes a round. An update takes effect once it has been committed and read back.
    fn compare(&mut self, name: &CuratorName, predicate: &str) -> Result<Compared, Status> {
        let query = self.select(predicate)?;
        let round = self.weights.ask(&self.histogram, &query, &mut generator()?).map_err(refuse)?;
        self.selected = Some((predicate.to_owned(), query));
        let (session, used) = (name.clone(), self.weights.used());
        let updates_left = self.weights.plan().updates().saturating_sub(used);
        let (answer, updated, update) = match round {
            Round::Lazy { answer } => (answer, false, None),
            Round::Update { answer: told } => {
                let (session, predicate) = (session.clone(), predicate.to_owned());
                let update = SessionUpdate { session, number: used, predicate, answer: told };
                (told as f64, true, Some(update))
            }
        };
        let updates_left = updates_left.saturating_sub(u32::from(updated));
        let accuracy = self.accuracy;
        let answer = AskSessionResponse { answer, updated, updates_left, kept: false, accuracy };
        let round = SessionRound { session, number: self.rounds, update };
        Ok(Compared { round: Some(round), answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_mechanisms::queries::price::{ConcentratedLoss, Price, PureLoss};

    #[test]
    fn plans_of_earlier_versions_are_read_and_written_as_they_were() {
        let earlier = r#"{"nanos":[1,2,3],"updates":7,"threshold":800,"gap":400,"slack":5}"#;
        let stored: StoredPlan = serde_json::from_str(earlier).unwrap();
        let (plan, secret) = stored.with(-17);
        assert_eq!(secret, SessionSecret::Threshold(-17));
        assert_eq!((plan.updates(), plan.threshold(), plan.loss_nanos()), (7, 800, 6));
        let (stored, noise) = StoredPlan::of(plan, secret, 0.0);
        assert_eq!((serde_json::to_string(&stored).unwrap().as_str(), noise), (earlier, -17));
    }

    #[test]
    fn keys_are_stored_with_the_plans_that_need_them() {
        let rho = Price::Concentrated(ConcentratedLoss::new(0.5).unwrap());
        let plan = SessionPlan::chosen(rho, 20, 300).unwrap();
        let secret = SessionSecret::Key(RunKey::from_bytes([9; 32]));
        let (stored, noise) = StoredPlan::of(plan, secret.clone(), 12.5);
        let text = serde_json::to_string(&stored).unwrap();
        assert!(text.starts_with(r#"{"runs":{"step":"#) && !text.contains("nanos"), "{text}");
        let again: StoredPlan = serde_json::from_str(&text).unwrap();
        assert_eq!(again.accuracy, Some(12.5));
        assert_eq!(again.with(noise), (plan, secret));
        let pure = Price::Pure(PureLoss::new(0.5).unwrap());
        let plan = SessionPlan::chosen(pure, 20, 300).unwrap();
        let (stored, noise) = StoredPlan::of(plan, SessionSecret::Threshold(5), 0.0);
        let text = serde_json::to_string(&stored).unwrap();
        assert!(text.starts_with(r#"{"nanos":["#) && noise == 5, "{text}");
    }
}
