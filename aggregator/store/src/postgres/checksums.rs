//! Checksums of rows and tables, maintained and checked by the database itself.
//!
//! Each row has a hash of its table's name and its other columns. A trigger maintains the hash, and
//! checks the row before it is changed or deleted, so damage never gets a new checksum. `table_sum`
//! has the number of rows and the sum of their checksums for each table, which reveals missing
//! rows. Each connection adds to a row of its own, so that none waits for another. Readers use the
//! views `intact_...`, which check every row that they return.
//!
//! Ids are many and never change, so their checksums are generated columns. The checksums of upload
//! ids are summed for each day, and removed with it.
//!
//! A new table must be listed in [`SEALED`], and statements must read it through its view. New
//! columns of a table are covered without further steps. A test fails for a table in no list.

use std::sync::Arc;

use tokio_postgres::GenericClient;

use super::connection::{PgConnection, Session, Target, Waits};
use super::days::PARTITION;
use super::{PostgresSettings, schema};
use crate::{StoreError, Verification, damaged, postgres};

/// Tables whose checksums a trigger maintains.
const SEALED: [&str; 20] = [
    "audit",
    "curator_answer",
    "curator_data_set",
    "curator_debit",
    "curator_key",
    "curator_session",
    "curator_update",
    "experiment",
    "log_epoch",
    "signature",
    "specification",
    "store",
    "store_cell",
    "store_cell_generation",
    "store_cell_place",
    "store_cell_routing",
    "symbol_tally",
    "tally",
    "trusted_experiment",
    "watermark",
];

/// Tables of ids with the expressions of their generated checksums.
const IDS: [(&str, &str); 2] = [
    ("trusted_disclosure", "uuid_hash_extended(id, hashint8extended(experiment, day))"),
    (UPLOADS, "uuid_hash_extended(id, day)"),
];

/// The table of upload ids, which is partitioned by day.
const UPLOADS: &str = "upload";

/// Most damaged rows of a table that are named.
const NAMED_MAX: usize = 10;

/// A table, its columns but for the checksum, and those that tell one row from another.
#[derive(Debug)]
struct Table {
    name: &'static str,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    name: String,
    kind: String,
    is_nullable: bool,
    is_key: bool,
}

impl Column {
    /// The SQL expression that hashes the column's value in a row, chained to the hash `from`.
    fn hash(&self, row: &str, from: &str) -> Result<String, StoreError> {
        let Self { name, kind, is_nullable, .. } = self;
        let value = format!("{row}\"{name}\"");
        let hash = |from: &str| {
            Ok(match kind.as_str() {
                "integer" | "bigint" => format!("hashint8extended({value}, {from})"),
                "double precision" => format!("hashfloat8extended({value}, {from})"),
                "text" => format!("hashtextextended({value}, {from})"),
                "bytea" => format!("hashtextextended(encode({value}, 'hex'), {from})"),
                "uuid" => format!("uuid_hash_extended({value}, {from})"),
                "boolean" => format!("hashint8extended({value}::integer, {from})"),
                "bigint[]" => format!("hash_array_extended({value}, {from})"),
                _ => return Err(damaged(format!("column {name} is of type {kind}"))),
            })
        };
        if *is_nullable {
            Ok(format!("hashint8extended(COALESCE({}, -1), {from})", hash("0")?))
        } else {
            hash(from)
        }
    }
}

impl Table {
    /// The SQL expression of the checksum that a row should have.
    fn expected(&self, row: &str) -> Result<String, StoreError> {
        if let Some((_, hash)) = IDS.iter().find(|(name, _)| *name == self.name) {
            return Ok(format!("({hash} & 2147483647)::integer"));
        }
        let mut hash = format!("hashtextextended('{}', 0)", self.name);
        for column in &self.columns {
            hash = column.hash(row, &hash)?;
        }
        Ok(format!("({hash} & 2147483647)::integer"))
    }

    fn list(&self) -> String {
        let quoted = self.columns.iter().map(|column| format!("\"{}\"", column.name));
        quoted.collect::<Vec<_>>().join(", ")
    }

    /// The statement that adds the checksum column, if it is missing.
    fn column(&self) -> Result<String, StoreError> {
        let name = self.name;
        let kind = if IDS.iter().any(|(ids, _)| *ids == name) {
            format!("GENERATED ALWAYS AS ({}) STORED", self.expected("")?)
        } else {
            "NOT NULL DEFAULT 0".to_owned()
        };
        Ok(format!("ALTER TABLE {name} ADD COLUMN IF NOT EXISTS checksum integer {kind};"))
    }

