//! Changes of experiments, made by the thread that owns the store.

use std::sync::Arc;

use bandana_shared::identity::ExperimentId;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

use super::writer::{Writer, WriterError};
use super::{Administration, AdministrationError, Order, Revise};
use crate::learner::{LearnerError, Situation};
use crate::registry::{Experiment, Revision};
use crate::store::{
    AuditAction, AuditEntry, Conduct, ExperimentRecord, ExperimentState, StoreError, Transition,
};

/// States in which the arms can change.
const OPEN: &[ExperimentState] =
    &[ExperimentState::Draft, ExperimentState::Running, ExperimentState::Paused];

impl Writer {
    /// The outer error ends the writer, the inner one is the caller's.
    pub(super) fn administer(
        &mut self,
        order: Order,
    ) -> Result<Result<Arc<Experiment>, AdministrationError>, WriterError> {
        let Order { caller, administration } = order;
        let outcome = match administration {
            Administration::Create { specification, conduct, is_draft } => {
                self.create(caller, *specification, conduct, is_draft)
            }
            Administration::Move { experiment, transition } => {
                self.set_state(caller, &experiment, transition).map(|()| experiment)
            }
            Administration::Revise { experiment, change } => {
                self.revise(caller, &experiment, change).map(|()| experiment)
            }
            Administration::AddSignature { revision, signature } => {
                self.add_signature(caller, &revision, &signature).map(|()| revision.experiment)
            }
        };
        match outcome {
            // These changed nothing. What else goes wrong in the store is fatal.
            Err(AdministrationError::Store(
                declined @ (StoreError::ExperimentExists(_) | StoreError::TooManySignatures),
            )) => Ok(Err(declined.into())),
            Err(AdministrationError::Store(fatal)) => Err(fatal.into()),
            other => Ok(other),
        }
    }

    fn entry(
        &self,
        caller: String,
        action: AuditAction,
        experiment: &ExperimentId,
        detail: String,
    ) -> AuditEntry {
        AuditEntry { at: self.now(), caller, action, experiment: experiment.clone(), detail }
    }

    fn create(
        &mut self,
        caller: String,
        specification: Specification,
        conduct: Conduct,
        is_draft: bool,
    ) -> Result<Arc<Experiment>, AdministrationError> {
        let state = if is_draft { ExperimentState::Draft } else { ExperimentState::Running };
        let tallies = vec![Tally::EMPTY; specification.arms().len()];
        // The learner must be able to work before anything is stored.
        beginning(&specification, conduct)?;
        let detail = format!(
            "{}, epsilon {}, {} arms, learner {}, digest {}",
            state.name(),
            specification.epsilon().get(),
            tallies.len(),
            conduct.learner.name(),
            specification.digest()
        );
        let id = specification.experiment_id();
        let entry = self.entry(caller, AuditAction::Create, id, detail);
        let key = self.store.create_experiment(&specification, conduct, state, &entry)?;
        let (revisions, signatures) = (vec![specification], Vec::new());
        let record = ExperimentRecord { key, conduct, state, revisions, signatures, tallies };
        Ok(self.registry.add(record)?)
    }

    fn set_state(
        &mut self,
        caller: String,
        experiment: &Experiment,
        transition: Transition,
    ) -> Result<(), AdministrationError> {
        let serving = experiment.serving();
        let (from, to) = (transition.from(), transition.to());
        if !from.contains(&serving.state) {
            return Err(AdministrationError::State { state: serving.state, from });
        }
        let detail = format!("{} -> {}", serving.state.name(), to.name());
        let entry = self.entry(caller, transition.action(), experiment.id(), detail);
        self.store.set_state(experiment.key(), to, &entry)?;
        experiment.replace(Arc::clone(&serving.specification), to)?;
        Ok(())
    }

    fn revise(
        &mut self,
        caller: String,
        experiment: &Arc<Experiment>,
        change: Revise,
    ) -> Result<(), AdministrationError> {
        let serving = experiment.serving();
        if !OPEN.contains(&serving.state) {
            return Err(AdministrationError::State { state: serving.state, from: OPEN });
        }
        let current = &serving.specification;
        let (action, arm, revised) = match change {
            Revise::Add(arm) => (AuditAction::AddArm, current.arms().len(), current.with_arm(arm)?),
            Revise::Retire(arm) => (AuditAction::RetireArm, arm.get(), current.without_arm(arm)?),
        };
        let conduct = experiment.conduct();
        beginning(&revised, conduct)?;
        let label = revised.arms().get(arm).map(|arm| arm.label().to_owned()).unwrap_or_default();
        let detail = format!(
            "arm {arm} ({label}), revision {}, digest {}",
            revised.revision().get(),
            revised.digest()
        );
        let entry = self.entry(caller, action, experiment.id(), detail);
        let revised = Arc::new(revised);
        self.store.add_revision(experiment.key(), &revised, &entry)?;
        self.registry.add_revision(experiment, &revised);
        experiment.replace(revised, serving.state)?;
        Ok(())
    }

    fn add_signature(
        &mut self,
        caller: String,
        revision: &Revision,
        signature: &Signature,
    ) -> Result<(), AdministrationError> {
        let Revision { experiment, specification } = revision;
        let digest = specification.digest();
        let detail =
            format!("digest {digest}, key {}, until {}", signature.key(), signature.expires());
        let entry = self.entry(caller, AuditAction::AddSignature, experiment.id(), detail);
        let signatures = self.store.add_signature(specification, signature, entry.at, &entry)?;
        experiment.publish_signatures(digest, signatures);
        Ok(())
    }
}

/// Whether the learner can work with these arms.
fn beginning(specification: &Specification, conduct: Conduct) -> Result<(), LearnerError> {
    let empty = vec![Tally::EMPTY; specification.arms().len()];
    let situation = Situation::new(&empty, &specification.active_arms(), specification.floor());
    conduct.learner.weights(&situation.with_floor_weight(conduct.floor_weight)).map(drop)
}
