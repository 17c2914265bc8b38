//! The embedded store: persistence, and refusal of damaged files.

use std::fs;
use std::path::Path;

use bandana_learners::Learner;
use bandana_learners::LearnerConfig;
use bandana_shared::alphabet::Symbol;
use bandana_shared::identity::{CellIndex, Day, UploadId};
use bandana_shared::specification::Arm;
use bandana_shared::tally::Tally;
use bandana_store::{
    DailyTally, DamageError, Delta, ExperimentChange, ExperimentKey, ExperimentState, GroupRow,
    SqliteError, SqliteStore, StoreError, StoreReader, StoreRefusal, seal_directory,
};
use rusqlite::Connection;

use crate::ingest::two_arms::{add_revision, entry, expected, specification};

type Failure = Box<dyn std::error::Error>;

const RUNNING: ExperimentState = ExperimentState::Running;

const CONFIG: LearnerConfig =
    LearnerConfig { floor_weight: 0.125, ..LearnerConfig::new(Learner::LdpUcb) };

fn group(
    day: u32,
    ids: &[u8],
    deltas: &[(ExperimentKey, usize, u64, u64)],
) -> Result<GroupRow, Failure> {
    let delta = |&(experiment, arm, reports, ones): &(ExperimentKey, usize, u64, u64)| {
        let tally = Tally::new(reports, ones)?;
        Ok(Delta { experiment, revision: None, cell: CellIndex::new(arm)?, tally })
    };
    Ok(GroupRow {
        day: Day::new(day),
        ids: ids.iter().map(|id| UploadId::new([*id; 16])).collect(),
        deltas: deltas.iter().map(delta).collect::<Result<_, Failure>>()?,
    })
}

/// Whether damage to the file was reported.
fn is_damage<T>(outcome: Result<T, StoreError>, directory: &Path) -> bool {
    let error = outcome.err().map(|error| error.located(directory));
    matches!(error, Some(StoreError::Sqlite(SqliteError::DamagedFile { .. })))
}

/// All numeric rows of a query.
fn table(directory: &Path, query: &str) -> Result<Vec<Vec<i64>>, Failure> {
    let connection = Connection::open(directory.join("bandana.sqlite3"))?;
    let mut statement = connection.prepare(query)?;
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
    Ok(statement.query_map([], row)?.collect::<Result<_, _>>()?)
}

#[test]
fn everything_comes_back_after_reopening() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    let first = specification("first")?;
    let one = store.create_experiment(&first, CONFIG, RUNNING, &entry("any")?)?;
    let two =
        store.create_experiment(&specification("second")?, CONFIG, RUNNING, &entry("any")?)?;
    let revised = first.with_arm(Arm::new("c")?)?;
    add_revision(&mut store, one, &revised, &entry("any")?)?;
    let pause = ExperimentChange::State(expected(&store, two)?, ExperimentState::Paused);
    store.apply_experiment_change(&pause, &entry("any")?)?;
    store.commit_group(&[
        group(7, &[1, 2], &[(one, 0, 10, 4), (one, 2, 1, 1)])?,
        group(8, &[1], &[(one, 0, 5, 5), (two, 1, 3, 0)])?,
    ])?;
    store.commit_group(&[group(8, &[9], &[(one, 0, 1, 0)])?])?;
    // As after a crash: nothing is closed.
    drop(store);

    let store = SqliteStore::open(directory.path())?;
    let experiments = store.experiments()?;
    let [a, b] = &experiments[..] else { return Err("not two experiments".into()) };
    assert_eq!((a.key, a.config, a.state), (one, CONFIG, ExperimentState::Running));
    assert_eq!(a.revisions, [first, revised]);
    assert_eq!(a.tallies, [Tally::new(16, 9)?, Tally::EMPTY, Tally::new(1, 1)?]);
    assert_eq!((b.key, b.state), (two, ExperimentState::Paused));
    assert_eq!(b.tallies, [Tally::EMPTY, Tally::new(3, 0)?]);
    let seen = store.seen_ids()?;
    assert_eq!(seen.len(), 4);
    for (day, id, known) in [(7, 1, true), (7, 9, false), (8, 1, true), (8, 9, true)] {
        assert_eq!(seen.contains(Day::new(day), UploadId::new([id; 16])), known, "{day} {id}");
    }
    Ok(store.close()?)
}

