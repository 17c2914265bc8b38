//! Locations of stores, and their content in tests.

use std::sync::Arc;

use bandana_aggregator::registry::{Experiment, Registry};
use bandana_edge::clock::ManualClock;
use bandana_learners::Learner;
use bandana_learners::LearnerConfig;
use bandana_learners::guardrails::Guardrails;
use bandana_learners::window::Memory;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{CellIndex, Day, ExperimentId, Revision, UnixSeconds, UploadId};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::tally::Tally;
use bandana_store::{
    AuditAction, AuditEntry, AuditQuery, AuditRecord, EmbeddedSettings, EmbeddedStore,
    ExperimentRecord, ExperimentState, PostgresSettings, PostgresStore, Store, StoreReader,
    ValidUpload, Verdict, Verification, verify_database, verify_directory,
};
use bandana_tests::postgres::Postgres;
use tempfile::TempDir;

/// Length of the replay window of every store here, in days.
pub(crate) const WINDOW: u32 = 3;

/// The name of databases whose days are split, by which their settings are found, and the number of
/// tables that a day of them has.
const SPLIT: &str = "split";
pub(crate) const PARTITIONS: u32 = 3;

pub(crate) const CONFIG: LearnerConfig = LearnerConfig {
    floor_weight: 0.125,
    memory: Memory::Discount(0.5),
    guardrails: Guardrails { burn_in_reports: 1, holdout_share: 0.25 },
    ..LearnerConfig::new(Learner::LdpUcb)
};

/// The location of a store, initially empty.
pub(crate) enum Place {
    Embedded(TempDir),
    Postgres(String),
}

impl Place {
    pub(crate) fn embedded() -> anyhow::Result<Self> {
        Ok(Self::Embedded(tempfile::tempdir()?))
    }

    pub(crate) fn postgres(server: &Postgres) -> anyhow::Result<Self> {
        Ok(Self::Postgres(server.database()?))
    }

    /// A database whose days are split by hash of the id.
    pub(crate) fn split(server: &Postgres) -> anyhow::Result<Self> {
        Ok(Self::Postgres(server.database_for(SPLIT)?))
    }

    /// Opens the store; after a drop without closing, as after a crash.
    pub(crate) fn open(&self) -> anyhow::Result<Box<dyn Store>> {
        Ok(match self {
            Self::Embedded(folder) => {
                let settings = EmbeddedSettings { replay_window_days: WINDOW, ids_max: 100_000 };
                Box::new(EmbeddedStore::open(folder.path(), settings)?)
            }
            Self::Postgres(url) => Box::new(PostgresStore::open(&settings(url)?)?),
        })
    }

    pub(crate) fn verify(&self) -> anyhow::Result<Verification> {
        Ok(match self {
            Self::Embedded(folder) => verify_directory(folder.path())?,
            Self::Postgres(url) => verify_database(&settings(url)?)?,
        })
    }

    /// A reader of the store, which must be open.
    pub(crate) fn reader(&self) -> anyhow::Result<StoreReader> {
        Ok(match self {
            Self::Embedded(folder) => StoreReader::new(folder.path()),
            Self::Postgres(url) => StoreReader::of_postgres(&settings(url)?)?,
        })
    }

    pub(crate) fn audit(&self) -> anyhow::Result<Vec<AuditRecord>> {
        let reader = self.reader()?;
        Ok(reader.audit(&AuditQuery { experiment: None, limit: 1000, before: None })?)
    }
}

pub(crate) fn settings(url: &str) -> anyhow::Result<PostgresSettings> {
    let id_partitions = if url.contains(SPLIT) { PARTITIONS } else { 1 };
    Ok(PostgresSettings {
        url: url.parse()?,
        ca: None,
        password_file: None,
        replay_window_days: WINDOW,
        id_partitions,
        cells: Vec::new(),
    })
}

/// Two arms, binary rewards, an epsilon of 1.
pub(crate) fn specification(id: &str) -> anyhow::Result<Specification> {
    Ok(Specification::first(
        ExperimentId::new(id)?,
        Epsilon::new(1.0)?,
        Rewards::binary(),
        Mechanism::Linear,
        vec![Arm::new("a")?, Arm::new("b")?],
        ReleaseTiming::IMMEDIATE,
    )?)
}

pub(crate) fn entry(id: &str, action: AuditAction) -> anyhow::Result<AuditEntry> {
    Ok(AuditEntry {
        at: UnixSeconds::new(1_700_000_000),
        caller: "anna".to_owned(),
        action,
        experiment: ExperimentId::new(id)?,
        detail: "for a test".to_owned(),
    })
}

/// Adds a running experiment.
pub(crate) fn create(store: &mut dyn Store, id: &str) -> anyhow::Result<ExperimentRecord> {
    let entry = entry(id, AuditAction::Create)?;
    Ok(store.create_experiment(&specification(id)?, CONFIG, ExperimentState::Running, &entry)?)
}

/// A registry with a stopped clock.
pub(crate) fn registry() -> Registry {
    Registry::new(1, Arc::new(ManualClock::at_day(Day::new(100))))
}

/// An experiment as a server has it.
pub(crate) fn experiment(record: &ExperimentRecord) -> anyhow::Result<Arc<Experiment>> {
    Ok(registry().publish(record.clone())?)
}

/// An upload of `reports` ones for the first arm.
pub(crate) fn upload(
    experiment: &Arc<Experiment>,
    id: u128,
    day: u32,
    reports: u64,
) -> anyhow::Result<ValidUpload> {
    Ok(ValidUpload {
        id: UploadId::new(id.to_be_bytes()),
        day: Day::new(day),
        experiment: Arc::<Experiment>::clone(experiment),
        revision: Revision::FIRST,
        tallies: vec![(CellIndex::new(0)?, Tally::new(reports, reports)?)],
        app: None,
    })
}

/// Commits uploads, and returns their verdicts.
pub(crate) fn commit(
    store: &mut dyn Store,
    uploads: &[ValidUpload],
    today: u32,
) -> anyhow::Result<Vec<Verdict>> {
    Ok(store.commit(uploads, Day::new(today))?.verdicts)
}

/// The tallies of every experiment, by name.
pub(crate) fn tallies(store: &mut dyn Store) -> anyhow::Result<Vec<(String, Vec<Tally>)>> {
    let name = |record: &ExperimentRecord| {
        record.revisions.first().map(|r| r.experiment_id().to_string()).unwrap_or_default()
    };
    let records = store.load()?;
    Ok(records.iter().map(|record| (name(record), record.tallies.clone())).collect())
}

/// The number of reports for the first arm of the only experiment.
pub(crate) fn reports(store: &mut dyn Store) -> anyhow::Result<u64> {
    Ok(store.load()?.iter().flat_map(|record| &record.tallies).map(|tally| tally.reports()).sum())
}
