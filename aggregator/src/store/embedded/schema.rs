//! The tables of the embedded store, and the upgrade of earlier versions.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::checksums;
use crate::datasets::fingerprint::FingerprintKey;
use crate::store::{DatabaseError, OpenError, StoreError, damaged};

/// The application id that marks the file as Bandana's: "BNDN".
pub(super) const APPLICATION_ID: i64 = 0x424e_444e;

/// The steps that make each version from the one before; the first starts with an empty file.
const STEPS: [(i64, &str); 11] = [
    (1, TABLES),
    (2, SIGNATURES),
    (3, DRAFTS_AND_AUDIT),
    (4, CURATOR),
    (5, SYMBOLS_AND_MEMORY),
    (6, TRUSTED),
    (7, GUARDRAILS),
    (8, CONTENTS_AND_ROUNDS),
    (WITH_IDENTITY, IDENTITY),
    (10, KNOWN_DAYS),
    (WITH_CHECKSUMS, CHECKSUMS),
];

/// The schema version of this program.
pub(super) const VERSION: i64 = STEPS[STEPS.len() - 1].0;

/// First version with signatures, and with the audit log.
pub(super) const WITH_SIGNATURES: i64 = 2;
pub(super) const WITH_AUDIT: i64 = 3;

/// First version with budgets.
pub(super) const WITH_CURATOR: i64 = 4;

/// First version with trusted experiments, and with an id of the store.
pub(super) const WITH_TRUSTED: i64 = 6;
pub(super) const WITH_IDENTITY: i64 = 9;

/// First version whose rows have checksums.
pub(super) const WITH_CHECKSUMS: i64 = 11;

/// Version 1. `upload_group` has one row per commit and day, in the order of the commits. `tally`
/// has the sums of all days. For days before `watermark.oldest_day`, rows move from `upload_group`
/// to `checkpoint` a few at a time. So for every experiment, day and arm, at any time: tally =
/// checkpoint + deltas of the groups.
const TABLES: &str = "
CREATE TABLE experiment (
    key          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    state        TEXT NOT NULL CHECK (state IN ('running', 'paused', 'stopped')),
    learner      TEXT NOT NULL,
    floor_weight REAL NOT NULL
) STRICT;
CREATE TABLE specification (
    digest     BLOB PRIMARY KEY CHECK (length(digest) = 16),
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    revision   INTEGER NOT NULL,
    bytes      BLOB NOT NULL,
    UNIQUE (experiment, revision)
) STRICT, WITHOUT ROWID;
CREATE TABLE tally (
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    day        INTEGER NOT NULL,
    arm        INTEGER NOT NULL,
    reports    INTEGER NOT NULL CHECK (reports >= 0),
    ones       INTEGER NOT NULL CHECK (ones BETWEEN 0 AND reports),
    PRIMARY KEY (experiment, day, arm)
) STRICT, WITHOUT ROWID;
CREATE TABLE upload_group (
    key    INTEGER PRIMARY KEY,
    day    INTEGER NOT NULL,
    ids    BLOB NOT NULL CHECK (length(ids) % 16 = 0),
    deltas BLOB NOT NULL
) STRICT;
CREATE TABLE checkpoint (
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    day        INTEGER NOT NULL,
    arm        INTEGER NOT NULL,
    reports    INTEGER NOT NULL,
    ones       INTEGER NOT NULL,
    PRIMARY KEY (experiment, day, arm)
) STRICT, WITHOUT ROWID;
CREATE TABLE watermark (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    oldest_day INTEGER NOT NULL
) STRICT;
INSERT INTO watermark VALUES (1, 0);
";

/// Version 2: the signatures of each revision; `expires` in seconds since
/// 1970-01-01 (UTC).
const SIGNATURES: &str = "
CREATE TABLE signature (
    digest     BLOB NOT NULL REFERENCES specification (digest),
    public_key BLOB NOT NULL CHECK (length(public_key) = 32),
    expires    INTEGER NOT NULL CHECK (expires >= 0),
    signature  BLOB NOT NULL CHECK (length(signature) = 64),
    PRIMARY KEY (digest, public_key)
) STRICT, WITHOUT ROWID;
";

