//! Estimates and intervals.

use anyhow::Context as _;
use bandana_shared::channel::Floor;
use bandana_shared::confidence::{BetaBinomialMixture, NormalMixture};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::{
    clamped_mean, debiased_mean, manipulation_gain, variance_per_report,
};
use bandana_shared::interval::{ErrorLevel, wilson};
use bandana_shared::tally::Tally;
use serde::Serialize;

use super::{Ends, Real};

/// The two-sided 95% quantile of the normal distribution, rounded as usual.
const Z: f64 = 1.96;

#[derive(Serialize)]
pub(super) struct EstimateVector {
    epsilon: Real,
    floor: String,
    reports: String,
    ones: String,
    debiased_mean: Real,
    clamped_mean: Real,
    variance_per_report: Real,
    manipulation_gain: Real,
    wilson_z: Real,
    wilson_private_mean: Ends,
    alpha: Real,
    normal_mixture_private_mean: Ends,
    normal_mixture_mean: Ends,
    beta_binomial_private_mean: Ends,
    beta_binomial_mean: Ends,
}

pub(super) fn estimates() -> anyhow::Result<Vec<EstimateVector>> {
    let mut vectors = Vec::new();
    for nats in [Epsilon::MIN, 0.5, 1.0, 4.0, Epsilon::MAX] {
        for (reports, ones) in [
            (1, 0),
            (1, 1),
            (10, 7),
            (100, 0),
            (1000, 731),
            (1_000_000, 268_941),
            (Tally::REPORTS_MAX, Tally::REPORTS_MAX / 2 + 1),
        ] {
            vectors.push(estimate_vector(nats, Tally::new(reports, ones)?)?);
        }
    }
    Ok(vectors)
}

fn estimate_vector(nats: f64, tally: Tally) -> anyhow::Result<EstimateVector> {
    let floor = Floor::for_epsilon(Epsilon::new(nats)?);
    let private_mean = tally.private_mean().context("a tally without reports")?;
    let debiased = debiased_mean(floor, tally).context("a tally without reports")?;
    let clamped = clamped_mean(floor, tally).context("a tally without reports")?;
    let alpha = ErrorLevel::FIVE_PERCENT;
    let normal = NormalMixture::new(alpha);
    let beta = BetaBinomialMixture::new(alpha);
    Ok(EstimateVector {
        epsilon: nats.into(),
        floor: floor.get().to_string(),
        reports: tally.reports().to_string(),
        ones: tally.ones().to_string(),
        debiased_mean: debiased.into(),
        clamped_mean: clamped.into(),
        variance_per_report: variance_per_report(floor, private_mean).into(),
        manipulation_gain: manipulation_gain(floor).into(),
        wilson_z: Z.into(),
        wilson_private_mean: wilson(tally, Z).into(),
        alpha: alpha.get().into(),
        normal_mixture_private_mean: normal.private_mean(tally).into(),
        normal_mixture_mean: normal.mean(floor, tally).into(),
        beta_binomial_private_mean: beta.private_mean(tally).into(),
        beta_binomial_mean: beta.mean(floor, tally).into(),
    })
}
