//! The configuration: a file, overridden by the environment, overridden by flags.
//!
//! All names, defaults and checks come from one table, [`SETTINGS`].

mod document;
mod effective;
mod file;
mod limits;
mod log;
mod problem;
mod setting;
mod settings;
mod store;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bandana_edge::admission::CallLimits;
use bandana_edge::gateway::GatewayFiles;
use bandana_edge::telemetry::TelemetrySettings;
use bandana_edge::tls::TlsFiles;
use bandana_edge::transport::ConnectionLimits;
use bandana_store::Presence;

pub use document::documented_file;
pub use effective::{Effective, Given, Origin};
pub use problem::{ConfigurationError, Problem};
pub use setting::{Fallback, Kind, Setting};
pub use settings::{SECTIONS, SETTINGS, STORE_SETTINGS};
pub use store::{Store, StorePlace};

use crate::http::Origins;
use crate::queries::{DataSetSettings, Queries};
use crate::server::ServerSettings;
use crate::transparency::LogSettings;

/// The effective, validated configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The store.
    pub store: Store,
    /// The service for devices.
    pub devices: Devices,
    /// The service for operators.
    pub operators: Operators,
    /// Data sets.
    pub data_sets: DataSetSettings,
    /// The public log. None: the server keeps none.
    pub log: Option<LogSettings>,
    /// Telemetry: log, metrics and traces.
    pub telemetry: TelemetrySettings,
    /// Limits on connections.
    pub limits: ConnectionLimits,
    /// Limits on calls.
    pub calls: CallLimits,
    /// Shutdown.
    pub shutdown: Shutdown,
}

/// The service for devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// The listening address. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// TLS certificate and key. None: plaintext.
    pub tls: Option<TlsFiles>,
    /// File of app keys, one of which every caller must present.
    pub app_keys_file: Option<PathBuf>,
    /// Pages that may call the service. None: no page may.
    pub cors_origins: Option<Origins>,
    /// The files of the gateway. None: the server is none.
    pub gateway: Option<GatewayFiles>,
}

/// The service for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operators {
    /// The listening address: on loopback, unless callers are authenticated and the connection is
    /// encrypted. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// TLS certificate and key. None: plaintext.
    pub tls: Option<TlsFiles>,
    /// File of tokens, one of which every caller must present.
    pub tokens_file: Option<PathBuf>,
}

/// Shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Maximum time from the signal to the end: 1 s to an hour.
    pub drain_deadline: Duration,
}

impl Configuration {
    /// Reads `file`, if there is one. Values from the environment and flags override it.
    ///
    /// # Errors
    /// [`ConfigurationError`] with all problems at once.
    pub fn load(
        file: Option<&Path>,
        overrides: Vec<Given>,
    ) -> Result<(Self, Effective), ConfigurationError> {
        let (mut given, problems) = match file {
            Some(path) => file::read(path)?,
            None => Default::default(),
        };
        given.extend(overrides);
        Self::of(&given, problems)
    }

    fn of(
        given: &[Given],
        problems: Vec<Problem>,
    ) -> Result<(Self, Effective), ConfigurationError> {
        if !problems.is_empty() {
            return Err(ConfigurationError::Problems(problems));
        }
        let effective = Effective::of(given);
        let configuration = Self::typed(&effective)?;
        configuration.check(&effective)?;
        Ok((configuration, effective))
    }

    fn typed(effective: &Effective) -> Result<Self, ConfigurationError> {
        Ok(Self {
            store: Store::of(effective)?,
            devices: Devices {
                listen: effective.value(&settings::DEVICES_LISTEN)?,
                tls: tls::devices(effective)?,
                app_keys_file: effective.optional(&settings::DEVICES_APP_KEYS_FILE)?,
                cors_origins: effective.optional(&settings::DEVICES_CORS_ORIGINS)?,
                gateway: gateway(effective)?,
            },
            operators: Operators {
                listen: effective.value(&settings::OPERATORS_LISTEN)?,
                tls: tls::operators(effective)?,
                tokens_file: effective.optional(&settings::OPERATORS_TOKENS_FILE)?,
            },
            data_sets: DataSetSettings {
                directory: effective.optional(&settings::DATA_SETS_DIRECTORY)?,
                analyst_percent: effective.value(&settings::ANALYST_PERCENT)?,
            },
            log: log::settings(effective)?,
            telemetry: TelemetrySettings {
                format: effective.value(&settings::LOG_FORMAT)?,
                filter: effective.optional(&settings::LOG_FILTER)?,
                otlp_endpoint: effective.optional(&settings::OTLP_ENDPOINT)?,
            },
            limits: limits::connections(effective)?,
            calls: limits::calls(effective)?,
            shutdown: Shutdown {
                drain_deadline: Duration::from_secs(
                    effective.value(&settings::DRAIN_DEADLINE_SECONDS)?,
                ),
            },
        })
    }

