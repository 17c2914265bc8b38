//! Archived and deleted experiments: the erased data, the retained data, and the visibility.

use anyhow::{Context as _, ensure};
use bandana_shared::identity::{Day, ExperimentId, UnixSeconds};
use bandana_shared::signing::SigningKey;
use bandana_store::{
    AuditAction, ExpectedState, ExperimentRecord, ExperimentState, Outcome, Store, StoreError,
    StoreRefusal, TrustedChange, TrustedRefusal, Verdict,
};
use bandana_tests::postgres::{Postgres, query};
use rusqlite::Connection;

use super::Case;
use super::following::Replica;
use super::places::{
    CONFIG, Place, commit, create, entry, experiment, settings, specification, tallies, upload,
};
use super::replicas::until;
use super::trusted::{add, name};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("an_archived_experiment_is_all_there", archived),
    ("of_a_deleted_experiment_its_id_and_its_audit_entries_stay", deleted),
    ("days_of_a_deleted_experiment_leave_the_window", days_leave),
    ("what_became_of_an_experiment_is_not_read_from_a_damaged_entry", damaged_entries),
    ("a_deleted_trusted_experiment_is_gone_but_for_its_entries", trusted),
];

pub(crate) const OF_REPLICAS: &[(&str, super::replicas::Case)] =
    &[("replicas_hear_of_what_was_archived_and_deleted", followed)];

fn expected(record: &ExperimentRecord) -> anyhow::Result<ExpectedState> {
    record.expected().context("no revision")
}

fn stop(store: &mut dyn Store, record: &ExperimentRecord) -> anyhow::Result<ExperimentRecord> {
    let id = record.revisions[0].experiment_id();
    let entry = entry(id.as_str(), AuditAction::Stop)?;
    Ok(store.set_state(expected(record)?, ExperimentState::Stopped, &entry)?)
}

fn delete(store: &mut dyn Store, record: &ExperimentRecord) -> anyhow::Result<()> {
    let id = record.revisions[0].experiment_id();
    Ok(store.delete(expected(record)?, &entry(id.as_str(), AuditAction::Delete)?)?)
}

/// The reason for a refusal by the store, without any change.
fn refusal<T>(outcome: Result<T, StoreError>) -> anyhow::Result<StoreError> {
    let error = outcome.err().context("the store made the change")?;
    ensure!(error.outcome() == Outcome::Declined, "{error}");
    Ok(error)
}

fn is_in_order(place: &Place) -> anyhow::Result<()> {
    let findings = place.verify()?.findings;
    ensure!(findings.is_empty(), "{findings:?}");
    Ok(())
}

fn archived(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = create(&mut *store, "first")?;
    create(&mut *store, "second")?;
    commit(&mut *store, &[upload(&experiment(&first)?, 1, 100, 5)?], 100)?;
    let archive = entry("first", AuditAction::Archive)?;
    let outdated =
        refusal(store.archive(
            ExpectedState { state: ExperimentState::Paused, ..expected(&first)? },
            &archive,
        ))?;
    ensure!(matches!(outdated, StoreError::Refused(StoreRefusal::Outdated(_))), "{outdated}");
    let stopped = stop(&mut *store, &first)?;
    ensure!(!stopped.is_archived);
    let record = store.archive(expected(&stopped)?, &archive)?;
    ensure!(record.is_archived && record.state == ExperimentState::Stopped);
    for (action, is_archived) in [(AuditAction::Unarchive, false), (AuditAction::Archive, true)] {
        let change = entry("first", action)?;
        let record = store.archive(expected(&record)?, &change)?;
        ensure!(record.is_archived == is_archived, "{action:?}");
        // Another caller, or another replica, was first: there is no second entry in the audit log.
        let entries = place.audit()?.len();
        let again = refusal(store.archive(expected(&record)?, &change))?;
        ensure!(matches!(again, StoreError::Refused(StoreRefusal::Outdated(_))), "{again}");
        ensure!(place.audit()?.len() == entries, "{action:?}");
    }
    if let (Some(before), Some(after)) = (&stopped.policy, &record.policy) {
        ensure!(before.policy.version < after.policy.version, "replicas don't hear of it");
    }
    drop(store);
    let mut store = place.open()?;
    let archived = store.load()?.into_iter().map(|record| record.is_archived);
    ensure!(archived.collect::<Vec<_>>() == [true, false]);
    ensure!(tallies(&mut *store)?[0].1[0].reports() == 5);
    Ok(())
}

