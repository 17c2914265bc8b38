//! The builder of a client: each step leads to the next.

mod ready;

#[cfg(feature = "storage")]
use std::path::PathBuf;
use std::sync::Arc;

use bandana_shared::identity::ExperimentId;

use super::disk::Place;
use super::settings::{Acceptances, Consent, Settings};
use crate::acceptance::Acceptance;
use crate::budget::Budget;
#[cfg(feature = "grpc")]
use crate::grpc::Transport;
use crate::time::SystemClock;

/// Builds a [`Bandana`](crate::Bandana) from the settings that have no default. You set them one
/// after the other. Each step offers only the methods that are possible at that point.
///
/// 1. [`Builder::endpoint`], [`Builder::transport`] or [`Builder::host_transport`]: the connection
///    to the aggregator.
/// 2. [`Builder::directory`] or [`Builder::in_memory`]: the place of the ledger.
/// 3. [`Builder::accept`] or [`Builder::accept_only`]: the app's terms.
/// 4. [`Builder::budget`]: the privacy budget of an installation.
/// 5. [`Builder::consent`]: whether the user consents.
///
/// ```
/// use bandana_client::{Acceptance, Bandana, Budget, Consent};
/// use bandana_shared::{accounting::loss::PrivacyLoss, epsilon::Epsilon, rewards::Rewards};
///
/// let nats = PrivacyLoss::new;
/// let (bandana, _tasks) = Bandana::builder()
///     .host_transport()
///     .in_memory()
///     .accept(Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary()))
///     .budget(Budget::new(nats(4.0)?, 7, nats(20.0)?)?)
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

/// The step that sets the connection to the aggregator.
///
/// ```
/// use bandana_client::{Bandana, Builder, WantsTransport};
/// let first: Builder<WantsTransport> = Bandana::builder();
/// let _next = first.host_transport();
/// ```
#[derive(Debug)]
pub struct WantsTransport(pub(super) ());

/// The step that sets where the ledger is kept.
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

/// The step that sets the app's terms.
///
/// ```
/// use bandana_client::{Acceptance, Bandana, Builder, WantsAcceptance, WantsBudget};
/// use bandana_shared::{epsilon::Epsilon, epsilon::EpsilonError, rewards::Rewards};
///
/// /// The terms of all our apps.
/// fn agreed<T>(
///     builder: Builder<WantsAcceptance<T>>,
/// ) -> Result<Builder<WantsBudget<T>>, EpsilonError> {
///     Ok(builder.accept(Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())))
/// }
/// let _next = agreed(Bandana::builder().host_transport().in_memory())?;
/// # Ok::<(), EpsilonError>(())
/// ```
#[derive(Debug)]
pub struct WantsAcceptance<T>(T, Place);

/// The step that sets the privacy budget of an installation.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, Budget, Builder, HostTransport, WantsBudget};
///
/// # let builder = Bandana::builder().host_transport().in_memory();
/// let builder: Builder<WantsBudget<HostTransport>> = builder.accept(acceptance()?);
/// // A simulated user needs no budget.
/// let _next = builder.budget(Budget::UNLIMITED);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug)]
pub struct WantsBudget<T>(T, Place, Acceptances);

/// The step that sets the user's consent.
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

/// The last step: all required settings are made.
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
    pub(in crate::sdk) settings: Settings,
}

impl<T> std::fmt::Debug for Ready<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready").finish_non_exhaustive()
    }
}

/// The transport of a host that carries out the tasks itself: see [`Tasks`](crate::Tasks).
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
#[derive(Clone, Debug, Default)]
pub struct HostTransport {
    #[cfg(feature = "messages")]
    app_key: Option<crate::app_key::AppKey>,
}

impl Builder<WantsTransport> {
    /// Talks to the aggregator at this address: see [`Transport::to`]. This call does not connect
    /// yet.
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
    /// [`crate::grpc::EndpointError`] when the address is not valid, or the system's roots can't be
    /// read.
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

    /// Leaves the connection to the aggregator to the host, see [`Tasks`](crate::Tasks).
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Task};
    ///
    /// let builder = Bandana::builder().host_transport();
    /// # let (bandana, mut tasks) = agree(builder.in_memory())?.build();
    /// let experiment = bandana.experiment("button-colour")?;
    /// // The host gets its first fetch.
    /// let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    /// assert_eq!(task.experiment_id, *experiment.id());
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn host_transport(self) -> Builder<WantsStorage<HostTransport>> {
        Builder { step: WantsStorage(HostTransport::default()) }
    }
}

