//! The bytes of every version of every file, and the values read from them.

use std::sync::Arc;

use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::alphabet::Alphabet;
use bandana_shared::channel::Floor;
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{
    ArmIndex, Day, Digest, ExperimentId, Revision, StoreId, UnixSeconds, UploadId,
};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::signing::Signature;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use bandana_shared::stored;

use super::SLOT;
use crate::assignment::AssignmentId;
use crate::budget::Budget;
use crate::core::{CachedExperiment, Change, Draw, Epoch, State};
use crate::core::{PendingReward, PendingRewards};
use crate::core::{StoredChanges, StoredDone, StoredLedger, StoredState};
use crate::debit::Debit;
use crate::ledger::Ledger;
use crate::outbox::{Sealed, UploadTask};
use crate::privatizer::PrivateReport;
use crate::time::Timestamp;
#[cfg(feature = "trusted")]
use crate::trusted::disclosures_file::{KeptByName, StoredDisclosure, StoredDisclosures};

type Failure = Box<dyn std::error::Error>;

/// Bytes of version 1, and below of later ones. They never change: data that a later version can't
/// read is lost on every device that has it.
const LEDGER_1: &str = "\
    42446c6701001e3169aa07fc009435770200fc00ca9a3b01fc00ca9a3bfc005c2605";
const LEDGER_2: &str = "\
    42446c6702003cb6c2bd07fc005ed0b2fc00ca9a3b02fb204efc00ca9a3bfb214efc00ca9a3b01fb\
    214e";
const DONE: &str = "4244646e01005d1b7a3cfb2c01";
const REWARDS: &str = "\
    424472770100ac3b04fd01fb2c01000000000000e83f";
const STATE_1: &str = "\
    42447374010061cabbe4040100fc002f68590100fc002f6859640301f2cd47e6e48cf3435ff11d3c\
    b79bb5bb06676f6c64656e0201000000000000e03ffd8591e3655981a66000000000000000f0bf00\
    0000000000084001000000000000d03f01fc0000100002036f6c6401036e6577003c09010001d75a\
    980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511afc00f153654007070707\
    07070707070707070707070707070707070707070707070707070707070707070707070707070707\
    0707070707070707070707070707070707070707030200fd00000000010000003c6301020001fbc4\
    eafb48ee010106676f6c64656ef2cd47e6e48cf3435ff11d3cb79bb5bb0101fb48eefc880d010001\
    090909090909090909090909090909090201020106676f6c64656e011e04";
const CHANGES_1: &str = "\
    4244636801006f7da49305090006676f6c64656e01f2cd47e6e48cf3435ff11d3cb79bb5bb06676f\
    6c64656e0201000000000000e03ffd8591e3655981a66000000000000000f0bf0000000000000840\
    01000000000000d03f01fc0000100002036f6c6401036e6577003c0901d75a980182b10ab7d54bfe\
    d3c964073a0ee172f3daa62325af021a68f707511afc00f153654007070707070707070707070707\
    07070707070707070707070707070707070707070707070707070707070707070707070707070707\
    0707070707070707070707030200fd00000000010000003c4d0101f2cd47e6e48cf3435ff11d3cb7\
    9bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d000102f2cd47e6e48cf3435ff11d3cb79b\
    b5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d011e040103f2cd47e6e48cf3435ff11d3cb7\
    9bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d0002010103010909090909090909090909\
    090909090902010202030004030006676f6c64656e00030200fd00000000010000003c63";

/// The same data, each with its store.
const STATE_2: &str = "\
    424473740200ade7a206040100fc002f68590100fc002f6859640301f2cd47e6e48cf3435ff11d3c\
    b79bb5bb06676f6c64656e0201000000000000e03ffd8591e3655981a66000000000000000f0bf00\
    0000000000084001000000000000d03f01fc0000100002036f6c6401036e6577003c09010001d75a\
    980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511afc00f153654007070707\
    07070707070707070707070707070707070707070707070707070707070707070707070707070707\
    0707070707070707070707070707070707070707030200fd00000000010000003c6301020001fbc4\
    eafb48ee010106676f6c64656ef2cd47e6e48cf3435ff11d3cb79bb5bb0101fb48eefc880d010001\
    090909090909090909090909090909090201020106676f6c64656e011e0401050505050505050505\
    0505050505050503010101";
