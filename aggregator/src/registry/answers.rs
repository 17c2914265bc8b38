//! The answer to devices about an experiment, encoded once for all of them.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bandana_edge::memory::{Budget, Shared};
use bandana_shared::identity::UnixSeconds;
use bandana_shared::wire::experiment_with_signatures;
use bandana_shared::wire::v1::{self, GetExperimentResponse};
use bytes::Bytes;

use crate::registry::PublishedExperiment;

/// The time of a request, and the id of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTime<'s> {
    pub(crate) now: UnixSeconds,
    pub(crate) server_day: u32,
    /// The store's id, constant while the server runs.
    pub(crate) store_id: &'s Bytes,
}

/// The answer about the served state.
#[derive(Debug, Default)]
pub(crate) struct ExperimentAnswers(ArcSwapOption<Encoded>);

/// The answer about one served state.
#[derive(Debug)]
struct Encoded {
    serving: Arc<PublishedExperiment>,
    /// Whether it says how it stands in a log.
    is_logged: bool,
    server_day: u32,
    /// The number of unexpired signatures, which determines the set of them.
    signatures: usize,
    answer: Shared,
}

impl ExperimentAnswers {
    /// The answer at this time: whole, and the same for all devices. `view`: how it stands in the
    /// log, if there is one. Another view comes with another `serving`.
    pub(crate) fn answer(
        &self,
        (serving, view): (&Arc<PublishedExperiment>, Option<&v1::View>),
        time: RequestTime<'_>,
        budget: &Budget,
    ) -> Shared {
        let RequestTime { now, server_day, .. } = time;
        let signatures = unexpired(serving, now).count();
        let current = self.0.load();
        let is_current = |encoded: &Encoded| {
            Arc::ptr_eq(&encoded.serving, serving)
                && encoded.is_logged == view.is_some()
                && (encoded.server_day, encoded.signatures) == (server_day, signatures)
        };
        if let Some(current) = current.as_ref().filter(|encoded| is_current(encoded)) {
            return current.answer.clone();
        }
        let answer = encode(serving, view, time);
        let (serving, is_logged) = (Arc::clone(serving), view.is_some());
        let newer = Encoded { serving, is_logged, server_day, signatures, answer: answer.clone() };
        if let Some(older) = self.0.swap(Some(Arc::new(newer))) {
            older.answer.retire(budget);
        }
        answer
    }
}

fn encode(serving: &PublishedExperiment, view: Option<&v1::View>, time: RequestTime<'_>) -> Shared {
    let signatures = unexpired(serving, time.now);
    Shared::of(&GetExperimentResponse {
        experiment: Some(experiment_with_signatures(&serving.specification, signatures)),
        policy: Some(v1::Policy::from(&*serving.policy)),
        server_day: time.server_day,
        store_id: time.store_id.clone(),
        view: view.cloned(),
    })
}

/// The unexpired signatures.
fn unexpired(
    serving: &PublishedExperiment,
    now: UnixSeconds,
) -> impl Iterator<Item = &bandana_shared::signing::Signature> {
    serving.signatures.iter().filter(move |signature| now < signature.expires())
}
