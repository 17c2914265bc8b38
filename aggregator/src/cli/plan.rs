//! `bandana plan`.

use std::fmt::Write as _;

use bandana_learners::bounds::order_breaking_share;
use bandana_learners::plan::{Forecast, Plan as Planned};
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::interval::ErrorLevel;
use clap::Args;
use serde::Serialize;

use super::{say, say_json};
use crate::views::failure::Failure;

/// How many users an experiment needs until its best arm is certain.
///
/// One arm is taken to be better than all others by the gap, and these to be alike. Certain
/// is what `bandana estimate` calls the best arm: wrong with a probability of at most 1 -
/// confidence, however often one looks. It asks no server.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With a small floor weight the numbers of users are upper estimates, by up to about two times: a \
learner gives the other arms more than that until it knows.

Fields with --json: arms, epsilon, gap, confidence, floor_weight, typical_users (until certain in \
at least half of all runs), users (in at least 90% of them), regret (expected up to there, in \
rewards scaled to 0..=1, if every arm but the best has the floor weight), learner_regret (what the \
channel's asymptotic lower bound comes to for as many users: learners without a floor weight, such \
as ldp-ts, stay well below it, and may not be certain by then), order_breaking_share (share of \
dishonest reports from which on the two best arms can be exchanged).")]
pub(super) struct Plan {
    /// Number of arms, 2 to 1024.
    #[arg(long, value_name = "NUMBER")]
    arms: usize,
    /// Privacy loss of one report, in nats: 2^-20 to 32.
    #[arg(long, value_name = "NATS")]
    epsilon: f64,
    /// Difference of the two best mean rewards, scaled to 0..=1: above 0, at most 1.
    #[arg(long)]
    gap: f64,
    /// Probability that the arm called best is the best: above 0, below 1.
    #[arg(long, default_value_t = 0.95)]
    confidence: f64,
    /// Share of the traffic that every arm but the best gets: above 0, at most 1 / (number of
    /// arms) [default: 1 / (number of arms)].
    #[arg(long, value_name = "SHARE")]
    floor_weight: Option<f64>,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

/// Stable JSON form of a forecast.
#[derive(Debug, Serialize)]
struct PlanView {
    arms: usize,
    epsilon: f64,
    gap: f64,
    confidence: f64,
    floor_weight: f64,
    typical_users: u64,
    users: u64,
    regret: f64,
    learner_regret: f64,
    order_breaking_share: f64,
}

pub(super) fn run(plan: &Plan) -> anyhow::Result<()> {
    let view = plan.view()?;
    if plan.json { say_json(&view) } else { say(&view.describe()) }
}

impl Plan {
    fn view(&self) -> Result<PlanView, Failure> {
        let Self { arms, epsilon, gap, confidence, floor_weight, .. } = *self;
        let refuse = |error: &dyn std::error::Error| Failure::Refused(error.to_string());
        let floor = Floor::for_epsilon(Epsilon::new(epsilon).map_err(|e| refuse(&e))?);
        let alpha = ErrorLevel::new(1.0 - confidence).map_err(|_| {
            Failure::Refused("--confidence must lie between 0 and 1, such as 0.95".to_owned())
        })?;
        let mut planned = Planned::new(arms, floor, gap, alpha).map_err(|e| refuse(&e))?;
        if let Some(floor_weight) = floor_weight {
            planned = planned.with_floor_weight(floor_weight).map_err(|e| refuse(&e))?;
        }
        let Forecast { typical_users, users, regret, learner_regret } =
            planned.forecast().map_err(|e| refuse(&e))?;
        Ok(PlanView {
            arms,
            epsilon,
            gap,
            confidence,
            floor_weight: floor_weight.unwrap_or(1.0 / arms as f64),
            typical_users,
            users,
            regret,
            learner_regret,
            order_breaking_share: order_breaking_share(floor, gap),
        })
    }
}

impl PlanView {
    fn describe(&self) -> String {
        let mut text = format!(
            "{} arms, epsilon {}, gap {}, confidence {}, {:.3}% of the traffic for each arm but \
             the best\n",
            self.arms,
            self.epsilon,
            self.gap,
            self.confidence,
            100.0 * self.floor_weight
        );
        let lines = [
            ("users in at least half of all runs", self.typical_users.to_string()),
            ("users in at least 90% of all runs", self.users.to_string()),
            ("regret up to there", format!("{:.0}", self.regret)),
            ("lower bound of regret, asymptotic", format!("{:.0}", self.learner_regret)),
            (
                "dishonest reports that turn the order",
                format!("{:.2}%", 100.0 * self.order_breaking_share),
            ),
        ];
        for (name, value) in lines {
            // Writing to a string does not fail.
            writeln!(text, "{name:38}{value:>16}").ok();
        }
        text
    }
}
