//! `bandana log`: what a server shows all devices, watched from outside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bandana_edge::clock::{Clock as _, SystemClock};
use bandana_edge::operator_client::{ConnectError, PATIENCE, Patient, TlsSource, Wait};
use bandana_edge::outgoing::with_patience;
use bandana_shared::identity::{ExperimentId, StoreId, UnixSeconds};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::transparency::{
    Checkpoint, Epoch, Frontier, Hash, Note, NoteKey, Role, Subject, Witnessed, experiment_value,
    gateway_value, leaf_hash, read_hash, write_hash,
};
use bandana_shared::wire::v1::transparency_log_client::TransparencyLogClient;
use bandana_shared::wire::v1::{ListEpochsRequest, ListEpochsResponse, LogEpoch, LogItem};
use clap::{Args, Subcommand, ValueHint};
use serde::{Deserialize, Serialize};
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Status};

use super::connection::block_on;
use super::{say, say_json};
use crate::views::failure::Failure;
use crate::views::table::visible;

/// Most epochs of a question.
const PAGE: u32 = 1000;

/// How often a server that answers others is asked again, and after how long.
const TRIES: u32 = 10;
const AGAIN: Duration = Duration::from_secs(2);

/// For how long a server shows what an epoch said, but for a day.
const SHOWN_SECONDS: u64 = 89 * 86_400;

/// Check the public log of a server: what it shows to all devices.
#[derive(Debug, Subcommand)]
pub(super) enum LogCommand {
    Check(Check),
}

/// Read the log of a server, and check all of it.
///
/// It asks the server's device port, as a device does, so anybody can run it. It recomputes every
/// epoch and the tree of all epochs, and checks the signatures of the log and its witnesses. With
/// --state it remembers how far it has read, and goes on from there. It reports a log that does not
/// continue what it has read.
#[derive(Debug, Args)]
#[command(after_long_help = "Fields with --json: log, epochs, read, without_content, \
                             shortest_seconds, latest_unix_seconds, cosigned_by (name, \
                             unix_seconds), experiments (experiment_id, policies, weights). The \
                             exit code is 4 if a check fails.")]
pub(super) struct Check {
    /// URL of the device service.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7301",
          value_hint = ValueHint::Url)]
    server: Uri,
    /// Key of the log, as `bandana log-key` printed it.
    #[arg(long, value_name = "NAME+ID+KEY")]
    log: NoteKey,
    /// Key of a witness that must have cosigned. Repeat the flag for each.
    #[arg(long = "witness", value_name = "NAME+ID+KEY")]
    witnesses: Vec<NoteKey>,
    /// File that remembers how far the log was read. It is made if there is none.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsSource,
    #[command(flatten)]
    wait: Wait,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

/// How far a log was read.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    log: String,
    size: u64,
    roots: Vec<String>,
    /// The time of the last epoch, and when it was read.
    #[serde(default)]
    latest_unix_seconds: u64,
    #[serde(default)]
    checked_unix_seconds: u64,
}

/// What was read before.
#[derive(Debug, Default)]
struct Before {
    log: Frontier,
    /// The time of its last epoch, and when that was read; none if nothing was.
    times: Option<(u64, u64)>,
}

/// Stable JSON form of what was read.
#[derive(Debug, Default, Serialize)]
struct LogView {
    log: String,
    epochs: u64,
    read: u64,
    without_content: u64,
    shortest_seconds: Option<u64>,
    latest_unix_seconds: u64,
    cosigned_by: Vec<CosignedBy>,
    experiments: BTreeMap<String, ExperimentView>,
}

#[derive(Debug, Serialize)]
struct CosignedBy {
    name: String,
    unix_seconds: u64,
}

/// What the log says of an experiment, in the epochs that were read.
#[derive(Debug, Default, Serialize)]
struct ExperimentView {
    policies: u64,
    weights: Vec<u64>,
}

pub(super) fn run(command: &LogCommand) -> anyhow::Result<()> {
    let LogCommand::Check(check) = command;
    let before = check.before()?;
    let (view, read) = block_on(check.read(before))?;
    if let Some(path) = &check.state {
        keep(path, &check.log, &read)?;
    }
    if check.json { say_json(&view) } else { say(&view.describe()) }
}

