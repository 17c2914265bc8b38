//! The builder of a client: each step asks for what the next one needs.

#[cfg(feature = "storage")]
use std::path::PathBuf;
use std::sync::Arc;

use bandana_shared::identity::ExperimentId;

use super::disk::Place;
#[cfg(feature = "grpc")]
use super::driver::{Driver, StartError};
use super::settings::{Acceptances, Consent, Settings};
use super::shared::Shared;
use super::{Bandana, Tasks};
use crate::acceptance::Acceptance;
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
///
/// ```
/// use bandana_client::{Bandana, Builder, WantsTransport};
/// let first: Builder<WantsTransport> = Bandana::builder();
/// let _next = first.host_transport();
/// ```
#[derive(Debug)]
pub struct WantsTransport(pub(super) ());

/// To be answered next: where the ledger is kept.
///
/// ```
/// use std::path::Path;
/// use bandana_client::{Bandana, Builder, WantsAcceptance, WantsStorage};
///
/// /// A directory in the app, memory in its tests; whoever talks to the aggregator.
/// fn kept<T>(
///     builder: Builder<WantsStorage<T>>,
///     directory: Option<&Path>,
/// ) -> Builder<WantsAcceptance<T>> {
///     match directory {
///         Some(directory) => builder.directory(directory),
///         None => builder.in_memory(),
///     }
/// }
/// let _next = kept(Bandana::builder().host_transport(), None);
/// ```
#[derive(Debug)]
pub struct WantsStorage<T>(T);

/// To be answered next: what the app agrees to.
///
/// ```
/// use bandana_client::{Acceptance, Bandana, Builder, WantsAcceptance, WantsBudget};
/// use bandana_shared::{epsilon::Epsilon, epsilon::EpsilonError, rewards::Rewards};
///
/// /// The terms of all our apps.
/// fn agreed<T>(
///     builder: Builder<WantsAcceptance<T>>,
/// ) -> Result<Builder<WantsBudget<T>>, EpsilonError> {
///     Ok(builder.accept(Acceptance::new(Epsilon::new(1.0)?, Rewards::binary())))
/// }
/// let _next = agreed(Bandana::builder().host_transport().in_memory())?;
/// # Ok::<(), EpsilonError>(())
/// ```
#[derive(Debug)]
pub struct WantsAcceptance<T>(T, Place);

/// To be answered next: what an installation may lose.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, Budget, Builder, HostTransport, WantsBudget};
///
/// # let builder = Bandana::builder().host_transport().in_memory();
/// let builder: Builder<WantsBudget<HostTransport>> = builder.accept(acceptance()?);
/// // A simulated user, who has nothing to lose.
/// let _next = builder.budget(Budget::UNLIMITED);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug)]
pub struct WantsBudget<T>(T, Place, Acceptances);

/// To be answered next: whether the user agrees.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, Builder, Consent, Ready, WantsConsent};
///
/// /// What the user chose in the settings of the app.
/// fn asked<T>(builder: Builder<WantsConsent<T>>, agrees: bool) -> Builder<Ready<T>> {
///     builder.consent(if agrees { Consent::Given } else { Consent::Withheld })
/// }
/// # let builder = Bandana::builder().host_transport().in_memory();
/// let _ready = asked(builder.accept(acceptance()?).budget(budget()?), true);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug)]
pub struct WantsConsent<T>(T, Place, Acceptances, Budget);

/// Nothing more must be answered.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, Builder, HostTransport, Ready};
///
/// # let builder = Bandana::builder().host_transport().in_memory();
/// # let builder = builder.accept(acceptance()?).budget(budget()?);
/// # let consent = bandana_client::Consent::Given;
/// let builder: Builder<Ready<HostTransport>> = builder.consent(consent);
/// let (_bandana, _tasks) = builder.build();
/// # Ok::<(), Failure>(())
/// ```
pub struct Ready<T> {
    transport: T,
    settings: Settings,
}

impl<T> std::fmt::Debug for Ready<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready").finish_non_exhaustive()
    }
}

/// The host carries out the tasks itself, see [`Tasks`].
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, Builder, HostTransport, Ready, Tasks};
///
/// /// Has [`Tasks`] to be carried out, as no builder with a transport of its own has.
/// fn tested(builder: Builder<Ready<HostTransport>>) -> (Bandana, Tasks) {
///     builder.build()
/// }
/// # let builder = agree(Bandana::builder().host_transport().in_memory())?;
/// let (bandana, mut tasks) = tested(builder);
/// # assert!(matches!(tasks.next_task()?, bandana_client::Task::Done));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HostTransport(());

