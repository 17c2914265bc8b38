//! Checks of the embedded store: intact stores pass, and defects are named.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bandana_learners::Learner;
use bandana_learners::LearnerConfig;
use bandana_shared::identity::{CellIndex, Day, UnixSeconds, UploadId};
use bandana_shared::signing::SigningKey;
use bandana_shared::specification::Arm;
use bandana_shared::tally::Tally;
use bandana_store::{
    Backup, Delta, ExperimentKey, ExperimentState, Finding, GroupRow, SqliteError, SqliteStore,
    StoreError, seal_directory, verify_directory, verify_file,
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::ingest::two_arms::{add_revision, add_signature, entry, specification};

type Failure = Box<dyn std::error::Error>;

const CONFIG: LearnerConfig =
    LearnerConfig { floor_weight: 0.125, ..LearnerConfig::new(Learner::LdpTs) };

/// Page size of the database, in bytes.
const PAGE: u64 = 4096;

fn group(
    experiment: ExperimentKey,
    day: u32,
    ids: std::ops::Range<u128>,
    tallies: &[(usize, u64, u64)],
) -> Result<GroupRow, Failure> {
    let delta = |&(cell, reports, ones): &(usize, u64, u64)| {
        let cell = CellIndex::new(cell)?;
        Ok(Delta { experiment, revision: None, cell, tally: Tally::new(reports, ones)? })
    };
    Ok(GroupRow {
        day: Day::new(day),
        ids: ids.map(|id| UploadId::new(id.to_be_bytes())).collect(),
        deltas: tallies.iter().map(delta).collect::<Result<_, Failure>>()?,
    })
}

/// An open store with rows in every table.
fn filled(directory: &Path) -> Result<SqliteStore, Failure> {
    let mut store = SqliteStore::open(directory)?;
    let running = ExperimentState::Running;
    let (first, second) = (specification("first")?, specification("second")?);
    let one = store.create_experiment(&first, CONFIG, running, &entry("first")?)?;
    let two = store.create_experiment(&second, CONFIG, running, &entry("second")?)?;
    let revised = first.with_arm(Arm::new("c")?)?;
    add_revision(&mut store, one, &revised, &entry("first")?)?;
    let signature = SigningKey::from_secret(&[1; 32]).sign(&revised, UnixSeconds::new(100));
    let now = UnixSeconds::new(1);
    add_signature(&mut store, (one, &revised), &signature, now, &entry("first")?)?;
    store.commit_group(&[group(one, 7, 0..5, &[(0, 10, 4), (2, 1, 1)])?])?;
    store
        .commit_group(&[group(two, 7, 5..9, &[(1, 4, 0)])?, group(two, 8, 0..3, &[(0, 3, 3)])?])?;
    store.expire_before(Day::new(8))?;
    // The same ids on another day, enough to fill separate pages.
    store.commit_group(&[group(one, 8, 5..1005, &[(1, 1000, 400)])?])?;
    store.commit_group(&[group(one, 9, 0..700, &[(0, 900, 0), (1, 5, 5)])?])?;
    Ok(store)
}

/// A store that was closed.
fn closed() -> Result<TempDir, Failure> {
    let folder = tempfile::tempdir()?;
    filled(folder.path())?.close()?;
    Ok(folder)
}

#[test]
fn a_store_in_order_is_found_so_and_left_as_it_is() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let files = || -> Result<Vec<_>, Failure> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder.path())? {
            let entry = entry?;
            // Readers of the log write to its shared index.
            if !entry.file_name().to_string_lossy().ends_with("-shm") {
                files.push((entry.file_name(), fs::read(entry.path())?));
            }
        }
        files.sort();
        Ok(files)
    };
    let store = filled(folder.path())?;
    let before = files()?;
    let verification = verify_directory(folder.path())?;
    assert_eq!(verification.findings, []);
    assert_eq!(verification.oldest, Some(Day::new(8)));
    let examined: Vec<_> = verification.checks.iter().map(|c| (c.name, c.examined)).collect();
    for expected in [
        ("experiments and their revisions", 2),
        ("groups of uploads", 3),
        ("ids of uploads", 1703),
        ("rows of the checkpoint", 3),
        ("tallies, against groups and checkpoint", 7),
        ("entries of the audit log", 4),
    ] {
        assert!(examined.contains(&expected), "{expected:?} is not in {examined:?}");
    }
    assert_eq!(files()?, before);
    // A copy of the files equals the state after a kill.
    let killed = tempfile::tempdir()?;
    for (name, bytes) in before {
        fs::write(killed.path().join(name), bytes)?;
    }
    assert!(verify_directory(killed.path())?.is_sound());
    SqliteStore::open(killed.path())?;
    store.close()?;
    let before = files()?;
    assert!(verify_directory(folder.path())?.is_sound());
    assert_eq!(files()?, before);
    // No file was created beside it either: database, lock and the log of acknowledged writes.
    assert_eq!(fs::read_dir(folder.path())?.count(), 3);
    Ok(())
}

