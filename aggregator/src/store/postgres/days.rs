//! The replay window: where it begins, and a partition for each of its days.

use bandana_shared::identity::Day;

use super::link::Session;
use super::schema::CHANGING_TABLES;
use crate::store::{StoreError, damaged, postgres};

/// Days after today that have a partition already, for replicas whose clock is ahead.
const DAYS_AHEAD: u32 = 2;

/// What the tables of a day are called, before its number.
const PARTITION: &str = "upload_";

/// The database's day, in its own words.
pub(super) const DATABASE_DAY: &str = "floor(extract(epoch FROM now()) / 86400)::integer";

pub(super) fn number(day: Day) -> i32 {
    i32::try_from(day.get()).unwrap_or(i32::MAX)
}

pub(super) fn day(number: i32) -> Result<Day, StoreError> {
    let valid = u32::try_from(number).map(Day::new);
    valid.map_err(|_| damaged(format!("a day with the number {number}")))
}

/// The oldest day whose uploads are taken.
pub(super) async fn oldest(session: &mut Session) -> Result<Day, StoreError> {
    let query = "SELECT oldest_day FROM watermark";
    let row = session.client.query_one(query, &[]).await.map_err(postgres("reading"))?;
    day(row.get(0))
}

/// Moves the replay window on to `days` days that end with `today`, or with the
/// database's day if that is earlier: a replica whose clock is ahead must not end the
/// window for the others. Returns where it begins.
///
/// Commits wait meanwhile, and this for commits: each takes its lock on `upload` before it
/// sees the watermark. So an upload either was counted before its day expired, or sees that
/// it has.
pub(super) async fn expire(
    session: &mut Session,
    today: Day,
    days: u32,
) -> Result<Day, StoreError> {
    let failed = postgres("moving the replay window");
    let transaction = session.client.transaction().await.map_err(failed)?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&CHANGING_TABLES]).await.map_err(failed)?;
    // Whoever reads the table for long, to back it up say, must not hold up the commits
    // that queue behind this.
    transaction.batch_execute("SET LOCAL lock_timeout = '1s'").await.map_err(failed)?;
    let lock = "LOCK TABLE upload IN ACCESS EXCLUSIVE MODE";
    transaction.batch_execute(lock).await.map_err(failed)?;
    let update = format!(
        "UPDATE watermark SET oldest_day = GREATEST(oldest_day, LEAST($1, {DATABASE_DAY}) - $2)
         RETURNING oldest_day"
    );
    let back = i32::try_from(days.saturating_sub(1)).unwrap_or(i32::MAX);
    let row = transaction.query_one(&update, &[&number(today), &back]).await.map_err(failed)?;
    let oldest: i32 = row.get(0);
    let partitions =
        "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'upload'::regclass";
    for row in transaction.query(partitions, &[]).await.map_err(failed)? {
        let name: String = row.get(0);
        let of_day = name.strip_prefix(PARTITION).and_then(|day| day.parse::<i32>().ok());
        if let Some(expired) = of_day.filter(|day| *day < oldest) {
            let drop = format!("DROP TABLE {PARTITION}{expired}");
            transaction.batch_execute(&drop).await.map_err(failed)?;
        }
    }
    let fold = "WITH gone AS (
            DELETE FROM tally WHERE day < $1 AND replica <> 0
            RETURNING day, experiment, arm, reports, ones
        )
        INSERT INTO tally AS t (day, experiment, arm, replica, reports, ones)
        SELECT day, experiment, arm, 0, sum(reports)::bigint, sum(ones)::bigint FROM gone
        GROUP BY day, experiment, arm ORDER BY day, experiment, arm
        ON CONFLICT (day, experiment, arm, replica) DO UPDATE
        SET reports = t.reports + excluded.reports, ones = t.ones + excluded.ones";
    transaction.execute(fold, &[&oldest]).await.map_err(failed)?;
    let fold = "WITH gone AS (
            DELETE FROM symbol_tally WHERE day < $1 AND replica <> 0
            RETURNING day, experiment, arm, symbol, reports
        )
        INSERT INTO symbol_tally AS t (day, experiment, arm, symbol, replica, reports)
        SELECT day, experiment, arm, symbol, 0, sum(reports)::bigint FROM gone
        GROUP BY day, experiment, arm, symbol ORDER BY day, experiment, arm, symbol
        ON CONFLICT (day, experiment, arm, symbol, replica) DO UPDATE
        SET reports = t.reports + excluded.reports";
    transaction.execute(fold, &[&oldest]).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    day(oldest)
}

/// Makes the partitions that the days from `oldest` on need.
pub(super) async fn ensure(
    session: &mut Session,
    oldest: Day,
    today: Day,
) -> Result<(), StoreError> {
    let failed = postgres("making room for a day");
    let transaction = session.client.transaction().await.map_err(failed)?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&CHANGING_TABLES]).await.map_err(failed)?;
    // Attaching a table takes a lock that commits need not wait for; creating a partition
    // in place would not.
    let missing = "SELECT day FROM generate_series($1::integer, $2::integer) AS day
        WHERE to_regclass('upload_' || day) IS NULL";
    let last = number(today.forward(DAYS_AHEAD));
    for row in transaction.query(missing, &[&number(oldest), &last]).await.map_err(failed)? {
        let day: i32 = row.get(0);
        let table = format!("{PARTITION}{day}");
        let create = format!(
            "CREATE TABLE {table} (LIKE upload INCLUDING ALL);
             ALTER TABLE upload ATTACH PARTITION {table} FOR VALUES IN ({day})"
        );
        transaction.batch_execute(&create).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}
