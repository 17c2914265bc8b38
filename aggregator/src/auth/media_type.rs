//! The media type that a gRPC call must declare, which no web page can without being asked first.
//!
//! A page of another origin may have a browser send a POST with the client certificate that it
//! holds, of a few media types, and of others only after a question that nobody here answers.

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Response, StatusCode, header::CONTENT_TYPE};

const MEDIA_TYPE: &str = "application/grpc";

/// The refusal of a call that declares something else, as the protocol has it: 415.
pub(crate) fn refuse_other_media_types(headers: &HeaderMap) -> Option<Response<Body>> {
    let mut declared = headers.get_all(CONTENT_TYPE).iter();
    let is_grpc = declared.next().is_some_and(|value| is_grpc(value.as_bytes()));
    if is_grpc && declared.next().is_none() {
        return None;
    }
    let refusal = Status::invalid_argument("a gRPC call has the content-type application/grpc");
    let mut refusal = refusal.into_http();
    *refusal.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    Some(refusal)
}

/// Whether it is the media type alone, or with a format or parameters behind it.
fn is_grpc(declared: &[u8]) -> bool {
    let (begin, rest) = declared.split_at(MEDIA_TYPE.len().min(declared.len()));
    begin.eq_ignore_ascii_case(MEDIA_TYPE.as_bytes())
        && matches!(rest.first(), None | Some(b'+' | b';'))
}
