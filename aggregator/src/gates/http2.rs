//! What HTTP/2 may cost.
//!
//! Memory of one service has a bound, whatever its callers do:
//!
//! ```text
//! connections x (20 KiB + CONNECTION_WINDOW + header_bytes
//!                + streams_per_connection x (3 KiB + the largest answer))
//! + calls x (header_bytes + 3 x the largest request)
//! ```
//!
//! Of what a connection sends, at most its window lies unread, however many streams it
//! opens. A request is copied from there once the call is let in: twice when it is longer
//! than its frames, and again as it is decoded. An answer that is not taken stays with its
//! stream. Few connections ever come near their part; with the defaults, a thousand that
//! try to take some 600 MB of small answers and windows.
//!
//! Floods that cost time rather than memory have bounds too: pings and settings are
//! answered before more is read, streams that are reset before they were looked at are
//! counted, and so are those that the server resets; small data frames have a budget in
//! `h2`, and so have continued headers.

use std::time::Duration;

use bandana_shared::limits::{ARMS_MAX, LABEL_BYTES_MAX, UPLOAD_BYTES_MAX};
use tonic::transport::Server;
use tower_layer::{Identity, Stack};

use super::request_time::RequestTimeLayer;
use crate::network::ConnectionLimits;

/// Silence on a connection after which its other end is asked for a sign of
/// life, so that connections of devices that are gone do not pile up.
const KEEPALIVE_INTERVAL: Duration = Duration::from_mins(1);

/// How long it has for that.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a stream that are sent before they are asked for: the largest upload twice.
const STREAM_WINDOW: u32 = 32 * 1024;

/// The same of a connection: a stream that is not read leaves room for others. At 100 ms
/// to a gateway and back it is good for a megabyte, 5 million packed reports, in a second.
const CONNECTION_WINDOW: u32 = 128 * 1024;

/// Streams of a connection that were reset before the server looked at them; more end it
/// (rapid reset, CVE-2023-44487).
const UNSEEN_RESETS_MAX: usize = 20;

/// Streams of a connection that the server has reset for what their other end did; more
/// end it. Without being told, tonic sets no limit (RUSTSEC-2024-0003).
const FAULTY_STREAMS_MAX: usize = 1024;

/// Bytes of a request of operators: an experiment with as many arms as there can be.
pub(crate) const OPERATOR_REQUEST_BYTES_MAX: usize = 256 * 1024;

/// Bytes of a question for health, which is the name of a service.
pub(crate) const HEALTH_REQUEST_BYTES_MAX: usize = 1024;

const _: () = {
    assert!(STREAM_WINDOW as usize >= 2 * UPLOAD_BYTES_MAX);
    assert!(ARMS_MAX * (LABEL_BYTES_MAX + 16) + 4096 <= OPERATOR_REQUEST_BYTES_MAX);
};

/// A server with these limits, without services yet.
pub(crate) fn http2_server(
    limits: &ConnectionLimits,
    request_time: Duration,
) -> Server<Stack<RequestTimeLayer, Identity>> {
    Server::builder()
        .max_concurrent_streams(limits.streams_per_connection)
        .http2_max_header_list_size(limits.header_bytes)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_pending_accept_reset_streams(Some(UNSEEN_RESETS_MAX))
        .http2_max_local_error_reset_streams(Some(FAULTY_STREAMS_MAX))
        .layer(RequestTimeLayer(request_time))
}
