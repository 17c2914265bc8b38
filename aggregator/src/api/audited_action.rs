//! Operators' changes, with the caller for the audit log.

use std::future::ready;
use std::pin::Pin;

use bandana_edge::auth::Caller;
use futures_util::stream::{self, Stream, StreamExt as _};
use tonic::{Request, Status};

use crate::registry::Experiment;

/// An operator's action on an experiment.
#[derive(Debug)]
pub(super) struct AuditedAction {
    caller: Caller,
    what: &'static str,
}

impl AuditedAction {
    pub(super) fn new<T>(what: &'static str, request: &Request<T>) -> Self {
        Self { caller: Caller::of(request.extensions()), what }
    }

    /// The caller, for the audit log.
    pub(super) fn caller(&self) -> String {
        self.caller.to_string()
    }

    /// Logs that the action was done.
    pub(super) fn log(&self, experiment: &Experiment) {
        let Self { caller, what } = self;
        tracing::info!(%caller, experiment = %experiment.id(), "{what}");
    }
}

/// The items of a stream until its caller's access is revoked, and then an error.
pub(super) fn until_revoked<T: Send + 'static>(
    items: impl Stream<Item = Result<T, Status>> + Send + 'static,
    caller: Caller,
) -> Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>> {
    let (before, after) = (caller.clone(), caller.clone());
    let items = items.take_while(move |_| ready(before.turned_away().is_none()));
    let items = items.take_until(Box::pin(caller.revoked()));
    let cut = move || after.turned_away().map(Err);
    Box::pin(items.chain(stream::once(async move { cut() }).filter_map(ready)))
}
