//! Changes of experiments, made on the thread that owns the store.

use std::sync::Arc;

use bandana_learners::LearnerConfig;
use bandana_learners::{LearnerError, LearnerInput};
use bandana_shared::identity::ExperimentId;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1::{HarmAction, SetRecordRequest};
use bandana_store::{
    AuditAction, AuditEntry, CuratorChange, EpochToAdd, ExperimentRecord, ExperimentState, Outcome,
    RecordError, StoreError, StoreRefusal, Transition, TrustedChange, WrittenRecord,
};

use super::harm::acknowledged;
use super::writer::{Writer, WriterError};
use super::{ExperimentChange, ExperimentChangeError, ExperimentCommand, Revise};
use crate::registry::{Experiment, PublishedExperiment, Revision};

/// States in which the arms can change.
const OPEN: &[ExperimentState] =
    &[ExperimentState::Draft, ExperimentState::Running, ExperimentState::Paused];

/// States in which an experiment can be archived and deleted.
const ENDED: &[ExperimentState] = &[ExperimentState::Stopped];

/// Most attempts at a change, when other replicas are first.
const ATTEMPTS: usize = 5;

impl Writer {
    /// Makes a change of an experiment. The outer error ends the writer, the inner one is for the
    /// caller.
    pub(super) fn administer(
        &mut self,
        order: ExperimentCommand,
    ) -> Result<Result<Arc<Experiment>, ExperimentChangeError>, WriterError> {
        let ExperimentCommand { caller, administration } = order;
        let mut outcome = self.attempt(&caller, &administration);
        for _ in 1..ATTEMPTS {
            match outcome {
                Err(ExperimentChangeError::Store(StoreError::Refused(StoreRefusal::Outdated(
                    record,
                )))) => {
                    self.registry.publish(*record)?;
                    outcome = self.attempt(&caller, &administration);
                }
                Err(ExperimentChangeError::Store(StoreError::Refused(
                    StoreRefusal::ExperimentGone(id),
                ))) => {
                    // Another replica was first.
                    if let Some(experiment) = administration.experiment() {
                        self.registry.remove(experiment);
                    }
                    outcome = Err(ExperimentChangeError::Gone(id));
                }
                _ => break,
            }
        }
        match outcome {
            Err(ExperimentChangeError::Store(error)) if error.outcome() == Outcome::Fatal => {
                Err(error.into())
            }
            Err(ExperimentChangeError::Store(error)) => {
                if error.outcome() == Outcome::Unknown {
                    self.log_limited(&error, "a change may not have been made");
                }
                Ok(Err(error.into()))
            }
            other => Ok(other),
        }
    }

    /// Makes a change for the curator. The outer error ends the writer, the inner one is for the
    /// caller.
    pub(super) fn apply_query_change(
        &mut self,
        change: &CuratorChange,
    ) -> Result<Result<(), ExperimentChangeError>, WriterError> {
        match self.store.apply_query_change(change) {
            Err(error) if error.outcome() == Outcome::Fatal => Err(error.into()),
            Err(error) => {
                if error.outcome() == Outcome::Unknown {
                    self.log_limited(&error, in_doubt(change));
                }
                Ok(Err(error.into()))
            }
            Ok(()) => Ok(Ok(())),
        }
    }

    /// Makes a change of a trusted experiment. The outer error ends the writer, the inner one is
    /// for the caller.
    pub(super) fn apply_trusted_change(
        &mut self,
        change: &TrustedChange,
    ) -> Result<Result<(), ExperimentChangeError>, WriterError> {
        Ok(for_caller(self.store.apply_trusted_change(change))?
            .map_err(ExperimentChangeError::from))
    }

    /// Adds an epoch to the public log. The outer error ends the writer, the inner one is for the
    /// caller.
    pub(super) fn add_epoch(
        &mut self,
        addition: &EpochToAdd,
    ) -> Result<Result<(), StoreError>, WriterError> {
        for_caller(self.store.add_epoch(addition))
    }

    fn attempt(
        &mut self,
        caller: &str,
        administration: &ExperimentChange,
    ) -> Result<Arc<Experiment>, ExperimentChangeError> {
        if let Some(experiment) = administration.experiment()
            && !self.registry.shows(experiment)
        {
            return Err(ExperimentChangeError::Gone(experiment.id().clone()));
        }
        let record = match administration {
            ExperimentChange::Create { specification, config, record, is_draft } => {
                self.create(caller, (specification, record), *config, *is_draft)
            }
            ExperimentChange::Move { experiment, transition } => {
                self.set_state(caller, experiment, *transition)
            }
            ExperimentChange::Revise { experiment, change } => {
                self.revise(caller, experiment, change.clone())
            }
            ExperimentChange::Archive { experiment, is_archived } => {
                match self.archive(caller, experiment, *is_archived)? {
                    Some(record) => Ok(record),
                    None => return Ok(Arc::clone(experiment)),
                }
            }
            ExperimentChange::Record { experiment, request } => {
                match self.set_record(caller, experiment, request)? {
                    Some(record) => Ok(record),
                    None => return Ok(Arc::clone(experiment)),
                }
            }
            ExperimentChange::PauseForHarm { experiment } => {
                match self.pause_for_harm(caller, experiment)? {
                    Some(record) => Ok(record),
                    None => return Ok(Arc::clone(experiment)),
                }
            }
            ExperimentChange::Delete { experiment } => return self.delete(caller, experiment),
            ExperimentChange::AddSignature { revision, signature } => {
                self.add_signature(caller, revision, signature)
            }
        }?;
        Ok(self.registry.publish(record)?)
    }

