//! Carries out a client's tasks over gRPC: as the background work of a
//! [`crate::Bandana`], which takes a [`Transport`], or for a [`crate::Core`] by [`run_until`].
//!
//! ```
#![doc = include_str!("example.txt")]
//! use bandana_client::{Bandana, grpc::Transport};
//!
//! // One connection for the app's own calls and those of Bandana, with settings of the app.
//! let endpoint = tonic::transport::Endpoint::from_static("http://localhost:50051");
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # let _entered = runtime.enter();
//! let transport = Transport::new(endpoint.connect_lazy());
//! let builder = Bandana::builder().transport(transport);
//! # let (bandana, _driver) = agree(builder.in_memory())?.driver();
//! # assert_eq!(bandana.status().waiting_reports, 0);
//! # Ok::<(), Failure>(())
//! ```

mod answers;
mod connection;
#[cfg(feature = "relay")]
mod relay;
mod run;

use std::time::Duration;

#[cfg(feature = "relay")]
use bandana_shared::transparency::Witnessed;
use bandana_shared::wire::WireError;
use bandana_shared::wire::v1::device_client::DeviceClient;
#[cfg(feature = "trusted")]
use bandana_shared::wire::v1::trusted_client::TrustedClient;
use bandana_shared::wire::v1::{
    GetExperimentRequest, GetExperimentResponse, UploadRequest, UploadResponse,
};
use prost::Message as _;
use thiserror::Error;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

#[cfg(feature = "trusted")]
pub(crate) use crate::messages::LATER;
use answers::outcome_of_error;
#[cfg(feature = "relay")]
use answers::outcome_of_relay_error;
#[cfg(feature = "trusted")]
pub(crate) use answers::{is_about_the_question, pushback};
pub use connection::EndpointError;
use connection::{Connection, Unanswered};
pub use run::run_until;
pub(crate) use run::tell_answer;

pub use crate::app_key::{AppKey, AppKeyError};
use crate::core::{ClientError, FetchTask, Fetched};
use crate::messages::{fetched, outcome_of_response};
use crate::outbox::{UploadOutcome, UploadTask};
use crate::shuffled_task::ShuffledTask;
#[cfg(feature = "relay")]
use crate::signers::Signers;

/// Longest time for a call.
pub(crate) const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// A connection to an aggregator. It is cheap to clone, and clones share the connection.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::{FetchTask, UploadOutcome};
/// use bandana_client::grpc::{Transport, TransportError};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # // A port that nobody listens on any more.
/// # let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// # let id = specification()?.experiment_id().clone();
/// # runtime.block_on(async {
/// // No server is at this address.
/// let mut transport = Transport::to(&format!("http://{closed}"))?;
/// let answer = transport.fetch(&FetchTask::new(id)).await;
/// assert!(matches!(answer, Err(TransportError::Status(_))));
/// # Ok::<(), Failure>(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// The server and observers of the network learn the device's address and the time of each call. An
/// upload has a connection and a TLS session of its own, so only the address links it to other
/// calls. Over `http://`, every party on the path can read the calls and forge answers.
#[derive(Clone, Debug)]
pub struct Transport {
    connection: Connection,
    app_key: Option<AppKey>,
    /// None: the connection leads to the aggregator itself.
    #[cfg(feature = "relay")]
    gateway: Option<relay::Gateway>,
}

impl Transport {
    /// A transport to the aggregator at this address. With the feature `tls`, `https://` works with
    /// the system's roots. `http://` works on this machine only: see [`Self::in_the_clear`]. The
    /// transport connects at the first call. It connects again after the connection was lost or a
    /// call was given up.
    ///
    /// ```
    /// use bandana_client::grpc::{EndpointError, Transport};
    /// Transport::to("http://localhost:50051")?;
    /// let refused = Transport::to("localhost:50051");
    /// assert!(matches!(refused, Err(EndpointError::Scheme { .. })));
    /// let refused = Transport::to("http://bandana.example.org");
    /// assert!(matches!(refused, Err(EndpointError::InTheClear { .. })));
    /// # Ok::<(), EndpointError>(())
    /// ```
    ///
    /// # Errors
    /// [`EndpointError`] when the address is not valid, or the system's roots can't be read.
    pub fn to(url: &str) -> Result<Self, EndpointError> {
        Ok(Self::over(Connection::to(url)?))
    }

