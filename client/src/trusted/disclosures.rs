//! Disclosures that are kept on the disk until the server has decided.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandana_shared::identity::ExperimentId;
use thiserror::Error;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::experiment::{SharedDay, known};
use super::waiting::Waiting;
use super::{Agreement, Disclosure, TrustedError, TrustedExperiment};
use crate::grpc::{CALL_TIME_MAX, Transport, is_about_the_question};
use crate::storage::{Directory, StorageError};
use crate::trusted::disclosures_file::DisclosuresFile;

/// Disclosures that can wait at a time, of all experiments together: the file has all of them,
/// and is written anew for each.
pub(super) const WAITING_MAX: usize = 1000;

/// Days for which a disclosure waits at most, from the first one that a server has said: a raw
/// reward does not rest for as long as an experiment may be paused.
pub(super) const WAITING_DAYS_MAX: u32 = 60;

/// Disclosures on the device's disk, until a server has said what becomes of them. Features
/// `trusted` and `storage`. Clones are the same.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::trusted::{DisclosedReward, Disclosures};
///
/// # let app_directory = tempfile::tempdir()?;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// // Once, when the app starts: a directory for nothing else.
/// let disclosures = Disclosures::open(app_directory.path().join("disclosures"))?;
///
/// // When the user has reacted. Once this returns, no crash and no power cut loses it.
/// let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
/// disclosures.keep(disclosure)?;
///
/// // Now, at the next start, whenever there is a network.
/// let flushed = disclosures.flush(&transport, agreement()?).await;
/// assert_eq!((flushed.sent, flushed.waiting), (1, 0));
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// In trusted experiments raw rewards rest on the device, here and nowhere else: in the file
/// `disclosures`, which only its owner can read on Unix, erased after the server's verdict, by
/// [`Self::withdraw`], or after 60 days without one. These are days that a server has said and
/// that are within one of the device's own, from the first one on: a wrong clock erases nothing.
/// So what waits for a server that is never heard again rests until the app withdraws or erases
/// it. Blocks that a disk has freed may be read by whoever takes it apart. `CACHEDIR.TAG` tells backup programs to leave the directory out:
/// what comes back from a backup may count, and cost, once more.
#[derive(Clone)]
pub struct Disclosures(Arc<Inner>);

struct Inner {
    waiting: Mutex<Waiting>,
    /// Who opened it.
    process: u32,
}

