//! Test cases in sequence, each of which holds for every store.

use anyhow::{Context as _, ensure};
use bandana_shared::identity::{CellIndex, Day, UnixSeconds};
use bandana_shared::limits::SIGNATURES_MAX;
use bandana_shared::signing::{Signature, SigningKey};
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::tally::Tally;
use bandana_store::Verdict::{Accepted, Duplicate};
use bandana_store::{
    AuditAction, ExpectedState, ExperimentState, Outcome, Store, StoreError, StoreRefusal, Verdict,
};

use super::Case;
use super::places::{
    CONFIG, Place, commit, create, entry, experiment, registry, reports, specification, tallies,
    upload,
};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("everything_comes_back_after_a_crash", everything_comes_back),
    ("a_name_counts_once_a_day", a_name_counts_once),
    ("days_come_into_the_window_and_leave_it", days_come_and_go),
    ("a_window_after_today_refuses_nothing_for_good", window_after_today),
    ("a_repeated_upload_is_a_success_whatever_has_happened_since", repeated),
    ("who_thinks_something_else_of_an_experiment_changes_nothing", outdated),
    ("a_name_of_an_experiment_is_taken_once", taken),
    ("one_signature_per_key_is_kept_until_it_expires", signatures),
    ("every_change_is_in_the_audit_log_and_nothing_else", audited),
];

/// Adds a signature at this time.
fn sign(
    store: &mut dyn Store,
    expected: ExpectedState,
    revision: &Specification,
    signature: &Signature,
    now: u64,
) -> anyhow::Result<Vec<Signature>> {
    let entry = entry("any", AuditAction::AddSignature)?;
    let now = UnixSeconds::new(now);
    Ok(store.add_signature(expected.key, revision, signature, now, &entry)?.signatures)
}

fn everything_comes_back(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = create(&mut *store, "first")?;
    let second = create(&mut *store, "second")?;
    let expected = first.expected().context("no revision")?;
    let revised = first.revisions[0].with_arm(Arm::new("c")?)?;
    let add = entry("first", AuditAction::AddArm)?;
    let record = store.add_revision(expected, &revised, &add)?;
    ensure!(record.revisions.len() == 2 && record.signatures.is_empty());
    let signature = SigningKey::from_secret(&[1; 32]).sign(&revised, UnixSeconds::new(100));
    let signed = sign(&mut *store, expected, &revised, &signature, 1)?;
    ensure!(signed == [signature]);
    let pause = entry("second", AuditAction::Pause)?;
    let second = second.expected().context("no revision")?;
    store.set_state(second, ExperimentState::Paused, &pause)?;
    let one = experiment(&record)?;
    let mut third_arm = upload(&one, 2, 100, 7)?;
    third_arm.tallies = vec![(CellIndex::new(2)?, Tally::new(9, 4)?)];
    commit(&mut *store, &[upload(&one, 1, 100, 5)?, third_arm], 100)?;
    drop(store);

    let mut store = place.open()?;
    let records = store.load()?;
    let [a, b] = &records[..] else { anyhow::bail!("{} experiments", records.len()) };
    ensure!(a.expected() == Some(ExpectedState { digest: revised.digest(), ..expected }));
    ensure!(a.config == CONFIG && a.signatures == [signature]);
    ensure!(a.revisions == [specification("first")?, revised], "{:?}", a.revisions);
    ensure!(a.tallies == [Tally::new(5, 5)?, Tally::EMPTY, Tally::new(9, 4)?], "{:?}", a.tallies);
    ensure!(b.state == ExperimentState::Paused && b.tallies == [Tally::EMPTY; 2]);
    ensure!(commit(&mut *store, &[upload(&one, 1, 100, 5)?], 100)? == [Duplicate]);
    Ok(store.close()?)
}

