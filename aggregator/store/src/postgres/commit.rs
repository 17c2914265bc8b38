//! The commit of uploads: one statement, one round trip, one transaction.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::error::Error;

use bandana_shared::identity::{Day, StoreId, UploadId};
use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::connection::{Session, same};
use super::days::{day, number};
use super::schema;
use crate::{ExperimentState, StoreError, damaged, postgres, stored_arm};
use crate::{ValidUpload, Verdict};

/// Counts the uploads with new ids, and returns their places in the arrays.
///
/// If another replica is committing the same upload id, the statement waits; if that commit fails,
/// this one counts. Ids are inserted in a fixed order, and tallies after them, so no two commits
/// deadlock. A concurrent pause or stop counts as later.
///
/// The statement gets the sums of all uploads, and the counts of each for when not all are counted:
/// it adds the sums up itself then only. The rows of experiments are read, and so checked, once for
/// a group.
macro_rules! commit {
    ($of_symbols:literal) => {
        concat!(
            "WITH mark AS MATERIALIZED (
    SELECT oldest_day, LEAST($2::integer, floor(extract(epoch FROM now()) / 86400)::integer + 1)
        AS latest_day
    FROM intact_watermark
    WHERE (SELECT id FROM store) = $3
), known AS MATERIALIZED (
    SELECT key, state FROM intact_experiment WHERE key = ANY ($4::bigint[])
), fresh AS (
    INSERT INTO upload (day, id)
    SELECT a.day, a.id FROM unnest($5::integer[], $6::uuid[], $7::bigint[]) AS a (day, id, key)
    WHERE EXISTS (SELECT FROM known WHERE known.key = a.key AND state = 'running')
        AND EXISTS (SELECT FROM mark
            WHERE oldest_day <= $2 AND a.day BETWEEN oldest_day AND latest_day)
    ORDER BY a.day, a.id
    ON CONFLICT DO NOTHING
    RETURNING day, id
), total AS MATERIALIZED (
    SELECT count(*) = cardinality($6) AS is_all FROM fresh
), inserted AS MATERIALIZED (
    SELECT a.ordinal, a.day, a.key
    FROM fresh JOIN unnest($5::integer[], $6::uuid[], $7::bigint[])
        WITH ORDINALITY AS a (day, id, key, ordinal) USING (day, id)
    WHERE NOT (SELECT is_all FROM total)
), counted AS (
    INSERT INTO tally AS t (day, experiment, arm, replica, reports, ones)
    SELECT day, key, arm, $1::integer, reports, ones
    FROM (
        SELECT * FROM unnest($8::integer[], $9::bigint[], $10::integer[], $11::bigint[],
            $12::bigint[]) AS s (day, key, arm, reports, ones)
        WHERE (SELECT is_all FROM total)
        UNION ALL SELECT day, key, arm, sum(r.reports)::bigint, sum(r.ones)::bigint
        FROM inserted JOIN unnest($13::bigint[], $14::integer[], $15::bigint[], $16::bigint[])
            AS r (ordinal, arm, reports, ones) USING (ordinal)
        GROUP BY day, key, arm
    ) AS s
    ORDER BY day, key, arm
    ON CONFLICT (day, experiment, arm, replica) DO UPDATE
    SET reports = t.reports + excluded.reports, ones = t.ones + excluded.ones
)",
            $of_symbols,
            "SELECT oldest_day, latest_day, is_all,
    CASE WHEN NOT is_all THEN ARRAY(SELECT ordinal FROM inserted) END,
    ARRAY(SELECT key FROM known ORDER BY key), ARRAY(SELECT state FROM known ORDER BY key)
FROM mark, total"
        )
    };
}

/// For uploads whose symbols are bits.
const COMMIT: &str = commit!("");

/// For uploads with symbols beyond bits. These counts are few, and have no sums.
const COMMIT_SYMBOLS: &str = commit!(
    ", counted_symbols AS (
    INSERT INTO symbol_tally AS t (day, experiment, arm, symbol, replica, reports)
    SELECT a.day, a.key, s.arm, s.symbol, $1::integer, sum(s.reports)::bigint
    FROM fresh JOIN unnest($5::integer[], $6::uuid[], $7::bigint[])
        WITH ORDINALITY AS a (day, id, key, ordinal) USING (day, id)
    JOIN unnest($17::bigint[], $18::integer[], $19::integer[], $20::bigint[])
        AS s (ordinal, arm, symbol, reports) USING (ordinal)
    GROUP BY a.day, a.key, s.arm, s.symbol
    ORDER BY a.day, a.key, s.arm, s.symbol
    ON CONFLICT (day, experiment, arm, symbol, replica) DO UPDATE
    SET reports = t.reports + excluded.reports
)"
);

/// The ids among these that are counted.
const COUNTED: &str = "SELECT u.day, u.id
    FROM unnest($1::integer[], $2::uuid[]) AS a (day, id) JOIN upload u USING (day, id)";

