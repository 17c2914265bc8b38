//! Answers to devices about a trusted experiment, encoded once per day for all devices.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bandana_shared::wire::v1::{GetTrustedExperimentResponse, TrustedSpecification};

use bandana_edge::memory::{Budget, Shared};

/// DayGuard's encoded answer, after the first request of the day.
#[derive(Debug, Default)]
pub struct TrustedAnswers(ArcSwapOption<(u32, Shared)>);

impl TrustedAnswers {
    /// The encoded message `GetTrustedExperimentResponse` for this day. The answer of an earlier
    /// day is charged to the budget until its last recipient is done.
    pub(crate) fn answer(
        &self,
        specification: &TrustedSpecification,
        server_day: u32,
        budget: &Budget,
    ) -> Shared {
        if let Some(known) = self.0.load().as_ref().filter(|known| known.0 == server_day) {
            return known.1.clone();
        }
        let specification = Some(specification.clone());
        let shared = Shared::of(&GetTrustedExperimentResponse { specification, server_day });
        if let Some(older) = self.0.swap(Some(Arc::new((server_day, shared.clone())))) {
            older.1.retire(budget);
        }
        shared
    }
}