fn deleted(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let (first, second) = (create(&mut *store, "first")?, create(&mut *store, "second")?);
    let (one, two) = (experiment(&first)?, experiment(&second)?);
    // Both in one group.
    let uploads = [upload(&one, 1, 100, 5)?, upload(&two, 2, 100, 7)?, upload(&one, 3, 99, 1)?];
    commit(&mut *store, &uploads, 100)?;
    let signature =
        SigningKey::from_secret(&[1; 32]).sign(&first.revisions[0], UnixSeconds::new(9));
    let sign = entry("first", AuditAction::AddSignature)?;
    let now = UnixSeconds::new(1);
    store.add_signature(first.key, &first.revisions[0], &signature, now, &sign)?;
    let stopped = stop(&mut *store, &first)?;
    let delete_it = entry("first", AuditAction::Delete)?;
    let outdated = refusal(store.delete(expected(&first)?, &delete_it))?;
    ensure!(matches!(outdated, StoreError::Refused(StoreRefusal::Outdated(_))), "{outdated}");
    ensure!(store.deleted()?.is_empty());
    delete(&mut *store, &stopped)?;
    is_in_order(place)?;

    for _ in 0..2 {
        ensure!(store.deleted()? == [first.revisions[0].digest()], "{:?}", store.deleted()?);
        let left = tallies(&mut *store)?;
        ensure!(left.len() == 1 && left[0].0 == "second" && left[0].1[0].reports() == 7);
        let all = Day::new(0)..=Day::new(200);
        let days = place.reader()?.daily_tallies(first.key, &all)?;
        ensure!(days.iter().all(|day| day.tally.ones() == 0), "{days:?}");
        // Ids of either kind are never reused; neither are keys.
        let again = entry("first", AuditAction::Create)?;
        let state = ExperimentState::Running;
        let taken = store.create_experiment(&specification("first")?, CONFIG, state, &again);
        let taken = refusal(taken)?;
        ensure!(
            matches!(taken, StoreError::Refused(StoreRefusal::ExperimentWasDeleted(_))),
            "{taken}"
        );
        let trusted = add(&mut *store, "first").err().context("its id came again")?;
        ensure!(trusted.to_string().contains("was deleted"), "{trusted}");
        drop(store);
        store = place.open()?;
    }
    let third = create(&mut *store, "third")?;
    ensure!(third.key != first.key && third.tallies.iter().all(|tally| tally.reports() == 0));
    // A name counted for the deleted experiment can't be used for another one.
    let repeated = upload(&two, 1, 100, 1)?;
    ensure!(commit(&mut *store, &[repeated], 100)? == [Verdict::Duplicate]);
    let fresh = upload(&experiment(&third)?, 9, 100, 2)?;
    ensure!(commit(&mut *store, &[fresh], 100)? == [Verdict::Accepted]);
    let actions: Vec<_> = place
        .audit()?
        .into_iter()
        .filter(|record| record.entry.experiment.as_str() == "first")
        .map(|record| record.entry.action)
        .collect();
    let expected =
        [AuditAction::Delete, AuditAction::Stop, AuditAction::AddSignature, AuditAction::Create];
    ensure!(actions == expected, "{actions:?}");
    Ok(())
}

fn days_leave(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let (first, second) = (create(&mut *store, "first")?, create(&mut *store, "second")?);
    let (one, two) = (experiment(&first)?, experiment(&second)?);
    for day in 96..=100_u32 {
        let uploads =
            [upload(&one, u128::from(day), day, 5)?, upload(&two, u128::from(day) + 1000, day, 7)?];
        commit(&mut *store, &uploads, day)?;
    }
    let stopped = stop(&mut *store, &first)?;
    delete(&mut *store, &stopped)?;
    is_in_order(place)?;
    for day in 101..=105_u32 {
        commit(&mut *store, &[upload(&two, u128::from(day), day, 1)?], day)?;
        is_in_order(place)?;
    }
    let left = tallies(&mut *store)?;
    ensure!(left.len() == 1 && left[0].1[0].reports() == 5 * 7 + 5);
    Ok(())
}

/// Changes the action of an audit entry, bypassing all guards.
fn falsify(place: &Place, [from, to]: [&str; 2]) -> anyhow::Result<()> {
    let update = format!("UPDATE audit SET action = '{to}' WHERE action = '{from}'");
    match place {
        Place::Embedded(folder) => {
            let database = Connection::open(folder.path().join("bandana.sqlite3"))?;
            let trigger = "SELECT sql FROM sqlite_schema WHERE name = 'audit_is_not_changed'";
            let trigger: String = database.query_row(trigger, [], |row| row.get(0))?;
            database.execute_batch(&format!(
                "DROP TRIGGER audit_is_not_changed; {update}; {trigger}"
            ))?;
        }
        Place::Postgres(url) => {
            query(url, &format!("SET session_replication_role = replica; {update}"))?;
        }
    }
    Ok(())
}

