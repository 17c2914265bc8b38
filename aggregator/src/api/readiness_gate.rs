//! The readiness gate, which answers for services that are not ready yet.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body as PageBody;
use bandana_edge::admission::DeviceGate;
use bandana_edge::http::{refusal, unknown_service};
use bandana_edge::pushback::{STARTING, come_again};
use futures_util::future::Either;
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tower::Service;

use super::DeviceServer;
use crate::readiness::FewWatches;

/// The delay that early callers are asked for.
const SOON: Duration = Duration::from_secs(1);

/// The services of a port: some from the start, and all once the store has been read. Until then,
/// calls of the others are told to come again. Cheap to clone: each call has one.
#[derive(Clone, Debug)]
pub(crate) struct ReadinessGate(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    health: HealthServer<FewWatches>,
    before: Routes,
    open: OnceLock<OpenServices>,
}

/// The services of an open gate. What most calls are for is found without a router.
#[derive(Debug)]
struct OpenServices {
    device: Option<DeviceGate<DeviceServer>>,
    others: Routes,
}

impl ReadinessGate {
    /// A closed gate in front of all but these services.
    pub(crate) fn new(health: HealthServer<FewWatches>, before: Routes) -> Self {
        let before = before.into_axum_router().fallback(starting);
        Self(Arc::new(Gate { health, before: before.into(), open: OnceLock::new() }))
    }

    /// Directs all calls to these services from now on.
    pub(crate) fn open(&self, device: Option<DeviceGate<DeviceServer>>, others: Routes) {
        let others = others.into_axum_router().fallback(unknown_service);
        let others = Routes::from(others).prepare();
        // An open gate stays open.
        self.0.open.set(OpenServices { device, others }).ok();
    }
}

/// Whether a path is that of a method of this service.
fn is_of<S: NamedService>(_: &S, path: &str) -> bool {
    let method = path.strip_prefix('/').and_then(|path| path.strip_prefix(S::NAME));
    method.is_some_and(|method| method.starts_with('/'))
}

type Answer<S> = <S as Service<Request<Body>>>::Future;

impl Service<Request<Body>> for ReadinessGate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<
        Answer<DeviceGate<DeviceServer>>,
        Either<Answer<HealthServer<FewWatches>>, Answer<Routes>>,
    >;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // All services are.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Gate { health, before, open } = &*self.0;
        let path = request.uri().path();
        if let Some(OpenServices { device: Some(device), .. }) = open.get()
            && is_of(device, path)
        {
            return Either::Left(device.clone().call(request));
        }
        Either::Right(if is_of(health, path) {
            Either::Left(health.clone().call(request))
        } else {
            let routes = open.get().map_or(before, |services| &services.others);
            Either::Right(routes.clone().call(request))
        })
    }
}

async fn starting(request: axum::extract::Request) -> Response<PageBody> {
    let status = come_again(Status::unavailable(STARTING), SOON);
    refusal(&request, status)
}
