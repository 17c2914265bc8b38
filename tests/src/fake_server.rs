//! A server for tests of the client: it gives scripted answers, and records requests byte for byte.

use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandana_aggregator::api::{GatewayService, gateway_route};
use bandana_edge::admission::DeviceGates;
use bandana_edge::clock::{Clock, SystemClock};
use bandana_edge::connect::Connect;
use bandana_edge::gateway::{GatewayKey, Opener, PublishedKeys};
use bandana_edge::rate::Rates;
use bandana_shared::identity::{Day, StoreId};
use bandana_shared::policy::Policy;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_server::{Device, DeviceServer};
use bandana_shared::wire::v1::gateway_server::GatewayServer;
use bandana_shared::wire::v1::{
    self, GetExperimentRequest, GetExperimentResponse, SelectArmRequest, SelectArmResponse,
    UploadRequest, UploadResponse, UploadStatus,
};
use prost::Message as _;
use prost::bytes::{Buf as _, BufMut as _, Bytes};
use tokio::net::TcpListener as AsyncTcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Body as HttpBody, BoxFuture, Context, Poll, Service, http};
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::service::Routes;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::layer::layer_fn;

/// Path of the recorded method.
pub const SUBMIT_UPLOAD: &str = "/bandana.v1.Device/SubmitUpload";

/// The initial store id of the server.
pub const STORE: StoreId = StoreId::new(*b"recorder's store");

/// The metadata key of the server's pushback, in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// A server of the `Device` service on a loopback port. It runs on a separate thread, so it also
/// serves clients that block theirs. Dropping it closes all its connections.
#[derive(Debug)]
pub struct Recorder {
    address: SocketAddr,
    certificate: Option<String>,
    memory: Arc<Memory>,
    runtime: Option<Runtime>,
}

/// The answer to an upload.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Counted now.
    Accept,
    /// Counted before.
    Duplicate,
    /// A status, with a message for people.
    Status(UploadStatus, &'static str),
    /// A gRPC error, with the server's pushback, if any.
    Error(Code, Option<Duration>),
    /// No answer, for as long as the connection lasts.
    Hang,
}

/// A recorded call of `SubmitUpload`.
#[derive(Clone, Debug)]
pub struct RecordedUpload {
    /// The raw message.
    pub bytes: Bytes,
    /// The metadata of the call.
    pub metadata: MetadataMap,
}

/// What a gateway can see of a sealed request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedSealed {
    /// The headers, in words.
    pub headers: String,
    /// The bytes of the request, as stated.
    pub request_bytes: Option<u64>,
    /// The bytes of the answer.
    pub answer_bytes: Option<u64>,
}

impl Recorder {
    /// A server without experiments whose day is `day`.
    ///
    /// # Errors
    /// When no port or thread is available.
    pub fn start(day: Day) -> anyhow::Result<Self> {
        Self::serve_with(Server::builder(), None, day, None)
    }

    /// Like [`Self::start`], as a gateway to which relays bring what devices have sealed.
    ///
    /// # Errors
    /// As [`Self::start`], and when there is no randomness for a key.
    pub fn start_as_gateway(day: Day) -> anyhow::Result<Self> {
        Self::serve_with(Server::builder(), None, day, Some(&GatewayKey::generate()?))
    }

