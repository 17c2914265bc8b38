//! Presets of privacy, with the users that each takes by the forecast of `bandana plan`.

use bandana_learners::plan::{Plan, PlanError};
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::interval::ErrorLevel;
use serde::Serialize;

/// The gap of the two best mean rewards, scaled to 0..=1, unless one is asked for.
pub(super) const GAP: f64 = 0.05;

/// The names and losses of the presets, in nats, the most private first.
const PRESETS: [(&str, f64); 4] =
    [("very strong", 0.5), ("strong", 1.0), ("medium", 2.0), ("weak", 4.0)];

/// What a preset means and takes.
#[derive(Debug, Serialize)]
pub(super) struct Preset {
    name: &'static str,
    epsilon: f64,
    /// Whoever sees a report can change their odds for a reaction by this factor at most.
    odds_factor: f64,
    /// The probability that the report of one of two reactions says the true one.
    probability_of_truth: f64,
    /// Users until the best arm is certain in 90% of all runs; null for too many to forecast.
    users: Option<u64>,
}

/// The presets for so many arms and this gap.
pub(super) fn presets(arms: usize, gap: f64) -> Result<Vec<Preset>, PlanError> {
    let preset = |(name, nats): (&'static str, f64)| {
        let Ok(epsilon) = Epsilon::new(nats) else { return Ok(None) };
        let plan = Plan::new(arms, Floor::for_epsilon(epsilon), gap, ErrorLevel::FIVE_PERCENT)?;
        let odds_factor = libm::exp(nats);
        let probability_of_truth = odds_factor / (1.0 + odds_factor);
        let users = plan.forecast().ok().map(|forecast| forecast.users);
        Ok(Some(Preset { name, epsilon: nats, odds_factor, probability_of_truth, users }))
    };
    PRESETS.into_iter().filter_map(|named| preset(named).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_privacy_takes_more_users_and_a_plan_without_arms_is_refused() {
        let presets = presets(3, GAP).unwrap();
        assert_eq!(presets.len(), PRESETS.len());
        let users: Vec<u64> = presets.iter().map(|preset| preset.users.unwrap()).collect();
        assert!(users.is_sorted_by(|more, fewer| more > fewer), "{users:?}");
        assert!((presets[1].probability_of_truth - 0.731).abs() < 1e-3);
        super::presets(1, GAP).unwrap_err();
        super::presets(2, 0.0).unwrap_err();
    }
}
