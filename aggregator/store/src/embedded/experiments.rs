//! Experiments in the embedded store: reading them with their tallies, and creating them.

use bandana_learners::guardrails::Guardrails;
use bandana_learners::history::History;
use bandana_learners::window::{Days, Memory};
use bandana_learners::{LearnerConfig, TallySnapshot};
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::decode_specification;
use rusqlite::{params, params_from_iter};

use super::SqliteStore;
use super::database::ready;
use super::deletion::DELETED;
use super::sqlite::{committing, reading};
use crate::daily_tallies::daily_tallies;
use crate::deletion::{ARCHIVED, was_deleted};
use crate::experiments::{add_revision, has_id};
use crate::{
    AuditEntry, DailyTally, ExperimentKey, ExperimentRecord, ExperimentState, RevisionTally,
    StoreError, StoreRefusal, WrittenRecord, audit, damaged, signatures,
};
use crate::{learner_config, memory_columns};

impl SqliteStore {
    /// All experiments with their tallies.
    ///
    /// # Errors
    /// [`StoreError`] when something can't be read or understood.
    pub fn experiments(&self) -> Result<Vec<ExperimentRecord>, StoreError> {
        self.records(None)
    }

    /// One experiment with its tallies.
    ///
    /// # Errors
    /// [`StoreError`] when there is no such experiment, or something can't be read or understood.
    pub fn experiment(&self, key: ExperimentKey) -> Result<ExperimentRecord, StoreError> {
        let gone = || damaged(format!("there is no experiment with the key {}", key.0));
        self.records(Some(key))?.pop().ok_or_else(gone)
    }

    fn records(&self, only: Option<ExperimentKey>) -> Result<Vec<ExperimentRecord>, StoreError> {
        let select = select(only.is_some());
        let mut statement = self.connection.prepare_cached(&select).map_err(reading)?;
        let mut rows = statement.query(params_from_iter(only.map(|key| key.0))).map_err(reading)?;
        let mut records = Vec::new();
        while let Some(row) = rows.next().map_err(reading)? {
            let key = ExperimentKey(row.get(0).map_err(reading)?);
            let state: String = row.get(1).map_err(reading)?;
            let learner: String = row.get(2).map_err(reading)?;
            let (window, discount) = (row.get(4).map_err(reading)?, row.get(5).map_err(reading)?);
            let floor_weight = row.get(3).map_err(reading)?;
            let guardrails = (row.get(6).map_err(reading)?, row.get(7).map_err(reading)?);
            let config = learner_config(&learner, floor_weight, window, discount, guardrails)?;
            let state = ExperimentState::from_name(&state);
            let revisions = self.revisions(key)?;
            let newest = revisions
                .last()
                .ok_or_else(|| damaged("an experiment without specification".to_owned()))?;
            let TallySnapshot { tallies, days, history } =
                self.tallies(key, newest.cells().len(), config.memory)?;
            records.push(ExperimentRecord {
                key,
                config,
                state: state.ok_or_else(|| damaged("state of an experiment".to_owned()))?,
                is_archived: row.get(8).map_err(reading)?,
                written: WrittenRecord::from_bytes(&row.get::<_, Vec<u8>>(9).map_err(reading)?)?,
                tallies,
                days,
                history,
                signatures: ready(signatures::of(&self.connection, newest))?,
                policy: None,
                revisions,
            });
        }
        Ok(records)
    }

