//! Several replicas on one database.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::identity::Day;
use bandana_store::Verdict::{Accepted, Duplicate};
use bandana_store::{OpenError, PostgresStore, Store, StoreError, ValidUpload, Verdict};
use bandana_tests::postgres::{Postgres, query};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio_postgres::{Client, NoTls};

use super::places::{Place, commit, create, experiment, reports, settings, upload};
use super::proxy::through;

/// A test that needs a database server.
pub(crate) type Case = fn(&Postgres) -> anyhow::Result<()>;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("what_two_hear_at_the_same_instant_counts_once", at_the_same_instant),
    ("who_hears_what_another_is_committing_waits_for_it", while_committing),
    ("a_commit_sees_the_window_that_it_has_waited_for", window_moved_meanwhile),
    ("the_window_waits_for_commits_and_they_do_not_wait_for_long", commit_meanwhile),
    ("expired_days_are_dropped_and_their_tallies_kept_as_one", folded),
    ("a_clock_that_is_ahead_does_not_end_the_window_for_others", clock_ahead),
    ("a_day_without_a_table_gets_one_with_its_first_upload", without_table),
    ("a_host_that_dies_while_it_moves_the_window_holds_up_nobody_for_long", dies_moving),
    ("replicas_count_under_numbers_of_their_own", numbers),
    ("replicas_that_start_together_make_one_schema", schema),
];

/// Waits for a condition for some seconds, with tolerance for a slow machine.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    for _ in 0..2000 {
        if is_so() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("not within 20 s: {what}")
}

/// A connection on which a test holds transactions open.
pub(crate) struct Raw {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Raw {
    pub(crate) fn connect(place: &Place) -> anyhow::Result<Self> {
        let Place::Postgres(url) = place else { anyhow::bail!("not a database") };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        let (client, connection) = runtime.block_on(tokio_postgres::connect(url, NoTls))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client })
    }

    pub(crate) fn run(&self, sql: &str) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.client.batch_execute(sql))?)
    }

    /// Waits until a replica waits for a lock.
    fn until_somebody_waits(&self) -> anyhow::Result<()> {
        let query = "SELECT count(*) FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND datname = current_database()";
        for _ in 0..2000 {
            let row = self.runtime.block_on(self.client.query_one(query, &[]))?;
            if row.get::<_, i64>(0) > 0 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        anyhow::bail!("nobody waits")
    }
}

fn at_the_same_instant(server: &Postgres) -> anyhow::Result<()> {
    const REPLICAS: usize = 4;
    const ROUNDS: u64 = 25;
    let place = Place::postgres(server)?;
    let only = experiment(&create(&mut *place.open()?, "instant")?)?;
    let barrier = Barrier::new(REPLICAS);
    // All have the same 40 uploads, in another order and in groups of another size.
    let play = |store: &mut dyn Store, random: &mut ChaCha8Rng, round: u64| {
        let mut told = Vec::new();
        let mut ids: Vec<u128> = (0..40).map(|n| u128::from(round * 40 + n)).collect();
        ids.shuffle(random);
        while !ids.is_empty() {
            let rest = ids.split_off(random.random_range(1..=ids.len()));
            let group: Vec<ValidUpload> =
                ids.iter().map(|id| upload(&only, *id, 100, 1)).collect::<Result<_, _>>()?;
            let verdicts = commit(store, &group, 100)?;
            told.extend(ids.into_iter().zip(verdicts));
            ids = rest;
        }
        anyhow::Ok(told)
    };
    let replica = |(store, number): (&mut Box<dyn Store>, u64)| {
        let mut random = ChaCha8Rng::seed_from_u64(number);
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            barrier.wait();
            // A failed replica still reaches the barrier: otherwise the others would wait for ever.
            rounds.push(play(&mut **store, &mut random, round));
        }
        rounds
    };
    let mut stores: Vec<_> = (0..REPLICAS).map(|_| place.open()).collect::<Result<_, _>>()?;
    let told: Vec<_> = thread::scope(|scope| {
        let replicas: Vec<_> =
            stores.iter_mut().zip(0..).map(|it| scope.spawn(move || replica(it))).collect();
        replicas.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut accepted: BTreeMap<u128, usize> = BTreeMap::new();
    for told in told {
        let rounds = told.map_err(|_| anyhow::anyhow!("a replica panicked"))?;
        let rounds: Vec<Vec<_>> = rounds.into_iter().collect::<Result<_, _>>()?;
        for (id, verdict) in rounds.into_iter().flatten() {
            ensure!(matches!(verdict, Accepted | Duplicate), "{verdict:?}");
            *accepted.entry(id).or_default() += usize::from(verdict == Accepted);
        }
    }
    ensure!(accepted.len() as u64 == ROUNDS * 40);
    ensure!(accepted.values().all(|times| *times == 1), "{accepted:?}");
    ensure!(reports(&mut *place.open()?)? == ROUNDS * 40);
    Ok(())
}

fn while_committing(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "committing")?)?;
    commit(&mut *store, &[upload(&only, 1000, 100, 1)?], 100)?;
    let other = Raw::connect(&place)?;
    for (id, end, expected) in [(1, "COMMIT", Duplicate), (2, "ROLLBACK", Accepted)] {
        other.run(&format!(
            "BEGIN; INSERT INTO upload VALUES (100, '00000000-0000-0000-0000-{id:012x}')"
        ))?;
        let group = [upload(&only, id, 100, 1)?, upload(&only, id + 10, 100, 1)?];
        let verdicts = thread::scope(|scope| {
            let store = &mut store;
            let waiting = scope.spawn(move || commit(&mut **store, &group, 100));
            other.until_somebody_waits()?;
            ensure!(!waiting.is_finished());
            other.run(end)?;
            waiting.join().map_err(|_| anyhow::anyhow!("the replica panicked"))?
        })?;
        ensure!(verdicts == [expected, Accepted], "{end}: {verdicts:?}");
    }
    ensure!(reports(&mut *store)? == 4);
    Ok(())
}

