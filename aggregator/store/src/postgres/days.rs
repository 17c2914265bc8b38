//! The replay window: its first day, and a partition for each of its days.

use bandana_shared::identity::Day;
use tokio_postgres::GenericClient;

use super::checksums;
use super::connection::Session;
use super::deletion::SHOWN;
use super::schema::CHANGING_TABLES;
use crate::{StoreError, damaged, postgres};

/// Days after today that already have a partition, for replicas whose clock is ahead.
const DAYS_AHEAD: u32 = 2;

/// The prefix of a partition's name, before the day's number.
pub(super) const PARTITION: &str = "upload_";

/// The database's day, as an SQL expression.
pub(super) const DATABASE_DAY: &str = "floor(extract(epoch FROM now()) / 86400)::integer";

pub(super) fn number(day: Day) -> i32 {
    i32::try_from(day.get()).unwrap_or(i32::MAX)
}

pub(super) fn day(number: i32) -> Result<Day, StoreError> {
    let valid = u32::try_from(number).map(Day::new);
    valid.map_err(|_| damaged(format!("a day with the number {number}")))
}

/// The oldest day whose uploads are taken, and the database's day.
pub(super) async fn window(session: &mut Session) -> Result<(Day, Day), StoreError> {
    let query = format!("SELECT oldest_day, {DATABASE_DAY} FROM intact_watermark");
    let row = session.client.query_one(&query, &[]).await.map_err(postgres("reading"))?;
    Ok((day(row.get(0))?, day(row.get(1))?))
}

/// The newest day with a counted upload.
pub(super) async fn newest(session: &mut Session) -> Result<Option<Day>, StoreError> {
    let query = "SELECT max(day) FROM tally";
    let row = session.client.query_one(query, &[]).await.map_err(postgres("reading"))?;
    row.get::<_, Option<i32>>(0).map(day).transpose()
}

/// Moves the replay window to the `days` days that end with `today`, or with the database's day if
/// that is earlier: a replica whose clock is ahead must not end the window for the others. Returns
/// the window's first day.
///
/// Commits wait for this statement and the other way round: each locks `upload` before it reads the
/// watermark. So an upload either was counted before its day expired, or sees that the day has
/// expired. A long read of the table, such as a backup, must not hold up the commits that queue
/// behind this statement, so its locks have the session's usual lock timeout.
///
/// The move is a single statement: once the database has received it, a replica that hangs holds up
/// no other.
pub(super) async fn expire(
    session: &mut Session,
    today: Day,
    days: u32,
) -> Result<Day, StoreError> {
    let today = number(today);
    let back = i32::try_from(days.saturating_sub(1)).unwrap_or(i32::MAX);
    let statement = format!(
        "DO $$
DECLARE oldest integer; expired text;
BEGIN
    PERFORM pg_advisory_xact_lock({CHANGING_TABLES});
    LOCK TABLE upload IN ACCESS EXCLUSIVE MODE;
    UPDATE watermark SET oldest_day = GREATEST(oldest_day, LEAST({today}, {DATABASE_DAY}) - {back})
        RETURNING oldest_day INTO STRICT oldest;
    FOR expired IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'upload'::regclass
            AND CASE WHEN c.relname ~ '^{PARTITION}[0-9]{{1,9}}$'
                THEN substr(c.relname, length('{PARTITION}') + 1)::integer < oldest
                ELSE false END
    LOOP
        EXECUTE format('DROP TABLE %I', expired);
        DELETE FROM table_sum WHERE name = expired;
    END LOOP;
    WITH gone AS (
        DELETE FROM tally WHERE day < oldest AND replica <> 0
        RETURNING day, experiment, arm, reports, ones
    )
    INSERT INTO tally AS t (day, experiment, arm, replica, reports, ones)
    SELECT day, experiment, arm, 0, sum(reports)::bigint, sum(ones)::bigint FROM gone
    GROUP BY day, experiment, arm ORDER BY day, experiment, arm
    ON CONFLICT (day, experiment, arm, replica) DO UPDATE
    SET reports = t.reports + excluded.reports, ones = t.ones + excluded.ones;
    WITH gone AS (
        DELETE FROM symbol_tally WHERE day < oldest AND replica <> 0
        RETURNING day, experiment, arm, symbol, reports
    )
    INSERT INTO symbol_tally AS t (day, experiment, arm, symbol, replica, reports)
    SELECT day, experiment, arm, symbol, 0, sum(reports)::bigint FROM gone
    GROUP BY day, experiment, arm, symbol ORDER BY day, experiment, arm, symbol
    ON CONFLICT (day, experiment, arm, symbol, replica) DO UPDATE
    SET reports = t.reports + excluded.reports;
    DELETE FROM tally t USING intact_experiment e
        WHERE t.experiment = e.key AND t.day < oldest AND NOT {SHOWN};
    DELETE FROM symbol_tally t USING intact_experiment e
        WHERE t.experiment = e.key AND t.day < oldest AND NOT {SHOWN};
END $$"
    );
    let moved = session.client.batch_execute(&statement).await;
    moved.map_err(postgres("moving the replay window"))?;
    Ok(window(session).await?.0)
}

/// The partitions, each with the day in its name.
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

/// Creates the missing partitions for the `days` days that end with `today`, or with the database's
/// day if that is earlier. Also creates those for days of `others` that are within the window,
/// which may begin earlier than it would if it were moved now. The ids of a new day are split by
/// hash into `parts` tables; other days stay as they are.
///
/// A single statement, as [`expire`] is.
pub(super) async fn ensure(
    session: &mut Session,
    (today, days): (Day, u32),
    others: &[i32],
    parts: u32,
) -> Result<(), StoreError> {
    let today = number(today);
    let back = i32::try_from(days.saturating_sub(1)).unwrap_or(i32::MAX);
    let others = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let split = if parts > 1 { "PARTITION BY HASH (id)" } else { "" };
    let parts = if parts > 1 { parts } else { 0 };
    // Attaching a table takes a lock that commits need not wait for; creating a partition in place
    // takes a stronger one.
    let statement = format!(
        "DO $$
DECLARE missing integer; part integer;
BEGIN
    PERFORM pg_advisory_xact_lock({CHANGING_TABLES});
    FOR missing IN
        WITH mark AS (SELECT oldest_day, LEAST({today}, {DATABASE_DAY}) AS today
            FROM intact_watermark)
        SELECT day FROM (
            SELECT generate_series(today - {back}, today + {DAYS_AHEAD}) AS day FROM mark
            UNION SELECT unnest(ARRAY[{others}]::integer[])
        ) AS wanted CROSS JOIN mark
        WHERE day BETWEEN oldest_day AND today + {DAYS_AHEAD}
            AND to_regclass('{PARTITION}' || day) IS NULL
        ORDER BY day
    LOOP
        EXECUTE format('CREATE TABLE {PARTITION}%s (LIKE upload INCLUDING ALL) {split}', missing);
        FOR part IN 0..{parts} - 1 LOOP
            EXECUTE format(
                'CREATE TABLE {PARTITION}%s_%s PARTITION OF {PARTITION}%s
                FOR VALUES WITH (MODULUS {parts}, REMAINDER %s)',
                missing, part, missing, part
            );
        END LOOP;
        EXECUTE format(
            'ALTER TABLE upload ATTACH PARTITION {PARTITION}%s FOR VALUES IN (%s)',
            missing, missing
        );
    END LOOP;
END $$"
    );
    let made = session.client.batch_execute(&statement).await;
    made.map_err(postgres("making room for a day"))?;
    checksums::fold(&session.client).await
}
