//! The settings of limits: on connections, on calls, and on the memory that calls may use.

use std::time::Duration;

use bandana_edge::admission::CallLimits;
use bandana_edge::memory::memory_of_this_machine;
use bandana_edge::rate::{Rate, Rates};
use bandana_edge::transport::ConnectionLimits;

use super::Effective;
use super::problem::ConfigurationError;
use super::setting::{Fallback, Kind, Setting};

/// Default memory budget for calls, in bytes, on a machine that does not report its memory.
const MEMORY_BYTES: u64 = 512 * 1024 * 1024;

pub(super) static MEMORY_MIB: Setting = Setting {
    section: "limits",
    key: "memory_mib",
    environment: "BANDANA_LIMIT_MEMORY_MIB",
    flag: "limit-memory-mib",
    placeholder: "MIB",
    kind: Kind::Integer(16..=16_777_216),
    fallback: Fallback::Unset("512"),
    doc: "Memory for callers, in MiB. Connections get at most half of it. The rest is for calls, \
          their requests, and answers that were not taken yet. A call for which there is no room \
          is told to come back after a second. If unset, half of the memory of the machine, or of \
          the control group that the server is in. The ids of uploads and the store's cache need \
          memory beside it.",
};

pub(super) static CONNECTIONS: Setting = Setting {
    section: "limits",
    key: "connections",
    environment: "BANDANA_LIMIT_CONNECTIONS",
    flag: "limit-connections",
    placeholder: "NUMBER",
    kind: Kind::Integer(1..=1_000_000),
    fallback: Fallback::Default("10000"),
    doc: "Connections of each service at the same time. A further one replaces one that does \
          nothing. There can be fewer: each takes 32 KiB and five times `header_bytes` out of half \
          of `memory_mib`, and an eighth of that half is for operators.",
};

pub(super) static STREAMS_PER_CONNECTION: Setting = Setting {
    section: "limits",
    key: "streams_per_connection",
    environment: "BANDANA_LIMIT_STREAMS_PER_CONNECTION",
    flag: "limit-streams-per-connection",
    placeholder: "NUMBER",
    kind: Kind::Integer(1..=65_536),
    fallback: Fallback::Default("128"),
    doc: "Calls of one connection at the same time. Further ones wait. HTTP/2 asks for at least \
          100. A gateway with more to send streams its uploads in one call.",
};

pub(super) static HEADER_BYTES: Setting = Setting {
    section: "limits",
    key: "header_bytes",
    environment: "BANDANA_LIMIT_HEADER_BYTES",
    flag: "limit-header-bytes",
    placeholder: "BYTES",
    kind: Kind::Integer(1_024..=1_048_576),
    fallback: Fallback::Default("16384"),
    doc: "Bytes of a call's headers, which are kept in memory. The server refuses calls with more.",
};

pub(super) static HANDSHAKES: Setting = Setting {
    section: "limits",
    key: "handshakes",
    environment: "BANDANA_LIMIT_HANDSHAKES",
    flag: "limit-handshakes",
    placeholder: "NUMBER",
    kind: Kind::Integer(1..=65_536),
    fallback: Fallback::Default("512"),
    doc: "TLS handshakes that each service computes at the same time. They are the costly part of \
          a connection. Further ones wait. A silent connection keeps nobody waiting.",
};

pub(super) static HANDSHAKE_SECONDS: Setting = Setting {
    section: "limits",
    key: "handshake_seconds",
    environment: "BANDANA_LIMIT_HANDSHAKE_SECONDS",
    flag: "limit-handshake-seconds",
    placeholder: "SECONDS",
    kind: Kind::Integer(1..=300),
    fallback: Fallback::Default("10"),
    doc: "Seconds that a connection may take for its handshake. It may then take as long again for \
          the first words of HTTP/2, or for the head of a request of HTTP/1.1. So silent \
          connections do not keep others waiting.",
};

pub(super) static IDLE_SECONDS: Setting = Setting {
    section: "limits",
    key: "idle_seconds",
    environment: "BANDANA_LIMIT_IDLE_SECONDS",
    flag: "limit-idle-seconds",
    placeholder: "SECONDS",
    kind: Kind::Integer(90..=86_400),
    fallback: Fallback::Default("120"),
    doc: "Seconds of silence after which the server closes a connection. A living one is never \
          silent for so long: it answers a ping every minute.",
};

pub(super) static REQUEST_SECONDS: Setting = Setting {
    section: "limits",
    key: "request_seconds",
    environment: "BANDANA_LIMIT_REQUEST_SECONDS",
    flag: "limit-request-seconds",
    placeholder: "SECONDS",
    kind: Kind::Integer(1..=3_600),
    fallback: Fallback::Default("30"),
    doc: "Seconds that a caller may take to send its request. Streams of uploads have no such \
          limit.",
};

pub(super) static ANSWER_SECONDS: Setting = Setting {
    section: "limits",
    key: "answer_seconds",
    environment: "BANDANA_LIMIT_ANSWER_SECONDS",
    flag: "limit-answer-seconds",
    placeholder: "SECONDS",
    kind: Kind::Integer(1..=3_600),
    fallback: Fallback::Default("60"),
    doc: "Seconds that a caller may take to read an answer, or a part of one that is a stream. If \
          it takes longer, the server closes the connection, up to half as much later. Answers to \
          streams of uploads have no such limit.",
};

pub(super) static STREAM_IDLE_SECONDS: Setting = Setting {
    section: "limits",
    key: "stream_idle_seconds",
    environment: "BANDANA_LIMIT_STREAM_IDLE_SECONDS",
    flag: "limit-stream-idle-seconds",
    placeholder: "SECONDS",
    kind: Kind::Integer(1..=86_400),
    fallback: Fallback::Default("300"),
    doc: "Seconds that a stream of uploads may take until its next upload, and to read an answer. \
          If it takes longer, the server ends the stream.",
};

