//! One run of a server, as seen by its callers.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::ensure;
use bandana_aggregator::ingest::Ingest;
use bandana_aggregator::registry::{Experiment, Registry};
use bandana_edge::clock::Clock as _;
use bandana_shared::identity::Day;

use super::callers::Callers;
use super::model::{Model, Sums, check_at_most, named};
use super::time::SimulatedClock;

/// The fault of the next write, and whether the server survives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) point: Point,
    pub(crate) is_crash: bool,
}

/// The point at which a write ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    Before,
    /// After part of its bytes are in the log.
    Within,
    /// After its success, which is not reported.
    After,
}

/// A running server.
pub(crate) struct Life {
    pub(crate) registry: Arc<Registry>,
    pub(crate) ingest: Ingest,
    pub(crate) due: mpsc::Receiver<Arc<Experiment>>,
    pub(crate) callers: Callers,
    pub(crate) fault: Option<Fault>,
    /// Minimum tallies that the server must publish.
    pub(crate) shown_min: Sums,
    /// Number of changes that the store has made, and number of those that callers know of.
    pub(crate) changes: (u64, u64),
    pub(crate) has_jumped: bool,
    first: (Day, Duration),
    last: Day,
}

impl Life {
    pub(crate) fn new(
        registry: Arc<Registry>,
        ingest: Ingest,
        due: mpsc::Receiver<Arc<Experiment>>,
        clock: &SimulatedClock,
    ) -> Self {
        let shown_min = Sums::new();
        Self {
            registry,
            ingest,
            due,
            callers: Callers::default(),
            fault: None,
            shown_min,
            changes: (0, 0),
            has_jumped: false,
            first: (clock.day(), clock.monotonic()),
            last: Day::new(0),
        }
    }

    /// The published tallies.
    pub(crate) fn shown(&self) -> Sums {
        let all = self.registry.all().into_iter();
        all.flat_map(|experiment| named(experiment.id().as_str(), &experiment.tallies())).collect()
    }

    /// Checks that the published tallies include everything acknowledged, and only counted reports.
    pub(crate) fn check_shown(&self, model: &Model) -> anyhow::Result<()> {
        let shown = self.shown();
        model.check_shown(&shown)?;
        check_at_most(&self.shown_min, &shown)
    }

    /// Checks the day by which uploads will be judged.
    pub(crate) fn check_day(
        &mut self,
        today: Day,
        clock: &SimulatedClock,
        begin_max: Day,
    ) -> anyhow::Result<()> {
        ensure!(today >= self.last, "day {today} came after {}", self.last);
        self.last = today;
        if !self.has_jumped {
            ensure!(today == clock.day(), "judged by day {today} on day {}", clock.day());
        }
        let (first, since) = self.first;
        let passed = clock.monotonic().saturating_sub(since).as_secs() / 86_400;
        let latest = first.forward(u32::try_from(passed)? + 1);
        // A server that starts before the window knows that the clock is wrong, and follows it
        // later.
        ensure!(today <= latest || first < begin_max, "day {today} is after {latest}");
        Ok(())
    }
}
