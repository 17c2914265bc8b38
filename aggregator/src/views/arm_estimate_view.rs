//! The view of one arm's estimate.

use bandana_shared::wire::v1::{ArmEstimate, SymbolEstimate};
use serde::Serialize;

use crate::estimates;

/// Stable JSON form of an arm's estimate.
#[derive(Debug, Serialize)]
pub(super) struct ArmEstimateView {
    pub(super) arm: u32,
    pub(super) label: String,
    pub(super) retired: bool,
    pub(super) reports: u64,
    pub(super) ones: u64,
    pub(super) estimate: Option<f64>,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) weight: f64,
    pub(super) manipulation_shift: f64,
    pub(super) cost: f64,
    pub(super) symbols: Vec<SymbolView>,
    pub(super) coverage: f64,
}

impl ArmEstimateView {
    /// Estimate, low and high, for a table.
    pub(super) fn numbers(&self) -> [String; 3] {
        let estimate = self.estimate.map_or_else(|| "-".to_owned(), number);
        [estimate, number(self.low), number(self.high)]
    }
}

/// Stable JSON form of a symbol's share.
#[derive(Debug, Serialize)]
pub(super) struct SymbolView {
    pub(super) count: u64,
    pub(super) frequency: Option<f64>,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) meaning: Option<String>,
}

impl From<SymbolEstimate> for SymbolView {
    fn from(shown: SymbolEstimate) -> Self {
        let SymbolEstimate { count, frequency, low, high, meaning } = shown;
        let meaning = Some(meaning).filter(|text| !text.is_empty());
        Self { count, frequency, low, high, meaning }
    }
}

impl From<estimates::SymbolEstimate> for SymbolView {
    fn from(found: estimates::SymbolEstimate) -> Self {
        let estimates::SymbolEstimate { count, frequency, interval, reason } = found;
        let meaning = reason.map(|reason| reason.words().to_owned());
        Self { count, frequency, low: interval.low(), high: interval.high(), meaning }
    }
}

impl From<ArmEstimate> for ArmEstimateView {
    fn from(shown: ArmEstimate) -> Self {
        Self {
            arm: shown.arm,
            label: shown.label,
            retired: shown.retired,
            reports: shown.reports,
            ones: shown.ones,
            estimate: shown.estimate,
            low: shown.low,
            high: shown.high,
            weight: shown.weight,
            manipulation_shift: shown.manipulation_shift,
            cost: shown.cost,
            symbols: shown.symbols.into_iter().map(Into::into).collect(),
            coverage: shown.coverage,
        }
    }
}

/// A number in a table.
pub(super) fn number(value: f64) -> String {
    format!("{value:.4}")
}
