//! Studies of learners in simulation: regret and verdicts on private bits, and a trusted curator.
//!
//! - [`regret`]: learners on private bits, as `study regret` runs them by `bandana_lab`.
//! - [`curator`]: bandits with a trusted curator, as `study curator` runs them.
//! - [`visits`]: users who come back, as `study visits` runs them.
//! - [`decision`]: users until a verdict, as `study decision` counts them.
//! - [`segments`]: users in segments, as `study segments` runs them.
//! - [`contexts`]: private contexts, as `study context` runs them.
//! - [`synthetic`]: synthetic tables of a census, as `study synthetic` makes them.
//! - [`picture`]: files, colours and legends of pictures, for all programs.
//! - [`program`]: options, progress and Ctrl-C, for all.
//!
//! Nothing here needs a server or a network.

pub mod contexts;
pub mod curator;
pub mod decision;
pub mod picture;
pub mod program;
pub mod regret;
pub mod segments;
pub mod synthetic;
pub mod visits;
