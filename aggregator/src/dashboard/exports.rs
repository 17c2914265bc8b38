//! Exports for the dashboard: the files of `bandana experiment export`.

use axum::body::{Body, Bytes};
use axum::response::IntoResponse as _;
use bandana_edge::auth::Caller;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::operator_server::Operator as _;
use bandana_shared::wire::v1::{
    DailyTally, EstimatesRequest, ExperimentName, ExportTalliesRequest,
};
use futures_util::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use http::Uri;
use http::header::CONTENT_TYPE;

use super::api::Answer;
use super::refusal::{JSON, Refusal};
use super::requests::{call, parameter};
use super::views::unreadable;
use crate::api::OperatorService;
use crate::views::columns::{Column, File, Form, whole};
use crate::views::estimates_view::EstimatesView;
use crate::views::experiment_view::current_revision;
use crate::views::over_time_view::{DayView, OverTime, OverTimeView, Subject};
use crate::views::tallies_view;

/// Which export, and in what form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    what: What,
    form: Form,
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
        let form = match format.as_deref() {
            None | Some("csv") => Form::Csv,
            Some("json") => Form::Json,
            Some(_) => return Err(Refusal::invalid("`format` must be csv or json")),
        };
        Ok(Self { what, form })
    }

    fn media_type(self) -> &'static str {
        match self.form {
            Form::Csv => "text/csv; charset=utf-8",
            Form::Json => JSON,
        }
    }
}

/// The export of an experiment. What has a record for each day is written while it is sent.
pub(super) async fn exported(
    service: &OperatorService,
    caller: &Caller,
    request: EstimatesRequest,
    wanted: Wanted,
) -> Answer {
    let (file, media_type) = (File::new(wanted.form), wanted.media_type());
    match wanted.what {
        What::Estimates => {
            let estimates = service.get_estimates(call(caller, request)).await?.into_inner();
            let columns = EstimatesView::from(estimates).columns();
            let bytes = whole(wanted.form, &columns).map_err(|error| unreadable(&error))?;
            Ok(([(CONTENT_TYPE, media_type)], bytes).into_response())
        }
        What::OverTime => {
            let (subject, days) = over_time_days(service, caller, request).await?;
            let none = OverTimeView::of_days(subject.clone(), Vec::new()).columns();
            let columns =
                days.map_ok(move |day| OverTimeView::of_days(subject.clone(), vec![day]).columns());
            in_parts(columns, none, file, media_type).await
        }
        What::Tallies => {
            let (specification, days) =
                daily(service, caller, request.experiment_id, false).await?;
            let columns = move |tallies: &[DailyTally]| {
                tallies_view::columns(&specification, tallies).map_err(|error| unreadable(&error))
            };
            let none = columns(&[])?;
            let days = days.map(move |tallies| columns(&tallies?));
            in_parts(days, none, file, media_type).await
        }
    }
}

/// As `bandana estimate --over-time --json`, written while it is sent.
pub(super) async fn over_time(
    service: &OperatorService,
    caller: &Caller,
    request: EstimatesRequest,
) -> Answer {
    let (subject, days) = over_time_days(service, caller, request).await?;
    let unwritable = |error: serde_json::Error| unreadable(&error.into());
    // What is before the first day and after the last one.
    let empty = OverTimeView::of_days(subject, Vec::new());
    let empty = serde_json::to_string(&empty).map_err(unwritable)?;
    let (begin, end) = empty.split_at(empty.len() - "]}".len());
    let (begin, end) = (begin.to_owned(), end.to_owned());
    let days = days.enumerate().map(move |(number, day)| {
        let day = serde_json::to_string(&day?).map_err(unwritable)?;
        Ok(if number == 0 { day } else { format!(",{day}") })
    });
    let [begin, end] = [begin, end].map(|part| stream::iter([Ok(part)]));
    sent(begin.chain(days).chain(end), JSON).await
}