fn a_name_counts_once(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let one = experiment(&create(&mut *store, "one")?)?;
    let two = experiment(&create(&mut *store, "two")?)?;
    let group = [
        upload(&one, 1, 100, 5)?,
        upload(&one, 1, 100, 5)?,
        upload(&two, 2, 100, 7)?,
        upload(&one, 1, 99, 11)?,
        upload(&two, 1, 100, 13)?,
    ];
    let verdicts = commit(&mut *store, &group, 100)?;
    ensure!(verdicts == [Accepted, Duplicate, Accepted, Accepted, Duplicate], "{verdicts:?}");
    let verdicts = commit(&mut *store, &group, 100)?;
    ensure!(verdicts == [Duplicate; 5], "{verdicts:?}");
    drop(store);
    let mut store = place.open()?;
    ensure!(commit(&mut *store, &group, 100)? == [Duplicate; 5]);
    let expected =
        [("one", [Tally::new(16, 16)?, Tally::EMPTY]), ("two", [Tally::new(7, 7)?, Tally::EMPTY])];
    let expected = expected.map(|(name, tallies)| (name.to_owned(), tallies.to_vec()));
    ensure!(tallies(&mut *store)? == expected);
    Ok(())
}

fn days_come_and_go(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "window")?)?;
    let expired = |oldest| Verdict::Expired { oldest: Day::new(oldest) };
    let future = |today| Verdict::FutureDay { today: Day::new(today) };
    let submit = |store: &mut dyn Store, id, day, today| {
        anyhow::Ok(commit(store, &[upload(&only, id, day, 1)?], today)?.remove(0))
    };
    for (day, verdict) in [(97, expired(98)), (98, Accepted), (100, Accepted), (101, future(100))] {
        let told = submit(&mut *store, 1, day, 100)?;
        ensure!(told == verdict, "day {day}: {told:?}");
    }
    ensure!(submit(&mut *store, 1, 98, 100)? == Duplicate);
    // The day of the name has left the window, so duplicates are undetectable.
    for (day, verdict) in [(98, expired(99)), (99, Accepted), (100, Duplicate), (101, Accepted)] {
        let told = submit(&mut *store, 1, day, 101)?;
        ensure!(told == verdict, "day {day} of 101: {told:?}");
    }
    // A whole window later everything except the tallies is gone. The window is never reopened.
    ensure!(submit(&mut *store, 1, 101, 110)? == expired(108));
    drop(store);
    let mut store = place.open()?;
    ensure!(submit(&mut *store, 2, 107, 109)? == expired(108));
    ensure!(submit(&mut *store, 2, 108, 109)? == Accepted);
    ensure!(store.window(Day::new(0)).oldest == Day::new(108));
    ensure!(reports(&mut *store)? == 5);
    Ok(())
}

fn window_after_today(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "mended")?)?;
    ensure!(commit(&mut *store, &[upload(&only, 1, 5000, 1)?], 5000)? == [Accepted]);
    for day in [99, 100, 101, 5000] {
        let verdicts = commit(&mut *store, &[upload(&only, 2, day, 1)?], 100)?;
        ensure!(verdicts == [Verdict::ClockBehind], "day {day}: {verdicts:?}");
    }
    ensure!(reports(&mut *store)? == 1);
    Ok(())
}

fn repeated(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let record = create(&mut *store, "states")?;
    let registry = registry();
    let only = registry.publish(record.clone())?;
    commit(&mut *store, &[upload(&only, 1, 100, 1)?], 100)?;
    let mut expected = record.expected().context("no revision")?;
    for (state, verdict) in [
        (ExperimentState::Paused, Verdict::Paused),
        (ExperimentState::Running, Accepted),
        (ExperimentState::Stopped, Verdict::Stopped),
    ] {
        let record = store.set_state(expected, state, &entry("states", AuditAction::Stop)?)?;
        registry.publish(record)?;
        expected.state = state;
        let group = [upload(&only, 1, 100, 1)?, upload(&only, 2, 99, 1)?, upload(&only, 3, 97, 1)?];
        let verdicts = commit(&mut *store, &group, 100)?;
        let expired = Verdict::Expired { oldest: Day::new(98) };
        // The second one is counted while the experiment runs.
        let second = if state == ExperimentState::Stopped { Duplicate } else { verdict };
        ensure!(verdicts == [Duplicate, second, expired], "{state:?}: {verdicts:?}");
    }
    let verdicts = commit(&mut *store, &[upload(&only, 4, 100, 1)?], 100)?;
    ensure!(verdicts == [Verdict::Stopped], "{verdicts:?}");
    ensure!(reports(&mut *store)? == 2);
    Ok(())
}

