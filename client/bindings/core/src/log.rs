//! What a client tells developers: first policies, refusals, its store and uploads; never a reward or an arm.

use std::collections::{BTreeSet, VecDeque};

use crate::records::{LogLine, Standing, Status};

/// Lines that nobody has taken yet.
const LINES_MAX: usize = 64;

/// A log that tells what has changed.
#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: VecDeque<LogLine>,
    /// What the last status said.
    standing: Option<(Standing, Option<String>)>,
    refusal: Option<String>,
    error: Option<String>,
    uploads: (u64, u64),
    /// Experiments that were joined, and have no policy yet.
    waiting: BTreeSet<String>,
    ready: BTreeSet<String>,
}

impl Log {
    /// Notes that the app takes part in an experiment.
    pub(crate) fn joined(&mut self, experiment: &str) {
        if !self.ready.contains(experiment) {
            self.waiting.insert(experiment.to_owned());
        }
    }

    /// Notes what differs from the last status.
    pub(crate) fn look(&mut self, now: &Status, is_ready: impl Fn(&str) -> bool) {
        let ready: Vec<String> =
            self.waiting.iter().filter(|name| is_ready(name)).cloned().collect();
        for name in ready {
            self.tell(false, format!("experiment {name} has its first policy"));
            self.waiting.remove(&name);
            self.ready.insert(name);
        }
        let standing = (now.standing, now.trouble.clone());
        if self.standing.as_ref() != Some(&standing) {
            let is_fine =
                matches!(now.standing, Standing::On | Standing::OptedOut | Standing::Closed);
            let words = now.trouble.as_ref().map(|trouble| format!(": {trouble}"));
            let words = format!("{}{}", now.standing, words.unwrap_or_default());
            self.tell(!is_fine, words);
            self.standing = Some(standing);
        }
        let told = [self.refusal.take(), self.error.take()];
        for text in [&now.last_refusal, &now.last_error].into_iter().flatten() {
            if !told.iter().flatten().any(|before| before == text) {
                self.tell(true, text.clone());
            }
        }
        (self.refusal, self.error) = (now.last_refusal.clone(), now.last_error.clone());
        let (accepted, refused) = self.uploads;
        if now.uploads_accepted > accepted {
            self.tell(
                false,
                format!("{} uploads were counted since the start", now.uploads_accepted),
            );
        }
        if now.uploads_refused > refused {
            self.tell(
                true,
                format!("{} uploads were refused since the start", now.uploads_refused),
            );
        }
        self.uploads = (now.uploads_accepted, now.uploads_refused);
    }

    fn tell(&mut self, is_warning: bool, text: String) {
        // Whoever takes no lines keeps no more than the newest.
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(LogLine { is_warning, text });
    }

    pub(crate) fn take(&mut self) -> Option<LogLine> {
        self.lines.pop_front()
    }
}
