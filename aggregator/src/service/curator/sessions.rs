//! Sessions in memory: what the store has of them, with the hypothesis that follows from it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rand::Rng;
use tonic::Status;

use super::{Inner, internal, refuse, unreadable, unshelved};
use crate::curator::CuratorError;
use crate::curator::universe::Universe;
use crate::curator::weights::{MultiplicativeWeights, Round, SessionPlan};
use crate::store::{CuratorName, CuratorRefusal, SessionRecord};

/// Most sessions whose hypotheses are in memory; the others are rebuilt when they are asked.
const SESSIONS_MAX: usize = 16;

/// Sessions that were asked.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<CuratorName, Arc<Mutex<LoadedSession>>>>);

/// A session as of the last update that was heard of.
#[derive(Debug)]
pub(super) struct LoadedSession {
    universe: Universe,
    histogram: Vec<u64>,
    weights: MultiplicativeWeights,
}

impl Sessions {
    /// The session of this name.
    pub(super) fn load(
        &self,
        name: &CuratorName,
        inner: &Inner,
    ) -> Result<Arc<Mutex<LoadedSession>>, Status> {
        let kept = |sessions: &HashMap<_, Arc<_>>| sessions.get(name).map(Arc::clone);
        if let Some(session) = kept(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(session);
        }
        let record = inner.reader.session(name).map_err(unreadable)?;
        let none = || Status::not_found(CuratorRefusal::NoSession(name.clone()).to_string());
        let session = Arc::new(Mutex::new(LoadedSession::new(&record.ok_or_else(none)?, inner)?));
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= SESSIONS_MAX {
            sessions.clear();
        }
        sessions.insert(name.clone(), Arc::clone(&session));
        Ok(session)
    }
}

impl LoadedSession {
    fn new(record: &SessionRecord, inner: &Inner) -> Result<Self, Status> {
        let data_set = inner.record(&record.data_set)?;
        let rows = inner.shelf.rows(&data_set).map_err(unshelved)?;
        let columns: Vec<&str> = record.columns.lines().collect();
        let universe = rows.schema().universe(&columns).map_err(refuse)?;
        let plan: SessionPlan = serde_json::from_str(&record.plan)
            .map_err(|error| internal("the session's plan can't be read", error))?;
        let (count, cells) = (rows.count(), universe.cells());
        let weights = MultiplicativeWeights::new(plan, count, cells, record.threshold_noise);
        let histogram = rows.histogram(&universe);
        Ok(Self { universe, histogram, weights: weights.map_err(refuse)? })
    }

    /// Takes the updates that were committed since, by whichever replica.
    pub(super) fn follow(&mut self, name: &CuratorName, inner: &Inner) -> Result<(), Status> {
        let updates = inner.reader.session_updates(name, self.weights.used());
        for update in updates.map_err(unreadable)? {
            let query = self.universe.select(&update.predicate).map_err(refuse)?;
            self.weights.update(&query, update.answer).map_err(refuse)?;
        }
        Ok(())
    }

    /// Answers a query. An update takes effect when it has been committed and is heard of.
    pub(super) fn ask<R: Rng + ?Sized>(
        &self,
        predicate: &str,
        rng: &mut R,
    ) -> Result<Round, CuratorError> {
        let query = self.universe.select(predicate)?;
        self.weights.ask(&self.histogram, &query, rng)
    }

    /// Updates so far.
    pub(super) fn used(&self) -> u32 {
        self.weights.used()
    }

    /// Most updates.
    pub(super) fn updates(&self) -> u32 {
        self.weights.plan().updates()
    }
}