const CHANGES_2: &str = "\
    424463680200bbbf24a8050905010505050505050505050505050505050506676f6c64656e01f2cd\
    47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0201000000000000e03ffd8591e3655981a660\
    00000000000000f0bf000000000000084001000000000000d03f01fc0000100002036f6c6401036e\
    6577003c0901d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511afc00\
    f1536540070707070707070707070707070707070707070707070707070707070707070707070707\
    07070707070707070707070707070707070707070707070707070707030200fd0000000001000000\
    3c4d0101f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d\
    000102f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d01\
    1e040103f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d\
    00020101030109090909090909090909090909090909020102020300040305010505050505050505\
    050505050505050506676f6c64656e00030200fd00000000010000003c63";

const CHANGES_3: &str = "\
    4244636803009163b863050a05010505050505050505050505050505050506676f6c64656e01f2cd\
    47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0201000000000000e03ffd8591e3655981a660\
    00000000000000f0bf000000000000084001000000000000d03f01fc0000100002036f6c6401036e\
    6577003c0901d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511afc00\
    f1536540070707070707070707070707070707070707070707070707070707070707070707070707\
    07070707070707070707070707070707070707070707070707070707030200fd0000000001000000\
    3c4d0101f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d\
    000102f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d01\
    1e040103f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d\
    00020101030109090909090909090909090909090909020102020300040305010505050505050505\
    050505050505050506676f6c64656e00030200fd00000000010000003c6306fb204efc0065cd1d";

/// The same with prices, and a day that was heard.
const STATE_3: &str = "\
    424473740300e7dad64f040100fc002f6859fc00ca9a3b01fb204efc0065cd1d01fb204e0301f2cd\
    47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0201000000000000e03ffd8591e3655981a660\
    00000000000000f0bf000000000000084001000000000000d03f01fc0000100002036f6c6401036e\
    6577003c09010001d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\
    fc00f153654007070707070707070707070707070707070707070707070707070707070707070707\
    070707070707070707070707070707070707070707070707070707070707030200fd000000000100\
    00003c6301020001fbc4eafb48ee010106676f6c64656ef2cd47e6e48cf3435ff11d3cb79bb5bb01\
    01fb48eefc880d010001090909090909090909090909090909090201020106676f6c64656e011e04\
    01050505050505050505050505050505050301010101fc0065cd1d";

/// The same in version 4, which has two accounts.
const LEDGER: &str = "\
    42446c670300c12dfd7307fc005ed0b2fc005ed0b200fc00ca9a3bfc00ca9a3b000201fc00ca9a3b\
    fc00ca9a3b0000fc00ca9a3bfc00ca9a3b0001fb214e";
const STATE: &str = "\
    424473740400ae18e6e3040100fc002f6859fc002f685900fc00ca9a3bfc00ca9a3b000100fc0065\
    cd1dfc0065cd1d0001fb204e0301f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e020100\
    0000000000e03ffd8591e3655981a66000000000000000f0bf000000000000084001000000000000\
    d03f01fc0000100002036f6c6401036e6577003c09010001d75a980182b10ab7d54bfed3c964073a\
    0ee172f3daa62325af021a68f707511afc00f1536540070707070707070707070707070707070707\
    07070707070707070707070707070707070707070707070707070707070707070707070707070707\
    070707070707030200fd00000000010000003c6301020001fbc4eafb48ee010106676f6c64656ef2\
    cd47e6e48cf3435ff11d3cb79bb5bb0101fb48eefc880d0100010909090909090909090909090909\
    09090201020106676f6c64656e011e0401050505050505050505050505050505050301010101fc00\
    65cd1d010001000100";
const CHANGES: &str = "\
    4244636804009205dd6f050a05010505050505050505050505050505050506676f6c64656e01f2cd\
    47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0201000000000000e03ffd8591e3655981a660\
    00000000000000f0bf000000000000084001000000000000d03f01fc0000100002036f6c6401036e\
    6577003c0901d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511afc00\
    f1536540070707070707070707070707070707070707070707070707070707070707070707070707\
    07070707070707070707070707070707070707070707070707070707030200fd0000000001000000\
    3c4d0101f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d\
    000102f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d01\
    1e040103f2cd47e6e48cf3435ff11d3cb79bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d\
    00020101030109090909090909090909090909090909020102020300040305010505050505050505\
    050505050505050506676f6c64656e00030200fd00000000010000003c6307fb204efc0065cd1dfc\
    0065cd1d00";