impl LogView {
    fn describe(&self) -> String {
        let Self { epochs, read, without_content, .. } = self;
        let log = visible(&self.log);
        let mut lines = vec![format!("{log}: epochs: {epochs}, read now: {read}, all in order")];
        if *read > 0 {
            let latest = UnixSeconds::new(self.latest_unix_seconds);
            lines.push(format!("the latest is of {latest}"));
        }
        if *without_content > 0 {
            lines.push(format!("{without_content} of them have only their hash left"));
        }
        if let Some(seconds) = self.shortest_seconds {
            lines.push(format!("the shortest time between two epochs was {seconds} s"));
        }
        for witness in &self.cosigned_by {
            let time = UnixSeconds::new(witness.unix_seconds);
            lines.push(format!("cosigned by {} at {time}", visible(&witness.name)));
        }
        for (id, experiment) in &self.experiments {
            let total = experiment.weights.iter().sum::<u64>().max(1);
            let share = |weight: &u64| format!("{:.3}", *weight as f64 / total as f64);
            let shares: Vec<String> = experiment.weights.iter().map(share).collect();
            let (id, policies) = (visible(id), experiment.policies);
            lines.push(format!("{id}: {policies} policies; now {}", shares.join(" ")));
        }
        lines.join("\n") + "\n"
    }
}

impl Check {
    /// The log as it was read before.
    fn before(&self) -> anyhow::Result<Before> {
        if self.log.role() != Role::Log {
            return Err(Failure::Incomplete(
                "--log is the key of a witness; give the key of the log".to_owned(),
            )
            .into());
        }
        let Some(path) = self.state.as_ref().filter(|path| path.exists()) else {
            return Ok(Before::default());
        };
        let unusable =
            || format!("{} is not a file that --state wrote; name another one", path.display());
        let state: State = serde_json::from_slice(&std::fs::read(path).with_context(unusable)?)
            .with_context(unusable)?;
        if state.log != self.log.to_string() {
            let what = format!(
                "{} is about another log, {}; name another file",
                path.display(),
                visible(&state.log)
            );
            return Err(Failure::Incomplete(what).into());
        }
        let roots: Option<Vec<Hash>> = state.roots.iter().map(|root| read_hash(root)).collect();
        let log = roots.and_then(|roots| Frontier::new(state.size, roots));
        let times = (state.latest_unix_seconds, state.checked_unix_seconds);
        Ok(Before { log: log.with_context(unusable)?, times: (times.1 > 0).then_some(times) })
    }

    async fn read(&self, before: Before) -> anyhow::Result<(LogView, Before)> {
        let Before { mut log, times } = before;
        let mut client = TransparencyLogClient::new(self.channel().await?);
        let mut ask = async |first| -> anyhow::Result<ListEpochsResponse> {
            let mut tries = 0;
            loop {
                tries += 1;
                let asked = client.list_epochs(ListEpochsRequest { first, limit: PAGE });
                let answer = tokio::time::timeout(PATIENCE, asked).await;
                match answer.context("the server does not answer")? {
                    Err(busy) if busy.code() == Code::ResourceExhausted && tries < TRIES => {
                        tokio::time::sleep(AGAIN).await;
                    }
                    Err(status) => return Err(Failure::from(status).into()),
                    Ok(answer) => return Ok(answer.into_inner()),
                }
            }
        };
        let first = ask(log.size()).await?;
        let now = SystemClock::new().unix_seconds();
        let (note, checkpoint) = self.checkpoint(&first, log.size(), now)?;
        let store = StoreId::try_from(&first.store_id[..])
            .map_err(|_| wrong("the server does not name its store"))?;
        let mut reading = Reading::new(self.log.name(), store, times, now);
        let mut page = first.epochs;
        while log.size() < checkpoint.size {
            if page.is_empty() {
                page = ask(log.size()).await?.epochs;
            }
            if page.is_empty() {
                let missing = log.size();
                return Err(wrong(format!("the server does not show epoch {missing} of its log")));
            }
            for epoch in page.drain(..).take_while(|epoch| epoch.number < checkpoint.size) {
                reading.add(&mut log, &epoch).map_err(wrong)?;
            }
        }
        if log.root() != checkpoint.root {
            let what = "the epochs are not those that the log has signed, or not a continuation of what \
                        was read before: the server shows two logs";
            return Err(wrong(what));
        }
        let cosigned_by = self.cosigned(&note, now)?;
        let latest = reading.ended().map_err(wrong)?;
        let times = latest.map(|latest| (latest, now));
        let mut view = reading.view;
        (view.epochs, view.cosigned_by) = (checkpoint.size, cosigned_by);
        Ok((view, Before { log, times }))
    }

