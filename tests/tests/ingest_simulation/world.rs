//! Devices, gateways and operators, and the events around a commit.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bandana_aggregator::ingest::{ExperimentChange, ExperimentCommand, IngestError};
use bandana_edge::clock::Clock as _;
use bandana_shared::identity::{CellIndex, Day, UploadId};
use bandana_shared::tally::Tally;
use bandana_store::{Committed, ExperimentRecord, ValidUpload, Verdict};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use super::Counts;
use super::callers::{Answer, Call, Known, Moment, Question, poll};
use super::life::{Fault, Life, Point};
use super::model::{Content, Key, Model, add};
use super::place::WINDOW;
use super::time::SimulatedClock;

/// An upload, and the revision that it is for.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) key: Key,
    pub(crate) known: Known,
}

/// Everything except the servers.
pub(crate) struct World {
    pub(crate) random: ChaCha8Rng,
    pub(crate) model: Model,
    /// Each server's clock, and its current run.
    pub(crate) servers: Vec<(Arc<SimulatedClock>, Option<Life>)>,
    pub(crate) made: Vec<Made>,
    pub(crate) known: Vec<Known>,
    pub(crate) log: Vec<String>,
    pub(crate) counts: Counts,
    /// A failure found inside a store.
    pub(crate) wrong: Option<anyhow::Error>,
    pub(crate) is_embedded: bool,
    pub(crate) queue_max: usize,
    /// Whether commits may be slow.
    pub(crate) is_calm: bool,
}

impl World {
    /// Records an event.
    pub(crate) fn note(&mut self, what: &'static str, how: &str) {
        *self.counts.entry(what).or_default() += 1;
        self.log.push(format!("{what} {how}"));
    }

    /// True with a probability of one in `times`.
    pub(crate) fn one_in(&mut self, times: u32) -> bool {
        self.random.random_range(0..times) == 0
    }

    pub(crate) fn life(&mut self, server: usize) -> anyhow::Result<&mut Life> {
        self.servers[server].1.as_mut().context("the server is not there")
    }

    pub(crate) fn clock(&self, server: usize) -> Arc<SimulatedClock> {
        Arc::clone(&self.servers[server].0)
    }

    /// Advances the time everywhere.
    pub(crate) fn pass(&mut self, seconds: u64) {
        self.servers.iter().for_each(|(clock, _)| clock.pass(seconds));
        let (clock, _) = &self.servers[0];
        let before = Day::of_unix_seconds(clock.unix_seconds().saturating_sub(seconds));
        let what = if clock.day() > before { "midnight" } else { "time" };
        self.note(what, &format!("passes, {seconds} s"));
    }

    /// A device makes an upload of one report, or a gateway one of many.
    pub(crate) fn make(&mut self, server: usize, is_gateway: bool) -> anyhow::Result<Option<Made>> {
        if self.known.is_empty() {
            return Ok(None);
        }
        let known = self.known[self.random.random_range(0..self.known.len())].clone();
        let today = self.clock(server).day();
        let day = match self.random.random_range(0..10_u32) {
            0 => today.forward(self.random.random_range(1..3)),
            1 => today.back(self.random.random_range(WINDOW - 1..WINDOW + 3)),
            2 | 3 => today.back(1),
            _ => today,
        };
        // Sometimes the name of another upload, for another day.
        let id = match self.made.last() {
            Some(last) if self.random.random_range(0..20_u32) == 0 => last.key.1,
            _ => UploadId::new(self.random.random::<u128>().to_be_bytes()),
        };
        let key = (day, id);
        if self.model.is_made(key) {
            return Ok(None);
        }
        let mut tallies = Vec::new();
        let first = self.random.random_range(0..known.arms);
        let arms = if is_gateway { 0..known.arms } else { first..first + 1 };
        for arm in arms {
            let reports = if is_gateway { self.random.random_range(1..1000) } else { 1 };
            let ones = self.random.random_range(0..=reports);
            tallies.push((CellIndex::new(arm)?, Tally::new(reports, ones)?));
        }
        self.model.make(key, Content { experiment: known.experiment.clone(), tallies });
        let made = Made { key, known };
        self.made.push(made.clone());
        Ok(Some(made))
    }

