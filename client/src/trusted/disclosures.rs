//! Disclosures that are stored on the disk until the server's verdict, and the ledger of ρ.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, ExperimentId};
use thiserror::Error;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::budget::{RhoBudget, RhoExhausted, RhoSpent, SpentOnExperiment};
use super::disclosure::Debtor;
use super::experiment::{SharedDay, known};
use super::waiting::{Batch, Waiting};
use super::{Agreement, Disclosure, TrustedError, TrustedExperiment};
use crate::grpc::{CALL_TIME_MAX, Transport, is_about_the_question};
use crate::storage::{Directory, Files, StorageError};
use crate::trusted::disclosures_file::DisclosuresFile;

/// Largest number of waiting disclosures, over all experiments. The file holds all of them, and is
/// written anew for each.
pub(super) const WAITING_MAX: usize = 1000;

/// Largest number of days for which a disclosure waits, from the first day that a server has sent.
/// So a raw reward is not stored for as long as an experiment may be paused.
pub(super) const WAITING_DAYS_MAX: u32 = 60;

/// The directory of one person's disclosures. It holds the ledger of what they cost, and the
/// disclosures that wait for a server's verdict. Feature `trusted`. Clones share the same
/// disclosures.
///
/// No reward leaves before its price is in the ledger, durably, and below the caps of the
/// [`RhoBudget`]; see [`crate::trusted`]. The ledger outlives [`Self::withdraw`] and
/// [`Self::erase`]. If its file is lost or damaged, the directory can't be opened until
/// [`crate::danger::reset_disclosures`].
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::trusted::{DisclosedReward, Disclosures, RhoBudget};
///
/// # let app_directory = tempfile::tempdir()?;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// // Once, when the app starts: a directory for nothing else.
/// let disclosures = Disclosures::open(app_directory.path().join("disclosures"), RhoBudget::default())?;
///
/// // When the user has reacted. Once this returns, no crash and no power cut loses the reward.
/// let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
/// disclosures.keep(disclosure)?;
///
/// // Now, at the next start, or whenever there is a network.
/// let flushed = disclosures.flush(&transport, agreement()?).await;
/// assert_eq!((flushed.sent, flushed.waiting), (1, 0));
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// The device stores raw rewards of trusted experiments in one place only: the file `disclosures`.
/// On Unix, only its owner can read it. A raw reward is erased after the server's verdict, by
/// [`Self::withdraw`], or after 60 days without a verdict. The 60 days are counted in days that a
/// server has sent and that are within one of the device's own, from the first such day on. So a
/// wrong clock erases nothing. A disclosure for a server that never answers again stays until the
/// app withdraws or erases it. Disk blocks that were freed may still be readable on the medium.
/// `CACHEDIR.TAG` tells backup programs to leave the directory out: a disclosure that is restored
/// from a backup may count, and cost, once more.
#[derive(Clone)]
pub struct Disclosures(Arc<Inner>);

struct Inner {
    waiting: Mutex<Waiting>,
    /// The process that opened the directory.
    process: u32,
}

