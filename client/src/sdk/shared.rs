//! The state that handle and driver share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use bandana_shared::identity::ExperimentId;

use super::disk::Disk;
use super::notifier::Notifier;
use super::settings::{Acceptances, Consent, Settings};
use super::trouble::Troubles;
use super::work::Work;
use crate::budget::Budget;
use crate::core::Core;
use crate::noise::OsNoise;
use crate::process;
#[cfg(feature = "storage")]
use crate::storage::StorageError;
use crate::time::{Clock, Timestamp};

pub(crate) struct Shared {
    core: Mutex<Core<OsNoise>>,
    disk: Disk,
    /// The process that has the client.
    process: u32,
    /// A client that knows nothing, for a copy of the process in which the other one is locked.
    empty: OnceLock<Mutex<Core<OsNoise>>>,
    acceptances: Acceptances,
    pub(super) refusals: Option<ExperimentId>,
    pub(super) budget: Budget,
    clock: Arc<dyn Clock>,
    /// Tells a host that brings its own network.
    pub(super) work: Work,
    /// Woken when a write may be pending.
    pub(crate) network_changed: AtomicBool,
    pub(crate) writes: Notifier,
    /// Woken when a task may be due.
    pub(crate) network: Notifier,
    /// Used with `core`: notified when a fetch ends, or when no more answers will come.
    heard: Condvar,
    /// Reason why the last fetch failed.
    failure: Mutex<Option<String>>,
    troubles: Mutex<Troubles>,
    end: Mutex<End>,
    ended: Condvar,
    /// Whether the client has a thread of its own.
    #[cfg(feature = "grpc")]
    pub(super) has_thread: AtomicBool,
}

