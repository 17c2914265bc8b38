//! Answers to devices about a trusted experiment, encoded once for all who ask on a day.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bandana_shared::wire::v1::{GetTrustedExperimentResponse, TrustedSpecification};

use crate::memory::{Budget, Shared};

/// The answer of today, once somebody has asked.
#[derive(Debug, Default)]
pub struct TrustedAnswers(ArcSwapOption<(u32, Shared)>);

impl TrustedAnswers {
    /// The answer on this day, as a message `GetTrustedExperimentResponse`. That of another day is
    /// held from the budget until the last has taken it.
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