#[test]
fn a_tally_that_differs_is_told_with_experiment_day_arm_and_by_how_much() -> Result<(), Failure> {
    let difference = |day, arm, found: (u64, u64), expected: (u64, u64)| -> Result<_, Failure> {
        Ok(Finding::Difference {
            experiment: "first".to_owned(),
            day: Day::new(day),
            arm,
            found: Box::new(Tally::new(found.0, found.1)?),
            expected: Box::new(Tally::new(expected.0, expected.1)?),
        })
    };
    let changes = [
        (
            "UPDATE tally SET reports = reports + 5, ones = ones + 2 WHERE day = 8 AND experiment = 1",
            difference(8, 1, (1005, 402), (1000, 400))?,
        ),
        (
            "UPDATE tally SET ones = 3 WHERE day = 7 AND arm = 0",
            difference(7, 0, (10, 3), (10, 4))?,
        ),
        ("DELETE FROM tally WHERE day = 9 AND arm = 1", difference(9, 1, (0, 0), (5, 5))?),
        ("DELETE FROM checkpoint WHERE arm = 2", difference(7, 2, (1, 1), (0, 0))?),
        (
            "INSERT INTO tally (experiment, day, arm, reports, ones) VALUES (1, 9, 2, 6, 1)",
            difference(9, 2, (6, 1), (0, 0))?,
        ),
    ];
    for (change, expected) in changes {
        let folder = closed()?;
        Connection::open(folder.path().join("bandana.sqlite3"))?.execute_batch(change)?;
        let told = verify_directory(folder.path())?.findings;
        assert!(told.len() > 1, "{change}: no row is told to be another: {told:?}");
        seal_directory(folder.path())?;
        assert_eq!(verify_directory(folder.path())?.findings, [expected], "{change}");
    }
    Ok(())
}

#[test]
fn what_does_not_fit_together_is_named() -> Result<(), Failure> {
    for (change, said) in [
        ("UPDATE upload_group SET deltas = x'0102' WHERE day = 9", "what its uploads add"),
        ("UPDATE upload_group SET ids = zeroblob(32) WHERE day = 9", "its ids are not as they"),
        (
            "INSERT INTO upload_group (day, ids, deltas) SELECT day, ids, deltas FROM upload_group
            WHERE day = 9",
            "700 ids of day 9 are there more than once",
        ),
        ("UPDATE watermark SET oldest_day = 7", "which is in the replay window"),
        ("DELETE FROM watermark", "the watermark has 0 rows"),
        (
            "UPDATE specification SET digest = zeroblob(16) WHERE revision = 2",
            "revision 2 is not what its digest names",
        ),
        ("UPDATE specification SET bytes = x'00' WHERE revision = 2", "can't be understood"),
        (
            "DELETE FROM specification WHERE revision = 1 AND experiment = 1",
            "where revision 1 should be is revision 2",
        ),
        ("UPDATE experiment SET learner = 'oracle' WHERE key = 2", "there is no learner"),
        ("UPDATE experiment SET floor_weight = 7 WHERE key = 2", "is no least share"),
        ("UPDATE experiment SET id = 'third' WHERE key = 2", "revision 1 of second"),
        ("UPDATE signature SET signature = zeroblob(64)", "a signature of experiment first"),
        ("PRAGMA foreign_keys = off; DELETE FROM experiment WHERE key = 2", "that do not exist"),
        ("UPDATE tally SET arm = 5 WHERE day = 9 AND arm = 1", "an arm 5 of 3"),
        ("DROP TABLE audit", "there is no table audit"),
        ("DROP TABLE tally", "there is no table tally"),
        ("DROP TRIGGER audit_is_not_changed; UPDATE audit SET action = 'dance'", "dance"),
    ] {
        let folder = closed()?;
        Connection::open(folder.path().join("bandana.sqlite3"))?
            .execute_batch(&format!("PRAGMA foreign_keys = off; {change}"))?;
        // As after a manual repair: rows are validated in addition to their checksums.
        seal_directory(folder.path())?;
        let verification = verify_directory(folder.path())?;
        let told: Vec<String> = verification.findings.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|told| told.contains(said)), "{change}: {told:?}");
    }
    Ok(())
}