/// Version 3: draft experiments, which need a new table, since a check constraint can't be changed;
/// and an append-only audit log.
const DRAFTS_AND_AUDIT: &str = "
CREATE TABLE new_experiment (
    key          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    state        TEXT NOT NULL CHECK (state IN ('draft', 'running', 'paused', 'stopped')),
    learner      TEXT NOT NULL,
    floor_weight REAL NOT NULL
) STRICT;
INSERT INTO new_experiment SELECT key, id, state, learner, floor_weight FROM experiment;
DROP TABLE experiment;
ALTER TABLE new_experiment RENAME TO experiment;
CREATE TABLE audit (
    key        INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    caller     TEXT NOT NULL,
    action     TEXT NOT NULL,
    experiment TEXT NOT NULL,
    detail     TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_experiment ON audit (experiment, key);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'entries of the audit log are not changed'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
BEGIN SELECT raise(ABORT, 'entries of the audit log are not deleted'); END;
";

/// Version 4: the curator's budgets, in billionths, and sessions. Spent budget is never given back,
/// and debits and updates are append-only.
const CURATOR: &str = "
CREATE TABLE curator_data_set (
    name        TEXT PRIMARY KEY,
    file        TEXT NOT NULL,
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    rows        INTEGER NOT NULL CHECK (rows > 0),
    columns     TEXT NOT NULL,
    measure     TEXT NOT NULL CHECK (measure IN ('pure', 'concentrated')),
    budget      INTEGER NOT NULL CHECK (budget > 0),
    spent       INTEGER NOT NULL CHECK (spent BETWEEN 0 AND budget),
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE curator_debit (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    data_set TEXT NOT NULL REFERENCES curator_data_set (name),
    at       INTEGER NOT NULL,
    caller   TEXT NOT NULL,
    purpose  TEXT NOT NULL,
    price    INTEGER NOT NULL CHECK (price > 0)
) STRICT;
CREATE INDEX curator_debit_by_data_set ON curator_debit (data_set, number);
CREATE TABLE curator_session (
    name            TEXT PRIMARY KEY,
    data_set        TEXT NOT NULL REFERENCES curator_data_set (name),
    columns         TEXT NOT NULL,
    plan            TEXT NOT NULL,
    threshold_noise INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE curator_update (
    session   TEXT NOT NULL REFERENCES curator_session (name),
    number    INTEGER NOT NULL CHECK (number >= 0),
    predicate TEXT NOT NULL,
    answer    INTEGER NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER curator_spends_only BEFORE UPDATE ON curator_data_set
WHEN NEW.spent < OLD.spent OR NEW.budget <> OLD.budget OR NEW.fingerprint <> OLD.fingerprint
BEGIN SELECT raise(ABORT, 'what was spent is never given back'); END;
CREATE TRIGGER curator_data_set_is_not_deleted BEFORE DELETE ON curator_data_set
BEGIN SELECT raise(ABORT, 'a data set is not deleted: its budget would begin anew'); END;
CREATE TRIGGER curator_debit_is_not_deleted BEFORE DELETE ON curator_debit
BEGIN SELECT raise(ABORT, 'debits are not deleted'); END;
";

/// Version 5: symbols beyond 0 and 1, and learners with limited memory. `tally` has all reports and
/// those that say 1, as before. `symbol_tally` has the reports that say 2 and more; the others say
/// 0. `checkpoint` and `symbol_checkpoint` are split in the same way.
const SYMBOLS_AND_MEMORY: &str = "
CREATE TABLE symbol_tally (
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    day        INTEGER NOT NULL,
    arm        INTEGER NOT NULL,
    symbol     INTEGER NOT NULL CHECK (symbol BETWEEN 2 AND 15),
    reports    INTEGER NOT NULL CHECK (reports > 0),
    PRIMARY KEY (experiment, day, arm, symbol)
) STRICT, WITHOUT ROWID;
CREATE TABLE symbol_checkpoint (
    experiment INTEGER NOT NULL REFERENCES experiment (key),
    day        INTEGER NOT NULL,
    arm        INTEGER NOT NULL,
    symbol     INTEGER NOT NULL,
    reports    INTEGER NOT NULL,
    PRIMARY KEY (experiment, day, arm, symbol)
) STRICT, WITHOUT ROWID;
ALTER TABLE experiment ADD COLUMN window_days INTEGER CHECK (window_days > 0);
ALTER TABLE experiment ADD COLUMN discount REAL CHECK (discount > 0 AND discount < 1);
";

/// Version 6: trusted experiments. `private` has sums of unreleased rewards, and is erased when the
/// experiment is stopped; `released` may be shown. A disclosure counts once by its id and day; the
/// day is not before `oldest_day`.
const TRUSTED: &str = "
CREATE TABLE trusted_experiment (
    key           INTEGER PRIMARY KEY,
    id            TEXT NOT NULL UNIQUE,
    specification BLOB NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('running', 'paused', 'stopped')),
    sequence      INTEGER NOT NULL CHECK (sequence >= 0),
    stamp         INTEGER NOT NULL CHECK (stamp >= 0),
    oldest_day    INTEGER NOT NULL CHECK (oldest_day >= 0),
    private       BLOB,
    released      BLOB NOT NULL,
    CHECK ((private IS NULL) = (state = 'stopped'))
) STRICT;
CREATE TABLE trusted_disclosure (
    experiment INTEGER NOT NULL REFERENCES trusted_experiment (key),
    day        INTEGER NOT NULL,
    id         BLOB NOT NULL CHECK (length(id) = 16),
    PRIMARY KEY (experiment, day, id)
) STRICT, WITHOUT ROWID;
";

/// Version 7: guardrails, which are off in earlier experiments.
const GUARDRAILS: &str = "
ALTER TABLE experiment ADD COLUMN burn_in_reports INTEGER NOT NULL DEFAULT 0
    CHECK (burn_in_reports >= 0);
ALTER TABLE experiment ADD COLUMN holdout_share REAL NOT NULL DEFAULT 0
    CHECK (holdout_share BETWEEN 0 AND 1);
";

/// Version 8: budgets belong to the content of a file, independent of its name. `content` and
/// `fingerprint` are codes by the key of the store. In earlier data sets, `content` is missing and
/// `fingerprint` is a plain hash until their files have been read again. Sessions count their
/// rounds, and answers are kept for callers who did not receive them.
const CONTENTS_AND_ROUNDS: &str = "
CREATE TABLE curator_key (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    key BLOB NOT NULL CHECK (length(key) = 32)
) STRICT;
ALTER TABLE curator_data_set ADD COLUMN content BLOB CHECK (length(content) = 32);
CREATE UNIQUE INDEX curator_data_set_by_content ON curator_data_set (content);
DROP TRIGGER curator_spends_only;
CREATE TRIGGER curator_spends_only BEFORE UPDATE ON curator_data_set
WHEN NEW.spent < OLD.spent OR NEW.budget <> OLD.budget OR (OLD.content IS NOT NULL
    AND (NEW.content IS NOT OLD.content OR NEW.fingerprint <> OLD.fingerprint))
BEGIN SELECT raise(ABORT, 'what was spent is never given back'); END;
ALTER TABLE curator_session ADD COLUMN rounds INTEGER NOT NULL DEFAULT 0 CHECK (rounds >= 0);
CREATE TABLE curator_answer (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    kind     TEXT NOT NULL CHECK (kind IN ('data-set', 'session')),
    name     TEXT NOT NULL,
    caller   TEXT NOT NULL,
    question BLOB NOT NULL CHECK (length(question) = 16),
    digest   BLOB NOT NULL CHECK (length(digest) = 32),
    answer   BLOB NOT NULL,
    at       INTEGER NOT NULL,
    UNIQUE (kind, name, caller, question)
) STRICT;
";

/// Version 9: the id of the store. It is made here, with a new store or with the upgrade of an old
/// one, and stays.
const IDENTITY: &str = "
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id  BLOB NOT NULL CHECK (length(id) = 16)
) STRICT;
INSERT INTO store (one, id) VALUES (1, randomblob(16));
CREATE TRIGGER store_keeps_its_id BEFORE UPDATE ON store
BEGIN SELECT raise(ABORT, 'a store keeps its id'); END;
CREATE TRIGGER store_does_not_lose_its_id BEFORE DELETE ON store
BEGIN SELECT raise(ABORT, 'a store keeps its id'); END;
";

/// Version 11: a checksum for every row, and a sum of them for every table. [`checksums`] adds the
/// columns to the tables of this version and of later ones; unchanged rows get their checksums
/// afterwards.
const CHECKSUMS: &str = "
CREATE TABLE table_sum (
    name TEXT PRIMARY KEY,
    rows INTEGER NOT NULL,
    sum  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
DROP TRIGGER audit_is_not_changed;
CREATE TRIGGER audit_is_not_changed
BEFORE UPDATE OF key, at, caller, action, experiment, detail ON audit
BEGIN SELECT raise(ABORT, 'entries of the audit log are not changed'); END;
DROP TRIGGER store_keeps_its_id;
CREATE TRIGGER store_keeps_its_id BEFORE UPDATE OF one, id ON store
BEGIN SELECT raise(ABORT, 'a store keeps its id'); END;
";

/// Creates the tables in an empty file.
pub(super) fn create(connection: &mut Connection) -> Result<(), StoreError> {
    upgrade(connection, 0)
}

/// Version 10: the day since which all disclosure ids of a trusted experiment are still stored. In
/// earlier experiments the day is unknown, and taken to be the first day of their window.
const KNOWN_DAYS: &str = "
ALTER TABLE trusted_experiment ADD COLUMN known_from INTEGER NOT NULL DEFAULT 0
    CHECK (known_from >= 0);
UPDATE trusted_experiment SET known_from = oldest_day;
";

/// Upgrades the tables of an earlier version. Damage is noticed before anything is changed.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    let version = version_of(connection)?;
    if let Some(difference) = differences(connection, version).map_err(failed)?.pop() {
        return Err(damaged(difference));
    }
    checksums::check_all(connection, version)?;
    if version < VERSION { upgrade(connection, version) } else { Ok(()) }
}

/// The differences of tables, indexes and triggers from those of a version. Additional ones are
/// harmless and left out.
pub(super) fn differences(connection: &Connection, version: i64) -> rusqlite::Result<Vec<String>> {
    let found = definitions(connection)?;
    let difference = |(name, definition): (String, String)| match found.get(&name) {
        None => Some(format!("there is no {name}")),
        Some(found) if *found != definition => Some(format!("the {name} is not as it was made")),
        Some(_) => None,
    };
    Ok(definitions(&example(version)?)?.into_iter().filter_map(difference).collect())
}

/// The definitions in a database by kind and name. SQLite rewrites some of them when a table is
/// renamed: blanks and quotes are not significant.
fn definitions(connection: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    let query = "SELECT type || ' ' || name, tbl_name || ' ' || sql FROM sqlite_schema
        WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut statement = connection.prepare(query)?;
    let plain = |sql: String| sql.chars().filter(|c| !c.is_whitespace() && *c != '"').collect();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, plain(row.get(1)?))))?;
    rows.collect()
}

