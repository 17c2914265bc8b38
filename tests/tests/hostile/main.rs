//! Clients that misbehave, one kind after the other. Meanwhile a well-behaved client gets its
//! answers, and the server's memory stays within the bounds that `aggregator/edge/src/memory` states for
//! this number of connections and calls. Afterwards the server shuts down in order.

mod answers;
mod connections;
mod floods;
mod messages;
mod pieces;
mod streams;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Maximum memory of a connection without calls.
const CONNECTION_BYTES: u64 = (32 + 5 * 16) * 1024;

/// Maximum memory of the newcomers that wait for a place: 256 tasks without buffers.
const NEWCOMERS_BYTES: u64 = 256 * 16 * 1024;

/// Maximum memory of a call whose answer is not read, in addition to the answer.
const CALL_BYTES_UNTAKEN: u64 = 4 * 1024;

/// Maximum memory of an unread stream of uploads: its window, and the overhead of small frames.
const STREAM_BYTES: u64 = 192 * 1024;

/// Default maximum number of concurrent calls on a connection.
const STREAMS: u64 = 128;

/// Maximum memory of a call whose request is being received or processed.
const CALL_BYTES: u64 = 64 * 1024;