/// Shuffled reports.
const LEDGER_OF_BOTH: &str = "\
    42446c6703002a592b4b07fc00286beefc023fc6b8fd14f4059708000000fc002f6859fc81ba953e\
    fd0afa824b040000000302fc00ca9a3bfc00ca9a3b0001fc00ca9a3bfc00ca9a3b0000fc0065cd1d\
    fc81f0fa02fd0afa824b0400000001fb224e";
const STATE_SHUFFLED: &str = "\
    42447374040074ddfd84040100fc002f6859fc83d1f008fd1eee88e20c000000fc002f6859fc83d1\
    f008fd1eee88e20c0000000001fb204e03010150f1947e4ec566abf6a56e48b1c54d06676f6c6465\
    6e0201000000000000e03ffd8591e3655981a66000000000000000f0bf0000000000000840010000\
    00000000d03f01fc0000100002036f6c6401036e6577003c09010000030200fd0000000001000000\
    3c6301030001fbc4eafb48ee020106676f6c64656e0150f1947e4ec566abf6a56e48b1c54d0101fb\
    48eefc880d0100000206676f6c64656e0150f1947e4ec566abf6a56e48b1c54d0100fb48eefc880d\
    010000000105050505050505050505050505050505040101010102fc0065cd1dfc0065cd1d01fbe8\
    030101fc0065cd1dfc81f0fa02fd0afa824b040000000201fbe803fc0065cd1dfc81f0fa02fd0afa\
    824b040000000109090909090909090909090909090909fb204e01fbe803fc0065cd1dfc81f0fa02\
    fd0afa824b0400000000";
const CHANGES_SHUFFLED: &str = "\
    4244636804000610a839050908010505050505050505050505050505050506676f6c64656e010150\
    f1947e4ec566abf6a56e48b1c54d06676f6c64656e0201000000000000e03ffd8591e3655981a660\
    00000000000000f0bf000000000000084001000000000000d03f01fc0000100002036f6c6401036e\
    6577003c0900030200fd00000000010000003c4dfbe80309010150f1947e4ec566abf6a56e48b1c5\
    4d06676f6c64656e0164fbc4eafb48eefc0065cd1d00fc0065cd1dfc81f0fa02fd0afa824b040000\
    0009020150f1947e4ec566abf6a56e48b1c54d06676f6c64656e0164fbc4eafb48eefc0065cd1d00\
    fc0065cd1dfc81f0fa02fd0afa824b0400000009030150f1947e4ec566abf6a56e48b1c54d06676f\
    6c64656e0164fbc4eafb48eefc0065cd1d00fc0065cd1dfc81f0fa02fd0afa824b04000000020101\
    0202000a0109090909090909090909090909090909fb204e08010505050505050505050505050505\
    050506676f6c64656e00030200fd00000000010000003c63fbe80307fb204e000000";

#[cfg(feature = "trusted")]
const DISCLOSURES: &str = "\
    42446469010070ad2fa3020707070707070707070707070707070706676f6c64656e00fb2c010000\
    00000000e83f00fb204e0808080808080808080808080808080806676f6c64656e01020000000000\
    00e03f000000000000d0bf000000000000f0bf01fb214efb204e";

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").ok();
        hex
    })
}

fn at(milliseconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(milliseconds)
}

/// Debits of three reports: one that arrived on day 20 000, one on the next day, and one that has no
/// day yet.
fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    let price = Debit::unshuffled(NanoNats::new(1_000_000_000));
    for day in [20_000, 20_001] {
        ledger.debit(price);
        ledger.hear(Day::new(day), price);
    }
    ledger.debit(price);
    ledger
}

