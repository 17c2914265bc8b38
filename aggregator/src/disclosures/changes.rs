//! Changes of trusted experiments, as committed by the disclosure writer.

use std::sync::Arc;

use bandana_edge::explain::explain;
use bandana_shared::identity::{Day, ExperimentId, UnixSeconds, UploadId};
use bandana_shared::stored;
use bandana_store::{
    AuditAction, AuditEntry, DatabaseError, ExperimentState, Outcome, StoreError, StoreRefusal,
    TrustedChange, TrustedCommit, TrustedRecord, TrustedRefusal, TrustedVersion,
};
use bandana_zcdp::state::SecretState;
use prost::Message as _;

use super::handle::{Creation, Movement, Step};
use super::{ATTEMPTS, DisclosureWriter, Setback};
use crate::ingest::ExperimentChangeError;
use crate::trusted::TrustedExperiment;

impl DisclosureWriter {
    pub(super) fn commit(
        &self,
        experiment: &Arc<TrustedExperiment>,
        next: SecretState,
        disclosures: Vec<(Day, UploadId)>,
    ) -> Result<(), Setback> {
        let (id, from) = (experiment.id.clone(), experiment.version);
        let to = from.next().map_err(|error| self.unmade(&id, &error))?;
        let (private, released) = encode(&next).map_err(|error| self.unmade(&id, &error))?;
        let commit = TrustedCommit { id, from, to, private, released, disclosures };
        self.apply_trusted_change(&experiment.id, to, TrustedChange::Commit(commit))?;
        self.registry.trusted().advance(experiment.with(to, next), from);
        Ok(())
    }

    pub(super) fn move_window(
        &self,
        experiment: &Arc<TrustedExperiment>,
        today: Day,
        back: u32,
    ) -> Result<(), Setback> {
        let (id, from) = (experiment.id.clone(), experiment.version);
        let to = from.next().map_err(|error| self.unmade(&id, &error))?;
        self.apply_trusted_change(
            &experiment.id,
            to,
            TrustedChange::Window { id, from, to, today, back },
        )?;
        // The database may have an earlier day.
        self.reload(&experiment.id).map(drop).map_err(|_| Setback::Store)
    }

    /// Commits a change that results in a new version. If the outcome is unknown, asks the store
    /// whether it has that version.
    fn apply_trusted_change(
        &self,
        id: &ExperimentId,
        to: TrustedVersion,
        change: TrustedChange,
    ) -> Result<(), Setback> {
        let error = match self.ingest.apply_trusted_change(change) {
            Ok(()) => return Ok(()),
            Err(ExperimentChangeError::Store(StoreError::Refused(StoreRefusal::Trusted(
                refusal,
            )))) => {
                return Err(match *refusal {
                    TrustedRefusal::Moved => Setback::Moved,
                    TrustedRefusal::Known(names) => Setback::Known(names),
                    TrustedRefusal::Future { latest } => Setback::Future(latest),
                });
            }
            Err(ExperimentChangeError::Store(error)) => error,
            Err(_) => return Err(Setback::Ended),
        };
        if error.outcome() != Outcome::Unknown {
            return Err(self.unmade(id, &error));
        }
        tracing::warn!(experiment = %id, error = explain(&error), "the outcome is unknown; looking");
        let found = self.reload(id).map_err(|_| Setback::Store)?;
        if found == Some(to) { Ok(()) } else { Err(Setback::Unknown) }
    }

    /// Publishes an experiment as it is in the store, unless a newer state was published meanwhile.
    /// Returns its version in the store.
    pub(super) fn reload(&self, id: &ExperimentId) -> Result<Option<TrustedVersion>, StoreError> {
        let experiments = self.registry.trusted();
        let known = experiments.get(id).map(|shown| shown.version);
        let show = |record: Option<TrustedRecord>| {
            let found = record.as_ref().map(|record| record.version);
            match (record, known) {
                (Some(record), _) => experiments.follow(record, known)?,
                (None, Some(known)) => experiments.remove(id, known),
                (None, None) => {}
            }
            Ok(found)
        };
        let found = self.reader.trusted(Some(id)).and_then(|found| show(found.into_iter().next()));
        found.inspect_err(|error| self.log_limited(id, error, "it can't be read"))
    }

