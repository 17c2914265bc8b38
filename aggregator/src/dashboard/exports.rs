//! Exports for the dashboard: the files of `bandana experiment export`.

use axum::response::IntoResponse as _;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::operator_server::Operator as _;
use bandana_shared::wire::v1::{EstimatesRequest, ExperimentName, ExportTalliesRequest};
use futures_util::TryStreamExt as _;
use http::Uri;
use http::header::CONTENT_TYPE;

use super::api::Answer;
use super::refusal::{JSON, Refusal};
use super::requests::{call, parameter};
use super::views::unreadable;
use crate::api::OperatorService;
use crate::auth::Caller;
use crate::views::columns::{csv, json};
use crate::views::estimates_view::EstimatesView;
use crate::views::experiment_view::current_revision;
use crate::views::tallies_view;

/// Which export, and in what form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    has_tallies: bool,
    is_json: bool,
}

impl Wanted {
    /// The export that the query parameters `what` and `format` ask for.
    pub(super) fn of(uri: &Uri) -> Result<Self, Refusal> {
        let what: Option<String> = parameter(uri, "what")?;
        let format: Option<String> = parameter(uri, "format")?;
        let has_tallies = match what.as_deref() {
            None | Some("estimates") => false,
            Some("tallies") => true,
            Some(_) => return Err(Refusal::invalid("`what` must be estimates or tallies")),
        };
        let is_json = match format.as_deref() {
            None | Some("csv") => false,
            Some("json") => true,
            Some(_) => return Err(Refusal::invalid("`format` must be csv or json")),
        };
        Ok(Self { has_tallies, is_json })
    }
}

/// The export of an experiment.
pub(super) async fn exported(
    service: &OperatorService,
    caller: &Caller,
    request: EstimatesRequest,
    wanted: Wanted,
) -> Answer {
    let columns = if wanted.has_tallies {
        let experiment_id = request.experiment_id;
        let name = ExperimentName { experiment_id: experiment_id.clone() };
        let request = ExportTalliesRequest { experiment_id, first_day: None, last_day: None };
        let tallies = service.export_tallies(call(caller, request)).await?.into_inner();
        let tallies: Vec<_> = tallies.try_collect().await?;
        // Requested after the tallies, so that it has every arm with reports.
        let status = service.get_experiment_status(call(caller, name)).await?.into_inner();
        let specification: Result<Specification, _> = current_revision(&status);
        let specification = specification.map_err(|error| unreadable(&error.into()))?;
        tallies_view::columns(&specification, &tallies).map_err(|error| unreadable(&error))?
    } else {
        let estimates = service.get_estimates(call(caller, request)).await?.into_inner();
        EstimatesView::from(estimates).columns()
    };
    let (bytes, media_type) = if wanted.is_json {
        (json(&columns), JSON)
    } else {
        (csv(&columns), "text/csv; charset=utf-8")
    };
    let bytes = bytes.map_err(|error| unreadable(&error))?;
    Ok(([(CONTENT_TYPE, media_type)], bytes).into_response())
}