fn window_moved_meanwhile(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "moved")?)?;
    // Often enough for the database to keep its plan of the statement.
    for id in 0..10 {
        commit(&mut *store, &[upload(&only, id, 98, 1)?], 100)?;
    }
    let other = Raw::connect(&place)?;
    other.run(
        "BEGIN; LOCK TABLE upload IN ACCESS EXCLUSIVE MODE;
         UPDATE watermark SET oldest_day = 99; DROP TABLE upload_98",
    )?;
    let verdicts = thread::scope(|scope| {
        let store = &mut store;
        // One that was counted, and one that was not.
        let group = [upload(&only, 1, 98, 1)?, upload(&only, 77, 98, 1)?];
        let waiting = scope.spawn(move || commit(&mut **store, &group, 100));
        other.until_somebody_waits()?;
        other.run("COMMIT")?;
        waiting.join().map_err(|_| anyhow::anyhow!("the replica panicked"))?
    })?;
    ensure!(verdicts == [Verdict::Expired { oldest: Day::new(99) }; 2], "{verdicts:?}");
    ensure!(reports(&mut *store)? == 10);
    Ok(())
}

fn commit_meanwhile(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "meanwhile")?)?;
    commit(&mut *store, &[upload(&only, 1, 98, 1)?], 100)?;
    let other = Raw::connect(&place)?;
    // A long transaction keeps the window in place, and uploads are accepted as before.
    other.run("BEGIN; INSERT INTO upload VALUES (98, '00000000-0000-0000-0000-000000000009')")?;
    let group = [upload(&only, 1, 98, 1)?, upload(&only, 2, 98, 1)?, upload(&only, 3, 101, 1)?];
    let verdicts = commit(&mut *store, &group, 101)?;
    ensure!(verdicts == [Duplicate, Accepted, Accepted], "{verdicts:?}");
    other.run("COMMIT")?;
    let verdicts = commit(&mut *place.open()?, &[upload(&only, 4, 98, 1)?], 101)?;
    ensure!(verdicts == [Verdict::Expired { oldest: Day::new(99) }], "{verdicts:?}");
    // The first replica learns of it with its next commit.
    ensure!(commit(&mut *store, &[upload(&only, 1, 98, 1)?], 101)? == verdicts);
    ensure!(store.window(Day::new(0)).oldest == Day::new(99));
    Ok(())
}

fn folded(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let (mut one, mut two) = (place.open()?, place.open()?);
    let only = experiment(&create(&mut *one, "folded")?)?;
    commit(&mut *one, &[upload(&only, 1, 100, 5)?], 100)?;
    commit(&mut *two, &[upload(&only, 2, 100, 7)?, upload(&only, 3, 101, 11)?], 101)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let rows = "SELECT day, replica, reports FROM tally ORDER BY day, replica";
    ensure!(query(url, rows)? == [["100", "1", "5"], ["100", "2", "7"], ["101", "2", "11"]]);
    commit(&mut *one, &[upload(&only, 4, 103, 13)?], 103)?;
    ensure!(query(url, rows)? == [["100", "0", "12"], ["101", "2", "11"], ["103", "1", "13"]]);
    let days = "SELECT DISTINCT day FROM upload ORDER BY day";
    ensure!(query(url, days)? == [["101"], ["103"]]);
    let partitions = "SELECT relname FROM pg_class WHERE relname ~ '^upload_[0-9]+$' ORDER BY 1";
    let left = query(url, partitions)?;
    ensure!(left.first().is_some_and(|first| first[0] == "upload_101"), "{left:?}");
    ensure!(reports(&mut *two)? == 36);
    Ok(())
}

fn clock_ahead(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let (mut right, mut ahead) = (place.open()?, place.open()?);
    let only = experiment(&create(&mut *right, "ahead")?)?;
    let today: u32 = query(url, "SELECT floor(extract(epoch FROM now()) / 86400)::integer")?
        .pop()
        .and_then(|row| row.first()?.parse().ok())
        .context("the database has no day")?;
    // A replica accepts no day far from the database's, and expires none; whether or not it is the
    // first to commit.
    for id in [1, 2] {
        let group = [upload(&only, id, today, 1)?, upload(&only, 9, today + 300, 1)?];
        let verdicts = commit(&mut *ahead, &group, today + 300)?;
        ensure!(verdicts[0] == Accepted, "{verdicts:?}");
        ensure!(matches!(verdicts[1], Verdict::FutureDay { .. }), "{verdicts:?}");
        let verdicts = commit(&mut *right, &[upload(&only, id, today - 2, 1)?], today)?;
        ensure!(verdicts == [Accepted], "{verdicts:?}");
    }
    Ok(())
}