#[test]
fn expired_days_fold_into_the_checkpoint() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    let key =
        store.create_experiment(&specification("folded")?, CONFIG, RUNNING, &entry("any")?)?;
    store.commit_group(&[group(7, &[1], &[(key, 0, 4, 1)])?])?;
    store.commit_group(&[group(7, &[2], &[(key, 0, 2, 2), (key, 1, 1, 0)])?])?;
    store.commit_group(&[group(8, &[3], &[(key, 0, 8, 8)])?])?;
    assert_eq!(store.oldest_day()?, Day::new(0));
    store.expire_before(Day::new(8))?;
    assert_eq!(store.oldest_day()?, Day::new(8));
    store.commit_group(&[])?;
    let tallies = store.experiments()?.remove(0).tallies;
    assert_eq!(tallies, [Tally::new(14, 11)?, Tally::new(1, 0)?], "tallies never expire");
    assert_eq!(store.seen_ids()?.len(), 1);
    // Other tools can read while the store is open.
    let checkpoint = "SELECT day, arm, reports, ones FROM checkpoint ORDER BY day, arm";
    assert_eq!(table(directory.path(), checkpoint)?, [[7, 0, 6, 3], [7, 1, 1, 0]]);
    assert_eq!(table(directory.path(), "SELECT day FROM upload_group")?, [[8]]);
    // The remaining groups later.
    store.expire_before(Day::new(10))?;
    assert!(store.seen_ids()?.is_empty());
    store.commit_group(&[])?;
    assert_eq!(table(directory.path(), checkpoint)?.len(), 3);
    Ok(())
}

#[test]
fn a_large_day_is_folded_commit_by_commit_and_counted_at_any_time() -> Result<(), Failure> {
    const GROUPS: i64 = 2500;
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    let key = store.create_experiment(&specification("large")?, CONFIG, RUNNING, &entry("any")?)?;
    let mut rows = Vec::new();
    for number in 0..GROUPS {
        rows.push(group(7, &[1], &[(key, 0, 1, u64::from(number % 2 == 0))])?);
        // Uploads of a day also arrive on later days, so its groups are interleaved with others.
        rows.push(group(8, &[2], &[(key, 0, 1, 0)])?);
    }
    store.commit_group(&rows)?;
    // The remaining groups of day 7, and the folded ones.
    let progress = || -> Result<_, Failure> {
        let left = "SELECT count(*) FROM upload_group WHERE day = 7";
        let left = table(directory.path(), left)?[0][0];
        let folded = table(directory.path(), "SELECT reports, ones FROM checkpoint")?;
        let folded = folded.first().cloned().unwrap_or_else(|| vec![0, 0]);
        assert_eq!(left + folded[0], GROUPS, "a group is lost, or folded twice");
        Ok((left, folded[1]))
    };
    store.expire_before(Day::new(8))?;
    assert_eq!(progress()?, (GROUPS, 0), "more than the watermark was moved");
    let mut commits = 0;
    while progress()?.0 > 0 {
        let seen = store.seen_ids()?;
        assert_eq!((seen.len(), seen.contains(Day::new(7), UploadId::new([1; 16]))), (1, false));
        if commits == 1 {
            // As after a crash: nothing is closed.
            drop(store);
            store = SqliteStore::open(directory.path())?;
        }
        let (before, _) = progress()?;
        store.commit_group(&[])?;
        let folded = before - progress()?.0;
        assert!((1..=1000).contains(&folded), "{folded} groups in one commit");
        assert_eq!(i64::try_from(store.experiments()?[0].tallies[0].reports())?, 2 * GROUPS);
        commits += 1;
    }
    assert!(commits > 2, "a large day takes {commits} commits only");
    assert_eq!(progress()?, (0, GROUPS / 2));
    assert_eq!(table(directory.path(), "SELECT count(*) FROM upload_group")?, [[GROUPS]]);
    Ok(())
}

