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
            Self::Gope(gope) => gope.settings().range,
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
    /// Draws the noise of the next release in advance, with a key of its own from the operating
    /// system, so that a restored snapshot of the machine can't repeat it.
    fn reserve(&mut self) -> Result<(), NoEntropy> {
        let mut rng = secure_generator()?;
        self.noise = self.algorithm.noise().map_or(Vec::new(), |scale| scale.sample(&mut rng));
        Ok(())
    }

    /// Releases the statistic that is due, with the noise that lies ready, and draws the next.
    fn release(&mut self) -> Result<(), KeeperError> {
        self.algorithm.release(&self.noise)?;
        Ok(self.reserve()?)
    }
}

/// Whether a directory has trusted experiments.
pub(super) fn is_kept_in(directory: &Path) -> bool {
    directory.join(DATABASE_FILE).exists()
}

/// The experiments of one directory.
#[derive(Debug)]
pub struct Keeper {
    connection: Connection,
    /// Held, not used: the lock ends with it.
    _lock: File,
    experiments: BTreeMap<ExperimentId, (i64, Kept)>,
    /// Whether what is durable may differ from what is known.
    is_unsure: bool,
}

impl Keeper {
    /// Opens the experiments in `directory`, which exists, and finishes what a crash left open.
    ///
    /// # Errors
    /// [`KeeperError`] when another process has them, the database is damaged, foreign or
    /// newer, or there is no randomness.
    pub fn open(directory: &Path) -> Result<Self, KeeperError> {
        let unusable = |source| KeeperError::Directory { path: directory.to_owned(), source };
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(directory.join(LOCK_FILE))
            .map_err(unusable)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => KeeperError::Locked { path: directory.to_owned() },
            TryLockError::Error(source) => unusable(source),
        })?;
        let connection = Connection::open(directory.join(DATABASE_FILE))?;
        prepare(&connection)?;
        // The name of a new file is durable with its directory.
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(unusable)?;
        let experiments = BTreeMap::new();
        let mut keeper = Self { connection, _lock: lock, experiments, is_unsure: false };
        keeper.load()?;
        let ids: Vec<ExperimentId> = keeper.experiments.keys().cloned().collect();
        ids.iter().try_for_each(|id| keeper.settle(id))?;
        Ok(keeper)
    }

    fn load(&mut self) -> Result<(), KeeperError> {
        let mut statement =
            self.connection.prepare("SELECT id, sequence, state FROM experiment")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, sequence, bytes): (String, i64, Vec<u8>) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            let kept: Kept = stored::from_bytes(&bytes)?;
            let id = ExperimentId::new(id).map_err(|_| KeeperError::Foreign)?;
            self.experiments.insert(id, (sequence, kept));
        }
        Ok(())
    }

    /// Adds an experiment, with the noise of its first release.
    ///
    /// # Errors
    /// [`KeeperError::Exists`], what the algorithm says of its settings, and what goes wrong
    /// with the database.
    pub fn create(&mut self, id: &ExperimentId, plan: Plan) -> Result<(), KeeperError> {
        self.check_sure()?;
        if self.experiments.contains_key(id) {
            return Err(KeeperError::Exists(id.clone()));
        }
        let mut kept = Kept { algorithm: Algorithm::new(plan)?, noise: Vec::new() };
        kept.reserve()?;
        let bytes = stored::to_bytes(&kept)?;
        self.is_unsure = true;
        let insert = "INSERT INTO experiment (id, sequence, state) VALUES (?1, 0, ?2)";
        self.connection.execute(insert, params![id.as_str(), bytes])?;
        self.is_unsure = false;
        self.experiments.insert(id.clone(), (0, kept));
        Ok(())
    }

    /// What an experiment is run by.
    ///
    /// # Errors
    /// When there is no such experiment.
    pub fn plan(&self, id: &ExperimentId) -> Result<Plan, KeeperError> {
        Ok(match &self.kept(id)?.algorithm {
            Algorithm::Ucb(ucb) => Plan::Ucb(ucb.settings()),
            Algorithm::Gope(gope) => Plan::Gope(gope.settings().clone()),
            Algorithm::Oful(oful) => Plan::Oful(oful.settings()),
        })
    }

    /// The arm or action to play; for AdaC-OFUL the place of the best of these vectors.
    ///
    /// # Errors
    /// When there is no such experiment, or vectors are missing or not wanted.
    pub fn recommend(&self, id: &ExperimentId, vectors: &[Action]) -> Result<usize, KeeperError> {
        self.check_sure()?;
        match (&self.kept(id)?.algorithm, vectors) {
            (Algorithm::Ucb(ucb), []) => Ok(ucb.recommended()),
            (Algorithm::Gope(gope), []) => Ok(gope.recommended()),
            (Algorithm::Oful(oful), vectors) => Ok(oful.choose(vectors)?),
            _ => Err(KeeperError::Arm),
        }
    }

    /// Takes a disclosed reward, once for each disclosure id. It is durable when this returns.
    ///
    /// Any arm may have been played, whichever was recommended.
    ///
    /// # Errors
    /// When there is no such experiment or arm, or the reward is out of range: nothing
    /// changed then. [`KeeperError::Database`] and [`KeeperError::Unsure`]: the same disclosure
    /// again is safe, after the directory was opened again.
    pub fn disclose(
        &mut self,
        id: &ExperimentId,
        disclosure: UploadId,
        played: &Played,
        reward: f64,
    ) -> Result<Disclosed, KeeperError> {
        self.check_sure()?;
        let (sequence, kept) = self.entry(id)?;
        if self.is_known(id, disclosure)? {
            return Ok(Disclosed::Duplicate);
        }
        let mut next = kept.clone();
        next.algorithm.observe(played, reward)?;
        self.replace(id, sequence, next, Some(disclosure))?;
        self.settle(id)?;
        Ok(Disclosed::Counted)
    }

    /// Releases what is due. Each release is a transaction of its own, so that it uses noise
    /// that was durable before.
    fn settle(&mut self, id: &ExperimentId) -> Result<(), KeeperError> {
        loop {
            let (sequence, kept) = self.entry(id)?;
            if !kept.algorithm.is_due() {
                return Ok(());
            }
            let mut next = kept.clone();
            next.release()?;
            self.replace(id, sequence, next, None)?;
        }
    }

    /// What may be shown of an experiment.
    ///
    /// # Errors
    /// When there is no such experiment.
    pub fn released(&self, id: &ExperimentId) -> Result<Released, KeeperError> {
        Ok(match &self.kept(id)?.algorithm {
            Algorithm::Ucb(ucb) => Released::Means(ucb.released()),
            Algorithm::Gope(gope) => Released::Actions(gope.released().to_vec()),
            Algorithm::Oful(oful) => Released::Parameter(oful.estimate().to_vec()),
        })
    }

    /// Rewards that count so far.
    ///
    /// # Errors
    /// When there is no such experiment.
    pub fn rewards(&self, id: &ExperimentId) -> Result<u64, KeeperError> {
        Ok(match &self.kept(id)?.algorithm {
            Algorithm::Ucb(ucb) => ucb.rewards(),
            Algorithm::Gope(gope) => gope.rewards(),
            Algorithm::Oful(oful) => oful.rewards(),
        })
    }

    fn entry(&self, id: &ExperimentId) -> Result<(i64, &Kept), KeeperError> {
        let unknown = || KeeperError::Unknown(id.clone());
        self.experiments.get(id).map(|(sequence, kept)| (*sequence, kept)).ok_or_else(unknown)
    }

    fn kept(&self, id: &ExperimentId) -> Result<&Kept, KeeperError> {
        self.entry(id).map(|(_, kept)| kept)
    }

    fn check_sure(&self) -> Result<(), KeeperError> {
        if self.is_unsure { Err(KeeperError::Unsure) } else { Ok(()) }
    }

    fn is_known(&self, id: &ExperimentId, disclosure: UploadId) -> Result<bool, KeeperError> {
        let find = "SELECT 1 FROM disclosure WHERE experiment = ?1 AND id = ?2";
        let mut statement = self.connection.prepare_cached(find)?;
        let found = statement.query_row(params![id.as_str(), disclosure.as_bytes()], |_| Ok(()));
        Ok(found.optional()?.is_some())
    }

    /// Puts a state in the place of the one it was made from, and with it the disclosure
    /// that led there.
    fn replace(
        &mut self,
        id: &ExperimentId,
        sequence: i64,
        next: Kept,
        disclosure: Option<UploadId>,
    ) -> Result<(), KeeperError> {
        let bytes = stored::to_bytes(&next)?;
        self.is_unsure = true;
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        if let Some(disclosure) = disclosure {
            let insert = "INSERT INTO disclosure (experiment, id) VALUES (?1, ?2)";
            let values = params![id.as_str(), disclosure.as_bytes()];
            transaction.prepare_cached(insert)?.execute(values)?;
        }
        let update = "UPDATE experiment SET state = ?3, sequence = ?2 + 1 \
                      WHERE id = ?1 AND sequence = ?2";
        let values = params![id.as_str(), sequence, bytes];
        if transaction.prepare_cached(update)?.execute(values)? != 1 {
            return Err(KeeperError::Unsure);
        }
        transaction.commit()?;
        self.is_unsure = false;
        self.experiments.insert(id.clone(), (sequence + 1, next));
        Ok(())
    }
}

