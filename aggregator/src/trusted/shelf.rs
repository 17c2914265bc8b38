//! A place for trusted experiments, empty in most servers.

use std::path::PathBuf;

use bandana_shared::identity::ExperimentId;

use super::keeper::{Keeper, KeeperError, is_kept_in};

/// The trusted experiments of a data directory. Nothing is written there before the first one.
#[derive(Debug)]
pub struct Shelf {
    directory: PathBuf,
    keeper: Option<Keeper>,
}

impl Shelf {
    /// Opens what there is in a directory that this process has for itself.
    ///
    /// # Errors
    /// Those of [`Keeper::open`].
    pub fn open(directory: PathBuf) -> Result<Self, KeeperError> {
        let keeper = is_kept_in(&directory).then(|| Keeper::open(&directory)).transpose()?;
        Ok(Self { directory, keeper })
    }

    /// For work with an experiment that there should be.
    ///
    /// # Errors
    /// [`KeeperError::Unknown`] when there is none at all.
    pub fn keeper_of(&mut self, id: &ExperimentId) -> Result<&mut Keeper, KeeperError> {
        self.keeper.as_mut().ok_or_else(|| KeeperError::Unknown(id.clone()))
    }

    /// For a new experiment.
    ///
    /// # Errors
    /// Those of [`Keeper::open`].
    pub fn keeper(&mut self) -> Result<&mut Keeper, KeeperError> {
        if self.keeper.is_none() {
            self.keeper = Some(Keeper::open(&self.directory)?);
        }
        self.keeper.as_mut().ok_or(KeeperError::Unsure)
    }
}
