//! A witness: cosigns a checkpoint of a log if it continues the last one that it has seen (C2SP
//! tlog-witness).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body as PageBody;
use axum::extract::Request;
use bandana_edge::clock::Clock;
use bandana_edge::log_key::{self, LogKeyError};
use bandana_edge::memory::received;
use bandana_shared::identity::UnixSeconds;
use bandana_shared::transparency::{
    Checkpoint, Hash, Note, NoteKey, NoteSigner, Role, read_hash, write_hash,
};
use ct_merkle::{ConsistencyProof, RootHash};
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The path of the one call of a witness.
pub const ADD_CHECKPOINT: &str = "/add-checkpoint";

/// Most hashes of a proof.
pub const PROOF_MAX: usize = 63;

/// Most bytes of a request.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// The type of an answer that says the size that the witness knows.
const SIZE_TYPE: &str = "text/x.tlog.size";

/// The file of what a witness has seen, in its directory, and its first line.
const FILE: &str = "checkpoints";
const TITLE: &str = "bandana witness 1\n\n";

/// The text of a request: the size that the witness knows, a proof, and a signed checkpoint.
pub fn request_text(old: u64, proof: &[Hash], note: &str) -> String {
    let mut text = format!("old {old}\n");
    for hash in proof {
        text.push_str(&write_hash(hash));
        text.push('\n');
    }
    text.push('\n');
    text.push_str(note);
    text
}

/// A request, read.
struct Addition<'r> {
    old: u64,
    proof: Vec<Hash>,
    note: &'r str,
}

fn read_request(text: &str) -> Option<Addition<'_>> {
    let (head, note) = text.split_once("\n\n")?;
    let mut lines = head.lines();
    let digits = lines.next()?.strip_prefix("old ")?;
    let old: u64 = digits.parse().ok()?;
    if old.to_string() != digits {
        return None;
    }
    let proof: Vec<Hash> = lines.map(read_hash).collect::<Option<_>>()?;
    (proof.len() <= PROOF_MAX).then_some(Addition { old, proof, note })
}

/// Settings of a witness.
#[derive(Clone, Debug)]
pub struct WitnessSettings {
    /// The file of the secret key.
    pub key: PathBuf,
    /// The logs that it watches.
    pub logs: Vec<NoteKey>,
    /// The directory of what it has seen.
    pub directory: PathBuf,
    /// Whether that directory is made; otherwise it must be there.
    pub is_new: bool,
    /// The least time between two sizes of a log that it cosigns.
    pub interval: Duration,
}

/// A witness.
#[derive(Debug)]
pub(crate) struct Witness {
    signer: NoteSigner,
    logs: Vec<NoteKey>,
    interval: Duration,
    directory: PathBuf,
    /// The last checkpoint of each log, as it is in the file; held while one is judged and stored, so
    /// that none goes back.
    seen: Mutex<Seen>,
    clock: Arc<dyn Clock>,
    _lock: File,
}

#[derive(Debug, Default)]
struct Seen {
    checkpoints: BTreeMap<String, Checkpoint>,
    /// When each log last grew, by the monotonic clock.
    grown: BTreeMap<String, Duration>,
}

impl Witness {
    /// Opens a witness, alone on its directory.
    ///
    /// # Errors
    /// [`WitnessError`] when the directory or the file in it can't be used.
    pub(crate) fn open(
        settings: WitnessSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, WitnessError> {
        let WitnessSettings { key, logs, directory, is_new, interval } = settings;
        let signer = log_key::read(&key, Role::Witness)?;
        let failed = |source| WitnessError::Directory { path: directory.clone(), source };
        let path = directory.join(FILE);
        if is_new && !path.exists() {
            fs::create_dir_all(&directory).map_err(failed)?;
            replace(&directory, &BTreeMap::new()).map_err(failed)?;
        }
        let lock = File::create(directory.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|_| WitnessError::Locked { path: directory.clone() })?;
        let checkpoints = match fs::read_to_string(&path) {
            Ok(text) => read_seen(&text).ok_or(WitnessError::Damaged { path })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(WitnessError::Missing { path });
            }
            Err(source) => return Err(failed(source)),
        };
        for log in logs.iter().filter(|log| !checkpoints.contains_key(log.name())) {
            tracing::warn!(
                log = log.name(),
                "the witness has seen nothing of this log: it signs the first state that it is shown"
            );
        }
        // It may have cosigned right before it ended.
        let now = clock.monotonic();
        let grown = checkpoints.keys().map(|origin| (origin.clone(), now)).collect();
        let seen = Mutex::new(Seen { checkpoints, grown });
        tracing::info!(witness = %signer.public(), logs = logs.len(), "witness");
        Ok(Self { signer, logs, interval, directory, seen, clock, _lock: lock })
    }