impl fmt::Debug for Disclosures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disclosures").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Disclosures {
    /// Opens a directory, which is made if need be, with what waits in it. One process has it
    /// at a time. Blocks on the disk.
    ///
    /// ```
    /// use bandana_client::{StorageError, trusted::Disclosures};
    /// # let app_directory = tempfile::tempdir()?;
    /// let path = app_directory.path().join("disclosures");
    /// let disclosures = Disclosures::open(&path)?;
    /// assert_eq!(disclosures.waiting(), 0);
    /// assert!(matches!(Disclosures::open(&path), Err(StorageError::InUse { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StorageError`]. The files stay as they are; [`Self::erase`] is the way out when they
    /// are damaged.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, StorageError> {
        let waiting = Waiting::open(Box::new(Directory::lock(directory.as_ref())?))?;
        Ok(Self(Arc::new(Inner { waiting: Mutex::new(waiting), process: std::process::id() })))
    }

    /// Erases what waits in a directory that nobody has open, damaged or not. What was sent
    /// before may have counted.
    ///
    /// ```
    /// use bandana_client::{StorageError, trusted::Disclosures};
    /// # let app_directory = tempfile::tempdir()?;
    /// # let path = app_directory.path();
    /// std::fs::write(path.join("disclosures"), "damaged")?;
    /// let damaged = Disclosures::open(path);
    /// assert!(matches!(damaged, Err(StorageError::DisclosuresDamaged { .. })));
    /// Disclosures::erase(path)?;
    /// assert_eq!(Disclosures::open(path)?.waiting(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StorageError::InUse`], [`StorageError::Directory`] and [`StorageError::Io`].
    pub fn erase(directory: impl AsRef<Path>) -> Result<(), StorageError> {
        DisclosuresFile::erase(&mut Directory::lock(directory.as_ref())?)
    }

    /// Takes a disclosure, and returns when it is durable. At most 1000 wait at a time. Blocks
    /// on the disk.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::trusted::{DisclosedReward, Disclosures};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// let disclosures = Disclosures::open(directory.path())?;
    /// disclosures.keep(experiment.disclosure(0, DisclosedReward::new(1.0)?)?)?;
    /// drop(disclosures);
    /// assert_eq!(Disclosures::open(directory.path())?.waiting(), 1);
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

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.0.lock().len()
    }

    /// Erases everything that waits, since its users have withdrawn, and tells how much it was.
    /// Nothing more is sent, but for the one reward that a call may be sending. Blocks on the
    /// disk.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::trusted::{DisclosedReward, Disclosures};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// let disclosures = Disclosures::open(directory.path())?;
    /// disclosures.keep(experiment.disclosure(0, DisclosedReward::new(1.0)?)?)?;
    /// assert_eq!(disclosures.withdraw()?, 1);
    /// assert!(!directory.path().join("disclosures").exists());
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`StorageError::Io`]: nothing of it is sent by this process; erase it again.
    pub fn withdraw(&self) -> Result<usize, StorageError> {
        self.0.is_own()?;
        self.0.lock().withdraw()
    }

    /// Sends what waits, each once, and erases what a server has given its verdict about. Each
    /// experiment is asked for and judged first. Needs a tokio runtime with time and network.
    ///
    /// Call it when the app starts, when it has kept something, and again while something
    /// waits: after [`Flushed::retry_after`] and a random wait that grows with every call that
    /// has sent nothing. Whatever is given up, by a crash or because the caller drops this
    /// future, is sent again by the next call, with the same bytes, and counts once.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::grpc::Transport;
    /// use bandana_client::trusted::{Agreement, DisclosedReward, Disclosures};
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
    /// # let disclosures = Disclosures::open(directory.path())?;
    /// # disclosures.keep(experiment.disclosure(0, DisclosedReward::new(1.0)?)?)?;
    /// # send_all(&disclosures, &transport, agreement()?).await;
    /// # assert_eq!(disclosures.waiting(), 0);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Nothing of an experiment is sent that asks for more than the agreement. A disclosure
    /// gets the server's day when it is first sent, and no day that is not within one of the
    /// device's own.
    pub async fn flush(&self, transport: &Transport, agreement: Agreement) -> Flushed {
        let mut flushed = Flushed::default();
        match self.on_disk(|waiting| Ok(waiting.experiments())).await {
            Ok(experiments) => {
                let heard_day = SharedDay::default();
                for id in experiments {
                    // It may have been withdrawn, or too old by the day that another one said.
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
        // What was settled leaves the disk, also when something went wrong behind it.
        if let Err(error) = self.on_disk(Waiting::write).await {
            flushed.storage.get_or_insert(error);
        }
        let waiting = self.0.lock();
        flushed.held_up.retain(|(id, _)| waiting.waits_for(id));
        flushed.waiting = waiting.len();
        drop(waiting);
        flushed
    }

    /// Erases what was kept for too long, by a day that a server has said.
    fn age(&self, heard_day: &SharedDay, flushed: &mut Flushed) {
        let Some(today) = known(heard_day) else { return };
        let mut waiting = self.0.lock();
        waiting.hear(today);
        let too_long = || TrustedError::KeptTooLong { days: WAITING_DAYS_MAX };
        flushed.dropped.extend(waiting.take_dropped().into_iter().map(|id| (id, too_long())));
    }

    /// Sends what waits of one experiment. Breaks when the others need not be tried.
    async fn flush_one(
        &self,
        experiment: &TrustedExperiment,
        id: &ExperimentId,
        flushed: &mut Flushed,
    ) -> ControlFlow<()> {
        // What has a day already can be sent without another one.
        let no_day = limited(experiment.day()).await.err();
        let mut tried = BTreeSet::new();
        loop {
            let (day, of, known) = (experiment.known_day(), id.clone(), tried.clone());
            let batch = self.on_disk(move |waiting| waiting.batch(&of, day, &known));
            let batch = match batch.await {
                Ok(batch) => batch,
                Err(error) => {
                    flushed.storage = Some(error);
                    return ControlFlow::Break(());
                }
            };
            if batch.is_empty() {
                break;
            }
            for (name, message) in batch {
                tried.insert(name);
                // Meanwhile they may have been withdrawn.
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
                        let reach = reach(&error);
                        flushed.hold_up(id, error);
                        if reach != Reach::Disclosure {
                            return break_if(reach == Reach::Server);
                        }
                    }
                }
            }
        }
        match no_day {
            Some(error) if self.0.lock().needs_day(id) => {
                let is_about_all = reach(&error) == Reach::Server;
                flushed.hold_up(id, error);
                break_if(is_about_all)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// Works on what waits, on a thread that may block.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Waiting) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let inner = Arc::clone(&self.0);
        let working = tokio::task::spawn_blocking(move || {
            inner.is_own()?;
            work(&mut inner.lock())
        });
        // Otherwise the runtime is being shut down.
        working.await.unwrap_or(Err(StorageError::Closed))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process that was forked off has a copy of everything; only one may go on.
    fn is_own(&self) -> Result<(), StorageError> {
        if std::process::id() == self.process { Ok(()) } else { Err(StorageError::Closed) }
    }
}

impl Drop for Inner {
    /// What was settled by a call that was given up leaves the disk.
    fn drop(&mut self) {
        if self.is_own().is_ok() {
            self.lock().write().ok();
        }
    }
}

/// Waits for a call, but not beyond the time that calls have.
async fn limited<T>(
    call: impl Future<Output = Result<T, TrustedError>>,
) -> Result<T, TrustedError> {
    match timeout(CALL_TIME_MAX, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::deadline_exceeded("no answer in time").into()),
    }
}

/// What need not be tried after something went wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Disclosure,
    Experiment,
    Server,
}

/// How far an error reaches when the experiment has just been asked for with success. So the
/// server is there, and one experiment that it can't serve is in no other's way.
fn reach(error: &TrustedError) -> Reach {
    match error {
        TrustedError::Call(status) if is_about_the_question(status.code()) => Reach::Disclosure,
        // Only what did not come from the server has a source.
        TrustedError::Call(status)
            if status.code() == Code::ResourceExhausted || status.source().is_some() =>
        {
            Reach::Server
        }
        TrustedError::Paused | TrustedError::Call(_) => Reach::Experiment,
        _ => Reach::Disclosure,
    }
}

fn break_if(condition: bool) -> ControlFlow<()> {
    if condition { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// What has become of what waited.
///
/// ```
#[doc = include_str!("example.txt")]
/// # use bandana_client::grpc::Transport;
/// use bandana_client::trusted::{DisclosedReward, Disclosures, TrustedError};
///
/// # let directory = tempfile::tempdir()?;
/// # // A port that nobody listens on any more.
/// # let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// # let disclosures = Disclosures::open(directory.path())?;
/// # disclosures.keep(experiment.disclosure(0, DisclosedReward::new(1.0)?)?)?;
/// // Nobody is at this address.
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
    /// Rewards that count now, or did before.
    pub sent: usize,
    /// Rewards that were refused for good, or kept for too long, and erased: of which
    /// experiment, and why. See [`TrustedError::is_final`].
    pub dropped: Vec<(ExperimentId, TrustedError)>,
    /// Rewards that still wait, kept meanwhile or not.
    pub waiting: usize,
    /// The first reason why something of an experiment still waits. An experiment may have
    /// none when another one was in the way.
    pub held_up: Vec<(ExperimentId, TrustedError)>,
    /// How long the server wants to be left alone: one hour at most.
    pub retry_after: Option<Duration>,
    /// The disk failed. Nothing was sent that is not durable; what was settled may still be on
    /// the disk, and is written with the next call.
    pub storage: Option<StorageError>,
}

impl Flushed {
    /// Notes why something waits.
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
/// use bandana_client::trusted::{DisclosedReward, Disclosures, KeepError};
///
/// # let directory = tempfile::tempdir()?;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// # let disclosures = Disclosures::open(directory.path())?;
/// # let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
/// match disclosures.keep(disclosure) {
///     // There is no room: now or never.
///     Err(KeepError::Full(disclosure)) => experiment.disclose(&disclosure).await?,
///     // It is lost only if the app ends before the next write.
///     Err(error) => eprintln!("{error}"),
///     Ok(()) => {}
/// }
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeepError {
    /// As many wait as there is room for. Here it is again; nothing has happened.
    #[error("{WAITING_MAX} disclosures wait already; send them, and keep this one then")]
    Full(Box<Disclosure>),
    /// The disk failed. The disclosure waits all the same, in memory, and is written and sent
    /// with the others; it is lost if the process ends before.
    #[error("the disclosure waits in memory only, as the disk failed")]
    NotDurable(#[source] StorageError),
}