pub(super) static CALLS: Setting = Setting {
    section: "limits",
    key: "calls",
    environment: "BANDANA_LIMIT_CALLS",
    flag: "limit-calls",
    placeholder: "NUMBER",
    kind: Kind::Integer(1..=1_000_000),
    fallback: Fallback::Default("8192"),
    doc: "Calls of devices at the same time, over all connections. Further ones are told to come \
          back after a second.",
};

pub(super) static UPLOADS_PER_SECOND_PER_CONNECTION: Setting = Setting {
    section: "limits",
    key: "uploads_per_second_per_connection",
    environment: "BANDANA_LIMIT_UPLOADS_PER_SECOND_PER_CONNECTION",
    flag: "limit-uploads-per-second-per-connection",
    placeholder: "NUMBER",
    kind: Kind::Integer(0..=1_000_000),
    fallback: Fallback::Default("20000"),
    doc: "Uploads per second of one connection, which may be a device, a gateway or a proxy. 0 \
          means no limit. Further uploads are told when to come back, and streams are read more \
          slowly. The default only keeps one connection from taking the whole server.",
};

pub(super) static UPLOADS_PER_SECOND_PER_APP_KEY: Setting = Setting {
    section: "limits",
    key: "uploads_per_second_per_app_key",
    environment: "BANDANA_LIMIT_UPLOADS_PER_SECOND_PER_APP_KEY",
    flag: "limit-uploads-per-second-per-app-key",
    placeholder: "NUMBER",
    kind: Kind::Integer(0..=1_000_000),
    fallback: Fallback::Default("0"),
    doc: "Uploads per second of all connections together that show the same app key. 0 means no \
          limit. How many an app needs depends on its users.",
};

pub(super) static QUESTIONS_PER_SECOND_PER_CONNECTION: Setting = Setting {
    section: "limits",
    key: "questions_per_second_per_connection",
    environment: "BANDANA_LIMIT_QUESTIONS_PER_SECOND_PER_CONNECTION",
    flag: "limit-questions-per-second-per-connection",
    placeholder: "NUMBER",
    kind: Kind::Integer(0..=1_000_000),
    fallback: Fallback::Default("20000"),
    doc: "Questions per second of one connection: fetches of experiments and selections of arms. 0 \
          means no limit. Further ones are told when to come back.",
};

pub(super) static QUESTIONS_PER_SECOND_PER_APP_KEY: Setting = Setting {
    section: "limits",
    key: "questions_per_second_per_app_key",
    environment: "BANDANA_LIMIT_QUESTIONS_PER_SECOND_PER_APP_KEY",
    flag: "limit-questions-per-second-per-app-key",
    placeholder: "NUMBER",
    kind: Kind::Integer(0..=1_000_000),
    fallback: Fallback::Default("0"),
    doc: "Questions per second of all connections together that show the same app key. 0 means no \
          limit.",
};

pub(super) static BURST_SECONDS: Setting = Setting {
    section: "limits",
    key: "burst_seconds",
    environment: "BANDANA_LIMIT_BURST_SECONDS",
    flag: "limit-burst-seconds",
    placeholder: "SECONDS",
    kind: Kind::Integer(1..=3_600),
    fallback: Fallback::Default("5"),
    doc: "After a pause, the uploads and questions of this many seconds may come at once.",
};

/// Limits on connections.
pub(super) fn connections(effective: &Effective) -> Result<ConnectionLimits, ConfigurationError> {
    let seconds = |setting| effective.value(setting).map(Duration::from_secs);
    Ok(ConnectionLimits {
        connections: effective.value(&CONNECTIONS)?,
        streams_per_connection: effective.value(&STREAMS_PER_CONNECTION)?,
        header_bytes: effective.value(&HEADER_BYTES)?,
        handshakes: effective.value(&HANDSHAKES)?,
        handshake_time: seconds(&HANDSHAKE_SECONDS)?,
        idle_time: seconds(&IDLE_SECONDS)?,
        answer_time: seconds(&ANSWER_SECONDS)?,
    })
}

/// Limits on calls.
pub(super) fn calls(effective: &Effective) -> Result<CallLimits, ConfigurationError> {
    let seconds = |setting| effective.value(setting).map(Duration::from_secs);
    let burst = effective.value(&BURST_SECONDS)?;
    let rate = |setting| effective.value(setting).map(|rate| Rate::new(rate, burst));
    Ok(CallLimits {
        calls: effective.value(&CALLS)?,
        request_time: seconds(&REQUEST_SECONDS)?,
        memory: memory(effective)?,
        stream_idle_time: seconds(&STREAM_IDLE_SECONDS)?,
        connection_rates: Rates {
            uploads: rate(&UPLOADS_PER_SECOND_PER_CONNECTION)?,
            questions: rate(&QUESTIONS_PER_SECOND_PER_CONNECTION)?,
        },
        app_rates: Rates {
            uploads: rate(&UPLOADS_PER_SECOND_PER_APP_KEY)?,
            questions: rate(&QUESTIONS_PER_SECOND_PER_APP_KEY)?,
        },
    })
}

/// Memory budget for calls, in bytes.
fn memory(effective: &Effective) -> Result<usize, ConfigurationError> {
    let set: Option<u64> = effective.optional(&MEMORY_MIB)?;
    let bytes = set.map(|mebibytes| mebibytes * 1024 * 1024);
    let bytes =
        bytes.unwrap_or_else(|| memory_of_this_machine().map_or(MEMORY_BYTES, |all| all / 2));
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}
