//! The answers to requests that no service takes.

use axum::body::Body as PageBody;
use axum::extract::Request;
use http::{Response, StatusCode, header};
use tonic::Status;

/// The answer to what no service knows.
pub async fn unknown_service(request: Request) -> Response<PageBody> {
    refusal(&request, Status::unimplemented("there is no such service"))
}

/// `status` for gRPC, and "not found" for other requests.
pub fn refusal(request: &Request, status: Status) -> Response<PageBody> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return status.into_http();
    }
    let mut response = Response::new(PageBody::from("there is nothing here\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
