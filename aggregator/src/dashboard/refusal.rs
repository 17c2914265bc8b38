//! Refusals of the dashboard's API: an HTTP status and a message for the page.

use std::io;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tonic::{Code, Status};

use bandana_edge::explain::explain;
use bandana_edge::telemetry::metrics::code_name;

/// Media type of responses.
pub(super) const JSON: &str = "application/json";

/// An error status of the service.
#[derive(Debug)]
pub(crate) struct Refusal(Status);

impl Refusal {
    /// The refusal of an invalid request.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self(Status::invalid_argument(message))
    }

    /// The JSON body of the refusal.
    pub(super) fn to_json(&self) -> Value {
        let Self(status) = self;
        json!({"error": {"code": code_name(status.code()), "message": status.message()}})
    }

    /// The error that breaks off an answer of which a part was sent. Its cause is logged here, since
    /// nobody can be told any more.
    pub(super) fn into_error(self) -> io::Error {
        let Self(status) = self;
        tracing::warn!(error = %explain(&status), "an answer was broken off");
        io::Error::other(status)
    }

    fn status(&self) -> StatusCode {
        match self.0.code() {
            Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
            Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self(status)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = self.to_json().to_string();
        let mut response = (self.status(), [(CONTENT_TYPE, JSON)], body).into_response();
        // The log takes the cause from this extension.
        response.extensions_mut().insert(self.0);
        response
    }
}
