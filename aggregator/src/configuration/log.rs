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
    doc: "Keep a public log of what devices are told, signed with this key, which `bandana log-key` \
          makes. Devices are then served what the log's last epoch says. Replicas need the same key.",
};

pub(super) static WITNESSES_FILE: Setting = Setting {
    section: "log",
    key: "witnesses_file",
    environment: "BANDANA_LOG_WITNESSES_FILE",
    flag: "log-witnesses-file",
    placeholder: "FILE",
    kind: Kind::Path,
    fallback: Fallback::Unset("witnesses"),
    doc: "Witnesses of the log: a line for each, with its key and, after a blank, its URL.",
};

pub(super) static QUORUM: Setting = Setting {
    section: "log",
    key: "quorum",
    environment: "BANDANA_LOG_QUORUM",
    flag: "log-quorum",
    placeholder: "NUMBER",
    kind: Kind::Integer(1..=8),
    fallback: Fallback::Unset("2"),
    doc: "Witnesses that must have cosigned an epoch before devices are served it: more than half of \
          them, and not less than apps ask for; all unless set.",
};

pub(super) static EPOCH_SECONDS: Setting = Setting {
    section: "log",
    key: "epoch_seconds",
    environment: "BANDANA_LOG_EPOCH_SECONDS",
    flag: "log-epoch-seconds",
    placeholder: "SECONDS",
    kind: Kind::Integer(1..=3600),
    fallback: Fallback::Default("60"),
    doc: "Least time between two epochs. A new experiment or revision waits for the next one.",
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
