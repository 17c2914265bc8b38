//! Studies of learners in simulation: regret and verdicts on private bits, and a trusted curator.
//!
//! - [`regret`]: learners on private bits, as `regret-study` runs them by `bandana_lab`.
//! - [`curator`]: bandits with a trusted curator, as `curator-study` runs them.
//! - [`visits`]: users who come back, as `visits-study` runs them.
//! - [`decision`]: users until a verdict, as `decision-study` counts them.
//! - [`segments`]: users in segments, as `segments-study` runs them.
//! - [`contexts`]: private contexts, as `context-study` runs them.
//! - [`synthetic`]: synthetic tables of a census, as `synthetic-study` makes them.
//! - [`verdicts`]: wrong verdicts, as `verdict-study` counts them.
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
pub mod verdicts;
pub mod visits;
