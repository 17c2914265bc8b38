//! All settings.
//!
//! A new one needs an entry here and in [`SETTINGS`], a field of
//! [`Configuration`](super::Configuration), and a line that sets that field.

use bandana_edge::telemetry::LogFormat;

use super::setting::{Fallback, Kind, Setting};
use super::{limits, log};

/// The sections of the file, in order, with their descriptions.
pub static SECTIONS: [(&str, &str); 8] = [
    ("store", "Where the server keeps its data."),
    ("devices", "The service for devices."),
    ("operators", "The service for the people who run experiments."),
    ("curator", "Data sets that analysts ask questions about."),
    ("log", "The public log of what devices are told; see docs/transparency.md."),
    ("telemetry", "Logs and traces, for those who run the server."),
    ("limits", "How much callers may use of the server."),
    ("shutdown", "How the server ends, after SIGTERM or SIGINT."),
];

/// The settings, in the order of the sections.
pub static SETTINGS: [&Setting; 47] = [
    &DATA_DIR,
    &STORE_URL,
    &STORE_CA,
    &STORE_PASSWORD_FILE,
    &STORE_CELLS,
    &REPLAY_WINDOW_DAYS,
    &IDS_MAX,
    &ID_PARTITIONS,
    &DEVICES_LISTEN,
    &DEVICES_APP_KEYS_FILE,
    &DEVICES_CORS_ORIGINS,
    &DEVICES_TLS_CERTIFICATE,
    &DEVICES_TLS_KEY,
    &DEVICES_GATEWAY_KEY_FILE,
    &DEVICES_GATEWAY_SIGNED_KEYS_FILE,
    &DEVICES_GATEWAY_FORMER_KEY_FILE,
    &OPERATORS_LISTEN,
    &OPERATORS_TOKENS_FILE,
    &OPERATORS_TLS_CERTIFICATE,
    &OPERATORS_TLS_KEY,
    &OPERATORS_CLIENT_CA,
    &DATA_SETS_DIRECTORY,
    &ANALYST_PERCENT,
    &log::KEY_FILE,
    &log::WITNESSES_FILE,
    &log::QUORUM,
    &log::EPOCH_SECONDS,
    &LOG_FORMAT,
    &LOG_FILTER,
    &OTLP_ENDPOINT,
    &limits::MEMORY_MIB,
    &limits::CONNECTIONS,
    &limits::STREAMS_PER_CONNECTION,
    &limits::HEADER_BYTES,
    &limits::HANDSHAKES,
    &limits::HANDSHAKE_SECONDS,
    &limits::IDLE_SECONDS,
    &limits::REQUEST_SECONDS,
    &limits::ANSWER_SECONDS,
    &limits::STREAM_IDLE_SECONDS,
    &limits::CALLS,
    &limits::UPLOADS_PER_SECOND_PER_CONNECTION,
    &limits::UPLOADS_PER_SECOND_PER_APP_KEY,
    &limits::QUESTIONS_PER_SECOND_PER_CONNECTION,
    &limits::QUESTIONS_PER_SECOND_PER_APP_KEY,
    &limits::BURST_SECONDS,
    &DRAIN_DEADLINE_SECONDS,
];

/// The settings of the store's location.
pub static STORE_SETTINGS: [&Setting; 5] =
    [&DATA_DIR, &STORE_URL, &STORE_CA, &STORE_PASSWORD_FILE, &STORE_CELLS];

pub(super) static DATA_DIR: Setting = Setting {
    section: "store",
    key: "data_dir",
    environment: "BANDANA_DATA_DIR",
    flag: "data-dir",
    placeholder: "DIRECTORY",
    kind: Kind::Path,
    fallback: Fallback::Required { example: "bandana-data", unless: ("url", "store") },
    doc: "Directory of the embedded store. `bandana init` makes the store. Only one process at a \
          time can use it.",
};