    pub(super) fn entry(
        &self,
        caller: &str,
        action: AuditAction,
        experiment: &ExperimentId,
        detail: String,
    ) -> AuditEntry {
        let (caller, experiment) = (caller.to_owned(), experiment.clone());
        AuditEntry { at: self.now(), caller, action, experiment, detail }
    }

    fn create(
        &mut self,
        caller: &str,
        (specification, record): (&Specification, &WrittenRecord),
        config: LearnerConfig,
        is_draft: bool,
    ) -> Result<ExperimentRecord, ExperimentChangeError> {
        let state = if is_draft { ExperimentState::Draft } else { ExperimentState::Running };
        // Nothing is stored unless the learner can work with it.
        beginning(specification, config)?;
        self.check_layer(specification)?;
        let terms = record.differences(&WrittenRecord::default());
        let terms = if terms.is_empty() { terms } else { format!(", {terms}") };
        let detail = format!(
            "{}, epsilon {}, {} arms, learner {}{}{}{terms}, digest {}",
            state.name(),
            specification.epsilon().get(),
            specification.arms().len(),
            config.learner.name(),
            config.memory,
            config.guardrails,
            specification.digest()
        );
        let id = specification.experiment_id();
        let entry = self.entry(caller, AuditAction::Create, id, detail);
        Ok(self.store.create_experiment_with(specification, (config, record), state, &entry)?)
    }

    /// Checks that no experiment that can still get reports has the same installations by its layer,
    /// as far as this process knows. A store that others change too checks it again.
    fn check_layer(&self, specification: &Specification) -> Result<(), ExperimentChangeError> {
        let Some(part) = &specification.participation().layer else { return Ok(()) };
        for experiment in self.registry.all() {
            let serving = experiment.serving();
            let other = serving.specification.participation().layer.as_ref();
            let other = other.filter(|other| OPEN.contains(&serving.state) && other.overlaps(part));
            if let Some(other_part) = other {
                let (part, other) = (part.clone(), experiment.id().clone());
                let other_part = other_part.clone();
                let overlap = StoreRefusal::LayerOverlap { part, other, other_part };
                return Err(StoreError::Refused(overlap).into());
            }
        }
        Ok(())
    }

    fn set_state(
        &mut self,
        caller: &str,
        experiment: &Experiment,
        transition: Transition,
    ) -> Result<ExperimentRecord, ExperimentChangeError> {
        let serving = experiment.serving();
        let (from, to) = (transition.from(), transition.to());
        if !from.contains(&serving.state) {
            return Err(ExperimentChangeError::State { state: serving.state, from });
        }
        let detail = format!("{} -> {}", serving.state.name(), to.name());
        let expected = serving.expected(experiment.key());
        if transition == Transition::Resume
            && let Some((record, although)) = acknowledged(&serving)
        {
            let detail = detail + &although;
            let entry = self.entry(caller, transition.action(), experiment.id(), detail);
            let records = (&*serving.written, &record);
            return Ok(self.store.set_state_and_record(expected, to, records, &entry)?);
        }
        let entry = self.entry(caller, transition.action(), experiment.id(), detail);
        Ok(self.store.set_state(expected, to, &entry)?)
    }

    /// Archives or unarchives an experiment. None: nothing changes, since another caller was first.
    fn archive(
        &mut self,
        caller: &str,
        experiment: &Experiment,
        is_archived: bool,
    ) -> Result<Option<ExperimentRecord>, ExperimentChangeError> {
        let serving = stopped(experiment)?;
        if serving.is_archived == is_archived {
            return Ok(None);
        }
        let action = if is_archived { AuditAction::Archive } else { AuditAction::Unarchive };
        let entry = self.entry(caller, action, experiment.id(), String::new());
        Ok(Some(self.store.archive(serving.expected(experiment.key()), &entry)?))
    }

    /// Writes the record of an experiment. None: nothing changes.
    fn set_record(
        &mut self,
        caller: &str,
        experiment: &Experiment,
        request: &SetRecordRequest,
    ) -> Result<Option<ExperimentRecord>, ExperimentChangeError> {
        let serving = experiment.serving();
        let before = &*serving.written;
        let limits = &serving.specification.measurement().metrics;
        if request.on_harm() == HarmAction::Pause && limits.iter().all(|one| one.limit().is_none())
        {
            return Err(RecordError::NoLimit.into());
        }
        let record = before.changed(request, serving.specification.arms().len())?;
        let record = record.with_costs(&request.arm_costs, &serving.specification)?;
        if record == *before {
            return Ok(None);
        }
        let detail = record.differences(before);
        let entry = self.entry(caller, AuditAction::SetRecord, experiment.id(), detail);
        let expected = serving.expected(experiment.key());
        Ok(Some(self.store.set_record(expected, (before, &record), &entry)?))
    }

