//! Operators' commands to a writer.

use bandana_aggregator::ingest::{ExperimentChange, ExperimentCommand};
use bandana_learners::LearnerConfig;
use bandana_shared::specification::Specification;

/// A command to create an experiment that runs at once.
pub(crate) fn creation(specification: Specification, config: LearnerConfig) -> ExperimentCommand {
    let specification = Box::new(specification);
    let administration =
        ExperimentChange::Create { specification, config, record: Box::default(), is_draft: false };
    ExperimentCommand { caller: "anna".to_owned(), administration }
}
