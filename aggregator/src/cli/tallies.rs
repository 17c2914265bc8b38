//! The tallies of every day, as a server has them.

use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{DailyTally, ExperimentName, ExportTalliesRequest};

use super::connection::Connection;
use crate::views::experiment_view::current_revision;
use crate::views::failure::Failure;

/// The tallies of an experiment from the first to the last of these days, and a specification with
/// all arms that they have; of each revision, or of all together.
pub(super) async fn daily_tallies(
    connection: &Connection,
    experiment: &ExperimentId,
    (first_day, last_day): (Option<Day>, Option<Day>),
    by_revision: bool,
) -> anyhow::Result<(Specification, Vec<DailyTally>)> {
    let mut client = connection.connect().await?;
    let experiment_id = experiment.to_string();
    let (first_day, last_day) = (first_day.map(Day::get), last_day.map(Day::get));
    let request = ExportTalliesRequest { experiment_id, first_day, last_day, by_revision };
    let mut stream = client.export_tallies(request).await.map_err(Failure::from)?.into_inner();
    let mut tallies: Vec<DailyTally> = Vec::new();
    while let Some(tally) = stream.message().await.map_err(Failure::from)? {
        tallies.push(tally);
    }
    // Requested after the tallies, so that the specification contains every arm with reports.
    let name = ExperimentName { experiment_id: experiment.to_string() };
    let status = client.get_experiment_status(name).await.map_err(Failure::from)?;
    Ok((current_revision(status.get_ref())?, tallies))
}
