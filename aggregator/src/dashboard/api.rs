//! The dashboard's API calls, each of which maps to one call of the operators' service.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bandana_edge::auth::Caller;
use bandana_shared::wire::v1::operator_server::Operator as _;
use bandana_shared::wire::v1::{
    DailyTally, ExperimentName, ExportTalliesRequest, ListAuditEntriesRequest,
    ListExperimentsRequest,
};
use futures_util::StreamExt as _;
use http::header::CONTENT_TYPE;
use http::{StatusCode, Uri};
use serde::Serialize;
use tonic::Status;

use super::exports::{self, Wanted, exported};
use super::presets;
use super::refusal::{JSON, Refusal};
use super::requests::{call, creation, estimates, parameter, read, writing};
use super::state::DashboardState;
use super::views::{Listed, experiment};
use super::watching::{lines, moment, moments};
use crate::views::audit_view::AuditView;
use crate::views::experiment_view::Deleted;

pub(super) type Answer = Result<Response, Refusal>;

/// A call about an experiment by its name, answered with a view of its status.
macro_rules! step {
    ($service:ident, $call:ident, $name:ident, $view:ident) => {
        post(
            async |State(dashboard_state): State<DashboardState>,
                   Extension(caller): Extension<Caller>,
                   Path(experiment_id): Path<String>|
                   -> Answer {
                let name = call(&caller, $name { experiment_id });
                json(&$view(dashboard_state.$service()?.$call(name).await?.get_ref())?)
            },
        )
    };
}
pub(super) use step;

/// The routes of the calls.
pub(super) fn router() -> Router<DashboardState> {
    Router::new()
        .route("/api/experiments", get(list).post(create))
        .route("/api/experiments/{id}", get(show))
        .route("/api/experiments/{id}/watch", get(watch))
        .route("/api/experiments/{id}/tallies", get(tallies))
        .route("/api/experiments/{id}/over-time", get(over_time))
        .route("/api/experiments/{id}/export", get(export))
        .route("/api/experiments/{id}/record", post(record))
        .route(
            "/api/experiments/{id}/start",
            step!(service, start_experiment, ExperimentName, experiment),
        )
        .route(
            "/api/experiments/{id}/pause",
            step!(service, pause_experiment, ExperimentName, experiment),
        )
        .route(
            "/api/experiments/{id}/resume",
            step!(service, resume_experiment, ExperimentName, experiment),
        )
        .route(
            "/api/experiments/{id}/stop",
            step!(service, stop_experiment, ExperimentName, experiment),
        )
        .route(
            "/api/experiments/{id}/archive",
            step!(service, archive_experiment, ExperimentName, experiment),
        )
        .route(
            "/api/experiments/{id}/unarchive",
            step!(service, unarchive_experiment, ExperimentName, experiment),
        )
        .route("/api/experiments/{id}/delete", post(delete))
        .route("/api/audit", get(audit))
        .route("/api/plan", get(plan))
}

pub(super) fn json(view: &impl Serialize) -> Answer {
    let unwritable = |_| Status::internal("an answer can't be written");
    let text = serde_json::to_string(view).map_err(unwritable)?;
    Ok(([(CONTENT_TYPE, JSON)], text).into_response())
}

/// A page of experiments, without their arms. Archived experiments are included on request only.
async fn list(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let page_token = parameter(&uri, "page_token")?.unwrap_or_default();
    let show_archived = parameter(&uri, "archived")?.unwrap_or(false);
    let request = ListExperimentsRequest { page_token, show_archived, ..Default::default() };
    let request = call(&caller, request);
    json(&Listed::new(dashboard_state.service()?.list_experiments(request).await?.into_inner()))
}

/// As `bandana experiment create --json`.
async fn create(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answer {
    let service = dashboard_state.service()?;
    let request = creation(&read(body, dashboard_state.request_time).await?)?;
    let created = service.create_experiment(call(&caller, request)).await?.into_inner();
    Ok((StatusCode::CREATED, json(&experiment(&created)?)?).into_response())
}

async fn show(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answer {
    let service = dashboard_state.service()?;
    let request = call(&caller, estimates(&uri, id)?);
    let estimates = service.get_estimates(request).await?.into_inner();
    json(&moment(service, &caller, estimates).await?)
}

async fn watch(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answer {
    moments(&dashboard_state, caller, estimates(&uri, id)?).await
}

/// The daily tally of an arm.
#[derive(Debug, Serialize)]
struct TallyView {
    day: u32,
    arm: u32,
    reports: u64,
    ones: u64,
}

async fn tallies(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answer {
    let (first_day, last_day) = (parameter(&uri, "first_day")?, parameter(&uri, "last_day")?);
    let request =
        ExportTalliesRequest { experiment_id: id, first_day, last_day, by_revision: false };
    let tallies =
        dashboard_state.service()?.export_tallies(call(&caller, request)).await?.into_inner();
    let view = |DailyTally { day, arm, reports, ones, .. }| TallyView { day, arm, reports, ones };
    Ok(lines(tallies.map(move |tally| Ok(view(tally?)))))
}

/// As `bandana estimate --over-time --json`.
async fn over_time(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answer {
    let request = estimates(&uri, id)?;
    exports::over_time(dashboard_state.service()?, &caller, request).await
}

/// As `bandana audit --json`.
async fn audit(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let request = ListAuditEntriesRequest {
        experiment_id: parameter(&uri, "experiment")?.unwrap_or_default(),
        limit: parameter(&uri, "limit")?.unwrap_or(0),
        before: parameter(&uri, "before")?.unwrap_or(0),
    };
    let entries =
        dashboard_state.service()?.list_audit_entries(call(&caller, request)).await?.into_inner();
    json(&AuditView::new(entries.entries))
}

/// As `bandana experiment export`: the estimates, those over time, or the tallies of every day.
async fn export(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answer {
    let wanted = Wanted::of(&uri)?;
    exported(dashboard_state.service()?, &caller, estimates(&uri, id)?, wanted).await
}

/// Writes a record, and answers as `bandana experiment show --json`.
async fn record(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let service = dashboard_state.service()?;
    let request = writing(&read(body, dashboard_state.request_time).await?, id)?;
    let written = service.set_record(call(&caller, request)).await?;
    json(&experiment(written.get_ref())?)
}

/// How many users each preset of privacy takes, as `bandana plan` computes it.
async fn plan(uri: Uri) -> Answer {
    let arms = parameter(&uri, "arms")?.unwrap_or(2);
    let gap = parameter(&uri, "gap")?.unwrap_or(presets::GAP);
    let presets = presets::presets(arms, gap);
    json(&presets.map_err(|error| Refusal::invalid(error.to_string()))?)
}

async fn delete(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    Path(experiment_id): Path<String>,
) -> Answer {
    let name = call(&caller, ExperimentName { experiment_id: experiment_id.clone() });
    dashboard_state.service()?.delete_experiment(name).await?;
    json(&Deleted::new(experiment_id))
}
