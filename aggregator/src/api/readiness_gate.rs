//! The readiness gate, which answers for services that are not ready yet.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body as PageBody;
use http::{Request, Response, StatusCode, header};
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service;

use crate::pushback::come_again;

/// The delay that early callers are asked for.
const SOON: Duration = Duration::from_secs(1);

/// The services of a port: some from the start, and all once the store has been read. Until then,
/// calls of the others are told to come again.
#[derive(Clone, Debug)]
pub struct ReadinessGate {
    before: Routes,
    open: Arc<OnceLock<Routes>>,
}

impl ReadinessGate {
    /// A closed gate in front of all but these services.
    pub fn new(before: Routes) -> Self {
        let before = before.into_axum_router().fallback(starting);
        Self { before: before.into(), open: Arc::default() }
    }

    /// Directs all calls to these services from now on.
    pub fn open(&self, services: Routes) {
        let services = services.into_axum_router().fallback(unknown_service);
        // An open gate stays open.
        self.open.set(Routes::from(services).prepare()).ok();
    }
}

impl Service<Request<Body>> for ReadinessGate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Routes as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Body>>::poll_ready(&mut self.before, context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self.open.get() {
            Some(services) => services.clone().call(request),
            None => self.before.call(request),
        }
    }
}

async fn starting(request: axum::extract::Request) -> Response<PageBody> {
    let status = come_again(Status::unavailable("the aggregator is starting; call again"), SOON);
    refusal(&request, status)
}

/// The answer to what no service knows.
pub(crate) async fn unknown_service(request: axum::extract::Request) -> Response<PageBody> {
    refusal(&request, Status::unimplemented("there is no such service"))
}

/// `status` for gRPC, and "not found" for other requests.
fn refusal(request: &axum::extract::Request, status: Status) -> Response<PageBody> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return status.into_http();
    }
    let mut response = Response::new(PageBody::from("there is nothing here\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
