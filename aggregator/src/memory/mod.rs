//! Memory that is held for callers: one budget for the process, and who holds what of it.
//!
//! Held are connections, for which a part is set aside; calls with their headers and what has
//! come of their requests; and answers, until the other end has taken the last byte. What all
//! callers of one experiment get is encoded once, and held once.

mod answer;
mod budget;
mod layer;
mod machine;
mod metrics;
mod request;
mod shared;

pub use answer::AnswerBody;
pub use budget::{Budget, Hold};
pub use layer::{Held, HeldFuture, HoldingLayer};
pub use machine::memory_of_this_machine;
pub use metrics::HeldMetrics;
pub use shared::Shared;

pub(crate) use shared::SharedAnswer;
