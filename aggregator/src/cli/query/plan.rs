//! `bandana query plan` and `plan-choice`: how accurate answers would be.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::counting;
use bandana_mechanisms::queries::exponential::ExponentialMechanism;
use bandana_mechanisms::queries::price::{ConcentratedLoss, Measure, Price, PureLoss};
use clap::Args;

use super::Cost;
use super::view::{PlanChoiceView, PlanView};
use crate::cli::{say, say_json};
use crate::views::failure::Failure;

#[derive(Debug, Args)]
pub(in crate::cli) struct Plan {
    /// Number of counts: tell how accurate they are.
    #[arg(long, value_name = "NUMBER")]
    queries: Option<u64>,
    /// Number of rows: tell how many counts can be off by no more.
    #[arg(long, value_name = "ROWS")]
    alpha_rows: Option<f64>,
    #[command(flatten)]
    cost: Cost,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PlanChoice {
    /// Number of values to choose from.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    candidates: u64,
    /// Price in epsilon: tell how far a choice at this price falls short.
    #[arg(long, value_name = "NUMBER")]
    epsilon: Option<f64>,
    /// Number of rows: tell at what price a choice falls short by no more, on average.
    #[arg(long, value_name = "ROWS")]
    mean_rows: Option<f64>,
    /// Probability that a choice is worse than the bound beside the mean says.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.05)]
    beta: f64,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

#[expect(clippy::needless_pass_by_value, reason = "for errors that are mapped")]
fn incomplete(error: QueryError) -> Failure {
    Failure::Incomplete(error.to_string())
}

impl PlanChoice {
    pub(super) fn tell(&self) -> anyhow::Result<()> {
        let Self { candidates, epsilon, mean_rows, beta, json } = *self;
        let share = 1.0 / candidates as f64;
        let mechanism = match (epsilon, mean_rows) {
            (Some(epsilon), _) => {
                PureLoss::new(epsilon).and_then(|loss| ExponentialMechanism::new(1, loss))
            }
            (None, most) => {
                ExponentialMechanism::for_mean_shortfall(1, share, 0, most.unwrap_or(0.0))
            }
        };
        let mechanism = mechanism.map_err(incomplete)?;
        let price = Price::Pure(mechanism.loss());
        let rho =
            price.nanos(Measure::Concentrated, ExponentialMechanism::LOSS).map_err(incomplete)?;
        let view = PlanChoiceView {
            candidates,
            epsilon_nanos: mechanism.loss().nanos(),
            rho_nanos: rho,
            mean_rows: mechanism.mean_shortfall(share, 0).map_err(incomplete)?,
            shortfall_rows: mechanism.shortfall(candidates, beta).map_err(incomplete)?,
            beta,
        };
        if json { say_json(&view) } else { say(&view.describe()) }
    }
}

impl Plan {
    pub(super) fn tell(&self) -> anyhow::Result<()> {
        let Cost { epsilon, delta, rho, beta } = self.cost;
        let price = match (epsilon, delta) {
            (Some(epsilon), Some(delta)) => {
                ConcentratedLoss::within_numbers(epsilon, delta).map(Price::Concentrated)
            }
            (Some(epsilon), None) => PureLoss::new(epsilon).map(Price::Pure),
            (None, _) => ConcentratedLoss::new(rho.unwrap_or(0.0)).map(Price::Concentrated),
        };
        let price = price.map_err(incomplete)?;
        let queries = match (self.queries, self.alpha_rows) {
            (Some(queries), _) => queries,
            (None, alpha) => {
                counting::queries_within(alpha.unwrap_or(0.0), price, beta).map_err(incomplete)?
            }
        };
        let accuracy = if queries == 0 && self.queries.is_none() {
            None
        } else {
            Some(counting::accuracy(queries, price, beta).map_err(incomplete)? as f64)
        };
        let view = PlanView { queries, accuracy_rows: accuracy, beta };
        if self.json { say_json(&view) } else { say(&view.describe()) }
    }
}
