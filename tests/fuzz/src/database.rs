//! Databases of the first and of the newest schema version, with altered values.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use bandana_aggregator::registry::Registry;
use bandana_edge::clock::ManualClock;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_store::{
    AuditQuery, CuratorName, EmbeddedSettings, EmbeddedStore, Store as _, StoreError, StoreReader,
    seal_directory, verify_directory,
};
use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::input::{byte, memory, part, sealed, u64};

const DATABASE: &str = "bandana.sqlite3";
const SETTINGS: EmbeddedSettings = EmbeddedSettings { replay_window_days: 3, ids_max: 100 };
const EDITS_MAX: usize = 8;

/// The schema of the first version.
const SCHEMA_1: &str = include_str!("../../../aggregator/tests/schema-1.sql");

/// A row in every table of the first version.
const ROWS_1: &str = "
    INSERT INTO experiment VALUES (1, 'old', 'running', 'ldp-ts', 0.25);
    INSERT INTO tally VALUES (1, 100, 0, 3, 2), (1, 90, 1, 5, 1);
    INSERT INTO checkpoint VALUES (1, 90, 1, 5, 1);
    UPDATE watermark SET oldest_day = 99;";

/// Further rows, in tables of the newest version.
const ROWS: &str = "
    INSERT INTO signature (digest, public_key, expires, signature)
        SELECT digest, zeroblob(32), 9, zeroblob(64) FROM specification;
    INSERT INTO audit (at, caller, action, experiment, detail) VALUES (1, 'a', 'create', 'old', '');
    INSERT INTO curator_data_set
        (name, file, fingerprint, rows, columns, measure, budget, spent, at, content)
        VALUES ('d', 'd.csv', zeroblob(32), 9, 'a:1..3', 'pure', 9, 1, 1, zeroblob(32));
    INSERT INTO curator_debit (data_set, at, caller, purpose, price) VALUES ('d', 1, 'a', 'b', 1);
    INSERT INTO curator_session (name, data_set, columns, plan, threshold_noise, rounds)
        VALUES ('s', 'd', 'a', '{}', 0, 1);
    INSERT INTO curator_update (session, number, predicate, answer) VALUES ('s', 0, 'a = 1', 3);
    INSERT INTO curator_answer (kind, name, caller, question, digest, answer, at)
        VALUES ('session', 's', 'a', zeroblob(16), zeroblob(32), x'01', 1);
    INSERT INTO symbol_tally (experiment, day, arm, symbol, reports) VALUES (1, 90, 1, 3, 1);
    INSERT INTO symbol_checkpoint (experiment, day, arm, symbol, reports) VALUES (1, 90, 1, 3, 1);
    INSERT INTO trusted_experiment
        (id, specification, state, sequence, stamp, oldest_day, private, released)
        VALUES ('t', x'01', 'running', 1, 1, 99, x'01', x'01');
    INSERT INTO trusted_disclosure (experiment, day, id) VALUES (1, 100, zeroblob(16));";

/// An initial file, and the columns of its tables.
struct Golden {
    file: Vec<u8>,
    columns: Vec<(String, String)>,
}

static OLDEST: LazyLock<Golden> = LazyLock::new(|| Golden::new(false));
static NEWEST: LazyLock<Golden> = LazyLock::new(|| Golden::new(true));

impl Golden {
    fn new(is_newest: bool) -> Self {
        let directory = tempfile::tempdir_in(memory()).expect("a temporary folder");
        let path = directory.path().join(DATABASE);
        let database = Connection::open(&path).expect("a new file");
        database.execute_batch(SCHEMA_1).expect("the first version");
        database.execute_batch(ROWS_1).expect("rows of the first version");
        let specification = specification();
        let (digest, bytes) = (specification.digest(), specification.canonical_bytes());
        let insert = "INSERT INTO specification VALUES (?, 1, 1, ?)";
        database.execute(insert, params![digest.as_bytes(), bytes]).expect("a specification");
        // One delta: experiment 1, arm 0, 3 reports, 2 of them ones.
        let deltas = sealed(*b"BDdl", 1, &[1, 2, 0, 3, 2]);
        let insert = "INSERT INTO upload_group VALUES (1, 100, ?, ?)";
        database.execute(insert, params![[7_u8; 16], deltas]).expect("a group");
        if is_newest {
            let store = EmbeddedStore::open(directory.path(), SETTINGS);
            Box::new(store.expect("it is brought up to date")).close().expect("it is closed");
            database.execute_batch(ROWS).expect("rows of the newest version");
        }
        let columns = columns(&database).expect("columns");
        drop(database);
        if is_newest {
            seal_directory(directory.path()).expect("it is sealed");
        }
        Self { file: std::fs::read(path).expect("its file"), columns }
    }
}

