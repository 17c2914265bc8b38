//! The watermark: the first day of the replay window, and how far back it may be moved.
//!
//! The windows of trusted experiments work in the same way. For them the store has the day up to
//! which disclosure ids were deleted.
//!
//! The ids of earlier days are gone. Moving the watermark back over a day with counted uploads
//! would let those uploads be counted again, so it may only move back over days without any. A day
//! with counted uploads has a tally for good, since an upload has at least one report.

use std::path::Path;

use bandana_shared::identity::{Day, ExperimentId};
use rusqlite::{Connection, params};
use thiserror::Error;

use super::SqliteStore;
use super::sqlite::{committing, reading};
use crate::{Presence, StoreError, damaged};

/// The first day of a replay window, with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// The oldest day whose uploads are taken.
    pub oldest: Day,
    /// The earliest day that `oldest` may be moved back to: the day after the last day with counted
    /// uploads whose ids are gone.
    pub earliest: Day,
}

impl SqliteStore {
    /// Opens the store in `directory`, which must exist.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open_existing(directory: &Path) -> Result<Self, StoreError> {
        Self::open_with(Presence::Required, directory)
    }

    /// The watermark of the replay window.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn watermark(&self) -> Result<Watermark, StoreError> {
        read(&self.connection).map_err(reading)
    }

    /// Moves the first day of the replay window back.
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

/// The windows of trusted experiments; each has its own.
impl SqliteStore {
    /// The watermark of each trusted experiment that has not been stopped, by name.
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

    /// Moves the first day of a trusted experiment's window back.
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

/// The reason why the replay window was not moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WatermarkError {
    /// The window would begin later than it does.
    #[error("the replay window begins on day {oldest} and is moved forward by the server alone")]
    Later {
        /// The window's present first day.
        oldest: Day,
    },
    /// No trusted experiment that has not been stopped has this id.
    #[error("there is no trusted experiment {0} that has not been stopped")]
    NoExperiment(ExperimentId),
    /// The window would contain days whose upload ids are gone.
    #[error(
        "uploads were counted on the day before day {earliest} and their ids are gone: they could \
         be counted again"
    )]
    Forgotten {
        /// The earliest day that the window may begin on.
        earliest: Day,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
