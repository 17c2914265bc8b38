//! TLS settings, which are valid only in combination.

use std::path::PathBuf;

use bandana_edge::tls::TlsFiles;

use super::effective::Effective;
use super::problem::{ConfigurationError, Problem};
use super::setting::Setting;
use super::settings;

/// TLS of the service for devices.
pub(super) fn devices(effective: &Effective) -> Result<Option<TlsFiles>, ConfigurationError> {
    pair(effective, &settings::DEVICES_TLS_CERTIFICATE, &settings::DEVICES_TLS_KEY)
}

/// TLS of the service for operators.
pub(super) fn operators(effective: &Effective) -> Result<Option<TlsFiles>, ConfigurationError> {
    let tls = pair(effective, &settings::OPERATORS_TLS_CERTIFICATE, &settings::OPERATORS_TLS_KEY)?;
    let client_ca: Option<PathBuf> = effective.optional(&settings::OPERATORS_CLIENT_CA)?;
    match (tls, client_ca) {
        (None, Some(_)) => {
            Err(lacks(effective, &settings::OPERATORS_CLIENT_CA, "`tls_certificate` and `tls_key`"))
        }
        (tls, client_ca) => Ok(tls.map(|tls| TlsFiles { client_ca, ..tls })),
    }
}

fn pair(
    effective: &Effective,
    certificate: &'static Setting,
    key: &'static Setting,
) -> Result<Option<TlsFiles>, ConfigurationError> {
    match (effective.optional(certificate)?, effective.optional(key)?) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key, client_ca: None })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(lacks(effective, certificate, "`tls_key`")),
        (None, Some(_)) => Err(lacks(effective, key, "`tls_certificate`")),
    }
}

fn lacks(effective: &Effective, setting: &Setting, what: &str) -> ConfigurationError {
    let Setting { section, key, .. } = setting;
    let what = format!("`{key}` needs {what} in [{section}] beside it; set both or none");
    let place = effective.origin(setting).to_string();
    ConfigurationError::Problems(vec![Problem { place, what }])
}
