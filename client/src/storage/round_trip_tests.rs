//! What is stored comes back, and what does not follow is refused.

use std::sync::Arc;

use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::alphabet::Alphabet;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{Day, ExperimentId, StoreId};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::stored;

use super::SLOT;
use crate::assignment::AssignmentId;
use crate::budget::Budget;
use crate::core::{CachedExperiment, Change, State};
use crate::core::{StoredChanges, StoredLedger, StoredState};
use crate::debit::Debit;
use crate::ledger::Ledger;
use crate::outbox::Sealed;
use crate::privatizer::PrivateReport;

use super::samples::*;

/// A file that says so would send a shuffled report to the aggregator itself, or make a report
/// cheaper than it is.
#[test]
fn reports_do_not_change_their_way() -> Result<(), Failure> {
    let applies = |changes: &[Change]| {
        let stored = StoredChanges::new(1, changes);
        stored.apply(&mut State::default()).is_some()
    };
    let id = AssignmentId::new(1);
    let (mut plain, mut shuffled) = (changes()?, shuffled_changes()?);
    assert!(applies(&plain) && applies(&shuffled));
    let sealed = shuffled[6].clone();
    assert!(matches!(sealed, Change::Sealed { sealed: Sealed::Shuffled { .. }, .. }));
    shuffled[6] = Change::Sealed { id, sealed: direct() };
    assert!(!applies(&shuffled));
    plain[5] = sealed;
    assert!(!applies(&plain));
    let mut cheap = changes()?;
    for change in &mut cheap {
        if let Change::Drawn(draw) = change {
            draw.price = SHUFFLED;
        }
    }
    assert!(!applies(&cheap));

    // A state as a whole.
    let is_read = |state: &State| -> Result<bool, Failure> {
        let bytes = stored::to_bytes(&StoredState::new(state, 4, true))?;
        Ok(stored::from_bytes::<StoredState>(&bytes)?.into_state(true).is_some())
    };
    let mut state = state_of(&shuffled_changes()?)?;
    assert!(is_read(&state)?);
    state.outbox.parcels.get_mut(&id).ok_or("no report")?.sealed = Some(direct());
    assert!(!is_read(&state)?);
    let mut state = state_of(&changes()?)?;
    assert!(is_read(&state)?);
    for open in state.open.values_mut() {
        open.price = SHUFFLED;
    }
    assert!(!is_read(&state)?);
    Ok(())
}

/// A full window of the largest amounts.
#[test]
fn every_ledger_fits_its_slot() -> Result<(), Failure> {
    let most = Debit { local: NanoNats::MAX, central: NanoNats::MAX, delta: DeltaUnits::MAX };
    let today = Day::new(u32::MAX);
    let days = (0..Budget::WINDOW_DAYS_MAX).map(|ago| (today.back(ago), most));
    let full = Ledger::from_parts((most, most), days.collect(), Some(today));
    let bytes = stored::to_bytes(&StoredLedger::new(u64::MAX, &full))?;
    // A frame has a length of four bytes.
    assert!(bytes.len() + 4 <= SLOT, "{}", bytes.len());
    assert_eq!(stored::from_bytes::<StoredLedger>(&bytes)?.into_parts(), (u64::MAX, full));
    Ok(())
}

#[test]
fn stores_come_back_with_what_came_from_them() -> Result<(), Failure> {
    let written = state()?;
    let (one, other) = (Some(StoreId::new([5; 16])), Some(StoreId::new([6; 16])));
    assert!(written.cached.values().all(|held| held.store == one));
    let mut several = state()?;
    for (place, parcel) in several.outbox.parcels.values_mut().enumerate() {
        parcel.store = [None, other][place % 2];
    }
    for written in [written, several] {
        let bytes = stored::to_bytes(&StoredState::new(&written, 4, true))?;
        let (read, _) =
            stored::from_bytes::<StoredState>(&bytes)?.into_state(true).ok_or("none")?;
        let stores = |state: &State| -> Vec<Option<StoreId>> {
            let held = state.cached.values().map(|held| held.store);
            let open = state.open.values().map(|open| open.store);
            let parcels = state.outbox.parcels.values().map(|parcel| parcel.store);
            held.chain(open).chain(parcels).collect()
        };
        assert_eq!(stores(&read), stores(&written));
    }
    Ok(())
}