impl Builder<WantsTransport> {
    /// Talks to the aggregator at this address, `http://` or, with the feature `tls`,
    /// `https://` with the system's roots. Nothing is connected yet.
    ///
    /// ```
    /// use bandana_client::{Bandana, grpc::EndpointError};
    ///
    /// let _next = Bandana::builder().endpoint("http://localhost:50051")?;
    /// let refused = Bandana::builder().endpoint("localhost:50051");
    /// assert!(matches!(refused, Err(EndpointError::Scheme { .. })));
    /// # Ok::<(), EndpointError>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::grpc::EndpointError`] when it is no such address, or the system's roots
    /// can't be read.
    #[cfg(feature = "grpc")]
    pub fn endpoint(
        self,
        url: &str,
    ) -> Result<Builder<WantsStorage<Transport>>, crate::grpc::EndpointError> {
        Ok(self.transport(Transport::to(url)?))
    }

    /// Talks to the aggregator over this transport.
    ///
    /// ```
    /// use bandana_client::{Bandana, grpc::Transport};
    ///
    /// // Two handles of a gateway share a connection.
    /// let transport = Transport::to("http://localhost:50051")?;
    /// let _one = Bandana::builder().transport(transport.clone());
    /// let _other = Bandana::builder().transport(transport);
    /// # Ok::<(), bandana_client::grpc::EndpointError>(())
    /// ```
    #[cfg(feature = "grpc")]
    pub fn transport(self, transport: Transport) -> Builder<WantsStorage<Transport>> {
        Builder { step: WantsStorage(transport) }
    }

    /// The host talks to the aggregator, see [`Tasks`].
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Task};
    ///
    /// let builder = Bandana::builder().host_transport();
    /// # let (bandana, mut tasks) = agree(builder.in_memory())?.build();
    /// let experiment = bandana.experiment("button-colour")?;
    /// // The host hears what is to be asked.
    /// let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    /// assert_eq!(task.experiment_id, *experiment.id());
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn host_transport(self) -> Builder<WantsStorage<HostTransport>> {
        Builder { step: WantsStorage(HostTransport(())) }
    }
}

impl<T> Builder<WantsStorage<T>> {
    /// Keeps the ledger, open assignments and unsent reports in this directory, which
    /// must be the app's own, used by one handle at a time, and left out of backups. It is
    /// made if need be, on Unix for its owner only; one that is there keeps its
    /// permissions.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Bandana;
    ///
    /// # let app = tempfile::tempdir()?;
    /// # let restart = || {
    /// let builder = Bandana::builder().host_transport().directory(app.path().join("bandana"));
    /// # start(builder)
    /// # };
    /// # let (bandana, mut tasks, _clock) = restart()?;
    /// # let _ = bandana.experiment("button-colour")?.choose();
    /// # tasks.write();
    /// # drop((bandana, tasks));
    /// # let (bandana, _tasks, _clock) = restart()?;
    /// // What the last run of the app spent:
    /// assert_eq!(bandana.status().spent.lifetime.get(), 1_000_000_000);
    /// # Ok::<(), Failure>(())
    /// ```
    #[cfg(feature = "storage")]
    pub fn directory(self, path: impl Into<PathBuf>) -> Builder<WantsAcceptance<T>> {
        Builder { step: WantsAcceptance(self.step.0, Place::Directory(path.into())) }
    }