    /// Checks that involve several settings or the build.
    fn check(&self, effective: &Effective) -> Result<(), ConfigurationError> {
        let mut problems = Vec::new();
        let operators = self.operators.listen;
        if !operators.ip().is_loopback() && !self.operators.are_safe() {
            let place = effective.origin(&settings::OPERATORS_LISTEN).to_string();
            let what = format!(
                "{operators} is not on loopback; there the operators' service needs `tls_certificate` \
                 and `tls_key`, and `tokens_file` or `client_ca`. Set them in [operators], or use \
                 127.0.0.1 or [::1], and a tunnel from elsewhere"
            );
            problems.push(Problem { place, what });
        }
        let devices = self.devices.listen;
        if devices == operators && devices.port() != 0 {
            let place = effective.origin(&settings::DEVICES_LISTEN).to_string();
            let what = format!("{devices} is the operators' address too; give each its own port");
            problems.push(Problem { place, what });
        }
        for (rate, setting) in [
            (self.calls.app_rates.uploads, &limits::UPLOADS_PER_SECOND_PER_APP_KEY),
            (self.calls.app_rates.questions, &limits::QUESTIONS_PER_SECOND_PER_APP_KEY),
        ] {
            if rate.is_some() && self.devices.app_keys_file.is_none() {
                let place = effective.origin(setting).to_string();
                let key = setting.key;
                let what = format!("`{key}` needs `app_keys_file` in [devices]; set both, or 0");
                problems.push(Problem { place, what });
            }
        }
        if self.telemetry.otlp_endpoint.is_some() && !TelemetrySettings::CAN_TRACE {
            let place = effective.origin(&settings::OTLP_ENDPOINT).to_string();
            let what = "this program can't send traces; build it with `--features opentelemetry`, \
                        or leave `otlp_endpoint` out";
            problems.push(Problem { place, what: what.to_owned() });
        }
        if !Queries::ARE_BUILT_IN {
            problems.extend(settings_of_queries(effective));
        }
        if problems.is_empty() { Ok(()) } else { Err(ConfigurationError::Problems(problems)) }
    }
}

impl Operators {
    /// Whether callers are authenticated and the connection is encrypted.
    fn are_safe(&self) -> bool {
        let tls = self.tls.as_ref();
        tls.is_some_and(|tls| self.tokens_file.is_some() || tls.client_ca.is_some())
    }
}

/// The files of the gateway: the others are of no use without its secret key.
fn gateway(effective: &Effective) -> Result<Option<GatewayFiles>, ConfigurationError> {
    let others =
        [&settings::DEVICES_GATEWAY_SIGNED_KEYS_FILE, &settings::DEVICES_GATEWAY_FORMER_KEY_FILE];
    let [signed_keys, former_key] = others.map(|other| effective.optional::<PathBuf>(other));
    let (signed_keys, former_key) = (signed_keys?, former_key?);
    if let Some(key) = effective.optional(&settings::DEVICES_GATEWAY_KEY_FILE)? {
        return Ok(Some(GatewayFiles { key, signed_keys, former_key }));
    }
    let set = others.into_iter().zip([signed_keys, former_key]);
    match set.into_iter().find_map(|(setting, path)| path.map(|_| setting)) {
        None => Ok(None),
        Some(setting) => {
            let place = effective.origin(setting).to_string();
            let what = format!("`{}` needs `gateway_key_file` in [devices]; set both", setting.key);
            Err(ConfigurationError::Problems(vec![Problem { place, what }]))
        }
    }
}

/// The settings of data sets with other values than their defaults: a program without private queries refuses
/// them.
fn settings_of_queries(effective: &Effective) -> impl Iterator<Item = Problem> {
    let settings = [&settings::DATA_SETS_DIRECTORY, &settings::ANALYST_PERCENT];
    settings.into_iter().filter_map(|setting| {
        let (text, origin) = effective.find(setting)?;
        let Setting { section, key, fallback, .. } = setting;
        let is_default = matches!(fallback, Fallback::Default(default) if default == text);
        let what = format!(
            "this program was built without private queries; build it with `--features queries`, or leave \
             `{key}` in [{section}] out"
        );
        (!is_default).then(|| Problem { place: origin.to_string(), what })
    })
}

impl From<Configuration> for ServerSettings {
    fn from(configuration: Configuration) -> Self {
        let Configuration { store, devices, operators, data_sets, log, .. } = configuration;
        let Configuration { limits, calls, shutdown, .. } = configuration;
        Self {
            store: store.into(),
            presence: Presence::Required,
            listen: devices.listen,
            operator_listen: operators.listen,
            device_tls: devices.tls,
            operator_tls: operators.tls,
            connections: limits,
            calls,
            app_keys: devices.app_keys_file,
            cors_origins: devices.cors_origins,
            gateway: devices.gateway,
            log,
            operator_tokens: operators.tokens_file,
            data_sets,
            drain_deadline: shutdown.drain_deadline,
        }
    }
}

#[cfg(test)]
mod tests;
