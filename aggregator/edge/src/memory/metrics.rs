//! Metrics of the memory held for callers.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::memory::Budget;

/// Counts calls that were refused for lack of memory, and aborted requests.
#[derive(Clone, Debug, Default)]
pub struct HeldMetrics {
    /// Calls that found no room.
    pub(crate) refused: Counter,
    /// Requests that were aborted.
    pub(crate) broken_off: Counter,
}

impl HeldMetrics {
    /// New metrics of this budget, in the registry.
    pub fn registered(budget: Budget, registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register_collector(Box::new(InUse(budget)));
        registry.register(
            "calls_without_memory",
            "Calls that were refused because limits.memory_mib was held for others",
            this.refused.clone(),
        );
        registry.register(
            "requests_broken_off",
            "Requests whose callers did not send them to their end",
            this.broken_off.clone(),
        );
        this
    }
}

/// The bytes held now, and the budget.
#[derive(Debug)]
struct InUse(Budget);

impl Collector for InUse {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, bytes) in [
            ("memory_held", "Memory that is held for calls", self.0.held()),
            ("memory_held_max", "Memory that may be held for calls", self.0.bytes()),
        ] {
            let gauge = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
            let unit = Some(&Unit::Bytes);
            gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
