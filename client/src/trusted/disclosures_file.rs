//! The file of waiting disclosures: raw rewards, of trusted experiments only.
//!
//! The file is always replaced as a whole, so that no file holds a settled disclosure. While no
//! disclosure waits there is no file.

use std::collections::BTreeMap;

use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::stored::{self, Stored, StoredError};
use bandana_shared::wire::v1::Vector;
use bandana_shared::wire::v1::disclose_request::Played;
use serde::{Deserialize, Serialize};

use super::{Disclosure, Kept};
use crate::storage::{Files, LEDGER, STATE, StorageError, failed, replace};

pub(crate) const DISCLOSURES: &str = "disclosures";
const DISCLOSURES_NEW: &str = "disclosures.new";

/// Disclosures by their names.
pub(crate) type KeptByName = BTreeMap<[u8; 16], Kept>;

/// The file, in an open directory.
#[derive(Debug)]
pub(crate) struct DisclosuresFile(Box<dyn Files>);

impl DisclosuresFile {
    /// Reads the file, and makes its content durable.
    pub(crate) fn open(files: Box<dyn Files>) -> Result<(Self, KeptByName), StorageError> {
        let mut file = Self(files);
        for foreign in [LEDGER, STATE] {
            if file.read(foreign)?.is_some() {
                return Err(StorageError::NotOfDisclosures { file: foreign });
            }
        }
        let bytes = file.read(DISCLOSURES)?;
        let kept = bytes.as_deref().map(read).transpose()?.unwrap_or_default();
        if file.read(DISCLOSURES_NEW)?.is_some() {
            let removed = file.0.remove(DISCLOSURES_NEW);
            removed.map_err(|source| failed("removing", DISCLOSURES, source))?;
        }
        // A killed process may not have synced all that can be read, including the days under which
        // disclosures are about to be sent.
        let synced = if bytes.is_some() { file.0.sync(DISCLOSURES) } else { Ok(()) };
        let synced = synced.and_then(|()| file.0.sync_directory());
        synced.map_err(|source| failed("writing", DISCLOSURES, source))?;
        Ok((file, kept))
    }

    /// The directory.
    pub(crate) fn files(&mut self) -> &mut dyn Files {
        &mut *self.0
    }

    fn read(&self, name: &'static str) -> Result<Option<Vec<u8>>, StorageError> {
        self.0.read(name).map_err(|source| failed("reading", name, source))
    }

    /// Replaces the file. After an error it has the old or the new content.
    pub(crate) fn write(&mut self, kept: &KeptByName) -> Result<(), StorageError> {
        if kept.is_empty() {
            return Self::erase(&mut *self.0);
        }
        let bytes = Self::bytes(kept)?;
        replace(&mut *self.0, DISCLOSURES_NEW, DISCLOSURES, &bytes)
            .map_err(|source| failed("writing", DISCLOSURES, source))
    }

    /// The encoding of these disclosures.
    pub(crate) fn bytes(kept: &KeptByName) -> Result<Vec<u8>, StoredError> {
        stored::to_bytes(&StoredDisclosures(kept.iter().map(StoredDisclosure::new).collect()))
    }

    /// Removes all waiting disclosures, whatever the files contain.
    pub(crate) fn erase(files: &mut dyn Files) -> Result<(), StorageError> {
        let removed = files.remove(DISCLOSURES_NEW).and_then(|()| files.remove(DISCLOSURES));
        removed
            .and_then(|()| files.sync_directory())
            .map_err(|source| failed("removing", DISCLOSURES, source))
    }
}

fn read(bytes: &[u8]) -> Result<KeptByName, StorageError> {
    let damaged = || StorageError::DisclosuresDamaged { file: DISCLOSURES };
    let stored: StoredDisclosures = stored::from_bytes(bytes).map_err(|error| match error {
        StoredError::Newer { found, known } | StoredError::Outdated { found, known } => {
            StorageError::Version { file: DISCLOSURES, found, known }
        }
        _ => damaged(),
    })?;
    let count = stored.0.len();
    let kept = stored.0.into_iter().map(StoredDisclosure::into_kept);
    let kept: KeptByName = kept.collect::<Option<_>>().ok_or_else(damaged)?;
    if kept.len() == count { Ok(kept) } else { Err(damaged()) }
}

/// Raw rewards. Neither printed nor compared.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredDisclosures(pub(crate) Vec<StoredDisclosure>);

impl Stored for StoredDisclosures {
    const MAGIC: [u8; 4] = *b"BDdi";
    const VERSION: u16 = 1;
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredDisclosure {
    name: [u8; 16],
    experiment_id: String,
    played: StoredPlayed,
    reward: f64,
    /// The server's day, if an attempt was made.
    day: Option<u32>,
    /// The first day on which the disclosure waited, by a server's clock; 0 while none has sent
    /// one.
    kept_on: u32,
}

#[derive(Serialize, Deserialize)]
enum StoredPlayed {
    Arm(u32),
    Action(Vec<f64>),
}

impl StoredDisclosure {
    pub(crate) fn new((name, kept): (&[u8; 16], &Kept)) -> Self {
        let disclosure = &kept.disclosure;
        Self {
            name: *name,
            experiment_id: disclosure.experiment_id().to_string(),
            played: match disclosure.played() {
                Played::Arm(arm) => StoredPlayed::Arm(*arm),
                Played::Action(action) => StoredPlayed::Action(action.coordinates.clone()),
            },
            reward: disclosure.expose(),
            day: disclosure.day().map(Day::get),
            kept_on: kept.kept_on.get(),
        }
    }

    pub(crate) fn into_kept(self) -> Option<([u8; 16], Kept)> {
        let experiment_id = ExperimentId::new(self.experiment_id).ok()?;
        let played = match self.played {
            StoredPlayed::Arm(arm) => Played::Arm(arm),
            StoredPlayed::Action(coordinates) => Played::Action(Vector { coordinates }),
        };
        let day = self.day.map(Day::new);
        let disclosure = Disclosure::restored(experiment_id, self.name, played, self.reward, day)?;
        Some((self.name, Kept { disclosure, kept_on: Day::new(self.kept_on) }))
    }
}
