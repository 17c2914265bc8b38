//! Commits of uploads: whether they succeed. A database may answer everything else and refuse them, as one
//! whose disk is full.

use std::time::Duration;

use tokio::sync::watch;

/// How long commits must have failed.
const FAILING: Duration = Duration::from_secs(3);

/// Time after which uploads are tried again. While health checks keep them away, nothing else would show
/// that they can be committed again.
const TRIED_AGAIN: Duration = Duration::from_secs(15);

/// The outcomes of commits.
#[derive(Debug)]
pub(super) struct Commits {
    failing_since: Option<Duration>,
    succeed: watch::Sender<bool>,
}

impl Commits {
    pub(super) fn new() -> Self {
        Self { failing_since: None, succeed: watch::Sender::new(true) }
    }

    /// A channel that tells whether commits succeed.
    pub(super) fn channel(&self) -> watch::Sender<bool> {
        self.succeed.clone()
    }

    /// Records whether a commit was made at the time `now`.
    pub(super) fn note(&mut self, now: Duration, is_made: bool) {
        let since = *self.failing_since.get_or_insert(now);
        if is_made {
            self.failing_since = None;
        }
        let fails = !is_made && now.saturating_sub(since) >= FAILING;
        if fails || is_made {
            self.succeed.send_if_modified(|told| std::mem::replace(told, is_made) != is_made);
        }
    }
}

/// Lets uploads be tried again and again while commits fail. One more failure ends that at once.
pub(crate) async fn try_again(succeed: watch::Sender<bool>) {
    let mut told = succeed.subscribe();
    while told.wait_for(|succeed| !succeed).await.is_ok() {
        tokio::time::sleep(TRIED_AGAIN).await;
        succeed.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_fail_once_they_have_for_three_seconds_and_succeed_with_the_first() {
        let mut commits = Commits::new();
        let channel = commits.channel();
        for (milliseconds, is_made, expected) in [
            (0, false, true),
            (2999, false, true),
            (3000, false, false),
            (3001, true, true),
            (9000, false, true),
            (12_000, false, false),
        ] {
            commits.note(Duration::from_millis(milliseconds), is_made);
            assert_eq!(*channel.borrow(), expected, "{milliseconds}");
        }
        // They are tried again, and fail again.
        channel.send_replace(true);
        commits.note(Duration::from_secs(27), false);
        assert!(!*channel.borrow());
    }
}
