//! Calls through a relay, by Oblivious HTTP (RFC 9458).

use std::future::poll_fn;
use std::io::Cursor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandana_shared::gateway::{
    ANSWER_TYPE, GatewayKeys, PATH, PROBLEM_TYPE, REQUEST_BYTES_MAX, REQUEST_BYTES_MIN,
    REQUEST_TYPE, pad,
};
use bandana_shared::identity::UnixSeconds;
use bandana_shared::transparency::{Subject, View, Witnessed, gateway_value};
use bandana_shared::wire::signatures;
use bandana_shared::wire::v1::gateway_client::GatewayClient;
use bandana_shared::wire::v1::shuffler_client::ShufflerClient;
use bandana_shared::wire::v1::{GetGatewayKeysRequest, UploadResponse};
use bhttp::{Message as BinaryMessage, Mode};
use http_body_util::{BodyExt as _, Full, Limited};
use ohttp::ClientRequest;
use prost::Message;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::Bytes;
use tonic::codegen::http::header::{CONTENT_TYPE, RETRY_AFTER};
use tonic::codegen::http::{HeaderMap, Request, StatusCode, response};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::AppKey;
use super::answers::PUSHBACK;
use crate::shuffled_task::ShuffledTask;
use crate::signers::Signers;
use crate::time::{Clock as _, SystemClock, Timestamp};

/// Most bytes of an answer, as of one over gRPC.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Longest time for which a gateway's keys are used before they are asked for again.
const KEYS_TIME: Duration = Duration::from_hours(24);

/// The host in a sealed request. A gateway does not look at it; every device sends the same.
const AUTHORITY: &[u8] = b"aggregator";

/// The gateway behind a relay: who must have signed its keys, and the keys.
#[derive(Clone, Debug)]
pub(super) struct Gateway {
    /// None: the keys need no signature.
    signers: Option<Signers>,
    /// None: the keys need not stand in a log.
    log: Option<Witnessed>,
    keys: Arc<Mutex<Option<Held>>>,
}

/// Keys that were taken.
#[derive(Clone, Debug)]
struct Held {
    keys: GatewayKeys,
    /// In the past: they must be asked for again.
    until: Timestamp,
    /// The number of epochs of the log that said them; 0 without a log.
    log_size: u64,
}

impl Gateway {
    pub(super) fn new(signers: Option<Signers>) -> Self {
        Self { signers, log: None, keys: Arc::default() }
    }

    /// The gateway whose keys this log must say.
    pub(super) fn witnessed(self, log: Witnessed) -> Self {
        // A batch is for one key: whoever gets an old one may be alone in it.
        let log = Some(log.fresh_for(Witnessed::FRESHNESS_OF_KEPT));
        Self { log, keys: Arc::default(), ..self }
    }

    /// The keys, asked for over `relay` if there are none.
    async fn keys(&self, relay: Channel) -> Result<GatewayKeys, Status> {
        let now = SystemClock.now();
        if let Some(held) = self.held().filter(|held| now < held.until) {
            return Ok(held.keys);
        }
        let asked = GatewayClient::new(relay).get_gateway_keys(GetGatewayKeysRequest {}).await;
        let message = asked.map_err(keyless)?.into_inner();
        let refused = |what: String| Status::failed_precondition(what);
        let keys = GatewayKeys::new(&message.key_configurations);
        let keys = keys.map_err(|error| refused(error.to_string()))?;
        let mut until = now.after(KEYS_TIME);
        if let Some(signers) = &self.signers {
            let judged = signers.judge(&keys, &signatures(&message.signatures), now);
            let signed_until = judged.map_err(|error| {
                refused(format!("the gateway's keys are not signed as the app demands: {error}"))
            })?;
            until = until.min(signed_until);
        }
        let mut held = self.lock();
        let mut log_size = 0;
        if let Some(log) = &self.log {
            let view = message.view.as_ref().map(View::try_from).transpose();
            let view = view.map_err(|error| refused(error.to_string()))?;
            let (subject, value) = (Subject::GatewayKeys.key(), gateway_value(&keys));
            let known = held.as_ref().map_or(0, |held| held.log_size);
            let time = UnixSeconds::new(now.unix_ms() / 1000);
            let checked = log.check(view.as_ref(), (&subject, &value), known, time);
            log_size = checked.map_err(|error| refused(format!("the gateway's keys: {error}")))?;
        }
        *held = Some(Held { keys: keys.clone(), until, log_size });
        Ok(keys)
    }

    /// Has the next call ask for the keys.
    fn ask_again(&self) {
        if let Some(held) = &mut *self.lock() {
            held.until = Timestamp::default();
        }
    }

