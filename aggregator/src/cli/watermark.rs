//! `bandana watermark`.

use std::path::{Path, PathBuf};

use bandana_edge::clock::Clock;
use bandana_shared::identity::{Day, ExperimentId};
use bandana_store::{SqliteStore, Watermark, WatermarkError};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;
use tonic::Status;

use super::{say, say_json};
use crate::views::date::{date_of, day_of};
use crate::views::failure::Failure;

/// Show and mend the replay windows of a store. Stop its server first.
///
/// If a server's clock is ahead, it moves the window too far. When the clock is right again, the
/// window begins after today, and the server takes no uploads until you move the window back. Each
/// trusted experiment has a window of its own, for disclosures.
#[derive(Debug, Subcommand)]
pub(super) enum WatermarkCommand {
    /// Show where each replay window begins, and the earliest day that it may begin on.
    ///
    /// With --json: {"oldest_day", "earliest_day", "today", "trusted": [{"experiment",
    /// "oldest_day", "earliest_day"}]}, each day a date by UTC.
    Show {
        #[command(flatten)]
        store: StoreArguments,
        /// Print a JSON object for programs.
        #[arg(long)]
        json: bool,
    },
    /// Let a replay window begin earlier.
    ///
    /// The window can't include a day whose uploads were counted and whose ids are gone: the same
    /// uploads could count again. The server moves the window forward by itself.
    Set {
        #[command(flatten)]
        store: StoreArguments,
        /// The oldest day whose uploads the server should take, such as 2026-03-01.
        #[arg(long, value_name = "DATE", value_parser = day_of)]
        day: Day,
        /// Move the window of this trusted experiment, and not that of uploads.
        #[arg(long, value_name = "EXPERIMENT", value_parser = experiment)]
        trusted: Option<ExperimentId>,
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
    trusted: Vec<TrustedView>,
}

#[derive(Debug, Serialize)]
struct TrustedView {
    experiment: String,
    oldest_day: String,
    earliest_day: String,
}

/// All replay windows of a store.
struct Windows {
    uploads: Watermark,
    trusted: Vec<(ExperimentId, Watermark)>,
}

impl Windows {
    fn of(store: &SqliteStore) -> Result<Self, WatermarkError> {
        Ok(Self { uploads: store.watermark()?, trusted: store.trusted_watermarks()? })
    }

    fn view(self, today: Day) -> WatermarkView {
        let Watermark { oldest, earliest } = self.uploads;
        let [oldest_day, earliest_day, today] = [oldest, earliest, today].map(date_of);
        let view = |(id, Watermark { oldest, earliest }): (ExperimentId, Watermark)| TrustedView {
            experiment: id.to_string(),
            oldest_day: date_of(oldest),
            earliest_day: date_of(earliest),
        };
        let trusted = self.trusted.into_iter().map(view).collect();
        WatermarkView { oldest_day, earliest_day, today, trusted }
    }

    fn describe(self, today: Day) -> String {
        let uploads = describe("The replay window", "uploads", self.uploads, today);
        self.trusted.into_iter().fold(uploads, |text, (id, watermark)| {
            let window = format!("The window of the trusted experiment {id}");
            text + &describe(&window, "disclosures", watermark, today)
        })
    }
}

fn experiment(text: &str) -> Result<ExperimentId, String> {
    ExperimentId::new(text).map_err(|error| error.to_string())
}

pub(super) fn run(command: &WatermarkCommand, clock: &dyn Clock) -> anyhow::Result<()> {
    match command {
        WatermarkCommand::Show { store, json } => {
            let windows = with_store(&store.data_dir, |store| Windows::of(store))?;
            let today = clock.day();
            if *json { say_json(&windows.view(today)) } else { say(&windows.describe(today)) }
        }
        WatermarkCommand::Set { store, day, trusted } => {
            let moved = |store: &mut SqliteStore| {
                match trusted {
                    Some(id) => store.move_trusted_watermark_back(id, *day)?,
                    None => store.move_watermark_back(*day)?,
                }
                Windows::of(store)
            };
            let windows = with_store(&store.data_dir, moved).map_err(explain)?;
            say(&windows.describe(clock.day()))
        }
    }
}

/// Opens a store exclusively, applies `work` to it, and closes it.
fn with_store<T>(
    directory: &Path,
    work: impl FnOnce(&mut SqliteStore) -> Result<T, WatermarkError>,
) -> Result<T, WatermarkError> {
    let opened = SqliteStore::open_existing(directory).map_err(|error| error.located(directory));
    let mut store = opened?;
    let outcome = work(&mut store);
    // Commits are durable whether or not the log is checkpointed.
    let closed = store.close().map_err(WatermarkError::from);
    outcome.and_then(|value| closed.map(|()| value))
}

/// A refusal of the store, with dates.
fn explain(error: WatermarkError) -> anyhow::Error {
    let refused = match error {
        WatermarkError::Later { oldest } => format!(
            "the replay window begins on {} already, and only the server moves it forward; name \
             that day or an earlier one",
            date_of(oldest)
        ),
        WatermarkError::Forgotten { earliest } => format!(
            "uploads or disclosures of {} were counted and their ids are gone, so they could be \
             counted again; the window may begin on {} at the earliest",
            date_of(earliest.back(1)),
            date_of(earliest)
        ),
        WatermarkError::NoExperiment(_) => {
            let status = Status::not_found(error.to_string());
            return Failure::from(status).into();
        }
        other => return other.into(),
    };
    Failure::Refused(refused).into()
}

/// The beginning of a window and its consequence, in words.
fn describe(
    window: &str,
    what: &str,
    Watermark { oldest, earliest }: Watermark,
    today: Day,
) -> String {
    let consequence = if oldest > today {
        format!("That is after today, {}: no {what} are taken until then.\n", date_of(today))
    } else {
        String::new()
    };
    format!(
        "{window} begins on {}.\n{consequence}The earliest day that it may begin on is {}.\n",
        date_of(oldest),
        date_of(earliest)
    )
}
