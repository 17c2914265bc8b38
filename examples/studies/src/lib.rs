//! Studies of learners in simulation: regret on private bits, and with a trusted curator.
//!
//! - [`instance`]: arms and their rewards, from papers and from files.
//! - [`study`]: learners on private bits, as `regret-study` runs them.
//! - [`curator`]: bandits with a trusted curator, as `curator-study` runs them.
//! - [`visits`]: users who come back, as `visits-study` runs them.
//! - [`program`]: progress and Ctrl-C, for all.
//!
//! Nothing here needs a server or a network.

pub mod curator;
pub mod instance;
pub mod program;
pub mod study;
pub mod visits;
