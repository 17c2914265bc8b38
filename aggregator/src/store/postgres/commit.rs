//! The commit of uploads: one statement, one round trip, one transaction.

use std::collections::HashMap;
use std::error::Error;

use bandana_shared::identity::{Day, StoreId, UploadId};
use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::connection::{Session, same};
use super::days::{day, number};
use super::schema;
use crate::store::{ExperimentState, StoreError, damaged, postgres};
use crate::store::{ValidUpload, Verdict};

/// Counts the uploads with new ids, and returns the outcome of each.
///
/// If another replica is committing the same upload id, the statement waits; if that commit fails,
/// this one counts. Ids are inserted in a fixed order, and tallies after them, so no two commits
/// deadlock. A concurrent pause or stop counts as later.
const COMMIT: &str = "
WITH mark AS MATERIALIZED (
    SELECT oldest_day, LEAST($9::integer, floor(extract(epoch FROM now()) / 86400)::integer + 1)
        AS latest_day
    FROM intact_watermark
    WHERE (SELECT id FROM store) = $14
), arrival AS MATERIALIZED (
    SELECT a.ordinal, a.day, a.id, a.experiment, e.state,
        mark.oldest_day <= $9 AND a.day BETWEEN mark.oldest_day AND mark.latest_day AS is_timely
    FROM unnest($1::integer[], $2::uuid[], $3::bigint[])
        WITH ORDINALITY AS a (day, id, experiment, ordinal)
    CROSS JOIN mark
    LEFT JOIN intact_experiment e ON e.key = a.experiment
), fresh AS (
    INSERT INTO upload (day, id)
    SELECT day, id FROM arrival WHERE is_timely AND state = 'running' ORDER BY day, id
    ON CONFLICT DO NOTHING
    RETURNING day, id
), counted AS (
    INSERT INTO tally AS t (day, experiment, arm, replica, reports, ones)
    SELECT a.day, a.experiment, r.arm, $8::integer, sum(r.reports)::bigint, sum(r.ones)::bigint
    FROM fresh
    JOIN arrival a USING (day, id)
    JOIN unnest($4::bigint[], $5::integer[], $6::bigint[], $7::bigint[])
        AS r (ordinal, arm, reports, ones) ON r.ordinal = a.ordinal
    GROUP BY a.day, a.experiment, r.arm
    ORDER BY a.day, a.experiment, r.arm
    ON CONFLICT (day, experiment, arm, replica) DO UPDATE
    SET reports = t.reports + excluded.reports, ones = t.ones + excluded.ones
), counted_symbols AS (
    INSERT INTO symbol_tally AS t (day, experiment, arm, symbol, replica, reports)
    SELECT a.day, a.experiment, s.arm, s.symbol, $8::integer, sum(s.reports)::bigint
    FROM fresh
    JOIN arrival a USING (day, id)
    JOIN unnest($10::bigint[], $11::integer[], $12::integer[], $13::bigint[])
        AS s (ordinal, arm, symbol, reports) ON s.ordinal = a.ordinal
    GROUP BY a.day, a.experiment, s.arm, s.symbol
    ORDER BY a.day, a.experiment, s.arm, s.symbol
    ON CONFLICT (day, experiment, arm, symbol, replica) DO UPDATE
    SET reports = t.reports + excluded.reports
)
SELECT a.ordinal, a.state, mark.oldest_day, mark.latest_day, f.id IS NOT NULL,
    CASE WHEN a.is_timely THEN
        a.state = 'running' OR EXISTS (SELECT FROM upload u WHERE u.day = a.day AND u.id = a.id)
    ELSE false END
FROM arrival a
CROSS JOIN mark
LEFT JOIN fresh f ON f.day = a.day AND f.id = a.id";

/// The 16 bytes of an id, as the database's type `uuid`.
#[derive(Debug)]
pub(super) struct Uuid(pub(super) UploadId);

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

/// The parameters of the statement, as arrays.
#[derive(Debug, Default)]
struct Columns {
    days: Vec<i32>,
    ids: Vec<Uuid>,
    experiments: Vec<i64>,
    ordinals: Vec<i64>,
    arms: Vec<i32>,
    reports: Vec<i64>,
    ones: Vec<i64>,
    /// The counts of symbols beyond 1.
    beyond: Beyond,
}

#[derive(Debug, Default)]
struct Beyond {
    ordinals: Vec<i64>,
    arms: Vec<i32>,
    symbols: Vec<i32>,
    reports: Vec<i64>,
}

