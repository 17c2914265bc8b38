//! The bytes of every version of every file, and the values read from them.

mod bytes;

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::cells::Cell;
use bandana_shared::identity::{ArmIndex, Day, ExperimentId};
use bandana_shared::participation::Millionths;
use bandana_shared::shuffling::BatchSize;
use bandana_shared::stored;

use crate::core::{Change, OwnReports, State};
use crate::core::{PendingReward, PendingRewards};
use crate::core::{StoredChanges, StoredDone, StoredLedger, StoredState};
use crate::debit::Debit;
use crate::outbox::Sealed;
use crate::sign::Sign;
#[cfg(feature = "trusted")]
use crate::trusted::disclosures_file::{KeptByName, StoredDisclosure, StoredDisclosures};

use self::bytes::*;
use super::samples::*;

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").ok();
        hex
    })
}

/// The state that was written, and the one that the changes make; both are written as before.
fn read_back(state: &[u8], changes: &[u8]) -> Result<[State; 2], Failure> {
    let (read, _) = stored::from_bytes::<StoredState>(state)?.into_state(true).ok_or("no state")?;
    let mut replayed = State::default();
    let changes: StoredChanges = stored::from_bytes(changes)?;
    changes.apply(&mut replayed).ok_or("changes that do not apply")?;
    for read in [&read, &replayed] {
        assert_eq!(stored::to_bytes(&StoredState::new(read, 4, true))?, state);
    }
    Ok([read, replayed])
}

#[test]
fn golden_bytes() -> Result<(), Failure> {
    let ledger = stored::to_bytes(&StoredLedger::new(7, &ledger()))?;
    let rewards =
        PendingRewards(vec![PendingReward { assignment: 300, sum: 0.75, is_negative: None }]);
    let state = stored::to_bytes(&StoredState::new(&state()?, 4, true))?;
    let changes = stored::to_bytes(&StoredChanges::new(5, &changes()?))?;
    assert_eq!(hex(&ledger), LEDGER);
    assert_eq!(hex(&stored::to_bytes(&StoredDone(300))?), DONE);
    assert_eq!(hex(&stored::to_bytes(&rewards)?), REWARDS);
    let read: PendingRewards = stored::from_bytes(&bytes(REWARDS_1)?)?;
    let [PendingReward { assignment: 300, sum, is_negative: None }] = read.0[..] else {
        return Err("other rewards".into());
    };
    assert_eq!(sum.to_bits(), 0.75_f64.to_bits());
    // The size of the file does not say what a context was.
    let size = |is_negative| {
        let pending = PendingReward { assignment: 300, sum: 0.75, is_negative: Some(is_negative) };
        stored::to_bytes(&PendingRewards(vec![pending])).map(|bytes| bytes.len())
    };
    assert_eq!(size(true)?, size(false)?);
    assert_eq!(hex(&state), STATE);
    assert_eq!(hex(&changes), CHANGES);
    Ok(())
}