    /// A transport to the aggregator at this `http://` address, on any machine.
    ///
    /// ```
    /// use bandana_client::grpc::Transport;
    /// // In a network of the operator's, in which TLS ends before the aggregator.
    /// let transport = Transport::in_the_clear("http://aggregator.internal:50051")?;
    /// # let _ = transport;
    /// # Ok::<(), bandana_client::grpc::EndpointError>(())
    /// ```
    ///
    /// # Privacy
    /// Every party on the path can read the calls. It can also forge the answers: the policy, the
    /// server's day, and specifications that the app does not want signed.
    ///
    /// # Errors
    /// [`EndpointError`] when the address is not valid, or has another scheme.
    pub fn in_the_clear(url: &str) -> Result<Self, EndpointError> {
        Ok(Self::over(Connection::in_the_clear(url)?))
    }

    /// A transport to the aggregator at this `https://` address that trusts only these root
    /// certificates, in PEM.
    ///
    /// ```
    /// use bandana_client::grpc::{EndpointError, Transport};
    /// // Part of the app.
    /// let roots = b"-----BEGIN CERTIFICATE-----\n...";
    /// // Roots are of no use without TLS.
    /// let refused = Transport::with_roots("http://bandana.example.org", roots);
    /// assert!(matches!(refused, Err(EndpointError::Scheme { .. })));
    /// // The certificate is cut off.
    /// let refused = Transport::with_roots("https://bandana.example.org", roots);
    /// assert!(matches!(refused, Err(EndpointError::Tls(_))));
    /// ```
    ///
    /// # Errors
    /// [`EndpointError`] when the address or the roots can't be used.
    #[cfg(feature = "tls")]
    pub fn with_roots(url: &str, roots_pem: &[u8]) -> Result<Self, EndpointError> {
        Ok(Self::over(Connection::with_roots(url, roots_pem)?))
    }

    fn over(connection: Connection) -> Self {
        Self {
            connection,
            app_key: None,
            #[cfg(feature = "relay")]
            gateway: None,
        }
    }

    /// Calls through the relay at this transport's address, by Oblivious HTTP. The relay learns the
    /// device's address, but not what the device says. The aggregator learns what the device says,
    /// but not which device says it. All of `signers` must have signed the keys of the aggregator's
    /// gateway. So devices can't be told apart by the keys that they were given. Disclosures of
    /// rewards do not go through relays.
    ///
    /// ```
    /// use bandana_client::{Signers, grpc::Transport};
    ///
    /// // Put the keys of your specifications here, as `bandana keys show` prints them.
    /// let operator = "fe1e430f306107d8a478c205e881326dfe92991bf9a7af9f042dc18aa39cbab5";
    /// let signers = Signers::key(operator.parse()?);
    /// let transport = Transport::to("http://localhost:50051")?.through_relay(signers);
    /// # let _ = transport;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Privacy
    /// Different parties must run relay and aggregator. Together they know as much as an aggregator
    /// that is called directly. A relay holds each call for a random time. Nothing else separates
    /// the time of the call from its content. A relay that shuffles opens the envelopes of shuffled
    /// reports. So it learns experiment, arm and day of each report, but not its bit: see
    /// [`crate::Shuffled`].
    #[cfg(feature = "relay")]
    #[must_use]
    pub fn through_relay(self, signers: Signers) -> Self {
        Self { gateway: Some(relay::Gateway::new(Some(signers))), ..self }
    }

