//! What handle and driver share.

#[cfg(feature = "storage")]
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandana_shared::identity::ExperimentId;

use super::builder::{Acceptances, Consent, Settings};
use super::wake::Wake;
use crate::core::Core;
use crate::ledger::Budget;
use crate::noise::OsNoise;
#[cfg(feature = "storage")]
use crate::storage::{Directory, OPTED_OUT, Storage, StorageError};
use crate::time::{Clock, Timestamp};

/// Where the state is kept.
#[derive(Debug)]
pub(super) enum Place {
    Memory,
    #[cfg(feature = "storage")]
    Directory(PathBuf),
}

#[cfg(feature = "storage")]
impl Place {
    /// Whether an opt-out is marked here, whatever became of the rest.
    fn has_opt_out(&self) -> bool {
        match self {
            Self::Memory => false,
            Self::Directory(path) => path.join(OPTED_OUT).exists(),
        }
    }
}

pub(crate) struct Shared {
    core: Mutex<Core<OsNoise>>,
    #[cfg(feature = "storage")]
    storage: Mutex<Option<Storage>>,
    /// Why the storage can't be used, or what went wrong with it last.
    #[cfg(feature = "storage")]
    trouble: Mutex<Option<Arc<StorageError>>>,
    #[cfg(feature = "storage")]
    unusable: bool,
    #[cfg(feature = "storage")]
    in_memory: bool,
    #[cfg(feature = "storage")]
    process: u32,
    acceptances: Acceptances,
    pub(super) budget: Budget,
    clock: Arc<dyn Clock>,
    /// There may be something to be written.
    pub(crate) writes: Wake,
    /// There may be something to be asked or sent.
    pub(crate) network: Wake,
    end: Mutex<End>,
    ended: Condvar,
}

/// Where the end stands.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// How long the driver may go on once it has seen this.
    patience: Option<Duration>,
    reached: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(feature = "storage")]
fn open(
    place: &Place,
    settings: &Settings,
) -> Result<(Core<OsNoise>, Option<Storage>), StorageError> {
    match place {
        Place::Memory => Ok((Core::new(settings.budget), None)),
        Place::Directory(path) => {
            let files = Box::new(Directory::lock(path)?);
            let keeps = settings.keeps_rewards;
            let (storage, restored) = Storage::open(files, false, keeps)?;
            let core = Core::restored(OsNoise, settings.budget, restored, keeps);
            Ok((core, Some(storage)))
        }
    }
}

impl Shared {
    #[cfg(feature = "storage")]
    pub(super) fn new(settings: Settings) -> Self {
        let (core, storage, trouble) = match open(&settings.place, &settings) {
            Ok((core, storage)) => (core, storage, None),
            Err(error) => {
                let mut core = Core::without_reports(OsNoise, settings.budget);
                if settings.place.has_opt_out() {
                    core.opt_out();
                }
                (core, None, Some(Arc::new(error)))
            }
        };
        let shared = Self {
            core: Mutex::new(core),
            storage: Mutex::new(storage),
            unusable: trouble.is_some(),
            in_memory: matches!(settings.place, Place::Memory),
            process: std::process::id(),
            trouble: Mutex::new(trouble),
            acceptances: settings.acceptances,
            budget: settings.budget,
            clock: settings.clock,
            writes: Wake::default(),
            network: Wake::default(),
            end: Mutex::default(),
            ended: Condvar::new(),
        };
        shared.begin(settings.consent);
        shared
    }

    #[cfg(not(feature = "storage"))]
    pub(super) fn new(settings: Settings) -> Self {
        let Settings { place: Place::Memory, .. } = settings;
        let shared = Self {
            core: Mutex::new(Core::new(settings.budget)),
            acceptances: settings.acceptances,
            budget: settings.budget,
            clock: settings.clock,
            writes: Wake::default(),
            network: Wake::default(),
            end: Mutex::default(),
            ended: Condvar::new(),
        };
        shared.begin(settings.consent);
        shared
    }

