//! The API calls on experiments with a trusted curator, each of which maps to one call of their
//! operators' service. They return released statistics only.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bandana_edge::auth::Caller;
use bandana_shared::wire::v1::trusted_operator_server::TrustedOperator as _;
use bandana_shared::wire::v1::{
    ListTrustedExperimentsRequest, TrustedExperimentName, TrustedSpecification, TrustedStatus,
};
use http::{StatusCode, Uri};
use serde::Serialize;

use super::api::{Answer, json, step};
use super::refusal::Refusal;
use super::requests::{call, parameter, read};
use super::state::DashboardState;
use super::views::unreadable;
use crate::views::experiment_view::Deleted;
use crate::views::released_view::ReleasedView;
use crate::views::trusted_settings::TrustedSettings;
use crate::views::trusted_view::TrustedView;

/// The routes of the calls.
pub(super) fn router() -> Router<DashboardState> {
    Router::new()
        .route("/api/trusted", get(list).post(create))
        .route("/api/trusted/{id}", get(show))
        .route(
            "/api/trusted/{id}/pause",
            step!(trusted, pause_trusted_experiment, TrustedExperimentName, view),
        )
        .route(
            "/api/trusted/{id}/resume",
            step!(trusted, resume_trusted_experiment, TrustedExperimentName, view),
        )
        .route(
            "/api/trusted/{id}/stop",
            step!(trusted, stop_trusted_experiment, TrustedExperimentName, view),
        )
        .route(
            "/api/trusted/{id}/archive",
            step!(trusted, archive_trusted_experiment, TrustedExperimentName, view),
        )
        .route(
            "/api/trusted/{id}/unarchive",
            step!(trusted, unarchive_trusted_experiment, TrustedExperimentName, view),
        )
        .route("/api/trusted/{id}/delete", post(delete))
}

/// A page of trusted experiments, without their actions.
#[derive(Debug, Serialize)]
struct Listed {
    experiments: Vec<TrustedView>,
    /// Empty on the last page.
    next_page_token: String,
}

/// Snapshot of a trusted experiment.
#[derive(Debug, Serialize)]
struct TrustedSnapshot {
    /// As `bandana trusted show --json` has it.
    experiment: TrustedView,
    /// As `bandana trusted released --json` has it.
    released: ReleasedView,
}

fn view(status: &TrustedStatus) -> Result<TrustedView, Refusal> {
    TrustedView::new(status).map_err(|error| unreadable(&error))
}

async fn list(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let page_token = parameter(&uri, "page_token")?.unwrap_or_default();
    let show_archived = parameter(&uri, "archived")?.unwrap_or(false);
    let request = ListTrustedExperimentsRequest { page_token, show_archived, ..Default::default() };
    let request = call(&caller, request);
    let listed = dashboard_state.trusted()?.list_trusted_experiments(request).await?.into_inner();
    let experiments = listed.experiments.iter().map(view).collect::<Result<_, _>>()?;
    json(&Listed { experiments, next_page_token: listed.next_page_token })
}

/// As `bandana trusted create --json`.
async fn create(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answer {
    let service = dashboard_state.trusted()?;
    let request = creation(&read(body, dashboard_state.request_time).await?)?;
    let created = service.create_trusted_experiment(call(&caller, request)).await?.into_inner();
    Ok((StatusCode::CREATED, json(&view(&created)?)?).into_response())
}

/// Parses the body of a request to create a trusted experiment.
pub(super) fn creation(body: &[u8]) -> Result<TrustedSpecification, Refusal> {
    let settings: TrustedSettings = serde_json::from_slice(body).map_err(|error| {
        Refusal::invalid(format!("this does not describe a new trusted experiment: {error}"))
    })?;
    settings.request().map_err(|error| Refusal::invalid(error.to_string()))
}

async fn show(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    Path(experiment_id): Path<String>,
) -> Answer {
    let service = dashboard_state.trusted()?;
    let name = TrustedExperimentName { experiment_id };
    // One call returns both, because a release may happen between two calls.
    let released = service.get_released(call(&caller, name)).await?.into_inner();
    let experiment = view(&released.experiment.clone().unwrap_or_default())?;
    let released = ReleasedView::new(&experiment, released);
    json(&TrustedSnapshot { experiment, released })
}

async fn delete(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    Path(experiment_id): Path<String>,
) -> Answer {
    let name = call(&caller, TrustedExperimentName { experiment_id: experiment_id.clone() });
    dashboard_state.trusted()?.delete_trusted_experiment(name).await?;
    json(&Deleted::new(experiment_id))
}