impl<T> Builder<WantsStorage<T>> {
    /// Keeps the ledger, open assignments and unsent reports in this directory. It must be the
    /// app's own directory, and only one handle may use it at a time. Leave it out of backups. A
    /// missing directory is made; on Unix, only its owner has access. An existing directory keeps
    /// its permissions.
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
    /// // The loss from the last run of the app:
    /// assert_eq!(bandana.status().spent.lifetime.get(), 1_000_000_000);
    /// # Ok::<(), Failure>(())
    /// ```
    #[cfg(feature = "storage")]
    pub fn directory(self, path: impl Into<PathBuf>) -> Builder<WantsAcceptance<T>> {
        Builder { step: WantsAcceptance(self.step.0, Place::Directory(path.into())) }
    }

    /// Keeps everything in memory. Assignments and reports are lost when the process ends.
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
    /// The spent budget starts from zero at every start, so the caps hold for one run only.
    pub fn in_memory(self) -> Builder<WantsAcceptance<T>> {
        Builder { step: WantsAcceptance(self.step.0, Place::Memory) }
    }
}

#[cfg(feature = "storage")]
impl Builder<WantsStorage<HostTransport>> {
    /// Leaves the storage to the host. This is for hosts without files, such as a web page with
    /// `IndexedDB`. The host passes what it has kept, and makes the writes that
    /// [`Tasks::next_write`](crate::Tasks::next_write) returns. Only one client at a time may use
    /// what is kept.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Kept, Reporting};
    ///
    /// // What was kept can't be read: nothing is known of the budget, so nothing is reported.
    /// let kept = Kept { state: Some(b"damaged".to_vec()), rewards: None };
    /// # let builder = Bandana::builder().host_transport().host_storage(kept);
    /// # let (bandana, _tasks) = agree(builder)?.build();
    /// assert!(matches!(bandana.status().reporting, Reporting::StorageUnusable(_)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The host must guarantee what a directory guarantees by itself: a write that it calls durable
    /// survives, and no older state comes back.
    pub fn host_storage(self, kept: super::Kept) -> Builder<WantsAcceptance<HostTransport>> {
        Builder { step: WantsAcceptance(self.step.0, Place::Host(kept)) }
    }
}

impl<T> Builder<WantsAcceptance<T>> {
    /// Sets these terms for every experiment that the app names.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Acceptance, Bandana, Consent};
    /// use bandana_shared::{epsilon::Epsilon, rewards::Rewards};
    ///
    /// # let builder = Bandana::builder().host_transport().in_memory();
    /// let builder = builder.accept(Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary()));
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

    /// Takes part in these experiments only, each with its own terms. They are fetched from the
    /// start.
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
    /// Caps the privacy loss of an installation, over all experiments together.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Budget, Consent};
    /// use bandana_shared::accounting::loss::PrivacyLoss;
    ///
    /// # let builder = Bandana::builder().host_transport().in_memory().accept(acceptance()?);
    /// // In nats: 5 in any 7 days, 20 in all.
    /// let budget = Budget::new(PrivacyLoss::new(5.0)?, 7, PrivacyLoss::new(100.0)?)?;
    /// let builder = builder.budget(budget);
    /// # let (bandana, _tasks) = builder.consent(Consent::Given).build();
    /// assert_eq!(bandana.status().budget, budget);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The client debits a report when its arm is drawn. The report itself may reach the server
    /// weeks later. The caps of this start apply. The directory keeps the spent budget. So a
    /// smaller budget applies at once, and a larger one does not start from zero.
    pub fn budget(self, budget: Budget) -> Builder<WantsConsent<T>> {
        let WantsBudget(transport, place, acceptances) = self.step;
        Builder { step: WantsConsent(transport, place, acceptances, budget) }
    }
}

impl<T> Builder<WantsConsent<T>> {
    /// Sets whether the user consents.
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
            refusals: None,
            keeps_rewards: true,
            on_work: None,
            clock: Arc::new(SystemClock),
        };
        Builder { step: Ready { transport, settings } }
    }
}
