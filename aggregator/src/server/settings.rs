//! Settings of a server: addresses, store, and limits on callers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bandana_edge::admission::CallLimits;
use bandana_edge::gateway::GatewayFiles;
use bandana_edge::tls::TlsFiles;
use bandana_edge::transport::ConnectionLimits;
use bandana_store::{EmbeddedSettings, PostgresSettings, Presence};

use crate::http::Origins;
use crate::queries::DataSetSettings;
use crate::transparency::LogSettings;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The store.
    pub store: StoreSettings,
    /// Whether the store must exist already.
    pub presence: Presence,
    /// Listening address for devices. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Listening address for operators. Outside loopback it requires TLS, and tokens or client
    /// certificates.
    pub operator_listen: SocketAddr,
    /// TLS for devices. None: plaintext.
    pub device_tls: Option<TlsFiles>,
    /// TLS for operators. None: plaintext.
    pub operator_tls: Option<TlsFiles>,
    /// Limits on the connections of each service.
    pub connections: ConnectionLimits,
    /// Limits on calls.
    pub calls: CallLimits,
    /// File of app keys. None: devices need no key.
    pub app_keys: Option<PathBuf>,
    /// Web pages that may call the devices' service. None: no page may.
    pub cors_origins: Option<Origins>,
    /// Files of the gateway. None: devices can't call through relays.
    pub gateway: Option<GatewayFiles>,
    /// The public log. None: the server keeps none.
    pub log: Option<LogSettings>,
    /// File of operators' tokens. None: operators need no token.
    pub operator_tokens: Option<PathBuf>,
    /// Data sets.
    pub data_sets: DataSetSettings,
    /// Maximum time from the signal to the end.
    pub drain_deadline: Duration,
}

/// The location of experiments and uploads.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// A directory that this process holds exclusively.
    Embedded {
        /// The directory.
        data_dir: PathBuf,
        /// Limits of the store.
        settings: EmbeddedSettings,
    },
    /// In a database that replicas share.
    Postgres(PostgresSettings),
}

impl StoreSettings {
    /// Length of the window of accepted days, for uploads and disclosures.
    pub(crate) fn window_days(&self) -> u32 {
        match self {
            Self::Embedded { settings, .. } => settings.replay_window_days,
            Self::Postgres(settings) => settings.replay_window_days,
        }
    }
}

impl ServerSettings {
    /// Whether operators are authenticated and their connections are encrypted.
    pub(super) fn operators_are_safe(&self) -> bool {
        let tls = self.operator_tls.as_ref();
        tls.is_some_and(|tls| self.operator_tokens.is_some() || tls.client_ca.is_some())
    }
}
