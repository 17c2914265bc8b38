//! The media type that a gRPC call must declare, which a web page can't send without a preflight
//! request.
//!
//! A page of another origin can make a browser send a POST with the user's client certificate.
//! Without a CORS preflight, which this server does not answer, only a few media types are
//! possible.

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Response, StatusCode, header::CONTENT_TYPE};

const MEDIA_TYPE: &str = "application/grpc";

/// The refusal of any other media type, as the gRPC protocol requires: status 415.
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

/// Whether this is the media type, alone or followed by a format or parameters.
fn is_grpc(declared: &[u8]) -> bool {
    let (begin, rest) = declared.split_at(MEDIA_TYPE.len().min(declared.len()));
    begin.eq_ignore_ascii_case(MEDIA_TYPE.as_bytes())
        && matches!(rest.first(), None | Some(b'+' | b';'))
}