#[test]
fn what_reports_say_beyond_bits_has_tables_of_its_own() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    let key =
        store.create_experiment(&specification("levels")?, CONFIG, RUNNING, &entry("any")?)?;
    let of = |number| Symbol::new(number).ok_or("no symbol");
    let tally = Tally::with_symbols(9, [(of(1)?, 2), (of(2)?, 3), (of(15)?, 1)])?;
    let said = |day, id| -> Result<GroupRow, Failure> {
        let delta = Delta { experiment: key, revision: None, cell: CellIndex::new(1)?, tally };
        Ok(GroupRow { deltas: vec![delta], ..group(day, &[id], &[])? })
    };
    store.commit_group(&[said(7, 1)?, said(8, 2)?])?;
    store.commit_group(&[said(7, 3)?])?;
    assert_eq!(store.experiments()?[0].tallies[1], [tally; 3].into_iter().sum());
    store.expire_before(Day::new(8))?;
    store.commit_group(&[])?;
    let sums = "SELECT day, arm, symbol, reports FROM symbol_tally ORDER BY day, symbol";
    let all = [[7, 1, 2, 6], [7, 1, 15, 2], [8, 1, 2, 3], [8, 1, 15, 1]];
    assert_eq!(table(directory.path(), sums)?, all);
    let folded = "SELECT day, arm, symbol, reports FROM symbol_checkpoint ORDER BY day, symbol";
    assert_eq!(table(directory.path(), folded)?, all[..2]);
    // For every day and arm, symbols beyond bits are among the reports that are not ones.
    let bits = "SELECT day, arm, reports, ones FROM tally ORDER BY day";
    assert_eq!(table(directory.path(), bits)?, [[7, 1, 18, 4], [8, 1, 9, 2]]);
    let reader = StoreReader::new(directory.path());
    let daily = reader.daily_tallies(key, &(Day::new(8)..=Day::new(8)))?;
    assert_eq!(daily, [DailyTally { day: Day::new(8), cell: CellIndex::new(1)?, tally }]);
    let more = "UPDATE symbol_tally SET reports = 100 WHERE day = 8 AND symbol = 2";
    Connection::open(directory.path().join("bandana.sqlite3"))?.execute_batch(more)?;
    assert!(is_damage(store.experiments(), directory.path()));
    Ok(())
}

#[test]
fn ids_that_are_not_as_they_were_written_are_noticed() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    store.commit_group(&[group(7, &[1, 2, 3], &[])?])?;
    for garbage in ["zeroblob(48)", "x'a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5' || substr(ids, 17)"] {
        let change = format!("UPDATE upload_group SET ids = CAST({garbage} AS BLOB)");
        Connection::open(directory.path().join("bandana.sqlite3"))?.execute_batch(&change)?;
        let loaded = store.seen_ids();
        assert!(is_damage(loaded, directory.path()), "{garbage}");
    }
    Ok(())
}

#[test]
fn a_group_whose_day_is_not_as_it_was_written_is_not_taken_for_an_expired_one()
-> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    store.expire_before(Day::new(7))?;
    store.commit_group(&[group(7, &[1, 2, 3], &[])?])?;
    assert_eq!(store.seen_ids()?.len(), 3);
    let change = "UPDATE upload_group SET day = 6";
    Connection::open(directory.path().join("bandana.sqlite3"))?.execute_batch(change)?;
    assert!(is_damage(store.seen_ids(), directory.path()));
    Ok(())
}

