//! What HTTP/2 may cost.
//!
//! Memory of one service has a bound, whatever its callers do:
//!
//! ```text
//! connections x (20 KiB + 3/2 x CONNECTION_WINDOW + header_bytes
//!                + streams_per_connection x (3 KiB + the largest answer))
//! + calls x (header_bytes + 3 x the largest request)
//! ```
//!
//! Of what a connection sends, at most its window lies unread, however many streams it
//! opens, and what keeping it in small frames costs is at most half of that. A request is
//! copied from there once the call is let in: twice when it is longer than its frames, and
//! again as it is decoded. An answer that is not taken stays with its
//! stream, but a connection that can't be written to is not read any further.
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

/// Bytes of a stream that are sent before they are asked for. At 100 ms to a gateway and
/// back it is good for 160 kB, more than half a million packed reports, in a second.
const STREAM_WINDOW: u32 = 16 * 1024;

/// The same of a connection.
///
/// `h2` ends a connection when the frames below 256 bytes that lie unread waste more than
/// half of this; and streams of uploads are slowed down by being left unread. So there is
/// room for two of them, full of the smallest uploads in frames of their own, and a
/// quarter more, since senders split frames where a window ends.
const CONNECTION_WINDOW: u32 = 320 * 1024;

/// The smallest upload in a frame of its own: one report, and five bytes before it.
const SMALLEST_FRAME: u32 = 52;

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
    assert!(STREAM_WINDOW as usize >= UPLOAD_BYTES_MAX);
    let waste = STREAM_WINDOW / SMALLEST_FRAME * (256 - SMALLEST_FRAME);
    assert!(2 * waste / 4 * 5 <= CONNECTION_WINDOW / 2);
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
