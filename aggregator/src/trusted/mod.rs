//! Trusted experiments: users disclose rewards to the server, which releases noisy statistics only.
//!
//! The algorithms, their noise and the proof of their privacy are those of [`bandana_zcdp`]. This
//! module serves them: each disclosure is accepted, committed and answered once, and everything
//! published comes from released statistics.

mod answers;
mod engine;
mod experiments;
mod metrics;

pub use answers::TrustedAnswers;
pub use engine::{
    Disclosure, DisclosureContext, DisclosureVerdict, GroupDecision, TrustedExperiment, plan,
};
pub use experiments::TrustedExperiments;
pub use metrics::TrustedMetrics;
pub(crate) use metrics::status_of;
