//! Snapshots of all state that replicas follow, as of one moment.

use std::collections::{HashMap, HashSet};

use bandana_shared::identity::{Day, ExperimentId, StoreId};
use tokio_postgres::{IsolationLevel, Transaction};

use super::cells::{generations, route_until};
use super::changes::signed;
use super::connection::{PgConnection, Session, same};
use super::database::Tables;
use super::days::{day, number};
use super::deletion::SHOWN;
use super::records::{Tallies, add, records, tallies};
use super::schema::store_id;
use crate::cells::{Generation, Routes};
use crate::{
    ExperimentKey, ExperimentRecord, StoreError, TrustedRecord, TrustedVersion, postgres, trusted,
};

/// The changes since known versions, and all tallies.
#[derive(Debug)]
pub struct ChangeFeed {
    /// The experiments whose version is not the known one.
    pub changed: Vec<ExperimentRecord>,
    /// The keys of all experiments.
    pub all: HashSet<ExperimentKey>,
    /// The tallies of all experiments, without those of a limited memory.
    pub tallies: Tallies,
    /// The trusted experiments whose version is not the known one.
    pub trusted: Vec<TrustedRecord>,
    /// The ids of all trusted experiments.
    pub trusted_ids: HashSet<ExperimentId>,
    /// Whether this replica holds the lease.
    pub holds_lease: bool,
    /// From which day on which store cells share uploads.
    pub generations: Vec<Generation>,
}

/// The sums of expired days, which no commit changes any more.
#[derive(Debug, Default)]
pub struct Settled {
    sums: Option<(Day, Tallies)>,
}

/// The duration of the lease, and the remaining time at which it is renewed.
const LEASE: &str = "interval '5 seconds'";
const RENEWED: &str = "3 seconds";

/// A gap larger than the versions that replicas can be apart. Versions that were served and then
/// lost by the database are thereby not given out again.
const LOST_MAX: u64 = 1 << 20;

/// All experiments.
pub(super) async fn everything(session: &mut Session) -> Result<Vec<ExperimentRecord>, StoreError> {
    let transaction = begin(session).await?;
    let sums = tallies(&transaction, None, 0, i32::MAX).await?;
    let (keys, _) = keys(&transaction, &HashMap::new()).await?;
    let records = records(&transaction, &keys, &sums).await?;
    transaction.commit().await.map_err(postgres("reading"))?;
    Ok(records)
}

pub(super) async fn begin(session: &mut Session) -> Result<Transaction<'_>, StoreError> {
    let builder = session.client.build_transaction();
    let builder = builder.isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    builder.start().await.map_err(postgres("reading"))
}

/// The tallies of all experiments in this database, which must hold the expected store.
pub(super) async fn counts(
    transaction: &Transaction<'_>,
    expected: Option<StoreId>,
    settled: &mut Settled,
) -> Result<Tallies, StoreError> {
    let query = "SELECT oldest_day, (SELECT id FROM store) FROM intact_watermark";
    let row = transaction.query_one(query, &[]).await.map_err(postgres("reading"))?;
    if let Some(expected) = expected {
        same(store_id(row.get(1))?, expected)?;
    }
    let oldest = day(row.get(0))?;
    if settled.sums.as_ref().is_none_or(|(before, _)| *before != oldest) {
        let sums = tallies(transaction, None, 0, number(oldest)).await?;
        settled.sums = Some((oldest, sums));
    }
    let mut sums = tallies(transaction, None, number(oldest), i32::MAX).await?;
    if let Some((_, expired)) = &settled.sums {
        add(&mut sums, expired);
    }
    Ok(sums)
}

/// The keys of the experiments whose version is not the known one, and the keys of all.
async fn keys(
    transaction: &Transaction<'_>,
    known: &HashMap<ExperimentKey, u64>,
) -> Result<(Vec<i64>, HashSet<ExperimentKey>), StoreError> {
    let query = format!("SELECT key, version FROM experiment e WHERE {SHOWN} ORDER BY key");
    let rows = transaction.query(&query, &[]).await.map_err(postgres("reading"))?;
    let differs = |key: i64, version: i64| {
        known.get(&ExperimentKey(key)).is_none_or(|known| signed(*known) != version)
    };
    let all: Vec<(i64, i64)> = rows.into_iter().map(|row| (row.get(0), row.get(1))).collect();
    let changed = all.iter().filter(|(key, version)| differs(*key, *version));
    let changed = changed.map(|(key, _)| *key).collect();
    Ok((changed, all.into_iter().map(|(key, _)| ExperimentKey(key)).collect()))
}

