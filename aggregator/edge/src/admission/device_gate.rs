//! The gate of the device service: app keys, rates and concurrent calls.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use super::Admission;
use super::permit::Places;
use crate::auth::{AppKeys, refuse_other_media_types, unknown_app};
use crate::clock::Clock;
use crate::peer::Peer;
use crate::pushback::exhausted;
use crate::rate::{Limiters, Rates};

/// The delay asked of a caller that found no place. The client adds random jitter.
const NO_PLACE_WAIT: Duration = Duration::from_secs(1);

/// The methods that upload nothing. The gate counts them, before it reads their request. Uploads
/// are counted when they arrive, since a stream has many.
const QUESTIONS: [&str; 6] = [
    "/bandana.v1.Device/GetExperiment",
    "/bandana.v1.Device/SelectArm",
    "/bandana.v1.Gateway/GetGatewayKeys",
    "/bandana.v1.TransparencyLog/ListEpochs",
    "/bandana.v1.Trusted/GetTrustedExperiment",
    "/bandana.v1.Trusted/Recommend",
];

/// The state that all device calls share.
#[derive(Debug)]
pub struct DeviceGates {
    keys: Option<Arc<AppKeys>>,
    rates: Rates,
    places: Places,
    clock: Arc<dyn Clock>,
}

impl DeviceGates {
    /// Requires one of `keys`, if given, and limits the rates of a connection and the number of
    /// concurrent calls.
    pub fn new(
        keys: Option<Arc<AppKeys>>,
        rates: Rates,
        calls: usize,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { keys, rates, places: Places::new(calls), clock }
    }

    /// Admits a sealed request, which counts as a question of the connection: nobody knows what it
    /// is before it was opened, which takes time.
    ///
    /// # Errors
    /// The status for a caller whose connection exceeds its rate.
    pub fn admit_sealed(&self, peer: &Peer) -> Result<(), Status> {
        let connection = Some(self.limiters(peer));
        Admission { connection, ..Admission::default() }.ask()
    }

    /// The limiters of the peer's connection.
    fn limiters(&self, peer: &Peer) -> Arc<Limiters> {
        let new = || Arc::new(Limiters::new(self.rates, &self.clock));
        Arc::clone(peer.limiters.get_or_init(new))
    }

    fn admit<B>(&self, request: &http::Request<B>) -> Result<Admission, Status> {
        let app = match &self.keys {
            None => None,
            Some(keys) => Some(keys.app(request.headers()).ok_or_else(unknown_app)?),
        };
        let peer = request.extensions().get::<Peer>();
        let calls = peer.map(|peer| Arc::clone(&peer.calls)).unwrap_or_default();
        let place = self
            .places
            .take(calls)
            .ok_or_else(|| exhausted("the server is busy; call again later", NO_PLACE_WAIT))?;
        let connection = peer.map(|peer| self.limiters(peer));
        let admission = Admission { app, connection, _place: Some(Arc::new(place)) };
        if QUESTIONS.contains(&request.uri().path()) {
            admission.ask()?;
        }
        Ok(admission)
    }
}

/// A service behind the gate.
#[derive(Clone, Debug)]
pub struct DeviceGate<S> {
    gates: Arc<DeviceGates>,
    service: S,
}

impl<S> DeviceGate<S> {
    /// Puts the service behind the gate.
    pub fn new(gates: Arc<DeviceGates>, service: S) -> Self {
        Self { gates, service }
    }
}

impl<S: NamedService> NamedService for DeviceGate<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for DeviceGate<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Self::Response, Infallible>>, Admitted<S::Future>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some(refusal) = refuse_other_media_types(request.headers()) {
            return Either::Left(ready(Ok(refusal)));
        }
        match self.gates.admit(&request) {
            Err(status) => Either::Left(ready(Ok(status.into_http()))),
            Ok(admission) => {
                request.extensions_mut().insert(admission.clone());
                let call = self.service.call(request);
                Either::Right(Admitted { call, _admission: admission })
            }
        }
    }
}

/// A running call. It keeps its place until there is an answer; a stream keeps it for longer, by
/// its own clone.
#[derive(Debug)]
pub struct Admitted<F> {
    call: F,
    _admission: Admission,
}

impl<F: Future + Unpin> Future for Admitted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.call).poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::methods::METHODS;

    /// Methods that check their rate themselves.
    const UPLOADS: [&str; 3] = [
        "/bandana.v1.Device/SubmitUpload",
        "/bandana.v1.Device/SubmitUploads",
        "/bandana.v1.Trusted/Disclose",
    ];

    #[test]
    fn every_method_of_devices_has_a_rate() {
        let services = ["Device", "Gateway", "TransparencyLog", "Trusted"];
        let is_for_devices = |service: &str| services.contains(&service);
        let of_devices: Vec<String> = METHODS
            .all()
            .filter(|name| name.service.strip_prefix("bandana.v1.").is_some_and(is_for_devices))
            .map(|name| format!("/{}", name.path))
            .collect();
        let rated: Vec<&str> = QUESTIONS.into_iter().chain(UPLOADS).collect();
        assert_eq!(of_devices.len(), rated.len());
        for method in of_devices {
            assert!(rated.contains(&&*method), "{method} is neither a question nor an upload");
        }
    }
}
