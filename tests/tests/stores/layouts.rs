//! Layouts of a day's ids in PostgreSQL: one table, or several by hash of the id.

use anyhow::ensure;
use bandana_store::Verdict::{Accepted, Duplicate};
use bandana_store::{PostgresSettings, PostgresStore, Store};
use bandana_tests::postgres::{Postgres, query};

use super::places::{PARTITIONS, Place, commit, create, experiment, reports, settings, upload};
use super::replicas::Case;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_day_has_as_many_tables_as_were_set_when_it_got_them", split),
    ("replicas_with_different_layouts_count_once", mixed),
];

/// The number of tables with ids of each day.
const TABLES: &str = "SELECT name, count(*) FROM (
        SELECT substring(relname FROM '^upload_[0-9]+') AS name FROM pg_class
        WHERE relname ~ '^upload_[0-9]+' AND relkind = 'r'
    ) AS of_days GROUP BY name ORDER BY length(name), name";

fn open(url: &str, id_partitions: u32) -> anyhow::Result<PostgresStore> {
    Ok(PostgresStore::open(&PostgresSettings { id_partitions, ..settings(url)? })?)
}

fn tables(url: &str) -> anyhow::Result<Vec<(String, u32)>> {
    let pair = |row: Vec<String>| anyhow::Ok((row[0].clone(), row[1].parse()?));
    query(url, TABLES)?.into_iter().map(pair).collect()
}

fn day(number: u32, tables: u32) -> (String, u32) {
    (format!("upload_{number}"), tables)
}

fn split(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    let mut store = open(&url, 1)?;
    let only = experiment(&create(&mut store, "split")?)?;
    let of_day = |day| (0..40).map(|id| upload(&only, id, day, 1)).collect::<Result<Vec<_>, _>>();
    ensure!(commit(&mut store, &of_day(100)?, 100)? == [Accepted; 40]);
    let first = tables(&url)?;
    // More tables, for days that have none yet; then fewer.
    for (parts, today) in [(PARTITIONS, 103), (2, 106)] {
        drop(store);
        store = open(&url, parts)?;
        for day in today - 1..=today {
            ensure!(commit(&mut store, &of_day(day)?, today)? == [Accepted; 40]);
            ensure!(commit(&mut store, &of_day(day)?, today)? == [Duplicate; 40]);
        }
        let used = format!("SELECT DISTINCT tableoid FROM upload WHERE day = {today}");
        ensure!(query(&url, &used)?.len() == usize::try_from(parts)?, "the ids are not split");
        let place = Place::Postgres(url.clone());
        ensure!(place.verify()?.findings.is_empty(), "{:?}", place.verify()?.findings);
    }
    ensure!(first == [98, 99, 100, 101, 102].map(|number| day(number, 1)), "{first:?}");
    // Days that left the window are gone with all of their tables.
    let left = tables(&url)?;
    let expected = [(104, PARTITIONS), (105, PARTITIONS), (106, 2), (107, 2), (108, 2)];
    ensure!(left == expected.map(|(number, tables)| day(number, tables)), "{left:?}");
    ensure!(reports(&mut store)? == 5 * 40);
    Ok(())
}

fn mixed(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    let (mut one, mut two) = (open(&url, 1)?, open(&url, PARTITIONS)?);
    let only = experiment(&create(&mut one, "mixed")?)?;
    for today in [100, 103, 106] {
        let group = (0..20).map(|id| upload(&only, id, today, 1)).collect::<Result<Vec<_>, _>>()?;
        // Whichever comes first to a day decides how it is laid out.
        let (first, second): (&mut dyn Store, &mut dyn Store) =
            if today == 103 { (&mut two, &mut one) } else { (&mut one, &mut two) };
        ensure!(commit(first, &group, today)? == [Accepted; 20]);
        ensure!(commit(second, &group, today)? == [Duplicate; 20]);
    }
    ensure!(reports(&mut one)? == 60);
    Ok(())
}