fn damaged_entries(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let (first, second) = (create(&mut *store, "first")?, create(&mut *store, "second")?);
    let stopped = stop(&mut *store, &first)?;
    delete(&mut *store, &stopped)?;
    let stopped = stop(&mut *store, &second)?;
    store.archive(expected(&stopped)?, &entry("second", AuditAction::Archive)?)?;
    let said = |error: Option<StoreError>| {
        let error = error.context("a damaged entry was believed")?;
        ensure!(error.is_damage(), "{error}");
        Ok(())
    };
    for [action, other] in [["delete", "pause"], ["archive", "pause"]] {
        falsify(place, [action, other])?;
        said(store.load().err())?;
        falsify(place, [other, action])?;
        drop(store);
        store = place.open()?;
    }
    falsify(place, ["delete", "pause"])?;
    let again = entry("first", AuditAction::Create)?;
    let specification = specification("first")?;
    let taken = store.create_experiment(&specification, CONFIG, ExperimentState::Running, &again);
    said(taken.err())?;
    falsify(place, ["pause", "delete"])
}

fn trusted(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let record = add(&mut *store, "headlines")?;
    let other = add(&mut *store, "others")?;
    let id = record.id.clone();
    let from = record.version;
    let delete = entry("headlines", AuditAction::Delete)?;
    let change = TrustedChange::Delete { id: id.clone(), from, entry: delete.clone() };
    let early = refusal(store.apply_trusted_change(&change))?;
    ensure!(
        matches!(early, StoreError::Refused(StoreRefusal::Trusted(ref why)) if **why == TrustedRefusal::Moved)
    );
    let to = from.next()?;
    let entry_of_stop = entry("headlines", AuditAction::Stop)?;
    let state = ExperimentState::Stopped;
    let stop = TrustedChange::Move { id: id.clone(), from, to, state, entry: entry_of_stop };
    store.apply_trusted_change(&stop)?;
    let archive = entry("headlines", AuditAction::Archive)?;
    let (from, to) = (to, to.next()?);
    store.apply_trusted_change(&TrustedChange::Archive {
        id: id.clone(),
        from,
        to,
        entry: archive,
    })?;
    let found = place.reader()?.trusted(Some(&id))?;
    ensure!(found.len() == 1 && found[0].is_archived && found[0].version == to);
    is_in_order(place)?;
    store.apply_trusted_change(&TrustedChange::Delete {
        id: id.clone(),
        from: to,
        entry: delete,
    })?;
    for _ in 0..2 {
        ensure!(place.reader()?.trusted(None)? == std::slice::from_ref(&other));
        let again = add(&mut *store, "headlines").err().context("its id came again")?;
        ensure!(again.to_string().contains("was deleted"), "{again}");
        let again = create(&mut *store, "headlines").err().context("its id came again")?;
        ensure!(again.to_string().contains("was deleted"), "{again}");
        drop(store);
        store = place.open()?;
    }
    let entries = place.audit()?;
    let of_it = entries.iter().filter(|record| record.entry.experiment == id).count();
    ensure!(of_it == 4 && name("headlines")? == id, "{entries:?}");
    Ok(())
}

fn followed(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("no database") };
    let mut store = place.open()?;
    let (first, second) = (create(&mut *store, "first")?, create(&mut *store, "second")?);
    commit(&mut *store, &[upload(&experiment(&first)?, 1, 100, 5)?], 100)?;
    let replica = Replica::quick(&settings(url)?)?;
    let (one, _) = (replica.knows("first")?, replica.knows("second")?);
    let stopped = stop(&mut *store, &first)?;
    let archive = entry("first", AuditAction::Archive)?;
    let archived = store.archive(expected(&stopped)?, &archive)?;
    until("the archive", || one.serving().is_archived)?;
    delete(&mut *store, &archived)?;
    let id = ExperimentId::new("first")?;
    until("the deletion", || replica.registry.by_id(&id).is_none())?;
    let digest = first.revisions[0].digest();
    ensure!(replica.registry.by_digest(digest).is_none());
    ensure!(replica.knows("second")?.key() == second.key);
    // A change by a caller with outdated state is refused.
    let gone = refusal(store.delete(expected(&archived)?, &entry("first", AuditAction::Delete)?))?;
    ensure!(matches!(gone, StoreError::Refused(StoreRefusal::ExperimentGone(_))), "{gone}");
    let signature =
        SigningKey::from_secret(&[1; 32]).sign(&first.revisions[0], UnixSeconds::new(9));
    let sign = entry("first", AuditAction::AddSignature)?;
    let now = UnixSeconds::new(1);
    let gone = store.add_signature(first.key, &first.revisions[0], &signature, now, &sign);
    ensure!(matches!(refusal(gone)?, StoreError::Refused(StoreRefusal::ExperimentGone(_))));
    replica.stop()?;
    Ok(())
}
