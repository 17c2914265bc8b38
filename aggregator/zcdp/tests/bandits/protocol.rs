//! The interactive protocol, played through exactly: an adversary reads every recommendation and
//! every released statistic, plays whichever arm it likes, and is to find out one reward.

use bandana_zcdp::adac_ucb::{AdacUcb, Memory, UcbSettings};
use bandana_zcdp::{Protection, RewardRange};

use crate::checker::{Views, rho};

const ROUNDS: usize = 3;

/// Noise in this test is on the lattice of halves, to which rewards of 0 and 1 belong as well: in
/// halves, a reward moves a sum by 2, and discrete Gaussian noise of parameter σ² = 2²/(2ρ)
/// has ρ.
const HALF: i64 = 1 << 15;

/// Orders whose divergences noise of up to 12 halves shows in full.
const ORDERS: [f64; 3] = [1.01, 2.0, 3.0];

/// Probabilities of noise in units of 1/2. The omitted tail has a probability below 1e-30.
fn halves(variance: f64) -> Vec<(i64, f64)> {
    let most = 12;
    let weight = |k: i64| (-(k * k) as f64 / (2.0 * variance)).exp();
    let sum: f64 = (-most..=most).map(weight).sum();
    (-most..=most).map(|k| (k, weight(k) / sum)).collect()
}

/// The arm to play, given the observed output.
type Adversary = fn(&[i64], usize) -> usize;

const ADVERSARIES: [Adversary; 5] = [
    |_, recommended| recommended,
    |_, recommended| 1 - recommended,
    |_, _| 0,
    |seen, _| seen.len() % 2,
    // Follows the sign of the last statistic.
    |seen, recommended| seen.last().map_or(recommended, |last| usize::from(*last < 0)),
];

/// All that can be seen: recommendations, and noisy sums in halves.
fn play(table: &[[f64; 2]; ROUNDS], adversary: Adversary, memory: Memory, variance: f64) -> Views {
    let protection = Protection::concentrated(1.0).unwrap();
    let settings = UcbSettings { arms: 2, protection, exploration: 0.5, memory };
    let mut open = vec![(AdacUcb::new(settings).unwrap(), Vec::new(), 1.0)];
    let noise = halves(variance);
    for row in table {
        let mut next = Vec::new();
        for (mut ucb, mut seen, probability) in open {
            seen.push(ucb.recommended() as i64);
            let arm = adversary(&seen, ucb.recommended());
            if ucb.is_due() {
                // An arm whose buffer was full when its episode began.
                next.extend(release(&ucb, &seen, probability, &noise));
                continue;
            }
            ucb.observe(arm, RewardRange::Unit.reward(row[arm]).unwrap()).unwrap();
            if ucb.is_due() {
                next.extend(release(&ucb, &seen, probability, &noise));
            } else {
                next.push((ucb, seen, probability));
            }
        }
        open = next;
    }
    let mut views = Views::new();
    for (ucb, mut seen, probability) in open {
        seen.push(ucb.recommended() as i64);
        *views.entry(seen).or_default() += probability;
    }
    views
}

fn release(
    ucb: &AdacUcb,
    seen: &[i64],
    probability: f64,
    noise: &[(i64, f64)],
) -> Vec<(AdacUcb, Vec<i64>, f64)> {
    let after = |(halves, weight): &(i64, f64)| {
        let (mut ucb, mut seen) = (ucb.clone(), seen.to_vec());
        ucb.release(&[halves * HALF]).unwrap();
        // All statistics are shown after every release.
        for statistic in ucb.released() {
            let shown = statistic.map(|s| (s.mean * s.rewards as f64 * 2.0).round() as i64);
            seen.push(shown.unwrap_or(i64::MAX));
        }
        (ucb, seen, probability * weight)
    };
    noise.iter().map(after).collect()
}

/// The largest ρ over adversaries and tables that differ in one round. Noise in the algorithm is that
/// of `variance` in halves.
fn largest_rho(memory: Memory, variance: f64) -> f64 {
    let table = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];
    let mut largest = 0.0_f64;
    for adversary in ADVERSARIES {
        let views = play(&table, adversary, memory, variance);
        for round in 0..ROUNDS {
            let mut neighbour = table;
            neighbour[round] = neighbour[round].map(|reward| 1.0 - reward);
            let other = play(&neighbour, adversary, memory, variance);
            largest = largest.max(rho(&views, &other, &ORDERS));
        }
    }
    largest
}

#[test]
fn whoever_chooses_the_arms_learns_no_more_than_rho() {
    // σ² = 2²/(2ρ) = 1 for ρ = 2.
    for memory in [Memory::Forgetting, Memory::Remembering] {
        let seen = largest_rho(memory, 1.0);
        // The statistics are released, so an observer learns all that ρ allows.
        assert!((1.99..2.0 + 1e-6).contains(&seen), "{memory:?} {seen}");
    }
}

#[test]
fn the_bound_fails_with_half_the_noise() {
    let seen = largest_rho(Memory::Forgetting, 0.25);
    assert!(seen > 4.0, "{seen}");
}