    /// Enrolls in what is known by name, or stops everything without consent.
    fn begin(&self, consent: Consent) {
        let mut core = self.core();
        let held = core.held_experiments();
        for experiment_id in held {
            if let Some(acceptance) = self.acceptances.of(&experiment_id) {
                core.enroll(experiment_id, acceptance.clone());
            }
        }
        for (experiment_id, acceptance) in self.acceptances.listed() {
            core.enroll(experiment_id.clone(), acceptance.clone());
        }
        if consent == Consent::Withheld {
            core.withhold();
        }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core<OsNoise>> {
        lock(&self.core)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Takes part in an experiment, if the app agrees to it.
    pub(super) fn enroll(&self, experiment_id: &ExperimentId) -> bool {
        let Some(acceptance) = self.acceptances.of(experiment_id) else {
            return false;
        };
        let mut core = self.core();
        if !core.is_enrolled(experiment_id) {
            core.enroll(experiment_id.clone(), acceptance.clone());
            drop(core);
            self.network.wake();
        }
        true
    }

    /// Writes what is to be written, and says whether anything was that more can be sent
    /// for. Blocks on the disk.
    #[cfg(feature = "storage")]
    pub(crate) fn write_pending(&self) -> bool {
        // A process that was forked off has a copy of everything; only one may go on.
        if std::process::id() != self.process {
            return false;
        }
        let mut storage = lock(&self.storage);
        let Some(storage) = &mut *storage else {
            return false;
        };
        let mut written = false;
        loop {
            let Some(write) = self.core().take_write(self.now()) else {
                break;
            };
            let result = storage.commit(&write);
            self.core().on_written(result.is_ok(), self.now());
            written = true;
            *lock(&self.trouble) = result.err().map(Arc::new);
        }
        let rewards = self.core().take_rewards(self.now());
        if let Some(rewards) = rewards {
            let kept = storage.keep_rewards(&rewards).is_ok();
            self.core().on_rewards_written(kept, self.now());
        }
        // Nothing that can be sent depends on the sums of rewards.
        written
    }

    #[cfg(not(feature = "storage"))]
    #[expect(clippy::unused_self, reason = "there is nothing to write without a storage")]
    pub(crate) fn write_pending(&self) -> bool {
        false
    }

    /// When something is to be written, if it is.
    #[cfg(feature = "storage")]
    pub(crate) fn next_write(&self) -> Option<Timestamp> {
        self.core().next_write()
    }

    #[cfg(not(feature = "storage"))]
    #[expect(clippy::unused_self, reason = "there is nothing to write without a storage")]
    pub(crate) fn next_write(&self) -> Option<Timestamp> {
        None
    }

    /// Whether nothing is to be written, nor under way.
    #[cfg(feature = "storage")]
    pub(crate) fn is_written(&self) -> bool {
        self.core().is_written()
    }

    #[cfg(not(feature = "storage"))]
    #[expect(clippy::unused_self, reason = "there is nothing to write without a storage")]
    pub(crate) fn is_written(&self) -> bool {
        true
    }

    /// Writes everything that is to be written, after a failure too.
    ///
    /// # Errors
    /// When not all of it could be written.
    #[cfg(feature = "storage")]
    pub(super) fn write_now(&self) -> Result<(), Arc<StorageError>> {
        if self.in_memory {
            return Ok(());
        }
        self.core().write_now();
        self.write_pending();
        if lock(&self.storage).is_none() && !self.unusable {
            return Err(Arc::new(StorageError::Closed));
        }
        self.trouble().1.map_or(Ok(()), Err)
    }

    /// Whether the storage can't be used at all, and what went wrong with it last.
    #[cfg(feature = "storage")]
    pub(super) fn trouble(&self) -> (bool, Option<Arc<StorageError>>) {
        (self.unusable, lock(&self.trouble).clone())
    }

    /// Asks the driver to end within `patience`.
    pub(super) fn end_within(&self, patience: Duration) {
        let mut end = lock(&self.end);
        end.patience = Some(end.patience.map_or(patience, |earlier| earlier.min(patience)));
        drop(end);
        self.network.wake();
        self.writes.wake();
    }

    /// How long the driver may go on, if it is to end.
    #[cfg(feature = "grpc")]
    pub(crate) fn end(&self) -> Option<Duration> {
        lock(&self.end).patience
    }

    /// Closes the storage, so that it can be opened again, and notes that whoever did the
    /// work has ended.
    pub(crate) fn close(&self) {
        self.core().close();
        #[cfg(feature = "storage")]
        drop(lock(&self.storage).take());
        lock(&self.end).reached = true;
        self.ended.notify_all();
    }

    /// Waits until the driver has ended; says whether it has.
    pub(super) fn wait_for_end(&self, patience: Duration) -> bool {
        let end = lock(&self.end);
        let waited = self.ended.wait_timeout_while(end, patience, |end| !end.reached);
        waited.unwrap_or_else(PoisonError::into_inner).0.reached
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
    use crate::core::Fetched;
    use crate::handle::{Bandana, Consent};
    use crate::ledger::Budget;

    type Failure = Box<dyn std::error::Error>;

    #[test]
    fn a_reward_that_is_kept_wakes_no_network() -> Result<(), Failure> {
        let directory = tempfile::tempdir()?;
        let nats = PrivacyLoss::new(100.0)?;
        let (bandana, mut tasks) = Bandana::builder()
            .host_transport()
            .directory(directory.path())
            .accept(Acceptance::new(Epsilon::new(1.0)?, Rewards::binary()))
            .budget(Budget::new(nats, 7, nats)?)
            .consent(Consent::Given)
            .keep_pending_rewards()
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
        let (specification, policy) = (Some(specification), Some(policy));
        let fetched = Fetched { specification, signatures: Vec::new(), policy, day };
        tasks.on_fetched(experiment.id(), fetched)?;
        let choice = experiment.choose();
        assert!(bandana.shared.write_pending(), "a choice can be sent for once it is written");
        choice.reward(1.0);
        assert!(!bandana.shared.is_written());
        assert!(!bandana.shared.write_pending(), "the driver is told that nothing has changed");
        assert!(directory.path().join("rewards").exists() && bandana.shared.is_written());
        Ok(())
    }
}
