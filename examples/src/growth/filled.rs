//! A store with experiments and ids, written without a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use bandana_aggregator::registry::{Experiment, Registry};
use bandana_edge::clock::{Clock as _, SystemClock};
use bandana_learners::{Learner, LearnerConfig};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{
    CellIndex, Day, Digest, ExperimentId, Revision, UnixSeconds, UploadId,
};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::tally::Tally;
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::v1::UploadRequest;
use bandana_store::{
    AuditAction, AuditEntry, EmbeddedSettings, EmbeddedStore, ExperimentState, PostgresSettings,
    PostgresStore, Store, ValidUpload, Verdict,
};
use prost::Message as _;
use rand::TryRng as _;

use super::Size;

/// Uploads of a commit.
const GROUP: u64 = 4096;

const CONFIG: LearnerConfig = LearnerConfig::new(Learner::LdpTs);

/// What uploads to a filled store need.
#[derive(Debug)]
pub(super) struct Filled {
    digests: Vec<Digest>,
    arms: usize,
    day: Day,
    /// The second half of all upload ids.
    load: u64,
    /// Mean time in which the store made an experiment.
    pub(super) creation: Duration,
}

impl Filled {
    /// The upload with this number, to one experiment after the other.
    pub(super) fn upload(&self, number: u64) -> anyhow::Result<UploadRequest> {
        let place = usize::try_from(number)?;
        let arm = CellIndex::new(place / self.digests.len() % self.arms)?;
        let upload = Upload {
            id: id(number, self.load),
            digest: self.digests[place % self.digests.len()],
            day: self.day,
            reports: PackedReports::pack(vec![(arm, number.is_multiple_of(3))])?,
        };
        Ok(UploadRequest::decode(&upload.to_bytes()[..])?)
    }
}

/// Ids in no order, and different for every number.
fn id(number: u64, load: u64) -> UploadId {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    UploadId::new((u128::from(scattered) << 64 | u128::from(load)).to_be_bytes())
}

/// Makes a store of a size, in a directory or in a database.
pub(super) async fn fill(
    folder: Option<PathBuf>,
    url: Option<String>,
    size: Size,
) -> anyhow::Result<Filled> {
    tokio::task::spawn_blocking(move || {
        let mut store: Box<dyn Store> = match (folder, url) {
            (_, Some(url)) => Box::new(PostgresStore::open(&PostgresSettings {
                url: url.parse()?,
                ca: None,
                password_file: None,
                replay_window_days: size.days,
                id_partitions: 1,
                cells: Vec::new(),
            })?),
            (Some(folder), None) => {
                let settings =
                    EmbeddedSettings { replay_window_days: size.days, ids_max: 50_000_000 };
                Box::new(EmbeddedStore::open(&folder, settings)?)
            }
            (None, None) => anyhow::bail!("no place for a store"),
        };
        let filled = write(&mut *store, size)?;
        store.close()?;
        Ok(filled)
    })
    .await?
}

fn write(store: &mut dyn Store, size: Size) -> anyhow::Result<Filled> {
    let load = rand::rngs::SysRng.try_next_u64()?;
    let clock = Arc::new(SystemClock::new());
    let day = clock.day();
    let mut records = Vec::new();
    let begin = clock.monotonic();
    for number in 0..size.experiments {
        let specification = specification(&format!("growth-{load:016x}-{number:05}"), size.arms)?;
        let entry = AuditEntry {
            at: UnixSeconds::new(clock.unix_seconds()),
            caller: "growth-study".to_owned(),
            action: AuditAction::Create,
            experiment: specification.experiment_id().clone(),
            detail: String::new(),
        };
        let state = ExperimentState::Running;
        records.push(store.create_experiment(&specification, CONFIG, state, &entry)?);
    }
    let experiments = u32::try_from(size.experiments)?.max(1);
    let creation = clock.monotonic().saturating_sub(begin) / experiments;
    let digests = records.iter().flat_map(|record| &record.revisions).map(Specification::digest);
    let digests = digests.collect();
    let experiments = Registry::new(1, clock).publish_all(records)?;
    for first in (0..size.ids).step_by(usize::try_from(GROUP)?) {
        let numbers = first..(first + GROUP).min(size.ids);
        let upload = |number: u64| {
            let place = usize::try_from(number)?;
            anyhow::Ok(ValidUpload {
                id: id(number, !load),
                day: day.back(u32::try_from(number % u64::from(size.days))?),
                experiment: Arc::<Experiment>::clone(&experiments[place % experiments.len()]),
                revision: Revision::FIRST,
                tallies: vec![(CellIndex::new(place % size.arms)?, Tally::new(1, number % 2)?)],
                app: None,
            })
        };
        let group = numbers.map(upload).collect::<anyhow::Result<Vec<_>>>()?;
        let committed = store.commit(&group, day)?;
        let is_counted = |verdict: &Verdict| *verdict == Verdict::Accepted;
        ensure!(committed.verdicts.iter().all(is_counted), "ids were not counted");
    }
    Ok(Filled { digests, arms: size.arms, day, load, creation })
}

fn specification(id: &str, arms: usize) -> anyhow::Result<Specification> {
    let arms = (0..arms).map(|arm| Arm::new(format!("arm {arm}"))).collect::<Result<_, _>>()?;
    Ok(Specification::first(
        ExperimentId::new(id)?,
        Epsilon::new(1.0)?,
        Rewards::binary(),
        Mechanism::Linear,
        arms,
        ReleaseTiming::IMMEDIATE,
    )?)
}