/// A commit that changes nothing. It waits for disk and standby as every commit does, and so for all
/// that the connection has read before: a database that was killed and has recovered shows rows that
/// no synchronous standby has.
const CONFIRM: &str = "SELECT pg_logical_emit_message(true, 'bandana', '')";

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

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(UploadId::new(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// The parameters of the statement, as arrays.
#[derive(Debug, Default)]
struct Columns {
    days: Vec<i32>,
    ids: Vec<Uuid>,
    keys: Vec<i64>,
    /// The experiments, each once.
    experiments: BTreeSet<i64>,
    /// The sums of reports and ones, by day, experiment and arm.
    sums: BTreeMap<(i32, i64, i32), (i64, i64)>,
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
        let (day, key) = (number(arrival.day), arrival.experiment.key().0);
        self.days.push(day);
        self.ids.push(Uuid(arrival.id));
        self.keys.push(key);
        self.experiments.insert(key);
        let ordinal = i64::try_from(self.days.len()).unwrap_or(i64::MAX);
        let count = |reports: u64| i64::try_from(reports).unwrap_or(i64::MAX);
        for (cell, tally) in &arrival.tallies {
            let arm = stored_arm(Some(arrival.revision), *cell);
            let arm = i32::try_from(arm).unwrap_or(i32::MAX);
            let (reports, ones) = (count(tally.reports()), count(tally.ones()));
            let sums = self.sums.entry((day, key, arm)).or_default();
            *sums = (sums.0.saturating_add(reports), sums.1.saturating_add(ones));
            self.ordinals.push(ordinal);
            self.arms.push(arm);
            self.reports.push(reports);
            self.ones.push(ones);
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
    let Some(row) = run(session, store, &columns, today, replica).await? else {
        same(schema::id(&session.client).await?, store)?;
        return Err(damaged("the watermark is gone".to_owned()));
    };
    let (oldest, latest) = (day(row.get(0))?, day(row.get(1))?);
    if row.get(2) {
        for &place in round {
            verdicts[place] = Some(Verdict::Accepted);
        }
        return Ok(oldest);
    }
    let fresh: HashSet<i64> = row.get::<_, Vec<i64>>(3).into_iter().collect();
    let keys = row.get::<_, Vec<i64>>(4).into_iter();
    let states: HashMap<i64, &str> = keys.zip(row.get::<_, Vec<&str>>(5)).collect();
    let state_of = |upload: &ValidUpload| {
        states.get(&upload.experiment.key().0).and_then(|state| ExperimentState::from_name(state))
    };
    let (mut asked, mut waiting) = (Columns::default(), Vec::new());
    let mut repeated = Vec::new();
    for (&place, ordinal) in round.iter().zip(1_i64..) {
        let upload = &uploads[place];
        let (state, is_fresh) = (state_of(upload), fresh.contains(&ordinal));
        if is_fresh || state == RUNNING {
            let told = UploadOutcome { state, oldest, latest, is_fresh, is_known: true };
            match told.verdict(upload.day, today) {
                // What this transaction has read, its own commit has confirmed.
                Verdict::Duplicate if fresh.is_empty() => repeated.push(place),
                verdict => verdicts[place] = Some(verdict),
            }
        } else {
            asked.push(upload);
            waiting.push((place, state));
        }
    }
    // Whoever repeats an upload to an experiment that no longer runs hears that it is counted. The
    // verdicts above stay if this fails.
    if !waiting.is_empty() {
        let known = counted(session, &asked).await?;
        for (place, state) in waiting {
            let upload = &uploads[place];
            let is_known = known.contains(&(upload.day, upload.id));
            let told = UploadOutcome { state, oldest, latest, is_fresh: false, is_known };
            match told.verdict(upload.day, today) {
                Verdict::Duplicate => repeated.push(place),
                verdict => verdicts[place] = Some(verdict),
            }
        }
    }
    if !repeated.is_empty() {
        session.client.batch_execute(CONFIRM).await.map_err(failed)?;
        for place in repeated {
            verdicts[place] = Some(Verdict::Duplicate);
        }
    }
    Ok(oldest)
}

/// The ids among these that are counted.
async fn counted(
    session: &mut Session,
    asked: &Columns,
) -> Result<HashSet<(Day, UploadId)>, StoreError> {
    let failed = postgres("committing");
    let statement = session.prepare(COUNTED).await.map_err(failed)?;
    let rows =
        session.client.query(&statement, &[&asked.days, &asked.ids]).await.map_err(failed)?;
    rows.iter().map(|row| Ok((day(row.get(0))?, row.get::<_, Uuid>(1).0))).collect()
}

/// Runs the statement. None: the database holds another store, or has lost its watermark.
async fn run(
    session: &mut Session,
    store: StoreId,
    columns: &Columns,
    today: Day,
    replica: i32,
) -> Result<Option<Row>, StoreError> {
    let failed = postgres("committing");
    let Columns { days, ids, keys, ordinals, arms, reports, ones, beyond, .. } = columns;
    let experiments: Vec<i64> = columns.experiments.iter().copied().collect();
    let summed = columns.sums.iter().map(|(&(day, key, arm), _)| (day, (key, arm)));
    let (sum_days, (sum_keys, sum_arms)): (Vec<i32>, (Vec<i64>, Vec<i32>)) = summed.unzip();
    let (sum_reports, sum_ones): (Vec<i64>, Vec<i64>) = columns.sums.values().copied().unzip();
    let (today, store) = (number(today), &store.as_bytes()[..]);
    let parameters: [&(dyn ToSql + Sync); 20] = [
        &replica,
        &today,
        &store,
        &experiments,
        days,
        ids,
        keys,
        &sum_days,
        &sum_keys,
        &sum_arms,
        &sum_reports,
        &sum_ones,
        ordinals,
        arms,
        reports,
        ones,
        &beyond.ordinals,
        &beyond.arms,
        &beyond.symbols,
        &beyond.reports,
    ];
    let (sql, count) = if beyond.ordinals.is_empty() { (COMMIT, 16) } else { (COMMIT_SYMBOLS, 20) };
    let statement = session.prepare(sql).await.map_err(failed)?;
    session.client.query_opt(&statement, &parameters[..count]).await.map_err(failed)
}

const RUNNING: Option<ExperimentState> = Some(ExperimentState::Running);

/// The statement's result for one upload.
struct UploadOutcome {
    state: Option<ExperimentState>,
    oldest: Day,
    latest: Day,
    is_fresh: bool,
    is_known: bool,
}

impl UploadOutcome {
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