    pub(super) fn look_up(
        &self,
        id: &ExperimentId,
        names: &[(Day, UploadId)],
    ) -> Result<Vec<(Day, UploadId)>, Setback> {
        self.reader.disclosed(id, names).map_err(|error| self.unmade(id, &error))
    }

    /// Records that nothing was changed, and logs the reason.
    fn unmade(&self, id: &ExperimentId, error: &StoreError) -> Setback {
        self.log_limited(id, error, "nothing was committed");
        Setback::Store
    }

    /// Logs an error, unless it is already in the log. Callers can cause any number of either kind.
    fn log_limited(&self, id: &ExperimentId, error: &StoreError, what: &str) {
        if matches!(error, StoreError::Database(DatabaseError::Silent)) {
            tracing::debug!(experiment = %id, "{what}: the database does not answer");
        } else if let Some(more) = self.failures.next() {
            tracing::error!(experiment = %id, error = explain(error), more, "{what}");
        }
    }

    fn entry(
        &self,
        caller: &str,
        action: AuditAction,
        id: &ExperimentId,
        detail: String,
    ) -> AuditEntry {
        let at = UnixSeconds::new(self.clock.unix_seconds());
        AuditEntry { at, caller: caller.to_owned(), action, experiment: id.clone(), detail }
    }

    pub(super) fn create(
        &mut self,
        creation: Creation,
    ) -> Result<Arc<TrustedExperiment>, ExperimentChangeError> {
        let Creation { caller, id, plan, secret } = creation;
        let version = TrustedVersion { sequence: 0, stamp: 0 }.next()?;
        let (private, released) = encode(&secret)?;
        let today = self.today.get(Day::new(0));
        let record = TrustedRecord {
            id: id.clone(),
            specification: plan.message(&id).encode_to_vec(),
            state: ExperimentState::Running,
            version,
            oldest: today.back(self.window_days.saturating_sub(1)),
            private: Some(private),
            released,
            is_archived: false,
        };
        let experiment = Arc::new(TrustedExperiment::try_from(&record)?);
        let entry = self.entry(&caller, AuditAction::Create, &id, plan.words());
        let change = TrustedChange::Create(record.clone(), entry);
        if let Err(error) = self.ingest.apply_trusted_change(change) {
            self.resolve(&id, version, error)?;
        }
        // The database may have an earlier day, and another replica may have changed the window
        // since.
        if self.reload(&id).is_err() {
            self.registry.trusted().follow(record, None)?;
        }
        Ok(experiment)
    }

    pub(super) fn move_to(
        &self,
        movement: &Movement,
    ) -> Result<Option<Arc<TrustedExperiment>>, ExperimentChangeError> {
        let Movement { caller, id, step } = movement;
        let mut is_fresh = false;
        for _ in 0..ATTEMPTS {
            let Some(experiment) = self.registry.trusted().get(id) else { return Ok(None) };
            let (from, to) = states(*step);
            if !from.contains(&experiment.state) && !is_fresh {
                // Another replica may have changed the state just now.
                self.reload(id).map_err(StoreError::unmade)?;
                is_fresh = true;
                continue;
            }
            if !from.contains(&experiment.state) {
                return Err(ExperimentChangeError::State { state: experiment.state, from });
            }
            if step.archives() == Some(experiment.is_archived) {
                return Ok(Some(experiment));
            }
            let version = experiment.version.next()?;
            match self.ingest.apply_trusted_change(self.change(caller, &experiment, *step, version))
            {
                Ok(()) => return Ok(Some(self.changed(&experiment, *step, to, version))),
                Err(ExperimentChangeError::Store(StoreError::Refused(StoreRefusal::Trusted(
                    _,
                )))) => {
                    self.reload(&experiment.id).map_err(StoreError::unmade)?;
                }
                Err(error) => {
                    let wanted = (*step != Step::Delete).then_some(version);
                    self.resolve_as(&experiment.id, wanted, error)?;
                    let shown = self.registry.trusted().get(&experiment.id);
                    return Ok(shown.or(Some(experiment)));
                }
            }
        }
        Err(StoreError::from(TrustedRefusal::Moved).into())
    }