fn outdated(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let before = create(&mut *store, "changed")?;
    let expected = before.expected().context("no revision")?;
    let revised = before.revisions[0].with_arm(Arm::new("c")?)?;
    let entry = entry("changed", AuditAction::AddArm)?;
    store.add_revision(expected, &revised, &entry)?;
    let other = before.revisions[0].with_arm(Arm::new("d")?)?;
    for refused in [
        store.add_revision(expected, &other, &entry),
        store.set_state(expected, ExperimentState::Paused, &entry),
    ] {
        let error = refused.err().context("an outdated change was made")?;
        ensure!(error.outcome() == Outcome::Declined);
        let StoreError::Refused(StoreRefusal::Outdated(record)) = error else {
            anyhow::bail!("{error}")
        };
        ensure!(record.expected() == Some(ExpectedState { digest: revised.digest(), ..expected }));
    }
    let record = store.load()?.remove(0);
    ensure!(record.state == ExperimentState::Running && record.revisions.len() == 2);
    let paused = ExpectedState { digest: revised.digest(), ..expected };
    store.set_state(paused, ExperimentState::Paused, &entry)?;
    let again = store.set_state(paused, ExperimentState::Stopped, &entry);
    ensure!(matches!(again, Err(StoreError::Refused(StoreRefusal::Outdated(_)))), "{again:?}");
    Ok(())
}

fn taken(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    create(&mut *store, "taken")?;
    let again = store.create_experiment(
        &specification("taken")?,
        CONFIG,
        ExperimentState::Draft,
        &entry("taken", AuditAction::Create)?,
    );
    ensure!(
        matches!(again, Err(StoreError::Refused(StoreRefusal::ExperimentExists(_)))),
        "{again:?}"
    );
    let records = store.load()?;
    ensure!(records.len() == 1 && records[0].state == ExperimentState::Running);
    Ok(())
}

fn signatures(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let record = create(&mut *store, "signed")?;
    let (expected, revision) = (record.expected().context("no revision")?, &record.revisions[0]);
    let signature = |key: u8, expires| {
        SigningKey::from_secret(&[key; 32]).sign(revision, UnixSeconds::new(expires))
    };
    let max = u8::try_from(SIGNATURES_MAX)?;
    for key in 1..=max {
        sign(&mut *store, expected, revision, &signature(key, 100), 1)?;
    }
    let newer = signature(1, 200);
    let signed = sign(&mut *store, expected, revision, &newer, 1)?;
    ensure!(signed.len() == SIGNATURES_MAX && signed.contains(&newer));
    let more = sign(&mut *store, expected, revision, &signature(max + 1, 200), 1);
    let error = more.err().context("too many signatures are taken")?;
    let declined = error.downcast_ref::<StoreError>().map(StoreError::outcome);
    ensure!(declined == Some(Outcome::Declined), "{error}");
    // At 100 all but the newer one have expired.
    let last = signature(max + 1, 200);
    let mut kept = vec![newer, last];
    kept.sort_by_key(|signature| *signature.key().as_bytes());
    ensure!(sign(&mut *store, expected, revision, &last, 100)? == kept);
    drop(store);
    ensure!(place.open()?.load()?[0].signatures == kept);
    Ok(())
}

fn audited(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let record = create(&mut *store, "audited")?;
    let mut expected = record.expected().context("no revision")?;
    let add = entry("audited", AuditAction::AddArm)?;
    let revised = record.revisions[0].with_arm(Arm::new("c")?)?;
    store.add_revision(expected, &revised, &add)?;
    // Refused: the arms have changed.
    store.add_revision(expected, &revised, &add).err().context("made twice")?;
    expected.digest = revised.digest();
    let pause = entry("audited", AuditAction::Pause)?;
    store.set_state(expected, ExperimentState::Paused, &pause)?;
    let key = SigningKey::from_secret(&[1; 32]);
    sign(&mut *store, expected, &revised, &key.sign(&revised, UnixSeconds::new(9)), 1)?;
    let audit = place.audit()?;
    let actions: Vec<AuditAction> = audit.iter().rev().map(|record| record.entry.action).collect();
    let expected =
        [AuditAction::Create, AuditAction::AddArm, AuditAction::Pause, AuditAction::AddSignature];
    ensure!(actions == expected, "{actions:?}");
    ensure!(audit.iter().rev().is_sorted_by_key(|record| record.number));
    ensure!(audit[1].entry == pause);
    Ok(())
}