fn prepare(connection: &Connection) -> Result<(), KeeperError> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (pragma("application_id")?, pragma("user_version")?) {
        (APPLICATION_ID, VERSION) => Ok(()),
        (0, 0) => {
            let transaction = connection.unchecked_transaction()?;
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            Ok(transaction.commit()?)
        }
        (APPLICATION_ID, found) => Err(KeeperError::Newer { found, known: VERSION }),
        _ => Err(KeeperError::Foreign),
    }
}

/// What goes wrong with a trusted experiment.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// What the algorithm refused.
    #[error(transparent)]
    Trusted(#[from] TrustedError),
    /// The directory can't be used.
    #[error("the directory {} can't be used", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the experiments.
    #[error("the trusted experiments in {} are in use by another process; stop that one", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The database failed; what is durable is not known.
    #[error("the database of trusted experiments failed; send again what was not acknowledged")]
    Database(#[from] rusqlite::Error),
    /// The database failed before.
    #[error("the database of trusted experiments failed before; start the server again")]
    Unsure,
    /// The file is not ours.
    #[error("the file trusted.sqlite3 was not written by this program; use another directory")]
    Foreign,
    /// The file was written by a newer program.
    #[error("the trusted experiments have schema version {found}, this program knows {known}")]
    Newer {
        /// Version found.
        found: i64,
        /// Version known.
        known: i64,
    },
    /// A state is damaged.
    #[error("the state of a trusted experiment can't be read")]
    Damaged(#[from] StoredError),
    /// There is no randomness.
    #[error("the operating system gives no randomness, so nothing can be released")]
    NoEntropy(#[from] NoEntropy),
    /// The name is taken.
    #[error("there is a trusted experiment {0} already; choose another name")]
    Exists(ExperimentId),
    /// There is none of this name.
    #[error("there is no trusted experiment {0}; create it first")]
    Unknown(ExperimentId),
    /// The experiment has arms.
    #[error("the experiment has numbered arms; expected a number, found a vector")]
    Arm,
    /// The experiment has vectors.
    #[error("the experiment has vectors; expected the vector that was played, found a number")]
    Vector,
}