    /// The checkpoint that the server shows, if the log has signed it.
    fn checkpoint(
        &self,
        answer: &ListEpochsResponse,
        known: u64,
        now: u64,
    ) -> anyhow::Result<(Note, Checkpoint)> {
        if answer.checkpoint.is_empty() {
            let what = "the server shows no checkpoint of its log yet: it has just started, or its \
                        witnesses do not answer; ask again later";
            return Err(Failure::from(Status::unavailable(what)).into());
        }
        let note = Note::parse(&answer.checkpoint);
        let note = note.ok_or_else(|| wrong("the server shows no checkpoint of its log"))?;
        if note.signature(&self.log).is_none() {
            return Err(wrong("the checkpoint is not signed by this log's key"));
        }
        let checkpoint = Checkpoint::from_text(&note.text)
            .filter(|checkpoint| checkpoint.origin == self.log.name())
            .ok_or_else(|| wrong("the checkpoint is one of another log"))?;
        let size = checkpoint.size;
        if size < known {
            // No witness signs an older state again, so a replica can be behind for an hour at most.
            let is_signed_lately = !self.witnesses.is_empty() && self.cosigned(&note, now).is_ok();
            let went_back = format!("the log has {size} epochs, and had {known}");
            return Err(if is_signed_lately {
                let what = "the server may be a replica that is behind; ask again later";
                Failure::from(Status::unavailable(format!("{went_back}: {what}"))).into()
            } else {
                wrong(format!("{went_back}: it went back"))
            });
        }
        Ok((note, checkpoint))
    }

    /// The witnesses, each of which must have cosigned within the hour.
    fn cosigned(&self, note: &Note, now: u64) -> anyhow::Result<Vec<CosignedBy>> {
        let cosigned = |witness: &NoteKey| {
            let name = witness.name().to_owned();
            let cosignature = note.cosignature(witness).ok_or_else(|| {
                wrong(format!("the witness {name} has not cosigned the present state of the log"))
            })?;
            let (time, unix_seconds) = (cosignature.time, cosignature.time.get());
            if unix_seconds.abs_diff(now) > Witnessed::FRESHNESS.as_secs() {
                return Err(wrong(format!(
                    "the witness {name} has cosigned this at {time}, more than an hour from now: \
                     devices take nothing so old, and there may be a later state"
                )));
            }
            Ok(CosignedBy { name, unix_seconds })
        };
        self.witnesses.iter().map(cosigned).collect()
    }

    async fn channel(&self) -> Result<Patient, ConnectError> {
        let endpoint = self.tls.apply(Endpoint::from(self.server.clone()))?;
        let endpoint = with_patience(endpoint, PATIENCE, PATIENCE);
        self.wait.connect(&endpoint).await.map_err(|source| {
            ConnectError::unreachable("device service", &endpoint, self.wait, source)
        })
    }
}

/// What is not as it must be.
fn wrong(what: impl Into<String>) -> anyhow::Error {
    Failure::Refused(what.into()).into()
}

/// Epochs while they are read.
struct Reading {
    store: StoreId,
    now: u64,
    /// When the log was last looked at.
    looked: Option<u64>,
    before: Option<u64>,
    /// Whether the last epoch has only its hash.
    is_hidden: bool,
    values: BTreeMap<String, Vec<u8>>,
    view: LogView,
}

impl Reading {
    fn new(log: &str, store: StoreId, times: Option<(u64, u64)>, now: u64) -> Self {
        let view = LogView { log: log.to_owned(), ..LogView::default() };
        let (before, looked) = times.unzip();
        Self { store, now, looked, before, is_hidden: false, values: BTreeMap::new(), view }
    }

    /// Whether a time is so long ago that the server need not show what epochs said then.
    fn is_old(&self, unix_seconds: u64) -> bool {
        self.now.saturating_sub(unix_seconds) >= SHOWN_SECONDS
    }

    /// The time of the last epoch, which the server has to show, and which is not of the future.
    fn ended(&self) -> Result<Option<u64>, String> {
        if self.is_hidden {
            return Err("the server does not show what its last epoch says".to_owned());
        }
        match self.before {
            Some(latest) if latest > self.now + Witnessed::FRESHNESS.as_secs() => {
                let latest = UnixSeconds::new(latest);
                Err(format!("the last epoch is of {latest}, more than an hour from now"))
            }
            latest => Ok(latest),
        }
    }

