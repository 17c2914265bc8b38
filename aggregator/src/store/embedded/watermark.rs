//! Where the replay window begins, and how far back that may be moved.
//!
//! The ids of the days before it are gone. Who moves it back over a day on which an
//! upload was counted lets that upload be counted again; so it may go back over days
//! on which none was. What was counted on a day left a tally of that day, which stays
//! for good, since an upload has at least one report.

use std::path::Path;

use bandana_shared::identity::Day;
use rusqlite::{Connection, params};
use thiserror::Error;

use super::SqliteStore;
use super::sqlite::{committing, reading};
use crate::store::{Presence, StoreError};

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

fn read(connection: &Connection) -> rusqlite::Result<Watermark> {
    let query = "SELECT oldest_day,
        (SELECT max(day) FROM tally WHERE day < oldest_day),
        (SELECT max(day) FROM checkpoint WHERE day < oldest_day)
        FROM watermark";
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
