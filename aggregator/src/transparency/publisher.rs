//! The publisher of a log: it writes epochs, has them cosigned, and has them served.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_edge::explain::explain;
use bandana_edge::gateway::PublishedKeys;
use bandana_edge::shutdown::ShutdownSignal;
use bandana_shared::identity::{Digest, ExperimentId, StoreId, UnixSeconds};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::transparency::{
    Checkpoint, Epoch, Frontier, Hash, NoteSigner, Subject, View, experiment_value, gateway_value,
    leaf_hash, specification_hash,
};
use bandana_shared::wire::v1::{LogEpoch, LogItem};
use bandana_store::{
    EpochToAdd, ExperimentState, StoreError, StoreReader, StoreRefusal, StoredEpoch,
};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use prost::Message as _;
use thiserror::Error;
use tokio::task::spawn_blocking;

use super::LogParts;
use super::cosigning::{CosigningError, Witness};
use super::metrics::LogMetrics;
use super::served::{LoggedExperiment, Served, ServedEpoch};
use crate::ingest::Ingest;
use crate::registry::{PublishedExperiment, Registry};

/// The time between two looks at what there is to do.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The least time between two policies of an experiment whose installations keep arms, or whose reports
/// are shuffled: each policy that one device alone sees would tell more there.
const BETWEEN_KEPT_POLICIES: u64 = 3600;

/// How long the log says what an epoch was, in seconds; after that it has its hash.
const CONTENT_SECONDS: u64 = 90 * 86_400;

/// Most epochs that are read at a time, with what they say.
const READ_MAX: u32 = 64;

/// Writes epochs of the log, has them cosigned, and publishes them.
#[derive(Debug)]
pub(crate) struct Publisher {
    signer: NoteSigner,
    witnesses: Vec<Witness>,
    quorum: usize,
    epoch: Duration,
    served: Arc<Served>,
    registry: Arc<Registry>,
    keys: Option<Arc<PublishedKeys>>,
    ingest: Ingest,
    reader: StoreReader,
    clock: Arc<dyn Clock>,
    store: StoreId,
    metrics: LogMetrics,
    /// The last epoch that is stored, and what it says.
    last: Option<Logged>,
    /// When this server last tried to add an epoch, and when it last asked the witnesses, by the
    /// monotonic clock.
    grown: Option<Duration>,
    asked: Option<Duration>,
    /// The number of epochs that are served.
    published: Option<u64>,
    /// What was last logged of each witness.
    told: HashMap<String, String>,
}

/// An epoch of the log, as this server has read it.
#[derive(Debug)]
struct Logged {
    stored: StoredEpoch,
    /// The log before it.
    before: Frontier,
    items: Vec<LogItem>,
}

impl Logged {
    fn read(stored: StoredEpoch, before: Frontier) -> Result<Self, PublishError> {
        let content = LogEpoch::decode(&stored.content[..]);
        let items = content.map_err(|_| PublishError::Content(stored.number))?.items;
        Ok(Self { stored, before, items })
    }

    fn size(&self) -> u64 {
        self.stored.log.size()
    }
}

/// The parts of the server that a publisher works with.
#[derive(Debug)]
pub(crate) struct PublisherParts {
    pub(crate) registry: Arc<Registry>,
    pub(crate) keys: Option<Arc<PublishedKeys>>,
    pub(crate) ingest: Ingest,
    pub(crate) reader: StoreReader,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: StoreId,
    pub(crate) metrics: LogMetrics,
}

impl Publisher {
    pub(crate) fn new(log: LogParts, parts: PublisherParts) -> Self {
        let LogParts { signer, witnesses, quorum, epoch, served } = log;
        let PublisherParts { registry, keys, ingest, reader, clock, store, metrics } = parts;
        Self {
            signer,
            witnesses: witnesses.into_iter().map(Witness::new).collect(),
            quorum,
            epoch,
            served,
            registry,
            keys,
            ingest,
            reader,
            clock,
            store,
            metrics,
            last: None,
            grown: None,
            asked: None,
            published: None,
            told: HashMap::new(),
        }
    }