fn specification() -> Specification {
    let id = ExperimentId::new("old").expect("a name");
    let epsilon = Epsilon::new(1.0).expect("an epsilon");
    let arms = ["a", "b"].map(|label| Arm::new(label).expect("a label")).to_vec();
    let timing = ReleaseTiming::IMMEDIATE;
    let first =
        Specification::first(id, epsilon, Rewards::binary(), Mechanism::Linear, arms, timing);
    first.expect("a valid specification")
}

/// Every column of every table.
fn columns(database: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let query = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
        WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' ORDER BY 1, 2";
    let mut statement = database.prepare(query)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// Any database is either refused or readable.
pub fn database(mut data: &[u8]) {
    let kind = byte(&mut data);
    let golden = if kind & 1 == 0 { &*OLDEST } else { &*NEWEST };
    let directory = tempfile::tempdir_in(memory()).expect("a temporary folder");
    let path = directory.path().join(DATABASE);
    std::fs::write(&path, &golden.file).expect("room for a store");
    let database = Connection::open(path).expect("it is opened");
    // A bad disk bypasses constraints.
    database.execute_batch("PRAGMA ignore_check_constraints = ON").expect("a setting");
    for _ in 0..EDITS_MAX {
        if data.is_empty() {
            break;
        }
        edit(&database, &golden.columns, &mut data);
    }
    drop(database);
    // As after a manual repair; otherwise most changes are refused at once.
    if kind & 3 == 3 {
        seal_directory(directory.path()).ok();
    }
    verify_directory(directory.path()).ok();
    read(directory.path()).ok();
    verify_directory(directory.path()).ok();
}

/// Changes one column in all rows of a table.
fn edit(database: &Connection, columns: &[(String, String)], data: &mut &[u8]) {
    let (table, column) = &columns[usize::from(byte(data)) % columns.len()];
    let value = match byte(data) % 6 {
        0 => Value::Integer(u64(data).cast_signed()),
        1 => Value::Real(f64::from_bits(u64(data))),
        2 => Value::Text(String::from_utf8_lossy(part(data)).into_owned()),
        3 => Value::Blob(part(data).to_vec()),
        4 => Value::Blob(sealed(*b"BDdl", u16::from(byte(data) & 1) + 1, part(data))),
        _ => Value::Null,
    };
    // Values that violate the table's schema are skipped.
    database.execute(&format!("UPDATE OR IGNORE {table} SET {column} = ?"), [value]).ok();
}

/// Reads everything, and lets some of it expire.
fn read(directory: &Path) -> Result<(), StoreError> {
    let mut store = EmbeddedStore::open(directory, SETTINGS)?;
    let registry = Registry::new(1, Arc::new(ManualClock::at_day(Day::new(100))));
    let all = Day::new(0)..=Day::new(u32::MAX);
    let reader = StoreReader::new(directory);
    for record in store.load()? {
        reader.daily_tallies(record.key, &all)?;
        registry.publish(record).ok();
    }
    reader.audit(&AuditQuery { experiment: None, limit: 100, before: None }).ok();
    for record in reader.data_sets(None).unwrap_or_default() {
        reader.debits((&record.name, None), None, 100).ok();
    }
    if let Ok(session) = CuratorName::new("s") {
        reader.session(&session).ok();
        reader.session_updates(&session, 0, 100).ok();
    }
    for record in reader.trusted(None).unwrap_or_default() {
        reader.disclosed(&record.id, &[(Day::new(100), UploadId::new([0; 16]))]).ok();
        registry.trusted().publish_record(&record).ok();
    }
    reader.fingerprint_key().ok();
    for today in [100, 102, 104] {
        store.commit(&[], Day::new(today))?;
    }
    Box::new(store).close()
}