    /// Like [`Self::start`], with TLS and a new certificate.
    ///
    /// # Errors
    /// As [`Self::start`], and when the certificate can't be made.
    pub fn start_with_tls(day: Day) -> anyhow::Result<Self> {
        let names = [Ipv4Addr::LOCALHOST.to_string(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)?;
        let certificate = made.cert.pem();
        let identity = Identity::from_pem(&certificate, made.signing_key.serialize_pem());
        // tonic uses ring: it is the only provider compiled in.
        let server = Server::builder().tls_config(ServerTlsConfig::new().identity(identity))?;
        Self::serve_with(server, Some(certificate), day, None)
    }

    fn serve_with(
        mut server: Server,
        certificate: Option<String>,
        day: Day,
        gateway: Option<&GatewayKey>,
    ) -> anyhow::Result<Self> {
        let memory = Arc::new(Memory {
            contents: Mutex::new(Contents::new(day)),
            arrived: watch::Sender::new(0),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let rest = DeviceServer::new(Questions(Arc::clone(&memory)));
        let recording = Recording { memory: Arc::clone(&memory), rest };
        let mut routes = Routes::new(recording.clone());
        if let Some(key) = gateway {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let keys = PublishedKeys::open(key.keys()?, None, Arc::clone(&clock))?;
            routes = routes.add_service(GatewayServer::new(GatewayService::new(Some(keys.into()))));
            let gates = DeviceGates::new(None, Rates::default(), 1024, clock);
            let sealed =
                gateway_route(Opener::new(key, None)?, gates.into(), Connect::new(recording));
            let heard = Arc::clone(&memory);
            let sealed = sealed
                .layer(layer_fn(move |inner| HearsSealed { inner, memory: Arc::clone(&heard) }));
            routes = Routes::from(routes.into_axum_router().merge(sealed));
        }
        let router = server.add_routes(routes);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let incoming = {
            let _entered = runtime.enter();
            TcpListenerStream::new(AsyncTcpListener::from_std(listener)?)
        };
        runtime.spawn(router.serve_with_incoming(incoming));
        Ok(Self { address, certificate, memory, runtime: Some(runtime) })
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The server's certificate as PEM, if it has one. It is self-signed.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// A lazily connected channel to the server, which trusts the certificate.
    ///
    /// # Errors
    /// When the certificate is invalid.
    pub fn channel(&self) -> anyhow::Result<Channel> {
        let mut endpoint = Channel::from_shared(self.url())?;
        if let Some(certificate) = &self.certificate {
            let trusted = Certificate::from_pem(certificate);
            endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(trusted))?;
        }
        Ok(endpoint.connect_lazy())
    }

    /// Serves this experiment under its id from now on, in place of an earlier one.
    pub fn serve(&self, specification: &Specification, policy: &Policy) {
        let id = specification.experiment_id().to_string();
        let serving = Serving { specification: specification.clone(), policy: policy.clone() };
        self.memory.lock().experiments.insert(id, serving);
    }

    /// Changes the server's day.
    pub fn set_day(&self, day: Day) {
        self.memory.lock().day = day;
    }

    /// Changes the server's store id; with `None` it sends none, as old servers do.
    pub fn set_store(&self, store: Option<StoreId>) {
        self.memory.lock().store = store;
    }

    /// Appends answers for the next uploads. Without a scripted answer an upload is accepted, or is
    /// a duplicate if its id was accepted before.
    pub fn plan(&self, answers: impl IntoIterator<Item = Answer>) {
        self.memory.lock().planned.extend(answers);
    }

    /// The recorded uploads, in order of arrival.
    pub fn uploads(&self) -> Vec<RecordedUpload> {
        self.memory.lock().uploads.clone()
    }

    /// The sealed requests that relays brought, in order of arrival.
    pub fn sealed(&self) -> Vec<RecordedSealed> {
        self.memory.lock().sealed.clone()
    }

    /// The recorded requests for experiments, in order of arrival.
    pub fn questions(&self) -> Vec<GetExperimentRequest> {
        self.memory.lock().questions.clone()
    }

    /// Waits until this many uploads have arrived since the start, answered or not.
    pub async fn arrived(&self, uploads: usize) {
        let mut arrived = self.memory.arrived.subscribe();
        // The sender lives as long as `self`.
        drop(arrived.wait_for(|count| *count >= uploads).await);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A hung call never ends.
            runtime.shutdown_background();
        }
    }
}

#[derive(Debug)]
struct Memory {
    contents: Mutex<Contents>,
    arrived: watch::Sender<usize>,
}

#[derive(Debug)]
struct Contents {
    day: Day,
    store: Option<StoreId>,
    experiments: HashMap<String, Serving>,
    planned: VecDeque<Answer>,
    questions: Vec<GetExperimentRequest>,
    uploads: Vec<RecordedUpload>,
    sealed: Vec<RecordedSealed>,
    accepted: HashSet<Bytes>,
}

impl Contents {
    fn new(day: Day) -> Self {
        Self {
            day,
            store: Some(STORE),
            experiments: HashMap::new(),
            planned: VecDeque::new(),
            questions: Vec::new(),
            uploads: Vec::new(),
            sealed: Vec::new(),
            accepted: HashSet::new(),
        }
    }

    fn store_id(&self) -> Bytes {
        self.store.map_or_else(Bytes::new, |id| Bytes::copy_from_slice(id.as_bytes()))
    }
}

#[derive(Debug)]
struct Serving {
    specification: Specification,
    policy: Policy,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an upload and returns its scripted answer; `None`: no answer.
    fn hear(&self, upload: RecordedUpload) -> Option<Result<Bytes, Status>> {
        let mut contents = self.lock();
        let id = UploadRequest::decode(upload.bytes.clone()).map(|request| request.upload_id);
        contents.uploads.push(upload);
        self.arrived.send_replace(contents.uploads.len());
        let answer = contents.planned.pop_front();
        let (status, message) = match (answer, &id) {
            (Some(Answer::Hang), _) => return None,
            (Some(Answer::Error(code, pushback)), _) => return Some(Err(error(code, pushback))),
            (Some(Answer::Status(status, message)), _) => (status, message),
            (Some(Answer::Duplicate), _) => (UploadStatus::Duplicate, ""),
            (None, Err(_)) => (UploadStatus::Malformed, "not an upload"),
            (None, Ok(id)) if contents.accepted.contains(id) => (UploadStatus::Duplicate, ""),
            (Some(Answer::Accept) | None, _) => (UploadStatus::Accepted, ""),
        };
        let upload_id = id.unwrap_or_default();
        if status == UploadStatus::Accepted {
            contents.accepted.insert(upload_id.clone());
        }
        let response = UploadResponse {
            upload_id,
            status: status.into(),
            message: message.to_owned(),
            server_day: contents.day.get(),
            store_id: contents.store_id(),
        };
        Some(Ok(response.encode_to_vec().into()))
    }
}

fn error(code: Code, pushback: Option<Duration>) -> Status {
    let mut status = Status::new(code, "as the test planned");
    if let Some(pushback) = pushback {
        let milliseconds = u64::try_from(pushback.as_millis()).unwrap_or(u64::MAX);
        status.metadata_mut().insert(PUSHBACK, milliseconds.into());
    }
    status
}

/// All methods except `SubmitUpload`.
#[derive(Clone, Debug)]
struct Questions(Arc<Memory>);

#[tonic::async_trait]
impl Device for Questions {
    async fn get_experiment(
        &self,
        request: Request<GetExperimentRequest>,
    ) -> Result<Response<GetExperimentResponse>, Status> {
        let request = request.into_inner();
        let mut contents = self.0.lock();
        contents.questions.push(request.clone());
        let serving = contents.experiments.get(&request.experiment_id);
        let serving = serving.ok_or_else(|| Status::not_found("no such experiment"))?;
        Ok(Response::new(GetExperimentResponse {
            experiment: Some(v1::Experiment::from(&serving.specification)),
            policy: Some(v1::Policy::from(&serving.policy)),
            server_day: contents.day.get(),
            store_id: contents.store_id(),
            view: None,
        }))
    }

    async fn select_arm(
        &self,
        _request: Request<SelectArmRequest>,
    ) -> Result<Response<SelectArmResponse>, Status> {
        Err(Status::unimplemented("the client draws its arms itself"))
    }

    async fn submit_upload(
        &self,
        _request: Request<UploadRequest>,
    ) -> Result<Response<UploadResponse>, Status> {
        Err(Status::internal("uploads are taken before they are decoded"))
    }

    type SubmitUploadsStream = tokio_stream::Empty<Result<UploadResponse, Status>>;

    async fn submit_uploads(
        &self,
        _request: Request<Streaming<UploadRequest>>,
    ) -> Result<Response<Self::SubmitUploadsStream>, Status> {
        Err(Status::unimplemented("the client sends one upload a call"))
    }
}

/// The whole service; it records uploads before decoding.
#[derive(Clone, Debug)]
struct Recording {
    memory: Arc<Memory>,
    rest: DeviceServer<Questions>,
}

impl NamedService for Recording {
    const NAME: &'static str = <DeviceServer<Questions> as NamedService>::NAME;
}

impl Service<http::Request<Body>> for Recording {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != SUBMIT_UPLOAD {
            return self.rest.call(request);
        }
        let uploads = Uploads(Arc::clone(&self.memory));
        Box::pin(async move { Ok(Grpc::new(MessageBytes).unary(uploads, request).await) })
    }
}

/// Records sealed requests in front of the gateway.
#[derive(Clone, Debug)]
struct HearsSealed<S> {
    inner: S,
    memory: Arc<Memory>,
}

impl<S, R, B> Service<http::Request<R>> for HearsSealed<S>
where
    S: Service<http::Request<R>, Response = http::Response<B>>,
    S::Future: Send + 'static,
    B: HttpBody,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<R>) -> Self::Future {
        let headers = format!("{:?}", request.headers());
        let length = request.headers().get("content-length");
        let request_bytes = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let (memory, answer) = (Arc::clone(&self.memory), self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await?;
            let answer_bytes = answer.body().size_hint().exact();
            memory.lock().sealed.push(RecordedSealed { headers, request_bytes, answer_bytes });
            Ok(answer)
        })
    }
}

struct Uploads(Arc<Memory>);

impl UnaryService<Bytes> for Uploads {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (metadata, _, bytes) = request.into_parts();
        let answer = self.0.hear(RecordedUpload { bytes, metadata });
        Box::pin(async move {
            match answer {
                Some(answer) => Ok(Response::new(answer?)),
                None => std::future::pending().await,
            }
        })
    }
}

/// A codec of raw bytes, so that decoding loses nothing.
#[derive(Clone, Copy, Debug)]
pub struct MessageBytes;

impl Codec for MessageBytes {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for MessageBytes {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for MessageBytes {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
