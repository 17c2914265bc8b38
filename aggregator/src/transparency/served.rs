//! The epoch that devices are served: the last one that enough witnesses have cosigned.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1;

use crate::registry::PublishedExperiment;

/// An experiment as the log says it, with how it stands there.
#[derive(Debug)]
pub(crate) struct LoggedExperiment {
    pub(crate) experiment: Arc<PublishedExperiment>,
    pub(crate) view: v1::View,
}

/// The last epoch that enough witnesses have cosigned.
#[derive(Debug)]
pub(super) struct ServedEpoch {
    pub(super) experiments: HashMap<ExperimentId, LoggedExperiment>,
    /// How the keys of the gateway stand in it.
    pub(super) gateway: Option<v1::View>,
    /// The checkpoint with all signatures.
    pub(super) checkpoint: String,
}

/// The epoch that devices are served; none yet after a start.
#[derive(Debug, Default)]
pub(crate) struct Served(ArcSwapOption<ServedEpoch>);

impl Served {
    pub(super) fn publish(&self, epoch: ServedEpoch) {
        self.0.store(Some(Arc::new(epoch)));
    }

    /// Calls `answer` with an experiment as the log says it; `None`: it says nothing of it yet.
    pub(crate) fn with<T>(
        &self,
        id: &ExperimentId,
        answer: impl FnOnce(&LoggedExperiment) -> T,
    ) -> Option<T> {
        self.0.load().as_ref()?.experiments.get(id).map(answer)
    }

    /// How the keys of the gateway stand in the log.
    pub(crate) fn gateway(&self) -> Option<v1::View> {
        self.0.load().as_ref()?.gateway.clone()
    }

    /// The checkpoint with all signatures; empty if there is none yet.
    pub(crate) fn checkpoint(&self) -> String {
        self.0.load().as_ref().map(|epoch| epoch.checkpoint.clone()).unwrap_or_default()
    }
}