/// A file of the columns of each part. `none` are the columns without records.
async fn in_parts(
    parts: impl Stream<Item = Result<Vec<Column>, Refusal>> + Send + 'static,
    none: Vec<Column>,
    mut file: File,
    media_type: &'static str,
) -> Answer {
    let end = Bytes::from_static(file.end());
    let first = file.part(&none).map_err(|error| unreadable(&error))?;
    let parts = parts.map(move |columns| {
        file.part(&columns?).map(Bytes::from).map_err(|error| unreadable(&error))
    });
    let first = stream::iter([Ok(Bytes::from(first))]);
    sent(first.chain(parts).chain(stream::iter([Ok(end)])), media_type).await
}

/// An answer of these parts, which is broken off by an error. One before the second part is the
/// answer instead.
async fn sent<B: Into<Bytes> + Send + 'static>(
    parts: impl Stream<Item = Result<B, Refusal>> + Send + 'static,
    media_type: &'static str,
) -> Answer {
    let mut parts = Box::pin(parts);
    let mut begin = Vec::new();
    for _ in 0..2 {
        begin.extend(parts.next().await.transpose()?.map(|part| Ok(part.into())));
    }
    let parts = stream::iter(begin).chain(parts.map_ok(Into::into));
    let body = Body::from_stream(parts.map_err(|refusal: Refusal| refusal.into_error()));
    Ok(([(CONTENT_TYPE, media_type)], body).into_response())
}

/// What was known at the end of each day.
async fn over_time_days(
    service: &OperatorService,
    caller: &Caller,
    request: EstimatesRequest,
) -> Result<(Subject, impl Stream<Item = Result<DayView, Refusal>> + Send + use<>), Refusal> {
    let alpha = match request.alpha {
        0.0 => Ok(ErrorLevel::FIVE_PERCENT),
        alpha => ErrorLevel::new(alpha),
    };
    let alpha = alpha.map_err(|error| Refusal::invalid(error.to_string()))?;
    let (specification, days) = daily(service, caller, request.experiment_id, true).await?;
    let mut over_time = OverTime::new(specification, alpha);
    let subject = over_time.subject();
    let days =
        days.map(move |tallies| over_time.next(&tallies?).map_err(|error| unreadable(&error)));
    Ok((subject, days.try_filter_map(async |day| Ok(day))))
}

/// The tallies of one day after the other, and the specification as it is now. Cells that are newer
/// are left out.
async fn daily(
    service: &OperatorService,
    caller: &Caller,
    experiment_id: String,
    by_revision: bool,
) -> Result<
    (Specification, impl Stream<Item = Result<Vec<DailyTally>, Refusal>> + Send + use<>),
    Refusal,
> {
    let name = ExperimentName { experiment_id: experiment_id.clone() };
    let status = service.get_experiment_status(call(caller, name)).await?.into_inner();
    let specification: Result<Specification, _> = current_revision(&status);
    let specification = specification.map_err(|error| unreadable(&error.into()))?;
    let request =
        ExportTalliesRequest { experiment_id, first_day: None, last_day: None, by_revision };
    let tallies = service.export_tallies(call(caller, request)).await?.into_inner();
    let cells = specification.cells().len();
    let is_known = move |row: &DailyTally| usize::try_from(row.arm).is_ok_and(|cell| cell < cells);
    let tallies = tallies.try_filter(move |row| std::future::ready(is_known(row)));
    let days = stream::try_unfold(Box::pin(tallies.peekable()), async |mut tallies| {
        let Some(first) = tallies.try_next().await? else { return Ok(None) };
        let day = first.day;
        let mut of_day = vec![first];
        let is_of_day = |row: &Result<DailyTally, _>| row.as_ref().is_ok_and(|row| row.day == day);
        while let Some(row) = tallies.as_mut().next_if(is_of_day).await {
            of_day.push(row?);
        }
        Ok(Some((of_day, tallies)))
    });
    Ok((specification, days))
}
