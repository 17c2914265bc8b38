//! The SDK: the type that an app holds, and its parts.

mod builder;
#[cfg(feature = "messages")]
mod calls;
#[cfg_attr(not(feature = "storage"), path = "no_disk.rs")]
mod disk;
#[cfg(feature = "grpc")]
mod driver;
mod experiment;
#[cfg(feature = "storage")]
mod host_storage;
mod notifier;
mod refusals;
mod settings;
mod shared;
mod tasks;
mod trouble;
mod work;
#[cfg(feature = "grpc")]
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bandana_shared::identity::ExperimentId;
use thiserror::Error;

use crate::assignment::AssignmentId;
use crate::budget::{Budget, Spent};
use crate::core::Statistics;
#[cfg(feature = "storage")]
use crate::storage::StorageError;
use crate::time::Timestamp;
pub use builder::{
    Builder, HostTransport, Ready, WantsAcceptance, WantsBudget, WantsConsent, WantsStorage,
    WantsTransport,
};
#[cfg(feature = "messages")]
pub use calls::{Answer, Call, CallId, NextCall};
#[cfg(feature = "grpc")]
pub use driver::{Driver, StartError};
pub use experiment::{Assignment, Choice, DefaultReason, Experiment, NotReady};
#[cfg(feature = "storage")]
pub use host_storage::{HostWrite, Kept, Slot};
pub use settings::Consent;
pub(crate) use shared::Shared;
pub use tasks::Tasks;
pub use trouble::Trouble;
use trouble::Troubles;

/// The client of an app. It is cheap to clone, and safe to use from every thread. Only
/// [`Self::opt_out`], [`Self::opt_in`] and [`Self::shutdown`] wait for a network or a disk. Calls
/// of product code never return an error of the privacy machinery. Such errors are counted: see
/// [`Self::status`].
///
/// The driver makes the pending writes and ends when the last clone is dropped, and with it the
/// last [`Experiment`] and the last [`Assignment`]. [`Self::shutdown`] waits for that end.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// # let (bandana, mut tasks, clock) = started()?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// println!("show the {} button", choice.label_or("blue"));
/// choice.reward(1.0);
/// // After the attribution window and the random delay, one bit leaves.
/// clock.forward(Duration::from_secs(600 + 3600));
/// assert_eq!(serve(&mut tasks, &clock)?, 1);
/// assert_eq!(bandana.status().statistics.uploads_accepted, 1);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bandana {
    pub(crate) shared: Arc<Shared>,
    _ends_driver: Arc<EndsDriver>,
}

/// Ends the driver when the last handle is dropped.
#[derive(Debug)]
struct EndsDriver(Arc<Shared>);

/// The longest wait for the last write when the last handle is dropped.
#[cfg(feature = "grpc")]
const LAST_WRITE_MAX: Duration = Duration::from_secs(2);

impl Drop for EndsDriver {
    fn drop(&mut self) {
        self.0.end_within(Duration::ZERO);
        // The threads of a process end with `main`, also in the middle of a write. A host's runtime may
        // need this thread to come so far.
        #[cfg(feature = "grpc")]
        if self.0.has_thread.load(Ordering::SeqCst) && !driver::is_own_thread() {
            self.0.wait_for_end(LAST_WRITE_MAX);
        }
    }
}

impl Bandana {
    /// Begins to build a client. The next step sets the connection to the aggregator.
    ///
    /// ```
    /// use bandana_client::Bandana;
    /// // Building needs every required setting.
    /// let _next = Bandana::builder().host_transport().in_memory();
    /// ```
    pub fn builder() -> Builder<WantsTransport> {
        Builder { step: WantsTransport(()) }
    }

    fn new(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        Self { _ends_driver: Arc::new(EndsDriver(Arc::clone(&shared))), shared }
    }

    /// Returns an experiment by its id. If the policy is missing, it is fetched in the background.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let experiment = bandana.experiment("button-colour")?;
    /// assert_eq!(experiment.id().as_str(), "button-colour");
    /// assert!(bandana.experiment("no name of an experiment").is_err());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ExperimentError`] for an invalid id, and for an experiment that the app does not accept.
    pub fn experiment(&self, id: &str) -> Result<Experiment, ExperimentError> {
        let experiment_id = ExperimentId::new(id)?;
        if self.shared.enroll(&experiment_id) {
            Ok(Experiment::new(self.clone(), experiment_id))
        } else {
            Err(ExperimentError::NotAccepted(experiment_id))
        }
    }

