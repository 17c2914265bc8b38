//! The gate of an operator service, which checks tokens and roles.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures_util::future::Either;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use super::authorization::Authorization;
use super::media_type::refuse_other_media_types;

/// A service behind the gate.
#[derive(Clone, Debug)]
pub struct OperatorGate<S> {
    authorization: Authorization,
    service: S,
}

impl<S> OperatorGate<S> {
    /// Puts the service behind the gate.
    pub fn new(authorization: &Authorization, service: S) -> Self {
        Self { authorization: authorization.clone(), service }
    }
}

impl<S: NamedService> NamedService for OperatorGate<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for OperatorGate<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Self::Response, Infallible>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some(refusal) = refuse_other_media_types(request.headers()) {
            return Either::Left(ready(Ok(refusal)));
        }
        let path = request.uri().path();
        match self.authorization.admit(path, request.headers(), request.extensions()) {
            Err(status) => Either::Left(ready(Ok(status.into_http()))),
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                Either::Right(self.service.call(request))
            }
        }
    }
}
