//! The grid of log-odds that mixtures are over.

/// Where the grid has its largest weight, and the ratio of its neighbours.
const CENTRE: f64 = 0.13;
const RATIO: f64 = 1.6;
const STEPS: std::ops::RangeInclusive<i32> = -20..=6;

/// The log-odds and their weights, which sum to 1: a geometric grid that is densest where a thousand
/// to a million reports decide, and that reaches as far as any number of them.
fn grid() -> impl Iterator<Item = (f64, f64)> + Clone {
    let weight = |step: i32| 1.0 / (1.0 + f64::from(step * step) / 4.0);
    let all: f64 = STEPS.map(weight).sum();
    STEPS.map(move |step| (CENTRE * libm::pow(RATIO, f64::from(step)), weight(step) / all))
}

/// The part of the grid that matters where reports have so much information about a log-odds, their
/// number times their variance. All terms that are left out would make the martingale larger, so what is
/// excluded without them is excluded with them.
pub(super) fn near(information: f64) -> impl Iterator<Item = (f64, f64)> + Clone {
    let typical = libm::sqrt(2.0 * TYPICAL_EVIDENCE / information).clamp(5e-5, 2.0);
    grid().filter(move |(log_odds, _)| (typical / 16.0..=typical * 6.0).contains(log_odds))
}

/// The evidence that decides is about this.
const TYPICAL_EVIDENCE: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_are_no_more_than_the_whole() {
        let all: f64 = grid().map(|(_, weight)| weight).sum();
        assert!((all - 1.0).abs() < 1e-12, "{all}");
        for information in [0.2, 1.0, 1e3, 1e6, 1e18] {
            assert!(near(information).count() > 3, "{information}");
        }
    }
}