    /// Checks an epoch, and adds it to the log.
    fn add(&mut self, log: &mut Frontier, epoch: &LogEpoch) -> Result<(), String> {
        let number = epoch.number;
        if number != log.size() {
            return Err(format!("the server sent epoch {} in the place of {}", number, log.size()));
        }
        let entry: Hash =
            epoch.entry[..].try_into().map_err(|_| format!("epoch {number} has no entry"))?;
        let time = UnixSeconds::new(epoch.unix_seconds);
        self.is_hidden = epoch.items.is_empty() && Epoch::new(time, []).entry() != entry;
        if self.is_hidden {
            // The server says the time of an epoch. When it was looked at it does not.
            let is_new = self.looked.is_some_and(|looked| !self.is_old(looked));
            if is_new || !self.is_old(epoch.unix_seconds) {
                return Err(format!("the server does not show what epoch {number} says"));
            }
            self.view.without_content += 1;
        } else {
            let values = epoch.items.iter().map(|item| self.value(item));
            let values: Option<Vec<(Hash, Hash)>> = values.collect();
            let says = values.map(|values| Epoch::new(time, values));
            if says.map(|says| says.entry()) != Some(entry) {
                return Err(format!("epoch {number} does not say what its entry in the log says"));
            }
            for item in epoch.items.iter().filter(|item| !item.experiment_id.is_empty()) {
                let id = &item.experiment_id;
                let seen = self.view.experiments.entry(id.clone()).or_default();
                if self.values.insert(id.clone(), item.value.to_vec()).as_deref()
                    != Some(&item.value)
                {
                    seen.policies += 1;
                    seen.weights.clone_from(&item.weights);
                }
            }
        }
        if let Some(before) = self.before {
            let apart = epoch.unix_seconds.checked_sub(before);
            let apart =
                apart.ok_or_else(|| format!("epoch {number} is earlier than the one before"))?;
            let shortest = self.view.shortest_seconds;
            self.view.shortest_seconds = Some(shortest.map_or(apart, |known| known.min(apart)));
        }
        self.before = Some(epoch.unix_seconds);
        (self.view.read, self.view.latest_unix_seconds) = (self.view.read + 1, epoch.unix_seconds);
        log.push(leaf_hash(&entry));
        Ok(())
    }

    /// The key and the value of an item, if it says what its value is about.
    fn value(&self, item: &LogItem) -> Option<(Hash, Hash)> {
        let (subject, value) = if item.experiment_id.is_empty() {
            let keys = bandana_shared::gateway::GatewayKeys::new(&item.key_configurations).ok()?;
            (Subject::GatewayKeys, gateway_value(&keys))
        } else {
            let policy = Policy {
                version: item.policy_version,
                weights: Weights::new(&item.weights).ok()?,
                time_to_live_seconds: item.time_to_live_seconds,
            };
            let specification: Hash = item.specification_hash[..].try_into().ok()?;
            let id = ExperimentId::new(item.experiment_id.clone()).ok()?;
            (Subject::Experiment(id), experiment_value(&specification, &policy, self.store))
        };
        (item.value == value[..]).then(|| (subject.key(), value))
    }
}