    /// The answer to a request to add a checkpoint.
    pub(crate) async fn answer(self: Arc<Self>, request: Request) -> Response<PageBody> {
        let Ok(body) = received(request.into_body(), REQUEST_BYTES_MAX, |_| true).await else {
            return Refused::Malformed.response();
        };
        // It waits for the disk.
        let added = tokio::task::spawn_blocking(move || match str::from_utf8(&body) {
            Ok(text) => self.add(text),
            Err(_) => Err(Refused::Malformed),
        });
        match added.await {
            Ok(Ok(line)) => Response::new(PageBody::from(line)),
            Ok(Err(refused)) => refused.response(),
            Err(_) => Refused::Disk.response(),
        }
    }

    /// Judges a checkpoint, stores it, and cosigns it.
    fn add(&self, text: &str) -> Result<String, Refused> {
        let Addition { old, proof, note } = read_request(text).ok_or(Refused::Malformed)?;
        let note = Note::parse(note).ok_or(Refused::Malformed)?;
        let checkpoint = Checkpoint::from_text(&note.text).ok_or(Refused::Malformed)?;
        let mut keys = self.logs.iter().filter(|key| key.name() == checkpoint.origin).peekable();
        if keys.peek().is_none() {
            return Err(Refused::Unknown);
        }
        if !keys.any(|key| note.signature(key).is_some()) {
            return Err(Refused::Signature);
        }
        if old > checkpoint.size {
            return Err(Refused::Malformed);
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = &checkpoint.origin;
        let known = seen.checkpoints.get(origin);
        let size = known.map_or(0, |known| known.size);
        if old != size {
            return Err(Refused::Size(size));
        }
        let is_the_same = known.is_some_and(|known| *known == checkpoint);
        if let Some(known) = known.filter(|_| size > 0) {
            if !continues(known, &checkpoint, &proof) {
                tracing::error!(
                    log = %origin, known = %known.text().replace('\n', " "),
                    offered = %note.text.replace('\n', " "),
                    "a log is not what it was: it shows two views, or went back"
                );
                return Err(if known.size == checkpoint.size {
                    Refused::Size(size)
                } else {
                    Refused::Proof
                });
            }
        } else if !proof.is_empty() || checkpoint.size == 0 {
            return Err(Refused::Proof);
        }
        let now = self.clock.monotonic();
        if !is_the_same {
            let grown = seen.grown.get(origin);
            if grown.is_some_and(|grown| now.saturating_sub(*grown) < self.interval) {
                return Err(Refused::Soon);
            }
            let before = seen.checkpoints.insert(origin.clone(), checkpoint.clone());
            if let Err(error) = replace(&self.directory, &seen.checkpoints) {
                // What is not on the disk is not known after a restart, and was not cosigned.
                match before {
                    Some(before) => seen.checkpoints.insert(origin.clone(), before),
                    None => seen.checkpoints.remove(origin),
                };
                tracing::error!(%error, "the witness can't store what it has seen, and cosigns nothing");
                return Err(Refused::Disk);
            }
            seen.grown.insert(origin.clone(), now);
        }
        let time = UnixSeconds::new(self.clock.unix_seconds());
        let cosignature = self.signer.cosign(&note.text, time);
        Ok(self.signer.public().line(&cosignature.content()))
    }
}

/// Replaces the file in a witness's directory, durably.
fn replace(directory: &Path, checkpoints: &BTreeMap<String, Checkpoint>) -> io::Result<()> {
    let (path, next) = (directory.join(FILE), directory.join("checkpoints.next"));
    let mut file = File::create(&next)?;
    file.write_all(write_seen(checkpoints).as_bytes())?;
    file.sync_all()?;
    fs::rename(&next, &path)?;
    File::open(directory)?.sync_all()
}

/// Whether a checkpoint's tree begins with that of an earlier one, as this proof says.
fn continues(known: &Checkpoint, checkpoint: &Checkpoint, proof: &[Hash]) -> bool {
    if known.size == checkpoint.size {
        return known.root == checkpoint.root && proof.is_empty();
    }
    let root = |one: &Checkpoint| RootHash::<Sha256>::new(one.root.into(), one.size);
    let proof = ConsistencyProof::try_from_bytes(proof.concat());
    proof.is_ok_and(|proof| root(checkpoint).verify_consistency(&root(known), &proof).is_ok())
}

/// The text of the file: the checkpoints, with a line after each, and a hash of all of it. A file that
/// was cut off is damaged.
fn write_seen(checkpoints: &BTreeMap<String, Checkpoint>) -> String {
    let blocks = checkpoints.values().map(|checkpoint| checkpoint.text() + "\n");
    let mut text: String = std::iter::once(TITLE.to_owned()).chain(blocks).collect();
    let sum = write_hash(&Sha256::digest(&text).into());
    text.push_str("sum ");
    text.push_str(&sum);
    text.push('\n');
    text
}

fn read_seen(text: &str) -> Option<BTreeMap<String, Checkpoint>> {
    let checkpoint = |text: &str| Checkpoint::from_text(&format!("{text}\n"));
    let (blocks, _) = text.strip_prefix(TITLE)?.rsplit_once("sum ")?;
    let texts = blocks.split_terminator("\n\n").map(checkpoint);
    let checkpoints: Vec<Checkpoint> = texts.collect::<Option<_>>()?;
    let named = checkpoints.into_iter().map(|one| (one.origin.clone(), one));
    let seen: BTreeMap<_, _> = named.collect();
    (write_seen(&seen) == text).then_some(seen)
}

/// Why a checkpoint is not cosigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Malformed,
    Unknown,
    Signature,
    /// The witness knows this size.
    Size(u64),
    Proof,
    Soon,
    Disk,
}