    fn held(&self) -> Option<Held> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a shuffled report to the relay, sealed for the gateway and for the relay.
    pub(super) async fn upload_shuffled(
        &self,
        relay: Channel,
        task: &ShuffledTask,
    ) -> Result<UploadResponse, Status> {
        let keys = self.keys(relay.clone()).await?;
        let sealed = task.seal(&keys);
        // About this relay and its reports only.
        let sealed = sealed.map_err(|error| Status::invalid_argument(error.to_string()))?;
        match ShufflerClient::new(relay).submit_shuffled(sealed).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => {
                if status.code() == Code::InvalidArgument {
                    // They may be other keys since.
                    self.ask_again();
                }
                Err(status)
            }
        }
    }

    /// Makes a call of the device service over `relay`, sealed for the gateway.
    pub(super) async fn call<A: Message + Default>(
        &self,
        relay: Channel,
        method: &str,
        message: &impl Message,
        app_key: Option<&AppKey>,
    ) -> Result<A, Status> {
        let keys = self.keys(relay.clone()).await?;
        let request = binary_request(method, &message.encode_to_vec(), app_key)?;
        let client = ClientRequest::from_encoded_config_list(keys.configurations());
        let (sealed, waiting) =
            client.and_then(|client| client.encapsulate(&request)).map_err(|_| {
                Status::failed_precondition(
                    "no request can be sealed for these keys of the gateway",
                )
            })?;
        let (head, sealed) = post(relay, sealed).await?;
        if head.status != StatusCode::OK {
            if is(&head.headers, PROBLEM_TYPE) {
                // The next call asks for the keys again.
                self.ask_again();
            }
            // What the relay says is not what the aggregator says of the call.
            return Err(unanswered(&head.headers, head.status));
        }
        if !is(&head.headers, ANSWER_TYPE) {
            return Err(Status::unavailable(
                "the relay's answer is not one of a gateway; see whether its address is right",
            ));
        }
        let answer = waiting.decapsulate(&sealed);
        let answer = answer.map_err(|_| Status::unavailable("the answer can't be opened"))?;
        answered(&answer)
    }
}

/// A request as padded binary HTTP.
fn binary_request(
    method: &str,
    message: &[u8],
    app_key: Option<&AppKey>,
) -> Result<Vec<u8>, Status> {
    let path = format!("/bandana.v1.Device/{method}");
    let mut request = BinaryMessage::request(
        b"POST".to_vec(),
        b"https".to_vec(),
        AUTHORITY.to_vec(),
        path.into_bytes(),
    );
    request.put_header("content-type", "application/proto");
    if let Some(key) = app_key {
        request.put_header(crate::app_key::HEADER, key.expose());
    }
    request.write_content(message);
    let mut bytes = Vec::with_capacity(REQUEST_BYTES_MIN.max(message.len() + 512));
    request
        .write_bhttp(Mode::KnownLength, &mut bytes)
        .map_err(|_| Status::internal("the request can't be written"))?;
    pad(&mut bytes, REQUEST_BYTES_MIN);
    if bytes.len() > REQUEST_BYTES_MAX {
        return Err(Status::out_of_range("the request is too long for a relay"));
    }
    Ok(bytes)
}

/// Posts a sealed request, and returns the answer.
async fn post(mut relay: Channel, sealed: Vec<u8>) -> Result<(response::Parts, Bytes), Status> {
    let ready = poll_fn(|context| GrpcService::<Body>::poll_ready(&mut relay, context));
    ready.await.map_err(not_reached)?;
    let request = Request::post(PATH)
        .header(CONTENT_TYPE, REQUEST_TYPE)
        .body(Body::new(Full::<Bytes>::from(sealed)))
        .map_err(|_| Status::internal("the request can't be built"))?;
    let (head, body) = relay.call(request).await.map_err(not_reached)?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|_| Status::unavailable("the relay's answer was cut off"))?;
    Ok((head, body.to_bytes()))
}

fn not_reached(error: tonic::transport::Error) -> Status {
    let mut status = Status::unavailable("the relay can't be reached");
    status.set_source(Arc::new(error));
    status
}

/// The message in an opened answer.
fn answered<A: Message + Default>(answer: &[u8]) -> Result<A, Status> {
    let answer = BinaryMessage::read_bhttp(&mut Cursor::new(answer));
    let answer = answer.map_err(|_| Status::unavailable("the answer can't be read"))?;
    let status = answer.control().status().map_or(0, bhttp::StatusCode::code);
    if status != 200 {
        let mut headers = HeaderMap::new();
        let wait = answer.header().get(RETRY_AFTER.as_str().as_bytes());
        if let Some(wait) = wait.and_then(|wait| wait.try_into().ok()) {
            headers.insert(RETRY_AFTER, wait);
        }
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        let refused = Status::new(code(status), format!("the aggregator answered {status}"));
        return Err(with_wait(refused, &headers));
    }
    A::decode(answer.content()).map_err(|_| Status::internal("the answer can't be decoded"))
}

/// The status of a call for which there are no keys, whatever code the relay gives as a reason: the
/// aggregator has not heard of the call.
fn keyless(status: Status) -> Status {
    let words = format!("the relay gives no keys of the gateway: {}", status.message());
    let mut keyless = Status::unavailable(words);
    *keyless.metadata_mut() = status.metadata().clone();
    keyless.set_source(Arc::new(status));
    keyless
}

/// The status of a call about which the aggregator has said nothing.
fn unanswered(headers: &HeaderMap, status: StatusCode) -> Status {
    with_wait(Status::unavailable(format!("the relay answered {status}")), headers)
}

/// Adds the wait that is asked for, as gRPC has it.
fn with_wait(mut status: Status, headers: &HeaderMap) -> Status {
    let wait = headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse::<u32>().ok());
    if let Some(seconds) = wait {
        let wait = MetadataValue::from(u64::from(seconds) * 1000);
        status.metadata_mut().insert(PUSHBACK, wait);
    }
    status
}

/// The code of a refusal by the Connect protocol.
fn code(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::InvalidArgument,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::NOT_IMPLEMENTED => Code::Unimplemented,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        StatusCode::GATEWAY_TIMEOUT => Code::DeadlineExceeded,
        _ => Code::Unknown,
    }
}

fn is(headers: &HeaderMap, media_type: &str) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind == media_type)
}
