//! The replay window: where it begins, and a partition for each of its days.

use bandana_shared::identity::Day;
use tokio_postgres::GenericClient;

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

/// For transactions that others wait for: the host of a replica that dies in one of them does
/// not keep the others from their commits.
const SHORT: &str = "SET LOCAL idle_in_transaction_session_timeout = '3s'";

/// The oldest day whose uploads are taken, and the database's day.
pub(super) async fn window(session: &mut Session) -> Result<(Day, Day), StoreError> {
    let query = format!("SELECT oldest_day, {DATABASE_DAY} FROM watermark");
    let row = session.client.query_one(&query, &[]).await.map_err(postgres("reading"))?;
    Ok((day(row.get(0))?, day(row.get(1))?))
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
    transaction.batch_execute(SHORT).await.map_err(failed)?;
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
    for (_, of_day) in partitions(&transaction).await? {
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

/// The tables of single days, and the day of each that has one in its name.
pub(super) async fn partitions(
    client: &impl GenericClient,
) -> Result<Vec<(String, Option<i32>)>, StoreError> {
    let query = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'upload'::regclass ORDER BY 1";
    let rows = client.query(query, &[]).await.map_err(postgres("reading"))?;
    let names = rows.into_iter().map(|row| row.get(0));
    Ok(names
        .map(|name: String| {
            let day = name.strip_prefix(PARTITION).and_then(|day| day.parse().ok());
            (name, day)
        })
        .collect())
}

/// Makes the partitions that are missing for the `days` days that end with `today`, or with
/// the database's day if that is earlier, and for the days of `others` that are taken too:
/// the window may begin earlier than it would if it were moved now.
pub(super) async fn ensure(
    session: &mut Session,
    today: Day,
    days: u32,
    others: &[i32],
) -> Result<(), StoreError> {
    let failed = postgres("making room for a day");
    let transaction = session.client.transaction().await.map_err(failed)?;
    transaction.batch_execute(SHORT).await.map_err(failed)?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&CHANGING_TABLES]).await.map_err(failed)?;
    // Attaching a table takes a lock that commits need not wait for; creating a partition
    // in place would not.
    let missing = format!(
        "WITH mark AS (SELECT oldest_day, LEAST($1, {DATABASE_DAY}) AS today FROM watermark)
         SELECT day FROM (
             SELECT generate_series(today - $2, today + {DAYS_AHEAD}) AS day FROM mark
             UNION SELECT unnest($3::integer[])
         ) AS wanted CROSS JOIN mark
         WHERE day BETWEEN oldest_day AND today + {DAYS_AHEAD}
             AND to_regclass('{PARTITION}' || day) IS NULL
         ORDER BY day"
    );
    let back = i32::try_from(days.saturating_sub(1)).unwrap_or(i32::MAX);
    let rows = transaction.query(&missing, &[&number(today), &back, &others]).await;
    for row in rows.map_err(failed)? {
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
