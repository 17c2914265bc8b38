//! The API call on data sets: what `bandana query list` prints, a page at a time.

use axum::extract::State;
use axum::routing::get;
use axum::{Extension, Router};
use bandana_edge::auth::Caller;
use bandana_shared::wire::v1::ListDataSetsRequest;
use bandana_shared::wire::v1::curator_server::Curator as _;
use http::Uri;
use serde::Serialize;

use super::api::{Answer, json};
use super::requests::{call, parameter};
use super::state::DashboardState;
use crate::views::data_set_view::DataSetView;

/// The route of the call.
pub(super) fn router() -> Router<DashboardState> {
    Router::new().route("/api/data-sets", get(list))
}

/// A page of data sets.
#[derive(Debug, Serialize)]
struct Listed {
    data_sets: Vec<DataSetView>,
    /// Empty on the last page.
    next_page_token: String,
}

async fn list(
    State(dashboard_state): State<DashboardState>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Answer {
    let page_token = parameter(&uri, "page_token")?.unwrap_or_default();
    let request = ListDataSetsRequest { page_token, ..Default::default() };
    let curator = dashboard_state.services()?.queries.curator();
    let answer = curator.list_data_sets(call(&caller, request)).await?;
    let answer = answer.into_inner();
    let data_sets = answer.data_sets.into_iter().map(Into::into).collect();
    json(&Listed { data_sets, next_page_token: answer.next_page_token })
}