impl fmt::Debug for Disclosures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disclosures").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Disclosures {
    /// Opens a directory with its ledger and its waiting disclosures. A missing directory is made.
    /// Only one process can have the directory open at a time. Blocks on the disk.
    ///
    /// ```
    /// use bandana_client::StorageError;
    /// use bandana_client::trusted::{Disclosures, RhoBudget};
    /// # let app_directory = tempfile::tempdir()?;
    /// let path = app_directory.path().join("disclosures");
    /// let disclosures = Disclosures::open(&path, RhoBudget::default())?;
    /// assert_eq!(disclosures.waiting(), 0);
    /// assert!(matches!(Disclosures::open(&path, RhoBudget::default()), Err(StorageError::InUse { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StorageError`]. The files stay as they are. [`Self::erase`] recovers from damaged
    /// disclosures, and [`crate::danger::reset_disclosures`] from a ledger that is damaged or
    /// missing.
    pub fn open(directory: impl AsRef<Path>, budget: RhoBudget) -> Result<Self, StorageError> {
        Self::of(Box::new(Directory::lock(directory.as_ref())?), budget)
    }

    pub(crate) fn of(files: Box<dyn Files>, budget: RhoBudget) -> Result<Self, StorageError> {
        let waiting = Waiting::open(files, budget)?;
        Ok(Self(Arc::new(Inner { waiting: Mutex::new(waiting), process: std::process::id() })))
    }

    /// The cost of this person's rewards so far, and the rest of the budget: see [`RhoSpent`].
    pub fn spent(&self) -> RhoSpent {
        self.0.lock().spent()
    }

    /// The rewards that this person has disclosed to one experiment, and their cost.
    ///
    /// ```
    /// use bandana_client::danger;
    /// use bandana_client::trusted::{RhoBudget, SpentOnExperiment};
    /// use bandana_shared::identity::ExperimentId;
    /// let disclosures = danger::disclosures_in_memory(RhoBudget::default())?;
    /// let nothing = disclosures.spent_on(&ExperimentId::new("headlines")?);
    /// assert_eq!(nothing, SpentOnExperiment::default());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spent_on(&self, id: &ExperimentId) -> SpentOnExperiment {
        self.0.lock().spent_on(id)
    }

    /// Counts a disclosure in the ledger, once, before it leaves.
    pub(super) async fn debit(
        &self,
        debtor: Debtor,
        price: NanoNats,
        day: Day,
    ) -> Result<(), TrustedError> {
        let debited = self.on_disk(move |waiting| Ok(waiting.debit(&debtor, price, day)));
        debited.await.map_err(TrustedError::Ledger)?
    }

    /// Erases the waiting disclosures in a directory that is not open, damaged or not. Rewards sent
    /// before may have counted, and their cost stays in the ledger.
    ///
    /// ```
    /// use bandana_client::StorageError;
    /// use bandana_client::trusted::{Disclosures, RhoBudget};
    /// # let app_directory = tempfile::tempdir()?;
    /// # let path = app_directory.path();
    /// std::fs::write(path.join("disclosures"), "damaged")?;
    /// let damaged = Disclosures::open(path, RhoBudget::default());
    /// assert!(matches!(damaged, Err(StorageError::DisclosuresDamaged { .. })));
    /// Disclosures::erase(path)?;
    /// assert_eq!(Disclosures::open(path, RhoBudget::default())?.waiting(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StorageError::InUse`], [`StorageError::Directory`] and [`StorageError::Io`].
    pub fn erase(directory: impl AsRef<Path>) -> Result<(), StorageError> {
        DisclosuresFile::erase(&mut Directory::lock(directory.as_ref())?)
    }

    /// Keeps a disclosure, and returns when it is durable. At most 1000 wait at a time. Blocks on
    /// the disk.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::trusted::{DisclosedReward, Disclosures, RhoBudget};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
    /// disclosures.keep(experiment.disclosure(0, DisclosedReward::new(1.0)?)?)?;
    /// drop(disclosures);
    /// assert_eq!(Disclosures::open(directory.path(), RhoBudget::default())?.waiting(), 1);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`KeepError::Full`], and [`KeepError::NotDurable`] when the disk fails.
    pub fn keep(&self, disclosure: Disclosure) -> Result<(), KeepError> {
        self.0.is_own().map_err(KeepError::NotDurable)?;
        self.0.lock().keep(disclosure)
    }

    /// The number of waiting disclosures.
    pub fn waiting(&self) -> usize {
        self.0.lock().len()
    }

    /// Erases all waiting disclosures, for when users have withdrawn, and returns their number.
    /// Nothing more is sent, except one reward that a call may be sending at that time. Blocks on
    /// the disk.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::trusted::{DisclosedReward, Disclosures, RhoBudget};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
    /// disclosures.keep(experiment.disclosure(0, DisclosedReward::new(1.0)?)?)?;
    /// assert_eq!(disclosures.withdraw()?, 1);
    /// assert!(!directory.path().join("disclosures").exists());
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`StorageError::Io`]: this process sends none of the disclosures. Call it again to erase
    /// them.
    pub fn withdraw(&self) -> Result<usize, StorageError> {
        self.0.is_own()?;
        self.0.lock().withdraw()
    }

    /// Sends each waiting disclosure once, and erases those with a server's verdict. Each
    /// experiment is fetched and judged first. Needs a tokio runtime with time and network.
    ///
    /// Call it when the app starts, after [`Self::keep`], and again while disclosures wait. Before
    /// you call it again, wait for [`Flushed::retry_after`] and a random time that grows with every
    /// call that has sent nothing. A call may be given up by a crash, or because the caller drops
    /// this future. The next call then sends the disclosure again with the same bytes, and it
    /// counts once.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::grpc::Transport;
    /// use bandana_client::trusted::{Agreement, DisclosedReward, Disclosures, RhoBudget};
    ///
    /// # fn random_up_to(bound: Duration) -> Duration { bound }
    /// async fn send_all(disclosures: &Disclosures, transport: &Transport, agreement: Agreement) {
    ///     let mut bound = Duration::from_secs(1);
    ///     loop {
    ///         let flushed = disclosures.flush(transport, agreement).await;
    ///         if flushed.waiting == 0 {
    ///             return;
    ///         }
    ///         let longer = (bound * 2).min(Duration::from_hours(1));
    ///         bound = if flushed.sent > 0 { Duration::from_secs(1) } else { longer };
    ///         let wait = flushed.retry_after.unwrap_or_default() + random_up_to(bound);
    ///         tokio::time::sleep(wait).await;
    ///     }
    /// }
    /// # let directory = tempfile::tempdir()?;
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// # let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
    /// # disclosures.keep(experiment.disclosure(0, DisclosedReward::new(1.0)?)?)?;
    /// # send_all(&disclosures, &transport, agreement()?).await;
    /// # assert_eq!(disclosures.waiting(), 0);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Sends nothing to an experiment whose price exceeds the agreement. A disclosure gets the
    /// server's day at the first attempt, and only if that day is within one of the device's own.
    pub async fn flush(&self, transport: &Transport, agreement: Agreement) -> Flushed {
        let mut flushed = Flushed::default();
        match self.on_disk(|waiting| Ok(waiting.experiments())).await {
            Ok(experiments) => {
                let heard_day = SharedDay::default();
                for id in experiments {
                    // The disclosure may have been withdrawn, or be too old by the day of another
                    // experiment's answer.
                    if !self.0.lock().waits_for(&id) {
                        continue;
                    }
                    let opening = TrustedExperiment::open_and_hear(
                        transport.clone(),
                        id.clone(),
                        agreement,
                        SharedDay::clone(&heard_day),
                    );
                    let opened = limited(opening).await;
                    self.age(&heard_day, &mut flushed);
                    let sent = match opened {
                        Ok(experiment) => self.flush_one(&experiment, &id, &mut flushed).await,
                        Err(error) => {
                            let is_about_all = matches!(&error, TrustedError::Call(status)
                                if !is_about_the_question(status.code()));
                            flushed.hold_up(&id, error);
                            break_if(is_about_all)
                        }
                    };
                    if sent.is_break() {
                        break;
                    }
                }
            }
            Err(error) => flushed.storage = Some(error),
        }
        // Settled disclosures leave the disk, even after a later error.
        if let Err(error) = self.on_disk(Waiting::write).await {
            flushed.storage.get_or_insert(error);
        }
        let waiting = self.0.lock();
        flushed.held_up.retain(|(id, _)| waiting.waits_for(id));
        flushed.waiting = waiting.len();
        drop(waiting);
        flushed
    }

    /// Erases disclosures that were kept for too long, by a day that a server has sent.
    fn age(&self, heard_day: &SharedDay, flushed: &mut Flushed) {
        let Some(today) = known(heard_day) else { return };
        let mut waiting = self.0.lock();
        waiting.hear(today);
        let too_long = || TrustedError::KeptTooLong { days: WAITING_DAYS_MAX };
        flushed.dropped.extend(waiting.take_dropped().into_iter().map(|id| (id, too_long())));
    }

    /// Sends the waiting disclosures of one experiment. Breaks when other experiments need no
    /// attempt.
    async fn flush_one(
        &self,
        experiment: &TrustedExperiment,
        id: &ExperimentId,
        flushed: &mut Flushed,
    ) -> ControlFlow<()> {
        // A disclosure that already has a day can be sent without another one.
        let no_day = limited(experiment.day()).await.err();
        let mut tried = BTreeSet::new();
        loop {
            let (day, of, known) = (experiment.known_day(), id.clone(), tried.clone());
            let price = experiment.price();
            let batch = self.on_disk(move |waiting| waiting.batch(&of, price, day, &known));
            let Batch { messages, refused, held } = match batch.await {
                Ok(batch) => batch,
                Err(error) => {
                    flushed.storage = Some(error);
                    return ControlFlow::Break(());
                }
            };
            if let Some(exhausted) = held {
                flushed.hold_up(id, TrustedError::Budget(exhausted));
            }
            if let Some(exhausted) = refused {
                self.refuse(id, exhausted, flushed);
            }
            if messages.is_empty() {
                break;
            }
            for (name, message) in messages {
                tried.insert(name);
                // The disclosures may have been withdrawn meanwhile.
                if !self.0.lock().has(&name) {
                    continue;
                }
                let outcome = limited(experiment.submit(message)).await;
                match outcome {
                    Ok(()) => flushed.sent += usize::from(self.0.lock().settle(&name)),
                    Err(error) if error.is_final() => {
                        if self.0.lock().settle(&name) {
                            flushed.dropped.push((id.clone(), error));
                        }
                    }
                    Err(error) => {
                        let scope = scope(&error);
                        flushed.hold_up(id, error);
                        if scope != FailureScope::Disclosure {
                            return break_if(scope == FailureScope::Server);
                        }
                    }
                }
            }
        }
        match no_day {
            Some(error) if self.0.lock().needs_day(id) => {
                let is_about_all = scope(&error) == FailureScope::Server;
                flushed.hold_up(id, error);
                break_if(is_about_all)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// Has what the budget has no room for wait, or drops what it never will have room for.
    fn refuse(&self, id: &ExperimentId, exhausted: RhoExhausted, flushed: &mut Flushed) {
        if exhausted.passes() {
            flushed.hold_up(id, TrustedError::Budget(exhausted));
            return;
        }
        let dropped = self.0.lock().drop_uncounted(id);
        let refusals = (0..dropped).map(|_| (id.clone(), TrustedError::Budget(exhausted)));
        flushed.dropped.extend(refusals);
    }

    /// Runs `work` on the waiting disclosures, on a thread that may block.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Waiting) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let inner = Arc::clone(&self.0);
        let working = tokio::task::spawn_blocking(move || {
            inner.is_own()?;
            work(&mut inner.lock())
        });
        // The join fails only while the runtime is being shut down.
        working.await.unwrap_or(Err(StorageError::Closed))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A forked process has a copy of everything; only the process that opened the directory may
    /// use it.
    fn is_own(&self) -> Result<(), StorageError> {
        if std::process::id() == self.process { Ok(()) } else { Err(StorageError::Closed) }
    }
}

impl Drop for Inner {
    /// Writes the verdicts of a call that was given up.
    fn drop(&mut self) {
        if self.is_own().is_ok() {
            self.lock().write().ok();
        }
    }
}

/// Waits for a call, but not beyond the time limit of calls.
async fn limited<T>(
    call: impl Future<Output = Result<T, TrustedError>>,
) -> Result<T, TrustedError> {
    match timeout(CALL_TIME_MAX, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::deadline_exceeded("no answer in time").into()),
    }
}

/// The scope that needs no further attempt after an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureScope {
    Disclosure,
    Experiment,
    Server,
}

