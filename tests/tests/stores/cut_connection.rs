//! Connections to the database that break at every message, in either direction.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use bandana_shared::identity::Day;
use bandana_store::Verdict::{Accepted, Duplicate, Paused};
use bandana_store::{AuditAction, ExperimentState, PostgresStore, Store as _};
use bandana_tests::postgres::{Postgres, query};

use super::places::{Place, commit, create, entry, experiment, reports, upload};
use super::proxy::through;
use super::replicas::Case;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_connection_cut_at_any_message_loses_and_doubles_nothing", cut_anywhere),
    ("what_was_told_of_a_group_is_told_although_the_rest_of_it_fails", cut_between),
    ("the_disk_is_waited_for_whatever_the_role_says", durable),
];

/// Number of messages to pass when none is to be cut.
const UNBROKEN: usize = usize::MAX / 2;

const FIRST_DAY: u32 = 100;

/// Number of messages between two cuts, where there are many.
const STRIDE: usize = 3;

/// Counts a message. `false`: its connection breaks, and no other one does.
fn passes(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
        Some(if left == 0 { UNBROKEN } else { left - 1 })
    }) != Ok(0)
}

fn cut_anywhere(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let left = Arc::new(AtomicUsize::new(UNBROKEN));
    let counted = Arc::clone(&left);
    let through = through(server, &place, Arc::new(move || passes(&counted)))?;
    let mut direct = place.open()?;
    let only = experiment(&create(&mut *direct, "cut")?)?;
    let mut expected = 0;
    let mut submit = |messages: usize, id: u128, today: u32| -> anyhow::Result<_> {
        let mut store = PostgresStore::open(&through)?;
        if today == FIRST_DAY {
            // Everything is prepared, and one round trip remains.
            store.commit(&[upload(&only, id | 8, today, 1)?], Day::new(today))?;
            expected += 1;
        }
        let group = [upload(&only, id | 1, today, 1)?, upload(&only, id | 2, today - 1, 1)?];
        left.store(messages, Ordering::SeqCst);
        let verdicts = store.commit(&group, Day::new(today))?.verdicts;
        let was_cut = left.swap(UNBROKEN, Ordering::SeqCst) > messages;
        // The first attempt counted all or nothing.
        ensure!(verdicts == [Accepted; 2] || verdicts == [Duplicate; 2], "{verdicts:?}");
        expected += 2;
        let counted = reports(&mut *direct)?;
        ensure!(counted == expected, "cut after {messages} messages: {counted}, not {expected}");
        Ok((was_cut, verdicts[0]))
    };
    let mut told = Vec::new();
    for messages in 0..4 {
        told.push(submit(messages, (messages as u128) << 8, FIRST_DAY)?);
    }
    // The statement is lost, its answer is lost, or nothing is lost.
    let expected = [(true, Accepted), (true, Duplicate), (false, Accepted), (false, Accepted)];
    ensure!(told == expected, "{told:?}");
    // Also while the window is moved, and partitions are dropped and created.
    let mut cuts = 0;
    for number in 0..12 {
        let today = FIRST_DAY + 1 + u32::try_from(number)?;
        cuts += usize::from(submit(number * STRIDE, (number as u128) << 32, today)?.0);
    }
    ensure!(cuts > 4, "{cuts} cuts");
    Ok(())
}

fn cut_between(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let left = Arc::new(AtomicUsize::new(UNBROKEN));
    let counted = Arc::clone(&left);
    let through = through(server, &place, Arc::new(move || passes(&counted)))?;
    let mut store = PostgresStore::open(&through)?;
    let running = experiment(&create(&mut store, "running")?)?;
    let record = create(&mut store, "paused")?;
    let expected = record.expected().context("no revision")?;
    let pause = entry("paused", AuditAction::Pause)?;
    store.set_state(expected, ExperimentState::Paused, &pause)?;
    let paused = experiment(&record)?;
    store.commit(&[upload(&running, 8, FIRST_DAY, 1)?], Day::new(FIRST_DAY))?;
    // Of two uploads with one name, the second waits for the outcome of the first.
    let group = [
        upload(&paused, 1, FIRST_DAY, 1)?,
        upload(&running, 1, FIRST_DAY, 1)?,
        upload(&running, 2, FIRST_DAY, 1)?,
    ];
    // The first statement and its answer pass.
    left.store(2, Ordering::SeqCst);
    let verdicts = store.commit(&group, Day::new(FIRST_DAY))?.verdicts;
    ensure!(left.swap(UNBROKEN, Ordering::SeqCst) > 2, "it was not cut");
    ensure!(verdicts == [Paused, Accepted, Accepted], "{verdicts:?}");
    ensure!(reports(&mut *place.open()?)? == 3);
    Ok(())
}

fn durable(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let name = url.split(['/', '?']).nth(3).context("no name")?;
    query(url, &format!("ALTER DATABASE {name} SET synchronous_commit = off"))?;
    query(url, &format!("ALTER DATABASE {name} SET default_transaction_isolation = serializable"))?;
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "durable")?)?;
    commit(&mut *store, &[upload(&only, 1, 100, 1)?], 100)?;
    // A message of the store's own connection, written where other connections can read it.
    query(
        url,
        "CREATE TABLE said (what text);
         CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO said VALUES (current_setting('synchronous_commit')
                 || ' ' || current_setting('transaction_isolation'));
             RETURN NULL;
         END $$;
         CREATE TRIGGER say AFTER UPDATE ON tally FOR EACH STATEMENT EXECUTE FUNCTION say()",
    )?;
    commit(&mut *store, &[upload(&only, 2, 100, 1)?], 100)?;
    let said = query(url, "SELECT DISTINCT what FROM said")?;
    ensure!(said == [["on read committed"]], "{said:?}");
    Ok(())
}
