use std::collections::BTreeMap;
#[cfg(feature = "storage")]
use std::path::PathBuf;
use std::sync::Arc;

use bandana_shared::identity::ExperimentId;

use super::shared::{Place, Shared};
use super::{Bandana, Tasks};
use crate::acceptance::Acceptance;
#[cfg(feature = "grpc")]
use crate::driver::{Driver, StartError};
#[cfg(feature = "grpc")]
use crate::grpc::Transport;
use crate::ledger::Budget;
use crate::time::{Clock, SystemClock};

/// Builds a [`Bandana`] from answers to what it can't guess, one after the other; each
/// step offers the answers that are possible there.
///
/// 1. [`Builder::endpoint`], [`Builder::transport`] or [`Builder::host_transport`]: who
///    talks to the aggregator.
/// 2. [`Builder::directory`] or [`Builder::in_memory`]: where the ledger is kept.
/// 3. [`Builder::accept`] or [`Builder::accept_only`]: what the app agrees to.
/// 4. [`Builder::budget`]: what an installation may lose.
/// 5. [`Builder::consent`]: whether the user agrees.
///
/// ```
/// use bandana_client::{Acceptance, Bandana, Budget, Consent};
/// use bandana_shared::{accounting::loss::PrivacyLoss, epsilon::Epsilon, rewards::Rewards};
///
/// let nats = PrivacyLoss::new;
/// let (bandana, _tasks) = Bandana::builder()
///     .host_transport()
///     .in_memory()
///     .accept(Acceptance::new(Epsilon::new(1.0)?, Rewards::binary()))
///     .budget(Budget::new(nats(4.0)?, 7, nats(100.0)?)?)
///     .consent(Consent::Given)
///     .build();
/// assert_eq!(bandana.status().waiting_reports, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it has built"]
pub struct Builder<Step> {
    pub(super) step: Step,
}

/// To be answered next: who talks to the aggregator.
#[derive(Debug)]
pub struct WantsTransport(pub(super) ());

/// To be answered next: where the ledger is kept.
#[derive(Debug)]
pub struct WantsStorage<T>(T);

/// To be answered next: what the app agrees to.
#[derive(Debug)]
pub struct WantsAcceptance<T>(T, Place);

/// To be answered next: what an installation may lose.
#[derive(Debug)]
pub struct WantsBudget<T>(T, Place, Acceptances);

/// To be answered next: whether the user agrees.
#[derive(Debug)]
pub struct WantsConsent<T>(T, Place, Acceptances, Budget);

/// Nothing more must be answered.
pub struct Ready<T> {
    transport: T,
    settings: Settings,
}

impl<T> std::fmt::Debug for Ready<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready").finish_non_exhaustive()
    }
}

/// The host carries out the tasks itself.
#[derive(Clone, Copy, Debug)]
pub struct HostTransport(());

/// Whether the user agrees to take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// The user agrees. An earlier [`Bandana::opt_out`] stands until
    /// [`Bandana::opt_in`].
    Given,
    /// The user does not agree, or was not asked yet: nothing is asked for, kept or
    /// sent, and what was kept is deleted, all but what was spent. See
    /// [`Bandana::opt_in`].
    Withheld,
}

/// What an app agrees to, for all experiments or for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptances {
    any: Option<Acceptance>,
    by_id: BTreeMap<ExperimentId, Acceptance>,
}

impl Acceptances {
    pub(super) fn of(&self, experiment_id: &ExperimentId) -> Option<&Acceptance> {
        self.by_id.get(experiment_id).or(self.any.as_ref())
    }

    pub(super) fn listed(&self) -> impl Iterator<Item = (&ExperimentId, &Acceptance)> {
        self.by_id.iter()
    }
}

pub(super) struct Settings {
    pub(super) place: Place,
    pub(super) acceptances: Acceptances,
    pub(super) budget: Budget,
    pub(super) consent: Consent,
    #[cfg_attr(not(feature = "storage"), expect(dead_code, reason = "read by a storage"))]
    pub(super) keeps_rewards: bool,
    pub(super) clock: Arc<dyn Clock>,
}

impl Builder<WantsTransport> {
    /// Talks to the aggregator at this address, `http://` or, with the feature `tls`,
    /// `https://` with the system's roots.
    ///
    /// # Errors
    /// [`crate::grpc::EndpointError`] when it is no such address.
    #[cfg(feature = "grpc")]
    pub fn endpoint(
        self,
        url: &str,
    ) -> Result<Builder<WantsStorage<Transport>>, crate::grpc::EndpointError> {
        Ok(self.transport(Transport::to(url)?))
    }

    /// Talks to the aggregator over this transport.
    #[cfg(feature = "grpc")]
    pub fn transport(self, transport: Transport) -> Builder<WantsStorage<Transport>> {
        Builder { step: WantsStorage(transport) }
    }

