//! Corrupted values in PostgreSQL: each is detected.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use bandana_store::{
    CuratorChange, DamageError, PostgresStore, Store as _, StoreError, seal_database,
    verify_database,
};
use bandana_tests::postgres::{Postgres, query};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::flips::{MORE, TODAY, fill};
use super::places::{Place, commit, experiment, settings, upload};
use super::queries::debit;
use super::replicas::Case;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("every_table_has_checksums", covered),
    ("a_value_that_is_another_and_a_row_that_is_gone_are_noticed", values),
    ("a_damaged_row_is_not_changed", kept),
    ("a_database_without_checksums_gets_them", upgraded),
    ("a_bit_of_the_databases_files_is_noticed_or_means_nothing", of_files),
];

/// Tables without checksums. The version is compared with the program's, leases expire by
/// themselves, sums are compared with their parts, and handed-over batches have internal checksums
/// and count by the names in them.
const WITHOUT: [&str; 5] =
    ["bandana_schema", "lease", "table_sum", "trusted_handover", "trusted_lease"];

/// A database with rows in every table.
fn filled(server: &Postgres) -> anyhow::Result<String> {
    let place = Place::postgres(server)?;
    fill(&mut *place.open()?)?;
    ensure!(place.verify()?.is_sound(), "{:?}", place.verify()?.findings);
    match place {
        Place::Postgres(url) => {
            // As the home of a store cell has.
            let of_cell = "INSERT INTO store_cell VALUES (1, decode(repeat('5b', 16), 'hex'));
                INSERT INTO store_cell_generation VALUES (100, '{1}')";
            query(&url, of_cell)?;
            Ok(url)
        }
        Place::Embedded(_) => anyhow::bail!("not a database"),
    }
}

fn findings(url: &str) -> anyhow::Result<Vec<String>> {
    let verification = verify_database(&settings(url)?)?;
    Ok(verification.findings.iter().map(ToString::to_string).collect())
}

/// The tables, except those of single days of uploads.
fn tables(url: &str) -> anyhow::Result<Vec<String>> {
    let tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
        AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY relname";
    let names = query(url, tables)?.into_iter().flatten();
    Ok(names.filter(|name| !WITHOUT.contains(&name.as_str())).collect())
}

/// Columns that a program writes, with their types.
fn columns(url: &str, table: &str) -> anyhow::Result<Vec<(String, String)>> {
    let columns = format!(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
        WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped
            AND attgenerated = '' ORDER BY attnum"
    );
    let pair =
        |row: Vec<String>| <[String; 2]>::try_from(row).ok().map(|[name, kind]| (name, kind));
    Ok(query(url, &columns)?.into_iter().filter_map(pair).collect())
}

fn covered(server: &Postgres) -> anyhow::Result<()> {
    let url = filled(server)?;
    for table in tables(&url)? {
        let row = format!("SELECT * FROM {table} LIMIT 1");
        ensure!(
            !query(&url, &row)?.is_empty()
                || ["curator_answer", "store_cell_place"].contains(&&table[..]),
            "{table} is empty"
        );
        let sums = format!(
            "SELECT count(*) FROM pg_attribute WHERE attrelid = '{table}'::regclass
                AND attname = 'checksum' AND to_regclass('intact_{table}') IS NOT NULL"
        );
        ensure!(query(&url, &sums)? == [["1"]], "{table} has no checksums: list it in `SEALED`");
    }
    Ok(())
}

