//! Exports of committed data.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::memory::Budget;
use bandana_edge::pushback::exhausted;
use bandana_shared::channel::Channel;
use bandana_shared::identity::{Day, Revision};
use bandana_shared::wire::v1::{self, ExportTalliesRequest};
use bandana_store::{DailyTally, RevisionTally, StoreReader, over_revisions};
use futures_util::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use tokio::sync::Semaphore;
use tonic::Status;

use super::unreadable;
use crate::registry::Experiment;

/// The delay asked of an export that finds no place, or no room.
const NO_PLACE_WAIT: Duration = Duration::from_secs(2);

/// Most concurrent exports: each holds a page of its data until that is sent.
const EXPORTS_MAX: usize = 4;

/// Tallies of a page, but for a single day with more.
const PAGE_TALLIES: u64 = 1024;

/// Most bytes that a tally takes while a page is read and sent: of an alphabet of 16 symbols, in the
/// store's form, assembled, and as a message.
const TALLY_BYTES: usize = 1024;

/// Bytes of a day in the plan of an export.
const DAY_BYTES: usize = size_of::<Page>();

/// Reads data for a limited number of concurrent exports.
#[derive(Clone, Debug)]
pub struct Exports {
    reader: StoreReader,
    budget: Budget,
    places: Arc<Semaphore>,
}

/// Consecutive days that are read at once, and the number of their tallies.
type Page = (RangeInclusive<Day>, u64);

impl Exports {
    /// Exports from the store of this reader, which hold their pages of this budget.
    pub fn new(reader: StoreReader, budget: Budget) -> Self {
        Self { reader, budget, places: Arc::new(Semaphore::new(EXPORTS_MAX)) }
    }

    /// The tallies of an experiment on these days, read page by page on threads that may block. A
    /// day is read as it is at one moment, and later days later.
    pub(super) async fn tallies(
        &self,
        experiment: &Experiment,
        days: RangeInclusive<Day>,
        by_revision: bool,
    ) -> Result<impl Stream<Item = Result<v1::DailyTally, Status>> + Send + use<>, Status> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            exhausted(
                format!(
                    "{EXPORTS_MAX} exports are under way, the most that there can be; try again \
                     later"
                ),
                NO_PLACE_WAIT,
            )
        })?;
        let (key, channel) = (experiment.key(), experiment.serving().specification.channel());
        let reader = self.reader.clone();
        // The thread reads on when its caller has gone, and keeps its place meanwhile.
        let read = move || (reader.days_with_tallies(key, &days), place);
        let (days, place) = tokio::task::spawn_blocking(read).await.map_err(unreadable)?;
        let pages = pages(days.map_err(unreadable)?);
        let plan = self.budget.hold(pages.len() * DAY_BYTES).ok_or_else(no_room)?;
        let held = Arc::new((place, plan));
        let (reader, budget) = (self.reader.clone(), self.budget.clone());
        let tallies = stream::iter(pages).then(move |(days, tallies)| {
            let (reader, held) = (reader.clone(), Arc::clone(&held));
            let bytes = usize::try_from(tallies).unwrap_or(usize::MAX).saturating_mul(TALLY_BYTES);
            let hold = budget.hold(bytes).ok_or_else(no_room);
            async move {
                let hold = hold?;
                let read = move || {
                    let rows = reader.daily_tallies_by_revision(key, &days);
                    let rows =
                        rows.map(|rows| if by_revision { rows } else { over_revisions(rows) });
                    (rows, held, hold)
                };
                let (rows, held, hold) =
                    tokio::task::spawn_blocking(read).await.map_err(unreadable)?;
                let rows = rows.map_err(unreadable)?.into_iter();
                Ok::<_, Status>(stream::iter(rows.map(move |row| {
                    let _held = (&held, &hold);
                    Ok(message(row, channel))
                })))
            }
        });
        Ok(tallies.try_flatten())
    }
}

/// The pages of these days, which have so many tallies.
fn pages(days: Vec<(Day, u64)>) -> Vec<Page> {
    let mut pages: Vec<Page> = Vec::new();
    for (day, tallies) in days {
        match pages.last_mut() {
            Some((days, before)) if *before + tallies <= PAGE_TALLIES => {
                (*days, *before) = (*days.start()..=day, *before + tallies);
            }
            _ => pages.push((day..=day, tallies)),
        }
    }
    pages
}

fn no_room() -> Status {
    exhausted("the server has no memory left for more calls", NO_PLACE_WAIT)
}

fn message(row: RevisionTally, channel: Channel) -> v1::DailyTally {
    let RevisionTally { revision, daily: DailyTally { day, cell, tally } } = row;
    let (ones, symbols) = match channel {
        Channel::Bit(_) => (tally.ones(), Vec::new()),
        Channel::Kary(channel) => (0, tally.counts(channel.alphabet()).collect()),
    };
    let (day, arm, reports) = (day.get(), cell.to_u32(), tally.reports());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_every_day_once_and_few_tallies_or_one_day() {
        let tallies = [1, 1023, 1, 2000, 3, 500, 521, 1];
        let days = || (10_u32..).step_by(3).map(Day::new).zip(tallies);
        let found = pages(days().collect());
        let counts: Vec<u64> = found.iter().map(|(_, tallies)| *tallies).collect();
        assert_eq!(counts, [1024, 1, 2000, 1024, 1]);
        for (day, _) in days() {
            assert_eq!(found.iter().filter(|(days, _)| days.contains(&day)).count(), 1, "{day:?}");
        }
        assert!(pages(Vec::new()).is_empty());
    }
}
