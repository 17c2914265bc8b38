//! The replay window: where it begins, and a partition for each of its days.

use bandana_shared::identity::Day;
use tokio_postgres::GenericClient;

use super::checksums;
use super::connection::Session;
use super::deletion::SHOWN;
use super::schema::CHANGING_TABLES;
use crate::store::{StoreError, damaged, postgres};

/// Days after today that have a partition already, for replicas whose clock is ahead.
const DAYS_AHEAD: u32 = 2;

/// What the tables of a day are called, before its number.
pub(super) const PARTITION: &str = "upload_";

/// The database's day, in its own words.
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

/// The newest day of which an upload was counted.
pub(super) async fn newest(session: &mut Session) -> Result<Option<Day>, StoreError> {
    let query = "SELECT max(day) FROM tally";
    let row = session.client.query_one(query, &[]).await.map_err(postgres("reading"))?;
    row.get::<_, Option<i32>>(0).map(day).transpose()
}

/// Moves the replay window on to `days` days that end with `today`, or with the
/// database's day if that is earlier: a replica whose clock is ahead must not end the
/// window for the others. Returns where it begins.
///
/// Commits wait meanwhile, and this for commits: each takes its lock on `upload` before it
/// sees the watermark. So an upload either was counted before its day expired, or sees that
/// it has. Whoever reads the table for long, to back it up say, must not hold up the commits
/// that queue behind this: the locks are waited for no longer than every lock of this session.
///
/// It is a single statement: once the database has heard it, a replica that is stopped holds up
/// nobody.
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
///
/// A single statement, as [`expire`] is.
pub(super) async fn ensure(
    session: &mut Session,
    today: Day,
    days: u32,
    others: &[i32],
) -> Result<(), StoreError> {
    let today = number(today);
    let back = i32::try_from(days.saturating_sub(1)).unwrap_or(i32::MAX);
    let others = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    // Attaching a table takes a lock that commits need not wait for; creating a partition
    // in place would not.
    let statement = format!(
        "DO $$
DECLARE missing integer;
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
        EXECUTE format('CREATE TABLE {PARTITION}%s (LIKE upload INCLUDING ALL)', missing);
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