impl Columns {
    fn push(&mut self, arrival: &ValidUpload) {
        self.days.push(number(arrival.day));
        self.ids.push(Uuid(arrival.id));
        self.experiments.push(arrival.experiment.key().0);
        let ordinal = i64::try_from(self.days.len()).unwrap_or(i64::MAX);
        let count = |reports: u64| i64::try_from(reports).unwrap_or(i64::MAX);
        for (arm, tally) in &arrival.tallies {
            let arm = i32::try_from(arm.get()).unwrap_or(i32::MAX);
            self.ordinals.push(ordinal);
            self.arms.push(arm);
            self.reports.push(count(tally.reports()));
            self.ones.push(count(tally.ones()));
            for (symbol, reports) in tally.beyond_bits() {
                self.beyond.ordinals.push(ordinal);
                self.beyond.arms.push(arm);
                self.beyond.symbols.push(symbol.get().into());
                self.beyond.reports.push(count(reports));
            }
        }
    }
}

/// Commits the uploads of a group that have no verdict yet, fills in their verdicts, and returns
/// the first day of the replay window.
///
/// If the database holds another store, nothing is committed. Of uploads with the same id the first
/// is committed. The others are decided once its outcome is known, if need be in a further
/// transaction. Verdicts of committed uploads stay when that transaction fails, so a retry with
/// them does not report false duplicates.
pub(super) async fn commit(
    session: &mut Session,
    (store, uploads): (StoreId, &[ValidUpload]),
    today: Day,
    replica: i32,
    verdicts: &mut [Option<Verdict>],
) -> Result<Option<Day>, StoreError> {
    let mut oldest = None;
    while verdicts.contains(&None) {
        let mut first: HashMap<(Day, UploadId), usize> = HashMap::new();
        let mut round = Vec::new();
        for (place, upload) in uploads.iter().enumerate() {
            if verdicts[place].is_none() {
                first.entry((upload.day, upload.id)).or_insert_with(|| {
                    round.push(place);
                    place
                });
            }
        }
        oldest =
            Some(statement(session, (store, uploads), &round, today, replica, verdicts).await?);
        for (place, upload) in uploads.iter().enumerate() {
            let Some(&other) = first.get(&(upload.day, upload.id)) else { continue };
            if verdicts[place].is_some() {
                continue;
            }
            verdicts[place] = match verdicts[other] {
                Some(Verdict::Accepted | Verdict::Duplicate) => Some(Verdict::Duplicate),
                same if upload.experiment.key() == uploads[other].experiment.key() => same,
                _ => None,
            };
        }
    }
    Ok(oldest)
}

async fn statement(
    session: &mut Session,
    (store, uploads): (StoreId, &[ValidUpload]),
    round: &[usize],
    today: Day,
    replica: i32,
    verdicts: &mut [Option<Verdict>],
) -> Result<Day, StoreError> {
    let failed = postgres("committing");
    let mut columns = Columns::default();
    for &place in round {
        columns.push(&uploads[place]);
    }
    let Columns { days, ids, experiments, ordinals, arms, reports, ones, beyond } = &columns;
    let statement = session.prepare(COMMIT).await.map_err(failed)?;
    let (today_number, store_bytes) = (number(today), &store.as_bytes()[..]);
    let parameters: [&(dyn ToSql + Sync); 14] = [
        days,
        ids,
        experiments,
        ordinals,
        arms,
        reports,
        ones,
        &replica,
        &today_number,
        &beyond.ordinals,
        &beyond.arms,
        &beyond.symbols,
        &beyond.reports,
        &store_bytes,
    ];
    let rows = session.client.query(&statement, &parameters).await.map_err(failed)?;
    let mut begins = today;
    for row in rows {
        let ordinal: i64 = row.get(0);
        let place = usize::try_from(ordinal - 1).ok().and_then(|i| round.get(i)).copied();
        let Some(place) = place else { continue };
        let (oldest, latest) = (day(row.get(2))?, day(row.get(3))?);
        let state: Option<String> = row.get(1);
        let told = Told {
            state: state.as_deref().and_then(ExperimentState::from_name),
            oldest,
            latest,
            is_fresh: row.get(4),
            is_known: row.get::<_, Option<bool>>(5).unwrap_or(false),
        };
        verdicts[place] = Some(told.verdict(uploads[place].day, today));
        begins = oldest;
    }
    if round.iter().any(|place| verdicts[*place].is_none()) {
        same(schema::id(&session.client).await?, store)?;
        return Err(damaged("the watermark is gone".to_owned()));
    }
    Ok(begins)
}

/// The statement's result for one upload.
struct Told {
    state: Option<ExperimentState>,
    oldest: Day,
    latest: Day,
    is_fresh: bool,
    is_known: bool,
}

impl Told {
    fn verdict(&self, day: Day, today: Day) -> Verdict {
        if self.is_fresh {
            return Verdict::Accepted;
        }
        if self.oldest > today {
            return Verdict::ClockBehind;
        }
        if day > self.latest {
            return Verdict::FutureDay { today: self.latest };
        }
        if day < self.oldest {
            return Verdict::Expired { oldest: self.oldest };
        }
        match self.state {
            _ if self.is_known => Verdict::Duplicate,
            Some(ExperimentState::Stopped) => Verdict::Stopped,
            // The experiment is paused, or unknown, which may be temporary.
            _ => Verdict::Paused,
        }
    }
}