    /// Works until the server ends.
    pub(crate) async fn run(mut self, ending: ShutdownSignal) {
        let mut failed = String::new();
        loop {
            match self.turn().await {
                Ok(()) => failed.clear(),
                Err(PublishError::Ended) => return,
                Err(error) => {
                    let error = explain(&error);
                    if error != failed {
                        tracing::error!(error, "the public log does not grow; it is tried again");
                    }
                    failed = error;
                }
            }
            tokio::select! {
                () = ending.clone().wait() => return,
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    /// One look: an epoch if it is time, its cosignatures, and what is served.
    async fn turn(&mut self) -> Result<(), PublishError> {
        self.catch_up().await?;
        // What has passed, whatever is done to the clock.
        let passed = self.clock.monotonic();
        let has_passed = |since: Option<Duration>| {
            since.is_none_or(|since| passed.saturating_sub(since) >= self.epoch)
        };
        let now = self.clock.unix_seconds();
        let is_time = self.last.as_ref().is_none_or(|last| {
            let apart = now.abs_diff(last.stored.time.get()) >= self.epoch.as_secs();
            apart && has_passed(self.grown)
        });
        let is_asked_long_ago = has_passed(self.asked);
        if is_time {
            self.grow(now).await?;
            self.grown = Some(passed);
        }
        let Some(size) = self.last.as_ref().map(Logged::size) else { return Ok(()) };
        if self.published != Some(size) || is_asked_long_ago {
            self.cosign().await?;
            self.asked = Some(passed);
        }
        Ok(())
    }

    /// Reads the last epoch, which another replica may have added.
    async fn catch_up(&mut self) -> Result<(), PublishError> {
        let next = self.last.as_ref().map_or(0, Logged::size);
        if self.read(move |reader| reader.epochs(next, 1)).await?.is_empty() {
            return Ok(());
        }
        let Some(stored) = self.read(StoreReader::last_epoch).await? else { return Ok(()) };
        let before = match stored.number.checked_sub(1) {
            Some(before) => self.log_with(before).await?,
            None => Frontier::default(),
        };
        self.last = Some(Logged::read(stored, before)?);
        Ok(())
    }

    /// The log with the epoch of this number as its last.
    async fn log_with(&self, number: u64) -> Result<Frontier, PublishError> {
        let found = self.read(move |reader| reader.epochs(number, 1)).await?;
        let found = found.into_iter().find(|epoch| epoch.number == number);
        found.map(|epoch| epoch.log).ok_or(PublishError::Content(number))
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StoreReader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, PublishError> {
        let reader = self.reader.clone();
        let read = spawn_blocking(move || read(&reader)).await;
        Ok(read.map_err(|_| PublishError::Ended)??)
    }

    /// Adds an epoch, if anything has changed.
    async fn grow(&mut self, now: u64) -> Result<(), PublishError> {
        let items = self.items(now);
        let is_the_same = match &self.last {
            Some(last) => last.items == items,
            None => items.is_empty(),
        };
        if is_the_same {
            return Ok(());
        }
        let before = self.last.as_ref().map(|last| last.stored.log.clone()).unwrap_or_default();
        let mut log = before.clone();
        // Time never goes back in a log.
        let time = self.last.as_ref().map_or(0, |last| last.stored.time.get()).max(now);
        let (number, time) = (log.size(), UnixSeconds::new(time));
        let entry = epoch_of(time, &items)?.entry();
        log.push(leaf_hash(&entry));
        let content = LogEpoch { items: items.clone(), ..LogEpoch::default() }.encode_to_vec();
        let epoch = StoredEpoch { number, time, entry, log, content };
        // So many have passed at least, since then.
        let keep_from = number.saturating_sub(CONTENT_SECONDS / self.epoch.as_secs().max(1));
        let addition = EpochToAdd { epoch: epoch.clone(), keep_from };
        match self.ingest.add_epoch(addition).await.ok_or(PublishError::Ended)? {
            Ok(()) => {
                self.last = Some(Logged { stored: epoch, before, items });
                Ok(())
            }
            // The next look reads what the other replica has added.
            Err(StoreError::Refused(StoreRefusal::LogHasGrown)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What there is to say, in the order of experiments.
    fn items(&self, now: u64) -> Vec<LogItem> {
        let before: HashMap<&str, &LogItem> = self
            .last
            .iter()
            .flat_map(|last| &last.items)
            .map(|item| (item.experiment_id.as_str(), item))
            .collect();
        let experiments = self.registry.all().into_iter().filter_map(|experiment| {
            let serving = experiment.serving();
            (serving.state != ExperimentState::Draft)
                .then(|| self.item(&serving, before.get(experiment.id().as_str()).copied(), now))
        });
        let mut items: Vec<LogItem> = experiments.collect();
        items.sort_by(|one, other| one.experiment_id.cmp(&other.experiment_id));
        if let Some(keys) = &self.keys {
            let keys = keys.keys();
            let value = gateway_value(keys);
            let since = before.get("").filter(|item| item.value == value[..]);
            items.push(LogItem {
                value: value.to_vec().into(),
                key_configurations: keys.configurations().to_vec().into(),
                since_unix_seconds: since.map_or(now, |item| item.since_unix_seconds),
                ..LogItem::default()
            });
        }
        items
    }

    fn item(&self, serving: &PublishedExperiment, before: Option<&LogItem>, now: u64) -> LogItem {
        let specification = &serving.specification;
        let digest = specification.digest();
        if let Some(before) = before.filter(|before| before.digest == digest.as_bytes()[..]) {
            let is_told = specification.may_tell_policy();
            let is_young = now.saturating_sub(before.since_unix_seconds) < BETWEEN_KEPT_POLICIES;
            let is_the_same = before.policy_version == serving.policy.version;
            if is_the_same || (is_told && is_young && !specification.is_simulation()) {
                return before.clone();
            }
        }
        let policy = &serving.policy;
        let hash = specification_hash(specification);
        let value = experiment_value(&hash, policy, self.store);
        LogItem {
            experiment_id: specification.experiment_id().to_string(),
            digest: digest.as_bytes().to_vec().into(),
            value: value.to_vec().into(),
            specification_hash: hash.to_vec().into(),
            policy_version: policy.version,
            weights: policy.weights.iter().collect(),
            time_to_live_seconds: policy.time_to_live_seconds,
            since_unix_seconds: now,
            ..LogItem::default()
        }
    }

    /// Asks all witnesses at once, and publishes the last epoch when enough of them have cosigned it:
    /// none waits for another.
    async fn cosign(&mut self) -> Result<(), PublishError> {
        let Some(last) = &self.last else { return Ok(()) };
        let size = last.size();
        let origin = self.signer.public().name().to_owned();
        let checkpoint = Checkpoint { origin, size, root: last.stored.log.root() };
        let note = self.signer.note(&checkpoint);
        let mut answered: Vec<Witness> = Vec::new();
        let mut told = Vec::new();
        let waiting = std::mem::take(&mut self.witnesses);
        let mut published = Ok(false);
        {
            let (this, checkpoint, note) = (&*self, &checkpoint, &note);
            let mut asked: FuturesUnordered<_> = waiting
                .into_iter()
                .map(async |mut witness: Witness| {
                    let outcome = this.ask(&mut witness, checkpoint, note).await;
                    (witness, outcome.err())
                })
                .collect();
            while let Some((witness, error)) = asked.next().await {
                // It is asked again in a moment.
                let is_soon = |error: &PublishError| {
                    matches!(error, PublishError::Witness(CosigningError::Soon))
                };
                told.push((witness.name().to_owned(), error.filter(|error| !is_soon(error))));
                answered.push(witness);
                let cosigned = answered.iter().filter(|one| one.line(size).is_some()).count();
                if cosigned >= this.quorum {
                    published = this.publish(&answered, checkpoint, note.clone()).map(|()| true);
                }
            }
        }
        if self.quorum == 0 {
            published = self.publish(&answered, &checkpoint, note).map(|()| true);
        }
        self.witnesses = answered;
        for (name, error) in told {
            self.tell(&name, error);
        }
        if published? {
            self.published = Some(size);
        }
        Ok(())
    }

    /// Asks a witness, a second time if it knows another number of epochs than was thought.
    async fn ask(
        &self,
        witness: &mut Witness,
        checkpoint: &Checkpoint,
        note: &str,
    ) -> Result<(), PublishError> {
        for _ in 0..2 {
            let proof = if witness.size > checkpoint.size {
                Vec::new()
            } else {
                self.proof(witness.size, checkpoint.size).await?
            };
            let now = self.clock.unix_seconds();
            match witness.hand_in((checkpoint, note), &proof, now).await {
                Err(CosigningError::Behind) => {}
                outcome => return Ok(outcome?),
            }
        }
        Err(CosigningError::Behind.into())
    }

    /// The proof that the log of `size` epochs continues that of `old`.
    async fn proof(&self, old: u64, size: u64) -> Result<Vec<Hash>, PublishError> {
        if old == 0 || old == size {
            return Ok(Vec::new());
        }
        let earlier = self.log_with(old - 1).await?;
        let mut later = Vec::new();
        while old + (later.len() as u64) < size {
            let next = old + later.len() as u64;
            let some = self.read(move |reader| reader.epochs(next, READ_MAX)).await?;
            if some.is_empty() {
                return Err(PublishError::Content(next));
            }
            later.extend(some.iter().map(|epoch| leaf_hash(&epoch.entry)));
        }
        later.truncate(usize::try_from(size - old).unwrap_or(usize::MAX));
        Ok(earlier.consistency(&later))
    }

    /// Logs what has changed about a witness.
    fn tell(&mut self, name: &str, error: Option<PublishError>) {
        let now = error.map(|error| explain(&error)).unwrap_or_default();
        let before = self.told.insert(name.to_owned(), now.clone()).unwrap_or_default();
        if before == now {
            return;
        }
        if now.is_empty() {
            tracing::info!(witness = name, "the witness cosigns the public log again");
        } else {
            tracing::error!(
                witness = name,
                error = now,
                "a witness does not cosign the public log"
            );
        }
    }

    /// Serves the last epoch.
    fn publish(
        &self,
        witnesses: &[Witness],
        checkpoint: &Checkpoint,
        note: String,
    ) -> Result<(), PublishError> {
        let Some(Logged { stored, before, items }) = &self.last else { return Ok(()) };
        let epoch = epoch_of(stored.time, items)?;
        let cosigned = witnesses.iter().filter_map(|witness| {
            let (size, cosignature) = witness.cosignature?;
            (size == checkpoint.size).then_some(cosignature)
        });
        let cosignatures: Vec<_> = cosigned.collect();
        let cosigned = cosignatures.iter().map(|one| one.time.get()).min();
        let log_signature = self.signer.sign(&checkpoint.text());
        let path = before.path();
        let view = |key: &Hash| {
            (&View {
                size: checkpoint.size,
                path: path.clone(),
                time: stored.time,
                siblings: epoch.siblings(key),
                log_signature,
                cosignatures: cosignatures.clone(),
            })
                .into()
        };
        let mut experiments = HashMap::new();
        for item in items.iter().filter(|item| !item.experiment_id.is_empty()) {
            // One that is not known here: this replica has yet to hear of it, or it was deleted.
            let Some(experiment) = self.published_as(item)? else { continue };
            let id = experiment.specification.experiment_id().clone();
            let view = view(&Subject::Experiment(id.clone()).key());
            experiments.insert(id, LoggedExperiment { experiment: Arc::new(experiment), view });
        }
        let gateway = items.iter().any(|item| item.experiment_id.is_empty());
        let gateway = gateway.then(|| view(&Subject::GatewayKeys.key()));
        let lines = witnesses.iter().filter_map(|witness| witness.line(checkpoint.size));
        // Without witnesses it is as old as it is.
        self.metrics.serves(checkpoint.size, cosigned.unwrap_or(stored.time.get()));
        let checkpoint = lines.fold(note, |note, line| note + &line);
        self.served.publish(ServedEpoch { experiments, gateway, checkpoint });
        Ok(())
    }

    /// An experiment in the state that the log says.
    fn published_as(&self, item: &LogItem) -> Result<Option<PublishedExperiment>, PublishError> {
        let wrong = || PublishError::Item(item.experiment_id.clone());
        let digest = Digest::try_from(&item.digest[..]).map_err(|_| wrong())?;
        let Some(revision) = self.registry.by_digest(digest) else { return Ok(None) };
        let policy = Policy {
            version: item.policy_version,
            weights: Weights::new(&item.weights).map_err(|_| wrong())?,
            time_to_live_seconds: item.time_to_live_seconds,
        };
        let of_item = |experiment: &Arc<PublishedExperiment>| {
            let is_of_item = experiment.specification.digest() == digest;
            is_of_item.then(|| PublishedExperiment::clone(experiment))
        };
        // A later revision, which the next epoch says, has other signatures. What is served already
        // has those of this one.
        let id = revision.experiment.id();
        let served = || self.served.with(id, |served| of_item(&served.experiment)).flatten();
        let found = of_item(&revision.experiment.serving()).or_else(served);
        let Some(experiment) = found else { return Ok(None) };
        let said = PublishedExperiment { policy: Arc::new(policy), ..experiment };
        // Of what is served, whatever it was made from.
        let hash = specification_hash(&said.specification);
        let value = experiment_value(&hash, &said.policy, self.store);
        if value == item.value[..] { Ok(Some(said)) } else { Err(wrong()) }
    }
}

fn epoch_of(time: UnixSeconds, items: &[LogItem]) -> Result<Epoch, PublishError> {
    let values = items.iter().map(|item| {
        let wrong = || PublishError::Item(item.experiment_id.clone());
        let subject = match item.experiment_id.as_str() {
            "" => Subject::GatewayKeys,
            id => Subject::Experiment(ExperimentId::new(id).map_err(|_| wrong())?),
        };
        let value = item.value[..].try_into().map_err(|_| wrong())?;
        Ok((subject.key(), value))
    });
    Ok(Epoch::new(time, values.collect::<Result<Vec<_>, PublishError>>()?))
}

/// Why there is no new epoch, or it is not served.
#[derive(Debug, Error)]
enum PublishError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Witness(#[from] CosigningError),
    #[error("the epoch {0} of the log can't be read")]
    Content(u64),
    #[error("what the log says of {0:?} can't be read")]
    Item(String),
    #[error("the server ends")]
    Ended,
}