fn held(signed: bool) -> Result<CachedExperiment, Failure> {
    let epsilon = Epsilon::new(0.5)?;
    let specification = Specification::new(SpecificationParts {
        experiment_id: ExperimentId::new("golden")?,
        revision: Revision::new(2)?,
        simulation: true,
        epsilon,
        floor: Floor::for_epsilon(epsilon).get(),
        rewards: Rewards::new(
            RewardKind::Bounded,
            RewardRange::new(-1.0, 3.0)?,
            OutOfRange::Clamp,
            0.25,
        )?,
        mechanism: Mechanism::Quadratic(Curvature::new(0.5)?),
        arms: vec![Arm::new("old")?.retired(), Arm::new("new")?],
        timing: ReleaseTiming { attribution_window_seconds: 60, release_delay_seconds_max: 9 },
        batch: None,
    })?;
    // The public key of the first test of RFC 8032; the signature need not be valid.
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a".parse()?;
    let signature = Signature::new(key, UnixSeconds::new(1_700_000_000), [7; 64]);
    let weights = Weights::new(&[0, 1 << 32])?;
    Ok(CachedExperiment {
        specification: Arc::new(specification),
        signatures: if signed { vec![signature] } else { Vec::new() },
        policy: Policy { version: 3, weights, time_to_live_seconds: 60 },
        heard_at: at(77),
        store: Some(StoreId::new([5; 16])),
    })
}

/// The price of a report of the golden experiment.
const PRICE: Debit = Debit::unshuffled(NanoNats::new(500_000_000));

fn direct() -> Sealed {
    Sealed::Direct(UploadTask::from_parts(UploadId::new([9; 16]), vec![1, 2]))
}

fn report(number: u8) -> Result<PrivateReport, Failure> {
    PrivateReport::restored(number).ok_or_else(|| "no report says that".into())
}

/// Every kind of change, starting from an empty state.
fn changes() -> Result<Vec<Change>, Failure> {
    let held = held(true)?;
    let digest = held.specification.digest();
    let experiment_id = held.specification.experiment_id().clone();
    let draw = |id: u64, once| -> Result<Change, Failure> {
        Ok(Change::Drawn(Draw {
            id: AssignmentId::new(id),
            digest,
            experiment_id: experiment_id.clone(),
            arm: ArmIndex::new(1)?,
            chosen_at: at(100),
            rewards_until: at(60_100),
            release_at: at(61_000),
            price: PRICE,
            once,
        }))
    };
    let id = AssignmentId::new(1);
    let again = CachedExperiment { heard_at: at(99), ..held.clone() };
    Ok(vec![
        Change::Heard { held, anew: true },
        draw(1, None)?,
        draw(2, Some(Epoch { days: 30, number: 4 }))?,
        draw(3, None)?,
        Change::Privatized { id, report: report(1)? },
        Change::Sealed { id, sealed: direct() },
        Change::Privatized { id: AssignmentId::new(3), report: report(0)? },
        Change::Settled { id: AssignmentId::new(3) },
        Change::Heard { held: again, anew: false },
        Change::DayHeard { day: Day::new(20_000), settled: PRICE },
    ])
}

fn state() -> Result<State, Failure> {
    let mut state = State::default();
    for change in changes()? {
        state.apply(&change, 0).map_err(|_| format!("{change:?}"))?;
    }
    Ok(state)
}

/// A day with a shuffled report among others, and one that has no day yet.
fn ledger_of_both_accounts() -> Ledger {
    let mut ledger = ledger();
    for _ in 0..2 {
        ledger.debit(SHUFFLED);
    }
    ledger.hear(Day::new(20_002), SHUFFLED);
    ledger
}

/// The price of a report of the golden experiment in its batches.
const SHUFFLED: Debit = Debit {
    local: PRICE.local,
    central: NanoNats::new(50_000_001),
    delta: DeltaUnits::new(18_446_744_074),
};

/// Every kind of change that is different for shuffled reports, starting from an empty state.
fn shuffled_changes() -> Result<Vec<Change>, Failure> {
    let held = held(false)?;
    let specification = held.specification.in_batches(BatchSize::new(1000)?)?;
    let held = CachedExperiment { specification: Arc::new(specification), ..held };
    let digest = held.specification.digest();
    let draw = |id: u64| -> Result<Change, Failure> {
        Ok(Change::Drawn(Draw {
            id: AssignmentId::new(id),
            digest,
            experiment_id: ExperimentId::new("golden")?,
            arm: ArmIndex::new(1)?,
            chosen_at: at(100),
            rewards_until: at(60_100),
            release_at: at(61_000),
            price: SHUFFLED,
            once: None,
        }))
    };
    let sealed = Sealed::Shuffled { id: UploadId::new([9; 16]), day: Day::new(20_000) };
    let (first, second) = (AssignmentId::new(1), AssignmentId::new(2));
    let again = CachedExperiment { heard_at: at(99), ..held.clone() };
    Ok(vec![
        Change::Heard { held, anew: true },
        draw(1)?,
        draw(2)?,
        draw(3)?,
        Change::Privatized { id: first, report: report(1)? },
        Change::Privatized { id: second, report: report(0)? },
        Change::Sealed { id: first, sealed },
        Change::Heard { held: again, anew: false },
        Change::DayHeard { day: Day::new(20_000), settled: Debit::ZERO },
    ])
}

