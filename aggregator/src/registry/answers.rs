//! Answers to devices about an experiment, encoded once for all equal requests.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use bandana_shared::identity::UnixSeconds;
use bandana_shared::wire::experiment_with_signatures;
use bandana_shared::wire::v1::{self, GetExperimentResponse};
use bytes::Bytes;

use crate::memory::{Budget, Shared};
use crate::registry::PublishedExperiment;

/// The part of an answer that a device already has, and that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing that is still current.
    Nothing,
    /// The specification.
    Specification,
    /// The specification and the policy.
    Everything,
}

/// The time of a request, and the id of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'s> {
    pub(crate) now: UnixSeconds,
    pub(crate) server_day: u32,
    /// The store's id, constant while the server runs.
    pub(crate) store_id: &'s Bytes,
}

/// The answers about the served state.
#[derive(Debug, Default)]
pub(crate) struct ExperimentAnswers(ArcSwapOption<Encoded>);

/// All answers about one served state, each encoded when a device first asks for it.
#[derive(Debug)]
struct Encoded {
    serving: Arc<PublishedExperiment>,
    server_day: u32,
    /// The number of unexpired signatures, which determines the set of them.
    signatures: usize,
    answers: [OnceLock<Shared>; 3],
}

impl ExperimentAnswers {
    /// The answer to a device with this knowledge, at this moment.
    pub(crate) fn answer(
        &self,
        serving: &Arc<PublishedExperiment>,
        known: Known,
        moment: Moment<'_>,
        budget: &Budget,
    ) -> Shared {
        let Moment { now, server_day, .. } = moment;
        let signatures = unexpired(serving, now).count();
        let current = self.0.load();
        let is_current = |encoded: &Encoded| {
            Arc::ptr_eq(&encoded.serving, serving)
                && (encoded.server_day, encoded.signatures) == (server_day, signatures)
        };
        if let Some(current) = current.as_ref().filter(|encoded| is_current(encoded)) {
            return current.answer(known, moment);
        }
        let serving = Arc::clone(serving);
        let newer =
            Arc::new(Encoded { serving, server_day, signatures, answers: Default::default() });
        if let Some(older) = self.0.swap(Some(Arc::clone(&newer))) {
            older.answers.iter().filter_map(OnceLock::get).for_each(|answer| answer.retire(budget));
        }
        newer.answer(known, moment)
    }
}

impl Encoded {
    fn answer(&self, known: Known, moment: Moment<'_>) -> Shared {
        let answer = self.answers[known as usize].get_or_init(|| {
            let serving = &*self.serving;
            Shared::of(&GetExperimentResponse {
                experiment: (known == Known::Nothing).then(|| {
                    let signatures = unexpired(serving, moment.now);
                    experiment_with_signatures(&serving.specification, signatures)
                }),
                policy: (known != Known::Everything).then(|| v1::Policy::from(&*serving.policy)),
                server_day: self.server_day,
                store_id: moment.store_id.clone(),
            })
        });
        answer.clone()
    }
}

/// The unexpired signatures.
fn unexpired(
    serving: &PublishedExperiment,
    now: UnixSeconds,
) -> impl Iterator<Item = &bandana_shared::signing::Signature> {
    serving.signatures.iter().filter(move |signature| now < signature.expires())
}