#[test]
fn golden_bytes_of_what_is_shuffled() -> Result<(), Failure> {
    let ledger = ledger_of_both_accounts();
    let bytes_of_ledger = stored::to_bytes(&StoredLedger::new(7, &ledger))?;
    assert_eq!(hex(&bytes_of_ledger), LEDGER_OF_BOTH);
    let (_, read) = stored::from_bytes::<StoredLedger>(&bytes_of_ledger)?.into_parts();
    assert_eq!(read, ledger);

    let state = state_of(&shuffled_changes()?)?;
    let bytes_of_state = stored::to_bytes(&StoredState::new(&state, 4, true))?;
    assert_eq!(hex(&bytes_of_state), STATE_SHUFFLED);
    let bytes_of_changes = stored::to_bytes(&StoredChanges::new(5, &shuffled_changes()?))?;
    assert_eq!(hex(&bytes_of_changes), CHANGES_SHUFFLED);

    let (read, _) =
        stored::from_bytes::<StoredState>(&bytes_of_state)?.into_state(true).ok_or("no state")?;
    let mut replayed = State::default();
    let changes: StoredChanges = stored::from_bytes(&bytes_of_changes)?;
    changes.apply(&mut replayed).ok_or("changes that do not apply")?;
    for state in [read, replayed] {
        assert_eq!(stored::to_bytes(&StoredState::new(&state, 4, true))?, bytes_of_state);
        let batch = Some(BatchSize::new(1000)?);
        assert!(state.cached.values().all(|held| held.specification.batch() == batch));
        let open = state.open.values().map(|open| (open.specification.batch(), open.price));
        assert_eq!(open.collect::<Vec<_>>(), [(batch, SHUFFLED)]);
        let parcels = state.outbox.parcels.values().map(|parcel| (parcel.batch, parcel.price));
        assert_eq!(parcels.collect::<Vec<_>>(), [(batch, SHUFFLED), (batch, SHUFFLED)]);
        let sealed = state.outbox.parcels.values().map(|parcel| &parcel.sealed);
        let sealed: Vec<_> = sealed.collect();
        assert!(matches!(sealed[..], [Some(Sealed::Shuffled { .. }), None]), "{sealed:?}");
        assert_eq!(state.settled(), Debit::ZERO);
    }
    Ok(())
}

#[test]
fn golden_bytes_of_what_is_for_a_part() -> Result<(), Failure> {
    let state = state_of(&partial_changes()?)?;
    let bytes_of_state = stored::to_bytes(&StoredState::new(&state, 4, true))?;
    assert_eq!(hex(&bytes_of_state), STATE_PARTIAL);
    let bytes_of_changes = stored::to_bytes(&StoredChanges::new(5, &partial_changes()?))?;
    assert_eq!(hex(&bytes_of_changes), CHANGES_PARTIAL);
    for read in read_back(&bytes_of_state, &bytes_of_changes)? {
        assert_eq!((&read.secret, &read.kept), (&state.secret, &state.kept));
        assert_eq!(read.last_draws, state.last_draws);
        let held = read.cached.values().map(|held| held.specification.participation().clone());
        assert!(
            held.eq(state.cached.values().map(|held| held.specification.participation().clone()))
        );
    }
    Ok(())
}

#[test]
fn golden_bytes_of_segments_metrics_and_a_holdout() -> Result<(), Failure> {
    let measuring = measuring_changes(Millionths::from_share(0.25)?)?;
    let state = state_of(&measuring)?;
    let bytes_of_state = stored::to_bytes(&StoredState::new(&state, 4, true))?;
    assert_eq!(hex(&bytes_of_state), STATE_MEASURING);
    let bytes_of_changes = stored::to_bytes(&StoredChanges::new(5, &measuring))?;
    assert_eq!(hex(&bytes_of_changes), CHANGES_MEASURING);
    for read in read_back(&bytes_of_state, &bytes_of_changes)? {
        let held = read.cached.values().next().ok_or("nothing held")?;
        assert_eq!(held.specification.measurement().metrics.len(), 2);
        let cells = held.specification.cells();
        let open = read.open.values().map(|open| cells.cell(open.cell));
        let arm = ArmIndex::new(1)?;
        let cell = Cell { segment: 1, is_held_out: true, metric: 1, ..Cell::of(arm) };
        assert_eq!(open.collect::<Vec<_>>(), [Some(cell)]);
        assert_eq!(held.policy.weights.segments(), 2);
    }
    Ok(())
}

#[test]
fn golden_bytes_of_private_contexts() -> Result<(), Failure> {
    let state = state_of(&private_changes()?)?;
    let bytes_of_state = stored::to_bytes(&StoredState::new(&state, 4, true))?;
    assert_eq!(hex(&bytes_of_state), STATE_PRIVATE);
    let bytes_of_changes = stored::to_bytes(&StoredChanges::new(5, &private_changes()?))?;
    assert_eq!(hex(&bytes_of_changes), CHANGES_PRIVATE);
    for read in read_back(&bytes_of_state, &bytes_of_changes)? {
        let open = read.open.values().next().ok_or("nothing open")?;
        assert_eq!((open.arm().get(), open.sign() == Sign::Lost), (1, true));
        let held = read.cached.values().next().ok_or("nothing held")?;
        let known = state.cached.values().next().ok_or("nothing held")?;
        assert_eq!(held.specification, known.specification);
        assert_eq!(held.policy, known.policy);
    }
    Ok(())
}