/// Progress of the shutdown.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// Time for the driver to end, counted from when it sees this.
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

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        let (core, disk) = Disk::open(&settings);
        let shared = Self {
            core: Mutex::new(core),
            disk,
            process: process::id(),
            empty: OnceLock::new(),
            acceptances: settings.acceptances,
            refusals: settings.refusals,
            budget: settings.budget,
            clock: settings.clock,
            work: Work::new(settings.on_work),
            network_changed: AtomicBool::new(false),
            writes: Notifier::default(),
            network: Notifier::default(),
            heard: Condvar::new(),
            failure: Mutex::default(),
            troubles: Mutex::default(),
            end: Mutex::default(),
            ended: Condvar::new(),
            #[cfg(feature = "grpc")]
            has_thread: AtomicBool::new(false),
        };
        shared.begin(settings.consent);
        shared
    }

    /// Enrolls in the experiments known by id, or stops everything without consent.
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
        if self.is_forked() {
            return self.orphan();
        }
        let mut core = lock(&self.core);
        core.set_boot_time(self.clock.boot_time());
        core
    }

    /// Whether the process is a copy of the one that has the client. Nothing of the client may be
    /// waited for then: the threads that held its locks are not there.
    pub(crate) fn is_forked(&self) -> bool {
        process::id() != self.process
    }

    /// The client of a copy of the process: it draws arms, if nobody held it at the fork, and never
    /// reports.
    fn orphan(&self) -> MutexGuard<'_, Core<OsNoise>> {
        let free = match self.core.try_lock() {
            Ok(core) => Some(core),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let empty = || Mutex::new(Core::new(self.budget));
        let mut core = free.unwrap_or_else(|| lock(self.empty.get_or_init(empty)));
        core.orphan();
        core
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Takes part in an experiment, if the app has set terms for it.
    pub(super) fn enroll(&self, experiment_id: &ExperimentId) -> bool {
        let Some(acceptance) = self.acceptances.of(experiment_id) else {
            return false;
        };
        let mut core = self.core();
        if !core.is_enrolled(experiment_id) {
            core.enroll(experiment_id.clone(), acceptance.clone());
            drop(core);
            self.wake_network();
        }
        true
    }

    /// Wakes whoever carries out tasks: the driver, or the host.
    pub(super) fn wake_network(&self) {
        self.network.wake();
        self.tell_host();
    }

    fn tell_host(&self) {
        if !self.is_forked() {
            self.work.arose();
        }
    }

    /// Wakes whoever makes the writes after an arm was drawn: the driver's writer, or the host, which
    /// is to know of the end of the window too.
    pub(super) fn wake_after_draw(&self) {
        self.writes.wake();
        self.tell_host();
    }

    /// Records the end of a fetch, with the reason if it failed.
    pub(crate) fn note_heard(&self, failure: Option<String>) {
        if self.is_forked() {
            return;
        }
        *lock(&self.failure) = failure;
        self.heard.notify_all();
    }

    pub(super) fn troubles(&self) -> MutexGuard<'_, Troubles> {
        lock(&self.troubles)
    }

    /// The last troubles since the start. A copy of the process has none.
    pub(super) fn last_troubles(&self) -> Troubles {
        if self.is_forked() { Troubles::default() } else { self.troubles().clone() }
    }

    /// Reason why the last fetch failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        if self.is_forked() {
            return Some("this process is a copy of the one that has the client".to_owned());
        }
        lock(&self.failure).clone()
    }

    /// Waits until `is_so` holds for the core, or the driver has ended.
    pub(super) fn wait_until(&self, patience: Duration, is_so: impl Fn(&Core<OsNoise>) -> bool) {
        // A page can't wait, and has no clock for it.
        if self.is_forked() || patience.is_zero() {
            return;
        }
        let waits = |core: &mut Core<OsNoise>| !is_so(core) && !lock(&self.end).reached;
        let waited = self.heard.wait_timeout_while(self.core(), patience, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Makes the pending writes. Returns whether there was one that may allow further uploads.
    /// Blocks on the disk.
    pub(crate) fn write_pending(&self) -> bool {
        self.disk.write(&self.core, &*self.clock, &|| self.network.wake())
    }

    /// Whether the host makes the writes.
    #[cfg(feature = "storage")]
    pub(super) fn is_stored_by_host(&self) -> bool {
        self.disk.is_of_host()
    }

    /// Records how a write of the host ended.
    #[cfg(feature = "storage")]
    pub(super) fn host_wrote(&self, is_durable: bool) {
        self.disk.host_wrote(is_durable);
    }

    /// The time of the next write, if one is pending.
    pub(crate) fn next_write(&self) -> Option<Timestamp> {
        let next_try = self.disk.next_try(self.now());
        self.core().next_write().into_iter().chain(next_try).min()
    }

    /// Whether a directory that could not be used is to be tried again now.
    #[cfg(feature = "grpc")]
    pub(crate) fn tries_storage(&self) -> bool {
        self.disk.next_try(self.now()).is_some_and(|time| time <= self.now())
    }

    /// Whether no write is pending or under way on which an upload can depend.
    #[cfg(feature = "grpc")]
    pub(crate) fn is_state_written(&self) -> bool {
        self.core().is_state_written()
    }

    /// Whether no write is pending or under way.
    pub(crate) fn is_written(&self) -> bool {
        self.core().is_written()
    }

    /// Makes the pending writes at once, even after a failure.
    ///
    /// # Errors
    /// When a write failed.
    #[cfg(feature = "storage")]
    pub(super) fn write_now(&self) -> Result<(), Arc<StorageError>> {
        self.disk.write_now(&self.core, &*self.clock, &|| self.network.wake())
    }

    /// Whether the storage can't be used at all, and the last error.
    #[cfg(feature = "storage")]
    pub(super) fn trouble(&self) -> (bool, Option<Arc<StorageError>>) {
        if self.is_forked() {
            return (false, None);
        }
        self.disk.trouble()
    }

    /// Asks the driver to end within `patience`.
    pub(super) fn end_within(&self, patience: Duration) {
        if self.is_forked() {
            return;
        }
        #[cfg(feature = "storage")]
        self.core().hurry();
        let mut end = lock(&self.end);
        end.patience = Some(end.patience.map_or(patience, |earlier| earlier.min(patience)));
        drop(end);
        self.wake_network();
        self.writes.wake();
    }

    /// Time for the driver to end, if it is to end.
    #[cfg(feature = "grpc")]
    pub(crate) fn end(&self) -> Option<Duration> {
        lock(&self.end).patience
    }

    /// Closes the storage, so that another handle can open it, and records that the driver, or the
    /// host's [`super::Tasks`], has ended.
    pub(crate) fn close(&self) {
        if self.is_forked() {
            return;
        }
        self.core().close();
        self.work.end();
        self.disk.close();
        lock(&self.end).reached = true;
        self.ended.notify_all();
        self.note_closed();
    }

    /// Ends the waits for answers that will not come any more.
    fn note_closed(&self) {
        // A waiter that has checked `reached`, and does not wait yet, holds the core.
        drop(self.core());
        self.heard.notify_all();
    }

    /// Waits until the driver has ended; returns whether it has.
    pub(super) fn wait_for_end(&self, patience: Duration) -> bool {
        if self.is_forked() {
            return false;
        }
        let end = lock(&self.end);
        let waited = self.ended.wait_timeout_while(end, patience, |end| !end.reached);
        waited.unwrap_or_else(PoisonError::into_inner).0.reached
    }
}