    /// Deletes an experiment, and returns its former state.
    fn delete(
        &mut self,
        caller: &str,
        experiment: &Arc<Experiment>,
    ) -> Result<Arc<Experiment>, ExperimentChangeError> {
        let serving = stopped(experiment)?;
        let (revision, reports) = (serving.specification.revision(), experiment.reports());
        let digest = serving.specification.digest();
        let detail = format!("revision {}, digest {digest}, {reports} reports", revision.get());
        let entry = self.entry(caller, AuditAction::Delete, experiment.id(), detail);
        self.store.delete(serving.expected(experiment.key()), &entry)?;
        self.registry.remove(experiment);
        Ok(Arc::clone(experiment))
    }

    fn revise(
        &mut self,
        caller: &str,
        experiment: &Arc<Experiment>,
        change: Revise,
    ) -> Result<ExperimentRecord, ExperimentChangeError> {
        let serving = experiment.serving();
        if !OPEN.contains(&serving.state) {
            return Err(ExperimentChangeError::State { state: serving.state, from: OPEN });
        }
        let current = &serving.specification;
        let labelled = |of: &Specification, arm: usize| {
            let label = of.arms().get(arm).map(|arm| arm.label().to_owned()).unwrap_or_default();
            format!("arm {arm} ({label})")
        };
        let (action, revised, what) = match change {
            Revise::Add(arm) => {
                let revised = current.with_arm(arm)?;
                let what = labelled(&revised, current.arms().len());
                (AuditAction::AddArm, revised, what)
            }
            Revise::Retire(arm) => {
                let revised = current.without_arm(arm)?;
                (AuditAction::RetireArm, revised, labelled(current, arm.get()))
            }
            Revise::Enrol(share) => {
                let what = format!("a share of {} enrolled", share.share());
                (AuditAction::SetEnrolment, current.with_enrolment(share)?, what)
            }
        };
        let config = experiment.config();
        beginning(&revised, config)?;
        let (number, digest) = (revised.revision().get(), revised.digest());
        let detail = format!("{what}, revision {number}, digest {digest}");
        let entry = self.entry(caller, action, experiment.id(), detail);
        Ok(self.store.add_revision(serving.expected(experiment.key()), &revised, &entry)?)
    }

    fn add_signature(
        &mut self,
        caller: &str,
        revision: &Revision,
        signature: &Signature,
    ) -> Result<ExperimentRecord, ExperimentChangeError> {
        let Revision { experiment, specification } = revision;
        let digest = specification.digest();
        let detail =
            format!("digest {digest}, key {}, until {}", signature.key(), signature.expires());
        let entry = self.entry(caller, AuditAction::AddSignature, experiment.id(), detail);
        let (key, now) = (experiment.key(), entry.at);
        Ok(self.store.add_signature(key, specification, signature, now, &entry)?)
    }
}

/// The outcome that the caller is told; the outer error ends the writer.
fn for_caller(outcome: Result<(), StoreError>) -> Result<Result<(), StoreError>, WriterError> {
    match outcome {
        Err(error) if error.outcome() == Outcome::Fatal => Err(error.into()),
        outcome => Ok(outcome),
    }
}

/// The message for a change whose outcome is unknown.
fn in_doubt(change: &CuratorChange) -> &'static str {
    match change {
        CuratorChange::Register(..) => "a data set may not have been registered",
        CuratorChange::Refuse(_) => "that a data set was refused may not be in the audit log",
        CuratorChange::Bind { .. } => "the content of a data set may not have been noted",
        CuratorChange::Debit(..) => "a debit may not have been made",
        CuratorChange::Withdraw(..) => "a data set may not have been withdrawn",
        CuratorChange::Open(..) => "a session, with its debit, may not have been opened",
        CuratorChange::Round(..) => {
            "a round of a session may not have been stored; its price was debited before"
        }
    }
}

/// The served state of an experiment, which must have been stopped.
fn stopped(experiment: &Experiment) -> Result<Arc<PublishedExperiment>, ExperimentChangeError> {
    let (serving, from) = (experiment.serving(), ENDED);
    let state = serving.state;
    from.contains(&state).then_some(serving).ok_or(ExperimentChangeError::State { state, from })
}

/// Checks that the learner can work with these arms.
fn beginning(specification: &Specification, config: LearnerConfig) -> Result<(), LearnerError> {
    let empty = vec![Tally::EMPTY; specification.arms().len()];
    let input = LearnerInput::new(&empty, &specification.active_arms(), specification.channel());
    let input = input
        .with_floor_weight(config.floor_weight)
        .with_holdout_share(config.guardrails.holdout_share);
    config.learner.weights(&input).map(drop)
}
