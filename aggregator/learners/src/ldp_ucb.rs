//! LDP-UCB; see [`Learner::LdpUcb`](super::Learner::LdpUcb).

use super::indices::{ucb1, ucb1_exploration};
use super::input::Evidence;
use super::shared_by_largest;

/// The share of each arm; they sum to 1. There is at least one arm.
pub(super) fn shares(arms: &[Evidence]) -> Vec<f64> {
    let time: f64 = arms.iter().map(|arm| arm.reports()).sum();
    let exploration = ucb1_exploration(time);
    let scores: Vec<f64> = arms.iter().map(|arm| index(*arm, exploration)).collect();
    shared_by_largest(&scores)
}

/// Upper confidence bound of the private mean, infinite without reports.
fn index(arm: Evidence, exploration: f64) -> f64 {
    arm.mean().map_or(f64::INFINITY, |mean| ucb1(mean, arm.reports(), exploration))
}

#[cfg(test)]
mod tests {
    use bandana_shared::tally::Tally;

    use super::*;

    fn arm(reports: u64, ones: u64) -> Evidence {
        Tally::new(reports, ones).unwrap().into()
    }

    fn shares_of(counts: &[(u64, u64)]) -> Vec<f64> {
        let arms = counts.iter().map(|&(reports, ones)| arm(reports, ones));
        shares(&arms.collect::<Vec<_>>())
    }

    #[test]
    fn indices_agree_with_a_calculation_by_hand() {
        // t = 100 and ln t = 4.60517. Arm 0: 0.5 + sqrt(9.21034/10) = 1.45970;
        // arm 1: 0.7 + sqrt(9.21034/90) = 1.01990.
        let exploration = ucb1_exploration(100.0);
        let first = index(arm(10, 5), exploration);
        let second = index(arm(90, 63), exploration);
        assert!((first - 1.459_70).abs() < 1e-5, "{first}");
        assert!((second - 1.019_90).abs() < 1e-5, "{second}");
        assert_eq!(shares_of(&[(10, 5), (90, 63)]), [1.0, 0.0]);
    }

    #[test]
    fn the_bonus_counts_the_reports_of_all_arms() {
        // Alone, the arms with 400 and 441 reports compare 0.5 + b/20 with
        // 0.505 + b/21, where b^2 = 2 ln t: the first leads once b/420 exceeds
        // about 0.005, b^2 > 4.41. A third arm can only add to t.
        let close = [(400, 200), (441, 223)];
        assert_eq!(shares_of(&close), [1.0, 0.0]);
        // b/20 - b/21 = 0.0123 at t = 841 and 0.0192 at t = 1e14; the lead of
        // the second arm's mean, 0.0159, lies between the two.
        let lead = [(400, 200), (441, 227), (100_000_000_000_000, 0)];
        assert_eq!(shares_of(&lead[..2]), [0.0, 1.0]);
        assert_eq!(shares_of(&lead), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn arms_without_reports_come_first() {
        assert_eq!(shares_of(&[(10, 10), (0, 0), (3, 1), (0, 0)]), [0.0, 0.5, 0.0, 0.5]);
        assert_eq!(shares_of(&[(0, 0); 4]), [0.25; 4]);
    }

    #[test]
    fn exact_ties_share_and_near_ties_do_not() {
        let third = 1.0 / 3.0;
        assert_eq!(shares_of(&[(9, 4), (9, 3), (9, 4), (9, 4)]), [third, 0.0, third, third]);
        assert_eq!(
            shares_of(&[(1_000_000_000, 500_000_000), (1_000_000_000, 500_000_001)]),
            [0.0, 1.0]
        );
    }

    #[test]
    fn extreme_counts_give_one_winner() {
        let most = Tally::REPORTS_MAX;
        assert_eq!(shares_of(&[(1, 0)]), [1.0]);
        // t = 1, so no bonus at all, and then the largest t there is.
        assert_eq!(shares_of(&[(most, most), (1, 0)]), [0.0, 1.0]);
        assert_eq!(shares_of(&[(most, most); 1024]), [1.0 / 1024.0; 1024]);
    }
}
