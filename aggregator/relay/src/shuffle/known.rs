//! The experiments that a relay keeps reports for, as the aggregator has them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_edge::telemetry::LogLimit;
use bandana_shared::identity::Digest;
use bandana_shared::shuffling::BatchSize;
use bandana_shared::wire::decode_specification;
use bandana_shared::wire::v1::GetShuffledRequest;
use bytes::Bytes;
use tonic::{Code, Status};

use crate::delay::RandomDelay;
use bandana_edge::operator_client::BatchesClient;

/// Most digests that are remembered as unknown, and for how long: strangers make them up.
const UNKNOWN_MAX: usize = 10_000;
const UNKNOWN_TIME: Duration = Duration::from_secs(5);

/// Most characters of the aggregator's words in the log.
const WORDS_MAX: usize = 300;

/// An experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// What reports for it must be. None: it has ended.
    pub(super) running: Option<Running>,
    /// The id of the aggregator's store, for devices.
    pub(super) store_id: Bytes,
}

/// What reports for an experiment must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) cells: usize,
    pub(super) batch: BatchSize,
}

/// What is known of each digest.
#[derive(Clone, Debug)]
pub(super) struct Experiments {
    aggregator: BatchesClient,
    delay: RandomDelay,
    clock: Arc<dyn Clock>,
    /// Experiments; they are fewer than the aggregator has.
    known: Arc<Mutex<HashMap<Digest, Known>>>,
    /// Digests that the aggregator did not know, and when.
    unknown: Arc<Mutex<HashMap<Digest, Duration>>>,
    lines: Arc<LogLimit>,
}

impl Experiments {
    pub(super) fn new(
        aggregator: BatchesClient,
        delay: RandomDelay,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let lines = Arc::new(LogLimit::new(&clock));
        Self { aggregator, delay, clock, known: Arc::default(), unknown: Arc::default(), lines }
    }

    /// The experiment with this digest. None: the aggregator has no such shuffled experiment.
    ///
    /// # Errors
    /// The status for a device when the aggregator does not answer.
    pub(super) async fn find(&self, digest: Digest) -> Result<Option<Known>, Status> {
        if let Some(known) = lock(&self.known).get(&digest) {
            return Ok(Some(known.clone()));
        }
        let now = self.clock.monotonic();
        let asked = lock(&self.unknown).get(&digest).copied();
        if asked.is_some_and(|asked| now.saturating_sub(asked) < UNKNOWN_TIME) {
            return Ok(None);
        }
        self.delay.wait().await;
        self.ask(digest).await
    }

    /// Asks the aggregator, whatever is known.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(super) async fn ask(&self, digest: Digest) -> Result<Option<Known>, Status> {
        let request = GetShuffledRequest { digest: digest.as_bytes().to_vec().into() };
        let answer = self.aggregator.clone().get_shuffled(request).await;
        let answer = match answer {
            Ok(answer) => answer.into_inner(),
            Err(status) if status.code() == Code::NotFound => {
                self.note_unknown(digest);
                return Ok(None);
            }
            Err(status) => {
                let message = quoted(&status.to_string());
                if let Some(dropped) = self.lines.next() {
                    tracing::warn!(
                        message,
                        dropped,
                        "the aggregator does not say what an experiment is: see whether it is up, \
                         and whether the relay's token has the role relay"
                    );
                }
                return Err(Status::unavailable(
                    "the relay can't ask the aggregator about the experiment now",
                ));
            }
        };
        let store_id = answer.store_id;
        let known = if answer.has_ended {
            Some(Known { running: None, store_id })
        } else {
            let specification = decode_specification(&answer.specification).ok();
            let specification = specification.filter(|found| found.digest() == digest);
            specification.and_then(|specification| {
                let (cells, batch) = (specification.cells().len(), specification.batch()?);
                Some(Known { running: Some(Running { cells, batch }), store_id })
            })
        };
        let Some(known) = known else {
            tracing::error!(%digest, "the aggregator gave another specification than was asked for");
            return Err(Status::unavailable("the aggregator's answer is not usable"));
        };
        lock(&self.known).insert(digest, known.clone());
        Ok(Some(known))
    }

    /// Notes that an experiment has ended.
    pub(super) fn end(&self, digest: Digest) {
        if let Some(known) = lock(&self.known).get_mut(&digest) {
            known.running = None;
        }
    }

    fn note_unknown(&self, digest: Digest) {
        let mut unknown = lock(&self.unknown);
        if unknown.len() >= UNKNOWN_MAX {
            unknown.clear();
        }
        unknown.insert(digest, self.clock.monotonic());
    }
}

/// The first words of what the aggregator says, in one line: it is another party.
pub(super) fn quoted(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars().take(WORDS_MAX) {
        match character {
            '"' | '\'' => line.push(character),
            _ => line.extend(character.escape_debug()),
        }
    }
    line
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_aggregator_says_is_one_short_line_of_the_log() {
        assert_eq!(quoted("\"it\" can't"), "\"it\" can't");
        assert_eq!(quoted("a\n2026-11-23 ERROR b\u{1b}[2J"), "a\\n2026-11-23 ERROR b\\u{1b}[2J");
        assert_eq!(quoted(&"x".repeat(1_000_000)).len(), WORDS_MAX);
    }
}
