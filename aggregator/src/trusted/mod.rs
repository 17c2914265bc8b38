//! Trusted experiments: users disclose rewards to the server, which releases noisy statistics only.
//!
//! The algorithms, their noise and the proof of their privacy are those of [`bandana_zcdp`]. Here
//! is what serves them: what has been said is taken, committed and answered once, and everything
//! that is shown comes from released statistics.

mod answers;
mod engine;
mod experiments;
pub mod keeper;

pub use answers::TrustedAnswers;
pub use engine::{Disclosure, DisclosureVerdict, GroupPlan, Situation, TrustedExperiment, plan};
pub use experiments::TrustedExperiments;