impl PgConnection {
    /// Renews the lease, or takes an expired one, and then reads the changes since the known
    /// versions. Adds the tallies that are elsewhere, in store cells.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn news(
        &mut self,
        holder: &str,
        known: &HashMap<ExperimentKey, u64>,
        known_trusted: &HashMap<ExperimentId, TrustedVersion>,
        settled: &mut Settled,
        elsewhere: &Tallies,
    ) -> Result<ChangeFeed, StoreError> {
        let (fresh, expected) = (!self.is_open(), self.expected());
        self.run("reading", async |session| {
            if fresh {
                super::schema::check(session).await?;
            }
            let holds_lease = lease(session, holder).await?;
            let transaction = begin(session).await?;
            let mut sums = counts(&transaction, expected, settled).await?;
            add(&mut sums, elsewhere);
            let (keys, all) = keys(&transaction, known).await?;
            let changed = if keys.is_empty() {
                Vec::new()
            } else {
                records(&transaction, &keys, &sums).await?
            };
            let (trusted, trusted_ids) = trusted_news(&transaction, known_trusted).await?;
            let generations = generations(&transaction).await?;
            transaction.commit().await.map_err(postgres("reading"))?;
            let tallies = sums;
            Ok(ChangeFeed { changed, all, tallies, trusted, trusted_ids, holds_lease, generations })
        })
    }

    /// Routes of uploads that are final up to the day after `today`, as far as the database's clock
    /// allows.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn route_until(&mut self, today: Day) -> Result<Routes, StoreError> {
        self.run("routing uploads", async |session| {
            let (until, generations) = route_until(&session.client, today).await?;
            Ok(Routes::new(generations, Some(until)))
        })
    }

    /// Gives up the lease, so that the next holder need not wait.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn resign(&mut self, holder: &str) -> Result<(), StoreError> {
        self.run("resigning", async |session| {
            let update = "UPDATE lease SET expires = '-infinity' WHERE holder = $1";
            session.client.execute(update, &[&holder]).await.map_err(postgres("resigning"))?;
            Ok(())
        })
    }

    /// Gives an experiment a version after every served one, since the database has lost versions
    /// that it gave out.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn supersede(&mut self, key: ExperimentKey, served: u64) -> Result<(), StoreError> {
        let failed = postgres("overtaking lost versions");
        self.run("overtaking lost versions", async |session| {
            let update = "UPDATE experiment SET version = $3 WHERE key = $1 AND version < $2";
            let (served, next) = (signed(served), signed(served.saturating_add(LOST_MAX)));
            session.client.execute(update, &[&key.0, &served, &next]).await.map_err(failed)?;
            Ok(())
        })
        .or_else(unless_locked)
    }

    /// Replaces the policy with the version `before`, and returns the new version. None: the policy
    /// was replaced already, the experiment is being changed, or `holder` does not hold the lease.
    /// A call without `holder` needs no lease.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn write_policy(
        &mut self,
        key: ExperimentKey,
        before: u64,
        weights: &[u64],
        reports: u64,
        holder: Option<&str>,
    ) -> Result<Option<u64>, StoreError> {
        let weights: Vec<i64> = weights.iter().copied().map(signed).collect();
        self.run("writing a policy", async |session| {
            let update = "UPDATE experiment
                SET version = version + 1, weights = $3, policy_reports = $4
                WHERE key = $1 AND version = $2 AND ($5::text IS NULL
                    OR EXISTS (SELECT FROM lease WHERE holder = $5 AND expires > now()))
                RETURNING version";
            let failed = postgres("writing a policy");
            let statement = session.prepare(update).await.map_err(failed)?;
            let row = session
                .client
                .query_opt(
                    &statement,
                    &[&key.0, &signed(before), &weights, &signed(reports), &holder],
                )
                .await
                .map_err(failed)?;
            Ok(row.and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok()))
        })
        .or_else(unless_locked)
    }
}

/// A default value when another replica holds the row's lock: the caller polls again.
fn unless_locked<T: Default>(error: StoreError) -> Result<T, StoreError> {
    if error.is_locked() { Ok(T::default()) } else { Err(error) }
}

/// The trusted experiments whose version is not the known one, and the ids of all.
async fn trusted_news(
    transaction: &Transaction<'_>,
    known: &HashMap<ExperimentId, TrustedVersion>,
) -> Result<(Vec<TrustedRecord>, HashSet<ExperimentId>), StoreError> {
    let db = Tables::reading(transaction);
    let versions = trusted::versions(&db).await?;
    let changed = versions.iter().filter(|(id, version)| known.get(id) != Some(version));
    let changed: Vec<&ExperimentId> = changed.map(|(id, _)| id).collect();
    let wanted = (changed.len() < versions.len()).then_some(&changed[..]);
    let records =
        if changed.is_empty() { Vec::new() } else { trusted::trusted(&db, wanted).await? };
    Ok((records, versions.into_iter().map(|(id, _)| id).collect()))
}

/// Takes or renews the lease by the database's clock alone, since the clocks of replicas may
/// differ.
async fn lease(session: &mut Session, holder: &str) -> Result<bool, StoreError> {
    let failed = postgres("taking the lease");
    let query = "SELECT holder = $1 AND expires > now(), expires < now() + $2::text::interval, \
        expires <= now() FROM lease";
    let statement = session.prepare(query).await.map_err(failed)?;
    let row = session.client.query_one(&statement, &[&holder, &RENEWED]).await.map_err(failed)?;
    let (is_mine, ends_soon, is_free): (bool, bool, bool) = (row.get(0), row.get(1), row.get(2));
    let is_wanted = is_free || (is_mine && ends_soon);
    if !is_wanted {
        return Ok(is_mine);
    }
    let update = format!(
        "UPDATE lease SET holder = $1, expires = now() + {LEASE}
         WHERE holder = $1 OR expires <= now()"
    );
    Ok(session.client.execute(&update, &[&holder]).await.map_err(failed)? > 0)
}
