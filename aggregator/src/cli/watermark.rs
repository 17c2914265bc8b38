//! `bandana watermark`.

use std::path::{Path, PathBuf};

use bandana_shared::identity::Day;
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;

use super::date::{date_of, day_of};
use super::failure::Failure;
use super::{say, say_json};
use crate::clock::Clock;
use crate::store::{SqliteStore, Watermark, WatermarkError};

/// Show and mend the replay window of a store that no server has open.
///
/// A server whose clock is ahead moves the window along. When the clock is right again,
/// the window begins after today, and no uploads are taken until it is moved back.
#[derive(Debug, Subcommand)]
pub(super) enum WatermarkCommand {
    /// Show where the replay window begins, and the earliest day that it may begin on.
    ///
    /// With --json: {"oldest_day", "earliest_day", "today"}, each a date by UTC.
    Show {
        #[command(flatten)]
        store: StoreArguments,
        /// Print a JSON object for programs.
        #[arg(long)]
        json: bool,
    },
    /// Have the replay window begin earlier.
    ///
    /// Days on which uploads were counted stay outside once their ids are gone, since the
    /// same uploads could be counted again. The server moves the window forward by itself.
    Set {
        #[command(flatten)]
        store: StoreArguments,
        /// The oldest day whose uploads are to be taken, such as 2026-03-01.
        #[arg(long, value_name = "DATE", value_parser = day_of)]
        day: Day,
    },
}

/// Which store.
#[derive(Debug, Args)]
pub(super) struct StoreArguments {
    /// Directory of the store.
    #[arg(long, value_name = "DIRECTORY", env = "BANDANA_DATA_DIR", value_hint = ValueHint::DirPath)]
    data_dir: PathBuf,
}

#[derive(Debug, Serialize)]
struct WatermarkView {
    oldest_day: String,
    earliest_day: String,
    today: String,
}

pub(super) fn run(command: &WatermarkCommand, clock: &dyn Clock) -> anyhow::Result<()> {
    match command {
        WatermarkCommand::Show { store, json } => {
            let watermark = with_store(&store.data_dir, |store| Ok(store.watermark()?))?;
            let today = clock.day();
            if *json {
                let dates = [watermark.oldest, watermark.earliest, today].map(date_of);
                let [oldest_day, earliest_day, today] = dates;
                say_json(&WatermarkView { oldest_day, earliest_day, today })
            } else {
                say(&describe(watermark, today))
            }
        }
        WatermarkCommand::Set { store, day } => {
            let moved = |store: &mut SqliteStore| {
                store.move_watermark_back(*day)?;
                Ok(store.watermark()?)
            };
            let watermark = with_store(&store.data_dir, moved).map_err(explain)?;
            say(&describe(watermark, clock.day()))
        }
    }
}

/// Does something with a store that nobody else has open, and closes it.
fn with_store<T>(
    directory: &Path,
    work: impl FnOnce(&mut SqliteStore) -> Result<T, WatermarkError>,
) -> Result<T, WatermarkError> {
    let opened = SqliteStore::open_existing(directory).map_err(|error| error.located(directory));
    let mut store = opened?;
    let outcome = work(&mut store);
    // What is committed stays so, whether the log is copied or not.
    let closed = store.close().map_err(WatermarkError::from);
    outcome.and_then(|value| closed.map(|()| value))
}

/// What the store refuses, with dates.
fn explain(error: WatermarkError) -> anyhow::Error {
    let refused = match error {
        WatermarkError::Later { oldest } => format!(
            "the replay window begins on {} already, and only the server moves it forward; name \
             that day or an earlier one",
            date_of(oldest)
        ),
        WatermarkError::Forgotten { earliest } => format!(
            "uploads of {} were counted and their ids are gone, so they could be counted again; \
             the window may begin on {} at the earliest",
            date_of(earliest.back(1)),
            date_of(earliest)
        ),
        other => return other.into(),
    };
    Failure::Refused(refused).into()
}

fn describe(Watermark { oldest, earliest }: Watermark, today: Day) -> String {
    let consequence = if oldest > today {
        format!("That is after today, {}: no uploads are taken until then.\n", date_of(today))
    } else {
        String::new()
    };
    format!(
        "The replay window begins on {}.\n{consequence}The earliest day that it may begin on is \
         {}.\n",
        date_of(oldest),
        date_of(earliest)
    )
}