/// SQL that flips a bit of a value; applied twice, it restores the value.
fn flipped(column: &str, kind: &str) -> anyhow::Result<String> {
    Ok(match kind {
        "integer" | "bigint" => format!("{column} # 4"),
        "text" => format!("chr(ascii({column}) # 1) || substr({column}, 2)"),
        "bytea" => format!("set_bit({column}, 9, 1 - get_bit({column}, 9))"),
        "double precision" => format!("0.75 - {column}"),
        "uuid" => format!(
            "(substr({column}::text, 1, 35)
                || to_hex(('x' || right({column}::text, 1))::bit(4)::integer # 1))::uuid"
        ),
        "bigint[]" => format!("array_prepend({column}[1] # 1, {column}[2:])"),
        _ => anyhow::bail!("{column} is a {kind}: say how a bit of it is flipped"),
    })
}

fn values(server: &Postgres) -> anyhow::Result<()> {
    let url = filled(server)?;
    let (mut found, mut refused) = (0, 0);
    for table in tables(&url)? {
        for (column, kind) in columns(&url, &table)? {
            let (value, day) = (flipped(&column, &kind)?, table == "upload" && column == "day");
            // Bypasses triggers and foreign keys.
            let flip = format!(
                "SET session_replication_role = replica;
                UPDATE {table} SET {column} = {value} WHERE ctid = (
                    SELECT ctid FROM {table} WHERE {column} IS NOT NULL
                    ORDER BY ctid LIMIT 1)
                RETURNING 1"
            );
            // Skips values that the database refuses, and days, which determine a row's partition.
            let is_flipped = !day && query(&url, &flip).is_ok_and(|rows| !rows.is_empty());
            if !is_flipped {
                refused += 1;
                continue;
            }
            let told = findings(&url)?;
            ensure!(told.iter().any(|told| told.contains(&table)), "{table}.{column}: {told:?}");
            found += 1;
            let back = "UPDATE of the newest row";
            let newest = format!(
                "SET session_replication_role = replica;
                UPDATE {table} SET {column} = {value}
                WHERE xmin = (SELECT xmin FROM {table} ORDER BY age(xmin) LIMIT 1)"
            );
            query(&url, &newest).context(back)?;
            let told = findings(&url)?;
            ensure!(told.is_empty(), "{table}.{column} is as before: {told:?}");
        }
    }
    ensure!(found > 60, "{found} values were flipped, {refused} were not");
    for table in tables(&url)? {
        let gone = format!(
            "SET session_replication_role = replica;
            DELETE FROM {table} WHERE ctid = (SELECT ctid FROM {table} LIMIT 1) RETURNING 1"
        );
        if query(&url, &gone)?.is_empty() {
            continue;
        }
        let told = findings(&url)?;
        let is_told = |told: &String| told.starts_with(&table) && told.ends_with("were written");
        ensure!(told.iter().any(is_told), "{table}: {told:?}");
    }
    let refused = PostgresStore::open(&settings(&url)?);
    ensure!(
        matches!(refused, Err(StoreError::Damage(DamageError::Database { .. }))),
        "{refused:?}"
    );
    Ok(())
}

fn kept(server: &Postgres) -> anyhow::Result<()> {
    let url = filled(server)?;
    let damages = [
        ("tally", "ones = 0"),
        ("curator_data_set", "spent = 1"),
        ("experiment", "state = 'stopped'"),
    ];
    for (table, change) in damages {
        let mut store = PostgresStore::open(&settings(&url)?)?;
        let first = experiment(store.load()?.first().context("no experiment")?)?;
        let damage = format!("SET session_replication_role = replica; UPDATE {table} SET {change}");
        query(&url, &damage)?;
        let outcome = match table {
            "tally" | "experiment" => {
                commit(&mut store, &[upload(&first, 9_000, TODAY, 1)?], TODAY).map(drop)
            }
            _ => store
                .apply_query_change(&CuratorChange::Debit(debit("people", 7)?, None))
                .map_err(Into::into),
        };
        let error = outcome.err().context("a damaged row was changed")?;
        let damaged = error.downcast_ref::<StoreError>();
        ensure!(
            matches!(damaged, Some(StoreError::Damage(DamageError::Database { .. }))),
            "{table}: {error:?}"
        );
        ensure!(findings(&url)?.iter().any(|told| told.contains(table)));
        drop(store);
        let refused = PostgresStore::open(&settings(&url)?);
        ensure!(
            matches!(refused, Err(StoreError::Damage(DamageError::Database { .. }))),
            "{refused:?}"
        );
        // As after a manual repair.
        seal_database(&settings(&url)?)?;
    }
    let told = findings(&url)?;
    let of_budgets = told.iter().filter(|told| told.contains("its debits add up to"));
    ensure!(told.len() == 2 && of_budgets.count() == 2, "{told:?}");
    Ok(())
}

fn upgraded(server: &Postgres) -> anyhow::Result<()> {
    let url = filled(server)?;
    let expected = query(&url, "SELECT sum(checksum), count(*) FROM upload")?;
    for table in tables(&url)? {
        let names = ["seal_row", "sum_fresh", "sum_changed", "sum_gone"];
        let triggers = names.map(|name| format!("DROP TRIGGER IF EXISTS {name} ON {table};"));
        query(
            &url,
            &format!(
                "DROP VIEW intact_{table}; {} DROP FUNCTION IF EXISTS seal_{table};
                ALTER TABLE {table} DROP COLUMN checksum",
                triggers.concat()
            ),
        )?;
    }
    query(
        &url,
        "DROP TABLE table_sum; DROP FUNCTION row_is_damaged; DROP FUNCTION add_to_table_sum;
        DROP FUNCTION sum_fresh; DROP FUNCTION sum_changed; DROP FUNCTION sum_gone;
        DROP FUNCTION sum_fresh_uploads;
        DROP TABLE trusted_lease; DROP TABLE trusted_handover; DROP TABLE log_epoch;
        DROP TABLE store_cell; DROP TABLE store_cell_generation; DROP TABLE store_cell_routing;
        DROP TABLE store_cell_place;
        ALTER TABLE experiment DROP COLUMN record;
        UPDATE bandana_schema SET version = 7",
    )?;
    let mut store = PostgresStore::open(&settings(&url)?)?;
    ensure!(findings(&url)?.is_empty(), "{:?}", findings(&url)?);
    ensure!(query(&url, "SELECT sum(checksum), count(*) FROM upload")? == expected);
    let first = experiment(store.load()?.first().context("no experiment")?)?;
    commit(&mut store, &[upload(&first, 9_000, TODAY, 1)?], TODAY)?;
    ensure!(findings(&url)?.is_empty(), "{:?}", findings(&url)?);
    Ok(())
}

/// All rows of all tables, as the database returns them.
fn told(url: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for table in tables(url)? {
        all.extend(query(url, &format!("SELECT t::text FROM {table} t ORDER BY 1"))?);
    }
    Ok(all)
}

/// The files of tables, without their indexes, while no server runs. Each bit takes seconds.
#[expect(clippy::print_stderr, reason = "the figures are what a long run is made for")]
fn of_files(_: &Postgres) -> anyhow::Result<()> {
    let Some(flips) = std::env::var_os(MORE) else { return Ok(()) };
    let flips: usize = flips.to_string_lossy().parse::<usize>()? / 10;
    let server = Postgres::start()?;
    let url = filled(&server)?;
    query(&url, "VACUUM FREEZE")?;
    let expected = told(&url)?;
    let files = "SELECT pg_relation_filepath(oid) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
            AND relname NOT IN ('bandana_schema', 'lease') AND pg_relation_size(oid) > 0
        ORDER BY relname";
    let files: Vec<PathBuf> =
        query(&url, files)?.concat().iter().map(|path| server.data().join(path)).collect();
    query(&url, "CHECKPOINT")?;
    server.crash()?;
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let (mut found, mut same) = (0, 0);
    for _ in 0..flips {
        let file = &files[random.random_range(0..files.len())];
        let intact = fs::read(file)?;
        let bit = random.random_range(0..intact.len() * 8);
        let mut bytes = intact.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(file, &bytes)?;
        server.resume()?;
        let verified = findings(&url);
        if verified.is_err() || verified.is_ok_and(|told| !told.is_empty()) {
            found += 1;
        } else {
            let is_same = told(&url).is_ok_and(|told| told == expected);
            ensure!(is_same, "{} {}: missed", file.display(), bit / 8);
            same += 1;
        }
        server.crash()?;
        fs::write(file, intact)?;
    }
    eprintln!("{found} bits of files were noticed, {same} mean nothing");
    Ok(())
}
