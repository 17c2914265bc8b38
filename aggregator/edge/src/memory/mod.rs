//! Memory held for callers: one budget for the process, and its holders.
//!
//! The budget covers connections, for which a part is reserved; calls with their headers and the
//! received part of their requests; and answers, until the peer has taken the last byte. An answer
//! that all callers of one experiment share is encoded once, and charged once. Outside of it are the
//! newcomers that wait for a place of a connection: at most 256, of at most 16 KiB each.

mod answer;
mod budget;
mod layer;
mod machine;
mod metrics;
mod received;
mod request;
mod shared;

pub use answer::AnswerBody;
pub use budget::{Budget, Hold};
pub use layer::{Held, HeldFuture, HoldingLayer};
pub use machine::memory_of_this_machine;
pub use metrics::HeldMetrics;
pub use shared::Shared;

pub use layer::{HeldCall, callers_fault};
pub use received::{ReceiveError, received};
pub use shared::SharedAnswer;