    fn revisions(&self, key: ExperimentKey) -> Result<Vec<Specification>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT bytes FROM intact_specification WHERE experiment = ? ORDER BY revision",
            )
            .map_err(reading)?;
        let bytes =
            statement.query_map([key.0], |row| row.get::<_, Vec<u8>>(0)).map_err(reading)?;
        let decode = |bytes: rusqlite::Result<Vec<u8>>| {
            decode_specification(&bytes.map_err(reading)?)
                .map_err(|error| damaged(format!("a specification: {error}")))
        };
        bytes.map(decode).collect()
    }

    /// The tallies over all days, those of each day within the learner's memory, and those of each day and
    /// revision.
    fn tallies(
        &self,
        key: ExperimentKey,
        cells: usize,
        memory: Memory,
    ) -> Result<TallySnapshot, StoreError> {
        let (mut sums, mut days) = (vec![Tally::EMPTY; cells], Days::new());
        let mut history = History::default();
        let all = Day::new(0)..=Day::new(u32::MAX);
        for RevisionTally { revision, daily } in ready(daily_tallies(&self.connection, key, &all))?
        {
            let DailyTally { day, cell, tally } = daily;
            let arm = cell.get();
            *sums.get_mut(arm).ok_or_else(|| damaged(format!("tally of arm {arm}")))? += tally;
            history.add(day, revision, cell, tally);
            if !days.contains_key(&day) {
                // Year by year they would be much.
                memory.prune(&mut days);
            }
            days.entry(day).or_insert_with(|| vec![Tally::EMPTY; cells])[arm] += tally;
        }
        memory.prune(&mut days);
        Ok(TallySnapshot { tallies: sums, days, history })
    }

    /// Adds an experiment in the state `state`.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; [`StoreError::Database`].
    pub fn create_experiment(
        &mut self,
        specification: &Specification,
        config: LearnerConfig,
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentKey, StoreError> {
        let settings = (config, &WrittenRecord::default());
        self.create_experiment_with(specification, settings, state, entry)
    }

    /// Adds an experiment in the state `state`, with this record.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; [`StoreError::Database`].
    pub fn create_experiment_with(
        &mut self,
        specification: &Specification,
        (config, record): (LearnerConfig, &WrittenRecord),
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentKey, StoreError> {
        let insert = "INSERT INTO experiment
            (id, state, learner, floor_weight, window_days, discount, burn_in_reports, holdout_share,
            record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let id = specification.experiment_id();
        let (state, learner) = (state.name(), config.learner.name());
        let (window, discount) = memory_columns(config.memory);
        let Guardrails { burn_in_reports, holdout_share } = config.guardrails;
        let values = params![
            id.as_str(),
            state,
            learner,
            config.floor_weight,
            window,
            discount,
            burn_in_reports,
            holdout_share,
            record.to_bytes()
        ];
        self.change(async |db| {
            if was_deleted(db, id).await? {
                return Err(StoreError::Refused(StoreRefusal::ExperimentWasDeleted(id.clone())));
            }
            if has_id(db, "experiment", id).await? || has_id(db, "trusted_experiment", id).await? {
                return Err(StoreError::Refused(StoreRefusal::ExperimentExists(id.clone())));
            }
            db.execute(insert, values).map_err(committing)?;
            let key = ExperimentKey(db.last_insert_rowid());
            add_revision(db, key, specification).await?;
            audit::append(db, entry).await?;
            Ok(key)
        })
    }
}

/// Selects all experiments, or one by its key, which must not read the others.
fn select(one: bool) -> String {
    let wanted = if one { "key = ?1 AND" } else { "" };
    format!(
        "SELECT key, state, learner, floor_weight, window_days, discount, burn_in_reports,
            holdout_share, {ARCHIVED}, record
        FROM intact_experiment e WHERE {wanted} NOT {DELETED} ORDER BY key"
    )
}

#[cfg(test)]
mod tests {
    use bandana_learners::Learner;
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::identity::{ExperimentId, UnixSeconds};
    use bandana_shared::rewards::Rewards;
    use bandana_shared::specification::{Arm, ReleaseTiming};
    use rusqlite::StatementStatus;

    use super::*;
    use crate::AuditAction;

    fn create(store: &mut SqliteStore, number: usize) -> ExperimentKey {
        let arms = ["a", "b"].map(|label| Arm::new(label).unwrap());
        let specification = Specification::first(
            ExperimentId::new(format!("e{number}")).unwrap(),
            Epsilon::new(1.0).unwrap(),
            Rewards::binary(),
            Mechanism::Linear,
            arms.to_vec(),
            ReleaseTiming::IMMEDIATE,
        );
        let specification = specification.unwrap();
        let config = LearnerConfig { floor_weight: 0.1, ..LearnerConfig::new(Learner::LdpTs) };
        let entry = AuditEntry {
            at: UnixSeconds::new(1),
            caller: "anna".to_owned(),
            action: AuditAction::Create,
            experiment: specification.experiment_id().clone(),
            detail: String::new(),
        };
        let state = ExperimentState::Running;
        store.create_experiment(&specification, config, state, &entry).unwrap()
    }

    #[test]
    fn who_reads_one_experiment_does_not_step_over_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(folder.path()).unwrap();
        let keys: Vec<_> = (0..40).map(|number| create(&mut store, number)).collect();
        assert_eq!(store.experiment(keys[30]).unwrap().key, keys[30]);
        let mut statement = store.connection.prepare(&select(true)).unwrap();
        let rows = statement.query_map([keys[30].0], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(rows.collect::<Result<Vec<_>, _>>().unwrap(), [keys[30].0]);
        assert_eq!(statement.get_status(StatementStatus::FullscanStep), 0);
        assert_eq!(store.experiments().unwrap().len(), 40);
    }
}
