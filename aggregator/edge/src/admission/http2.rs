//! The limits of an HTTP/2 server, and the bound of memory that they imply.
//!
//! The memory that a service holds for its callers is bounded by `limits.memory_mib`, whatever they
//! do. Of that,
//!
//! ```text
//! connections x (32 KiB + 5 x header_bytes)
//! ```
//!
//! are reserved, for as many connections as fit in half of it. Measured were 15 KiB for an idle
//! connection, 22 KiB with TLS, and 98 KiB for one with an endless block of many headers. The rest
//! is for calls. Until its answer has been taken, each call holds 4 KiB (2.7 KiB were measured),
//! its headers and its answer. While its request arrives, a call also holds 10 KiB and three times
//! the bytes received. A stream of uploads also holds 192 KiB, for its window and the overhead of
//! small frames. Sizes that are not known in advance, such as an answer's, are counted once it has
//! been made and before it is kept. The process itself, the ids of uploads, the store's cache and
//! the experiments are not included.
//!
//! An answer that is not taken in time ends its connection, and a connection that can't be written
//! to is not read any further. The operating system keeps 128 KiB in each direction of a connection
//! (it may take twice as much), which the process does not see.
//!
//! Floods that cost time rather than memory are bounded too. Pings and settings are answered before
//! more is read. Streams that are reset before the server looked at them are counted, and so are
//! those that the server resets. `h2` has budgets for small data frames and for continued headers.

use std::time::Duration;

use hyper::server::conn::http2::Builder;

use bandana_shared::limits::{ARMS_MAX, LABEL_BYTES_MAX, REPORTS_PER_UPLOAD_MAX, UPLOAD_BYTES_MAX};
use bandana_shared::shuffling::ShuffledReport;

use crate::memory::Budget;
use crate::transport::ConnectionLimits;

/// The silence on a connection after which the server pings, so that connections of vanished
/// devices do not accumulate.
const KEEPALIVE_INTERVAL: Duration = Duration::from_mins(1);

/// The time within which a ping must be answered.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The flow-control window of a stream, in bytes. At a round trip of 100 ms to a gateway, it allows
/// 160 kB in a second, more than half a million packed reports.
const STREAM_WINDOW: u32 = 16 * 1024;

/// The flow-control window of a connection, in bytes.
///
/// `h2` ends a connection when unread frames below 256 bytes waste more than half of this window,
/// and streams of uploads are slowed down by being left unread. So the window has room for two
/// streams full of the smallest uploads in frames of their own. A quarter more is for senders that
/// split frames where a window ends.
const CONNECTION_WINDOW: u32 = 320 * 1024;

/// The size of the smallest upload in its own frame: one report, and five bytes before it.
const SMALLEST_FRAME: u32 = 52;

/// Most streams of a connection that were reset before the server looked at them; one more ends the
/// connection (rapid reset, CVE-2023-44487).
const UNSEEN_RESETS_MAX: usize = 20;

/// Most streams of a connection that the server has reset for the peer's errors; one more ends the
/// connection. Without a limit a peer has the server work for ever (RUSTSEC-2024-0003).
const FAULTY_STREAMS_MAX: usize = 1024;

/// Most bytes of an operator's request: an experiment with the most arms.
pub const OPERATOR_REQUEST_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of a batch of shuffled reports.
pub const BATCH_BYTES_MAX: usize = REPORTS_PER_UPLOAD_MAX * ShuffledReport::SEALED_BYTES + 1024;

/// Most bytes of a health request, which is the name of a service.
pub const HEALTH_REQUEST_BYTES_MAX: usize = 1024;

const _: () = {
    assert!(STREAM_WINDOW as usize >= UPLOAD_BYTES_MAX);
    let waste = STREAM_WINDOW / SMALLEST_FRAME * (256 - SMALLEST_FRAME);
    assert!(2 * waste / 4 * 5 <= CONNECTION_WINDOW / 2);
    assert!(ARMS_MAX * (LABEL_BYTES_MAX + 16) + 4096 <= OPERATOR_REQUEST_BYTES_MAX);
};

/// The memory of a connection beside its calls, in bytes: the library, TLS, and an unfinished frame
/// or block of headers.
fn connection_bytes(limits: &ConnectionLimits) -> usize {
    let header_bytes = usize::try_from(limits.header_bytes).unwrap_or(usize::MAX);
    header_bytes.saturating_mul(5).saturating_add(32 * 1024)
}

/// Divides the memory for all connections and calls. At most half is for connections, and an eighth
/// of that half for operators' connections; the rest is for calls.
pub fn shares(limits: ConnectionLimits, memory: usize) -> Shares {
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

/// The division of the memory.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Limits of devices' connections.
    pub devices: ConnectionLimits,
    /// Limits of operators' connections.
    pub operators: ConnectionLimits,
    /// The memory that is left for calls.
    pub calls: Budget,
}

/// Sets the limits of an HTTP/2 server.
pub fn limit_http2<E>(server: &mut Builder<E>, limits: &ConnectionLimits) {
    server
        .max_concurrent_streams(limits.streams_per_connection)
        .max_header_list_size(limits.header_bytes)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(UNSEEN_RESETS_MAX)
        .max_local_error_reset_streams(FAULTY_STREAMS_MAX);
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
