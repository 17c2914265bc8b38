//! The one type that an app holds.

mod builder;
mod experiment;
mod shared;
mod tasks;
mod wake;

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
    Builder, Consent, HostTransport, Ready, WantsAcceptance, WantsBudget, WantsConsent,
    WantsStorage, WantsTransport,
};
pub use experiment::{Assignment, Choice, DefaultReason, Experiment};
pub(crate) use shared::Shared;
pub use tasks::Tasks;

/// The client of an app: cheap to clone, safe to use from every thread. No call waits
/// for a network or, but for [`Self::opt_out`] and [`Self::opt_in`], for a disk, and none that product code makes
/// returns an error of the privacy machinery: such things are counted, see
/// [`Self::status`].
///
/// When the last clone is dropped, the driver writes what is to be written and ends;
/// [`Self::shutdown`] waits for it.
#[derive(Clone, Debug)]
pub struct Bandana {
    pub(crate) shared: Arc<Shared>,
    _held: Arc<Held>,
}

/// Ends the driver with the last handle.
#[derive(Debug)]
struct Held(Arc<Shared>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.end_within(Duration::ZERO);
    }
}

impl Bandana {
    /// Begins to build one.
    pub fn builder() -> Builder<WantsTransport> {
        Builder { step: WantsTransport(()) }
    }

    fn new(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        Self { _held: Arc::new(Held(Arc::clone(&shared))), shared }
    }

    /// An experiment by its name. Its policy is asked for in the background when it is
    /// not there yet.
    ///
    /// # Errors
    /// [`ExperimentError`] for a name that no experiment can have, and for an
    /// experiment that the app does not accept.
    pub fn experiment(&self, id: &str) -> Result<Experiment, ExperimentError> {
        let experiment_id = ExperimentId::new(id)?;
        if self.shared.enroll(&experiment_id) {
            Ok(Experiment::new(Arc::clone(&self.shared), experiment_id))
        } else {
            Err(ExperimentError::NotAccepted(experiment_id))
        }
    }

    /// An assignment from before, also from before a restart, if it still takes
    /// rewards.
    pub fn assignment(&self, id: AssignmentId) -> Option<Assignment> {
        let assigned = self.shared.core().assigned(id, self.shared.now())?;
        Some(Assignment::new(Arc::clone(&self.shared), assigned))
    }

    /// How things stand.
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
                Status { reporting: Reporting::StorageUnusable(error), ..status }
            }
            ((false, Some(error)), Reporting::On) => {
                Status { reporting: Reporting::StorageFailing(error), ..status }
            }
            (_, reporting) => Status { reporting, ..status },
        };
        status
    }

    /// Stops everything, and deletes everything but what was spent: the user has
    /// withdrawn. Reports that have not been sent are never sent. Blocks on the disk.
    ///
    /// It lasts until [`Self::opt_in`], over restarts too.
    ///
    /// # Errors
    /// [`StorageError`] when it could not be made durable: it holds for this run, and
    /// the app should build with [`Consent::Withheld`] from now on.
    #[cfg(feature = "storage")]
    pub fn opt_out(&self) -> Result<(), Arc<StorageError>> {
        self.shared.core().opt_out();
        self.shared.write_now()
    }

    /// Takes part again. What was spent before still counts. Blocks on the disk.
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

    /// Looks at the clock again: for hosts that were asleep, or whose clock was set. Not
    /// to be called because the user reacted.
    pub fn wake(&self) {
        self.shared.writes.wake();
        self.shared.network.wake();
    }

    /// Asks the driver to send what is due and end within `patience`, without waiting.
    pub fn begin_shutdown(&self, patience: Duration) {
        self.shared.end_within(patience);
    }

    /// Sends what is due, writes what is to be written, and ends the driver; says
    /// whether that was done within `patience`. Blocks. What could not be sent is sent by
    /// the next start. Arms that are chosen afterwards get no report.
    pub fn shutdown(&self, patience: Duration) -> bool {
        self.begin_shutdown(patience);
        self.shared.wait_for_end(patience)
    }
}

/// How things stand.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Whether new assignments report.
    pub reporting: Reporting,
    /// What was spent.
    pub spent: Spent,
    /// What may be spent.
    pub budget: Budget,
    /// Assignments whose rewards still count.
    pub open_assignments: usize,
    /// Private bits that no server has counted yet.
    pub waiting_reports: usize,
    /// Counts since the start.
    pub statistics: Statistics,
}

/// Whether new assignments report.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reporting {
    /// They do, within the budget.
    On,
    /// The user has withdrawn.
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
