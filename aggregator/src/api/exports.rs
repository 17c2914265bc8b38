//! Exports of committed data.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bandana_shared::channel::Channel;
use bandana_shared::identity::{Day, Revision};
use bandana_shared::wire::v1::{self, ExportTalliesRequest};
use futures_util::stream::{self, Stream, StreamExt as _};
use tokio::sync::Semaphore;
use tonic::Status;

use super::unreadable;
use crate::registry::Experiment;
use crate::store::{DailyTally, RevisionTally, StoreReader};

/// Most concurrent exports: each holds its data until all of it is sent.
const EXPORTS_MAX: usize = 4;

/// Reads data for a limited number of concurrent exports.
#[derive(Clone, Debug)]
pub struct Exports {
    reader: StoreReader,
    places: Arc<Semaphore>,
}

impl Exports {
    /// Exports from the store of this reader.
    pub fn new(reader: StoreReader) -> Self {
        Self { reader, places: Arc::new(Semaphore::new(EXPORTS_MAX)) }
    }

    /// The tallies of an experiment on these days, read on a thread that may block.
    pub(super) async fn tallies(
        &self,
        experiment: &Experiment,
        days: RangeInclusive<Day>,
        by_revision: bool,
    ) -> Result<impl Stream<Item = Result<v1::DailyTally, Status>> + Send + use<>, Status> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{EXPORTS_MAX} exports are under way, and there can't be more; try again later"
            ))
        })?;
        let reader = self.reader.clone();
        let (experiment, channel) =
            (experiment.key(), experiment.serving().specification.channel());
        // The thread reads on when its caller has gone, and keeps its place meanwhile.
        let read = move || {
            let rows = if by_revision {
                reader.daily_tallies_by_revision(experiment, &days)
            } else {
                let rows = reader.daily_tallies(experiment, &days);
                let one = |daily| RevisionTally { revision: None, daily };
                rows.map(|rows| rows.into_iter().map(one).collect())
            };
            (rows, place)
        };
        let (rows, place) = tokio::task::spawn_blocking(read).await.map_err(unreadable)?;
        let rows = rows.map_err(unreadable)?;
        Ok(stream::iter(rows).map(move |row| {
            let _held = &place;
            Ok(message(row, channel))
        }))
    }
}

fn message(row: RevisionTally, channel: Channel) -> v1::DailyTally {
    let RevisionTally { revision, daily: DailyTally { day, arm, tally } } = row;
    let (ones, symbols) = match channel {
        Channel::Bit(_) => (tally.ones(), Vec::new()),
        Channel::Kary(channel) => (0, tally.counts(channel.alphabet()).collect()),
    };
    let (day, arm, reports) = (day.get(), arm.to_u32(), tally.reports());
    let revision = revision.map_or(0, Revision::get);
    v1::DailyTally { day, arm, reports, ones, symbols, revision }
}

/// The requested days.
pub(super) fn days(request: &ExportTalliesRequest) -> Result<RangeInclusive<Day>, Status> {
    let (first, last) = (request.first_day.unwrap_or(0), request.last_day.unwrap_or(u32::MAX));
    if first > last {
        let message = format!("first_day {first} must not be after last_day {last}");
        return Err(Status::invalid_argument(message));
    }
    Ok(Day::new(first)..=Day::new(last))
}