pub(super) static STORE_URL: Setting = Setting {
    section: "store",
    key: "url",
    environment: "BANDANA_STORE",
    flag: "store",
    placeholder: "URL",
    kind: Kind::Database,
    fallback: Fallback::Unset("postgres://bandana@database.example/bandana"),
    doc: "PostgreSQL database, instead of `data_dir`. Any number of replicas can share it. A \
          database on another host must show a certificate, unless the URL ends with \
          ?sslmode=disable.",
};

pub(super) static STORE_CA: Setting = Setting {
    section: "store",
    key: "ca",
    environment: "BANDANA_STORE_CA",
    flag: "store-ca",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("database-ca.pem"),
    doc: "Certificates in PEM, one of which must have signed the database's. If unset, those that \
          the system trusts.",
};

pub(super) static STORE_PASSWORD_FILE: Setting = Setting {
    section: "store",
    key: "password_file",
    environment: "BANDANA_STORE_PASSWORD_FILE",
    flag: "store-password-file",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("database-password"),
    doc: "File with the database's password. You can also give the password in the URL or in \
          $PGPASSWORD.",
};

pub(super) static STORE_CELLS: Setting = Setting {
    section: "store",
    key: "cells",
    environment: "BANDANA_STORE_CELLS",
    flag: "store-cells",
    placeholder: "URLS",
    kind: Kind::Databases,
    fallback: Fallback::Unset(
        "postgres://bandana@cell-1.example/bandana postgres://bandana@cell-2.example/bandana",
    ),
    doc: "PostgreSQL databases that share the uploads of the store, for more than one database can \
          take. `url` keeps everything else. The order is fixed, and all replicas need the same \
          list. As a variable or a flag: with spaces between.",
};

pub(super) static REPLAY_WINDOW_DAYS: Setting = Setting {
    section: "store",
    key: "replay_window_days",
    environment: "BANDANA_REPLAY_WINDOW_DAYS",
    flag: "replay-window-days",
    placeholder: "DAYS",
    kind: Kind::Integer(1..=365),
    fallback: Fallback::Default("7"),
    doc: "Days whose uploads the server takes, today included. Older uploads are refused as expired.",
};

pub(super) static IDS_MAX: Setting = Setting {
    section: "store",
    key: "ids_max",
    environment: "BANDANA_IDS_MAX",
    flag: "ids-max",
    placeholder: "NUMBER",
    kind: Kind::Integer(1..=u32::MAX),
    fallback: Fallback::Default("50000000"),
    doc: "How many upload ids the server remembers at most, in about 20 bytes of memory each. For \
          `data_dir` only.",
};

pub(super) static ID_PARTITIONS: Setting = Setting {
    section: "store",
    key: "id_partitions",
    environment: "BANDANA_ID_PARTITIONS",
    flag: "id-partitions",
    placeholder: "NUMBER",
    kind: Kind::Integer(1..=64),
    fallback: Fallback::Default("1"),
    doc: "Number of tables for the upload ids of a day. Raise it if the database gets many \
          millions of uploads a day. A new number counts for days that have no table yet. For \
          `url` only.",
};

pub(super) static DEVICES_LISTEN: Setting = Setting {
    section: "devices",
    key: "listen",
    environment: "BANDANA_LISTEN",
    flag: "listen",
    placeholder: "ADDRESS",
    kind: Kind::Address,
    fallback: Fallback::Default("127.0.0.1:7301"),
    doc: "Address for devices. Port 0 picks a free one.",
};

pub(super) static DEVICES_APP_KEYS_FILE: Setting = Setting {
    section: "devices",
    key: "app_keys_file",
    environment: "BANDANA_APP_KEYS_FILE",
    flag: "app-keys-file",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("app-keys"),
    doc: "File of the keys that apps must show, made by `bandana app-key new`. The server reads it \
          again when it changes, and on SIGHUP. Anybody who has an app can read its key out of it, \
          so a key proves nobody's identity. It lets you limit or refuse one app.",
};

pub(super) static DEVICES_TLS_CERTIFICATE: Setting = Setting {
    section: "devices",
    key: "tls_certificate",
    environment: "BANDANA_TLS_CERTIFICATE",
    flag: "tls-certificate",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("certificate.pem"),
    doc: "Certificate for devices in PEM, followed by those that lead to its root. The server \
          reads it again on SIGHUP. Without it, the server does no TLS itself, for use behind a \
          proxy that does.",
};

