//! Metrics of uploads, from their arrival to their commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_edge::telemetry::metrics::Histogram;
use bandana_shared::identity::Day;
use bandana_shared::wire::v1::UploadStatus;
use bandana_store::{StoreCell, StoreCells, Verdict};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::alarms::{Alarm, Refusals, ids_full, store_cells};
use crate::ingest::IngestError;
use crate::trusted::TrustedMetrics;

/// The bucket bounds of the duration of a commit, in nanoseconds.
const COMMIT_BOUNDS: [u64; 12] = [
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    5_000_000_000,
];

/// The bucket bounds of the number of uploads in a commit.
const GROUP_BOUNDS: [u64; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// Counts the outcomes of uploads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IngestMetrics {
    clock: Arc<dyn Clock>,
    /// By the number of the status, less 1: status 0 is never sent.
    outcomes: Vec<Counter>,
    turned_away: TurnedAway,
    reports: Counter,
    commit_time: Histogram,
    group_uploads: Histogram,
    ids: Gauge,
    ids_max: Gauge,
    oldest_day: Gauge,
    clock_ahead: Gauge,
    clock_behind: Gauge,
    last_commit: Arc<AtomicU64>,
    refusals: Arc<Mutex<Refusals>>,
    /// The store cells, once they are open.
    cells: Arc<OnceLock<Arc<StoreCells>>>,
    /// Metrics of disclosures to trusted experiments.
    pub(crate) trusted: TrustedMetrics,
}

/// Counts uploads without a decision, by reason.
#[derive(Clone, Debug, Default)]
struct TurnedAway {
    queue_full: Counter,
    ids_full: Counter,
    ids_of_app_full: Counter,
    clock_behind: Counter,
    going_down: Counter,
    database: Counter,
    rate: Counter,
}

/// The value before the first commit.
const NEVER: u64 = u64::MAX;

/// The statuses that are sent, in the order of their numbers.
fn statuses() -> impl Iterator<Item = UploadStatus> {
    (1..).map_while(|number| UploadStatus::try_from(number).ok())
}

/// The label of a status, such as "accepted".
fn label(status: UploadStatus) -> String {
    status.as_str_name().trim_start_matches("UPLOAD_STATUS_").to_lowercase()
}

