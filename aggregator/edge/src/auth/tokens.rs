//! The valid tokens, from a file that may change while the server runs.

use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::role::Roles;
use super::token::{TokenHash, TokenKind, TokenName};
use super::token_list::{TokenList, TokenListError};
use crate::clock::Clock;
use crate::regular_file;

/// The time between two checks of a file while a caller waits for its change.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The most bytes of an oversized file that are searched for tokens. Tokens after that count as
/// revoked.
const SEARCHED_BYTES_MAX: u64 = 1 << 30;

/// Most names in a line of the log.
const LOGGED_MAX: usize = 20;

/// The tokens of a file, which is read again when it changes.
#[derive(Debug)]
pub struct Tokens {
    kind: TokenKind,
    path: PathBuf,
    clock: Arc<dyn Clock>,
    list: watch::Sender<TokenList>,
    /// The second of the clock at which the file was last checked.
    looked: AtomicU64,
    /// The file's metadata at the last read, if the file existed.
    stamp: Mutex<Option<Stamp>>,
}

/// The metadata that change when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    #[cfg(unix)]
    inode: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            modified: metadata.modified().ok(),
            bytes: metadata.len(),
            #[cfg(unix)]
            inode: std::os::unix::fs::MetadataExt::ino(&metadata),
        })
    }
}

impl Tokens {
    /// The tokens of this kind in the file at `path`.
    ///
    /// # Errors
    /// [`TokensError`] when the file can't be used.
    pub fn open(
        kind: TokenKind,
        path: PathBuf,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TokensError> {
        let stamp = Stamp::of(&path);
        let list = read(kind, &path)?;
        warn_of_power(kind, &list);
        let list = watch::Sender::new(list);
        let looked = AtomicU64::new(clock.monotonic().as_secs());
        Ok(Self { kind, path, clock, list, looked, stamp: Mutex::new(stamp) })
    }

    /// Reads the file now. A file that can't be used leaves the tokens as they are. One that is too
    /// long or truncated revokes the tokens that it lacks.
    ///
    /// # Errors
    /// [`TokensError`] when the file can't be used.
    pub fn reload(&self) -> Result<(), TokensError> {
        self.read_after(Stamp::of(&self.path))
    }

    /// The number of valid tokens.
    pub(super) fn count(&self) -> usize {
        self.list.borrow().names().len()
    }

    /// Whether a token of this name is valid.
    pub(super) fn has(&self, name: &TokenName) -> bool {
        self.list.borrow().has(name)
    }

    /// The name and the roles of a valid token.
    pub(super) fn find(&self, hash: &TokenHash) -> Option<(TokenName, Roles)> {
        self.follow();
        self.list.borrow().find(hash).map(|(name, roles)| (name.clone(), roles))
    }

    /// Returns when the token with this hash is revoked, or its roles no longer satisfy `will_do`.
    pub(super) async fn revoked(self: Arc<Self>, hash: TokenHash, will_do: impl Fn(Roles) -> bool) {
        let mut list = self.list.subscribe();
        let mut looks = tokio::time::interval(BETWEEN_LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looking = async {
            // This caller may be the only one, so that no other call checks the file.
            loop {
                looks.tick().await;
                self.follow();
            }
        };
        tokio::select! {
            // The sender lives as long as `self`.
            _ = list.wait_for(|list| !list.find(&hash).is_some_and(|(_, r)| will_do(r))) => {}
            () = looking => {}
        }
    }

    /// Reads the file if it has changed. At most one caller a second checks its metadata, which for
    /// a small local file is too quick to need another thread.
    pub(super) fn follow(&self) {
        let now = self.clock.monotonic().as_secs();
        if self.looked.swap(now, Ordering::Relaxed) == now {
            return;
        }
        let stamp = Stamp::of(&self.path);
        let known = *self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp == known {
            return;
        }
        match self.read_after(stamp) {
            Ok(()) => tracing::info!("the {}s file has changed and was read", self.kind.noun()),
            Err(error) => error.log(),
        }
    }

    /// Reads the file, whose metadata were `stamp` before. If the file changes meanwhile, the next
    /// check finds that.
    fn read_after(&self, stamp: Option<Stamp>) -> Result<(), TokensError> {
        let mut known = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        *known = stamp;
        match read(self.kind, &self.path) {
            Err(TokensError::List {
                source: source @ (TokenListError::TooLong | TokenListError::Unfinished { .. }),
                ..
            }) => self.revoke_only(source),
            read => {
                let list = read?;
                warn_of_power(self.kind, &list);
                self.list.send_replace(list);
                Ok(())
            }
        }
    }

    /// Only removes tokens, namely those that the file lacks.
    fn revoke_only(&self, source: TokenListError) -> Result<(), TokensError> {
        let Self { kind, path, .. } = self;
        let failed = |source| TokensError::Read { kind: *kind, path: path.clone(), source };
        let file = regular_file::open(path).map_err(failed)?.take(SEARCHED_BYTES_MAX);
        let (list, before) = (self.list.borrow().clone(), self.count());
        let list = list.left_by(*kind, BufReader::new(file)).map_err(failed)?;
        let (left, revoked) = (list.names().len(), before - list.names().len());
        self.list.send_replace(list);
        let (kind, path) = (*kind, path.clone());
        Err(TokensError::RevokedOnly { kind, path, left, revoked, source })
    }
}

/// Warns when tokens have every role since their lines name none.
fn warn_of_power(kind: TokenKind, list: &TokenList) {
    let without = || list.names().filter(|(_, roles)| roles.is_none()).map(|(name, _)| name);
    if kind == TokenKind::Operator && without().next().is_some() {
        let names: Vec<_> = without().take(LOGGED_MAX).map(TokenName::to_string).collect();
        tracing::warn!(
            tokens = without().count(),
            names = names.join(" "),
            "tokens without a role may do everything; write roles at the end of their lines in the \
             tokens file, such as `viewer` or `experimenter,analyst`"
        );
    }
}

fn read(kind: TokenKind, path: &Path) -> Result<TokenList, TokensError> {
    let failed = |source| TokensError::Read { kind, path: path.to_owned(), source };
    let mut text = String::new();
    let file = regular_file::open(path).map_err(failed)?;
    // One byte more than a list may have reveals an oversized file.
    let longest = TokenList::BYTES_MAX as u64 + 1;
    file.take(longest).read_to_string(&mut text).map_err(failed)?;
    let parsed = TokenList::parse(kind, &text);
    parsed.map_err(|source| TokensError::List { kind, path: path.to_owned(), source })
}

/// The reason why a tokens file can't be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The file can't be read.
    #[error(
        "can't read the {}s file {}; `{} new` makes one",
        kind.noun(), path.display(), kind.command()
    )]
    Read {
        /// The kind of tokens expected.
        kind: TokenKind,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file's content is not a list of tokens.
    #[error("{} can't be used as the file of {}s", path.display(), kind.noun())]
    List {
        /// The kind of tokens expected.
        kind: TokenKind,
        /// The file.
        path: PathBuf,
        /// The error in the list.
        #[source]
        source: TokenListError,
    },
    /// The file is oversized or truncated, so tokens were only removed.
    #[error(
        "{}: {revoked} {noun}s are not in it any more, so they count no more; {left} still count",
        path.display(), noun = kind.noun()
    )]
    RevokedOnly {
        /// The kind of tokens expected.
        kind: TokenKind,
        /// The file.
        path: PathBuf,
        /// The number of tokens that are still valid.
        left: usize,
        /// The number of tokens that were revoked.
        revoked: usize,
        /// The error in the list.
        #[source]
        source: TokenListError,
    },
}

