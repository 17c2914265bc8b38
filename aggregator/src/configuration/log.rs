//! The settings of the public log.

use std::time::Duration;

use super::problem::ConfigurationError;
use super::setting::{Fallback, Kind, Setting};
use super::{Effective, Problem};
use crate::transparency::LogSettings;

pub(super) static KEY_FILE: Setting = Setting {
    section: "log",
    key: "key_file",
    environment: "BANDANA_LOG_KEY_FILE",
    flag: "log-key-file",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("log-key"),
    doc: "Secret key of the public log, made by `bandana log-key`. With it, the server keeps a log \
          of what it tells devices, and tells them only what the log's last epoch says. All \
          replicas need the same key.",
};

pub(super) static WITNESSES_FILE: Setting = Setting {
    section: "log",
    key: "witnesses_file",
    environment: "BANDANA_LOG_WITNESSES_FILE",
    flag: "log-witnesses-file",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("witnesses"),
    doc: "File of the log's witnesses. Each line has a witness's key, a blank and its URL.",
};

pub(super) static QUORUM: Setting = Setting {
    section: "log",
    key: "quorum",
    environment: "BANDANA_LOG_QUORUM",
    flag: "log-quorum",
    placeholder: "NUMBER",
    kind: Kind::Integer(1..=8),
    fallback: Fallback::Unset("2"),
    doc: "How many witnesses must have cosigned an epoch before devices get it. It must be more \
          than half of them, and at least what apps ask for. If unset, all.",
};

pub(super) static EPOCH_SECONDS: Setting = Setting {
    section: "log",
    key: "epoch_seconds",
    environment: "BANDANA_LOG_EPOCH_SECONDS",
    flag: "log-epoch-seconds",
    placeholder: "SECONDS",
    kind: Kind::Integer(1..=3600),
    fallback: Fallback::Default("60"),
    doc: "Seconds between two epochs, at least. A new experiment or revision waits for the next \
          epoch.",
};

/// The log's settings. None: there is no log.
pub(super) fn settings(effective: &Effective) -> Result<Option<LogSettings>, ConfigurationError> {
    let key = effective.optional(&KEY_FILE)?;
    let witnesses = effective.optional(&WITNESSES_FILE)?;
    let quorum = effective.optional::<u32>(&QUORUM)?;
    let Some(key) = key else {
        let useless = [(&WITNESSES_FILE, witnesses.is_some()), (&QUORUM, quorum.is_some())];
        let useless = useless.into_iter().find(|(_, is_set)| *is_set);
        return useless.map_or(Ok(None), |(setting, _)| {
            let place = effective.origin(setting).to_string();
            let what = "there is no log without its key; set `key_file` in [log] too".to_owned();
            Err(ConfigurationError::Problems(vec![Problem { place, what }]))
        });
    };
    Ok(Some(LogSettings {
        key,
        witnesses,
        quorum: quorum.and_then(|quorum| usize::try_from(quorum).ok()),
        epoch: Duration::from_secs(effective.value(&EPOCH_SECONDS)?),
    }))
}
