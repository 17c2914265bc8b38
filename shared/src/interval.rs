//! Intervals, and Wilson's interval for a sample of fixed size.

use thiserror::Error;

use crate::channel::Floor;
use crate::tally::Tally;

/// The probability with which a statement may be wrong, in (0, 1).
///
/// ```
/// use bandana_shared::interval::ErrorLevel;
/// assert_eq!(ErrorLevel::FIVE_PERCENT.get(), 0.05);
/// assert!(ErrorLevel::new(0.0).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct ErrorLevel(f64);

impl ErrorLevel {
    /// 0.05, for intervals of 95%.
    pub const FIVE_PERCENT: Self = Self(0.05);

    /// Checks the range.
    ///
    /// # Errors
    /// [`ErrorLevelError`] when `alpha` is not strictly between 0 and 1.
    pub fn new(alpha: f64) -> Result<Self, ErrorLevelError> {
        if alpha > 0.0 && alpha < 1.0 { Ok(Self(alpha)) } else { Err(ErrorLevelError(alpha)) }
    }

    /// α.
    pub fn get(self) -> f64 {
        self.0
    }

    /// α divided among `statements` simultaneous statements (Bonferroni).
    #[must_use]
    pub fn shared_by(self, statements: usize) -> Self {
        Self(self.0 / statements.max(1) as f64)
    }

    /// The part of α for one of several statements; `share` is above 0 and at most 1.
    #[must_use]
    pub(crate) fn part(self, share: f64) -> Self {
        Self(self.0 * share)
    }
}

/// An error level outside (0, 1).
#[derive(Clone, Copy, Error, PartialEq)]
#[error("error level {0} is not strictly between 0 and 1; 0.05 gives intervals of 95%")]
pub struct ErrorLevelError(f64);

crate::debug_says!(ErrorLevelError);

/// A closed interval of real numbers, `low <= high`, possibly unbounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    low: f64,
    high: f64,
}

impl Interval {
    /// The whole real line, which carries no information.
    pub const UNBOUNDED: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };

    /// The interval between two numbers, in either order.
    pub fn between(a: f64, b: f64) -> Self {
        Self { low: a.min(b), high: a.max(b) }
    }

    /// The lower end.
    pub fn low(self) -> f64 {
        self.low
    }

    /// The upper end.
    pub fn high(self) -> f64 {
        self.high
    }

    /// `high - low`.
    pub fn width(self) -> f64 {
        self.high - self.low
    }

    /// Whether `x` lies in the interval, ends included.
    pub fn contains(self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }

    /// Both ends clamped to `low..=high`. A confidence interval keeps its level if its number is
    /// known to lie in that range.
    #[must_use]
    pub fn clamped(self, low: f64, high: f64) -> Self {
        Self { low: self.low.clamp(low, high), high: self.high.clamp(low, high) }
    }

    /// The interval between what an increasing function makes of both ends.
    #[must_use]
    pub fn map(self, increasing: impl Fn(f64) -> f64) -> Self {
        Self { low: increasing(self.low), high: increasing(self.high) }
    }

    /// The interval for the mean of g(r) that corresponds to this interval for private means.
    #[must_use]
    pub fn debiased(self, floor: Floor) -> Self {
        self.map(|q| (q - floor.lowest_private_mean()) / floor.contrast())
    }
}

/// Wilson's score interval for the private mean (Wilson 1927). It is valid for a sample whose size
/// is fixed in advance and that you evaluate once.
///
/// `z` is the normal quantile of the two-sided level: 1.96 for 95%. Adaptive allocation and
/// repeated looks break its level; [`crate::confidence`] has intervals that remain valid. Without
/// reports the interval is 0..=1.
pub fn wilson(tally: Tally, z: f64) -> Interval {
    let Some(mean) = tally.private_mean() else {
        return Interval::between(0.0, 1.0);
    };
    let n = tally.reports() as f64;
    let shrink = 1.0 + z * z / n;
    let center = (mean + z * z / (2.0 * n)) / shrink;
    let radius = z / shrink * (mean * (1.0 - mean) / n + z * z / (4.0 * n * n)).sqrt();
    Interval::between(center - radius, center + radius).clamped(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_matches_published_values() {
        // Newcombe 1998, table I, method 3: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (ones, reports, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let interval = wilson(Tally::new(reports, ones).unwrap(), 1.959_964);
            assert!((interval.low() - low).abs() < 6e-5, "{ones}/{reports}: {interval:?}");
            assert!((interval.high() - high).abs() < 6e-5, "{ones}/{reports}: {interval:?}");
        }
    }

    #[test]
    fn no_reports_say_nothing() {
        assert_eq!(wilson(Tally::EMPTY, 1.96), Interval::between(0.0, 1.0));
    }
}