    /// Takes only gateway keys that the server's public log contains, as enough of these witnesses
    /// have seen it: see [`crate::Acceptance::witnessed`]. Signers alone can't prevent that a
    /// server with several signed keys gives one device a key of its own.
    ///
    /// Call it after [`Self::through_relay`]. Without a relay there are no such keys.
    ///
    /// ```
    /// use bandana_client::{Signers, grpc::Transport};
    /// use bandana_shared::transparency::Witnessed;
    ///
    /// # let operator = "fe1e430f306107d8a478c205e881326dfe92991bf9a7af9f042dc18aa39cbab5";
    /// # let signers = Signers::key(operator.parse()?);
    /// // As `bandana log-key` printed them.
    /// let log = "bandana.example/log+2707c076+AddamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";
    /// let witness = "witness.example/w1+04d2d833+BD1AF8PoQ4lakrcKp00bfrycmCzPLsSWjMDNVfEq9GYM";
    /// let log = Witnessed::new(log.parse()?, vec![witness.parse()?], 1)?;
    /// let transport = Transport::to("http://localhost:50051")?.through_relay(signers).witnessed(log);
    /// # let _ = transport;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "relay")]
    #[must_use]
    pub fn witnessed(self, log: Witnessed) -> Self {
        Self { gateway: self.gateway.map(|gateway| gateway.witnessed(log)), ..self }
    }

    /// Like [`Self::through_relay`], to a gateway whose keys nobody has signed.
    ///
    /// ```
    /// use bandana_client::grpc::Transport;
    /// let transport = Transport::to("http://localhost:50051")?.through_relay_unsigned();
    /// # let _ = transport;
    /// # Ok::<(), bandana_client::grpc::EndpointError>(())
    /// ```
    ///
    /// # Privacy
    /// A relay that gives out keys of its own can read the calls. A relay that works with the
    /// aggregator can give each device another key, and so recognise the device.
    #[cfg(feature = "relay")]
    #[must_use]
    pub fn through_relay_unsigned(self) -> Self {
        Self { gateway: Some(relay::Gateway::new(None)), ..self }
    }

