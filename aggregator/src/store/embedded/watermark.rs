//! The watermark: the replay window's first day, and how far back it may be moved.
//!
//! So do the windows of trusted experiments, of which it is stored up to which day names of
//! disclosures were forgotten.
//!
//! The ids of the days before it are gone. Who moves it back over a day on which an
//! upload was counted lets that upload be counted again; so it may go back over days
//! on which none was. What was counted on a day left a tally of that day, which stays
//! for good, since an upload has at least one report.

use std::path::Path;

use bandana_shared::identity::{Day, ExperimentId};
use rusqlite::{Connection, params};
use thiserror::Error;

use super::SqliteStore;
use super::sqlite::{committing, reading};
use crate::store::{Presence, StoreError, damaged};

/// The beginning of the replay window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// The oldest day whose uploads are taken.
    pub oldest: Day,
    /// The day that this may be moved back to: the first after all days whose
    /// uploads were counted and can't be told apart any more.
    pub earliest: Day,
}

impl SqliteStore {
    /// Opens the store in `directory` if there is one.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open_existing(directory: &Path) -> Result<Self, StoreError> {
        Self::open_with(Presence::Required, directory)
    }

    /// Where the replay window begins.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn watermark(&self) -> Result<Watermark, StoreError> {
        read(&self.connection).map_err(reading)
    }

    /// Has the replay window begin earlier.
    ///
    /// # Errors
    /// [`WatermarkError::Later`] and [`WatermarkError::Forgotten`]: nothing changed.
    pub fn move_watermark_back(&mut self, to: Day) -> Result<(), WatermarkError> {
        let transaction = self.connection.transaction().map_err(committing)?;
        let Watermark { oldest, earliest } = read(&transaction).map_err(reading)?;
        if to > oldest {
            return Err(WatermarkError::Later { oldest });
        }
        if to < earliest {
            return Err(WatermarkError::Forgotten { earliest });
        }
        let update = "UPDATE watermark SET oldest_day = ?";
        transaction.execute(update, params![to.get()]).map_err(committing)?;
        Ok(transaction.commit().map_err(committing)?)
    }
}

/// The windows of trusted experiments, each of which has its own.
impl SqliteStore {
    /// Where the window of each trusted experiment that has not been stopped begins, by name.
    ///
    /// # Errors
    /// [`StoreError`] when something can't be read or understood.
    pub fn trusted_watermarks(&self) -> Result<Vec<(ExperimentId, Watermark)>, StoreError> {
        let query = "SELECT id, oldest_day, min(known_from, oldest_day)
            FROM intact_trusted_experiment
            WHERE state <> 'stopped' ORDER BY id";
        let mut query = self.connection.prepare(query).map_err(reading)?;
        let rows = query.query_map([], |row| {
            let (oldest, earliest) = (Day::new(row.get(1)?), Day::new(row.get(2)?));
            Ok((row.get::<_, String>(0)?, Watermark { oldest, earliest }))
        });
        let read = |row: rusqlite::Result<(String, Watermark)>| {
            let (id, watermark) = row.map_err(reading)?;
            let id = ExperimentId::new(id).map_err(|error| damaged(error.to_string()))?;
            Ok((id, watermark))
        };
        rows.map_err(reading)?.map(read).collect()
    }

    /// Has the window of a trusted experiment begin earlier.
    ///
    /// # Errors
    /// [`WatermarkError`]: nothing changed.
    pub fn move_trusted_watermark_back(
        &mut self,
        id: &ExperimentId,
        to: Day,
    ) -> Result<(), WatermarkError> {
        let known = self.trusted_watermarks()?;
        let known = known.into_iter().find(|(known, _)| known == id);
        let Some((_, Watermark { oldest, earliest })) = known else {
            return Err(WatermarkError::NoExperiment(id.clone()));
        };
        if to > oldest {
            return Err(WatermarkError::Later { oldest });
        }
        if to < earliest {
            return Err(WatermarkError::Forgotten { earliest });
        }
        let update = "UPDATE trusted_experiment SET oldest_day = ? WHERE id = ?";
        self.connection.execute(update, params![to.get(), id.as_str()]).map_err(committing)?;
        Ok(())
    }
}

fn read(connection: &Connection) -> rusqlite::Result<Watermark> {
    let query = "SELECT oldest_day,
        (SELECT max(day) FROM intact_tally WHERE day < oldest_day),
        (SELECT max(day) FROM intact_checkpoint WHERE day < oldest_day)
        FROM intact_watermark";
    connection.query_row(query, [], |row| {
        let counted: [Option<u32>; 2] = [row.get(1)?, row.get(2)?];
        let last = counted.into_iter().flatten().max();
        let earliest = last.map_or(Day::new(0), |last| Day::new(last).forward(1));
        Ok(Watermark { oldest: Day::new(row.get(0)?), earliest })
    })
}

/// Why the replay window was left as it is.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WatermarkError {
    /// It would begin later.
    #[error("the replay window begins on day {oldest} and is moved forward by the server alone")]
    Later {
        /// Where it begins.
        oldest: Day,
    },
    /// There is none to have a window.
    #[error("there is no trusted experiment {0} that has not been stopped")]
    NoExperiment(ExperimentId),
    /// It would have days whose ids are gone.
    #[error(
        "uploads were counted on the day before day {earliest} and their ids are gone: they could \
         be counted again"
    )]
    Forgotten {
        /// The earliest day that it may begin on.
        earliest: Day,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
