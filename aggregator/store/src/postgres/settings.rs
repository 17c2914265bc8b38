//! Settings of the database connection.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::cells::StoreCell;

/// The database that replicas share, and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSettings {
    /// The URL of the database.
    pub url: DatabaseUrl,
    /// File of the root certificates in PEM for the database's TLS. None: the system's roots.
    pub ca: Option<PathBuf>,
    /// File that contains nothing but the password. None: the password is in the URL or in
    /// `PGPASSWORD`, or none is needed.
    pub password_file: Option<PathBuf>,
    /// The length of the replay window in days, including today; at least 1.
    pub replay_window_days: u32,
    /// The number of tables that the ids of a day are split into, by hash; at least 1. Counts for
    /// days that have no table yet.
    pub id_partitions: u32,
    /// The databases of the store cells, in the order of their numbers; none if the store has none.
    /// They have the same settings otherwise.
    pub cells: Vec<DatabaseUrl>,
}

impl PostgresSettings {
    /// The settings of a store cell. One that is not listed has the home's database.
    pub(crate) fn of_cell(&self, number: StoreCell) -> Self {
        let url = self.cells.get(number.index()).unwrap_or(&self.url).clone();
        Self { url, cells: Vec::new(), ..self.clone() }
    }
}

/// `postgres://user:password@host:port/database?options`. Neither `Debug` nor `Display`
/// shows the password, and no error repeats the text.
///
/// `sslmode` is `verify-full` or `disable`. By default, a database on this host is reached without
/// TLS, and any other with verified TLS.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    text: String,
    /// In a box, since it is large.
    config: Box<Config>,
}

impl DatabaseUrl {
    /// The configuration for connecting, except for a password from elsewhere.
    pub(super) fn config(&self) -> Config {
        Config::clone(&self.config)
    }

    /// Whether `text` has the scheme of such a URL.
    pub(crate) fn is_one(text: &str) -> bool {
        ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme))
    }

    /// The text without the password.
    pub fn redacted(text: &str) -> String {
        let Some((scheme, rest)) = text.split_once("://") else { return "***".to_owned() };
        // All before the last "@" may be of a password, whatever characters in it were not encoded.
        let (who, place) = rest.rsplit_once('@').map_or(("", rest), |(who, place)| (who, place));
        let user = who.split([':', '@', '/', '?']).next().unwrap_or_default();
        if who.contains('?') {
            // Of a password, or of an option.
            return format!("{scheme}://{user}:***");
        }
        let (address, options) = place.split_once('?').unwrap_or((place, ""));
        let shown = match who {
            "" => address.to_owned(),
            _ if user == who => format!("{user}@{address}"),
            _ => format!("{user}:***@{address}"),
        };
        let public = |option: &&str| !option.starts_with("password");
        let options: Vec<&str> =
            options.split('&').filter(|o| !o.is_empty()).filter(public).collect();
        let mark = if options.is_empty() { "" } else { "?" };
        format!("{scheme}://{shown}{mark}{}", options.join("&"))
    }
}

impl FromStr for DatabaseUrl {
    type Err = DatabaseUrlError;

    fn from_str(text: &str) -> Result<Self, DatabaseUrlError> {
        if !Self::is_one(text) {
            return Err(DatabaseUrlError::Scheme);
        }
        let (address, options) = text.split_once('?').unwrap_or((text, ""));
        if text.matches("://").count() > 1 {
            return Err(DatabaseUrlError::Several);
        }
        let (mut mode, mut others) = (None, Vec::new());
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslmode", "verify-full" | "require")) => mode = Some(SslMode::Require),
                Some(("sslmode", "disable")) => mode = Some(SslMode::Disable),
                Some(("sslmode", _)) => return Err(DatabaseUrlError::SslMode),
                Some(("sslrootcert", _)) => return Err(DatabaseUrlError::RootCertificate),
                _ => others.push(option),
            }
        }
        let mark = if others.is_empty() { "" } else { "?" };
        let mut config: Config = format!("{address}{mark}{}", others.join("&"))
            .parse()
            .map_err(DatabaseUrlError::Form)?;
        if config.get_hosts().is_empty() {
            return Err(DatabaseUrlError::Host);
        }
        let is_here = |host: &Host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                let address = name.parse::<std::net::IpAddr>();
                name == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
        };
        let all_here = config.get_hosts().iter().all(is_here);
        let default = if all_here { SslMode::Disable } else { SslMode::Require };
        config.ssl_mode(mode.unwrap_or(default));
        // After a failover, connect to the host that can be written to.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(Self { text: text.to_owned(), config: Box::new(config) })
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Self::redacted(&self.text))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

/// The reason why a text is not a valid database URL.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatabaseUrlError {
    /// The scheme is wrong.
    #[error("expected a URL such as postgres://bandana@database.example/bandana")]
    Scheme,
    /// There are several URLs in one.
    #[error("this is more than one URL; put a blank between two")]
    Several,
    /// The URL names no host.
    #[error("the URL names no host; give one, or the folder of a socket as ?host=/run/postgresql")]
    Host,
    /// The `sslmode` allows TLS that can be stripped or faked.
    #[error(
        "sslmode must be verify-full, or disable for a network that nobody else is on; the others \
         do not keep anybody out"
    )]
    SslMode,
    /// The URL names root certificates, which are a setting instead.
    #[error("name the certificates in the setting `ca`, not in `sslrootcert`")]
    RootCertificate,
    /// The URL can't be parsed.
    #[error(
        "the URL can't be understood; characters of a password other than letters and digits \
             must be percent-encoded"
    )]
    Form(#[source] tokio_postgres::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_not_shown() {
        for (text, shown) in [
            ("postgres://u:secret@db/x", "postgres://u:***@db/x"),
            ("postgres://u:sec@ret@db/x", "postgres://u:***@db/x"),
            ("postgres://u@db", "postgres://u@db"),
            ("postgres://db/x?password=secret&port=5", "postgres://db/x?port=5"),
            ("postgres://u:se?cret@db/x", "postgres://u:***"),
            ("postgres://u:se?cr@et@db/x", "postgres://u:***"),
            ("postgres://u:se/cret@db/x", "postgres://u:***@db/x"),
            ("postgres://u@db/x?password=sec@ret", "postgres://u:***"),
            ("postgres://u:secret@a,b:6/x", "postgres://u:***@a,b:6/x"),
            ("secret", "***"),
        ] {
            assert_eq!(DatabaseUrl::redacted(text), shown);
        }
        let url: DatabaseUrl = "postgres://u:secret@db/x".parse().unwrap();
        assert!(!format!("{url} {url:?}").contains("secret"));
    }

    #[test]
    fn whoever_is_elsewhere_is_verified() {
        let mode = |text: &str| text.parse::<DatabaseUrl>().map(|url| url.config.get_ssl_mode());
        for (text, expected) in [
            ("postgres://db/x", SslMode::Require),
            ("postgres://db/x?sslmode=verify-full", SslMode::Require),
            ("postgresql://db/x?sslmode=disable&connect_timeout=3", SslMode::Disable),
            ("postgres://127.0.0.1/x", SslMode::Disable),
            ("postgres://localhost,db/x", SslMode::Require),
            ("postgres://u@/x?host=/run/postgresql", SslMode::Disable),
            ("postgres://localhost/x?sslmode=verify-full", SslMode::Require),
        ] {
            assert_eq!(mode(text).unwrap(), expected, "{text}");
        }
        let two = "postgres://db/x,postgres://u:secret@db/y";
        for bad in ["postgres://db/x?sslmode=prefer", "mysql://db/x", "postgres://u@/x", two] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }
}
