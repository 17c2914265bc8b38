//! A histogram that is cheap to add to.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Histogram of integers; clones share the counts. Adding takes two relaxed atomics, while that of
/// `prometheus_client` takes a lock, on which all calls would contend.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Upper bounds of the buckets, ascending.
    bounds: &'static [u64],
    /// Counts, one more than there are bounds: the last bucket has no upper bound.
    buckets: Arc<[AtomicU64]>,
    sum: Arc<AtomicU64>,
    /// The factor from an added number to a displayed one.
    unit: f64,
}

impl Histogram {
    /// A histogram of times, with bounds in nanoseconds; displayed in seconds.
    pub fn of_times(bounds: &'static [u64]) -> Self {
        Self::new(bounds, 1e-9)
    }

    /// A histogram of counts.
    pub fn of_counts(bounds: &'static [u64]) -> Self {
        Self::new(bounds, 1.0)
    }

    fn new(bounds: &'static [u64], unit: f64) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: Arc::default(), unit }
    }

    /// Adds a number.
    pub fn add(&self, number: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < number);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(number, Ordering::Relaxed);
    }

    /// Adds a time.
    pub fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Whether the histogram is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.load(Ordering::Relaxed) == 0)
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.bounds.iter().map(|bound| *bound as f64 * self.unit);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.sum.load(Ordering::Relaxed) as f64 * self.unit;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn numbers_fall_into_the_bucket_that_ends_with_them() {
        let histogram = Histogram::of_counts(&[1, 10]);
        assert!(histogram.is_empty());
        for number in [0, 1, 2, 10, 11] {
            histogram.add(number);
        }
        let mut registry = Registry::default();
        registry.register("x", "X", histogram);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "x_sum 24.0",
            "x_count 5",
            "x_bucket{le=\"1.0\"} 2",
            "x_bucket{le=\"10.0\"} 4",
            "x_bucket{le=\"+Inf\"} 5",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in {text}");
        }
    }
}
