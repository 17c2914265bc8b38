//! The tables of the database, and the upgrade of earlier versions.

use bandana_shared::identity::StoreId;
use tokio_postgres::{GenericClient, IsolationLevel};

use super::connection::{Session, same};
use super::{checksums, handover};
use crate::datasets::fingerprint::FingerprintKey;
use crate::store::{DatabaseError, OpenError, Presence, StoreError, damaged, postgres};

/// The oldest supported server, as `server_version_num`.
const SERVER_VERSION_MIN: i32 = 130_000;

/// The steps that make each version from the one before; the first starts with an empty database.
const STEPS: [(i64, &str); 9] = [
    (1, TABLES),
    (2, CURATOR),
    (3, SYMBOLS_AND_MEMORY),
    (4, TRUSTED),
    (5, GUARDRAILS),
    (6, CONTENTS_AND_ROUNDS),
    (7, IDENTITY),
    (8, checksums::TABLES),
    (9, handover::TABLES),
];

/// The schema version of this program.
const VERSION: i64 = STEPS[STEPS.len() - 1].0;

/// The advisory lock for changes of the tables, by which replicas that start together take turns.
/// "BNDN", twice.
pub(super) const CHANGING_TABLES: i64 = 0x424e_444e_424e_444e;

/// Version 1.
///
/// `experiment.version` is the version of the policy, and grows with every change that replicas
/// must follow. `tally` has a row for each replica that counts at the same time, so that none waits
/// for another; rows of expired days are summed up as replica 0. It has no foreign key to the
/// experiment, which would lock the experiment's row in every commit. `upload` has a partition for
/// each day, so that a whole day is dropped at once.
const TABLES: &str = "
CREATE TABLE bandana_schema (
    one     integer PRIMARY KEY CHECK (one = 1),
    version bigint NOT NULL
);
INSERT INTO bandana_schema VALUES (1, 1);
CREATE TABLE experiment (
    key            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id             text NOT NULL UNIQUE,
    state          text NOT NULL CHECK (state IN ('draft', 'running', 'paused', 'stopped')),
    learner        text NOT NULL,
    floor_weight   double precision NOT NULL,
    version        bigint NOT NULL CHECK (version > 0),
    weights        bigint[] NOT NULL,
    policy_reports bigint NOT NULL CHECK (policy_reports >= 0)
) WITH (fillfactor = 50);
CREATE TABLE specification (
    digest     bytea PRIMARY KEY CHECK (octet_length(digest) = 16),
    experiment bigint NOT NULL REFERENCES experiment (key),
    revision   bigint NOT NULL,
    bytes      bytea NOT NULL,
    UNIQUE (experiment, revision)
);
CREATE TABLE signature (
    digest     bytea NOT NULL REFERENCES specification (digest),
    public_key bytea NOT NULL CHECK (octet_length(public_key) = 32),
    expires    bigint NOT NULL CHECK (expires >= 0),
    signature  bytea NOT NULL CHECK (octet_length(signature) = 64),
    PRIMARY KEY (digest, public_key)
);
CREATE TABLE upload (
    day integer NOT NULL,
    id  uuid NOT NULL,
    PRIMARY KEY (day, id)
) PARTITION BY LIST (day);
CREATE TABLE tally (
    day        integer NOT NULL,
    experiment bigint NOT NULL,
    arm        integer NOT NULL,
    replica    integer NOT NULL,
    reports    bigint NOT NULL CHECK (reports >= 0),
    ones       bigint NOT NULL CHECK (ones BETWEEN 0 AND reports),
    PRIMARY KEY (day, experiment, arm, replica)
) WITH (fillfactor = 50);
CREATE TABLE watermark (
    one        integer PRIMARY KEY CHECK (one = 1),
    oldest_day integer NOT NULL
);
INSERT INTO watermark VALUES (1, 0);
CREATE TABLE lease (
    one     integer PRIMARY KEY CHECK (one = 1),
    holder  text NOT NULL,
    expires timestamptz NOT NULL
);
INSERT INTO lease VALUES (1, '', '-infinity');
CREATE TABLE audit (
    key        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         bigint NOT NULL,
    caller     text NOT NULL,
    action     text NOT NULL,
    experiment text NOT NULL,
    detail     text NOT NULL
);
CREATE INDEX audit_by_experiment ON audit (experiment, key);
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entries of the audit log are neither changed nor deleted';
END $$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
";