impl IngestMetrics {
    /// Unregistered metrics.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            outcomes: statuses().map(|_| Counter::default()).collect(),
            turned_away: TurnedAway::default(),
            reports: Counter::default(),
            commit_time: Histogram::of_times(&COMMIT_BOUNDS),
            group_uploads: Histogram::of_counts(&GROUP_BOUNDS),
            ids: Gauge::default(),
            ids_max: Gauge::default(),
            oldest_day: Gauge::default(),
            clock_ahead: Gauge::default(),
            clock_behind: Gauge::default(),
            last_commit: Arc::new(AtomicU64::new(NEVER)),
            refusals: Arc::default(),
            cells: Arc::default(),
            trusted: TrustedMetrics::new(),
        }
    }

    pub(crate) fn registered(clock: Arc<dyn Clock>, registry: &mut Registry) -> Self {
        let outcomes: Family<[(&str, String); 1], Counter> = Family::default();
        let turned_away: Family<[(&str, &str); 1], Counter> = Family::default();
        let of = |status| outcomes.get_or_create_owned(&[("outcome", label(status))]);
        let because = |reason| turned_away.get_or_create_owned(&[("reason", reason)]);
        let this = Self {
            outcomes: statuses().map(of).collect(),
            turned_away: TurnedAway {
                queue_full: because("queue_full"),
                ids_full: because("ids_full"),
                ids_of_app_full: because("ids_of_app_full"),
                clock_behind: because("clock_behind"),
                going_down: because("going_down"),
                database: because("database"),
                rate: because("rate"),
            },
            trusted: TrustedMetrics::registered(registry),
            ..Self::new(clock)
        };
        registry.register("uploads", "Uploads that were answered, by their status", outcomes);
        registry.register(
            "uploads_turned_away",
            "Uploads that were told to come again, because of the server",
            turned_away,
        );
        let reports = "Reports of the uploads that were accepted";
        registry.register("reports_accepted", reports, this.reports.clone());
        let commit = "Time from the begin of a transaction with uploads to its end on the disk";
        let time = this.commit_time.clone();
        registry.register_with_unit("commit_duration", commit, Unit::Seconds, time);
        let group = "Accepted uploads in one commit";
        registry.register("commit_uploads", group, this.group_uploads.clone());
        registry.register("ids_remembered", "Upload ids in memory", this.ids.clone());
        let max = "Upload ids that may be in memory: store.ids_max";
        registry.register("ids_remembered_max", max, this.ids_max.clone());
        registry.register_with_unit(
            "replay_window_start_timestamp",
            "Start of the oldest day whose uploads are taken, since 1970-01-01 (UTC)",
            Unit::Seconds,
            this.oldest_day.clone(),
        );
        registry.register_with_unit(
            "clock_ahead",
            "How far the clock is ahead of the latest day that the time that has passed allows",
            Unit::Seconds,
            this.clock_ahead.clone(),
        );
        registry.register_with_unit(
            "clock_behind",
            "How far the clock is at least behind the newest day of which an upload was counted",
            Unit::Seconds,
            this.clock_behind.clone(),
        );
        this
    }

    /// Records the content of a store that was opened.
    pub(crate) fn opened(&self, ids: usize, ids_max: usize, oldest: Day) {
        self.ids_max.set(i64::try_from(ids_max).unwrap_or(i64::MAX));
        self.remembered(ids, oldest);
    }

    /// Records the number of remembered upload ids, and their first day.
    pub(crate) fn remembered(&self, ids: usize, oldest: Day) {
        self.ids.set(i64::try_from(ids).unwrap_or(i64::MAX));
        self.oldest_day.set(i64::from(oldest.get()) * DAY_SECONDS);
    }

    /// Records by how many days the clock is ahead of the day by which uploads are judged.
    pub(crate) fn judged_by(&self, ahead: u32) {
        self.clock_ahead.set(i64::from(ahead) * DAY_SECONDS);
    }

    /// Records by how much the clock is behind the newest day with a counted upload.
    pub(crate) fn is_behind(&self, by: Duration) {
        self.clock_behind.set(i64::try_from(by.as_secs()).unwrap_or(i64::MAX));
    }

    /// The present time, for [`Self::committed`].
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Counts a commit that began at `begin`, with its accepted uploads and reports.
    pub(crate) fn committed(&self, begin: Duration, uploads: u64, reports: u64) {
        let end = self.clock.monotonic();
        self.commit_time.add_time(end.saturating_sub(begin));
        let nanoseconds = u64::try_from(end.as_nanos()).unwrap_or(NEVER - 1);
        self.last_commit.store(nanoseconds, Ordering::Relaxed);
        self.group_uploads.add(uploads);
        self.reports.inc_by(reports);
    }

    /// Counts the verdicts of a group.
    pub(crate) fn decided(&self, verdicts: &[Verdict]) {
        let mut outcomes = vec![0; self.outcomes.len()];
        for verdict in verdicts {
            match status_of(*verdict) {
                Ok(status) => outcomes[place(status)] += 1,
                Err(Undecided::IdsFull) => drop(self.turned_away.ids_full.inc()),
                Err(Undecided::IdsOfAppFull) => drop(self.turned_away.ids_of_app_full.inc()),
                Err(Undecided::ClockBehind) => drop(self.turned_away.clock_behind.inc()),
            }
        }
        for (status, uploads) in statuses().zip(outcomes) {
            if uploads > 0 {
                self.answered(status, uploads);
            }
        }
    }

    fn answered(&self, status: UploadStatus, uploads: u64) {
        self.outcomes[place(status)].inc_by(uploads);
        self.watched().add(self.clock.monotonic(), status, uploads);
    }

    fn watched(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The alarm about a jump in refusals, if it rings.
    pub(crate) fn refusals_alarm(&self) -> Option<Alarm> {
        self.watched().alarm(self.clock.monotonic())
    }

    /// The alarm about full ids, if it rings.
    pub(crate) fn ids_alarm(&self) -> Option<Alarm> {
        let number = |gauge: &Gauge| u64::try_from(gauge.get()).unwrap_or(0);
        ids_full::alarm(number(&self.ids), number(&self.ids_max))
    }

    /// Watches these store cells from now on.
    pub(crate) fn watch_cells(&self, cells: Arc<StoreCells>) {
        // A server opens its store once.
        self.cells.set(cells).ok();
    }

    /// The store cells, each with what keeps uploads from being counted there.
    pub(crate) fn cells(&self) -> Vec<(StoreCell, Option<String>)> {
        self.cells.get().map(|cells| cells.problems()).unwrap_or_default()
    }

    /// The alarm about store cells that can't be used, if it rings.
    pub(crate) fn cells_alarm(&self) -> Option<Alarm> {
        let cells = self.cells();
        let problem = |(cell, problem): &(StoreCell, Option<String>)| {
            let problem = problem.as_ref()?;
            Some(format!("store cell {cell} can't be used: {problem}"))
        };
        store_cells::alarm(&cells.iter().filter_map(problem).collect::<Vec<_>>(), cells.len())
    }

    /// Counts an upload that was refused before it reached the writer.
    pub(crate) fn refused(&self, status: UploadStatus) {
        self.answered(status, 1);
    }

    /// Counts an upload without a verdict.
    pub(crate) fn turned_away(&self, error: IngestError) {
        match error {
            IngestError::QueueFull => self.turned_away.queue_full.inc(),
            IngestError::Ended => self.turned_away.going_down.inc(),
            IngestError::Store => self.turned_away.database.inc(),
        };
    }

    /// Counts an upload that exceeds its rate.
    pub(crate) fn over_rate(&self) {
        self.turned_away.rate.inc();
    }

    /// The time since the last commit of this process.
    pub(crate) fn since_last_commit(&self) -> Option<Duration> {
        let last = self.last_commit.load(Ordering::Relaxed);
        let last = (last != NEVER).then(|| Duration::from_nanos(last))?;
        Some(self.clock.monotonic().saturating_sub(last))
    }
}

/// The index of a status among those that are sent.
fn place(status: UploadStatus) -> usize {
    usize::try_from(i32::from(status)).unwrap_or_default().saturating_sub(1)
}

/// The reason why an upload got no status.
enum Undecided {
    IdsFull,
    IdsOfAppFull,
    ClockBehind,
}

fn status_of(verdict: Verdict) -> Result<UploadStatus, Undecided> {
    Ok(match verdict {
        Verdict::Accepted => UploadStatus::Accepted,
        Verdict::Duplicate => UploadStatus::Duplicate,
        Verdict::Expired { .. } => UploadStatus::Expired,
        Verdict::FutureDay { .. } => UploadStatus::FutureDay,
        Verdict::Paused => UploadStatus::Paused,
        Verdict::Stopped => UploadStatus::Stopped,
        Verdict::Full => return Err(Undecided::IdsFull),
        Verdict::FullForApp => return Err(Undecided::IdsOfAppFull),
        Verdict::ClockBehind => return Err(Undecided::ClockBehind),
    })
}
