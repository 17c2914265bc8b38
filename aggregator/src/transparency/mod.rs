//! The public log of what devices are told: its epochs, its witnesses, and what it says now.
//!
//! `docs/transparency.md` explains it. One task writes epochs, has witnesses cosign them, and
//! publishes what devices are then served: [`Publisher`]. Replicas do the same over one table, and the
//! database decides whose epoch is the next one.

mod cosigning;
mod metrics;
mod publisher;
mod served;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::transparency::{NoteKey, NoteSigner, Role, WITNESSES_MAX};
use thiserror::Error;
use tonic::transport::Endpoint;

pub(crate) use metrics::LogMetrics;
pub(crate) use publisher::{Publisher, PublisherParts};
pub(crate) use served::{LoggedExperiment, Served};

use bandana_edge::explain::explain;
use bandana_edge::log_key::{self, LogKeyError};
use bandana_edge::regular_file;

/// Most bytes of the file of witnesses.
const WITNESSES_BYTES_MAX: u64 = 16 * 1024;

/// Settings of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The log's secret key.
    pub key: PathBuf,
    /// The file of witnesses: a line for each, with its key and URL.
    pub witnesses: Option<PathBuf>,
    /// How many of them must have cosigned an epoch before it is served; `None`: all.
    pub quorum: Option<usize>,
    /// The least time between two epochs.
    pub epoch: Duration,
}

/// A witness, and where it is asked.
#[derive(Clone, Debug)]
pub(crate) struct WitnessAddress {
    pub(crate) key: NoteKey,
    pub(crate) endpoint: Endpoint,
}

/// What a log is made of before the store is open.
#[derive(Debug)]
pub(crate) struct LogParts {
    pub(crate) signer: NoteSigner,
    pub(crate) witnesses: Vec<WitnessAddress>,
    pub(crate) quorum: usize,
    pub(crate) epoch: Duration,
    pub(crate) served: Arc<Served>,
}

impl LogParts {
    /// Reads the files of a log.
    ///
    /// # Errors
    /// [`LogError`] when one of them can't be used.
    pub(crate) fn open(settings: &LogSettings) -> Result<Self, LogError> {
        let signer = log_key::read(&settings.key, Role::Log)?;
        let witnesses = settings.witnesses.as_deref().map(read_witnesses).transpose()?;
        let witnesses = witnesses.unwrap_or_default();
        let quorum = settings.quorum.unwrap_or(witnesses.len());
        let is_most = 2 * quorum > witnesses.len() || witnesses.is_empty();
        if quorum > witnesses.len() || !is_most {
            return Err(LogError::Quorum { quorum, witnesses: witnesses.len() });
        }
        if witnesses.is_empty() {
            tracing::warn!(
                "the public log has no witnesses: devices that ask for some take nothing"
            );
        }
        tracing::info!(log = %signer.public(), witnesses = witnesses.len(), quorum, "public log");
        Ok(Self { signer, witnesses, quorum, epoch: settings.epoch, served: Arc::default() })
    }
}

fn read_witnesses(path: &Path) -> Result<Vec<WitnessAddress>, LogError> {
    use std::io::Read as _;
    let failed = |source| LogError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = regular_file::open(path).map_err(failed)?;
    file.take(WITNESSES_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let mut witnesses: Vec<WitnessAddress> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: String| LogError::Line { path: path.to_owned(), line: number + 1, what };
        let (key, url) = line.split_once(char::is_whitespace).ok_or_else(|| {
            wrong("a witness is written NAME+ID+KEY URL, separated by a blank".to_owned())
        })?;
        let key: NoteKey = key.parse().map_err(|error| wrong(explain(&error)))?;
        if key.role() != Role::Witness {
            return Err(wrong("this is the key of a log; give the key of a witness".to_owned()));
        }
        if witnesses.iter().any(|known| known.key == key) {
            return Err(wrong(format!("the witness {} is there twice", key.name())));
        }
        let endpoint = endpoint(url.trim()).map_err(|what| wrong(what.to_owned()))?;
        witnesses.push(WitnessAddress { key, endpoint });
    }
    if witnesses.len() > WITNESSES_MAX {
        return Err(LogError::TooMany { path: path.to_owned(), witnesses: witnesses.len() });
    }
    Ok(witnesses)
}

fn endpoint(url: &str) -> Result<Endpoint, &'static str> {
    let form = "the URL of a witness begins with https://, or with http:// on this machine";
    let endpoint = Endpoint::from_shared(url.trim_end_matches('/').to_owned()).map_err(|_| form)?;
    match endpoint.uri().scheme_str() {
        Some("http") => Ok(endpoint),
        Some("https") => {
            // An error means that a provider is already installed.
            bandana_edge::tls::provider().install_default().ok();
            let tls = tonic::transport::ClientTlsConfig::new().with_native_roots();
            endpoint.tls_config(tls).map_err(|_| "TLS to the witness can't be set up")
        }
        _ => Err(form),
    }
}

/// A log that can't be kept.
#[derive(Debug, Error)]
pub enum LogError {
    /// The key.
    #[error(transparent)]
    Key(#[from] LogKeyError),
    /// The file of witnesses can't be read.
    #[error("can't read the file of witnesses {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A line of the file of witnesses is wrong.
    #[error("line {line} of {}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Devices look at fewer cosignatures.
    #[error(
        "{} has {witnesses} witnesses, and devices look at {WITNESSES_MAX}; leave some out",
        path.display()
    )]
    TooMany {
        /// The file.
        path: PathBuf,
        /// How many there are.
        witnesses: usize,
    },
    /// The quorum can't be met.
    #[error(
        "a quorum of {quorum} does not fit {witnesses} witnesses; take more than half of them, as \
         apps do"
    )]
    Quorum {
        /// The quorum.
        quorum: usize,
        /// How many witnesses there are.
        witnesses: usize,
    },
}
