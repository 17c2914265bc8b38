//! Reports that a relay shuffles: real devices, a real relay, a real aggregator.

mod kills;
mod refusals;
mod waiting;
mod world;
