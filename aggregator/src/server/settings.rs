//! Settings of a server: where it listens and keeps its store, and what callers may take.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::admission::CallLimits;
use crate::store::{EmbeddedSettings, PostgresSettings, Presence};
use crate::tls::TlsFiles;
use crate::transport::ConnectionLimits;

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// What is durable.
    pub store: StoreSettings,
    /// Whether it must be there already.
    pub presence: Presence,
    /// Address for devices. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Address for operators. Beyond loopback only with TLS, and with tokens or with
    /// client certificates.
    pub operator_listen: SocketAddr,
    /// TLS for devices. None: in the clear.
    pub device_tls: Option<TlsFiles>,
    /// TLS for operators. None: in the clear.
    pub operator_tls: Option<TlsFiles>,
    /// What connections of each service may take.
    pub connections: ConnectionLimits,
    /// What calls may take.
    pub calls: CallLimits,
    /// File of the keys of apps. None: devices are asked for none.
    pub app_keys: Option<PathBuf>,
    /// File of the tokens of operators. None: nobody is asked for one.
    pub operator_tokens: Option<PathBuf>,
    /// Directory of the curator's data sets. None: there are none.
    pub data_sets: Option<PathBuf>,
    /// Longest time from the signal to the end.
    pub drain_deadline: Duration,
}

/// Where experiments and uploads are kept.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// In a directory that this process has for itself.
    Embedded {
        /// The directory.
        data_dir: PathBuf,
        /// Its limits.
        settings: EmbeddedSettings,
    },
    /// In a database that replicas share.
    Postgres(PostgresSettings),
}

impl StoreSettings {
    /// Days whose uploads and disclosures are taken.
    pub(crate) fn window_days(&self) -> u32 {
        match self {
            Self::Embedded { settings, .. } => settings.replay_window_days,
            Self::Postgres(settings) => settings.replay_window_days,
        }
    }
}

impl ServerSettings {
    /// Whether operators are known, and nobody on the way hears them.
    pub(super) fn operators_are_safe(&self) -> bool {
        let tls = self.operator_tls.as_ref();
        tls.is_some_and(|tls| self.operator_tokens.is_some() || tls.client_ca.is_some())
    }
}
