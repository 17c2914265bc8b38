//! The location of the store: a directory or a database.

use std::path::PathBuf;

use bandana_edge::explain::explain;
use bandana_store::{DatabaseUrl, EmbeddedSettings, PostgresSettings};

use super::effective::Effective;
use super::problem::{ConfigurationError, Problem};
use super::setting::Setting;
use super::settings;
use crate::server::StoreSettings;

/// The store's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The location.
    pub place: StorePlace,
    /// Length of the replay window in days, today included: 1 to 365.
    pub replay_window_days: u32,
    /// Maximum number of upload ids to remember: at least 1. For a directory only.
    pub ids_max: u32,
    /// Tables that the ids of a day are split into: 1 to 64. For a database only.
    pub id_partitions: u32,
}

/// The location of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// A directory.
    Directory(PathBuf),
    /// A database.
    Database {
        /// The URL of the database.
        url: DatabaseUrl,
        /// File of root certificates for the database's own.
        ca: Option<PathBuf>,
        /// File of the database's password.
        password_file: Option<PathBuf>,
        /// The databases of the store cells, in the order of their numbers.
        cells: Vec<DatabaseUrl>,
    },
}

impl Store {
    pub(super) fn of(effective: &Effective) -> Result<Self, ConfigurationError> {
        Ok(Self {
            place: place(effective)?,
            replay_window_days: effective.value(&settings::REPLAY_WINDOW_DAYS)?,
            ids_max: effective.value(&settings::IDS_MAX)?,
            id_partitions: effective.value(&settings::ID_PARTITIONS)?,
        })
    }
}

fn place(effective: &Effective) -> Result<StorePlace, ConfigurationError> {
    let Some((text, origin)) = effective.find(&settings::STORE_URL) else {
        let of_url = [&settings::STORE_CA, &settings::STORE_PASSWORD_FILE, &settings::STORE_CELLS];
        for setting in of_url {
            if effective.find(setting).is_some() {
                return Err(problem(
                    effective,
                    setting,
                    "is for `url` only; set `url`, or leave this out",
                ));
            }
        }
        return effective.value(&settings::DATA_DIR).map(StorePlace::Directory);
    };
    if effective.find(&settings::DATA_DIR).is_some() {
        let what = format!("`url` is set too, by {origin}; leave one of the two out");
        return Err(problem(effective, &settings::DATA_DIR, &what));
    }
    // The error does not repeat the text, which may contain a password.
    let url = text.parse::<DatabaseUrl>();
    let url = url.map_err(|error| problem(effective, &settings::STORE_URL, &explain(&error)))?;
    Ok(StorePlace::Database {
        url,
        ca: effective.optional(&settings::STORE_CA)?,
        password_file: effective.optional(&settings::STORE_PASSWORD_FILE)?,
        cells: cells(effective)?,
    })
}

/// The URLs of the store cells. As above, no error repeats one.
fn cells(effective: &Effective) -> Result<Vec<DatabaseUrl>, ConfigurationError> {
    let setting = &settings::STORE_CELLS;
    let text = effective.find(setting).map_or("", |(text, _)| text.as_str());
    let of = |(number, text): (usize, &str)| {
        text.parse::<DatabaseUrl>().map_err(|error| {
            problem(effective, setting, &format!("number {number}: {}", explain(&error)))
        })
    };
    (1..).zip(text.split_whitespace()).map(of).collect()
}

fn problem(effective: &Effective, setting: &Setting, what: &str) -> ConfigurationError {
    let Setting { section, key, .. } = setting;
    let place = effective.origin(setting).to_string();
    ConfigurationError::Problems(vec![Problem {
        place,
        what: format!("[{section}] {key}: {what}"),
    }])
}

impl From<Store> for StoreSettings {
    fn from(store: Store) -> Self {
        let Store { place, replay_window_days, ids_max, id_partitions } = store;
        match place {
            StorePlace::Directory(data_dir) => {
                let ids_max = usize::try_from(ids_max).unwrap_or(usize::MAX);
                let settings = EmbeddedSettings { replay_window_days, ids_max };
                Self::Embedded { data_dir, settings }
            }
            StorePlace::Database { url, ca, password_file, cells } => {
                Self::Postgres(PostgresSettings {
                    url,
                    ca,
                    password_file,
                    replay_window_days,
                    id_partitions,
                    cells,
                })
            }
        }
    }
}
