//! `bandana estimate` and `bandana watch`.

use bandana_shared::identity::ExperimentId;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::wire::v1::EstimatesRequest;
use clap::Args;

use super::connection::{Connection, block_on, experiment_id};
use super::experiment::find_arm;
use super::tallies::daily_tallies;
use super::{say, say_json};
use crate::views::estimates_view::{EstimatesView, FIELDS};
use crate::views::failure::Failure;
use crate::views::over_time_view::{FIELDS as OVER_TIME_FIELDS, OverTimeView};
use crate::views::table::terminal_columns;

/// Clears a terminal, and goes to its upper left corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Default error level of intervals.
const ALPHA: f64 = 0.05;

/// Which estimates.
#[derive(Debug, Args)]
pub(super) struct Wanted {
    /// Id of the experiment.
    #[arg(value_name = "ID", value_parser = experiment_id)]
    experiment: ExperimentId,
    /// Error level of the intervals, between 0 and 1.
    #[arg(long, default_value_t = ALPHA)]
    alpha: f64,
    /// Assumed share of dishonest reports, 0 to 1, for the column "shift".
    ///
    /// The shift is how far an estimate can be from what honest reports would have shown.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    dishonest_share: f64,
    /// Label or index of the arm that the others are compared with [default: that of `bandana
    /// experiment record`, or else 0].
    #[arg(long, value_name = "ARM")]
    control: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Show debiased estimates of every arm, from all committed reports.
#[derive(Debug, Args)]
#[command(after_long_help = format!("{FIELDS}\n\n{OVER_TIME_FIELDS}"))]
pub(super) struct Estimate {
    #[command(flatten)]
    wanted: Wanted,
    /// Show the estimates at the end of each day, from the reports of that day and of those before
    /// it.
    #[arg(long, conflicts_with_all = ["dishonest_share", "control"])]
    over_time: bool,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

/// Show estimates now and after every new policy, until Ctrl-C.
///
/// On a terminal, it redraws the table of `bandana estimate`. Elsewhere, it prints one line for
/// each policy.
#[derive(Debug, Args)]
#[command(after_long_help = FIELDS)]
pub(super) struct Watch {
    #[command(flatten)]
    wanted: Wanted,
    /// Print a JSON object on each line, for programs.
    #[arg(long)]
    json: bool,
    /// End after this many estimates.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,
}

impl Wanted {
    /// Combines the arguments; omitted ones get their defaults.
    pub(super) fn new(
        experiment: ExperimentId,
        alpha: Option<f64>,
        dishonest_share: Option<f64>,
        connection: Connection,
    ) -> Self {
        let (alpha, dishonest_share) = (alpha.unwrap_or(ALPHA), dishonest_share.unwrap_or(0.0));
        Self { experiment, alpha, dishonest_share, control: None, connection }
    }

    async fn request(&self) -> anyhow::Result<EstimatesRequest> {
        // On the wire, 0 selects the server's default.
        if self.alpha == 0.0 {
            let said = "--alpha must be between 0 and 1, such as 0.05";
            return Err(Failure::Refused(said.into()).into());
        }
        let control_arm = match &self.control {
            Some(arm) => Some(find_arm(&self.connection, &self.experiment, arm).await?),
            None => None,
        };
        Ok(EstimatesRequest {
            experiment_id: self.experiment.to_string(),
            alpha: self.alpha,
            dishonest_share: self.dishonest_share,
            control_arm,
        })
    }

    /// Requests the current estimates from the server.
    pub(super) async fn fetch(&self) -> anyhow::Result<EstimatesView> {
        let request = self.request().await?;
        let answer = self.connection.connect().await?.get_estimates(request).await;
        Ok(answer.map_err(Failure::from)?.into_inner().into())
    }

    /// Requests the tallies of every day from the server, for the estimates at its end.
    pub(super) async fn over_time(&self) -> anyhow::Result<OverTimeView> {
        let alpha = ErrorLevel::new(self.alpha);
        let alpha = alpha.map_err(|error| Failure::Refused(format!("--alpha: {error}")))?;
        let all = (None, None);
        let (specification, tallies) =
            daily_tallies(&self.connection, &self.experiment, all, true).await?;
        OverTimeView::new(specification, &tallies, alpha)
    }
}

pub(super) fn run(estimate: &Estimate) -> anyhow::Result<()> {
    if estimate.over_time {
        let view = block_on(estimate.wanted.over_time())?;
        return if estimate.json {
            say_json(&view)
        } else {
            say(&view.describe(terminal_columns()))
        };
    }
    let view = block_on(estimate.wanted.fetch())?;
    if estimate.json { say_json(&view) } else { say(&view.describe(terminal_columns())) }
}

pub(super) fn watch(watch: &Watch) -> anyhow::Result<()> {
    block_on(async {
        tokio::select! {
            outcome = follow(watch) => outcome,
            interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        }
    })
}

async fn follow(watch: &Watch) -> anyhow::Result<()> {
    let request = watch.wanted.request().await?;
    let mut client = watch.wanted.connection.connect().await?;
    let mut stream = client.watch_estimates(request).await.map_err(Failure::from)?.into_inner();
    let mut left = watch.updates;
    while left != Some(0) {
        let Some(estimates) = stream.message().await.map_err(Failure::from)? else {
            return Err(Failure::from(tonic::Status::unavailable("the stream ended")).into());
        };
        let view = EstimatesView::from(estimates);
        match (watch.json, terminal_columns()) {
            (true, _) => say_json(&view)?,
            (false, None) => say(&view.line())?,
            (false, columns) => say(&format!("{CLEAR}{}", view.describe(columns)))?,
        }
        left = left.map(|left| left - 1);
    }
    Ok(())
}