    /// The statements that set the checksums of all present rows and recreate the triggers and
    /// views.
    fn seal(&self) -> Result<String, StoreError> {
        let (name, columns) = (self.name, self.list());
        let mut sql = format!(
            "DROP VIEW IF EXISTS intact_{name};
            DROP TRIGGER IF EXISTS sum_fresh ON {name};
            DROP TRIGGER IF EXISTS sum_changed ON {name};
            DROP TRIGGER IF EXISTS sum_gone ON {name};"
        );
        let is_generated = IDS.iter().any(|(ids, _)| *ids == name);
        if !is_generated {
            let (expected, new) = (self.expected("")?, self.expected("NEW.")?);
            let old = self.expected("OLD.")?;
            sql = format!(
                "{sql}DROP TRIGGER IF EXISTS seal_row ON {name};
                ALTER TABLE {name} DISABLE TRIGGER USER;
                UPDATE {name} SET checksum = {expected} WHERE checksum <> {expected};
                ALTER TABLE {name} ENABLE TRIGGER USER;
                CREATE OR REPLACE FUNCTION seal_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    IF TG_OP <> 'INSERT' AND OLD.checksum <> {old} THEN
                        PERFORM row_is_damaged('{name}');
                    END IF;
                    IF TG_OP = 'DELETE' THEN
                        RETURN OLD;
                    END IF;
                    NEW.checksum := {new};
                    RETURN NEW;
                END $$;
                CREATE TRIGGER seal_row BEFORE INSERT OR UPDATE OR DELETE ON {name}
                    FOR EACH ROW EXECUTE FUNCTION seal_{name}();
                CREATE TRIGGER sum_changed AFTER UPDATE ON {name}
                    REFERENCING OLD TABLE AS gone NEW TABLE AS fresh
                    FOR EACH STATEMENT EXECUTE FUNCTION sum_changed();"
            );
        }
        let sum = if name == UPLOADS { "sum_fresh_uploads" } else { "sum_fresh" };
        sql = format!(
            "{sql}CREATE TRIGGER sum_fresh AFTER INSERT ON {name} REFERENCING NEW TABLE AS fresh
                FOR EACH STATEMENT EXECUTE FUNCTION {sum}();
            CREATE VIEW intact_{name} AS SELECT {columns} FROM {name}
                WHERE CASE WHEN checksum = {} THEN true ELSE row_is_damaged('{name}') END;",
            self.expected("")?
        );
        if name == UPLOADS {
            sql = format!(
                "{sql}INSERT INTO table_sum (name, backend, rows, sum)
                SELECT '{PARTITION}' || day, 0, count(*), sum(checksum) FROM {name} GROUP BY day;"
            );
        } else {
            sql = format!(
                "{sql}CREATE TRIGGER sum_gone AFTER DELETE ON {name} REFERENCING OLD TABLE AS gone
                    FOR EACH STATEMENT EXECUTE FUNCTION sum_gone();
                INSERT INTO table_sum (name, backend, rows, sum)
                SELECT '{name}', 0, count(*), COALESCE(sum(checksum), 0) FROM {name};"
            );
        }
        Ok(sql)
    }

    /// Compares the rows with their checksums, and the table with its sum.
    async fn check(
        &self,
        client: &impl GenericClient,
        verification: &mut Verification,
    ) -> Result<(), StoreError> {
        let failed = postgres("reading");
        let (name, expected) = (self.name, self.expected("")?);
        let keys = self.columns.iter().filter(|column| column.is_key && column.kind != "bytea");
        let keys = keys.map(|column| format!("'{0} ' || \"{0}\"", column.name));
        let keys = keys.collect::<Vec<_>>().join(", ");
        let place =
            if keys.is_empty() { "''".to_owned() } else { format!("concat_ws(', ', {keys})") };
        let query = format!(
            "SELECT {place} FROM {name} WHERE checksum IS DISTINCT FROM {expected} LIMIT {}",
            NAMED_MAX + 1
        );
        let rows = client.query(&query, &[]).await.map_err(failed)?;
        for row in rows.iter().take(NAMED_MAX) {
            // Damage may have left bytes that are no text.
            let place: String = row.try_get(0).unwrap_or_default();
            verification.say(format!("the row of {name}, {place}, is not as it was written"));
        }
        if rows.len() > NAMED_MAX {
            verification.say(format!("further rows of {name} are not as they were written"));
        }
        let found = if name == UPLOADS {
            format!(
                "SELECT '{PARTITION}' || day AS name, count(*) AS rows, sum(checksum) AS sum
                FROM {name} GROUP BY day"
            )
        } else {
            format!(
                "SELECT '{name}' AS name, count(*) AS rows, COALESCE(sum(checksum), 0) AS sum
                FROM {name}"
            )
        };
        let written = if name == UPLOADS { "left(name, 7) = 'upload_'" } else { "name = $1" };
        let query = format!(
            "SELECT name, COALESCE(f.rows, 0), COALESCE(w.rows, 0)::bigint, COALESCE(f.sum, 0) = COALESCE(w.sum, 0)
            FROM ({found}) f FULL JOIN (SELECT name, sum(rows) AS rows, sum(sum) AS sum
                FROM table_sum WHERE {written} GROUP BY name) w USING (name)
            ORDER BY name"
        );
        let values: &[&(dyn tokio_postgres::types::ToSql + Sync)] =
            if name == UPLOADS { &[] } else { &[&name] };
        for row in client.query(&query, values).await.map_err(failed)? {
            let (found, written): (i64, i64) = (row.get(1), row.get(2));
            let of: &str = row.try_get(0).unwrap_or(name);
            verification.examined(found.unsigned_abs());
            if found != written {
                verification.say(format!("{of} has {found} rows, and {written} were written"));
            } else if !row.get::<_, bool>(3) {
                verification.say(format!("the rows of {of} are not those that were written"));
            }
        }
        Ok(())
    }
}