    /// Keeps everything in memory. Assignments and reports end with the process.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Spent};
    ///
    /// # for _ in 0..2 {
    /// let builder = Bandana::builder().host_transport().in_memory();
    /// # let (bandana, _tasks, _clock) = start(builder)?;
    /// // In every run of the app:
    /// assert_eq!(bandana.status().spent, Spent::default());
    /// # let _ = bandana.experiment("button-colour")?.choose();
    /// # }
    /// # Ok::<(), Failure>(())
    /// ```
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
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Acceptance, Bandana, Consent};
    /// use bandana_shared::{epsilon::Epsilon, rewards::Rewards};
    ///
    /// # let builder = Bandana::builder().host_transport().in_memory();
    /// let builder = builder.accept(Acceptance::new(Epsilon::new(1.0)?, Rewards::binary()));
    /// # let (bandana, _tasks) = builder.budget(budget()?).consent(Consent::Given).build();
    /// assert!(bandana.experiment("button-colour").is_ok());
    /// assert!(bandana.experiment("font-size").is_ok());
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn accept(self, acceptance: Acceptance) -> Builder<WantsBudget<T>> {
        let WantsAcceptance(transport, place) = self.step;
        let acceptances = Acceptances { any: Some(acceptance), ..Acceptances::default() };
        Builder { step: WantsBudget(transport, place, acceptances) }
    }

    /// Agrees to these experiments only, each on its own terms. They are asked for from
    /// the start.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Acceptance, Bandana, Consent, ExperimentError};
    /// use bandana_shared::identity::ExperimentId;
    ///
    /// # let builder = Bandana::builder().host_transport().in_memory();
    /// let builder = builder.accept_only([(ExperimentId::new("button-colour")?, acceptance()?)]);
    /// # let (bandana, _tasks) = builder.budget(budget()?).consent(Consent::Given).build();
    /// assert!(bandana.experiment("button-colour").is_ok());
    /// let refused = bandana.experiment("font-size");
    /// assert!(matches!(refused, Err(ExperimentError::NotAccepted(_))));
    /// # Ok::<(), Failure>(())
    /// ```
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
    /// Caps what an installation may lose, all experiments together.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Budget, Consent};
    /// use bandana_shared::accounting::loss::PrivacyLoss;
    ///
    /// # let builder = Bandana::builder().host_transport().in_memory().accept(acceptance()?);
    /// // In nats: 5 in any 7 days, 100 in all.
    /// let budget = Budget::new(PrivacyLoss::new(5.0)?, 7, PrivacyLoss::new(100.0)?)?;
    /// let builder = builder.budget(budget);
    /// # let (bandana, _tasks) = builder.consent(Consent::Given).build();
    /// assert_eq!(bandana.status().budget, budget);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// A report is counted when its arm is drawn; one that could not be sent for weeks is
    /// seen later. The caps are those of this start. What was spent is kept in the directory, so a
    /// smaller budget holds at once, and a larger one does not begin anew.
    pub fn budget(self, budget: Budget) -> Builder<WantsConsent<T>> {
        let WantsBudget(transport, place, acceptances) = self.step;
        Builder { step: WantsConsent(transport, place, acceptances, budget) }
    }
}

impl<T> Builder<WantsConsent<T>> {
    /// Says whether the user agrees.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Consent, Reporting};
    ///
    /// # let builder = Bandana::builder().host_transport().in_memory();
    /// # let builder = builder.accept(acceptance()?).budget(budget()?);
    /// let (bandana, _tasks) = builder.consent(Consent::Given).build();
    /// assert!(matches!(bandana.status().reporting, Reporting::On));
    /// # Ok::<(), Failure>(())
    /// ```
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
    /// Agrees to one experiment on terms of its own, also beside those of
    /// [`Builder::accept`]. It is asked for from the start.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Acceptance, Bandana};
    /// use bandana_shared::{epsilon::Epsilon, identity::ExperimentId, rewards::Rewards};
    ///
    /// # let builder = agree(Bandana::builder().host_transport().in_memory())?;
    /// // Elsewhere every click is a report; here a user counts once in 30 days.
    /// let once = Acceptance::new(Epsilon::new(2.0)?, Rewards::binary()).report_once(30);
    /// let builder = builder.accept_experiment(ExperimentId::new("start-page")?, once);
    /// # let (_bandana, mut tasks) = builder.build();
    /// # let bandana_client::Task::Fetch(task) = tasks.next_task()? else { panic!() };
    /// # assert_eq!(task.experiment_id.as_str(), "start-page");
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn accept_experiment(mut self, id: ExperimentId, acceptance: Acceptance) -> Self {
        self.step.settings.acceptances.by_id.insert(id, acceptance);
        self
    }

