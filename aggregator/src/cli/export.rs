//! `bandana experiment export`.

use bandana_shared::identity::{Day, ExperimentId};
use clap::{Args, ValueEnum};

use super::connection::{Connection, block_on, experiment_id};
use super::estimate::Wanted;
use super::export_file::ExportFile;
use super::tallies::daily_tallies;
use crate::views::columns::Column;
use crate::views::date::day_of;
use crate::views::failure::Failure;
use crate::views::tallies_view;

/// Help text on the columns of tallies.
pub(super) const COLUMNS: &str = "\
With segments, estimates have a column segment. It has the value, or `platform=ios` if there are \
several properties, and is empty for all installations together. With metrics, they have the \
columns metric (\"rewards\" for the rewards) and harmful. Estimates over time have the columns \
experiment_id, estimand, alpha, day, arm, label, reports, estimate, low and high, and with k-ary \
randomized response frequency_0, frequency_0_low, frequency_0_high and so on.

Tallies have the columns experiment_id, day (a date, by UTC and the server's clock), arm, label, \
reports, ones (private bits that are 1; 0 with k-ary randomized response), estimate (the debiased \
estimate from that day's reports alone) and standard_error (its standard error). These two hold \
for a sample whose size was fixed in advance. If you look every day, use the estimates: their \
bounds hold at all times at once. With segments there is a column segment, with values such as \
`ios, young` if there are several properties. With metrics there is a column metric (\"rewards\" \
for the rewards). With k-ary randomized response there are columns symbol_0 and so on, with the \
number of reports that say each symbol. A Parquet file has the columns of the CSV, typed, and null \
where there is no estimate.";

/// Write estimates, estimates over time or daily tallies to a file.
///
/// Estimates have one record for each arm, in full precision: of the rewards in all segments, then
/// in each segment, then of each metric. The columns are fields of `bandana estimate --json`.
///
/// Estimates over time have one record for each day and arm, with the fields of `bandana estimate
/// --over-time --json`.
///
/// Tallies have one record for each day, arm, segment and metric with reports. Each day is as it
/// was committed at one moment. Days before the replay window are there too.
#[derive(Debug, Args)]
#[command(after_long_help = COLUMNS)]
pub(super) struct Export {
    /// Id of the experiment.
    #[arg(value_name = "ID", value_parser = experiment_id)]
    experiment: ExperimentId,
    /// What to write.
    #[arg(long, value_enum, default_value_t = What::Estimates)]
    what: What,
    #[command(flatten)]
    file: ExportFile,
    /// First day of the tallies, such as 2026-03-01.
    #[arg(long, value_name = "DATE", value_parser = day_of)]
    first_day: Option<Day>,
    /// Last day of the tallies.
    #[arg(long, value_name = "DATE", value_parser = day_of)]
    last_day: Option<Day>,
    /// Error level of the estimates' intervals, between 0 and 1 [default: 0.05].
    #[arg(long)]
    alpha: Option<f64>,
    /// Assumed share of dishonest reports, 0 to 1, for the estimates' column
    /// "manipulation_shift" [default: 0].
    #[arg(long, value_name = "SHARE")]
    dishonest_share: Option<f64>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// What all reports together say of each arm.
    Estimates,
    /// What was known of each arm at the end of each day.
    OverTime,
    /// The sums of each day's reports, and what they say on their own.
    Tallies,
}

pub(super) fn export(export: &Export) -> anyhow::Result<()> {
    export.check()?;
    let columns = match export.what {
        What::Estimates => block_on(export.estimates())?,
        What::OverTime => block_on(export.over_time())?,
        What::Tallies => block_on(export.tallies())?,
    };
    export.file.write(&columns)
}

impl Export {
    /// Rejects options that can't be combined, rather than ignoring one of them.
    fn check(&self) -> Result<(), Failure> {
        let problem = match self.what {
            What::Estimates | What::OverTime
                if self.first_day.is_some() || self.last_day.is_some() =>
            {
                "estimates are from the reports of all days, so --first-day and --last-day need \
                 --what tallies"
            }
            What::OverTime if self.dishonest_share.is_some() => {
                "estimates over time have no shift, so --dishonest-share needs --what estimates"
            }
            What::Tallies if self.alpha.is_some() || self.dishonest_share.is_some() => {
                "tallies have no intervals: --alpha needs --what estimates or over-time, and \
                 --dishonest-share --what estimates"
            }
            _ => return self.file.check(),
        };
        Err(Failure::Incomplete(problem.to_owned()))
    }

    async fn estimates(&self) -> anyhow::Result<Vec<Column>> {
        Ok(self.wanted().fetch().await?.columns())
    }

    async fn over_time(&self) -> anyhow::Result<Vec<Column>> {
        Ok(self.wanted().over_time().await?.columns())
    }

    fn wanted(&self) -> Wanted {
        let (experiment, connection) = (self.experiment.clone(), self.connection.clone());
        Wanted::new(experiment, self.alpha, self.dishonest_share, connection)
    }

    async fn tallies(&self) -> anyhow::Result<Vec<Column>> {
        let days = (self.first_day, self.last_day);
        let (specification, tallies) =
            daily_tallies(&self.connection, &self.experiment, days, false).await?;
        tallies_view::columns(&specification, &tallies)
    }
}