/// The scope of an error after a successful fetch of the experiment. Since the server answered, an
/// experiment that it can't serve does not hold up any other.
fn scope(error: &TrustedError) -> FailureScope {
    match error {
        TrustedError::Call(status) if is_about_the_question(status.code()) => {
            FailureScope::Disclosure
        }
        // Only a status that did not come from the server has a source.
        TrustedError::Call(status)
            if status.code() == Code::ResourceExhausted || status.source().is_some() =>
        {
            FailureScope::Server
        }
        TrustedError::Paused | TrustedError::Call(_) => FailureScope::Experiment,
        _ => FailureScope::Disclosure,
    }
}

fn break_if(condition: bool) -> ControlFlow<()> {
    if condition { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// The result of a [`Disclosures::flush`].
///
/// ```
#[doc = include_str!("example.txt")]
/// # use bandana_client::grpc::Transport;
/// use bandana_client::trusted::{DisclosedReward, Disclosures, RhoBudget, TrustedError};
///
/// # let directory = tempfile::tempdir()?;
/// # // A port that nobody listens on any more.
/// # let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// # let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
/// # disclosures.keep(experiment.disclosure(0, DisclosedReward::new(1.0)?)?)?;
/// // No server is at this address.
/// let transport = Transport::to(&format!("http://{closed}"))?;
/// let flushed = disclosures.flush(&transport, agreement()?).await;
/// assert_eq!((flushed.sent, flushed.waiting), (0, 1));
/// assert!(matches!(flushed.held_up[..], [(_, TrustedError::Call(_))]));
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "what is still waiting is to be sent again"]
#[non_exhaustive]
pub struct Flushed {
    /// Number of rewards that count, now or already before.
    pub sent: usize,
    /// Rewards that were erased since they were refused for good or kept for too long: the
    /// experiment and the reason of each. See [`TrustedError::is_final`].
    pub dropped: Vec<(ExperimentId, TrustedError)>,
    /// Number of rewards that still wait, including those kept during the call.
    pub waiting: usize,
    /// For each experiment, the first reason why a disclosure still waits. An experiment may have
    /// no reason if another one held it up.
    pub held_up: Vec<(ExperimentId, TrustedError)>,
    /// The wait that the server asks for: one hour at most.
    pub retry_after: Option<Duration>,
    /// The disk failed. Nothing was sent that is not durable. Settled disclosures may still be on
    /// the disk, until the write of the next call.
    pub storage: Option<StorageError>,
}

impl Flushed {
    /// Records the reason why a disclosure waits.
    fn hold_up(&mut self, id: &ExperimentId, error: TrustedError) {
        self.retry_after = self.retry_after.max(error.retry_after());
        if self.held_up.iter().all(|(held_up, _)| held_up != id) {
            self.held_up.push((id.clone(), error));
        }
    }
}

/// A disclosure that was not made durable.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::trusted::{DisclosedReward, Disclosures, KeepError, RhoBudget};
///
/// # let directory = tempfile::tempdir()?;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// # let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
/// # let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
/// match disclosures.keep(disclosure) {
///     // There is no room: now or never.
///     Err(KeepError::Full(disclosure)) => experiment.disclose(&disclosure, &disclosures).await?,
///     // It is lost only if the app ends before the next write.
///     Err(error) => eprintln!("{error}"),
///     Ok(()) => {}
/// }
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
#[derive(Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The largest number of disclosures wait already. The disclosure is returned, and nothing has
    /// changed.
    #[error("{WAITING_MAX} disclosures wait already; send them, and keep this one then")]
    Full(Box<Disclosure>),
    /// The disk failed. The disclosure still waits in memory, and is written and sent with the
    /// others. It is lost if the process ends before that.
    #[error("the disclosure waits in memory only, as the disk failed")]
    NotDurable(#[source] StorageError),
}

bandana_shared::debug_says!(KeepError);