    /// Returns an earlier assignment if it still takes rewards. It may be from before a restart. An
    /// assignment that never reports is not found.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// # let (bandana, _tasks, clock) = started()?;
    /// let choice = bandana.experiment("button-colour")?.choose();
    /// let id = choice.assignment().ok_or("no arm")?.id();
    /// assert_eq!(bandana.assignment(id).ok_or("it is over")?.label(), choice.label_or("blue"));
    /// clock.forward(Duration::from_secs(601));
    /// assert!(bandana.assignment(id).is_none());
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn assignment(&self, id: AssignmentId) -> Option<Assignment> {
        // A copy of the process never reports.
        if self.shared.is_forked() {
            return None;
        }
        let assigned = self.shared.core().assigned(id, self.shared.now())?;
        Some(Assignment::new(self.clone(), assigned))
    }

    /// Adds a reward to an earlier assignment, as [`Assignment::reward`] does. Returns whether it was
    /// taken: the assignment still takes rewards, and the experiment admits this one. If it was not,
    /// [`Statistics::rewards_refused`](crate::Statistics::rewards_refused) counts it.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// # let (bandana, _tasks, clock) = started()?;
    /// let choice = bandana.experiment("button-colour")?.choose();
    /// let id = choice.assignment().ok_or("no arm")?.id();
    /// assert!(bandana.reward(id, 1.0));
    /// clock.forward(Duration::from_secs(601));
    /// assert!(!bandana.reward(id, 1.0));
    /// assert_eq!(bandana.status().statistics.rewards_refused, 1);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn reward(&self, id: AssignmentId, reward: f64) -> bool {
        self.add(id, None, reward)
    }

    /// Adds a value of a metric to an earlier assignment, as [`Assignment::measure`] does. Returns
    /// whether it was taken, as [`Self::reward`] does.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let choice = bandana.experiment("button-colour")?.choose();
    /// let id = choice.assignment().ok_or("no arm")?.id();
    /// // The user has sent back what was bought.
    /// assert!(bandana.measure(id, "returned", 1.0));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn measure(&self, id: AssignmentId, metric: &str, value: f64) -> bool {
        self.add(id, Some(metric), value)
    }

    fn add(&self, id: AssignmentId, metric: Option<&str>, value: f64) -> bool {
        let Some(assignment) = self.assignment(id) else {
            self.shared.core().refuse_late_reward();
            return false;
        };
        assignment.add(metric, value)
    }

    /// Returns the state of the client: reporting, budget, counts and the last troubles.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let status = bandana.status();
    /// let left = status.budget.window().saturating_sub(status.spent.window);
    /// assert_eq!(left.to_loss().get(), 5.0);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn status(&self) -> Status {
        let now = self.shared.now();
        let Troubles { refusal, error, .. } = self.shared.last_troubles();
        let core = self.shared.core();
        let status = Status {
            reporting: if core.is_opted_out() {
                Reporting::OptedOut
            } else if self.shared.is_forked() {
                Reporting::Forked
            } else if core.is_closed() {
                Reporting::ShutDown
            } else if core.clock_agrees(now) {
                Reporting::On
            } else {
                Reporting::ClockDisagrees
            },
            next_attempt: core.waits_for_server(now),
            spent: core.spent(),
            budget: self.shared.budget,
            open_assignments: core.open_assignments(),
            waiting_reports: core.waiting_reports(),
            reports_without_relay: core.reports_without_relay(),
            last_refusal: refusal,
            last_error: error,
            statistics: core.statistics(),
        };
        drop(core);
        #[cfg(feature = "storage")]
        let status = match (self.shared.trouble(), status.reporting) {
            ((true, Some(error)), _) => {
                // The spent budget is unknown, so the whole budget counts as spent.
                let Status { budget, .. } = status;
                let spent = Spent {
                    window: budget.window(),
                    lifetime: budget.lifetime(),
                    central_window: budget.central_window(),
                    central_lifetime: budget.central_lifetime(),
                };
                Status { reporting: Reporting::StorageUnusable(error), spent, ..status }
            }
            ((false, Some(error)), Reporting::On) => {
                Status { reporting: Reporting::StorageFailing(error), ..status }
            }
            (_, reporting) => Status { reporting, ..status },
        };
        status
    }

    /// Opts the user out. It stops everything. Arms, rewards and unsent reports are deleted, and nothing is
    /// sent any more. What keeps the budget honest stays: the spent budget, the number of assignments,
    /// hashes of the names of experiments that were reported, numbers of shuffled reports, and the
    /// installation's secret, from which its positions in layers follow. The hashes serve
    /// [`crate::Acceptance::report_once`]. Blocks on the disk.
    ///
    /// The opt-out lasts until [`Self::opt_in`]. It survives restarts.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Bandana;
    /// # let app = tempfile::tempdir()?;
    /// # let restart = || start(Bandana::builder().host_transport().directory(app.path()));
    /// # let (bandana, tasks, _clock) = restart()?;
    /// bandana.experiment("button-colour")?.choose().reward(1.0);
    /// bandana.opt_out()?;
    /// # drop((bandana, tasks));
    /// # let (bandana, _tasks, _clock) = restart()?;
    /// // The app was started again.
    /// let status = bandana.status();
    /// assert_eq!((status.open_assignments, status.waiting_reports), (0, 0));
    /// assert_eq!(status.spent.lifetime.get(), 1_000_000_000);
    /// assert!(bandana.experiment("button-colour")?.choose().assignment().is_none());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Reports that were sent can't be taken back. The spent budget stays on record. So opting out
    /// and in again does not refill the budget.
    ///
    /// # Errors
    /// [`StorageError`] when the opt-out could not be made durable. It then holds for this run, and
    /// the app should build with [`Consent::Withheld`] from now on.
    #[cfg(feature = "storage")]
    pub fn opt_out(&self) -> Result<(), Arc<StorageError>> {
        self.shared.core().opt_out();
        // A call under way is given up.
        self.shared.wake_network();
        self.shared.note_heard(None);
        self.shared.write_now()
    }

    /// Opts in again. The spent budget still counts. Blocks on the disk.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Reporting;
    /// # let (bandana, mut tasks, clock) = started()?;
    /// bandana.opt_out()?;
    /// assert!(matches!(bandana.status().reporting, Reporting::OptedOut));
    /// bandana.opt_in()?;
    /// # serve(&mut tasks, &clock)?;
    /// // After the next answer of a server:
    /// assert!(bandana.experiment("button-colour")?.choose().assignment().is_some());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`StorageError`] when the opt-in could not be made durable. It then holds for this run only.
    #[cfg(feature = "storage")]
    pub fn opt_in(&self) -> Result<(), Arc<StorageError>> {
        self.shared.core().opt_in();
        self.shared.wake_network();
        self.shared.write_now()
    }

    /// Stops everything for the life of this process. With the feature `storage` the opt-out
    /// survives a restart.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "storage"))]
    pub fn opt_out(&self) -> Result<(), std::convert::Infallible> {
        self.shared.core().opt_out();
        // A call under way is given up.
        self.shared.wake_network();
        self.shared.note_heard(None);
        Ok(())
    }

    /// Opts in again.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "storage"))]
    pub fn opt_in(&self) -> Result<(), std::convert::Infallible> {
        self.shared.core().opt_in();
        self.shared.wake_network();
        Ok(())
    }

    /// Makes the driver read the clock again, and use a new connection. Call it when the host was
    /// asleep, its clock was set, or its network has changed, and when an app comes to the
    /// foreground. The driver sleeps until the next due time, and timers stand still while a device
    /// sleeps. A wait for a server that did not answer ends within a second. A call under way is
    /// made again over another connection, at most every ten seconds. Do not call it because the
    /// user reacted. With a host's transport it only ends that wait: then ask for the next task.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Bandana;
    ///
    /// let builder = Bandana::builder().endpoint("http://localhost:50051")?;
    /// # let builder = agree(builder.in_memory())?;
    /// let bandana = builder.start()?;
    /// // A laptop was opened again.
    /// bandana.wake();
    /// assert_eq!(bandana.status().waiting_reports, 0, "nothing was due");
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Due uploads leave now. If that is when the user reacted, the time reveals it.
    pub fn wake(&self) {
        // Without randomness the wait stays as it is.
        if self.shared.core().resume(self.shared.now()).unwrap_or(false) {
            self.shared.network_changed.store(true, Ordering::SeqCst);
        }
        self.shared.writes.wake();
        self.shared.wake_network();
    }

    /// Asks the driver to send due uploads and to end within `patience`. This call does not wait.
    /// With a host's transport there is no driver, and the call does nothing: drop the [`Tasks`]
    /// instead.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Bandana;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # let builder = agree(Bandana::builder().endpoint("http://localhost:50051")?.in_memory())?;
    /// let (bandana, driver) = builder.driver();
    /// bandana.begin_shutdown(Duration::from_secs(2));
    /// runtime.block_on(driver.run());
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn begin_shutdown(&self, patience: Duration) {
        self.shared.end_within(patience);
    }

    /// Sends due uploads, as far as the server accepts them, makes the pending writes, and ends the
    /// driver. Returns whether all that was done within `patience`. It blocks. So if the driver
    /// runs on the host's runtime, call [`Self::begin_shutdown`] and await the driver. If there is
    /// a directory, the next start sends the unsent reports. Arms that are drawn after this call
    /// never report. With a host's transport, the call sends and writes nothing, and waits until
    /// [`Tasks`] is dropped.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// # let (bandana, tasks, _clock) = started()?;
    /// assert!(!bandana.shutdown(Duration::ZERO), "the host still has its tasks");
    /// drop(tasks);
    /// assert!(bandana.shutdown(Duration::ZERO));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn shutdown(&self, patience: Duration) -> bool {
        self.begin_shutdown(patience);
        self.shared.wait_for_end(patience) && self.shared.is_written()
    }
}

