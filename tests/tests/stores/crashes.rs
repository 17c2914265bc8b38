//! A crash at every write, and a writer over a store that fails.

use std::sync::{Arc, mpsc};

use anyhow::{Context as _, ensure};
use bandana_aggregator::ingest::IngestMetrics;
use bandana_aggregator::ingest::{IngestError, Writer};
use bandana_aggregator::registry::Registry;
use bandana_edge::clock::ManualClock;
use bandana_learners::LearnerConfig;
use bandana_shared::identity::{Day, Digest};
use bandana_shared::specification::{Arm, Specification};
use bandana_store::Verdict::{Accepted, Duplicate};
use bandana_store::{
    AuditAction, AuditEntry, Committed, CuratorChange, DatabaseError, EpochToAdd, ExpectedState,
    ExperimentChange, ExperimentRecord, ExperimentState, Store, StoreError, TrustedChange,
    ValidUpload, Window, WrittenRecord,
};
use futures_util::FutureExt as _;

use super::Case;
use super::places::{Place, commit, create, entry, experiment, reports, upload};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_crash_at_any_write_loses_and_doubles_nothing", crash_at_every_write),
    ("uploads_of_unknown_outcome_are_sent_again_and_count_once", unknown_outcome),
    ("a_cancelled_call_harms_nobody", cancelled),
];

/// The fault of a store: at the write of this number, before or after it is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Before(usize),
    After(usize),
}

/// A store that fails once.
#[derive(Debug)]
pub(super) struct Faulty {
    store: Box<dyn Store>,
    fault: Fault,
    writes: usize,
}

impl Faulty {
    pub(super) fn new(store: Box<dyn Store>, fault: Fault) -> Self {
        Self { store, fault, writes: 0 }
    }

    fn write<T>(
        &mut self,
        write: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.writes += 1;
        let failure = StoreError::Database(DatabaseError::Slow { doing: "failing on purpose" });
        match self.fault {
            Fault::Before(number) if number == self.writes => Err(failure),
            Fault::After(number) if number == self.writes => {
                write(&mut *self.store)?;
                Err(failure)
            }
            _ => write(&mut *self.store),
        }
    }
}

impl Store for Faulty {
    fn add_epoch(&mut self, addition: &EpochToAdd) -> Result<(), StoreError> {
        self.write(|store| store.add_epoch(addition))
    }

    fn load(&mut self) -> Result<Vec<ExperimentRecord>, StoreError> {
        self.store.load()
    }

    fn window(&self, today: Day) -> Window {
        self.store.window(today)
    }

    fn commit(&mut self, uploads: &[ValidUpload], today: Day) -> Result<Committed, StoreError> {
        self.write(|store| store.commit(uploads, today))
    }

    fn create_experiment_with(
        &mut self,
        specification: &Specification,
        settings: (LearnerConfig, &WrittenRecord),
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.write(|store| store.create_experiment_with(specification, settings, state, entry))
    }

    fn apply_experiment_change(
        &mut self,
        change: ExperimentChange<'_>,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.write(|store| store.apply_experiment_change(change, entry))
    }

    fn delete(&mut self, expected: ExpectedState, entry: &AuditEntry) -> Result<(), StoreError> {
        self.write(|store| store.delete(expected, entry))
    }

    fn deleted(&mut self) -> Result<Vec<Digest>, StoreError> {
        self.store.deleted()
    }

    fn apply_query_change(&mut self, change: &CuratorChange) -> Result<(), StoreError> {
        self.write(|store| store.apply_query_change(change))
    }

    fn apply_trusted_change(&mut self, change: &TrustedChange) -> Result<(), StoreError> {
        self.write(|store| store.apply_trusted_change(change))
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.store.close()
    }
}

/// Does some work that can be resumed from any point, and returns the number of reports that must
/// be counted afterwards.
fn work(store: &mut dyn Store, name: &str, uploads: u128) -> anyhow::Result<u64> {
    let found = |store: &mut dyn Store| {
        let records = store.load()?;
        anyhow::Ok(records.into_iter().find(|record| {
            record.revisions.first().is_some_and(|first| first.experiment_id().as_str() == name)
        }))
    };
    if found(store)?.is_none() {
        create(store, name)?;
    }
    let record = found(store)?.context("it was created")?;
    let only = experiment(&record)?;
    for group in 0..3_u32 {
        let ids = [group, group + 1, 100 + group].map(u128::from);
        let group: Vec<ValidUpload> = ids
            .into_iter()
            .map(|id| upload(&only, uploads | id, 100 + group / 2, 1 << id.min(40)))
            .collect::<Result<_, _>>()?;
        commit(store, &group, 101)?;
    }
    let expected = record.expected().context("no revision")?;
    if record.revisions.len() == 1 {
        let revised = record.revisions[0].with_arm(Arm::new("c")?)?;
        store.add_revision(expected, &revised, &entry(name, AuditAction::AddArm)?)?;
    }
    let expected = found(store)?.and_then(|record| record.expected()).context("no revision")?;
    if expected.state == ExperimentState::Running {
        let pause = entry(name, AuditAction::Pause)?;
        store.set_state(expected, ExperimentState::Paused, &pause)?;
    }
    // Of day 100: 0, 1, 2, 100, 101. Of day 101: 2, 3, 102.
    Ok((1 + 2 + 4 + 2 * (1 << 40)) + (4 + 8 + (1 << 40)))
}