/// Version 2: the curator's budgets, in billionths, and sessions. Spent budget is never given back.
const CURATOR: &str = "
CREATE TABLE curator_data_set (
    name        text PRIMARY KEY,
    file        text NOT NULL,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    rows        bigint NOT NULL CHECK (rows > 0),
    columns     text NOT NULL,
    measure     text NOT NULL CHECK (measure IN ('pure', 'concentrated')),
    budget      bigint NOT NULL CHECK (budget > 0),
    spent       bigint NOT NULL CHECK (spent BETWEEN 0 AND budget),
    at          bigint NOT NULL
);
CREATE TABLE curator_debit (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    data_set text NOT NULL REFERENCES curator_data_set (name),
    at       bigint NOT NULL,
    caller   text NOT NULL,
    purpose  text NOT NULL,
    price    bigint NOT NULL CHECK (price > 0)
);
CREATE INDEX curator_debit_by_data_set ON curator_debit (data_set, number);
CREATE TABLE curator_session (
    name            text PRIMARY KEY,
    data_set        text NOT NULL REFERENCES curator_data_set (name),
    columns         text NOT NULL,
    plan            text NOT NULL,
    threshold_noise bigint NOT NULL
);
CREATE TABLE curator_update (
    session   text NOT NULL REFERENCES curator_session (name),
    number    bigint NOT NULL CHECK (number >= 0),
    predicate text NOT NULL,
    answer    bigint NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE FUNCTION curator_spends_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.spent >= OLD.spent AND NEW.budget = OLD.budget
        AND NEW.fingerprint = OLD.fingerprint THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'what was spent is never given back';
END $$;
CREATE TRIGGER curator_spends_only BEFORE UPDATE OR DELETE ON curator_data_set
    FOR EACH ROW EXECUTE FUNCTION curator_spends_only();
CREATE TRIGGER curator_debit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON curator_debit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
";

/// Version 3: symbols beyond 0 and 1, and learners with limited memory. `tally` has all reports and
/// those that say 1, as before. `symbol_tally` has the reports that say 2 and more; the others say
/// 0.
const SYMBOLS_AND_MEMORY: &str = "
CREATE TABLE symbol_tally (
    day        integer NOT NULL,
    experiment bigint NOT NULL,
    arm        integer NOT NULL,
    symbol     integer NOT NULL CHECK (symbol BETWEEN 2 AND 15),
    replica    integer NOT NULL,
    reports    bigint NOT NULL CHECK (reports > 0),
    PRIMARY KEY (day, experiment, arm, symbol, replica)
) WITH (fillfactor = 50);
ALTER TABLE experiment
    ADD COLUMN window_days bigint CHECK (window_days > 0),
    ADD COLUMN discount double precision CHECK (discount > 0 AND discount < 1);
";

/// Version 4: trusted experiments. `private` has sums of unreleased rewards, and is erased when the
/// experiment is stopped; `released` may be shown. A disclosure counts once by its id and day; the
/// day is not before `oldest_day`. It has no foreign key to its experiment, whose row is written in
/// every commit.
const TRUSTED: &str = "
CREATE TABLE trusted_experiment (
    key           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            text NOT NULL UNIQUE,
    specification bytea NOT NULL,
    state         text NOT NULL CHECK (state IN ('running', 'paused', 'stopped')),
    sequence      bigint NOT NULL CHECK (sequence >= 0),
    stamp         bigint NOT NULL CHECK (stamp >= 0),
    oldest_day    integer NOT NULL CHECK (oldest_day >= 0),
    private       bytea,
    released      bytea NOT NULL,
    CHECK ((private IS NULL) = (state = 'stopped'))
) WITH (fillfactor = 50);
CREATE TABLE trusted_disclosure (
    experiment bigint NOT NULL,
    day        integer NOT NULL,
    id         uuid NOT NULL,
    PRIMARY KEY (experiment, day, id)
);
";

/// Version 5: guardrails, which are off in earlier experiments.
const GUARDRAILS: &str = "
ALTER TABLE experiment
    ADD COLUMN burn_in_reports bigint NOT NULL DEFAULT 0 CHECK (burn_in_reports >= 0),
    ADD COLUMN holdout_share double precision NOT NULL DEFAULT 0
        CHECK (holdout_share BETWEEN 0 AND 1);
";

/// Version 6: budgets belong to the content of a file, independent of its name. `content` and
/// `fingerprint` are codes by the key of the store. In earlier data sets, `content` is missing and
/// `fingerprint` is a plain hash until their files have been read again. Sessions count their
/// rounds, and answers are kept for callers who did not receive them.
const CONTENTS_AND_ROUNDS: &str = "
CREATE TABLE curator_key (
    one integer PRIMARY KEY CHECK (one = 1),
    key bytea NOT NULL CHECK (octet_length(key) = 32)
);
ALTER TABLE curator_data_set ADD COLUMN content bytea UNIQUE CHECK (octet_length(content) = 32);
CREATE OR REPLACE FUNCTION curator_spends_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.spent >= OLD.spent AND NEW.budget = OLD.budget
        AND (OLD.content IS NULL
            OR (NEW.content = OLD.content AND NEW.fingerprint = OLD.fingerprint)) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'what was spent is never given back';
END $$;
ALTER TABLE curator_session ADD COLUMN rounds bigint NOT NULL DEFAULT 0 CHECK (rounds >= 0);
CREATE TABLE curator_answer (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind     text NOT NULL CHECK (kind IN ('data-set', 'session')),
    name     text NOT NULL,
    caller   text NOT NULL,
    question bytea NOT NULL CHECK (octet_length(question) = 16),
    digest   bytea NOT NULL CHECK (octet_length(digest) = 32),
    answer   bytea NOT NULL,
    at       bigint NOT NULL,
    UNIQUE (kind, name, caller, question)
);
";

/// Version 7: the id of the store. It is made here, with a new store or with the upgrade of an old
/// one, and stays: dumps and standbys have it too.
const IDENTITY: &str = "
CREATE TABLE store (
    one integer PRIMARY KEY CHECK (one = 1),
    id  bytea NOT NULL CHECK (octet_length(id) = 16)
);
INSERT INTO store (one, id) VALUES (1, uuid_send(gen_random_uuid()));
CREATE FUNCTION store_keeps_its_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a store keeps its id';
END $$;
CREATE TRIGGER store_keeps_its_id BEFORE UPDATE OR DELETE OR TRUNCATE ON store
    FOR EACH STATEMENT EXECUTE FUNCTION store_keeps_its_id();
";

/// Creates the tables or brings them up to date, as `presence` allows, in one transaction: a crash
/// leaves the old version or the new one. Returns the store's id.
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
