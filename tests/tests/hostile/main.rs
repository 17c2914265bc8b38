//! Clients that misbehave, one kind after the other. While they do, one that behaves gets
//! its answers; the server's memory stays within what `aggregator/src/held`
//! states for so many connections and calls; and afterwards the server ends in order.

mod answers;
mod connections;
mod floods;
mod messages;
mod streams;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// What a connection may take that has no calls.
const CONNECTION_BYTES: u64 = (32 + 5 * 16) * 1024;

/// What a call may take whose answer is not taken, beside the answer.
const CALL_BYTES_UNTAKEN: u64 = 4 * 1024;

/// What a stream of uploads may take that is not read: its window, and what small frames waste.
const STREAM_BYTES: u64 = 192 * 1024;

/// Calls of one connection at the same time, by default.
const STREAMS: u64 = 128;

/// What a call may take whose request is being sent or looked at.
const CALL_BYTES: u64 = 64 * 1024;
