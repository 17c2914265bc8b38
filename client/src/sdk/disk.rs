//! The storage of a handle.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::host_storage::{Kept, restore};
use super::settings::Settings;
use crate::assignment::random_epoch;
use crate::core::Core;
use crate::noise::OsNoise;
use crate::process;
use crate::storage::{Directory, OPTED_OUT, Storage, StorageError};
use crate::time::{Clock, Timestamp};

/// The place of the state.
#[derive(Debug)]
pub(super) enum Place {
    Memory,
    Directory(PathBuf),
    Host(Kept),
}

impl Place {
    /// Whether an opt-out is marked here, even if the other files can't be used.
    fn has_opt_out(&self) -> bool {
        match self {
            // What a host has kept of it is in its state.
            Self::Memory | Self::Host(_) => false,
            Self::Directory(path) => path.join(OPTED_OUT).exists(),
        }
    }
}

/// The storage of a handle, if any.
#[derive(Debug)]
pub(super) struct Disk {
    kind: Mutex<Kind>,
    storage: Mutex<Option<Storage>>,
    /// Reason why the storage can't be used, or the error of the last write.
    trouble: Mutex<Option<Arc<StorageError>>>,
    /// The process that opened the storage.
    process: u32,
}

#[derive(Debug)]
enum Kind {
    /// Everything is in memory.
    None,
    /// The directory can't be used.
    Unusable,
    /// The directory can't be used now; it is tried again.
    Waiting(Retry),
    Directory,
    /// The host makes the writes.
    Host,
}

/// A directory that is to be opened.
#[derive(Debug)]
struct Retry {
    path: PathBuf,
    keeps_rewards: bool,
    wait: Duration,
    at: Timestamp,
}

impl Retry {
    /// The time of the next attempt. One further ahead than any wait was set before the clock was set
    /// back, and has come.
    fn due(&self, now: Timestamp) -> Timestamp {
        if self.at <= now.after(RETRY_MAX) { self.at } else { now }
    }
}

/// First and longest time until a directory is tried again.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_mins(1);

/// Whether it may pass: another client ends, a disk gets room, a folder is mounted. Damage and other
/// versions stay.
fn may_pass(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::InUse { .. } | StorageError::Directory { .. } | StorageError::Io { .. }
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Opens the storage that the app asks for, with its client.
    pub(super) fn open(settings: &Settings) -> (Core<OsNoise>, Self) {
        let disk = |kind, storage, trouble: Option<StorageError>| Self {
            kind: Mutex::new(kind),
            storage: Mutex::new(storage),
            trouble: Mutex::new(trouble.map(Arc::new)),
            process: process::id(),
        };
        let (budget, keeps) = (settings.budget, settings.keeps_rewards);
        let path = match &settings.place {
            Place::Memory => {
                let mut core = Core::new(budget);
                core.begin_epoch(random_epoch());
                return (core, disk(Kind::None, None, None));
            }
            Place::Host(kept) => {
                return match restore(kept, keeps) {
                    Ok(restored) => {
                        let core = Core::restored_by_host(OsNoise, budget, restored, keeps);
                        (core, disk(Kind::Host, None, None))
                    }
                    Err(error) => {
                        let core = Core::without_reports(OsNoise, budget);
                        (core, disk(Kind::Unusable, None, Some(error)))
                    }
                };
            }
            Place::Directory(path) => path,
        };
        let opened =
            Directory::lock(path).and_then(|files| Storage::open(Box::new(files), false, keeps));
        match opened {
            Ok((storage, restored)) => {
                let core = Core::restored(OsNoise, budget, restored, keeps);
                (core, disk(Kind::Directory, Some(storage), None))
            }
            Err(error) => {
                let mut core = Core::without_reports(OsNoise, budget);
                if settings.place.has_opt_out() {
                    core.opt_out();
                }
                let kind = if may_pass(&error) {
                    Kind::Waiting(Retry {
                        path: path.clone(),
                        keeps_rewards: keeps,
                        wait: RETRY_FIRST,
                        at: settings.clock.now().after(RETRY_FIRST),
                    })
                } else {
                    Kind::Unusable
                };
                (core, disk(kind, None, Some(error)))
            }
        }
    }

    /// Makes the pending writes. Returns whether there was one that may allow further uploads. After
    /// each of them, and before anything about rewards is written, `allow` is called.
    pub(super) fn write(
        &self,
        core: &Mutex<Core<OsNoise>>,
        clock: &dyn Clock,
        allow: &dyn Fn(),
    ) -> bool {
        // A forked process has a copy of everything; only the process that opened the storage may
        // use it.
        if process::id() != self.process {
            return false;
        }
        let mut storage = lock(&self.storage);
        if storage.is_none() {
            *storage = self.open_again(core, clock);
        }
        let Some(storage) = &mut *storage else {
            return false;
        };
        let mut written = false;
        loop {
            // The app's clock may panic, but not while a write is under way.
            let now = clock.now();
            let Some(write) = lock(core).take_write(now) else {
                break;
            };
            let result = storage.commit(&write);
            lock(core).on_written(result.is_ok(), now);
            written = true;
            *lock(&self.trouble) = result.err().map(Arc::new);
            allow();
        }
        let now = clock.now();
        let rewards = lock(core).take_rewards(now);
        if let Some(rewards) = rewards {
            let kept = storage.keep_rewards(&rewards).is_ok();
            lock(core).on_rewards_written(kept, now);
        }
        written
    }

    /// The storage, if it could not be used and can be now.
    fn open_again(&self, core: &Mutex<Core<OsNoise>>, clock: &dyn Clock) -> Option<Storage> {
        let mut kind = lock(&self.kind);
        let Kind::Waiting(retry) = &mut *kind else { return None };
        let now = clock.now();
        if now < retry.due(now) {
            return None;
        }
        let keeps_rewards = retry.keeps_rewards;
        let files = Directory::lock(&retry.path);
        match files.and_then(|files| Storage::open(Box::new(files), false, keeps_rewards)) {
            Ok((storage, restored)) => {
                *kind = Kind::Directory;
                lock(core).begin_storing(restored, keeps_rewards);
                *lock(&self.trouble) = None;
                Some(storage)
            }
            Err(error) => {
                if may_pass(&error) {
                    retry.wait = (retry.wait * 2).min(RETRY_MAX);
                    retry.at = now.after(retry.wait);
                } else {
                    *kind = Kind::Unusable;
                }
                *lock(&self.trouble) = Some(Arc::new(error));
                None
            }
        }
    }

    /// The time at which a directory that can't be used is tried again.
    pub(super) fn next_try(&self, now: Timestamp) -> Option<Timestamp> {
        match &*lock(&self.kind) {
            Kind::Waiting(retry) => Some(retry.due(now)),
            _ => None,
        }
    }

    /// Makes the pending writes at once, even after a failure.
    ///
    /// # Errors
    /// When a write failed.
    pub(super) fn write_now(
        &self,
        core: &Mutex<Core<OsNoise>>,
        clock: &dyn Clock,
        allow: &dyn Fn(),
    ) -> Result<(), Arc<StorageError>> {
        if process::id() != self.process {
            return Err(Arc::new(StorageError::Forked));
        }
        if matches!(*lock(&self.kind), Kind::Directory) && lock(&self.storage).is_none() {
            return Err(Arc::new(StorageError::Closed));
        }
        lock(core).write_now();
        self.write(core, clock, allow);
        lock(&self.trouble).clone().map_or(Ok(()), Err)
    }

    /// Whether the host makes the writes.
    pub(super) fn is_of_host(&self) -> bool {
        matches!(*lock(&self.kind), Kind::Host)
    }

    /// Records how a write of the host ended.
    pub(super) fn host_wrote(&self, is_durable: bool) {
        let trouble = (!is_durable).then(|| Arc::new(StorageError::Host));
        *lock(&self.trouble) = trouble;
    }

    /// Whether the directory can't be used at all, and the last error.
    pub(super) fn trouble(&self) -> (bool, Option<Arc<StorageError>>) {
        let is_unusable = matches!(*lock(&self.kind), Kind::Unusable | Kind::Waiting(_));
        (is_unusable, lock(&self.trouble).clone())
    }

    /// Closes the directory, so that another handle can open it.
    pub(super) fn close(&self) {
        let mut kind = lock(&self.kind);
        if matches!(*kind, Kind::Waiting(_)) {
            *kind = Kind::Unusable;
        }
        drop(kind);
        drop(lock(&self.storage).take());
    }
}

