//! Experiments with a trusted curator, kept in one SQLite database.
//!
//! A disclosure, the state that it leads to, and the noise of the release after it are one
//! transaction. So:
//! - a disclosure counts once, however often it is sent, and is acknowledged after it is durable;
//! - the noise of a statistic is durable before the statistic can be due, from the beginning of its
//!   episode: whatever is restarted in between, the same rewards are released with the same
//!   noise, and no statistic is noised twice;
//! - what is recommended and shown is that of a durable state.
//!
//! One process has the database, by a lock on a file beside it, and a state is only replaced by the
//! one that was made from it.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use bandana_shared::identity::{ExperimentId, UploadId};
use bandana_shared::stored::{self, Stored, StoredError};
use rand_chacha::ChaCha20Rng;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::adac_gope::{AdacGope, GopeSettings};
use super::adac_oful::{AdacOful, OfulSettings};
use super::adac_ucb::{AdacUcb, ReleasedMean, UcbSettings};
use super::error::TrustedError;
use super::lattice::{Action, NoiseScale, RewardRange};
use crate::noise::{NoEntropy, secure_generator};

const DATABASE_FILE: &str = "trusted.sqlite3";

const LOCK_FILE: &str = "trusted.lock";

/// Marks the file as ours: "BNTC".
const APPLICATION_ID: i64 = 0x424e_5443;

const VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE experiment (
    id       TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL,
    state    BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE disclosure (
    experiment TEXT NOT NULL REFERENCES experiment (id),
    id         BLOB NOT NULL CHECK (length(id) = 16),
    PRIMARY KEY (experiment, id)
) STRICT, WITHOUT ROWID;
";

/// What an experiment is run by.
#[derive(Clone, Debug)]
pub enum Plan {
    /// AdaC-UCB; rewards in 0..=1.
    Ucb(UcbSettings),
    /// AdaC-GOPE.
    Gope(GopeSettings),
    /// AdaC-OFUL.
    Oful(OfulSettings),
}

/// What was played.
#[derive(Clone, Debug, PartialEq)]
pub enum Played {
    /// An arm, or an action by its number.
    Arm(usize),
    /// A vector, for AdaC-OFUL.
    Vector(Action),
}

/// What became of a disclosure. Both are a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disclosed {
    /// It counts.
    Counted,
    /// It counted before.
    Duplicate,
}

/// What may be shown: released statistics and counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Released {
    /// The statistic of each arm.
    Means(Vec<Option<ReleasedMean>>),
    /// The mean of each action by the last phase.
    Actions(Vec<Option<f64>>),
    /// The estimated parameter.
    Parameter(Vec<f64>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Algorithm {
    Ucb(AdacUcb),
    Gope(AdacGope),
    Oful(AdacOful),
}

/// An experiment as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    algorithm: Algorithm,
    /// The noise of the next release.
    noise: Vec<i64>,
}

impl Stored for Kept {
    const MAGIC: [u8; 4] = *b"BDtc";
    const VERSION: u16 = 1;
}

impl Algorithm {
    fn new(plan: Plan) -> Result<Self, TrustedError> {
        Ok(match plan {
            Plan::Ucb(settings) => Self::Ucb(AdacUcb::new(settings)?),
            Plan::Gope(settings) => Self::Gope(AdacGope::new(settings)?),
            Plan::Oful(settings) => Self::Oful(AdacOful::new(settings)?),
        })
    }

    fn noise(&self) -> Option<NoiseScale> {
        match self {
            Self::Ucb(ucb) => ucb.noise(),
            Self::Gope(gope) => gope.noise(),
            Self::Oful(oful) => oful.noise(),
        }
    }

    fn is_due(&self) -> bool {
        match self {
            Self::Ucb(ucb) => ucb.is_due(),
            Self::Gope(gope) => gope.is_due(),
            Self::Oful(oful) => oful.is_due(),
        }
    }

    fn release(&mut self, noise: &[i64]) -> Result<(), TrustedError> {
        match self {
            Self::Ucb(ucb) => ucb.release(noise),
            Self::Gope(gope) => gope.release(noise),
            Self::Oful(oful) => oful.release(noise),
        }
    }

    fn range(&self) -> RewardRange {
        match self {
            Self::Ucb(_) => RewardRange::Unit,
            Self::Gope(gope) => gope.range(),
            Self::Oful(oful) => oful.settings().range,
        }
    }

    fn observe(&mut self, played: &Played, reward: f64) -> Result<(), KeeperError> {
        let reward = self.range().reward(reward)?;
        match (self, played) {
            (Self::Ucb(ucb), Played::Arm(arm)) => ucb.observe(*arm, reward)?,
            (Self::Gope(gope), Played::Arm(arm)) => gope.observe(*arm, reward)?,
            (Self::Oful(oful), Played::Vector(action)) => oful.observe(action, reward)?,
            (Self::Oful(_), Played::Arm(_)) => return Err(KeeperError::Vector),
            (_, Played::Vector(_)) => return Err(KeeperError::Arm),
        }
        Ok(())
    }
}

impl Kept {
    /// Draws the noise of the next release in advance.
    fn reserve(&mut self, rng: &mut ChaCha20Rng) {
        self.noise = self.algorithm.noise().map_or(Vec::new(), |scale| scale.sample(rng));
    }

    fn take(&mut self, played: &Played, reward: f64) -> Result<bool, KeeperError> {
        // A buffer that was full when its episode began waits for the next disclosure, so
        // that its noise is durable as well before it is used.
        if self.algorithm.is_due() {
            self.algorithm.release(&self.noise)?;
            self.algorithm.observe(played, reward).or_else(|error| match error {
                // The next one is due at once; this reward would need two noises.
                KeeperError::Trusted(TrustedError::NoiseDue) => Err(KeeperError::Busy),
                other => Err(other),
            })?;
            return Ok(true);
        }
        self.algorithm.observe(played, reward)?;
        let is_due = self.algorithm.is_due();
        if is_due {
            self.algorithm.release(&self.noise)?;
        }
        Ok(is_due)
    }
}

/// The experiments of one directory.
#[derive(Debug)]
pub struct Keeper {
    connection: Connection,
    /// Held, not used: the lock ends with it.
    _lock: File,
    experiments: BTreeMap<ExperimentId, (i64, Kept)>,
    rng: ChaCha20Rng,
    /// Whether what is durable may differ from what is known.
    is_unsure: bool,
}