/// Replaces the file that says how far the log was read.
fn keep(path: &Path, key: &NoteKey, read: &Before) -> anyhow::Result<()> {
    let Before { log, times } = read;
    let roots = log.roots().iter().map(write_hash).collect();
    let (latest_unix_seconds, checked_unix_seconds) = times.unwrap_or_default();
    let (log, size) = (key.to_string(), log.size());
    let state = State { log, size, roots, latest_unix_seconds, checked_unix_seconds };
    let next = path.with_added_extension("next");
    let written = std::fs::write(&next, serde_json::to_string(&state)? + "\n");
    let kept = written.and_then(|()| std::fs::rename(&next, path));
    kept.with_context(|| format!("can't write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use bandana_shared::signing::SigningKey;
    use bandana_shared::transparency::NoteSigner;
    use clap::Parser;

    use super::super::failure::exit_code;
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn item(weights: &[u64]) -> LogItem {
        let policy = Policy {
            version: 3,
            weights: Weights::new(weights).unwrap(),
            time_to_live_seconds: 60,
        };
        let value = experiment_value(&[8; 32], &policy, StoreId::new([1; 16]));
        LogItem {
            experiment_id: "colours".to_owned(),
            specification_hash: vec![8; 32].into(),
            value: value.to_vec().into(),
            policy_version: 3,
            weights: weights.to_vec(),
            time_to_live_seconds: 60,
            ..LogItem::default()
        }
    }

    fn epoch(number: u64, unix_seconds: u64, items: Vec<LogItem>) -> LogEpoch {
        let key = Subject::Experiment(ExperimentId::new("colours").unwrap()).key();
        let values = items.iter().map(|item| (key, item.value[..].try_into().unwrap()));
        let entry = Epoch::new(UnixSeconds::new(unix_seconds), values).entry();
        LogEpoch { number, unix_seconds, entry: entry.to_vec().into(), items }
    }

    /// The same, after a look in which the last epoch had the first of these times, at the second.
    fn wrong_since(times: Option<(u64, u64)>, epochs: &[LogEpoch]) -> Option<String> {
        let mut reading = Reading::new("log", StoreId::new([1; 16]), times, NOW);
        let mut log = Frontier::default();
        let wrong = epochs.iter().find_map(|epoch| reading.add(&mut log, epoch).err());
        wrong.or_else(|| reading.ended().err())
    }

    /// What is wrong with these epochs, if something is.
    fn wrong_with(epochs: &[LogEpoch]) -> Option<String> {
        wrong_since(None, epochs)
    }

    #[test]
    fn an_epoch_says_what_its_entry_says_or_is_old() {
        let (even, one) = ([1 << 31, 1 << 31], [1 << 32, 0]);
        let good = epoch(0, NOW - 60, vec![item(&even)]);
        assert_eq!(wrong_with(&[good.clone(), epoch(1, NOW, vec![item(&one)])]), None);
        assert_eq!(wrong_with(&[epoch(0, NOW, Vec::new())]), None, "there was no experiment");

        let shown = LogItem { weights: one.to_vec(), ..item(&even) };
        let lies = [
            LogEpoch { items: vec![shown], ..good.clone() },
            LogEpoch { items: vec![item(&one)], ..good.clone() },
            LogEpoch { unix_seconds: NOW, ..good.clone() },
            LogEpoch { number: 1, ..good.clone() },
            // Hidden, long before it may be.
            LogEpoch { items: Vec::new(), ..good.clone() },
        ];
        for lie in lies {
            assert!(wrong_with(std::slice::from_ref(&lie)).is_some(), "{lie:?}");
        }
        assert!(wrong_with(&[good, epoch(1, NOW - 61, vec![item(&one)])]).is_some());
        // Old ones may have their hash alone, but for the last one.
        let hidden = |number, time, weights| LogEpoch {
            items: Vec::new(),
            ..epoch(number, time, vec![item(weights)])
        };
        let old = hidden(0, NOW - SHOWN_SECONDS, &even);
        assert!(wrong_with(std::slice::from_ref(&old)).is_some());
        assert_eq!(wrong_with(&[old.clone(), epoch(1, NOW, vec![item(&one)])]), None);
        // Not those since a look of yesterday, whatever time the server says.
        let since = [old, epoch(1, NOW, vec![item(&one)])];
        let yesterday = NOW - 86_400;
        assert!(wrong_since(Some((0, yesterday)), &since).is_some());
        assert_eq!(wrong_since(Some((0, NOW - SHOWN_SECONDS)), &since), None);
        // Nor does time go back between two looks, or ahead of the watcher's clock.
        let next = epoch(0, NOW, vec![item(&one)]);
        assert!(wrong_since(Some((NOW + 1, yesterday)), std::slice::from_ref(&next)).is_some());
        assert_eq!(wrong_since(Some((NOW, yesterday)), &[next]), None);
        assert!(wrong_with(&[epoch(0, NOW + 3601, vec![item(&one)])]).is_some());
    }

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        check: Check,
    }

    /// The exit code of a look at a log of two epochs by somebody who has seen three, so long after a
    /// witness has signed it.
    fn code_of_an_older_state(seconds: u64, is_witnessed: bool) -> u8 {
        let signer =
            |name, role| NoteSigner::new(name, role, SigningKey::from_secret(&[7; 32])).unwrap();
        let (log, witness) = (signer("log", Role::Log), signer("witness", Role::Witness));
        let checkpoint = Checkpoint { origin: "log".to_owned(), size: 2, root: [3; 32] };
        let time = UnixSeconds::new(NOW - seconds);
        let cosignature = witness.cosign(&checkpoint.text(), time).content();
        let checkpoint = log.note(&checkpoint) + &witness.public().line(&cosignature);
        let (log, witness) = (log.public().to_string(), witness.public().to_string());
        let mut words = vec!["check", "--log", &log];
        words.extend(is_witnessed.then_some(["--witness", &witness]).into_iter().flatten());
        let Program { check } = Program::parse_from(words);
        let answer = ListEpochsResponse { checkpoint, ..ListEpochsResponse::default() };
        assert!(check.checkpoint(&answer, 2, NOW).is_ok());
        exit_code(&check.checkpoint(&answer, 3, NOW).unwrap_err())
    }

    #[test]
    fn a_replica_that_is_behind_is_asked_again_and_for_an_hour_at_most() {
        assert_eq!(code_of_an_older_state(60, true), 5);
        assert_eq!(code_of_an_older_state(3601, true), 4);
        // Nobody says that it is no older.
        assert_eq!(code_of_an_older_state(60, false), 4);
    }
}
