//! An HTTP/2 server with limits, and the bound of memory that follows from them.
//!
//! What a service holds for its callers has a bound, whatever they do: `limits.memory_mib`. Of that,
//!
//! ```text
//! connections x (32 KiB + 5 x header_bytes)
//! ```
//!
//! are set aside, for as many connections as fit in half of it: measured were 15 KiB for an idle
//! one, 22 KiB with TLS, and 98 KiB for one with a block of many headers that has no end. The rest
//! is for calls. Each holds, until its answer was taken, 4 KiB (2.7 KiB were measured) and its
//! headers; while its request comes, 10 KiB and three times what has come; a stream of uploads
//! 192 KiB for its window and what small frames waste; and its answer. What is not known before it
//! is made (an answer) is counted when it has been made, before it is kept. The process itself, the
//! ids of uploads, the store's cache and the experiments are beside it.
//!
//! An answer that is not taken in time ends its connection, and a connection that can't be written
//! to is not read any further. The operating system keeps 128 KiB in each direction of a connection
//! (it may take twice as much), which the process does not see.
//!
//! Floods that cost time rather than memory have bounds too: pings and settings are
//! answered before more is read, streams that are reset before they were looked at are
//! counted, and so are those that the server resets; small data frames have a budget in
//! `h2`, and so have continued headers.

use std::time::Duration;

use bandana_shared::limits::{ARMS_MAX, LABEL_BYTES_MAX, UPLOAD_BYTES_MAX};
use tonic::transport::Server;

use crate::memory::Budget;
use crate::transport::ConnectionLimits;

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

/// Bytes that a connection takes beside its calls: those of the library and of TLS, and a frame
/// or a block of headers that has not come to its end.
fn connection_bytes(limits: &ConnectionLimits) -> usize {
    let header_bytes = usize::try_from(limits.header_bytes).unwrap_or(usize::MAX);
    header_bytes.saturating_mul(5).saturating_add(32 * 1024)
}

/// How many connections of devices and of operators there may be, and what is left for calls, of
/// the bytes that may be held for all. Half at most is for connections, and an eighth of that for
/// those of operators.
pub(crate) fn shares(limits: ConnectionLimits, memory: usize) -> Shares {
    let each = connection_bytes(&limits);
    let for_connections = memory / 2;
    let for_operators = for_connections / 8;
    let fitting = |bytes: usize| limits.connections.min((bytes / each).max(1));
    let (devices, operators) = (fitting(for_connections - for_operators), fitting(for_operators));
    let of = |connections| ConnectionLimits { connections, ..limits };
    let set_aside = each.saturating_mul(devices + operators);
    let calls = Budget::new(memory.saturating_sub(set_aside));
    Shares { devices: of(devices), operators: of(operators), calls }
}

/// What belongs to whom, of what may be held.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    pub(crate) devices: ConnectionLimits,
    pub(crate) operators: ConnectionLimits,
    pub(crate) calls: Budget,
}

/// A server with these limits, without services yet.
pub(crate) fn http2_server(limits: &ConnectionLimits) -> Server {
    Server::builder()
        .max_concurrent_streams(limits.streams_per_connection)
        .http2_max_header_list_size(limits.header_bytes)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_pending_accept_reset_streams(Some(UNSEEN_RESETS_MAX))
        .http2_max_local_error_reset_streams(Some(FAULTY_STREAMS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        connections: 10_000,
        streams_per_connection: 128,
        header_bytes: 16 * 1024,
        handshakes: 512,
        handshake_time: Duration::from_secs(10),
        idle_time: Duration::from_mins(2),
        answer_time: Duration::from_mins(1),
    };

    #[test]
    fn connections_take_half_of_the_memory_at_most() {
        for mebibytes in [16, 64, 512, 4096, 65_536] {
            let memory = mebibytes * 1024 * 1024;
            let Shares { devices, operators, calls } = shares(LIMITS, memory);
            assert!(devices.connections > operators.connections || mebibytes == 65_536);
            assert!(operators.connections > 0 && devices.connections <= LIMITS.connections);
            assert!(calls.bytes() >= memory / 2, "{mebibytes}");
            let connections =
                connection_bytes(&LIMITS) * (devices.connections + operators.connections);
            assert_eq!(calls.bytes() + connections, memory);
        }
        assert_eq!(shares(LIMITS, 65_536 << 20).operators.connections, LIMITS.connections);
    }
}