#[test]
fn a_page_of_garbage_is_found_wherever_it_is() -> Result<(), Failure> {
    let folder = closed()?;
    let file = folder.path().join("bandana.sqlite3");
    let free: u64 =
        Connection::open(&file)?.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    let intact = fs::read(&file)?;
    let pages = intact.len() as u64 / PAGE;
    let mut missed = 0;
    for page in 0..pages {
        fs::write(&file, &intact)?;
        let damaged = OpenOptions::new().write(true).open(&file)?;
        damaged.write_all_at(&vec![0xa5; usize::try_from(PAGE)?], page * PAGE)?;
        missed += u64::from(verify_file(&file)?.is_sound());
    }
    // Unused pages may have any content.
    assert!(pages > 15 && missed <= free, "{missed} of {pages}, {free} free");
    // A truncated file.
    fs::write(&file, &intact[..intact.len() / 2])?;
    assert!(!verify_file(&file)?.is_sound());
    Ok(())
}

#[test]
fn what_is_no_store_of_ours_is_not_checked() -> Result<(), Failure> {
    let folder = closed()?;
    let file = folder.path().join("bandana.sqlite3");
    let change = |sql: &str| Connection::open(&file)?.execute_batch(sql);
    change("PRAGMA user_version = 1000")?;
    let newer = verify_file(&file);
    assert!(
        matches!(newer, Err(StoreError::Sqlite(SqliteError::NewerSchema { found: 1000, .. }))),
        "{newer:?}"
    );
    change("PRAGMA application_id = 1")?;
    assert!(matches!(verify_file(&file), Err(StoreError::Sqlite(SqliteError::ForeignFile))));
    let empty = tempfile::tempdir()?;
    assert!(matches!(
        verify_directory(empty.path()),
        Err(StoreError::Sqlite(SqliteError::Missing { .. }))
    ));
    fs::write(empty.path().join("empty"), "")?;
    assert!(matches!(
        verify_file(&empty.path().join("empty")),
        Err(StoreError::Sqlite(SqliteError::ForeignFile))
    ));
    assert!(matches!(
        verify_file(&empty.path().join("none")),
        Err(StoreError::Sqlite(SqliteError::File { .. }))
    ));
    Ok(())
}

#[test]
fn a_backup_does_not_give_back_what_a_curator_has_spent() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    filled(folder.path())?.close()?;
    let fill = "INSERT INTO curator_data_set
            (name, file, fingerprint, rows, columns, measure, budget, spent, at) VALUES
            ('people', 'people.csv', zeroblob(32), 10, 'age:1..9', 'pure', 1000, 300, 0);
        INSERT INTO curator_session (name, data_set, columns, plan, threshold_noise) VALUES
            ('habits', 'people', 'age', 'a plan', 5);
        INSERT INTO curator_update (session, number, predicate, answer) VALUES ('habits', 0, 'age=3', 4);";
    let database = folder.path().join("bandana.sqlite3");
    Connection::open(&database)?.execute_batch(fill)?;
    seal_directory(folder.path())?;
    let out = folder.path().join("backup.sqlite3");
    let backup = Backup::begin(folder.path(), &out)?;
    backup.copy(|_| {})?;
    assert!(backup.check()?.is_sound());
    backup.publish()?;
    let asked = "SELECT budget, spent, (SELECT count(*) FROM curator_session),
            (SELECT count(*) FROM curator_update) FROM curator_data_set";
    let of = |path: &Path| -> Result<[u32; 4], Failure> {
        let read =
            |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]);
        Ok(Connection::open(path)?.query_row(asked, [], read)?)
    };
    assert_eq!(of(&out)?, [1000, 1000, 0, 0]);
    assert_eq!(of(&database)?, [1000, 300, 1, 1]);
    Ok(())
}
