//! The result of a run, as JSON and as a table.

use std::fmt::Write as _;

use bandana_shared::wire::v1::ReleasedMean;
use clap::ValueEnum as _;
use serde::Serialize;

use super::world::World;
use super::{Disclosed, Settings};

/// Stable JSON form of a result.
#[derive(Debug, Serialize)]
pub struct DisclosedReport {
    users: u64,
    algorithm: String,
    rho: f64,
    seed: u64,
    /// Number of rewards that the server counts.
    rewards: u64,
    releases: u64,
    /// Share of users who played the best arm or action.
    best_share: f64,
    /// Share of users who played the best one, in the last half.
    best_share_late: f64,
    seconds: f64,
    /// Empty if the actions change.
    arms: Vec<ArmReport>,
    /// The true and the estimated parameter, if the actions change.
    parameter: Option<ParameterReport>,
}

#[derive(Debug, Serialize)]
struct ArmReport {
    arm: usize,
    true_mean: f64,
    plays: u64,
    /// The released mean.
    mean: Option<f64>,
    noise_deviation: f64,
}

#[derive(Debug, Serialize)]
struct ParameterReport {
    truth: Vec<f64>,
    released: Vec<f64>,
}

impl DisclosedReport {
    /// Summarises a run.
    pub fn new(settings: &Settings, world: &World, outcome: &Disclosed, seconds: f64) -> Self {
        let Disclosed { plays, released, status, .. } = outcome;
        let name = settings.algorithm.to_possible_value();
        let arm = |(arm, shown): (usize, &ReleasedMean)| ArmReport {
            arm,
            true_mean: world.means(&[])[arm],
            plays: plays[arm],
            mean: shown.mean,
            noise_deviation: shown.noise_deviation,
        };
        let parameter = match world {
            World::Changing { parameter } => Some(ParameterReport {
                truth: parameter.clone(),
                released: released.parameter.clone().unwrap_or_default().coordinates,
            }),
            World::Arms(_) | World::Fixed { .. } => None,
        };
        Self {
            users: settings.users,
            algorithm: name.map_or_else(String::new, |name| name.get_name().to_owned()),
            rho: settings.rho.get(),
            seed: settings.seed,
            rewards: released.rewards,
            releases: status.releases,
            best_share: outcome.best_share,
            best_share_late: outcome.best_share_late,
            seconds,
            arms: released.means.iter().enumerate().map(arm).collect(),
            parameter,
        }
    }

    /// The result as text tables.
    pub fn table(&self) -> String {
        let mut text = String::new();
        if let Some(ParameterReport { truth, released }) = &self.parameter {
            text.push_str("coordinate     true  released\n");
            for (place, (truth, released)) in truth.iter().zip(released).enumerate() {
                // Writing to a string does not fail.
                writeln!(text, "{place:>10}  {truth:>7.4}  {released:>8.4}").ok();
            }
        } else {
            text.push_str("arm  true mean  released    noise  plays\n");
            for ArmReport { arm, true_mean, plays, mean, noise_deviation } in &self.arms {
                let mean = mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.4}"));
                let noise = if *noise_deviation > 0.0 {
                    format!("{noise_deviation:.4}")
                } else {
                    "-".to_owned()
                };
                writeln!(text, "{arm:>3}  {true_mean:>9.4}  {mean:>8}  {noise:>7}  {plays:>5}")
                    .ok();
            }
        }
        let Self { users, rewards, releases, rho, algorithm, seconds, .. } = self;
        let share = |share: f64| 100.0 * share;
        writeln!(
            text,
            "\n{users} users, {rewards} rewards counted, {releases} releases, {seconds:.1} s\n\
             {algorithm}, rho {rho} for each reward, each user disclosed one\n\
             the best was played by {:.1}% of the users, by {:.1}% of the last half",
            share(self.best_share),
            share(self.best_share_late),
        )
        .ok();
        text
    }
}