impl Refused {
    fn response(self) -> Response<PageBody> {
        let (status, text) = match self {
            Self::Malformed => {
                (StatusCode::BAD_REQUEST, "this is not a checkpoint to add\n".to_owned())
            }
            Self::Unknown => {
                (StatusCode::NOT_FOUND, "this witness does not watch this log\n".to_owned())
            }
            Self::Signature => (StatusCode::FORBIDDEN, "the log has not signed this\n".to_owned()),
            Self::Size(size) => (StatusCode::CONFLICT, format!("{size}\n")),
            Self::Proof => {
                let text = "this does not continue what the witness has seen\n";
                (StatusCode::UNPROCESSABLE_ENTITY, text.to_owned())
            }
            Self::Soon => (StatusCode::TOO_MANY_REQUESTS, "the log has just grown\n".to_owned()),
            Self::Disk => (StatusCode::SERVICE_UNAVAILABLE, "nothing can be stored\n".to_owned()),
        };
        let mut response = Response::new(PageBody::from(text));
        *response.status_mut() = status;
        if matches!(self, Self::Size(_)) {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(SIZE_TYPE));
        }
        response
    }
}

/// A witness that can't be opened.
#[derive(Debug, Error)]
pub enum WitnessError {
    /// The key can't be used.
    #[error(transparent)]
    Key(#[from] LogKeyError),
    /// There is no file of what it has seen.
    #[error(
        "there is no {}. If there should be, see whether its disk is mounted; for a new witness, give \
         --witness-init once", path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The directory can't be used.
    #[error("the witness's directory {} can't be used", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("the witness's directory {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The file is not what a witness wrote.
    #[error(
        "{} is damaged. A witness that has forgotten what it saw can be told anything: make one with a \
         new key, or restore the file as it was last", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use bandana_shared::identity::Day;
    use bandana_shared::signing::SigningKey;
    use bandana_shared::transparency::{Epoch, Frontier, View, Witnessed, leaf_hash};

    use super::*;
    use bandana_edge::clock::ManualClock;

    const INTERVAL: Duration = Duration::from_secs(50);
    const SUBJECT: Hash = [7; 32];

    fn log() -> NoteSigner {
        NoteSigner::new("bandana.example/log", Role::Log, SigningKey::from_secret(&[1; 32]))
            .unwrap()
    }

    /// A witness of that log, on this directory.
    fn open(directory: &Path, clock: &Arc<ManualClock>) -> Witness {
        let key = directory.join("key");
        if !key.exists() {
            let secret = SigningKey::from_secret(&[2; 32]);
            let text = log_key::to_text(Role::Witness, "witness.example/1", &secret);
            fs::write(&key, &*text).unwrap();
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (logs, interval) = (vec![log().public().clone()], INTERVAL);
        let directory = directory.join("seen");
        let settings = WitnessSettings { key, logs, directory, is_new: true, interval };
        Witness::open(settings, Arc::clone(clock) as Arc<dyn Clock>).unwrap()
    }

    /// A log that says another value in each epoch.
    #[derive(Default)]
    struct Growing(Vec<(Frontier, Hash)>);

    impl Growing {
        fn value(size: usize) -> Hash {
            let mut value = [0; 32];
            value[..8].copy_from_slice(&size.to_be_bytes());
            value
        }

        /// Hands in a further epoch, which is none if the witness refuses. Its view, if it is cosigned.
        fn grow(&mut self, witness: &Witness, time: u64) -> Result<View, Refused> {
            let before = self.0.last().map(|(log, _)| log.clone()).unwrap_or_default();
            let (mut tree, time) = (before.clone(), UnixSeconds::new(time));
            let epoch = Epoch::new(time, [(SUBJECT, Self::value(self.0.len()))]);
            let leaf = leaf_hash(&epoch.entry());
            tree.push(leaf);
            let proof = if before.size() == 0 { Vec::new() } else { before.consistency(&[leaf]) };
            let (origin, size) = (log().public().name().to_owned(), tree.size());
            let checkpoint = Checkpoint { origin, size, root: tree.root() };
            let note = log().note(&checkpoint);
            let line = witness.add(&request_text(before.size(), &proof, &note))?;
            let note = Note::parse(&note).unwrap().with(&line).unwrap();
            self.0.push((tree, leaf));
            Ok(View {
                size,
                path: before.path(),
                time,
                siblings: epoch.siblings(&SUBJECT),
                log_signature: log().sign(&checkpoint.text()),
                cosignatures: vec![note.cosignature(witness.signer.public()).unwrap()],
            })
        }
    }

    #[test]
    fn of_the_views_that_a_server_can_have_a_device_takes_few() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at_day(Day::new(20_000)));
        let witness = open(folder.path(), &clock);
        let mut growing = Growing::default();
        let mut views = Vec::new();
        // Every second for two hours it has another policy cosigned, if it can.
        for _ in 0..7201 {
            clock.pass(1);
            views.extend(growing.grow(&witness, clock.unix_seconds()));
        }
        let pinned = vec![witness.signer.public().clone()];
        let pinned = Witnessed::new(log().public().clone(), pinned, 1).unwrap();
        let now = UnixSeconds::new(clock.unix_seconds());
        let taken = |pinned: &Witnessed| {
            let takes = |(size, view): &(usize, &View)| {
                pinned.check(Some(view), (&SUBJECT, &Growing::value(*size)), 0, now).is_ok()
            };
            views.iter().enumerate().filter(takes).count()
        };
        // As docs/transparency.md says: of an hour, and where arms are kept of ten minutes.
        assert_eq!((views.len(), taken(&pinned), taken(&pinned.for_kept())), (145, 73, 13));
    }

