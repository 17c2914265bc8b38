//! The tokens that count now: a file that may change while the server runs.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::token::{TokenHash, TokenKind, TokenName};
use super::token_list::{TokenList, TokenListError};
use crate::clock::Clock;

/// Between two looks at a file, while somebody waits for a change of it.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The tokens of a file, read again when it changes.
#[derive(Debug)]
pub struct Tokens {
    kind: TokenKind,
    path: PathBuf,
    clock: Arc<dyn Clock>,
    list: watch::Sender<TokenList>,
    /// Second of the clock at which the file was last looked at.
    looked: AtomicU64,
    /// What the file looked like when it was last read, if it was there.
    stamp: Mutex<Option<Stamp>>,
}

/// What changes when a file is written or replaced.
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
    /// The tokens of this kind of the file at `path`.
    ///
    /// # Errors
    /// [`TokensError`] when it can't be used.
    pub fn open(
        kind: TokenKind,
        path: PathBuf,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TokensError> {
        let stamp = Stamp::of(&path);
        let list = watch::Sender::new(read(kind, &path)?);
        let looked = AtomicU64::new(clock.monotonic().as_secs());
        Ok(Self { kind, path, clock, list, looked, stamp: Mutex::new(stamp) })
    }

    /// Reads the file now. A file that can't be used leaves the tokens as they are.
    ///
    /// # Errors
    /// [`TokensError`] when it can't be used.
    pub fn reload(&self) -> Result<(), TokensError> {
        self.read_after(Stamp::of(&self.path))
    }

    /// The names of the tokens that count.
    pub(super) fn names(&self) -> Vec<TokenName> {
        self.list.borrow().names().cloned().collect()
    }

    /// The name of a token that counts.
    pub(super) fn find(&self, hash: &TokenHash) -> Option<TokenName> {
        self.follow();
        self.list.borrow().find(hash).cloned()
    }

    /// Returns when the token of this hash counts no more.
    pub(super) async fn revoked(self: Arc<Self>, hash: TokenHash) {
        let mut list = self.list.subscribe();
        let mut looks = tokio::time::interval(BETWEEN_LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looking = async {
            // Whoever waits may be the only caller, so that nobody else looks.
            loop {
                looks.tick().await;
                self.follow();
            }
        };
        tokio::select! {
            // The sender lives as long as `self`.
            _ = list.wait_for(|list| list.find(&hash).is_none()) => {}
            () = looking => {}
        }
    }

    /// Reads the file if it has changed. At most once a second one caller looks: a
    /// look at a small local file, too short to be worth another thread.
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

    /// Reads the file, which looked like `stamp` before: if it changes meanwhile, the
    /// next look finds that.
    fn read_after(&self, stamp: Option<Stamp>) -> Result<(), TokensError> {
        let mut known = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        *known = stamp;
        self.list.send_replace(read(self.kind, &self.path)?);
        Ok(())
    }
}

fn read(kind: TokenKind, path: &Path) -> Result<TokenList, TokensError> {
    let failed = |source| TokensError::Read { kind, path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    // One byte more than a list has tells that it is too long.
    let longest = TokenList::BYTES_MAX as u64 + 1;
    file.take(longest).read_to_string(&mut text).map_err(failed)?;
    let parsed = TokenList::parse(&text);
    parsed.map_err(|source| TokensError::List { kind, path: path.to_owned(), source })
}

/// A tokens file that can't be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The file can't be read.
    #[error(
        "can't read the {}s file {}; `{} new` makes one",
        kind.noun(), path.display(), kind.command()
    )]
    Read {
        /// What it should have.
        kind: TokenKind,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// What the file holds is not a list of tokens.
    #[error("{} can't be used as the file of {}s", path.display(), kind.noun())]
    List {
        /// What it should have.
        kind: TokenKind,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: TokenListError,
    },
}

impl TokensError {
    /// Logs that the tokens that counted still do.
    pub(super) fn log(&self) {
        let error = crate::service::explain(self);
        let (Self::Read { kind, .. } | Self::List { kind, .. }) = self;
        tracing::error!(error, "the {}s are left as they were", kind.noun());
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
        let name = |name: &str| Some(TokenName::new(name).unwrap());
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

        std::fs::write(&path, "").unwrap();
        tokens.reload().unwrap();
        assert_eq!((find("1"), find("2")), (None, None));
    }
}