    /// Sends an upload to a server.
    pub(crate) fn send(&mut self, server: usize, made: &Made) -> anyhow::Result<()> {
        let tallies = self.model.content(made.key)?.tallies.clone();
        let (day, id) = made.key;
        let queue_max = self.queue_max;
        let Some(life) = &mut self.servers[server].1 else { return Ok(()) };
        let Some(revision) = life.registry.by_digest(made.known.digest) else {
            // The call would be rejected with a request to retry.
            return Ok(());
        };
        let number = revision.specification.revision();
        let arrival = ValidUpload {
            id,
            day,
            experiment: revision.experiment,
            revision: number,
            tallies,
            app: None,
        };
        let ingest = life.ingest.clone();
        let mut call: Call = Box::pin(async move { Answer::Verdict(ingest.submit(arrival).await) });
        let is_full = life.callers.queued() >= queue_max;
        match poll(&mut call) {
            std::task::Poll::Pending if !is_full => {
                life.callers.push(Question::Upload(made.key), call);
                let short = u128::from_be_bytes(*id.as_bytes()) >> 112;
                self.note("sent", &format!("{short:04x} of day {day} to {server}"));
            }
            std::task::Poll::Ready(Answer::Verdict(Err(IngestError::QueueFull))) if is_full => {
                self.note("queue full", "");
            }
            other => anyhow::bail!("{other:?} at once, and the queue is full: {is_full}"),
        }
        Ok(())
    }

    /// Sends a change to a server, if there is room in its queue.
    pub(crate) fn order(
        &mut self,
        server: usize,
        administration: ExperimentChange,
    ) -> anyhow::Result<()> {
        let how = format!("{administration:?}").chars().take(24).collect::<String>();
        let queue_max = self.queue_max;
        let life = self.life(server)?;
        if life.callers.queued() >= queue_max {
            return Ok(());
        }
        let ingest = life.ingest.clone();
        let order = ExperimentCommand { caller: "anna".to_owned(), administration };
        let mut call: Call = Box::pin(async move {
            let changed = ingest.administer(order).await;
            Answer::Change(changed.map_err(|error| error.to_string()).map(|experiment| {
                let newest = &experiment.serving().specification;
                let (digest, arms) = (newest.digest(), newest.arms().len());
                Known { experiment: experiment.id().to_string(), digest, arms }
            }))
        });
        ensure!(poll(&mut call).is_pending(), "a change was answered at once");
        life.callers.push(Question::Change, call);
        self.note("order", &how);
        Ok(())
    }

    /// Cancels a random call.
    pub(crate) fn cancel(&mut self, server: usize) {
        let place = self.random.random_range(0..8);
        let Some(life) = &mut self.servers[server].1 else { return };
        if life.callers.cancel(place) {
            self.note("cancelled", &place.to_string());
        }
    }

    /// Delivers answers to callers; some are lost.
    pub(crate) fn hear(&mut self, server: usize, moment: Moment) -> anyhow::Result<()> {
        let heard = self.life(server)?.callers.hear(moment)?;
        for (question, answer) in heard {
            match (question, answer) {
                (Question::Upload(key), Answer::Verdict(Ok(verdict))) => {
                    if self.one_in(6) {
                        self.note("answer lost", "");
                    } else if matches!(verdict, Verdict::Accepted | Verdict::Duplicate) {
                        self.model.acknowledge(key)?;
                    }
                }
                (_, Answer::Change(Ok(known))) => {
                    self.life(server)?.changes.1 += 1;
                    let is_new = self.known.iter().all(|other| other.digest != known.digest);
                    if is_new && self.known.iter().any(|o| o.experiment == known.experiment) {
                        self.note("revised", &known.experiment);
                    }
                    if is_new {
                        self.known.push(known);
                    }
                    self.note("change", "made");
                }
                (question, answer) => self.log.push(format!("{question:?} hears {answer:?}")),
            }
        }
        Ok(())
    }

    /// Checks before a write that no caller knows of it.
    pub(crate) fn check_nobody_knows(&mut self, server: usize) -> anyhow::Result<()> {
        self.hear(server, Moment::Commit)?;
        let life = self.servers[server].1.as_ref().context("the server is not there")?;
        life.check_shown(&self.model)
    }

    pub(crate) fn begin_commit(
        &mut self,
        server: usize,
        uploads: &[ValidUpload],
        today: Day,
    ) -> anyhow::Result<()> {
        self.check_nobody_knows(server)?;
        let (clock, begin_max) = (self.clock(server), self.model.begin_max());
        self.life(server)?.check_day(today, &clock, begin_max)?;
        self.model.begin_commit(today);
        self.log.push(format!("{server} commits {} on day {today}", uploads.len()));
        Ok(())
    }

