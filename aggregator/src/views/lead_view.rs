//! The view of a lead.

use bandana_shared::wire::v1::Lead;
use serde::Serialize;

/// Stable JSON form of the lead of an arm.
#[derive(Debug, Serialize)]
pub(super) struct LeadView {
    arm: u32,
    rival: u32,
    difference: f64,
    low: f64,
    high: f64,
    reports_left: Option<u64>,
    coverage: f64,
}

impl From<Lead> for LeadView {
    fn from(lead: Lead) -> Self {
        let Lead { arm, rival, difference, low, high, reports_left, coverage } = lead;
        Self { arm, rival, difference, low, high, reports_left, coverage }
    }
}
