//! App keys: the app of a call, and the rates and shares of each key.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tonic::codegen::http::HeaderMap;

use super::token::{TokenHash, TokenKind, TokenName};
use super::tokens::{Tokens, TokensError};
use crate::clock::Clock;
use crate::rate::{Kind, Limiter, Limiters, Rates};

/// The metadata (header) that carries a device's app key.
pub const APP_KEY_HEADER: &str = "bandana-app-key";

/// The least time between two log lines about an app over its rate.
const BETWEEN_LINES: Duration = Duration::from_mins(1);

/// The app keys of a file, read again when it changes.
///
/// A key is in every copy of its app, so it proves no identity. Its purpose is to be revoked, and
/// to keep the apps of one server from using up each other's share.
#[derive(Debug)]
pub struct AppKeys {
    tokens: Arc<Tokens>,
    clock: Arc<dyn Clock>,
    rates: Rates,
    /// At most one for each name in the file.
    shares: Mutex<HashMap<TokenName, Arc<Share>>>,
}

/// The state that all installations of an app share.
#[derive(Debug)]
struct Share {
    limiters: Limiters,
    lines: Limiter,
}

impl AppKeys {
    /// The keys of the file at `path`, each with these rates.
    ///
    /// # Errors
    /// [`TokensError`] when the file can't be used.
    pub fn open(path: PathBuf, rates: Rates, clock: Arc<dyn Clock>) -> Result<Self, TokensError> {
        let tokens = Arc::new(Tokens::open(TokenKind::App, path, Arc::clone(&clock))?);
        Ok(Self { tokens, clock, rates, shares: Mutex::default() })
    }

    /// The tokens of the file.
    pub fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens)
    }

    /// The app of a request that shows exactly one key, if the key is valid.
    pub fn app(&self, headers: &HeaderMap) -> Option<App> {
        let mut shown = headers.get_all(APP_KEY_HEADER).iter();
        let (Some(key), None) = (shown.next(), shown.next()) else { return None };
        let hash = TokenHash::of(key.as_bytes());
        let (name, _) = self.tokens.find(&hash)?;
        let share = (self.rates != Rates::default()).then(|| self.share(&name));
        Some(App { name, hash, share, tokens: Arc::clone(&self.tokens) })
    }

    fn share(&self, name: &TokenName) -> Arc<Share> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(name) {
            return Arc::clone(share);
        }
        // Shares of revoked keys are removed only when there are as many shares as keys.
        if shares.len() >= self.tokens.count() {
            shares.retain(|name, _| self.tokens.has(name));
        }
        let share = Arc::new(Share {
            limiters: Limiters::new(self.rates, &self.clock),
            lines: Limiter::once_in(BETWEEN_LINES, Arc::clone(&self.clock)),
        });
        shares.insert(name.clone(), Arc::clone(&share));
        share
    }
}

/// The app of a call, identified by its key.
#[derive(Clone, Debug)]
pub struct App {
    name: TokenName,
    hash: TokenHash,
    share: Option<Arc<Share>>,
    tokens: Arc<Tokens>,
}

impl App {
    /// Admits one call or upload of this kind.
    ///
    /// # Errors
    /// The time until the next one may pass.
    pub fn pass(&self, kind: Kind) -> Result<(), Duration> {
        let Some(share) = &self.share else { return Ok(()) };
        share.limiters.pass(kind).inspect_err(|_| {
            if share.lines.pass().is_ok() {
                tracing::warn!(app_key = %self.name, "calls with this app key are over their rate");
            }
        })
    }

    /// The app's share among all apps with keys.
    pub(crate) fn id_share(&self) -> AppShare {
        AppShare { key: self.name.clone(), keys: self.tokens.count() }
    }

    /// Returns when the key is revoked.
    pub async fn revoked(self) {
        self.tokens.revoked(self.hash, |_| true).await;
    }
}

/// The status for a device with an invalid app key: the same in all cases.
pub fn unknown_app() -> tonic::Status {
    tonic::Status::unauthenticated("a valid app key is needed; keep the reports and try later")
}

/// The share of an app, identified by its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppShare {
    /// The name of the app's key.
    pub key: TokenName,
    /// The number of valid keys.
    pub keys: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::rate::Rate;
    use bandana_shared::identity::Day;

    fn shown(keys: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for key in keys {
            headers.append(APP_KEY_HEADER, key.parse().unwrap());
        }
        headers
    }

    #[test]
    fn apps_have_shares_of_their_own_and_revoked_ones_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app-keys");
        let line = |name: &str| format!("{name} {}\n", TokenHash::of(name.as_bytes()));
        std::fs::write(&path, line("one") + &line("two")).unwrap();
        let clock = Arc::new(ManualClock::at_day(Day::new(1)));
        let rates = Rates { uploads: Rate::new(1, 2), questions: Rate::new(1, 1) };
        let keys = AppKeys::open(path.clone(), rates, Arc::<ManualClock>::clone(&clock)).unwrap();
        assert!(keys.app(&shown(&[])).is_none());
        assert!(keys.app(&shown(&["three"])).is_none());
        assert!(keys.app(&shown(&["one", "one"])).is_none(), "which of the two?");

        let one = keys.app(&shown(&["one"])).unwrap();
        let two = keys.app(&shown(&["two"])).unwrap();
        // Another device of the same app has the same share.
        let same = keys.app(&shown(&["one"])).unwrap();
        let second = Err(Duration::from_secs(1));
        let upload = |app: &App| app.pass(Kind::Upload);
        assert_eq!([&one, &same, &one].map(upload), [Ok(()), Ok(()), second]);
        assert_eq!([&two, &two].map(upload), [Ok(()), Ok(())]);
        assert_eq!([&one, &same].map(|app| app.pass(Kind::Question)), [Ok(()), second]);

        std::fs::write(&path, line("two") + &line("four")).unwrap();
        keys.tokens().reload().unwrap();
        assert!(keys.app(&shown(&["one"])).is_none());
        keys.app(&shown(&["four"])).unwrap();
        assert_eq!(keys.shares.lock().unwrap().len(), 2);
    }
}