pub(super) static DEVICES_TLS_KEY: Setting = Setting {
    section: "devices",
    key: "tls_key",
    environment: "BANDANA_TLS_KEY",
    flag: "tls-key",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("key.pem"),
    doc: "Key of that certificate, in PEM.",
};

pub(super) static DEVICES_CORS_ORIGINS: Setting = Setting {
    section: "devices",
    key: "cors_origins",
    environment: "BANDANA_CORS_ORIGINS",
    flag: "cors-origins",
    placeholder: "ORIGINS",
    kind: Kind::Origins,
    fallback: Fallback::Unset("https://shop.example, https://www.shop.example"),
    doc: "Origins of the web pages whose scripts may call this service from a browser. Put commas \
          between them.",
};

pub(super) static DEVICES_GATEWAY_KEY_FILE: Setting = Setting {
    section: "devices",
    key: "gateway_key_file",
    environment: "BANDANA_GATEWAY_KEY_FILE",
    flag: "gateway-key-file",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("gateway-key"),
    doc: "Secret key of the gateway, made by `bandana gateway-key generate`. With it, devices may \
          call through relays, and the server does not learn their addresses.",
};

pub(super) static DEVICES_GATEWAY_SIGNED_KEYS_FILE: Setting = Setting {
    section: "devices",
    key: "gateway_signed_keys_file",
    environment: "BANDANA_GATEWAY_SIGNED_KEYS_FILE",
    flag: "gateway-signed-keys-file",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("gateway-keys.signed"),
    doc: "The gateway's public keys with the signatures that devices ask for, made by `bandana \
          gateway-key sign`. The server reads the file again on SIGHUP.",
};

pub(super) static DEVICES_GATEWAY_FORMER_KEY_FILE: Setting = Setting {
    section: "devices",
    key: "gateway_former_key_file",
    environment: "BANDANA_GATEWAY_FORMER_KEY_FILE",
    flag: "gateway-former-key-file",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("gateway-key.former"),
    doc: "The gateway's former secret key. With it, the server also opens what was sealed for that \
          key, such as reports that wait at a relay for their batch.",
};

pub(super) static OPERATORS_LISTEN: Setting = Setting {
    section: "operators",
    key: "listen",
    environment: "BANDANA_OPERATOR_LISTEN",
    flag: "operator-listen",
    placeholder: "ADDRESS",
    kind: Kind::Address,
    fallback: Fallback::Default("127.0.0.1:7302"),
    doc: "Address for operators. An address beyond loopback needs TLS, and tokens or client \
          certificates. Port 0 picks a free one.",
};

pub(super) static OPERATORS_TOKENS_FILE: Setting = Setting {
    section: "operators",
    key: "tokens_file",
    environment: "BANDANA_OPERATOR_TOKENS_FILE",
    flag: "operator-tokens-file",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("operator-tokens"),
    doc: "File of the tokens that operators must show, made by `bandana token new`. The server \
          reads it again when it changes, and on SIGHUP.",
};

pub(super) static OPERATORS_TLS_CERTIFICATE: Setting = Setting {
    section: "operators",
    key: "tls_certificate",
    environment: "BANDANA_OPERATOR_TLS_CERTIFICATE",
    flag: "operator-tls-certificate",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("certificate.pem"),
    doc: "Certificate for operators in PEM, followed by those that lead to its root. The server \
          reads it again on SIGHUP.",
};

pub(super) static OPERATORS_TLS_KEY: Setting = Setting {
    section: "operators",
    key: "tls_key",
    environment: "BANDANA_OPERATOR_TLS_KEY",
    flag: "operator-tls-key",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("key.pem"),
    doc: "Key of that certificate, in PEM.",
};

pub(super) static OPERATORS_CLIENT_CA: Setting = Setting {
    section: "operators",
    key: "client_ca",
    environment: "BANDANA_OPERATOR_CLIENT_CA",
    flag: "operator-client-ca",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("operators-ca.pem"),
    doc: "Certificates in PEM. An operator must show a certificate that one of these has signed, \
          and a token too if there are tokens. The server reads the file again on SIGHUP.",
};

