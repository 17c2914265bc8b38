//! Floors, thresholds and bits.

use anyhow::ensure;
use bandana_shared::channel::{Floor, Threshold};
use bandana_shared::curve::{Curvature, Curve, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::rewards::RewardRange;
use serde::Serialize;

use super::{Real, word};

const EPSILONS: [f64; 14] = [
    Epsilon::MIN,
    1.0 / 65_536.0,
    0.001,
    0.1,
    0.5,
    std::f64::consts::LN_2,
    1.0,
    1.5,
    2.0,
    4.0,
    8.0,
    16.0,
    31.9,
    Epsilon::MAX,
];

#[derive(Serialize)]
pub(super) struct FloorVector {
    epsilon: Real,
    floor: String,
    width: String,
    certified_epsilon: Real,
    must_accept: Vec<String>,
    must_refuse: Vec<String>,
}

pub(super) fn floors() -> anyhow::Result<Vec<FloorVector>> {
    EPSILONS.into_iter().map(floor_vector).collect()
}

fn floor_vector(nats: f64) -> anyhow::Result<FloorVector> {
    let epsilon = Epsilon::new(nats)?;
    let floor = Floor::for_epsilon(epsilon);
    // The floor of a slightly larger epsilon loses too much, by more than any
    // guard; so does the number before, where floors are coarse.
    let larger = Epsilon::new(nats * (1.0 + 2.0_f64.powi(-40))).map_or(floor, Floor::for_epsilon);
    let low = larger.get().min(floor.get() - 1);
    let must_accept = [floor.get(), floor.get() + 1, 1 << 62, (1 << 63) - 1];
    let must_accept: Vec<u64> =
        must_accept.into_iter().filter(|&candidate| candidate >= floor.get()).collect();
    let must_refuse = [0, 1, low / 2, low, 1 << 63, (1 << 63) + 1, u64::MAX];
    let verified = |&candidate: &u64| Floor::verify(candidate, epsilon).is_ok();
    ensure!(must_accept.iter().all(verified), "epsilon {nats}");
    ensure!(!must_refuse.iter().any(verified), "epsilon {nats}");
    let strings = |floors: &[u64]| floors.iter().map(u64::to_string).collect();
    Ok(FloorVector {
        epsilon: nats.into(),
        floor: floor.get().to_string(),
        width: floor.width().to_string(),
        certified_epsilon: floor.certified_epsilon().into(),
        must_accept: strings(&must_accept),
        must_refuse: strings(&must_refuse),
    })
}

#[derive(Serialize)]
pub(super) struct ReportVector {
    epsilon: Real,
    floor: String,
    mechanism: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    curvature_units: Option<i32>,
    reward_low: Real,
    reward_high: Real,
    reward: Real,
    level: String,
    curved_level: String,
    threshold: String,
    bits: Vec<BitVector>,
}

#[derive(Serialize)]
struct BitVector {
    u_high: String,
    u_low: String,
    bit: u8,
}

pub(super) fn reports() -> anyhow::Result<Vec<ReportVector>> {
    let mut vectors = Vec::new();
    for nats in [Epsilon::MIN, 0.1, 1.0, 3.0, 8.0, Epsilon::MAX] {
        for mechanism in mechanisms(nats)? {
            for reward in unit_rewards(mechanism) {
                vectors.push(report_vector(nats, mechanism, RewardRange::UNIT, reward)?);
            }
        }
        for (low, high, reward) in [
            (-1.0, 4.0, 0.7),
            (0.1, 0.7, 0.3),
            (-1e16, 1.0, 0.5),
            (0.0, f64::from_bits(3), f64::from_bits(1)),
        ] {
            let range = RewardRange::new(low, high)?;
            vectors.push(report_vector(nats, Mechanism::Linear, range, reward)?);
        }
    }
    Ok(vectors)
}

/// The quadratic curve does not depend on epsilon, so one curvature suffices.
fn mechanisms(nats: f64) -> anyhow::Result<Vec<Mechanism>> {
    let mut mechanisms =
        vec![Mechanism::Linear, Mechanism::Exponential, Mechanism::RandomizedResponse];
    if nats.to_bits() == 1.0_f64.to_bits() {
        for units in [-(1 << 20), -(1 << 19), 0, 314_573, 1 << 20] {
            mechanisms.push(Mechanism::Quadratic(Curvature::from_units(units)?));
        }
    }
    Ok(mechanisms)
}

fn unit_rewards(mechanism: Mechanism) -> Vec<f64> {
    if mechanism == Mechanism::RandomizedResponse {
        return vec![0.0, 1.0];
    }
    vec![
        0.0,
        -0.0,
        f64::from_bits(1),
        f64::EPSILON / 2.0,
        0.1,
        0.25,
        1.0 / 3.0,
        0.5,
        0.75,
        1.0_f64.next_down(),
        1.0,
    ]
}

fn report_vector(
    nats: f64,
    mechanism: Mechanism,
    range: RewardRange,
    reward: f64,
) -> anyhow::Result<ReportVector> {
    let epsilon = Epsilon::new(nats)?;
    let floor = Floor::for_epsilon(epsilon);
    let level = range.level(reward)?;
    let curved = Curve::new(mechanism, epsilon).apply(level);
    let threshold = floor.threshold(curved);
    Ok(ReportVector {
        epsilon: nats.into(),
        floor: floor.get().to_string(),
        mechanism: match mechanism {
            Mechanism::Linear => "linear",
            Mechanism::Quadratic(_) => "quadratic",
            Mechanism::Exponential => "exponential",
            Mechanism::RandomizedResponse | Mechanism::Kary(_) => "randomized_response",
        },
        curvature_units: match mechanism {
            Mechanism::Quadratic(curvature) => Some(curvature.units()),
            _ => None,
        },
        reward_low: range.low().into(),
        reward_high: range.high().into(),
        reward: reward.into(),
        level: level.get().to_string(),
        curved_level: curved.get().to_string(),
        threshold: format!("{:032x}", threshold.to_u128()),
        bits: bits(threshold)?,
    })
}

/// The bits of numbers around the threshold, at the ends, and of one in
/// between.
fn bits(threshold: Threshold) -> anyhow::Result<Vec<BitVector>> {
    let t = threshold.to_u128();
    let tie = (t >> 64) << 64;
    let anything = u128::from(word(t.count_ones().into())) << 64 | u128::from(word(1000));
    let numbers = [0, tie.saturating_sub(1), tie, t - 1, t, t + 1, anything, u128::MAX];
    let vector = |number: u128| {
        let high = u64::try_from(number >> 64)?;
        let low = u64::try_from(number & u128::from(u64::MAX))?;
        Ok(BitVector {
            u_high: high.to_string(),
            u_low: low.to_string(),
            bit: threshold.bit(high, low).into(),
        })
    };
    numbers.into_iter().map(vector).collect()
}
