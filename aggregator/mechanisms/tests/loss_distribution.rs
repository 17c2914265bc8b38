//! Composed loss distributions agree with closed forms, from above.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::loss_distribution::{LossDistribution, largest_gaussian_rho};
use bandana_mechanisms::queries::price::ConcentratedLoss;
use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;

fn loss(epsilon: f64) -> PrivacyLoss {
    PrivacyLoss::new(epsilon).unwrap_or(PrivacyLoss::ZERO)
}

/// δ(ε) of one Gaussian release (Balle and Wang 2018, theorem 8).
fn gaussian(rho: f64, epsilon: f64) -> f64 {
    let mu = (2.0 * rho).sqrt();
    let phi = |x: f64| libm::erfc(-x / 2.0_f64.sqrt()) / 2.0;
    phi(mu / 2.0 - epsilon / mu) - epsilon.exp() * phi(-mu / 2.0 - epsilon / mu)
}

#[test]
fn gaussian_releases_add_up_to_one() {
    for (rho, count, step) in
        [(0.02, 7, 0.001), (0.02, 200, 0.001), (0.5, 40, 0.01), (2.0, 1, 0.02)]
    {
        let each = LossDistribution::gaussian(rho / f64::from(count), step).unwrap();
        let all = each.times(count).unwrap();
        for epsilon in [0.0, 0.1, 0.4, 1.0, 2.0, 5.0] {
            let (found, exact) = (all.delta(loss(epsilon)).get(), gaussian(rho, epsilon));
            if exact < 1e-11 {
                continue;
            }
            assert!(found >= exact * (1.0 - 1e-9), "{rho} {count} {epsilon}: {found} < {exact}");
            assert!(found <= exact * 1.05, "{rho} {count} {epsilon}: {found} for {exact}");
        }
    }
}

#[test]
fn randomized_response_adds_up_to_the_binomial() {
    let (epsilon, count) = (0.3_f64, 12_i32);
    // Losses between the points of the grid, and on them.
    for step in [0.007, 0.3] {
        let all = LossDistribution::pure(epsilon, step).unwrap().times(12).unwrap();
        for wanted in [0.0, 0.31, 1.0, 2.5, 3.5] {
            let likely = epsilon.exp() / (1.0 + epsilon.exp());
            let mut exact = 0.0;
            let mut ways = 1.0;
            for heads in 0..=count {
                let p = ways * likely.powi(heads) * (1.0 - likely).powi(count - heads);
                let excess = f64::from(2 * heads - count) * epsilon - wanted;
                exact += p * (1.0 - (-excess).exp()).max(0.0);
                ways *= f64::from(count - heads) / f64::from(heads + 1);
            }
            let found = all.delta(loss(wanted)).get();
            assert!(found >= exact * (1.0 - 1e-12), "{step} {wanted}: {found} < {exact}");
            assert!(found <= exact * 1.01 + 1e-15, "{step} {wanted}: {found} for {exact}");
        }
    }
}

#[test]
fn a_coarser_grid_never_promises_more() {
    let delta = Delta::new(1e-6).unwrap();
    let losses = [0.001, 0.004, 0.016, 0.064].map(|step| {
        let noise = LossDistribution::gaussian(0.001, step).unwrap().times(20).unwrap();
        let choice = LossDistribution::pure(0.05, step).unwrap().times(4).unwrap();
        noise.compose(&choice).unwrap().loss(delta).get()
    });
    assert!(losses.windows(2).all(|pair| pair[0] <= pair[1]), "{losses:?}");
    // By ρ, with what ε costs: 0.05 tanh(0.025) each.
    let rho = Rho::new(0.02 + 4.0 * 0.05 * 0.025_f64.tanh()).unwrap();
    assert!(losses[0] < rho.loss(delta).get(), "{losses:?}");
}

#[test]
fn a_budget_of_gaussian_noise_is_worth_more_than_its_rho() {
    let (one, delta) = (loss(1.0), Delta::new(1e-6).unwrap());
    let largest = largest_gaussian_rho(one, delta).unwrap();
    let through_rho = ConcentratedLoss::within(one, delta).unwrap();
    let gain = largest.nanos() as f64 / through_rho.nanos() as f64;
    assert!((1.10..1.20).contains(&gain), "{gain}");
    let rho = largest.nanos() as f64 * 1e-9;
    assert!(gaussian(rho, 1.0) <= 1e-6 && gaussian(rho + 2e-9, 1.0) > 1e-6 * (1.0 - 1e-6));
}

#[test]
fn discrete_noise_is_nearly_gaussian() {
    // A histogram: a changed row moves two counts by 1, with σ² of 1/ρ.
    let rho = 0.01;
    let each = LossDistribution::discrete_gaussian(1.0 / rho, 1, 0.001).unwrap();
    let both = each.compose(&each).unwrap();
    for epsilon in [0.1, 0.3, 0.6] {
        let (found, exact) = (both.delta(loss(epsilon)).get(), gaussian(rho, epsilon));
        assert!((found / exact - 1.0).abs() < 0.02, "{epsilon}: {found} and {exact}");
    }
    // The exact probabilities of one count, without a grid.
    let variance = 4.0_f64;
    let weight = |k: i32| (-f64::from(k * k) / (2.0 * variance)).exp();
    let total: f64 = (-60..=60).map(weight).sum();
    let one = LossDistribution::discrete_gaussian(variance, 1, 0.01).unwrap();
    for epsilon in [0.0, 0.2, 0.5, 1.3] {
        let part = |k: i32| (weight(k) - f64::exp(epsilon) * weight(k - 1)).max(0.0) / total;
        let exact: f64 = (-60..=60).map(part).sum();
        let found = one.delta(loss(epsilon)).get();
        assert!(found >= exact * (1.0 - 1e-9) && found <= exact * 1.01, "{found} {exact}");
    }
}

#[test]
fn what_can_not_be_represented_is_refused() {
    assert!(matches!(LossDistribution::gaussian(0.0, 0.1), Err(QueryError::Rho(_))));
    assert!(matches!(LossDistribution::gaussian(0.1, 0.0), Err(QueryError::LossGrid)));
    assert!(matches!(LossDistribution::gaussian(0.1, 1e-9), Err(QueryError::LossGrid)));
    assert!(matches!(LossDistribution::pure(f64::NAN, 0.1), Err(QueryError::LossGrid)));
    assert!(matches!(LossDistribution::of_losses(&[], 0.1), Err(QueryError::LossGrid)));
    let [one, other] = [0.1, 0.2].map(|step| LossDistribution::pure(0.5, step).unwrap());
    assert!(matches!(one.compose(&other), Err(QueryError::LossGrid)));
    assert!((one.loss(Delta::ZERO).get() - 0.5).abs() < 1e-9);
}
