//! Pauses for harm: the change that a guardrail makes, and who asks for it.
//!
//! The tallies say which arms are beyond a limit, and the record of the experiment for which of them
//! it was paused already. So any replica may ask, at any time, and only what is new pauses it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandana_learners::harm::beyond_limits;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::HarmPause;
use bandana_store::{AuditAction, ExperimentKey, ExperimentRecord, ExperimentState, WrittenRecord};
use tokio::sync::{mpsc, oneshot};

use super::writer::Writer;
use super::{Command, ExperimentChange, ExperimentChangeError, ExperimentCommand, Ingest};
use crate::registry::{Experiment, PublishedExperiment, Registry};

/// The caller in the audit log.
const GUARDRAIL: &str = "(guardrail)";

/// The answer to a pause that was asked for.
type Answer = oneshot::Receiver<Result<Arc<Experiment>, ExperimentChangeError>>;

/// Asks for pauses of experiments with arms that do harm.
///
/// Asking does not block, and an experiment is asked about again only after the answer.
#[derive(Debug)]
pub struct HarmWatch {
    /// Watching alone must not keep the queue open.
    changes: mpsc::WeakSender<Command>,
    asked: BTreeMap<ExperimentKey, Answer>,
}

impl Ingest {
    /// A watch over arms that do harm, which makes changes through this queue.
    pub fn harm_watch(&self) -> HarmWatch {
        HarmWatch { changes: self.changes.downgrade(), asked: BTreeMap::new() }
    }
}

impl HarmWatch {
    /// Asks for a pause of each experiment that needs one.
    pub fn look(&mut self, registry: &Registry) {
        self.asked.retain(|_, answer| {
            matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        });
        for experiment in registry.all() {
            let is_asked = self.asked.contains_key(&experiment.key());
            if is_asked || new_harm(&experiment, &experiment.serving()).is_empty() {
                continue;
            }
            let Some(queue) = self.changes.upgrade() else { return };
            let key = experiment.key();
            let administration = ExperimentChange::PauseForHarm { experiment };
            let order = ExperimentCommand { caller: GUARDRAIL.to_owned(), administration };
            let (answer, outcome) = oneshot::channel();
            // A full queue is asked again after the next look.
            if queue.try_send(Command::Administer(order, answer)).is_ok() {
                self.asked.insert(key, outcome);
            }
        }
    }
}

/// The arms and metrics, by number, for which a running experiment is to be paused.
fn new_harm(experiment: &Experiment, serving: &PublishedExperiment) -> Vec<(usize, usize)> {
    let (specification, written) = (&*serving.specification, &*serving.written);
    if serving.state != ExperimentState::Running || !written.pauses_on_harm() {
        return Vec::new();
    }
    let mut beyond =
        beyond_limits(specification, experiment.initial_arms(), &experiment.snapshot());
    beyond.retain(|&(arm, metric)| {
        let name = specification.metric(metric).map_or("", |metric| metric.name());
        !u32::try_from(arm).is_ok_and(|arm| written.has_paused_for(arm, name))
    });
    beyond
}

/// The arms and metrics for which an experiment is paused, in words.
fn in_words(specification: &Specification, record: &WrittenRecord) -> String {
    let one = |pause: &HarmPause| {
        let arm = specification.arms().get(pause.arm as usize);
        let label = arm.map_or("", |arm| arm.label());
        format!("arm {} ({label}) is beyond the limit of {}", pause.arm, pause.metric)
    };
    record.pausing().map(one).collect::<Vec<_>>().join(", ")
}

impl Writer {
    /// Pauses an experiment for arms that do harm. None: there is nothing new.
    pub(super) fn pause_for_harm(
        &mut self,
        caller: &str,
        experiment: &Experiment,
    ) -> Result<Option<ExperimentRecord>, ExperimentChangeError> {
        let serving = experiment.serving();
        let harm = new_harm(experiment, &serving);
        if harm.is_empty() {
            return Ok(None);
        }
        let (specification, before) = (&*serving.specification, &*serving.written);
        let unix_seconds = self.now().get();
        let pause = |(arm, metric): (usize, usize)| HarmPause {
            arm: u32::try_from(arm).unwrap_or(u32::MAX),
            metric: specification.metric(metric).map_or("", |one| one.name()).to_owned(),
            unix_seconds,
            acknowledged: false,
        };
        let record = before.with_pauses(harm.into_iter().map(pause));
        let detail = format!("running -> paused: {}", in_words(specification, &record));
        let entry = self.entry(caller, AuditAction::Pause, experiment.id(), detail);
        let (expected, paused) = (serving.expected(experiment.key()), ExperimentState::Paused);
        let written = self.store.set_state_and_record(expected, paused, (before, &record), &entry);
        Ok(Some(written?))
    }
}

/// What resuming acknowledges: the record after it, and words for the audit log. None: the experiment
/// was not paused for harm.
pub(super) fn acknowledged(serving: &PublishedExperiment) -> Option<(WrittenRecord, String)> {
    let before = &*serving.written;
    before.pausing().next()?;
    let harm = in_words(&serving.specification, before);
    Some((before.with_pauses_acknowledged(), format!(", although {harm}")))
}