    /// The host talks to the aggregator, see [`Tasks`].
    pub fn host_transport(self) -> Builder<WantsStorage<HostTransport>> {
        Builder { step: WantsStorage(HostTransport(())) }
    }
}

impl<T> Builder<WantsStorage<T>> {
    /// Keeps the ledger, open assignments and unsent reports in this directory, which
    /// must be the app's own, used by one process at a time, and left out of backups.
    #[cfg(feature = "storage")]
    pub fn directory(self, path: impl Into<PathBuf>) -> Builder<WantsAcceptance<T>> {
        Builder { step: WantsAcceptance(self.step.0, Place::Directory(path.into())) }
    }

    /// Keeps everything in memory.
    ///
    /// # Privacy
    /// The budget begins anew with every start, so its caps hold for one run of the app
    /// only.
    pub fn in_memory(self) -> Builder<WantsAcceptance<T>> {
        Builder { step: WantsAcceptance(self.step.0, Place::Memory) }
    }
}

impl<T> Builder<WantsAcceptance<T>> {
    /// Agrees to this for every experiment that the app asks for.
    pub fn accept(self, acceptance: Acceptance) -> Builder<WantsBudget<T>> {
        let WantsAcceptance(transport, place) = self.step;
        let acceptances = Acceptances { any: Some(acceptance), ..Acceptances::default() };
        Builder { step: WantsBudget(transport, place, acceptances) }
    }

    /// Agrees to these experiments only, each on its own terms.
    pub fn accept_only(
        self,
        experiments: impl IntoIterator<Item = (ExperimentId, Acceptance)>,
    ) -> Builder<WantsBudget<T>> {
        let WantsAcceptance(transport, place) = self.step;
        let acceptances = Acceptances { any: None, by_id: experiments.into_iter().collect() };
        Builder { step: WantsBudget(transport, place, acceptances) }
    }
}

impl<T> Builder<WantsBudget<T>> {
    /// Caps what an installation may lose.
    pub fn budget(self, budget: Budget) -> Builder<WantsConsent<T>> {
        let WantsBudget(transport, place, acceptances) = self.step;
        Builder { step: WantsConsent(transport, place, acceptances, budget) }
    }
}

impl<T> Builder<WantsConsent<T>> {
    /// Says whether the user agrees.
    pub fn consent(self, consent: Consent) -> Builder<Ready<T>> {
        let WantsConsent(transport, place, acceptances, budget) = self.step;
        let settings = Settings {
            place,
            acceptances,
            budget,
            consent,
            keeps_rewards: false,
            clock: Arc::new(SystemClock),
        };
        Builder { step: Ready { transport, settings } }
    }
}

impl<T> Builder<Ready<T>> {
    /// Agrees to one experiment on terms of its own.
    pub fn accept_experiment(mut self, id: ExperimentId, acceptance: Acceptance) -> Self {
        self.step.settings.acceptances.by_id.insert(id, acceptance);
        self
    }

    /// Keeps the sums of rewards of open assignments in the directory too, so that they
    /// survive a restart. Without it an assignment that was open when the app ended
    /// reports the rewards that come after, or the default reward.
    ///
    /// # Privacy
    /// The only case in which raw rewards rest on a disk. They are in the app's own
    /// directory, readable by its owner only, and deleted once the private bit is there.
    #[cfg(feature = "storage")]
    pub fn keep_pending_rewards(mut self) -> Self {
        self.step.settings.keeps_rewards = true;
        self
    }

    /// Takes the time from this clock instead of the operating system's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.step.settings.clock = clock;
        self
    }
}

impl Builder<Ready<HostTransport>> {
    /// The handle for the app, and the tasks that the host is to carry out.
    ///
    /// A directory that can't be used is no error here: the app goes on with arms and
    /// without reports, see [`crate::Status::reporting`].
    pub fn build(self) -> (Bandana, Tasks) {
        let Ready { transport: HostTransport(()), settings } = self.step;
        let bandana = Bandana::new(Shared::new(settings));
        let tasks = Tasks::new(&bandana);
        (bandana, tasks)
    }
}

#[cfg(feature = "grpc")]
impl Builder<Ready<Transport>> {
    /// Starts a thread that does all the work, and returns the handle for the app. For
    /// hosts without an async runtime.
    ///
    /// A directory that can't be used is no error here: the app goes on with arms and
    /// without reports, see [`crate::Status::reporting`].
    ///
    /// # Errors
    /// [`StartError`] when the operating system gives no thread.
    pub fn start(self) -> Result<Bandana, StartError> {
        let (bandana, driver) = self.driver();
        driver.start()?;
        Ok(bandana)
    }

    /// The handle for the app, and the driver that does all the work when its
    /// [`Driver::run`] is awaited. For hosts with a tokio runtime.
    pub fn driver(self) -> (Bandana, Driver) {
        let Ready { transport, settings } = self.step;
        let bandana = Bandana::new(Shared::new(settings));
        let driver = Driver::new(Arc::clone(&bandana.shared), transport);
        (bandana, driver)
    }
}
