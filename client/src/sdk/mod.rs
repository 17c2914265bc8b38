//! The one type that an app holds.

mod builder;
#[cfg_attr(not(feature = "storage"), path = "no_disk.rs")]
mod disk;
#[cfg(feature = "grpc")]
mod driver;
mod experiment;
mod notifier;
mod settings;
mod shared;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use bandana_shared::identity::ExperimentId;
use thiserror::Error;

use crate::assignment::AssignmentId;
use crate::core::Statistics;
use crate::ledger::{Budget, Spent};
#[cfg(feature = "storage")]
use crate::storage::StorageError;
pub use builder::{
    Builder, HostTransport, Ready, WantsAcceptance, WantsBudget, WantsConsent, WantsStorage,
    WantsTransport,
};
#[cfg(feature = "grpc")]
pub use driver::{Driver, StartError};
pub use experiment::{Assignment, Choice, DefaultReason, Experiment, NotReady};
pub use settings::Consent;
pub(crate) use shared::Shared;
pub use tasks::Tasks;

/// The client of an app: cheap to clone, safe to use from every thread. No call waits
/// for a network or a disk, but for [`Self::opt_out`], [`Self::opt_in`] and
/// [`Self::shutdown`], and none that product code makes returns an error of the privacy
/// machinery: such things are counted, see [`Self::status`].
///
/// When the last clone is dropped, and the last [`Experiment`] and [`Assignment`] with it,
/// the driver writes what is to be written and ends; [`Self::shutdown`] waits for it.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// # let (bandana, mut tasks, clock) = started()?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// println!("show the {} button", choice.label_or("blue"));
/// choice.reward(1.0);
/// // When the attribution window and the random delay are over, one bit leaves.
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

/// Ends the driver with the last handle.
#[derive(Debug)]
struct EndsDriver(Arc<Shared>);

impl Drop for EndsDriver {
    fn drop(&mut self) {
        self.0.end_within(Duration::ZERO);
    }
}

impl Bandana {
    /// Begins to build one.
    ///
    /// ```
    /// use bandana_client::Bandana;
    /// // What is not answered is not built.
    /// let _next = Bandana::builder().host_transport().in_memory();
    /// ```
    pub fn builder() -> Builder<WantsTransport> {
        Builder { step: WantsTransport(()) }
    }

    fn new(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        Self { _ends_driver: Arc::new(EndsDriver(Arc::clone(&shared))), shared }
    }

    /// An experiment by its name. Its policy is asked for in the background when it is
    /// not there yet.
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
    /// [`ExperimentError`] for a name that no experiment can have, and for an
    /// experiment that the app does not accept.
    pub fn experiment(&self, id: &str) -> Result<Experiment, ExperimentError> {
        let experiment_id = ExperimentId::new(id)?;
        if self.shared.enroll(&experiment_id) {
            Ok(Experiment::new(self.clone(), experiment_id))
        } else {
            Err(ExperimentError::NotAccepted(experiment_id))
        }
    }