/// The schema version of a file, which must be Bandana's and not of a newer program.
pub(super) fn version_of(connection: &Connection) -> Result<i64, StoreError> {
    let (application, version) = marks(connection)?;
    known(application, version)
}

fn known(application: i64, version: i64) -> Result<i64, StoreError> {
    match (application, version) {
        (APPLICATION_ID, 1..=VERSION) => Ok(version),
        (APPLICATION_ID, found) if found > VERSION => {
            Err(StoreError::Open(OpenError::NewerSchema { found, known: VERSION }))
        }
        _ => Err(StoreError::Open(OpenError::ForeignFile)),
    }
}

/// An empty database of a version, in memory.
pub(super) fn example(version: i64) -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    connection.pragma_update(None, "foreign_keys", false)?;
    steps(&connection, 0, version)?;
    Ok(connection)
}

/// The application id and the schema version of a file.
fn marks(connection: &Connection) -> Result<(i64, i64), StoreError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let version = pragma("user_version").map_err(failed)?;
    Ok((pragma("application_id").map_err(failed)?, version))
}

fn failed(source: rusqlite::Error) -> StoreError {
    StoreError::Database(DatabaseError::Sqlite { doing: "checking its schema", source })
}

fn steps(connection: &Connection, from: i64, to: i64) -> rusqlite::Result<()> {
    for (version, step) in STEPS.iter().filter(|(version, _)| (from + 1..=to).contains(version)) {
        connection.execute_batch(step)?;
        if *version >= WITH_CHECKSUMS {
            checksums::add_columns(connection)?;
        }
    }
    Ok(())
}

/// Runs all steps after version `from`, in one transaction: a crash leaves the old version or the
/// new one.
fn upgrade(connection: &mut Connection, from: i64) -> Result<(), StoreError> {
    let key = FingerprintKey::random()
        .map_err(|source| StoreError::Database(DatabaseError::Entropy { source }))?;
    take_steps(connection, from, &key).map_err(failed)
}

fn take_steps(
    connection: &mut Connection,
    from: i64,
    key: &FingerprintKey,
) -> rusqlite::Result<()> {
    // A table with references to it can't be replaced while foreign keys are enforced, and
    // enforcement can't be switched within a transaction.
    connection.pragma_update(None, "foreign_keys", false)?;
    let transaction = connection.transaction()?;
    steps(&transaction, from, VERSION)?;
    let insert = "INSERT INTO curator_key (one, key) VALUES (1, ?) ON CONFLICT DO NOTHING";
    transaction.execute(insert, [&key.as_bytes()[..]])?;
    checksums::seal(&transaction)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    connection.pragma_update(None, "foreign_keys", true)
}
