//! What operators say to a writer.

use bandana_aggregator::ingest::{Administration, Order};
use bandana_aggregator::store::Conduct;
use bandana_shared::specification::Specification;

/// Has an experiment created that runs at once.
pub(crate) fn creation(specification: Specification, conduct: Conduct) -> Order {
    let specification = Box::new(specification);
    let administration = Administration::Create { specification, conduct, is_draft: false };
    Order { caller: "anna".to_owned(), administration }
}