#[cfg(all(test, feature = "storage"))]
mod tests {
    use bandana_shared::accounting::loss::PrivacyLoss;
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::policy::{Policy, Weights};
    use bandana_shared::rewards::Rewards;
    use bandana_shared::specification::{Arm, ReleaseTiming, Specification};

    use crate::acceptance::Acceptance;
    use crate::budget::Budget;
    use crate::core::{FetchTask, Fetched};
    use crate::sdk::{Bandana, Consent};

    type Failure = Box<dyn std::error::Error>;

    #[test]
    fn a_reward_that_is_kept_wakes_no_network() -> Result<(), Failure> {
        let directory = tempfile::tempdir()?;
        let nats = PrivacyLoss::new(100.0)?;
        let (bandana, mut tasks) = Bandana::builder()
            .host_transport()
            .directory(directory.path())
            .accept(
                Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
                    .least_release_delay(std::time::Duration::ZERO),
            )
            .budget(Budget::new(nats, 7, nats)?)
            .consent(Consent::Given)
            .build();
        let experiment = bandana.experiment("kept")?;
        let specification = Specification::first(
            experiment.id().clone(),
            Epsilon::new(1.0)?,
            Rewards::binary(),
            Mechanism::Linear,
            vec![Arm::new("only")?],
            ReleaseTiming { attribution_window_seconds: 600, release_delay_seconds_max: 0 },
        )?;
        let policy =
            Policy { version: 1, weights: Weights::uniform(&[true])?, time_to_live_seconds: 60 };
        let day = bandana.shared.now().day();
        let fetched =
            Fetched { specification, signatures: Vec::new(), policy, day, store: None, view: None };
        tasks.on_fetched(&FetchTask::new(experiment.id().clone()), fetched)?;
        let choice = experiment.choose();
        assert!(bandana.shared.write_pending(), "a choice can be sent for once it is written");
        choice.reward(1.0);
        assert!(!bandana.shared.is_written());
        #[cfg(feature = "grpc")]
        assert!(bandana.shared.is_state_written(), "its connection ends as without a reward");
        assert!(!bandana.shared.write_pending(), "the driver is told that nothing has changed");
        assert!(directory.path().join("rewards").exists() && bandana.shared.is_written());
        Ok(())
    }
}
