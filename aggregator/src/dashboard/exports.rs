//! Exports for the dashboard: the files of `bandana experiment export`.

use axum::response::IntoResponse as _;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::operator_server::Operator as _;
use bandana_shared::wire::v1::{
    DailyTally, EstimatesRequest, ExperimentName, ExportTalliesRequest,
};
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
use crate::views::over_time_view::OverTimeView;
use crate::views::tallies_view;

/// Which export, and in what form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    what: What,
    is_json: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Estimates,
    OverTime,
    Tallies,
}

impl Wanted {
    /// The export that the query parameters `what` and `format` ask for.
    pub(super) fn of(uri: &Uri) -> Result<Self, Refusal> {
        let what: Option<String> = parameter(uri, "what")?;
        let format: Option<String> = parameter(uri, "format")?;
        let what = match what.as_deref() {
            None | Some("estimates") => What::Estimates,
            Some("over-time") => What::OverTime,
            Some("tallies") => What::Tallies,
            Some(_) => {
                return Err(Refusal::invalid("`what` must be estimates, over-time or tallies"));
            }
        };
        let is_json = match format.as_deref() {
            None | Some("csv") => false,
            Some("json") => true,
            Some(_) => return Err(Refusal::invalid("`format` must be csv or json")),
        };
        Ok(Self { what, is_json })
    }
}

/// The export of an experiment.
pub(super) async fn exported(
    service: &OperatorService,
    caller: &Caller,
    request: EstimatesRequest,
    wanted: Wanted,
) -> Answer {
    let columns = match wanted.what {
        What::Estimates => {
            let estimates = service.get_estimates(call(caller, request)).await?.into_inner();
            EstimatesView::from(estimates).columns()
        }
        What::OverTime => over_time(service, caller, request).await?.columns(),
        What::Tallies => {
            let (specification, tallies) =
                daily(service, caller, request.experiment_id, false).await?;
            tallies_view::columns(&specification, &tallies).map_err(|error| unreadable(&error))?
        }
    };
    let (bytes, media_type) = if wanted.is_json {
        (json(&columns), JSON)
    } else {
        (csv(&columns), "text/csv; charset=utf-8")
    };
    let bytes = bytes.map_err(|error| unreadable(&error))?;
    Ok(([(CONTENT_TYPE, media_type)], bytes).into_response())
}

/// As `bandana estimate --over-time`.
pub(super) async fn over_time(
    service: &OperatorService,
    caller: &Caller,
    request: EstimatesRequest,
) -> Result<OverTimeView, Refusal> {
    let alpha = match request.alpha {
        0.0 => Ok(ErrorLevel::FIVE_PERCENT),
        alpha => ErrorLevel::new(alpha),
    };
    let alpha = alpha.map_err(|error| Refusal::invalid(error.to_string()))?;
    let (specification, tallies) = daily(service, caller, request.experiment_id, true).await?;
    OverTimeView::new(&specification, &tallies, alpha).map_err(|error| unreadable(&error))
}

/// The tallies of every day, and a specification with all arms that they have.
async fn daily(
    service: &OperatorService,
    caller: &Caller,
    experiment_id: String,
    by_revision: bool,
) -> Result<(Specification, Vec<DailyTally>), Refusal> {
    let name = ExperimentName { experiment_id: experiment_id.clone() };
    let request =
        ExportTalliesRequest { experiment_id, first_day: None, last_day: None, by_revision };
    let tallies = service.export_tallies(call(caller, request)).await?.into_inner();
    let tallies: Vec<_> = tallies.try_collect().await?;
    // Requested after the tallies, so that it has every arm with reports.
    let status = service.get_experiment_status(call(caller, name)).await?.into_inner();
    let specification: Result<Specification, _> = current_revision(&status);
    Ok((specification.map_err(|error| unreadable(&error.into()))?, tallies))
}