fn without_table(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "table")?)?;
    commit(&mut *store, &[upload(&only, 1, 100, 1)?], 100)?;
    // No replica has run for days, and a long read keeps the window in place.
    query(url, "UPDATE watermark SET oldest_day = 90")?;
    let other = Raw::connect(&place)?;
    other.run("BEGIN; SELECT FROM upload")?;
    let group = [
        upload(&only, 1, 100, 1)?,
        upload(&only, 2, 95, 1)?,
        upload(&only, 3, 101, 1)?,
        upload(&only, 4, 89, 1)?,
    ];
    let verdicts = commit(&mut *place.open()?, &group, 101)?;
    let expired = Verdict::Expired { oldest: Day::new(90) };
    ensure!(verdicts == [Duplicate, Accepted, Accepted, expired], "{verdicts:?}");
    other.run("COMMIT")?;
    ensure!(reports(&mut *store)? == 3);
    Ok(())
}

fn dies_moving(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "dies")?)?;
    commit(&mut *store, &[upload(&only, 1, 98, 1)?], 100)?;
    // While its host is dead, no message between the replica and the database arrives.
    let is_dead = Arc::new((Mutex::new(false), Condvar::new()));
    let of_this = Arc::clone(&is_dead);
    let rule = Arc::new(move || {
        let (is_dead, changed) = &*of_this;
        let is_dead = is_dead.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(is_dead, |is_dead| *is_dead));
        true
    });
    let set_dead = |dead: bool| {
        *is_dead.0.lock().unwrap_or_else(PoisonError::into_inner) = dead;
        is_dead.1.notify_all();
    };
    let mut dying = PostgresStore::open(&through(server, &place, rule)?)?;
    let other = Raw::connect(&place)?;
    other.run("BEGIN; SELECT FROM watermark FOR UPDATE")?;
    let (verdicts, of_dying) = thread::scope(|scope| {
        let second = upload(&only, 2, 101, 1)?;
        let dying = scope.spawn(|| commit(&mut dying, &[second], 101));
        // The replica has locked the table, and waits for the watermark.
        let waits = other.until_somebody_waits();
        set_dead(true);
        other.run("ROLLBACK")?;
        let verdicts = commit(&mut *store, &[upload(&only, 3, 100, 1)?], 100);
        set_dead(false);
        let of_dying = dying.join().map_err(|_| anyhow::anyhow!("the replica panicked"))?;
        waits?;
        anyhow::Ok((verdicts?, of_dying?))
    })?;
    ensure!(verdicts == [Accepted] && of_dying == [Accepted], "{verdicts:?} {of_dying:?}");
    Ok(())
}

fn numbers(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let (mut one, mut two) = (place.open()?, place.open()?);
    let only = experiment(&create(&mut *one, "numbers")?)?;
    commit(&mut *one, &[upload(&only, 1, 100, 1)?], 100)?;
    commit(&mut *two, &[upload(&only, 2, 100, 1)?], 100)?;
    drop(one);
    // The database detects by itself that the first replica is gone.
    let held = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND d.datname = current_database()";
    until("one number is free", || query(url, held).is_ok_and(|rows| rows == [["1"]]))?;
    let mut three = place.open()?;
    commit(&mut *three, &[upload(&only, 3, 100, 1)?], 100)?;
    let rows = query(url, "SELECT replica, reports FROM tally ORDER BY replica")?;
    ensure!(rows == [["1", "2"], ["2", "1"]], "{rows:?}");
    Ok(())
}

fn schema(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let opened: Vec<_> = thread::scope(|scope| {
        let open = || PostgresStore::open(&settings(url)?).map_err(anyhow::Error::from);
        let starting: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        starting.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for opened in opened {
        opened.map_err(|_| anyhow::anyhow!("a start panicked"))??;
    }
    let mut open = PostgresStore::open(&settings(url)?)?;
    query(url, "UPDATE bandana_schema SET version = version + 1000")?;
    let newer = PostgresStore::open(&settings(url)?);
    let is_newer = matches!(
        newer,
        Err(StoreError::Open(OpenError::NewerSchema { found, known })) if found == known + 1000
    );
    ensure!(is_newer, "{newer:?}");
    // A replica that has lost its connection does not continue either.
    let only = experiment(&create(&mut open, "late").err().map_or_else(
        || anyhow::bail!("an unknown schema is changed"),
        |error| {
            ensure!(error.to_string().contains("schema version 10"), "{error}");
            query(url, "UPDATE bandana_schema SET version = version - 1000")?;
            create(&mut open, "late")
        },
    )?)?;
    ensure!(commit(&mut open, &[upload(&only, 1, 100, 1)?], 100)? == [Accepted]);
    Ok(())
}