    /// An assignment from before, also from before a restart, if it still takes
    /// rewards. One that never reports is not found.
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
        let assigned = self.shared.core().assigned(id, self.shared.now())?;
        Some(Assignment::new(self.clone(), assigned))
    }

    /// How things stand.
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
        let core = self.shared.core();
        let status = Status {
            reporting: if core.is_opted_out() { Reporting::OptedOut } else { Reporting::On },
            spent: core.spent(now),
            budget: self.shared.budget,
            open_assignments: core.open_assignments(),
            waiting_reports: core.waiting_reports(),
            statistics: core.statistics(),
        };
        drop(core);
        #[cfg(feature = "storage")]
        let status = match (self.shared.trouble(), status.reporting) {
            ((true, Some(error)), _) => {
                // Nothing is known of it, so it counts as spent.
                let Status { budget, .. } = status;
                let spent = Spent { window: budget.window(), lifetime: budget.lifetime() };
                Status { reporting: Reporting::StorageUnusable(error), spent, ..status }
            }
            ((false, Some(error)), Reporting::On) => {
                Status { reporting: Reporting::StorageFailing(error), ..status }
            }
            (_, reporting) => Status { reporting, ..status },
        };
        status
    }

    /// Stops everything, and deletes everything but what was spent: the user has
    /// withdrawn. Reports that have not been sent are never sent. Which arms have reported
    /// is forgotten too, see [`crate::Acceptance::report_once`]. Blocks on the disk.
    ///
    /// It lasts until [`Self::opt_in`], over restarts too.
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
    /// What was sent can't be taken back. What was spent stays on record, so that nobody
    /// gets a new budget by leaving and coming back.
    ///
    /// # Errors
    /// [`StorageError`] when it could not be made durable: it holds for this run, and
    /// the app should build with [`Consent::Withheld`] from now on.
    #[cfg(feature = "storage")]
    pub fn opt_out(&self) -> Result<(), Arc<StorageError>> {
        self.shared.core().opt_out();
        // A call under way is given up.
        self.shared.network.wake();
        self.shared.note_heard(None);
        self.shared.write_now()
    }

    /// Takes part again. What was spent before still counts. Blocks on the disk.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Reporting;
    /// # let (bandana, mut tasks, clock) = started()?;
    /// bandana.opt_out()?;
    /// assert!(matches!(bandana.status().reporting, Reporting::OptedOut));
    /// bandana.opt_in()?;
    /// # serve(&mut tasks, &clock)?;
    /// // Once a server was heard again:
    /// assert!(bandana.experiment("button-colour")?.choose().assignment().is_some());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`StorageError`] when it could not be made durable: it holds for this run only.
    #[cfg(feature = "storage")]
    pub fn opt_in(&self) -> Result<(), Arc<StorageError>> {
        self.shared.core().opt_in();
        self.shared.network.wake();
        self.shared.write_now()
    }

    /// Stops everything for the life of this process; see the form with the feature
    /// `storage`.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "storage"))]
    pub fn opt_out(&self) -> Result<(), std::convert::Infallible> {
        self.shared.core().opt_out();
        // A call under way is given up.
        self.shared.network.wake();
        self.shared.note_heard(None);
        Ok(())
    }

    /// Takes part again.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "storage"))]
    pub fn opt_in(&self) -> Result<(), std::convert::Infallible> {
        self.shared.core().opt_in();
        self.shared.network.wake();
        Ok(())
    }

    /// Has the driver look at the clock again: for hosts that were asleep, or whose clock
    /// was set. Without it that takes a minute at most. Not to be called because the user
    /// reacted. With a host's transport it does nothing: ask for the next task.
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
    /// What is due leaves now. If that is when the user reacted, the time tells.
    pub fn wake(&self) {
        self.shared.writes.wake();
        self.shared.network.wake();
    }

    /// Asks the driver to send what is due and end within `patience`, without waiting.
    /// Without a driver, with a host's transport, it does nothing: drop the [`Tasks`].
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

    /// Sends what is due, as far as the server takes it, writes what is to be written, and
    /// ends the driver; says whether all that was done within `patience`. Blocks: where the
    /// driver runs on a runtime of the host's, call [`Self::begin_shutdown`] and await it.
    /// What could not be sent is sent by the next start, if there is a directory. Arms that
    /// are chosen afterwards get no report. With a host's transport it sends and writes
    /// nothing, and waits until [`Tasks`] is dropped.
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

/// How things stand.
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
    /// What was spent, in nano-nats; zero when the storage can't be used, since it is not
    /// known then.
    pub spent: Spent,
    /// What may be spent, in nano-nats.
    pub budget: Budget,
    /// Assignments whose rewards still count.
    pub open_assignments: usize,
    /// Private bits that no server has counted yet.
    pub waiting_reports: usize,
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
    /// They do, within the budget.
    On,
    /// The user has withdrawn, or has not agreed yet.
    OptedOut,
    /// What was stored can't be used, so nothing is known of the budget, and it counts
    /// as spent. See [`crate::danger::reset`].
    #[cfg(feature = "storage")]
    StorageUnusable(Arc<StorageError>),
    /// The last write failed and is tried again; until then nothing new is sent.
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
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExperimentError {
    /// No experiment can have this name.
    #[error(transparent)]
    Name(#[from] bandana_shared::identity::IdentityError),
    /// The app has no terms for it.
    #[error("the app does not accept experiment {0}; list it in `accept_only`, or use `accept`")]
    NotAccepted(ExperimentId),
}