#[test]
fn categories_and_their_reports_come_back() -> Result<(), Failure> {
    let categories = Alphabet::new(5)?;
    let specification = Specification::first(
        ExperimentId::new("categories")?,
        Epsilon::new(2.0)?,
        Rewards::categorical(categories),
        Mechanism::Kary(categories),
        vec![Arm::new("old")?, Arm::new("new")?],
        ReleaseTiming { attribution_window_seconds: 60, release_delay_seconds_max: 9 },
    )?;
    let held = CachedExperiment { specification: Arc::new(specification), ..held(false)? };
    let mut changes = vec![Change::Heard { held: held.clone(), anew: true }];
    let price = Debit::unshuffled(NanoNats::new(2_000_000_000));
    for number in 1..=2 {
        changes.extend([
            draw(number, &held.specification, price, None)?,
            Change::Privatized { id: AssignmentId::new(number), report: report(4)? },
        ]);
    }
    let state = state_of(&changes)?;
    let bytes = stored::to_bytes(&StoredState::new(&state, 4, true))?;
    let read: StoredState = stored::from_bytes(&bytes)?;
    let (read, _) = read.into_state(true).ok_or("not a state")?;
    assert_eq!(stored::to_bytes(&StoredState::new(&read, 4, true))?, bytes);
    let said: Vec<u8> = read.outbox.parcels.values().map(|p| p.report.get().get()).collect();
    assert_eq!(said, [4, 4]);
    let mut replayed = State::default();
    let stored = stored::to_bytes(&StoredChanges::new(5, &changes))?;
    let stored: StoredChanges = stored::from_bytes(&stored)?;
    stored.apply(&mut replayed).ok_or("changes that do not apply")?;
    assert_eq!(stored::to_bytes(&StoredState::new(&replayed, 4, true))?, bytes);
    assert!(PrivateReport::restored(16).is_none());
    Ok(())
}

#[test]
fn what_is_read_back_is_what_was_written() -> Result<(), Failure> {
    let written = state()?;
    let bytes = stored::to_bytes(&StoredState::new(&written, 4, true))?;
    let read: StoredState = stored::from_bytes(&bytes)?;
    let (read, number) = read.into_state(true).ok_or("not a state")?;
    assert_eq!(number, 4);
    assert_eq!(stored::to_bytes(&StoredState::new(&read, 4, true))?, bytes);
    assert!(stored::from_bytes::<StoredState>(&bytes)?.into_state(false).is_none());

    let mut replayed = State::default();
    let changes = stored::to_bytes(&StoredChanges::new(5, &changes()?))?;
    let changes: StoredChanges = stored::from_bytes(&changes)?;
    changes.apply(&mut replayed).ok_or("changes that do not apply")?;
    assert_eq!(stored::to_bytes(&StoredState::new(&replayed, 4, true))?, bytes);
    Ok(())
}

#[test]
fn changes_that_do_not_follow_are_refused() -> Result<(), Failure> {
    let all = changes()?;
    for left_out in 0..7 {
        let mut some = all.clone();
        some.remove(left_out);
        let stored = StoredChanges::new(1, &some);
        let applied = stored.apply(&mut State::default());
        // Only sealing and a later assignment can be left out.
        assert_eq!(applied.is_some(), [2, 5].contains(&left_out), "without {left_out}");
    }
    let twice = StoredChanges::new(1, &[&all[..2], &all[1..2]].concat());
    assert!(twice.apply(&mut State::default()).is_none());
    Ok(())
}