fn state_of(changes: &[Change]) -> Result<State, Failure> {
    let mut state = State::default();
    for change in changes {
        state.apply(change, 0).map_err(|_| format!("{change:?}"))?;
    }
    Ok(state)
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
fn one_account_is_read_as_two_that_are_the_same() -> Result<(), Failure> {
    let (number, read) = stored::from_bytes::<StoredLedger>(&bytes(LEDGER_2)?)?.into_parts();
    assert_eq!((number, read), (7, ledger()));
    assert_eq!(ledger().lifetime(), Debit::unshuffled(NanoNats::new(3_000_000_000)));
    Ok(())
}

#[test]
fn golden_bytes() -> Result<(), Failure> {
    let ledger = stored::to_bytes(&StoredLedger::new(7, &ledger()))?;
    let rewards = PendingRewards(vec![PendingReward { assignment: 300, sum: 0.75 }]);
    let state = stored::to_bytes(&StoredState::new(&state()?, 4, true))?;
    let changes = stored::to_bytes(&StoredChanges::new(5, &changes()?))?;
    assert_eq!(hex(&ledger), LEDGER);
    assert_eq!(hex(&stored::to_bytes(&StoredDone(300))?), DONE);
    assert_eq!(hex(&stored::to_bytes(&rewards)?), REWARDS);
    assert_eq!(hex(&state), STATE);
    assert_eq!(hex(&changes), CHANGES);
    Ok(())
}

fn bytes(hex: &str) -> Result<Vec<u8>, Failure> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

#[test]
fn earlier_versions_are_read() -> Result<(), Failure> {
    for (version, bytes_of_state, bytes_of_changes) in
        [(1, STATE_1, CHANGES_1), (2, STATE_2, CHANGES_2), (3, STATE_3, CHANGES_3)]
    {
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
fn the_days_of_a_device_count_until_a_server_has_told_its_own() -> Result<(), Failure> {
    let (number, mut ledger) = stored::from_bytes::<StoredLedger>(&bytes(LEDGER_1)?)?.into_parts();
    let both = Debit::unshuffled(NanoNats::new(2_000_000_000));
    assert_eq!((number, ledger.lifetime(), ledger.undated()), (7, both, both));
    ledger.hear(Day::new(20_000), both);
    assert_eq!(ledger.days().collect::<Vec<_>>(), [(Day::new(20_000), both)]);
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
    let digest = specification.digest();
    let held = CachedExperiment { specification: Arc::new(specification), ..held(false)? };
    let mut changes = vec![Change::Heard { held, anew: true }];
    for (number, change) in (1..).zip(changes_of_golden_draws(digest)?) {
        changes.extend([
            change,
            Change::Privatized { id: AssignmentId::new(number), report: report(4)? },
        ]);
    }
    let mut state = State::default();
    for change in &changes {
        state.apply(change, 0).map_err(|_| format!("{change:?}"))?;
    }
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

/// Two draws of an experiment named "categories".
fn changes_of_golden_draws(digest: Digest) -> Result<Vec<Change>, Failure> {
    let draw = |id| -> Result<Change, Failure> {
        Ok(Change::Drawn(Draw {
            id: AssignmentId::new(id),
            digest,
            experiment_id: ExperimentId::new("categories")?,
            arm: ArmIndex::new(1)?,
            chosen_at: at(100),
            rewards_until: at(60_100),
            release_at: at(61_000),
            price: Debit::unshuffled(NanoNats::new(2_000_000_000)),
            once: None,
        }))
    };
    [1, 2].into_iter().map(draw).collect()
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
