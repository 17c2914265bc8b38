//! Records of experiments in every store: kept, refused when outdated, and erased with the rest.

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::SetRecordRequest;
use bandana_store::{
    AuditAction, ExpectedState, ExperimentRecord, ExperimentState, Outcome, StoreError,
    StoreRefusal, WrittenRecord,
};

use super::Case;
use super::places::{Place, create, entry};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_record_is_kept_and_an_outdated_change_of_it_refused", kept),
    ("a_deleted_experiment_has_no_record_left", erased),
];

fn expected(record: &ExperimentRecord) -> anyhow::Result<ExpectedState> {
    record.expected().context("no revision")
}

fn titled(before: &WrittenRecord, title: &str) -> anyhow::Result<WrittenRecord> {
    let request = SetRecordRequest { title: Some(title.to_owned()), ..Default::default() };
    Ok(before.changed(&request, 2)?)
}

fn kept(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let (first, other) = (create(&mut *store, "first")?, create(&mut *store, "other")?);
    ensure!(first.written == WrittenRecord::default());
    let (one, two) = (titled(&first.written, "one")?, titled(&first.written, "two")?);
    let write = entry("first", AuditAction::SetRecord)?;
    let written = store.set_record(expected(&first)?, (&first.written, &one), &write)?;
    ensure!(written.written == one);
    if let (Some(before), Some(after)) = (&first.policy, &written.policy) {
        ensure!(before.policy.version < after.policy.version, "replicas don't hear of it");
    }
    // Another server has written it meanwhile.
    let late = store.set_record(expected(&first)?, (&first.written, &two), &write);
    let late = late.err().context("what was written is lost")?;
    ensure!(late.outcome() == Outcome::Declined, "{late}");
    let StoreError::Refused(StoreRefusal::Outdated(known)) = late else {
        anyhow::bail!("{late}");
    };
    ensure!(known.written == one);
    let stop = entry("first", AuditAction::Stop)?;
    let stopped = store.set_state(expected(&written)?, ExperimentState::Stopped, &stop)?;
    ensure!(stopped.written == one, "another change loses it");
    drop(store);
    let records: Vec<_> = place.open()?.load()?.into_iter().map(|record| record.written).collect();
    ensure!(records == [one, other.written], "{records:?}");
    Ok(())
}

fn erased(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = create(&mut *store, "first")?;
    let record = titled(&first.written, "one")?;
    let write = entry("first", AuditAction::SetRecord)?;
    let first = store.set_record(expected(&first)?, (&first.written, &record), &write)?;
    let stop = entry("first", AuditAction::Stop)?;
    let first = store.set_state(expected(&first)?, ExperimentState::Stopped, &stop)?;
    store.delete(expected(&first)?, &entry("first", AuditAction::Delete)?)?;
    let late = store.set_record(expected(&first)?, (&record, &WrittenRecord::default()), &write);
    ensure!(late.is_err());
    ensure!(store.load()?.is_empty());
    Ok(())
}
