//! The crate by its public items: channel, accounting, confidence, specification and messages.

mod accounting;
mod cells;
mod channel;
mod confidence;
mod contexts;
mod declarations;
mod policy;
mod specification;
mod strata;
mod upload;
mod verdicts;