    /// Keeps the sums of rewards of open assignments in the directory too, so that they
    /// survive a restart. Without it an assignment that was open when the app ended
    /// reports the rewards that come after, or the default reward. Does nothing for a
    /// client in memory.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Bandana;
    ///
    /// # let app = tempfile::tempdir()?;
    /// # let builder = agree(Bandana::builder().host_transport().directory(app.path()))?;
    /// // The user may come back tomorrow and finish.
    /// let builder = builder.keep_pending_rewards();
    /// # let clock = started()?.2;
    /// # let (bandana, mut tasks) = builder.clock(clock.clone()).build();
    /// # bandana.experiment("button-colour")?;
    /// # serve(&mut tasks, &clock)?;
    /// let choice = bandana.experiment("button-colour")?.choose();
    /// choice.reward(1.0);
    /// # tasks.write();
    /// assert!(app.path().join("rewards").exists());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The only case in which raw rewards rest on a disk. They are in the app's own
    /// directory, readable by its owner only, and deleted once the private bit is there.
    /// Writing them sends nothing and is waited for by nothing that is sent, but for
    /// milliseconds of the same disk's time.
    #[cfg(feature = "storage")]
    pub fn keep_pending_rewards(mut self) -> Self {
        self.step.settings.keeps_rewards = true;
        self
    }

    /// Takes the time from this clock instead of the operating system's.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::{sync::Arc, time::Duration};
    /// use bandana_client::{Bandana, Clock, Task, Timestamp};
    ///
    /// /// A clock that stands still.
    /// struct Stopped(Timestamp);
    ///
    /// impl Clock for Stopped {
    ///     fn now(&self) -> Timestamp {
    ///         self.0
    ///     }
    /// }
    /// let (now, hour) = (Timestamp::from_unix_ms(0), Duration::from_hours(1));
    /// # let builder = agree(Bandana::builder().host_transport().in_memory())?;
    /// let (bandana, mut tasks) = builder.clock(Arc::new(Stopped(now))).build();
    /// let experiment = bandana.experiment("button-colour")?;
    /// tasks.on_fetch_failed(experiment.id())?;
    /// // The time of the next attempt is one of that clock.
    /// assert!(matches!(tasks.next_task()?, Task::Wait(time) if time < now.after(hour)));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.step.settings.clock = clock;
        self
    }
}

impl Builder<Ready<HostTransport>> {
    /// The handle for the app, and the tasks that the host is to carry out.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Task};
    ///
    /// # let builder = agree(Bandana::builder().host_transport().in_memory())?;
    /// let (bandana, mut tasks) = builder.build();
    /// // The app takes part in nothing yet.
    /// assert!(matches!(tasks.next_task()?, Task::Done));
    /// # Ok::<(), Failure>(())
    /// ```
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
    /// Shows this key of the app with every call, to an aggregator that asks for one.
    ///
    /// While the aggregator does not know the key, nothing is lost: reports are kept, and
    /// sent again after growing waits.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, grpc::AppKey};
    ///
    /// let builder = Bandana::builder().endpoint("http://localhost:50051")?;
    /// # let builder = agree(builder.in_memory())?;
    /// let key = AppKey::new("bndk_AbM1pBHC0jRT1SXPrVgFzWAM5dqMKJkdPDo3ueZ8oA0")?;
    /// let (_bandana, _driver) = builder.app_key(key).driver();
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The same for all installations of the app, see [`crate::grpc::AppKey`].
    pub fn app_key(mut self, key: crate::grpc::AppKey) -> Self {
        self.step.transport = self.step.transport.with_app_key(key);
        self
    }

    /// Starts a thread that does all the work, and returns the handle for the app. For
    /// hosts without an async runtime.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Bandana;
    ///
    /// let builder = Bandana::builder().endpoint("http://localhost:50051")?;
    /// # let builder = agree(builder.in_memory())?;
    /// let bandana = builder.start()?;
    /// // The thread ends when it is told to, or with the last handle.
    /// assert!(bandana.shutdown(Duration::from_secs(10)));
    /// # Ok::<(), Failure>(())
    /// ```
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
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Bandana;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// let builder = Bandana::builder().endpoint("http://localhost:50051")?;
    /// # let builder = agree(builder.in_memory())?;
    /// let (bandana, driver) = builder.driver();
    /// let work = tokio::spawn(driver.run());
    /// // It ends with the last handle.
    /// drop(bandana);
    /// work.await?;
    /// # Ok::<(), Failure>(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// A directory that can't be used is no error here: the app goes on with arms and
    /// without reports, see [`crate::Status::reporting`].
    pub fn driver(self) -> (Bandana, Driver) {
        let Ready { transport, settings } = self.step;
        let bandana = Bandana::new(Shared::new(settings));
        let driver = Driver::new(Arc::clone(&bandana.shared), transport);
        (bandana, driver)
    }
}