/// The tables with their columns.
async fn tables(client: &impl GenericClient) -> Result<Vec<Table>, StoreError> {
    let query = "SELECT a.attname::text, format_type(a.atttypid, NULL), NOT a.attnotnull,
            COALESCE(a.attnum = ANY (i.indkey), false)
        FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
        WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
            AND a.attname <> 'checksum'
        ORDER BY a.attnum";
    let mut tables = Vec::new();
    for name in SEALED.into_iter().chain(IDS.map(|(name, _)| name)) {
        let rows = client.query(query, &[&name]).await.map_err(postgres("reading"))?;
        let column = |row: &tokio_postgres::Row| Column {
            name: row.get(0),
            kind: row.get(1),
            is_nullable: row.get(2),
            is_key: row.get(3),
        };
        tables.push(Table { name, columns: rows.iter().map(column).collect() });
    }
    Ok(tables)
}

/// Drops the objects that depend on the tables, before a step changes them.
pub(super) async fn unseal(client: &impl GenericClient) -> Result<(), StoreError> {
    let views = SEALED.into_iter().chain(IDS.map(|(name, _)| name));
    let drop = views.map(|name| format!("DROP VIEW IF EXISTS intact_{name};"));
    client
        .batch_execute(&drop.collect::<Vec<_>>().concat())
        .await
        .map_err(postgres("checking its schema"))
}

/// Accepts the rows of a database as they are, after a repair by hand: computes their checksums
/// anew. Replicas wait meanwhile.
///
/// Blocks; must not be called from asynchronous code.
///
/// # Errors
/// [`StoreError`]; nothing was changed.
pub fn seal_database(settings: &PostgresSettings) -> Result<(), StoreError> {
    let mut link = PgConnection::new(Arc::new(Target::new(settings)?), Waits::READING)?;
    link.run_for_long(async |session| {
        schema::version_of(session).await?;
        let failed = postgres("computing checksums");
        let transaction = session.client.transaction().await.map_err(failed)?;
        let patiently = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;";
        transaction.batch_execute(patiently).await.map_err(failed)?;
        seal(&transaction).await?;
        transaction.commit().await.map_err(failed)
    })
}

/// Accepts all rows as they are, and maintains checksums from here on.
pub(super) async fn seal(client: &impl GenericClient) -> Result<(), StoreError> {
    let failed = postgres("computing checksums");
    client.batch_execute("DELETE FROM table_sum").await.map_err(failed)?;
    for table in tables(client).await? {
        let sql = table.column()? + &table.seal()?;
        client.batch_execute(&sql).await.map_err(failed)?;
    }
    Ok(())
}

/// Compares all rows with their checksums and sums; ids only on request.
pub(super) async fn check(
    client: &impl GenericClient,
    with_ids: bool,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("rows, against their checksums");
    for table in tables(client).await? {
        if with_ids || SEALED.contains(&table.name) {
            table.check(client, verification).await?;
        }
    }
    Ok(())
}

/// Merges the sums of closed connections into one row for each table.
pub(super) async fn fold(client: &impl GenericClient) -> Result<(), StoreError> {
    let fold = "WITH gone AS (
            DELETE FROM table_sum WHERE (name, backend) IN (
                SELECT name, backend FROM table_sum t WHERE backend <> 0
                    AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = t.backend)
                FOR UPDATE OF t SKIP LOCKED)
            RETURNING name, rows, sum
        )
        INSERT INTO table_sum AS t (name, backend, rows, sum)
        SELECT name, 0, sum(rows)::bigint, sum(sum)::bigint FROM gone GROUP BY name ORDER BY name
        ON CONFLICT (name, backend)
        DO UPDATE SET rows = t.rows + excluded.rows, sum = t.sum + excluded.sum";
    client.execute(fold, &[]).await.map(drop).map_err(postgres("folding sums"))
}

/// Refuses a database with a damaged row. Ids are left to `verify`.
pub(super) async fn check_at_start(session: &mut Session) -> Result<(), StoreError> {
    let failed = postgres("checking its rows");
    let builder = session.client.build_transaction();
    let builder = builder.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let client = builder.read_only(true).start().await.map_err(failed)?;
    client.batch_execute("SET LOCAL statement_timeout = 0").await.map_err(failed)?;
    let mut verification = Verification::new(0);
    check(&client, false, &mut verification).await?;
    client.rollback().await.map_err(failed)?;
    let more = verification.findings.len().saturating_sub(1);
    match verification.findings.first() {
        None => Ok(()),
        Some(first) if more == 0 => Err(damaged(first.to_string())),
        Some(first) => {
            Err(damaged(format!("{first}, and {more} more; `bandana verify` names them")))
        }
    }
}