    /// The change to commit to the store.
    fn change(
        &self,
        caller: &str,
        experiment: &TrustedExperiment,
        step: Step,
        to: TrustedVersion,
    ) -> TrustedChange {
        let (id, from) = (experiment.id.clone(), experiment.version);
        match step {
            Step::Move(transition) => {
                let state = transition.to();
                let detail = format!("trusted, {} -> {}", experiment.state.name(), state.name());
                let entry = self.entry(caller, transition.action(), &id, detail);
                TrustedChange::Move { id, from, to, state, entry }
            }
            Step::Archive | Step::Unarchive => {
                let is_archived = step == Step::Archive;
                let action =
                    if is_archived { AuditAction::Archive } else { AuditAction::Unarchive };
                let entry = self.entry(caller, action, &id, "trusted".to_owned());
                TrustedChange::Archive { id, from, to, entry }
            }
            Step::Delete => {
                let (rewards, releases) =
                    (experiment.released.rewards(), experiment.released.releases());
                let detail = format!("trusted, {rewards} rewards, {releases} releases");
                let entry = self.entry(caller, AuditAction::Delete, &id, detail);
                TrustedChange::Delete { id, from, entry }
            }
        }
    }

    /// Publishes a committed change.
    fn changed(
        &self,
        experiment: &Arc<TrustedExperiment>,
        step: Step,
        state: ExperimentState,
        version: TrustedVersion,
    ) -> Arc<TrustedExperiment> {
        let experiments = self.registry.trusted();
        let from = experiment.version;
        if step == Step::Delete {
            experiments.remove(&experiment.id, from);
            return Arc::clone(experiment);
        }
        let secret = experiment.secret.clone().filter(|_| state != ExperimentState::Stopped);
        let is_archived = step.archives().unwrap_or(experiment.is_archived);
        let changed =
            TrustedExperiment { state, version, secret, is_archived, ..(**experiment).clone() };
        experiments.advance(changed, from);
        experiments.get(&experiment.id).unwrap_or_else(|| Arc::clone(experiment))
    }

    /// Resolves an unknown outcome: whether the store has this version. Any other error is returned
    /// unchanged.
    fn resolve(
        &self,
        id: &ExperimentId,
        version: TrustedVersion,
        error: ExperimentChangeError,
    ) -> Result<(), ExperimentChangeError> {
        self.resolve_as(id, Some(version), error)
    }

    /// Like `resolve`. None: whether the store has no such experiment.
    fn resolve_as(
        &self,
        id: &ExperimentId,
        wanted: Option<TrustedVersion>,
        error: ExperimentChangeError,
    ) -> Result<(), ExperimentChangeError> {
        let is_unknown = matches!(
            &error,
            ExperimentChangeError::Store(error) if error.outcome() == Outcome::Unknown
        );
        let is_made = || self.reload(id).is_ok_and(|found| found == wanted);
        if is_unknown && is_made() { Ok(()) } else { Err(error) }
    }
}

/// The states in which a step is valid, and the resulting state.
fn states(step: Step) -> (&'static [ExperimentState], ExperimentState) {
    match step {
        Step::Move(transition) => (transition.from(), transition.to()),
        Step::Archive | Step::Unarchive | Step::Delete => {
            (&[ExperimentState::Stopped], ExperimentState::Stopped)
        }
    }
}

/// The secret and the released state in stored form.
fn encode(secret: &SecretState) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
    Ok((stored::to_bytes(secret)?, stored::to_bytes(&secret.released())?))
}