/// The state of a client.
///
/// ```
#[doc = include_str!("../example.txt")]
/// # let (bandana, _tasks, _clock) = started()?;
/// bandana.experiment("button-colour")?.choose().reward(1.0);
/// let status = bandana.status();
/// assert_eq!((status.open_assignments, status.waiting_reports), (1, 0));
/// assert_eq!(status.spent.lifetime.to_loss().get(), 1.0);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Whether new assignments report.
    pub reporting: Reporting,
    /// The privacy loss so far, in both accounts. If the storage can't be used, the loss is
    /// unknown, and the whole budget counts as spent.
    pub spent: Spent,
    /// The caps of the budget.
    pub budget: Budget,
    /// Number of assignments whose rewards still count.
    pub open_assignments: usize,
    /// Number of private bits that no server has counted yet.
    pub waiting_reports: usize,
    /// Number of waiting reports that are to be shuffled and can't leave. Either the app believes
    /// no relay for their experiment (`Acceptance::shuffled`), or its transport leads through none
    /// (`Transport::through_relay`). The client finds the latter when it has a report to send.
    pub reports_without_relay: usize,
    /// The time of the next call, after calls that failed, or `None` if the last call was answered.
    /// Call [`Bandana::wake`] when the network has changed.
    pub next_attempt: Option<Timestamp>,
    /// The last refusal since this start, and what to do about it. The client refused a server's
    /// answer, or the app's budget is too small for a report of an experiment, or for the many
    /// visitors that arms seem to be drawn for. The refusal may be over: [`Choice`] tells what an
    /// experiment shows now.
    pub last_refusal: Option<Trouble>,
    /// The last call since this start that failed, and what to do about it. The failure may be
    /// over: see [`Self::next_attempt`].
    pub last_error: Option<Trouble>,
    /// Counts since this start.
    pub statistics: Statistics,
}

