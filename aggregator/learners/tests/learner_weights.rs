//! The weights of every randomised learner against a high-precision reference.
//!
//! `learner_weights/README.md` describes the computation of the reference.

use bandana_learners::{Learner, LearnerInput};
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::policy::Weights;
use bandana_shared::tally::Tally;
use serde_json::Value;

const REFERENCE: &str = include_str!("learner_weights/reference.json");

fn input(case: &Value) -> anyhow::Result<LearnerInput> {
    let count = |value: &Value| value.as_u64().ok_or_else(|| anyhow::anyhow!("not a count"));
    let pairs = case["counts"].as_array().ok_or_else(|| anyhow::anyhow!("no counts"))?;
    let mut tallies = Vec::new();
    for pair in pairs {
        let (ones, zeros) = (count(&pair[0])?, count(&pair[1])?);
        tallies.push(Tally::new(ones + zeros, ones)?);
    }
    let epsilon = Epsilon::new(case["epsilon"].as_f64().unwrap_or(0.0))?;
    let active = vec![true; tallies.len()];
    let pending = case["pending"].as_array().map_or(&[][..], Vec::as_slice);
    let pending: Vec<f64> = pending.iter().filter_map(Value::as_f64).collect();
    Ok(LearnerInput::new(&tallies, &active, Floor::for_epsilon(epsilon))
        .with_pending(&pending)
        .with_ahead(case["ahead"].as_f64().unwrap_or(0.0)))
}

/// Learners, and the number of cases of each in the reference.
const LEARNERS: [(Learner, usize); 4] = [
    (Learner::LdpTs, 33),
    (Learner::TruncatedTs, 33),
    (Learner::RandAdaKl, 46),
    (Learner::TopTwo, 7),
];

#[test]
fn weights_are_those_of_the_reference() -> anyhow::Result<()> {
    let reference: Value = serde_json::from_str(REFERENCE)?;
    let cases = reference["cases"].as_array().map_or(&[][..], Vec::as_slice);
    let mut compared = LEARNERS.map(|(learner, _)| (learner, 0));
    for case in cases {
        let input = input(case)?;
        for (learner, count) in &mut compared {
            let Some(expected) = case[learner.name()].as_object() else { continue };
            let weights = learner.weights(&input)?;
            assert_eq!(weights.iter().sum::<u64>(), Weights::TOTAL);
            for arm in 0..input.arms.len() {
                // The reference omits weights below 1e-9.
                let reference = expected.get(&arm.to_string()).and_then(Value::as_f64);
                let off = (weights.share(arm) - reference.unwrap_or(0.0)).abs();
                assert!(
                    off < 1e-6,
                    "{} of {} arms, {}, epsilon {}, arm {arm}: off by {off}",
                    learner.name(),
                    input.arms.len(),
                    case["kind"],
                    case["epsilon"]
                );
            }
            *count += 1;
        }
    }
    assert_eq!(compared, LEARNERS, "cases that were compared, and that there are");
    Ok(())
}