fn crash_at_every_write(place: &Place) -> anyhow::Result<()> {
    const WRITES: usize = 6;
    for number in 1..=WRITES {
        for fault in [Fault::Before(number), Fault::After(number)] {
            let uploads =
                u128::from(matches!(fault, Fault::After(_))) << 80 | (number as u128) << 70;
            let name = format!("{fault:?}").to_lowercase().replace(['(', ')'], "-");
            let mut faulty = Faulty { store: place.open()?, fault, writes: 0 };
            work(&mut faulty, &name, uploads)
                .err()
                .with_context(|| format!("{fault:?}: no crash"))?;
            drop(faulty);
            // Twice, as a caller without an answer may do.
            let mut store = place.open()?;
            work(&mut *store, &name, uploads)?;
            let expected = work(&mut *store, &name, uploads)?;
            let records = store.load()?;
            let record = records.last().context("no experiment")?;
            let counted: u64 = record.tallies.iter().map(|tally| tally.reports()).sum();
            ensure!(counted == expected, "{fault:?}: {counted:#x} and not {expected:#x}");
            ensure!(record.state == ExperimentState::Paused && record.revisions.len() == 2);
            let audit = place.audit()?.into_iter();
            let of_this = audit.filter(|record| record.entry.experiment.as_str() == name).count();
            ensure!(of_this == 3, "{fault:?}: {of_this} entries in the audit log");
        }
    }
    Ok(())
}

/// Runs a writer over a store, with the submissions of `uploads`.
fn with_writer(
    store: Box<dyn Store>,
    uploads: impl AsyncFnOnce(bandana_aggregator::ingest::Ingest, &Registry) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let clock = Arc::new(ManualClock::at_day(Day::new(100)));
    let registry = Arc::new(Registry::new(1, clock.clone()));
    let metrics = IngestMetrics::new(clock.clone());
    let (due, _experiments_due) = mpsc::channel();
    let (writer, ingest) = Writer::open(store, Arc::clone(&registry), clock, due, metrics)?;
    let writer = std::thread::spawn(move || writer.run());
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let outcome = runtime.block_on(async {
        let outcome = uploads(ingest.clone(), &registry).await;
        ingest.stop().await;
        outcome
    });
    writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    outcome
}

fn unknown_outcome(place: &Place) -> anyhow::Result<()> {
    for (fault, then) in [(Fault::Before(1), Accepted), (Fault::After(1), Duplicate)] {
        let name = format!("{then:?}").to_lowercase();
        let mut store = place.open()?;
        let before = reports(&mut *store)?;
        create(&mut *store, &name)?;
        let faulty = Box::new(Faulty { store, fault, writes: 0 });
        with_writer(faulty, async |ingest, registry| {
            let all = registry.all();
            let only = all.iter().find(|e| e.id().as_str() == name).context("no experiment")?;
            let upload = upload(only, u128::from(before), 100, 3)?;
            let told = ingest.submit(upload.clone()).await;
            ensure!(told == Err(IngestError::Store), "{told:?}");
            let told = ingest.submit(upload).await;
            ensure!(told == Ok(then), "{fault:?}: {told:?}");
            Ok(())
        })?;
        ensure!(reports(&mut *place.open()?)? == before + 3);
    }
    Ok(())
}

fn cancelled(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    create(&mut *store, "cancelled")?;
    with_writer(store, async |ingest, registry| {
        let only = registry.all().pop().context("no experiment")?;
        for id in 0..5 {
            // Queued, and abandoned after the first poll for an answer.
            let told = ingest.submit(upload(&only, id, 100, 1)?).now_or_never();
            ensure!(told.is_none_or(|verdict| verdict == Ok(Accepted)));
        }
        ensure!(ingest.submit(upload(&only, 9, 100, 1)?).await == Ok(Accepted));
        Ok(())
    })?;
    ensure!(reports(&mut *place.open()?)? == 6);
    Ok(())
}