/// Whether new assignments report.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::Reporting;
/// # let (bandana, _tasks, _clock) = started()?;
/// // For the app's page on privacy.
/// let line = match bandana.status().reporting {
///     Reporting::On => "You take part.",
///     Reporting::OptedOut => "You do not take part.",
///     _ => "Nothing is sent for now.",
/// };
/// assert_eq!(line, "You take part.");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reporting {
    /// New assignments report, within the budget.
    On,
    /// The user has opted out, or has not consented yet.
    OptedOut,
    /// The device's clock was moved, so assignments make no reports. They make reports again once
    /// the clock agrees with the server's day. The only remedy is to set the clock right.
    ClockDisagrees,
    /// The client was shut down, or its background work has ended. Arms are drawn without reports
    /// until the app starts it again.
    ShutDown,
    /// The process was forked off from the process that has the client. The client of that process
    /// goes on. Here arms are drawn without reports. A client for this process needs a directory of
    /// its own.
    Forked,
    /// The storage can't be used. So the spent budget is unknown, and the whole budget counts as
    /// spent. See [`crate::danger::reset`].
    #[cfg(feature = "storage")]
    StorageUnusable(Arc<StorageError>),
    /// The last write failed and is tried again. Until it succeeds, no new report is sent.
    #[cfg(feature = "storage")]
    StorageFailing(Arc<StorageError>),
}

/// An experiment that an app can't take part in.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::ExperimentError;
/// # let (bandana, _tasks, _clock) = started()?;
/// let refused = bandana.experiment("two words");
/// assert!(matches!(refused, Err(ExperimentError::Name(_))));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExperimentError {
    /// The id is not valid.
    #[error(transparent)]
    Name(#[from] bandana_shared::identity::IdentityError),
    /// The app has set no terms for the experiment.
    #[error("the app does not accept experiment {0}; list it in `accept_only`, or use `accept`")]
    NotAccepted(ExperimentId),
}

bandana_shared::debug_says!(ExperimentError);