    #[test]
    fn a_file_that_was_cut_off_or_changed_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at_day(Day::new(20_000)));
        Growing::default().grow(&open(folder.path(), &clock), 0).unwrap();
        let text = fs::read_to_string(folder.path().join("seen").join(FILE)).unwrap();
        let seen = read_seen(&text).unwrap();
        assert_eq!(seen.len(), 1);
        for end in 0..text.len() {
            assert!(read_seen(&text[..end]).is_none(), "{end}");
        }
        assert!(read_seen(&text.replace("\n1\n", "\n2\n")).is_none());
        assert!(read_seen(&write_seen(&BTreeMap::new())).is_some_and(|seen| seen.is_empty()));
    }

    #[test]
    fn a_witness_that_starts_again_lets_no_log_grow_sooner() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at_day(Day::new(20_000)));
        let mut growing = Growing::default();
        let witness = open(folder.path(), &clock);
        growing.grow(&witness, 0).unwrap();
        drop(witness);
        let witness = open(folder.path(), &clock);
        assert_eq!(growing.grow(&witness, 0), Err(Refused::Soon));
        clock.pass(INTERVAL.as_secs() - 1);
        assert_eq!(growing.grow(&witness, 0), Err(Refused::Soon));
        clock.pass(1);
        growing.grow(&witness, 0).unwrap();
    }
}
