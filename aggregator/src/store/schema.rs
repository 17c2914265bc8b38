//! The tables.

use rusqlite::Connection;

use super::StoreError;

/// Marks the file as ours: "BNDN".
const APPLICATION_ID: i64 = 0x424e_444e;

/// Version of the tables below.
const VERSION: i64 = 1;

/// `upload_group` has one row per commit and day, in the order of the commits. `tally` has the sums of all
/// days; for days before `watermark.oldest_day` the same sums stand in
/// `checkpoint`, and their `upload_group` rows are gone. So for every
/// experiment, day and arm: tally = checkpoint + deltas of the groups.
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

/// Creates the tables in an empty file; checks the version of others.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    let failed = |source| StoreError::Database { doing: "checking its schema", source };
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let version = pragma("user_version").map_err(failed)?;
    let application = pragma("application_id").map_err(failed)?;
    match (application, version) {
        (0, 0) => create(connection).map_err(failed),
        (APPLICATION_ID, VERSION) => Ok(()),
        (APPLICATION_ID, found) => Err(StoreError::NewerSchema { found, known: VERSION }),
        _ => Err(StoreError::ForeignFile),
    }
}

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}
