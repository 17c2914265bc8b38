//! Ledgers, changes and states of a device, for tests of what is stored.

use std::sync::Arc;

use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::cells::{Cell, Measurement, Metric, Segmentation};
use bandana_shared::channel::Floor;
use bandana_shared::context::PrivateContext;
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{
    ArmIndex, CellIndex, Day, ExperimentId, Revision, StoreId, UnixSeconds, UploadId,
};
use bandana_shared::participation::{Layer, Millionths, Participation, Sticky};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::signing::Signature;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};

use crate::assignment::AssignmentId;
use crate::core::{CachedExperiment, Change, Draw, State};
use crate::debit::Debit;
use crate::ledger::Ledger;
use crate::membership::Secret;
use crate::outbox::{Sealed, UploadTask};
use crate::privatizer::PrivateReport;
use crate::time::Timestamp;

pub(super) type Failure = Box<dyn std::error::Error>;

pub(super) fn at(milliseconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(milliseconds)
}

/// Debits of three reports: one that arrived on day 20 000, one on the next day, and one that has no
/// day yet.
pub(super) fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    let price = Debit::unshuffled(NanoNats::new(1_000_000_000));
    for day in [20_000, 20_001] {
        ledger.debit(price);
        ledger.hear(Day::new(day), price);
    }
    ledger.debit(price);
    ledger
}