impl TokensError {
    /// Logs the error with the tokens that are still valid.
    pub fn log(&self) {
        let error = crate::explain::explain(self);
        match self {
            Self::Read { kind, .. } | Self::List { kind, .. } => {
                tracing::error!(error, "the {}s are left as they were", kind.noun());
            }
            Self::RevokedOnly { kind, .. } => {
                tracing::error!(error, "of the {}s some were revoked, none added", kind.noun());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use bandana_shared::identity::Day;

    fn line(name: &str, token: &str) -> String {
        format!("{name} {}\n", TokenHash::of(token.as_bytes()))
    }

    #[test]
    fn a_changed_file_counts_and_a_broken_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, line("anna", "1")).unwrap();
        let clock = Arc::new(ManualClock::at_day(Day::new(1)));
        let tokens =
            Tokens::open(TokenKind::App, path.clone(), Arc::<ManualClock>::clone(&clock)).unwrap();
        let find = |token: &str| tokens.find(&TokenHash::of(token.as_bytes()));
        let name = |name: &str| Some((TokenName::new(name).unwrap(), Roles::ALL));
        assert_eq!((find("1"), find("2")), (name("anna"), None));

        std::fs::write(&path, line("anna", "1") + &line("ben", "2")).unwrap();
        assert_eq!(find("2"), None, "the file is looked at once a second at most");
        clock.set_day(Day::new(2));
        assert_eq!((find("1"), find("2")), (name("anna"), name("ben")));

        std::fs::write(&path, "anna\n").unwrap();
        clock.set_day(Day::new(3));
        assert_eq!(find("1"), name("anna"));
        assert!(matches!(tokens.reload(), Err(TokensError::List { .. })));
        std::fs::remove_file(&path).unwrap();
        clock.set_day(Day::new(4));
        assert_eq!(find("2"), name("ben"));
        assert!(matches!(tokens.reload(), Err(TokensError::Read { .. })));

        let long = line("ben", "2") + &"#".repeat(TokenList::BYTES_MAX) + "\n" + &line("eve", "3");
        std::fs::write(&path, long).unwrap();
        clock.set_day(Day::new(5));
        assert_eq!((find("1"), find("2"), find("3")), (None, name("ben"), None));
        let outcome = tokens.reload().unwrap_err();
        assert!(
            matches!(outcome, TokensError::RevokedOnly { left: 1, revoked: 0, .. }),
            "{outcome}"
        );

        std::fs::write(&path, line("ben", "2").trim_end()).unwrap();
        let outcome = tokens.reload().unwrap_err();
        assert!(matches!(outcome, TokensError::RevokedOnly { left: 1, .. }), "{outcome}");

        std::fs::write(&path, "").unwrap();
        tokens.reload().unwrap();
        assert_eq!((find("1"), find("2")), (None, None));
    }
}