pub(super) static DATA_SETS_DIRECTORY: Setting = Setting {
    section: "curator",
    key: "directory",
    environment: "BANDANA_DATA_SETS",
    flag: "data-sets",
    placeholder: "DIRECTORY",
    kind: Kind::Path,
    fallback: Fallback::Unset("data-sets"),
    doc: "Directory with the files of data sets, CSV or Parquet. Only the server reads them. Every \
          replica needs the same files.",
};

pub(super) static ANALYST_PERCENT: Setting = Setting {
    section: "curator",
    key: "analyst_percent",
    environment: "BANDANA_ANALYST_PERCENT",
    flag: "analyst-percent",
    placeholder: "PERCENT",
    kind: Kind::Integer(1..=100),
    fallback: Fallback::Default("100"),
    doc: "The part of each data set's budget that one analyst may spend. It counts by the name of the \
          analyst's token. An administrator may spend all.",
};

pub(super) static LOG_FORMAT: Setting = Setting {
    section: "telemetry",
    key: "log_format",
    environment: "BANDANA_LOG_FORMAT",
    flag: "log-format",
    placeholder: "FORMAT",
    kind: Kind::Choice(LogFormat::NAMES),
    fallback: Fallback::Default("text"),
    doc: "Form of the log on standard error: text for people, or one JSON object on each line.",
};

pub(super) static LOG_FILTER: Setting = Setting {
    section: "telemetry",
    key: "log_filter",
    environment: "BANDANA_LOG_FILTER",
    flag: "log-filter",
    placeholder: "FILTER",
    kind: Kind::LogFilter,
    fallback: Fallback::Unset("info"),
    doc: "What is logged: a level (off, error, warn, info, debug, trace), or levels of modules, \
          such as \"warn,bandana=debug\". If unset, $RUST_LOG counts, and without that, info. \
          Lines of libraries below info are never logged, since they can contain addresses.",
};

pub(super) static OTLP_ENDPOINT: Setting = Setting {
    section: "telemetry",
    key: "otlp_endpoint",
    environment: "BANDANA_OTLP_ENDPOINT",
    flag: "otlp-endpoint",
    placeholder: "URL",
    kind: Kind::Url,
    fallback: Fallback::Unset("http://127.0.0.1:4317"),
    doc: "OpenTelemetry collector to which the server sends traces of calls and commits, by OTLP \
          over gRPC. The program must have been built with the feature `opentelemetry`.",
};

pub(super) static DRAIN_DEADLINE_SECONDS: Setting = Setting {
    section: "shutdown",
    key: "drain_deadline_seconds",
    environment: "BANDANA_DRAIN_DEADLINE",
    flag: "drain-deadline",
    placeholder: "SECONDS",
    kind: Kind::Integer(1..=3600),
    fallback: Fallback::Default("20"),
    doc: "Seconds that the server may take from the signal to its end.",
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_follow_one_scheme() {
        let keys: BTreeSet<_> = SETTINGS.iter().map(|s| (s.section, s.key)).collect();
        let flags: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.flag).collect();
        assert_eq!((keys.len(), flags.len()), (SETTINGS.len(), SETTINGS.len()));
        for setting in SETTINGS {
            let name = setting.flag.to_uppercase().replace('-', "_");
            assert_eq!(setting.environment, format!("BANDANA_{name}"));
        }
    }

    #[test]
    fn settings_come_in_the_order_of_the_sections() {
        let mut sections: Vec<_> = SETTINGS.iter().map(|setting| setting.section).collect();
        sections.dedup();
        assert_eq!(sections, SECTIONS.map(|(name, _)| name));
    }

    #[test]
    fn defaults_and_examples_are_valid() {
        for setting in SETTINGS {
            let (Fallback::Default(text)
            | Fallback::Required { example: text, .. }
            | Fallback::Unset(text)) = setting.fallback;
            assert_eq!(setting.kind.check(text), Ok(()), "{}", setting.key);
        }
    }
}