#[test]
fn daily_tallies_are_read_beside_a_writer() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    let one = store.create_experiment(&specification("one")?, CONFIG, RUNNING, &entry("any")?)?;
    let two = store.create_experiment(&specification("two")?, CONFIG, RUNNING, &entry("any")?)?;
    store.commit_group(&[
        group(7, &[1], &[(one, 1, 4, 1), (two, 0, 9, 9)])?,
        group(8, &[2], &[(one, 0, 2, 2), (one, 1, 5, 0)])?,
    ])?;
    store.expire_before(Day::new(8))?;
    let reader = StoreReader::new(directory.path());
    let read = |first, last| -> Result<Vec<(u32, usize, u64, u64)>, Failure> {
        let rows = reader.daily_tallies(one, &(Day::new(first)..=Day::new(last)))?;
        let row = |row: DailyTally| {
            (row.day.get(), row.cell.get(), row.tally.reports(), row.tally.ones())
        };
        Ok(rows.into_iter().map(row).collect())
    };
    assert_eq!(read(0, u32::MAX)?, [(7, 1, 4, 1), (8, 0, 2, 2), (8, 1, 5, 0)]);
    assert_eq!(read(7, 7)?, [(7, 1, 4, 1)]);
    assert_eq!(read(9, 20)?, []);
    // Uncommitted rows are not read.
    let writer = Connection::open(directory.path().join("bandana.sqlite3"))?;
    writer.execute_batch("BEGIN IMMEDIATE; UPDATE tally SET reports = 100")?;
    assert_eq!(read(7, 7)?, [(7, 1, 4, 1)]);
    writer.execute_batch("COMMIT")?;
    // Rows that the server did not write are refused.
    assert!(read(7, 7).is_err());
    Ok(())
}

#[test]
fn what_a_crash_left_in_the_log_is_settled_at_the_start() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("bandana.sqlite3-wal");
    let mut store = SqliteStore::open(directory.path())?;
    let key =
        store.create_experiment(&specification("settled")?, CONFIG, RUNNING, &entry("any")?)?;
    store.commit_group(&[group(7, &[1], &[(key, 0, 1, 1)])?])?;
    // A copy of the files equals the state after a kill.
    let copy = tempfile::tempdir()?;
    for name in ["bandana.sqlite3", "bandana.sqlite3-wal"] {
        fs::copy(directory.path().join(name), copy.path().join(name))?;
    }
    assert!(fs::metadata(&log)?.len() > 0);
    let store = SqliteStore::open(copy.path())?;
    assert_eq!(fs::metadata(copy.path().join("bandana.sqlite3-wal"))?.len(), 0);
    assert_eq!(store.seen_ids()?.len(), 1);
    Ok(())
}

#[test]
fn a_reader_holds_up_neither_start_nor_end() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    let key = store.create_experiment(&specification("read")?, CONFIG, RUNNING, &entry("any")?)?;
    let mut reader = Connection::open(directory.path().join("bandana.sqlite3"))?;
    let reading = reader.transaction()?;
    reading.query_row("SELECT count(*) FROM upload_group", [], |_| Ok(()))?;
    store.commit_group(&[group(7, &[1], &[(key, 0, 1, 1)])?])?;
    store.close()?;
    let store = SqliteStore::open(directory.path())?;
    assert_eq!(store.seen_ids()?.len(), 1);
    drop(reading);
    Ok(())
}

#[test]
fn an_experiment_id_is_taken_once() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    store.create_experiment(&specification("taken")?, CONFIG, RUNNING, &entry("any")?)?;
    let again = store.create_experiment(&specification("taken")?, CONFIG, RUNNING, &entry("any")?);
    assert!(matches!(again, Err(StoreError::Refused(StoreRefusal::ExperimentExists(_)))));
    assert_eq!(store.experiments()?.len(), 1);
    Ok(())
}

#[test]
fn a_store_has_one_owner() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let store = SqliteStore::open(directory.path())?;
    let second = SqliteStore::open(directory.path());
    assert!(matches!(second, Err(StoreError::Sqlite(SqliteError::Locked { .. }))), "{second:?}");
    drop(store);
    SqliteStore::open(directory.path())?;
    Ok(())
}