    /// A transport over an existing channel, such as one in memory or one through a proxy.
    ///
    /// ```
    /// use bandana_client::grpc::Transport;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # let _entered = runtime.enter();
    /// let endpoint = tonic::transport::Endpoint::from_static("http://localhost:50051");
    /// let transport = Transport::new(endpoint.connect_lazy());
    /// # let _ = transport.clone();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(channel: Channel) -> Self {
        Self::over(Connection::Over(channel))
    }

    /// Sends this key with every call. Replaces an earlier key.
    ///
    /// ```
    /// use bandana_client::grpc::{AppKey, Transport};
    /// let key = AppKey::new("bndk_AbM1pBHC0jRT1SXPrVgFzWAM5dqMKJkdPDo3ueZ8oA0")?;
    /// let transport = Transport::to("http://localhost:50051")?.with_app_key(key);
    /// assert!(!format!("{transport:?}").contains("bndk_"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Privacy
    /// See [`AppKey`]: all installations must have the same key.
    #[must_use]
    pub fn with_app_key(self, key: AppKey) -> Self {
        Self { app_key: Some(key), ..self }
    }

    /// A request that carries the app's key.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(key) = &self.app_key {
            // An app key has visible ASCII characters only.
            if let Ok(mut value) = key.expose().parse::<AsciiMetadataValue>() {
                value.set_sensitive(true);
                request.metadata_mut().insert(crate::app_key::HEADER, value);
            }
        }
        request
    }

    /// A client of the device service. Needs a tokio runtime.
    fn device(&self) -> DeviceClient<Channel> {
        DeviceClient::new(self.connection.shared())
    }

    /// A client of the service for disclosed rewards. Needs a tokio runtime.
    #[cfg(feature = "trusted")]
    pub(crate) fn trusted(&self) -> TrustedClient<Channel> {
        TrustedClient::new(self.connection.shared())
    }

    /// Closes the connection, so that no ping wakes the device while there is nothing to be done. The
    /// next call makes a new one. A channel of the host's stays as it is.
    pub(crate) fn close(&self) {
        self.connection.close();
    }

    /// Waits for the answer of a call. If the returned future is dropped before the answer, the
    /// next call makes a new connection: a connection that falls silent during a call may stay so
    /// for a quarter of an hour, as after a change of networks.
    pub(crate) async fn answered<T>(&self, call: impl Future<Output = T>) -> T {
        let mut unanswered = Unanswered(Some(&self.connection));
        let answer = call.await;
        unanswered.0 = None;
        answer
    }

    /// Fetches an experiment. It waits as long as the call takes, so set a time limit.
    /// [`run_until`] sets 30 seconds. Needs a tokio runtime.
    ///
    /// ```no_run
    /// # async fn host(mut client: bandana_client::Client, now: bandana_client::Timestamp)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// use bandana_client::{Task, grpc::Transport};
    ///
    /// let mut transport = Transport::to("http://localhost:50051")?;
    /// if let Task::Fetch(task) = client.next_task(now)? {
    ///     let fetched = transport.fetch(&task).await?;
    ///     client.on_fetched(&task, fetched, now)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransportError`] when there was no valid answer.
    pub async fn fetch(&mut self, task: &FetchTask) -> Result<Fetched, TransportError> {
        let request = GetExperimentRequest { experiment_id: task.experiment_id.to_string() };
        let answer = self.answered(self.get_experiment(request)).await;
        if answer.is_err() {
            // A lost connection would be made again with the session of the old one.
            self.close();
        }
        Ok(fetched(&answer?)?)
    }

    async fn get_experiment(
        &self,
        request: GetExperimentRequest,
    ) -> Result<GetExperimentResponse, Status> {
        #[cfg(feature = "relay")]
        if let Some(gateway) = &self.gateway {
            let (relay, key) = (self.connection.shared(), self.app_key.as_ref());
            return gateway.call(relay, "GetExperiment", &request, key).await;
        }
        Ok(self.device().get_experiment(self.request(request)).await?.into_inner())
    }

    /// Sends an upload that no client of this crate has made, such as an upload of a load test or
    /// of a gateway that collects reports. Each upload has a connection of its own, as with
    /// [`Self::upload`].
    ///
    /// ```
    /// use bandana_client::grpc::Transport;
    /// use bandana_shared::wire::v1::UploadRequest;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    /// # runtime.block_on(async {
    /// // No server is at this address.
    /// let transport = Transport::to(&format!("http://{closed}"))?;
    /// let answer = transport.submit_upload(UploadRequest::default()).await;
    /// assert_eq!(answer.unwrap_err().code(), tonic::Code::Unavailable);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The status when there is no answer about the upload.
    pub async fn submit_upload(&self, request: UploadRequest) -> Result<UploadResponse, Status> {
        let connection = self.connection.separate();
        #[cfg(feature = "relay")]
        if let Some(gateway) = &self.gateway {
            let key = self.app_key.as_ref();
            return gateway.call(connection, "SubmitUpload", &request, key).await;
        }
        let mut device = DeviceClient::new(connection);
        Ok(device.submit_upload(self.request(request)).await?.into_inner())
    }

    /// Sends an upload over a connection that has no other call. So nothing links it to a fetch or
    /// to another upload. Only a channel that the app gave is shared. The outcome also covers
    /// failures: it says whether to send the same bytes again. The call waits as long as it takes,
    /// so set a time limit. [`run_until`] sets 30 seconds. Needs a tokio runtime.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::{Task, UploadOutcome, grpc::Transport};
    /// # use std::time::Duration;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # // A port that nobody listens on any more.
    /// # let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// # client.draw(&id, now())?;
    /// # let later = now().after(Duration::from_secs(600 + 3600));
    /// # let Task::Fetch(_) = client.next_task(later)? else { return Err("no question".into()) };
    /// # client.on_fetched(&FetchTask::new(id.clone()), answer(later)?, later)?;
    /// # runtime.block_on(async {
    /// // No server is at this address.
    /// let mut transport = Transport::to(&format!("http://{closed}"))?;
    /// let Task::Upload(task) = client.next_task(later)? else { return Err("not yet".into()) };
    /// let outcome = transport.upload(&task).await;
    /// assert_eq!(outcome, UploadOutcome::Unanswered { retry_after: None });
    /// client.on_upload_result(task.id(), &outcome, later)?;
    /// assert_eq!(client.waiting_reports(), 1, "it is kept");
    /// # Ok::<(), Failure>(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    pub async fn upload(&mut self, task: &UploadTask) -> UploadOutcome {
        // The message re-encodes to the bytes of the task: both are canonical.
        let request = match UploadRequest::decode(task.bytes()) {
            Ok(request) => request,
            Err(error) => {
                return UploadOutcome::Refused { message: error.to_string() };
            }
        };
        match self.submit_upload(request).await {
            Ok(response) => outcome_of_response(response),
            Err(status) => outcome_of_error(&status),
        }
    }

    /// Seals a shuffled report and sends it to the relay at this transport's address, over a
    /// connection that has no other call. If the transport leads through no relay, or without the
    /// feature `relay`, nothing is sent and the outcome is [`UploadOutcome::NoRelay`]. Everything
    /// else is as with [`Self::upload`]. The app's key is not sent, since it is of no use to a
    /// relay.
    ///
    /// ```
    /// use bandana_client::{ShuffledTask, UploadOutcome, grpc::Transport};
    ///
    /// async fn carry_out(task: &ShuffledTask) -> Result<UploadOutcome, Box<dyn std::error::Error>> {
    ///     // It leads to the aggregator itself, which gets no shuffled report.
    ///     let mut transport = Transport::to("http://localhost:50051")?;
    ///     let outcome = transport.upload_shuffled(task).await;
    ///     assert_eq!(outcome, UploadOutcome::NoRelay);
    ///     Ok(outcome)
    /// }
    /// ```
    ///
    /// # Privacy
    /// The relay learns what [`ShuffledTask`] says. With `through_relay`, the key that the report
    /// is sealed for must be signed. If nobody has signed the keys, a relay can read the report.
    pub async fn upload_shuffled(&mut self, task: &ShuffledTask) -> UploadOutcome {
        #[cfg(feature = "relay")]
        if let Some(gateway) = &self.gateway {
            return match gateway.upload_shuffled(self.connection.separate(), task).await {
                Ok(response) => outcome_of_response(response),
                Err(status) => outcome_of_relay_error(&status),
            };
        }
        // Without the feature there is nothing to wait for.
        let _ = task;
        std::future::ready(UploadOutcome::NoRelay).await
    }
}

/// A task that could not be carried out.
///
/// ```
/// use bandana_client::grpc::TransportError;
///
/// /// How severe a gateway's log entry is.
/// fn severity(error: &TransportError) -> &'static str {
///     match error {
///         TransportError::Status(_) => "info",
/// // The server breaks the protocol.
///         _ => "warning",
///     }
/// }
/// let unavailable = TransportError::from(tonic::Status::unavailable("try later"));
/// assert_eq!(severity(&unavailable), "info");
/// ```
#[derive(Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The server could not be reached, or refused.
    #[error("the aggregator could not answer")]
    Status(#[from] Box<Status>),
    /// The server's answer breaks the protocol.
    #[error("the aggregator's answer is not valid")]
    Answer(#[from] WireError),
    /// The client refused the answer.
    #[error(transparent)]
    Client(#[from] ClientError),
}

bandana_shared::debug_says!(TransportError);

impl From<Status> for TransportError {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}