#[test]
fn what_versions_5_to_7_had_is_read() -> Result<(), Failure> {
    for (bytes_of_state, bytes_of_changes, changes) in [
        (STATE_SHUFFLED_5, CHANGES_SHUFFLED_5, shuffled_changes()?),
        (STATE_PARTIAL_5, CHANGES_PARTIAL_5, partial_changes()?),
        (STATE_SHUFFLED_6, CHANGES_SHUFFLED_6, shuffled_changes()?),
        (STATE_PARTIAL_6, CHANGES_PARTIAL_6, partial_changes()?),
        (STATE_MEASURING_6, CHANGES_MEASURING_6, measuring_changes(Millionths::NONE)?),
        (STATE_SHUFFLED_7, CHANGES_SHUFFLED, shuffled_changes()?),
        (STATE_PARTIAL_7, CHANGES_PARTIAL, partial_changes()?),
        (STATE_MEASURING_7, CHANGES_MEASURING, measuring_changes(Millionths::from_share(0.25)?)?),
        (STATE_PRIVATE_7, CHANGES_PRIVATE, private_changes()?),
    ] {
        read_as_today(bytes_of_state, bytes_of_changes, &changes)?;
    }
    Ok(())
}

/// Reads the bytes of an earlier version, and compares what they are with these changes.
fn read_as_today(of_state: &str, of_changes: &str, changes: &[Change]) -> Result<(), Failure> {
    let expected = stored::to_bytes(&StoredState::new(&state_of(changes)?, 4, true))?;
    let read: StoredState = stored::from_bytes(&bytes(of_state)?)?;
    let (mut read, _) = read.into_state(true).ok_or("not a state")?;
    // What an earlier version paid for as shuffled, it did not count.
    assert_eq!(read.own_reports, OwnReports::default());
    read.own_reports = state_of(changes)?.own_reports;
    assert_eq!(stored::to_bytes(&StoredState::new(&read, 4, true))?, expected);
    let mut replayed = State::default();
    let changes: StoredChanges = stored::from_bytes(&bytes(of_changes)?)?;
    changes.apply(&mut replayed).ok_or("changes that do not apply")?;
    assert_eq!(stored::to_bytes(&StoredState::new(&replayed, 4, true))?, expected);
    Ok(())
}

#[test]
fn shuffled_state_of_version_4_is_read() -> Result<(), Failure> {
    let read: StoredState = stored::from_bytes(&bytes(STATE_SHUFFLED_4)?)?;
    let (mut read, _) = read.into_state(true).ok_or("not a state")?;
    let expected = state_of(&shuffled_changes()?)?;
    read.own_reports = expected.own_reports.clone();
    let expected = stored::to_bytes(&StoredState::new(&expected, 4, true))?;
    assert_eq!(stored::to_bytes(&StoredState::new(&read, 4, true))?, expected);
    Ok(())
}

