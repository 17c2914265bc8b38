//! The device service over gRPC, with features that the generated server lacks.
//!
//! An upload that can't be decoded is answered as malformed, alone or in a stream, which goes on
//! after it. The answer with an experiment is shared by all callers, not copied.

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::task::{Context, Poll};

use bandana_edge::memory::SharedAnswer;
use bandana_edge::unary::{decoded, unary};
use bandana_shared::limits::UPLOAD_BYTES_MAX;
use bandana_shared::wire::v1::device_server::SERVICE_NAME;
use bandana_shared::wire::v1::{UploadRequest, UploadResponse};
use http::{Request, Response};
use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::server::{Grpc, NamedService};
use tonic_prost::{ProstCodec, ProstEncoder};
use tower::{Service, service_fn};

use super::device::DeviceService;

/// A server of [`DeviceService`].
#[derive(Clone, Debug)]
pub struct DeviceServer(DeviceService);

impl DeviceServer {
    /// A server of this service.
    pub fn new(service: DeviceService) -> Self {
        Self(service)
    }

    /// Whether the method at this path takes requests that are marked as [`Unframed`].
    ///
    /// [`Unframed`]: bandana_edge::unary::Unframed
    pub(crate) fn takes_unframed(path: &str) -> bool {
        matches!(path, SELECT_ARM | SUBMIT_UPLOAD)
    }
}

const SELECT_ARM: &str = "/bandana.v1.Device/SelectArm";
const SUBMIT_UPLOAD: &str = "/bandana.v1.Device/SubmitUpload";

impl NamedService for DeviceServer {
    const NAME: &'static str = SERVICE_NAME;
}

/// A received upload message.
#[derive(Debug)]
pub(super) enum Received {
    /// A decoded upload, valid or not.
    Upload(UploadRequest),
    /// Bytes that can't be decoded, with the error.
    Undecodable(String),
}

impl Received {
    fn of(bytes: impl Buf) -> Self {
        match UploadRequest::decode(bytes) {
            Ok(upload) => Self::Upload(upload),
            Err(error) => Self::Undecodable(error.to_string()),
        }
    }
}

/// The codec of uploads and their answers in a stream.
#[derive(Clone, Copy, Debug, Default)]
struct UploadCodec;

impl Codec for UploadCodec {
    type Encode = UploadResponse;
    type Decode = Received;
    type Encoder = ProstEncoder<UploadResponse>;
    type Decoder = UploadDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> UploadDecoder {
        UploadDecoder
    }
}

#[derive(Clone, Copy, Debug)]
struct UploadDecoder;

impl Decoder for UploadDecoder {
    type Item = Received;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Received>, Status> {
        let received = Received::of(&mut *bytes);
        // The next upload begins after these bytes.
        bytes.advance(bytes.remaining());
        Ok(Some(received))
    }
}

fn limited<C: Codec>(codec: C) -> Grpc<C> {
    Grpc::new(codec).max_decoding_message_size(UPLOAD_BYTES_MAX)
}

impl Service<Request<Body>> for DeviceServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.0.clone();
        match request.uri().path() {
            "/bandana.v1.Device/GetExperiment" => Box::pin(async move {
                let method = service_fn(|question: tonic::Request<_>| async {
                    let shared = service.get_experiment(question.into_inner()).await?;
                    let mut answer = tonic::Response::new(());
                    answer.extensions_mut().insert(SharedAnswer(shared));
                    Ok(answer)
                });
                Ok(limited(ProstCodec::default()).unary(method, request).await)
            }),
            SELECT_ARM => Box::pin(async move {
                let method = async |question| service.select_arm(question).await;
                Ok(unary(request, decoded, method).await)
            }),
            SUBMIT_UPLOAD => Box::pin(async move {
                let received = |bytes| Ok(Received::of(bytes));
                let method = async |upload| service.submit_upload(upload).await;
                Ok(unary(request, received, method).await)
            }),
            "/bandana.v1.Device/SubmitUploads" => Box::pin(async move {
                let method = service_fn(|uploads| ready(Ok(service.submit_uploads(uploads))));
                Ok(limited(UploadCodec).streaming(method, request).await)
            }),
            _ => {
                Box::pin(async { Ok(Status::unimplemented("there is no such method").into_http()) })
            }
        }
    }
}
