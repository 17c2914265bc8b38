//! Top-two Thompson sampling; see [`Learner::TopTwo`](super::Learner::TopTwo).

use super::input::Evidence;
use super::{challengers, ldp_ts};

/// The share of the rounds in which the best arm of the first sample is played: the usual choice,
/// which needs at most twice the reports of the best one for the instance (Russo 2020).
const LEADER_SHARE: f64 = 0.5;

/// The share of each arm; they sum to 1. There is at least one arm.
///
/// With p the probabilities of [`ldp_ts::shares`], and `1 - p` at least 1/2, every term is as
/// precise as they are. Where one arm has more than half, the others' conditional probabilities are
/// those of [`challengers`], and `1 - p` of that arm is never computed.
pub(super) fn shares(arms: &[Evidence]) -> Vec<f64> {
    let best = ldp_ts::shares(arms);
    if arms.len() == 1 {
        return best;
    }
    let leader = best.iter().position(|share| *share > 0.5);
    let odds = |(arm, share): (usize, &f64)| {
        if Some(arm) == leader { 0.0 } else { share / (1.0 - share) }
    };
    let odds: Vec<f64> = best.iter().enumerate().map(odds).collect();
    let all: f64 = odds.iter().sum();
    let challenge = |arm: usize| best[arm] * (all - odds[arm]);
    let mut second: Vec<f64> = (0..arms.len()).map(challenge).collect();
    if let Some(leader) = leader {
        let conditional = challengers::shares(arms, leader);
        for (second, share) in second.iter_mut().zip(conditional) {
            *second += best[leader] * share;
        }
    }
    let mixed = |(first, second): (&f64, &f64)| {
        LEADER_SHARE * first + (1.0 - LEADER_SHARE) * second.max(0.0)
    };
    let shares: Vec<f64> = best.iter().zip(&second).map(mixed).collect();
    let total: f64 = shares.iter().sum();
    shares.into_iter().map(|share| share / total).collect()
}

#[cfg(test)]
mod tests {
    use bandana_shared::tally::Tally;
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Beta, Distribution as _};

    use super::*;

    fn evidence(counts: &[(u64, u64)]) -> Vec<Evidence> {
        let tally = |&(reports, ones): &(u64, u64)| Tally::new(reports, ones).unwrap();
        counts.iter().map(tally).map(Evidence::from).collect()
    }

    fn shares_of(counts: &[(u64, u64)]) -> Vec<f64> {
        shares(&evidence(counts))
    }

    fn largest(sample: &[f64]) -> usize {
        (0..sample.len()).fold(0, |best, arm| if sample[arm] > sample[best] { arm } else { best })
    }

    #[test]
    fn shares_are_those_of_sampling_until_another_arm_is_best() {
        const DRAWS: u32 = 200_000;
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for counts in [
            vec![(4, 3), (5, 3), (0, 0)],
            vec![(20, 16), (15, 8), (9, 4), (30, 17)],
            vec![(3, 3), (3, 0), (7, 4), (2, 1), (2, 1)],
            vec![(40, 33), (40, 22), (12, 7)],
        ] {
            let posterior = |&(n, ones): &(u64, u64)| {
                Beta::new(1.0 + ones as f64, 1.0 + (n - ones) as f64).unwrap()
            };
            let laws: Vec<_> = counts.iter().map(posterior).collect();
            let mut played = vec![0_u32; counts.len()];
            for draw in 0..DRAWS {
                let mut best =
                    || largest(&laws.iter().map(|law| law.sample(&mut rng)).collect::<Vec<_>>());
                let first = best();
                let mut arm = first;
                while draw % 2 == 1 && arm == first {
                    arm = best();
                }
                played[arm] += 1;
            }
            for (arm, share) in shares_of(&counts).into_iter().enumerate() {
                let drawn = f64::from(played[arm]) / f64::from(DRAWS);
                // Four standard deviations or more.
                assert!((share - drawn).abs() < 0.0045, "{counts:?} {arm}: {share} {drawn}");
            }
        }
    }

    #[test]
    fn two_arms_get_the_same_whatever_is_known() {
        let most = Tally::REPORTS_MAX;
        for counts in [
            [(0, 0), (0, 0)],
            [(9, 9), (40, 3)],
            [(1_000_000, 1), (1_000_000, 999_999)],
            [(most, 0), (most, most)],
        ] {
            let shares = shares_of(&counts);
            assert!((shares[0] - 0.5).abs() < 1e-12, "{counts:?} {shares:?}");
        }
    }

    #[test]
    fn rivals_that_are_alike_get_the_same_however_far_behind() {
        for reports in [0, 1, 30, 1_000, 1_000_000, 1_000_000_000, 1 << 62] {
            for rivals in [2, 5, 1_023] {
                let mut counts = vec![(reports, reports / 2); rivals];
                counts.push((reports, reports / 10 * 9));
                let shares = shares_of(&counts);
                for share in &shares[..rivals] {
                    assert!((share - shares[0]).abs() < 1e-7, "{reports} {rivals}: {shares:?}");
                }
                if reports >= 1_000_000 {
                    assert!((shares[rivals] - 0.5).abs() < 1e-9, "{reports}: {shares:?}");
                }
            }
        }
    }

    #[test]
    fn the_rival_that_is_cheapest_to_mistake_gets_the_other_half() {
        // Transportation costs of hundreds of nats or more: 10 times as many reports outweigh a
        // smaller gap, and where they don't the nearer rival is the only one.
        let leader = (100_000, 80_000);
        let shares = shares_of(&[leader, (100_000, 60_000), (2_000, 1_000), (100_000, 50_000)]);
        for (share, expected) in shares.iter().zip([0.5, 0.0, 0.5, 0.0]) {
            assert!((share - expected).abs() < 1e-9, "{shares:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn shares_are_a_distribution_that_follows_its_arms(
            counts in prop::collection::vec(any_counts(), 1..24),
        ) {
            let shares = shares_of(&counts);
            prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{:?}", shares);
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            prop_assert!(shares.iter().all(|share| *share <= 0.5 + 1e-6) || shares.len() == 1);
            let reversed: Vec<(u64, u64)> = counts.into_iter().rev().collect();
            let back: Vec<f64> = shares_of(&reversed).into_iter().rev().collect();
            for (there, back) in shares.iter().zip(&back) {
                prop_assert!((there - back).abs() < 1e-6, "{:?} {:?}", shares, back);
            }
        }
    }

    /// Counts of every magnitude, up to the largest.
    fn any_counts() -> impl Strategy<Value = (u64, u64)> {
        let reports = (0_u32..=62, any::<u64>()).prop_map(|(bits, word)| word % ((1 << bits) + 1));
        reports.prop_flat_map(|n| (Just(n), 0..=n))
    }
}