#[cfg(feature = "trusted")]
#[test]
fn golden_bytes_of_disclosures() -> Result<(), Failure> {
    use bandana_shared::wire::v1::{Vector, disclose_request::Played};

    use crate::trusted::{Disclosure, Kept};

    let action = Played::Action(Vector { coordinates: vec![0.5, -0.25] });
    let mut kept = KeptByName::new();
    for (name, played, reward, day) in
        [([7; 16], Played::Arm(300), 0.75, None), ([8; 16], action, -1.0, Some(Day::new(20_001)))]
    {
        let id = ExperimentId::new("golden")?;
        let disclosure = Disclosure::restored(id, name, played, reward, day).ok_or("none")?;
        kept.insert(name, Kept { disclosure, kept_on: Day::new(20_000) });
    }
    let stored = StoredDisclosures(kept.iter().map(StoredDisclosure::new).collect());
    let bytes = stored::to_bytes(&stored)?;
    assert_eq!(hex(&bytes), DISCLOSURES);
    let read: StoredDisclosures = stored::from_bytes(&bytes)?;
    let read = read.0.into_iter().map(StoredDisclosure::into_kept);
    let read: KeptByName = read.collect::<Option<_>>().ok_or("not disclosures")?;
    let again = StoredDisclosures(read.iter().map(StoredDisclosure::new).collect());
    assert_eq!(stored::to_bytes(&again)?, bytes);
    Ok(())
}

#[test]
fn earlier_versions_are_read() -> Result<(), Failure> {
    for (version, bytes_of_state, bytes_of_changes) in [
        (1, STATE_1, CHANGES_1),
        (2, STATE_2, CHANGES_2),
        (3, STATE_3, CHANGES_3),
        (4, STATE_4, CHANGES_4),
        (5, STATE_5, CHANGES_5),
        (6, STATE_6, CHANGES_6),
        (7, STATE_7, CHANGES),
    ] {
        let read: StoredState = stored::from_bytes(&bytes(bytes_of_state)?)?;
        let (mut read, number) = read.into_state(true).ok_or("not a state")?;
        let mut replayed = State::default();
        stored::from_bytes::<StoredChanges>(&bytes(bytes_of_changes)?)?
            .apply(&mut replayed)
            .ok_or("changes that do not apply")?;
        let mut expected = State::default();
        let is_of_version = |one: &&Change| version > 2 || !matches!(one, Change::DayHeard { .. });
        for change in changes()?.iter().filter(is_of_version) {
            expected.apply(change, 0).map_err(|_| format!("{change:?}"))?;
        }
        // What the parcels had cost was not stored, and no window is over before they are settled.
        let stored = if version > 2 { PRICE } else { Debit::unshuffled(NanoNats::MAX) };
        for parcel in read.outbox.parcels.values_mut() {
            assert_eq!(std::mem::replace(&mut parcel.price, PRICE), stored);
        }
        if version == 1 {
            // It says nothing of stores.
            expected.cached.values_mut().for_each(|held| held.store = None);
            expected.outbox.parcels.values_mut().for_each(|parcel| parcel.store = None);
            expected.open.values_mut().for_each(|open| open.store = None);
        }
        let expected = stored::to_bytes(&StoredState::new(&expected, 4, true))?;
        assert_eq!(number, 4);
        assert_eq!(stored::to_bytes(&StoredState::new(&read, 4, true))?, expected);
        assert_eq!(stored::to_bytes(&StoredState::new(&replayed, 4, true))?, expected);
    }
    Ok(())
}

#[test]
fn one_account_is_read_as_two_that_are_the_same() -> Result<(), Failure> {
    let (number, read) = stored::from_bytes::<StoredLedger>(&bytes(LEDGER_2)?)?.into_parts();
    assert_eq!((number, read), (7, ledger()));
    assert_eq!(ledger().lifetime(), Debit::unshuffled(NanoNats::new(3_000_000_000)));
    Ok(())
}

#[test]
fn the_days_of_a_device_count_until_a_server_has_told_its_own() -> Result<(), Failure> {
    let (number, mut ledger) = stored::from_bytes::<StoredLedger>(&bytes(LEDGER_1)?)?.into_parts();
    let both = Debit::unshuffled(NanoNats::new(2_000_000_000));
    assert_eq!((number, ledger.lifetime(), ledger.undated()), (7, both, both));
    ledger.hear(Day::new(20_000), both);
    assert_eq!(ledger.days().collect::<Vec<_>>(), [(Day::new(20_000), both)]);
    Ok(())
}

fn bytes(hex: &str) -> Result<Vec<u8>, Failure> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}
