//! Streamed responses: one JSON object per line.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse as _, Response};
use bandana_edge::auth::Caller;
use bandana_shared::wire::v1::operator_server::Operator as _;
use bandana_shared::wire::v1::{Estimates, EstimatesRequest, ExperimentName};
use futures_util::{Stream, StreamExt as _};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tonic::Status;

use super::refusal::Refusal;
use super::requests::call;
use super::state::DashboardState;
use super::views::ExperimentSnapshot;
use crate::api::OperatorService;

/// Minimum time between two snapshots: readers follow no faster.
const BETWEEN_MOMENTS: Duration = Duration::from_millis(250);

/// Snapshots of an experiment, now and after every change. The stream ends when the caller loses
/// access, the server shuts down, or the watch time is over.
pub(super) async fn moments(
    dashboard_state: &DashboardState,
    caller: Caller,
    request: EstimatesRequest,
) -> Result<Response, Refusal> {
    let service = dashboard_state.service()?.clone();
    let watched = service.watch_estimates(call(&caller, request)).await?.into_inner();
    let moments = watched.enumerate().then(move |(number, estimates)| {
        let (service, caller) = (service.clone(), caller.clone());
        async move {
            if number > 0 && estimates.is_ok() {
                tokio::time::sleep(BETWEEN_MOMENTS).await;
            }
            moment(&service, &caller, estimates?).await
        }
    });
    Ok(lines(moments.take_until(Box::pin(tokio::time::sleep(dashboard_state.watch_time)))))
}

/// Snapshot of an experiment with these estimates.
pub(super) async fn moment(
    service: &OperatorService,
    caller: &Caller,
    estimates: Estimates,
) -> Result<ExperimentSnapshot, Refusal> {
    let name = ExperimentName { experiment_id: estimates.experiment_id.clone() };
    let status = service.get_experiment_status(call(caller, name)).await?.into_inner();
    ExperimentSnapshot::new(&status, estimates)
}

/// One line per item. An error ends the stream, as its last line.
pub(super) fn lines<T: Serialize>(
    items: impl Stream<Item = Result<T, Refusal>> + Send + 'static,
) -> Response {
    let line = |item: Result<T, Refusal>| {
        let unwritable = |_| Status::internal("an answer can't be written");
        let line = item.and_then(|item| Ok(serde_json::to_string(&item).map_err(unwritable)?));
        let line = line.unwrap_or_else(|refusal| refusal.to_json().to_string());
        Ok::<_, Infallible>(Bytes::from(line + "\n"))
    };
    let body = Body::from_stream(items.map(line));
    ([(CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}