#[test]
fn what_is_not_ours_or_damaged_is_not_opened() -> Result<(), Failure> {
    let change = |statement: &str, is_sealed: bool| -> Result<StoreError, Failure> {
        let directory = tempfile::tempdir()?;
        let mut store = SqliteStore::open(directory.path())?;
        let key =
            store.create_experiment(&specification("changed")?, CONFIG, RUNNING, &entry("any")?)?;
        store.commit_group(&[group(7, &[1], &[(key, 0, 1, 1)])?])?;
        store.close()?;
        Connection::open(directory.path().join("bandana.sqlite3"))?.execute_batch(statement)?;
        if is_sealed {
            seal_directory(directory.path())?;
        }
        let opened = SqliteStore::open(directory.path());
        let read = opened.and_then(|mut store| {
            store.experiments()?;
            store.expire_before(Day::new(9))?;
            store.commit_group(&[])
        });
        Ok(read.err().ok_or("nothing was noticed")?)
    };
    let newer = change("PRAGMA user_version = 1000", false)?;
    assert!(
        matches!(newer, StoreError::Sqlite(SqliteError::NewerSchema { found: 1000, .. })),
        "{newer}"
    );
    let unborn = change("PRAGMA user_version = 0", false)?;
    assert!(matches!(unborn, StoreError::Sqlite(SqliteError::ForeignFile)), "{unborn}");
    let foreign = change("PRAGMA application_id = 1", false)?;
    assert!(matches!(foreign, StoreError::Sqlite(SqliteError::ForeignFile)), "{foreign}");
    for statement in [
        "UPDATE experiment SET learner = 'oracle'",
        "UPDATE specification SET bytes = x'00'",
        "DELETE FROM specification",
        "UPDATE tally SET arm = 5",
    ] {
        for is_sealed in [false, true] {
            let damaged = change(statement, is_sealed)?;
            assert!(
                matches!(damaged, StoreError::Damage(DamageError::Data { .. })),
                "{statement}: {damaged}"
            );
        }
    }
    let deltas = change("UPDATE upload_group SET deltas = x'0102'", true)?;
    assert!(matches!(deltas, StoreError::Damage(DamageError::Stored(_))), "{deltas}");

    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("bandana.sqlite3"), vec![b'x'; 8192])?;
    let garbage = SqliteStore::open(directory.path());
    assert!(
        matches!(garbage, Err(StoreError::Sqlite(SqliteError::Failed { doing: "opening", .. }))),
        "{garbage:?}"
    );
    let file = directory.path().join("file");
    fs::write(&file, "")?;
    let not_a_directory = SqliteStore::open(&file);
    assert!(
        matches!(not_a_directory, Err(StoreError::Sqlite(SqliteError::Directory { .. }))),
        "{not_a_directory:?}"
    );
    Ok(())
}

#[test]
fn a_start_names_what_is_damaged_and_says_where_there_is_more() -> Result<(), Failure> {
    for (statement, words) in [
        ("UPDATE watermark SET oldest_day = 3", &["watermark, one 1 is not as it was"][..]),
        (
            "UPDATE upload_group SET day = 6",
            &["upload_group, key 1", "and 1 more; `bandana verify`"],
        ),
        ("DELETE FROM table_sum WHERE name = 'audit'", &["audit has no sum of its checksums"]),
        ("DELETE FROM upload_group WHERE key = 2", &["has 1 rows, and 2 were written"]),
        ("UPDATE sqlite_sequence SET seq = 7", &["the numbers of audit go on after 7", "is 1"]),
    ] {
        let directory = tempfile::tempdir()?;
        let mut store = SqliteStore::open(directory.path())?;
        store.create_experiment(&specification("a")?, CONFIG, RUNNING, &entry("any")?)?;
        store.commit_group(&[group(7, &[1], &[])?, group(8, &[2], &[])?])?;
        store.close()?;
        Connection::open(directory.path().join("bandana.sqlite3"))?.execute_batch(statement)?;
        let found = SqliteStore::open(directory.path()).err().ok_or(statement)?;
        let said = found.to_string();
        assert!(
            matches!(found, StoreError::Damage(DamageError::Data { .. })),
            "{statement}: {said}"
        );
        assert!(words.iter().all(|words| said.contains(words)), "{statement}: {said}");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_a_new_directory() -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = tempfile::tempdir()?;
    let directory = parent.path().join("data");
    SqliteStore::open(&directory)?;
    assert_eq!(fs::metadata(directory)?.permissions().mode() & 0o777, 0o700);
    Ok(())
}