pub(super) fn held(signed: bool) -> Result<CachedExperiment, Failure> {
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
        participation: Participation::EVERYONE,
        measurement: Measurement::REWARDS_ONLY,
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
pub(super) const PRICE: Debit = Debit::unshuffled(NanoNats::new(500_000_000));

/// The last day of the fifth period of 30 days, which earlier versions stored in place of a day.
pub(super) const LAST_DAY: Day = Day::new(149);

pub(super) fn direct() -> Sealed {
    Sealed::Direct(UploadTask::from_parts(UploadId::new([9; 16]), vec![1, 2]))
}

pub(super) fn report(number: u8) -> Result<PrivateReport, Failure> {
    PrivateReport::restored(number).ok_or_else(|| "no report says that".into())
}

/// Every kind of change, starting from an empty state.
pub(super) fn changes() -> Result<Vec<Change>, Failure> {
    let held = held(true)?;
    let draw = |id, day| draw(id, &held.specification, PRICE, day);
    let id = AssignmentId::new(1);
    let again = CachedExperiment { heard_at: at(99), ..held.clone() };
    Ok(vec![
        Change::Heard { held: held.clone(), anew: true },
        draw(1, None)?,
        draw(2, Some(LAST_DAY))?,
        draw(3, None)?,
        Change::Privatized { id, report: report(1)? },
        Change::Sealed { id, sealed: direct() },
        Change::Privatized { id: AssignmentId::new(3), report: report(0)? },
        Change::Settled { id: AssignmentId::new(3) },
        Change::Heard { held: again, anew: false },
        Change::DayHeard { day: Day::new(20_000), settled: PRICE },
    ])
}

pub(super) fn state() -> Result<State, Failure> {
    state_of(&changes()?)
}

/// A day with a shuffled report among others, and one that has no day yet.
pub(super) fn ledger_of_both_accounts() -> Ledger {
    let mut ledger = ledger();
    for _ in 0..2 {
        ledger.debit(SHUFFLED);
    }
    ledger.hear(Day::new(20_002), SHUFFLED);
    ledger
}

/// The price of a report of the golden experiment in its batches.
pub(super) const SHUFFLED: Debit = Debit {
    local: PRICE.local,
    central: NanoNats::new(50_000_001),
    delta: DeltaUnits::new(18_446_744_074),
};

/// Every kind of change that is different for shuffled reports, starting from an empty state.
pub(super) fn shuffled_changes() -> Result<Vec<Change>, Failure> {
    let held = held(false)?;
    let specification = held.specification.in_batches(BatchSize::new(1000)?)?;
    let held = CachedExperiment { specification: Arc::new(specification), ..held };
    let draw = |id| draw(id, &held.specification, SHUFFLED, None);
    let sealed = Sealed::Shuffled { id: UploadId::new([9; 16]), day: Day::new(20_000) };
    let (first, second) = (AssignmentId::new(1), AssignmentId::new(2));
    let again = CachedExperiment { heard_at: at(99), ..held.clone() };
    Ok(vec![
        Change::Heard { held: held.clone(), anew: true },
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

/// Every kind of change of an experiment that is for a part of the installations, starting from an
/// empty state.
pub(super) fn partial_changes() -> Result<Vec<Change>, Failure> {
    let held = held(false)?;
    let specification = held.specification.for_part(Participation {
        sticky: Some(Sticky { report_days: 28, ..Sticky::DEFAULT }),
        layer: Some("checkout:0.25-0.75".parse::<Layer>()?),
        enrolment: Millionths::from_share(0.5)?,
    })?;
    let held = CachedExperiment { specification: Arc::new(specification), ..held };
    let experiment_id = held.specification.experiment_id().clone();
    let draw = draw(1, &held.specification, PRICE, Some(Day::new(20_000)))?;
    Ok(vec![
        Change::Heard { held, anew: true },
        Change::SecretDrawn(Secret::from_bytes([3; 32])),
        draw,
        Change::Kept { experiment_id, arm: ArmIndex::new(0)? },
    ])
}

/// Changes of an experiment with segments, metrics and this holdout, starting from an empty state: the
/// draw is of the second arm, for the second segment and the first metric, and is held out if any are.
pub(super) fn measuring_changes(holdout: Millionths) -> Result<Vec<Change>, Failure> {
    let held = held(false)?;
    let range = RewardRange::new(-1.0, 60.0)?;
    let minutes = Rewards::new(RewardKind::Bounded, range, OutOfRange::Refuse, -1.0)?;
    let minutes = Metric::new("minutes", minutes, Millionths::from_share(0.1)?)?;
    let specification = held.specification.measuring(Measurement {
        segmentations: "platform=ios,android".parse::<Segmentation>()?.into(),
        metrics: vec!["returned:0.2:at-most=0.3".parse()?, minutes],
        holdout,
        ..Measurement::REWARDS_ONLY
    })?;
    let list = held.policy.weights.clone();
    let weights = list.clone().with_segments(&[list.clone(), list])?;
    let policy = Policy { weights, ..held.policy.clone() };
    let held = CachedExperiment { specification: Arc::new(specification), policy, ..held };
    let is_held_out = holdout != Millionths::NONE;
    let cell = Cell { segment: 1, is_held_out, metric: 1, ..Cell::of(ArmIndex::new(1)?) };
    let cell = held.specification.cells().index(cell);
    let Change::Drawn(draw) = draw(1, &held.specification, PRICE, Some(Day::new(20_000)))? else {
        return Err("not a draw".into());
    };
    Ok(vec![Change::Heard { held, anew: true }, Change::Drawn(Draw { cell, ..draw })])
}

/// Changes of an experiment with a private context, starting from an empty state: the draw is of the
/// second arm, and of the second feature.
pub(super) fn private_changes() -> Result<Vec<Change>, Failure> {
    let held = held(false)?;
    let context = PrivateContext::new(
        vec!["weekend=0.29".parse()?, "returning".parse()?],
        Millionths::from_share(0.2)?,
    )?;
    let specification = Specification::new(SpecificationParts {
        mechanism: Mechanism::Linear,
        measurement: Measurement { context: Some(context), ..Measurement::REWARDS_ONLY },
        ..held.specification.to_parts()
    })?;
    let list = held.policy.weights.clone();
    let weights = list.clone().with_segments(&[list.clone(), list.clone(), list])?;
    let policy = Policy { weights, ..held.policy.clone() };
    let held = CachedExperiment { specification: Arc::new(specification), policy, ..held };
    let cell = Cell { coordinate: 2, ..Cell::of(ArmIndex::new(1)?) };
    let cell = held.specification.cells().index(cell);
    let Change::Drawn(draw) = draw(1, &held.specification, PRICE, Some(Day::new(20_000)))? else {
        return Err("not a draw".into());
    };
    Ok(vec![Change::Heard { held, anew: true }, Change::Drawn(Draw { cell, ..draw })])
}

pub(super) fn state_of(changes: &[Change]) -> Result<State, Failure> {
    let mut state = State::default();
    for change in changes {
        state.apply(change, 0).map_err(|_| format!("{change:?}"))?;
    }
    Ok(state)
}

/// A draw of the second arm.
pub(super) fn draw(
    id: u64,
    specification: &Specification,
    price: Debit,
    day: Option<Day>,
) -> Result<Change, Failure> {
    Ok(Change::Drawn(Draw {
        id: AssignmentId::new(id),
        digest: specification.digest(),
        experiment_id: specification.experiment_id().clone(),
        cell: CellIndex::new(1)?,
        chosen_at: at(100),
        rewards_until: at(60_100),
        release_at: at(61_000),
        price,
        day,
    }))
}