    /// Checks the store's verdict, and records it.
    pub(crate) fn judge(
        &mut self,
        uploads: &[ValidUpload],
        today: Day,
        verdicts: &[Verdict],
    ) -> anyhow::Result<()> {
        ensure!(uploads.len() == verdicts.len(), "not one verdict for each upload");
        for (upload, verdict) in uploads.iter().zip(verdicts) {
            self.model.judge((upload.day, upload.id), today, *verdict)?;
            let what = match verdict {
                Verdict::Accepted => "accepted",
                Verdict::Duplicate => "duplicate",
                Verdict::Expired { .. } => "expired",
                Verdict::FutureDay { .. } => "future day",
                Verdict::Paused => "paused",
                Verdict::Stopped => "stopped",
                Verdict::Full => "full",
                Verdict::FullForApp => "full for its app",
                Verdict::ClockBehind => "clock behind",
            };
            self.note(what, "");
        }
        Ok(())
    }

    /// Events during a slow commit. Uploads committed by then have not been answered.
    pub(crate) fn meanwhile(&mut self, server: usize) -> anyhow::Result<()> {
        self.hear(server, Moment::Commit)?;
        if self.is_calm || !self.one_in(4) {
            return Ok(());
        }
        self.note("slow commit", "");
        if self.one_in(2) {
            let hours = if self.one_in(6) { 24 } else { 1 };
            let seconds = self.random.random_range(0..hours * 3600);
            self.pass(seconds);
        }
        for _ in 0..self.random.random_range(0..4_u32) {
            match self.random.random_range(0..3_u32) {
                0 => self.cancel(server),
                1 => {
                    if let Some(made) = self.make(server, false)? {
                        self.send(server, &made)?;
                    }
                }
                _ => self.resend(server)?,
            }
        }
        Ok(())
    }

    /// Sends an upload again, mostly one of the last.
    pub(crate) fn resend(&mut self, server: usize) -> anyhow::Result<()> {
        if self.made.is_empty() {
            return Ok(());
        }
        let first = if self.one_in(4) { 0 } else { self.made.len().saturating_sub(8) };
        let made = self.made[self.random.random_range(first..self.made.len())].clone();
        self.send(server, &made)
    }

    pub(crate) fn next_fault(&mut self, server: usize) -> Option<Fault> {
        let fault = self.servers[server].1.as_mut().and_then(|life| life.fault.take())?;
        self.log.push(format!("{fault:?}"));
        if !fault.is_crash {
            self.note("unknown outcome", "");
        }
        Some(fault)
    }

    /// The length of the log after a fault.
    pub(crate) fn cut(&mut self, fault: Fault, before: u64, after: u64) -> u64 {
        match fault.point {
            Point::Before => before,
            Point::Within => self.random.random_range(before..=after.max(before)),
            Point::After => after,
        }
    }

    /// Records a verdict that the writer must pass on.
    pub(crate) fn expect(
        &mut self,
        server: usize,
        uploads: &[ValidUpload],
        committed: &Committed,
    ) -> anyhow::Result<()> {
        for (upload, verdict) in uploads.iter().zip(&committed.verdicts) {
            let key = (upload.day, upload.id);
            if let Verdict::Expired { oldest } = verdict {
                self.model.tell_oldest(*oldest);
            }
            let is_published = self.is_embedded && *verdict == Verdict::Accepted;
            let content = self.model.content(key)?.clone();
            let life = self.life(server)?;
            life.callers.expect(key, Ok(*verdict));
            if is_published {
                add(&mut life.shown_min, &content);
            }
        }
        Ok(())
    }

    pub(crate) fn expect_failure(
        &mut self,
        server: usize,
        uploads: &[ValidUpload],
    ) -> anyhow::Result<()> {
        let life = self.life(server)?;
        for upload in uploads {
            life.callers.expect((upload.day, upload.id), Err(IngestError::Store));
        }
        Ok(())
    }

    pub(crate) fn count_change(&mut self, server: usize) -> anyhow::Result<()> {
        self.life(server)?.changes.0 += 1;
        Ok(())
    }

    /// Records that a server has loaded its store.
    pub(crate) fn recover(&mut self, records: &[ExperimentRecord]) -> anyhow::Result<()> {
        match self.model.resolve(records)? {
            Some(true) => self.note("survived the crash", ""),
            Some(false) => self.note("lost with the crash", ""),
            None => {}
        }
        self.model.check_stored(records)
    }
}
