//! Disclosures to trusted experiments in the embedded store, one after another.

use bandana_shared::identity::{Day, ExperimentId, UploadId};
use rusqlite::{Connection, params};

use super::sqlite::{committing, reading};
use crate::StoreError;
use crate::database::Database as _;
use crate::trusted::{Disclosures, FORGOTTEN_MAX};

impl Disclosures for Connection {
    async fn add(
        &self,
        experiment: i64,
        disclosures: &[(Day, UploadId)],
    ) -> Result<Vec<(Day, UploadId)>, StoreError> {
        let insert = "INSERT INTO trusted_disclosure (experiment, day, id) VALUES (?, ?, ?)
            ON CONFLICT DO NOTHING";
        let mut insert = self.prepare_cached(insert).map_err(committing)?;
        let mut known = Vec::new();
        for (day, id) in disclosures {
            let values = params![experiment, day.get(), id.as_bytes()];
            if insert.execute(values).map_err(committing)? == 0 {
                known.push((*day, *id));
            }
        }
        Ok(known)
    }

    async fn counted(
        &self,
        id: &ExperimentId,
        disclosures: &[(Day, UploadId)],
    ) -> Result<Vec<(Day, UploadId)>, StoreError> {
        let query = "SELECT 1 FROM intact_trusted_disclosure WHERE day = ?2 AND id = ?3
            AND experiment = (SELECT key FROM intact_trusted_experiment WHERE id = ?1)";
        let mut query = self.prepare_cached(query).map_err(reading)?;
        let mut known = Vec::new();
        for (day, disclosure) in disclosures {
            let values = params![id.as_str(), day.get(), disclosure.as_bytes()];
            if query.exists(values).map_err(reading)? {
                known.push((*day, *disclosure));
            }
        }
        Ok(known)
    }

    /// Forgets the oldest first, and stores up to which day.
    async fn forget(&self, id: &ExperimentId) -> Result<(), StoreError> {
        let old = "trusted_experiment e
            JOIN trusted_disclosure d ON d.experiment = e.key AND d.day < e.oldest_day
            WHERE e.id = $1 ORDER BY d.day, d.id LIMIT $2";
        let newest = format!("SELECT max(day) FROM (SELECT d.day FROM {old})");
        let values = [id.into(), FORGOTTEN_MAX.into()];
        let Some(newest) = self.value::<Option<u32>>(&newest, &values).await? else {
            return Ok(());
        };
        let update =
            "UPDATE trusted_experiment SET known_from = max(known_from, $2 + 1) WHERE id = $1";
        self.run(update, &[id.into(), newest.into()]).await?;
        let forget = format!(
            "DELETE FROM trusted_disclosure WHERE (experiment, day, id) IN (
                SELECT d.experiment, d.day, d.id FROM {old})"
        );
        self.run(&forget, &values).await.map(drop)
    }

    async fn drop_handed(&self, _: &ExperimentId) -> Result<(), StoreError> {
        Ok(())
    }
}
