//! Exact divergences of a policy's observable output, for instances small enough to enumerate.
//!
//! Three definitions of privacy for bandits differ in what the rewards are:
//! - in the *view* sense, a list: the reward of step t, whatever was played;
//! - in the *table* sense, a table: the reward of step t for each arm;
//! - in the *interactive* sense, an adversary reads recommendations, plays any arm, and gets its
//!   entry of the table.
//!
//! How they compare: see the crate's documentation, "Neighbours".

use std::collections::BTreeMap;

/// The law of the observable output: each view with its probability.
pub(crate) type Views = BTreeMap<Vec<i64>, f64>;

/// Probability mass that may be missing because the noise is truncated.
const CUT_OFF: f64 = 1e-15;

/// The Rényi divergence of this order of `p` from `q`; infinite where `q` gives probability 0 to a
/// view that `p` allows.
pub(crate) fn divergence(p: &Views, q: &Views, order: f64) -> f64 {
    let (mut sum, mut excluded) = (0.0, 0.0);
    for (view, p) in p.iter().filter(|(_, p)| **p > 0.0) {
        match q.get(view) {
            Some(q) if *q > 0.0 => sum += (order * p.ln() + (1.0 - order) * q.ln()).exp(),
            _ => excluded += p,
        }
    }
    if excluded > CUT_OFF { f64::INFINITY } else { f64::ln(sum) / (order - 1.0) }
}

/// The least ρ such that the divergence is at most ρ times the order, in both directions, for these
/// orders.
pub(crate) fn rho(p: &Views, q: &Views, orders: &[f64]) -> f64 {
    let worse = |order: &f64| divergence(p, q, *order).max(divergence(q, p, *order)) / order;
    orders.iter().map(worse).fold(0.0, f64::max)
}

/// A policy of two steps: the probability of each arm, first, then after an arm and its reward.
pub(crate) trait TwoSteps {
    fn first(&self) -> Vec<f64>;
    fn second(&self, arm: usize, reward: usize) -> Vec<f64>;
}

/// The arms played when step one has these rewards, one for each arm. With equal rewards it is
/// the view sense, with any it is the table sense.
pub(crate) fn views(policy: &dyn TwoSteps, rewards: &[usize]) -> Views {
    let mut views = Views::new();
    for (first, p) in policy.first().into_iter().enumerate() {
        for (second, q) in policy.second(first, rewards[first]).into_iter().enumerate() {
            *views.entry(vec![first as i64, second as i64]).or_default() += p * q;
        }
    }
    views
}

/// Plays any of `arms` arms; then arm 0 nearly always if the reward was the number of the arm that was
/// played, and arm 1 nearly always if not.
struct Telltale {
    arms: usize,
    slip: f64,
}

impl TwoSteps for Telltale {
    fn first(&self) -> Vec<f64> {
        vec![1.0 / self.arms as f64; self.arms]
    }

    fn second(&self, arm: usize, reward: usize) -> Vec<f64> {
        let mut arms = vec![0.0; self.arms];
        let tells = arm == reward;
        arms[0] = if tells { 1.0 - self.slip } else { self.slip };
        arms[1] = 1.0 - arms[0];
        arms
    }
}

const ORDERS: [f64; 8] = [1.01, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0, 32.0];

/// The largest ρ over pairs of rewards of one step, of those that are not alike by symmetry: arms
/// 0 and 1 are special, all others are not.
fn largest(rho: impl Fn(usize, usize) -> f64) -> f64 {
    let pairs = (0..4).flat_map(|one| (0..4).map(move |other| (one, other)));
    pairs.map(|(one, other)| rho(one, other)).fold(0.0, f64::max)
}

#[test]
fn a_policy_that_is_private_by_its_view_and_not_by_the_table() {
    let policy = Telltale { arms: 100, slip: 0.2 };
    // A reward fixed in advance names one arm in a hundred, so it is rarely revealed. A table names
    // an arm for each arm, so it is always revealed.
    let by_view = largest(|one, other| {
        let list = |reward| views(&policy, &vec![reward; 100]);
        rho(&list(one), &list(other), &ORDERS)
    });
    let matching: Vec<usize> = (0..100).collect();
    let shifted: Vec<usize> = (0..100).map(|arm| (arm + 1) % 100).collect();
    let by_table = rho(&views(&policy, &matching), &views(&policy, &shifted), &ORDERS);
    // Bernoulli(.8) against Bernoulli(.2): a divergence of .6 ln 4 at order 1.
    assert!(by_table > 0.8, "{by_table}");
    assert!(by_view < 0.2 * by_table, "{by_view} {by_table}");
}

#[test]
fn the_checker_knows_divergences_by_hand() {
    let coin = |p: f64| Views::from([(vec![0], p), (vec![1], 1.0 - p)]);
    // Order 2: ln(Σ p²/q) = ln(.64/.5 + .04/.5).
    let found = divergence(&coin(0.8), &coin(0.5), 2.0);
    assert!((found - 1.36_f64.ln()).abs() < 1e-12);
    assert!(divergence(&coin(0.5), &coin(0.0), 2.0).is_infinite());
    assert!(rho(&coin(0.3), &coin(0.3), &ORDERS).abs() < 1e-12);
}
