//! The tables of the database, and the upgrade of earlier versions.

use bandana_shared::identity::StoreId;
use tokio_postgres::{GenericClient, IsolationLevel};

use super::checksums;
use super::connection::{Session, same};
use crate::fingerprint::FingerprintKey;
use crate::{DatabaseError, OpenError, Presence, StoreError, damaged, postgres};

/// The oldest supported server, as `server_version_num`.
const SERVER_VERSION_MIN: i32 = 130_000;

/// The steps that make each version from the one before; the first starts with an empty database.
const STEPS: [(i64, &str); 14] = [
    (1, include_str!("migrations/01_tables.sql")),
    (2, include_str!("migrations/02_queries.sql")),
    (3, include_str!("migrations/03_symbols_and_memory.sql")),
    (4, include_str!("migrations/04_trusted.sql")),
    (5, include_str!("migrations/05_guardrails.sql")),
    (6, include_str!("migrations/06_contents_and_rounds.sql")),
    (7, include_str!("migrations/07_identity.sql")),
    (8, include_str!("migrations/08_checksums.sql")),
    (9, include_str!("migrations/09_handover.sql")),
    (10, include_str!("migrations/10_records.sql")),
    (11, include_str!("migrations/11_sums.sql")),
    (12, include_str!("migrations/12_revisions.sql")),
    (13, include_str!("migrations/13_log.sql")),
    (14, include_str!("migrations/14_cells.sql")),
];

/// The schema version of this program.
const VERSION: i64 = STEPS[STEPS.len() - 1].0;

/// The advisory lock for changes of the tables, by which replicas that start together take turns.
/// "BNDN", twice.
pub(super) const CHANGING_TABLES: i64 = 0x424e_444e_424e_444e;

/// Creates the tables where there are none and none must be, brings those of an earlier version up
/// to date, in one transaction: a crash leaves the old version or the new one. Tells which store
/// it is.
pub(super) async fn prepare(
    session: &mut Session,
    presence: Presence,
) -> Result<StoreId, StoreError> {
    let failed = postgres("checking its schema");
    let query = "SELECT current_setting('server_version_num')::integer";
    let server: i32 = session.client.query_one(query, &[]).await.map_err(failed)?.get(0);
    if server < SERVER_VERSION_MIN {
        return Err(StoreError::Open(OpenError::OldServer { found: server / 10_000 }));
    }
    let builder = session.client.build_transaction();
    let transaction = builder.isolation_level(IsolationLevel::ReadCommitted).start().await;
    let transaction = transaction.map_err(failed)?;
    // Another replica may be changing the tables. Nothing else can be done before, so this waits.
    transaction.batch_execute("SET LOCAL lock_timeout = '5s'").await.map_err(failed)?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&CHANGING_TABLES]).await.map_err(failed)?;
    let exists = "SELECT to_regclass('bandana_schema') IS NOT NULL";
    let exists: bool = transaction.query_one(exists, &[]).await.map_err(failed)?.get(0);
    let version = if exists {
        let version = transaction.query_opt("SELECT version FROM bandana_schema", &[]).await;
        let row = version.map_err(failed)?;
        row.ok_or_else(|| damaged("the schema has no version".to_owned()))?.get(0)
    } else {
        0
    };
    match presence {
        Presence::Required if !exists => return Err(StoreError::Open(OpenError::Empty)),
        Presence::Forbidden if exists => {
            return Err(StoreError::Open(OpenError::Exists { place: "this database".to_owned() }));
        }
        _ => {}
    }
    if version > VERSION {
        return Err(StoreError::Open(OpenError::NewerSchema { found: version, known: VERSION }));
    }
    if version < VERSION {
        // All rows may have to be rewritten.
        transaction.batch_execute("SET LOCAL statement_timeout = 0").await.map_err(failed)?;
        checksums::unseal(&transaction).await?;
    }
    for (number, step) in STEPS.iter().filter(|(number, _)| *number > version) {
        transaction.batch_execute(step).await.map_err(failed)?;
        let update = "UPDATE bandana_schema SET version = $1";
        transaction.execute(update, &[number]).await.map_err(failed)?;
    }
    let key = FingerprintKey::random()
        .map_err(|source| StoreError::Database(DatabaseError::Entropy { source }))?;
    let insert = "INSERT INTO curator_key (one, key) VALUES (1, $1) ON CONFLICT DO NOTHING";
    transaction.execute(insert, &[&&key.as_bytes()[..]]).await.map_err(failed)?;
    if version < VERSION {
        checksums::seal(&transaction).await?;
    }
    let id = id(&transaction).await?;
    transaction.commit().await.map_err(failed)?;
    Ok(id)
}

/// The id of the store in a database.
pub(super) async fn id(client: &impl GenericClient) -> Result<StoreId, StoreError> {
    let row = client.query_opt("SELECT id FROM store", &[]).await;
    let row = row.map_err(postgres("reading"))?;
    let row = row.ok_or_else(|| damaged("the store has no id".to_owned()))?;
    store_id(row.get(0))
}

pub(super) fn store_id(bytes: &[u8]) -> Result<StoreId, StoreError> {
    StoreId::try_from(bytes).map_err(|error| damaged(error.to_string()))
}

/// The schema version, which this program must know.
pub(super) async fn version_of(session: &mut Session) -> Result<i64, StoreError> {
    let failed = postgres("checking its schema");
    let exists = "SELECT to_regclass('bandana_schema') IS NOT NULL";
    if !session.client.query_one(exists, &[]).await.map_err(failed)?.get::<_, bool>(0) {
        return Err(StoreError::Open(OpenError::Empty));
    }
    check(session).await.map(|()| VERSION)
}

/// As [`check`], and also refuses a database that holds another store.
pub(super) async fn check_store(
    session: &mut Session,
    expected: StoreId,
) -> Result<(), StoreError> {
    let query = "SELECT version, (SELECT id FROM store) FROM bandana_schema";
    let row = session.client.query_one(query, &[]).await;
    let row = row.map_err(postgres("checking its schema"))?;
    let found: i64 = row.get(0);
    if found != VERSION {
        return Err(StoreError::Open(OpenError::NewerSchema { found, known: VERSION }));
    }
    same(store_id(row.get(1))?, expected)
}

/// Refuses a database that was changed by a newer program while this one ran.
pub(super) async fn check(session: &mut Session) -> Result<(), StoreError> {
    let failed = postgres("checking its schema");
    let query = "SELECT version FROM bandana_schema";
    let found: i64 = session.client.query_one(query, &[]).await.map_err(failed)?.get(0);
    match found {
        VERSION => Ok(()),
        _ => Err(StoreError::Open(OpenError::NewerSchema { found, known: VERSION })),
    }
}
