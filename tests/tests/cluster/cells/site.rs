//! A store with store cells: its databases, and what they hold.

use anyhow::Context as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::UploadStatus;
use bandana_store::{PostgresSettings, Verification, verify_database};
use bandana_tests::harness::upload;
use bandana_tests::postgres::{Postgres, query};

use crate::Replica;

/// The URLs of a home and of its store cells.
pub(super) struct Databases {
    pub(super) home: String,
    pub(super) cells: Vec<String>,
}

impl Databases {
    /// Empty databases in one server.
    pub(super) fn new(server: &Postgres, cells: usize) -> anyhow::Result<Self> {
        let cells = (0..cells).map(|_| server.database_for("cell")).collect::<Result<_, _>>()?;
        Ok(Self { home: server.database()?, cells })
    }

    /// The list for the flag `--store-cells`.
    pub(super) fn list(&self) -> String {
        self.cells.join(" ")
    }

    pub(super) fn settings(&self) -> anyhow::Result<PostgresSettings> {
        let cells = self.cells.iter().map(|url| url.parse());
        Ok(PostgresSettings {
            url: self.home.parse()?,
            ca: None,
            password_file: None,
            replay_window_days: 7,
            id_partitions: 1,
            cells: cells.collect::<Result<_, _>>()?,
        })
    }

    pub(super) async fn replica(&self) -> anyhow::Result<Replica> {
        Replica::start_with(&["--store-cells", &self.list()], &self.home).await
    }

    /// The numbers of ids: at home, and in each store cell.
    pub(super) fn ids(&self) -> anyhow::Result<(u64, Vec<u64>)> {
        let cells = self.cells.iter().map(|url| number(url, "SELECT count(*) FROM upload"));
        let cells = cells.collect::<anyhow::Result<_>>()?;
        Ok((number(&self.home, "SELECT count(*) FROM upload")?, cells))
    }

    /// A number from each store cell.
    pub(super) fn each(&self, sql: &str) -> anyhow::Result<Vec<u64>> {
        self.cells.iter().map(|url| number(url, sql)).collect()
    }

    pub(super) fn verify(&self) -> anyhow::Result<Verification> {
        let settings = self.settings()?;
        Ok(tokio::task::block_in_place(|| verify_database(&settings))?)
    }
}

fn number(url: &str, sql: &str) -> anyhow::Result<u64> {
    let rows = tokio::task::block_in_place(|| query(url, sql))?;
    Ok(rows.first().context("no row")?[0].parse()?)
}

/// Submits an upload of one report, a one for the first arm.
pub(super) async fn submit(
    replica: &Replica,
    experiment: &Specification,
    day: Day,
    number: u128,
) -> anyhow::Result<UploadStatus> {
    let request = upload(number, experiment, day, &[(0, true)])?;
    Ok(replica.device.clone().submit_upload(request).await?.into_inner().status())
}
