//! Disclosures to trusted experiments in the database that replicas share, many in one statement.

use bandana_shared::identity::{Day, ExperimentId, UploadId};
use tokio_postgres::{GenericClient, Row};

use super::commit::Uuid;
use super::database::Tables;
use super::days::number;
use crate::database::Database as _;
use crate::trusted::{Disclosures, FORGOTTEN_MAX};
use crate::{StoreError, postgres};

impl<C: GenericClient> Disclosures for Tables<'_, C> {
    async fn add(
        &self,
        experiment: i64,
        disclosures: &[(Day, UploadId)],
    ) -> Result<Vec<(Day, UploadId)>, StoreError> {
        let insert = "WITH fresh AS (
                INSERT INTO trusted_disclosure (experiment, day, id)
                SELECT $1, day, id FROM unnest($2::integer[], $3::uuid[]) AS d (day, id)
                ON CONFLICT DO NOTHING RETURNING day, id
            )
            SELECT a.ordinal FROM unnest($2::integer[], $3::uuid[])
                WITH ORDINALITY AS a (day, id, ordinal)
            LEFT JOIN fresh f ON f.day = a.day AND f.id = a.id WHERE f.id IS NULL";
        let (days, ids) = columns(disclosures);
        let rows = self.client.query(insert, &[&experiment, &days, &ids]).await;
        Ok(chosen(disclosures, rows.map_err(postgres(self.doing))?))
    }

    async fn counted(
        &self,
        id: &ExperimentId,
        disclosures: &[(Day, UploadId)],
    ) -> Result<Vec<(Day, UploadId)>, StoreError> {
        let query = "SELECT a.ordinal FROM unnest($2::integer[], $3::uuid[])
                WITH ORDINALITY AS a (day, id, ordinal)
            JOIN trusted_experiment e ON e.id = $1
            JOIN intact_trusted_disclosure d
                ON d.experiment = e.key AND d.day = a.day AND d.id = a.id";
        let (days, ids) = columns(disclosures);
        let rows = self.client.query(query, &[&id.as_str(), &days, &ids]).await;
        Ok(chosen(disclosures, rows.map_err(postgres(self.doing))?))
    }

    async fn forget(&self, id: &ExperimentId) -> Result<(), StoreError> {
        let forget = "DELETE FROM trusted_disclosure d USING (
                SELECT n.experiment, n.day, n.id FROM trusted_experiment e
                JOIN trusted_disclosure n ON n.experiment = e.key AND n.day < e.oldest_day
                WHERE e.id = $1 LIMIT $2
            ) old WHERE d.experiment = old.experiment AND d.day = old.day AND d.id = old.id";
        self.run(forget, &[id.into(), FORGOTTEN_MAX.into()]).await.map(drop)
    }

    async fn drop_handed(&self, id: &ExperimentId) -> Result<(), StoreError> {
        let erase = "DELETE FROM trusted_handover WHERE experiment = $1";
        self.run(erase, &[id.into()]).await.map(drop)
    }
}

/// The disclosures at these positions, from 1.
fn chosen(disclosures: &[(Day, UploadId)], rows: Vec<Row>) -> Vec<(Day, UploadId)> {
    let place = |row: Row| usize::try_from(row.get::<_, i64>(0) - 1).ok();
    let places = rows.into_iter().filter_map(place);
    places.filter_map(|place| disclosures.get(place).copied()).collect()
}

fn columns(disclosures: &[(Day, UploadId)]) -> (Vec<i32>, Vec<Uuid>) {
    disclosures.iter().map(|(day, id)| (number(*day), Uuid(*id))).unzip()
}
