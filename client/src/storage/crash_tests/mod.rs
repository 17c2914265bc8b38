//! At every failure: no bit leaves that the reopened ledger does not include, and no assignment is
//! reported twice.

use std::collections::{BTreeMap, BTreeSet};

use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::cells::Measurement;
use bandana_shared::channel::Floor;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{CellIndex, ExperimentId, Revision, StoreId, UploadId};
use bandana_shared::participation::Participation;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use bandana_shared::upload::Upload;
use bandana_shared::wire::v1::UploadRequest;
use prost::Message as _;

use super::Storage;
use super::double::{Disk, Fault};
use crate::acceptance::Acceptance;
use crate::assignment::AssignmentId;
use crate::budget::Budget;
use crate::core::{ClientError, Core, FetchTask, Fetched, Task};
use crate::noise::{NoiseSource as _, SeededNoise};
use crate::outbox::{UploadOutcome, UploadTask};
use crate::reward::Reward;
use crate::time::Timestamp;

mod costs;
mod files;
mod rewards;
#[cfg(feature = "relay")]
mod shuffled;

type Failure = Box<dyn std::error::Error>;

const SECONDS: u64 = 60;

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_700_000_000_000 + second * 1000)
}

fn id() -> Result<ExperimentId, Failure> {
    Ok(ExperimentId::new("crashes")?)
}

fn specification() -> Result<Specification, Failure> {
    let epsilon = Epsilon::new(1.0)?;
    Ok(Specification::new(SpecificationParts {
        experiment_id: id()?,
        revision: Revision::FIRST,
        simulation: true,
        epsilon,
        floor: Floor::for_epsilon(epsilon).get(),
        // A reward can have bytes that nothing else has.
        rewards: Rewards::bounded(RewardRange::new(0.0, 1.0)?),
        mechanism: Mechanism::Linear,
        arms: vec![Arm::new("a")?, Arm::new("b")?],
        timing: ReleaseTiming { attribution_window_seconds: 5, release_delay_seconds_max: 10 },
        batch: None,
        participation: Participation::EVERYONE,
        measurement: Measurement::REWARDS_ONLY,
    })?)
}

fn budget() -> Result<Budget, Failure> {
    Ok(Budget::new(PrivacyLoss::new(7.0)?, 7, PrivacyLoss::new(100.0)?)?)
}

/// Whether an app believes the relay that shuffles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Believes {
    Yes,
    /// Until the next restart, and from every second one on.
    No,
}

/// An upload as the server counts it: its id, and its content without the seals.
type Content = (UploadId, Vec<u8>);

/// The content, arm and length of an upload to the aggregator itself.
fn direct(task: &UploadTask) -> Result<(Content, usize, usize), Failure> {
    let sent = Upload::try_from(&UploadRequest::decode(task.bytes())?)?;
    let arm = sent.reports.last_cell().map(CellIndex::get).unwrap_or_default();
    Ok(((task.id(), task.bytes().to_vec()), arm, task.bytes().len()))
}

/// A device on a faulty disk, and the server's view of it.
struct Device {
    disk: Disk,
    seed: u64,
    starts: u64,
    keeps_rewards: bool,
    /// Whether the app believes a relay, if its experiment's reports are shuffled.
    shuffling: Option<Believes>,
    /// Whether the answer to the first attempt of every second upload is lost.
    loses_answers: bool,
    storage: Storage,
    core: Core<SeededNoise>,
    /// Time, arm and length of every upload.
    seen: Vec<(u64, usize, usize)>,
    /// The upload of every assignment that was reported.
    reported: BTreeMap<AssignmentId, (UploadId, Vec<u8>)>,
    attempts: BTreeMap<AssignmentId, u32>,
    /// Assignments that were there after a restart.
    durable: BTreeSet<AssignmentId>,
}

impl Device {
    fn start(disk: Disk, seed: u64, keeps_rewards: bool) -> Result<Self, Failure> {
        let opened = Storage::open(Box::new(disk.clone()), true, keeps_rewards)?;
        let noise = SeededNoise::new(seed, 0);
        let core = Core::restored(noise, budget()?, opened.1, keeps_rewards);
        let mut device = Self {
            disk,
            seed,
            starts: 0,
            keeps_rewards,
            shuffling: None,
            loses_answers: true,
            storage: opened.0,
            core,
            seen: Vec::new(),
            reported: BTreeMap::new(),
            attempts: BTreeMap::new(),
            durable: BTreeSet::new(),
        };
        device.enroll(0)?;
        Ok(device)
    }

    fn enroll(&mut self, second: u64) -> Result<(), Failure> {
        let specification = specification()?;
        let acceptance = Acceptance::unsigned(specification.epsilon(), specification.rewards());
        #[cfg(feature = "relay")]
        let (specification, acceptance) =
            shuffled::agreed(self.shuffling, specification, acceptance)?;
        self.core.enroll(id()?, acceptance);
        let weights = Weights::uniform(&[true, true])?;
        let policy = Policy { version: 1, weights, time_to_live_seconds: 1000 };
        let day = at(second).day();
        let fetched = Fetched {
            specification,
            signatures: Vec::new(),
            policy,
            day,
            store: Some(StoreId::new([7; 16])),
            view: None,
        };
        match self.core.on_fetched(&FetchTask::new(id()?), fetched, at(second)) {
            Err(ClientError::Refused(_)) if self.shuffling == Some(Believes::No) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Restarts after a power cut.
    fn restart(&mut self, second: u64) -> Result<(), Failure> {
        self.disk.reboot();
        self.start_again(second)
    }

    /// Restarts after the end of the process.
    fn start_again(&mut self, second: u64) -> Result<(), Failure> {
        self.starts += 1;
        self.shuffling = self.shuffling.map(|believes| match believes {
            Believes::Yes => Believes::No,
            Believes::No => Believes::Yes,
        });
        let opened = Storage::open(Box::new(self.disk.clone()), true, self.keeps_rewards)?;
        self.storage = opened.0;
        let noise = SeededNoise::new(self.seed, self.starts);
        self.core = Core::restored(noise, budget()?, opened.1, self.keeps_rewards);
        self.check_ledger()?;
        self.durable = self.core.assignments().collect();
        self.durable.extend(self.reported.keys());
        self.enroll(second)
    }

    /// Checks that the ledger includes every sent report, and is within the budget.
    fn check_ledger(&self) -> Result<(), Failure> {
        let price = NanoNats::from_epsilon(Epsilon::new(1.0)?);
        let left = price.checked_mul(self.reported.len() as u64).ok_or("overflow")?;
        let spent = self.core.spent();
        assert!(spent.lifetime >= left, "{} uploads left, {spent:?}", self.reported.len());
        assert!(spent.lifetime <= budget()?.window(), "{spent:?}");
        if self.shuffling.is_none() {
            assert_eq!(spent.central_lifetime.epsilon, spent.lifetime);
        }
        #[cfg(feature = "relay")]
        shuffled::check_ledger(self)?;
        Ok(())
    }

    /// Makes the pending writes, and returns whether one succeeded.
    fn write(&mut self, second: u64) -> bool {
        let mut some = false;
        while let Some(write) = self.core.take_write(at(second)) {
            let written = self.storage.commit(&write).is_ok();
            self.core.on_written(written, at(second));
            some |= written;
        }
        if let Some(rewards) = self.core.take_rewards(at(second)) {
            let kept = self.storage.keep_rewards(&rewards).is_ok();
            self.core.on_rewards_written(kept, at(second));
        }
        some
    }

    /// Sends due uploads to a server whose first answer about every second assignment is lost.
    fn send(&mut self, second: u64) -> Result<(), Failure> {
        loop {
            let task = self.core.next_task(at(second))?;
            let written = self.write(second);
            match task {
                Task::Upload(task) => {
                    assert_eq!(self.shuffling, None, "sent to the aggregator itself");
                    self.deliver(second, direct(&task)?)?;
                }
                #[cfg(feature = "relay")]
                Task::Shuffled(task) => {
                    assert_eq!(self.shuffling, Some(Believes::Yes), "sent to a relay");
                    self.deliver(second, shuffled::opened(&task)?)?;
                }
                #[cfg(not(feature = "relay"))]
                Task::Shuffled(task) => return Err(format!("{task:?}").into()),
                Task::Fetch(_) => self.enroll(second)?,
                // A report that was sealed just now can leave once it is written.
                Task::Wait(_) | Task::Done if written => {}
                Task::Wait(_) | Task::Done => return Ok(()),
            }
        }
    }

    /// Sends an upload, whose first answer may be lost.
    fn deliver(
        &mut self,
        second: u64,
        (upload, arm, length): (Content, usize, usize),
    ) -> Result<(), Failure> {
        let id = upload.0;
        let assignment = self.core.assignment_of(id).ok_or("unknown upload")?;
        if let Some(before) = self.reported.get(&assignment) {
            assert_eq!(*before, upload, "reported twice");
        } else {
            self.seen.push((second, arm, length));
            self.reported.insert(assignment, upload);
        }
        let attempts = self.attempts.entry(assignment).or_default();
        *attempts += 1;
        let lost = self.loses_answers && assignment.get() % 2 == 0 && *attempts == 1;
        let retry = UploadOutcome::Unanswered { retry_after: None };
        let outcome = if lost { retry } else { UploadOutcome::Duplicate };
        Ok(self.core.on_upload_result(id, &outcome, at(second))?)
    }

    /// Simulates one minute of a user who gets an arm every four seconds and reacts by `reward`, on
    /// a faulty disk. Then the disk works, and all reports are sent.
    fn live(&mut self, reward: impl Fn(u64) -> Option<f64>) -> Result<(), Failure> {
        let mut given = Vec::new();
        for second in 0..SECONDS {
            if second % 4 == 0
                && let Ok(chosen) = self.core.draw(&id()?, at(second))
            {
                given.push(chosen.id());
            }
            if let Some(reward) = reward(second) {
                for id in &given {
                    self.core.reward(*id, Reward::new(reward)?, at(second)).ok();
                }
            }
            self.write(second);
            if !self.disk.has_crashed() {
                self.send(second)?;
            }
            if self.disk.has_crashed() {
                self.restart(second)?;
            }
        }
        self.disk.fail_at(None);
        for minute in 1..200 {
            self.write(SECONDS + 60 * minute);
            self.send(SECONDS + 60 * minute)?;
        }
        self.check_ledger()?;
        self.seen.sort_unstable();
        Ok(())
    }
}

fn liked(second: u64) -> Option<f64> {
    (second % 5 == 1).then_some(1.0)
}

/// Number of operations of a run without faults.
fn operations(keeps_rewards: bool) -> Result<u32, Failure> {
    let mut device = Device::start(Disk::new(1, None), 1, keeps_rewards)?;
    device.live(liked)?;
    assert_eq!(device.reported.len(), 7, "the budget of the window");
    Ok(device.disk.operations())
}

fn one_life(seed: u64, fault: (u32, Fault), keeps_rewards: bool) -> Result<Device, Failure> {
    let disk = Disk::new(seed, Some(fault));
    let mut device = Device::start(disk, seed, keeps_rewards)?;
    device.live(liked)?;
    assert_eq!(device.core.waiting_reports(), 0);
    for assignment in &device.durable {
        assert!(device.reported.contains_key(assignment), "{assignment:?} was never reported");
    }
    Ok(device)
}

#[test]
fn killed_at_any_operation_nothing_leaves_that_the_ledger_does_not_know() -> Result<(), Failure> {
    for keeps_rewards in [false, true] {
        let operations = operations(keeps_rewards)?;
        assert!(operations > 30, "{operations}");
        for operation in 0..operations {
            for seed in 0..8 {
                let fault = (operation, Fault::Crash);
                let device = one_life(seed, fault, keeps_rewards)
                    .map_err(|error| format!("operation {operation}, seed {seed}: {error}"))?;
                // What was drawn since the last report was handed out may be lost.
                assert!(device.reported.len() >= 3, "{}", device.reported.len());
            }
        }
    }
    Ok(())
}

#[test]
fn a_disk_that_fails_for_a_while_costs_no_report() -> Result<(), Failure> {
    let operations = operations(false)?;
    for operation in 0..operations {
        for (seed, fault) in [(0, Fault::Error), (1, Fault::Error), (2, Fault::Errors(10))] {
            let device = one_life(seed, (operation, fault), false)
                .map_err(|error| format!("operation {operation}, seed {seed}: {error}"))?;
            assert_eq!(device.reported.len(), 7, "operation {operation}, seed {seed}");
        }
    }
    Ok(())
}

#[test]
fn an_error_and_then_a_crash() -> Result<(), Failure> {
    let operations = operations(false)?;
    for operation in 0..operations {
        for later in 1..12 {
            let seed = u64::from(operation * 12 + later);
            let disk = Disk::new(seed, Some((operation, Fault::Error)));
            let mut device = Device::start(disk.clone(), seed, false)?;
            // The crash comes `later` operations after the error.
            let mut second = 0;
            while disk.operations() <= operation && second < SECONDS {
                device.core.draw(&id()?, at(second)).ok();
                device.write(second);
                device.send(second)?;
                second += 1;
            }
            disk.fail_at(Some((disk.operations() + later, Fault::Crash)));
            device.live(liked).map_err(|error| format!("{operation}, {later}: {error}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_killed_process_and_then_a_power_cut() -> Result<(), Failure> {
    // The next start may read data that only the operating system's cache holds.
    for operation in 0..12 {
        for seed in 0..16 {
            let disk = Disk::new(seed, None);
            let mut device = Device::start(disk.clone(), seed, false)?;
            device.core.draw(&id()?, at(0))?;
            device.write(0);
            disk.fail_at(Some((disk.operations() + operation, Fault::Crash)));
            // Privatized and sealed in one write.
            device.core.next_task(at(20))?;
            device.write(20);
            disk.fail_at(None);
            disk.revive();
            let opened = Storage::open(Box::new(disk.clone()), true, false)?;
            device.starts += 1;
            device.storage = opened.0;
            let noise = SeededNoise::new(seed, device.starts);
            device.core = Core::restored(noise, budget()?, opened.1, false);
            // This driver sends before it writes.
            let first = match device.core.next_task(at(21))? {
                Task::Upload(task) => Some(task),
                _ => None,
            };
            device.restart(22)?;
            device.send(22)?;
            let second = device.reported.values().next().ok_or("nothing was sent")?;
            if let Some(first) = first {
                let first = (first.id(), first.bytes().to_vec());
                assert_eq!(first, *second, "operation {operation}, seed {seed}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_killed_process_and_then_a_power_cut_in_the_first_write() -> Result<(), Failure> {
    for killed in 0..8 {
        for cut in 0..12 {
            for seed in 0..8 {
                let place = || format!("killed at {killed}, cut at {cut}, seed {seed}");
                let disk = Disk::new(seed, None);
                let mut device = Device::start(disk.clone(), seed, false)?;
                device.core.draw(&id()?, at(0))?;
                device.write(0);
                disk.fail_at(Some((disk.operations() + killed, Fault::Crash)));
                device.core.next_task(at(20))?;
                device.write(20);
                disk.fail_at(None);
                disk.revive();
                device.start_again(21)?;
                disk.fail_at(Some((disk.operations() + cut, Fault::Crash)));
                device.write(21);
                disk.fail_at(None);
                device.restart(22).map_err(|error| format!("{}: {error}", place()))?;
                device.send(22)?;
                assert!(device.reported.len() <= 1, "{}", place());
            }
        }
    }
    Ok(())
}

/// Two clients that no lock has kept apart: the second one has read the state before the first one
/// appends to it.
#[test]
fn no_assignment_is_restored_that_the_ledger_does_not_know() -> Result<(), Failure> {
    let price = NanoNats::from_epsilon(Epsilon::new(1.0)?);
    for operation in 0..14 {
        for seed in 0..4 {
            let disk = Disk::new(seed, None);
            let mut first = Device::start(disk.clone(), seed, false)?;
            first.write(0);
            let mut second = Device::start(disk.clone(), seed, false)?;
            first.core.draw(&id()?, at(1))?;
            first.write(1);
            disk.fail_at(Some((disk.operations() + operation, Fault::Crash)));
            second.write(1);
            disk.fail_at(None);
            disk.reboot();
            // To refuse the files is safe.
            let Ok((_, (state, _))) = Storage::open(Box::new(disk.clone()), true, false) else {
                continue;
            };
            let assignments = state.open.len() as u64;
            let due = price.checked_mul(assignments).ok_or("overflow")?;
            let paid = state.ledger.lifetime().local;
            assert!(paid >= due, "operation {operation}, seed {seed}: {paid:?} of {due:?}");
        }
    }
    Ok(())
}

/// Crashes up to six times within few operations of each start, with or without an earlier error.
fn many_deaths(seed: u64, first: Fault) -> Result<(), Failure> {
    let mut chance = SeededNoise::new(seed, 1000);
    let mut below = |bound: u32| -> Result<u32, Failure> {
        Ok(u32::try_from(chance.word()? % u64::from(bound))?)
    };
    let first_at = below(60)?;
    let disk = Disk::new(seed, Some((first_at, first)));
    let mut device = Device::start(disk.clone(), seed, seed.is_multiple_of(2))?;
    let mut deaths = 0;
    for second in 0..SECONDS {
        if second.is_multiple_of(4) {
            device.core.draw(&id()?, at(second)).ok();
        }
        device.write(second);
        if !disk.has_crashed() {
            device.send(second)?;
        }
        while disk.has_crashed() {
            device.restart(second)?;
            deaths += 1;
            let again = (disk.operations() + below(14)?, Fault::Crash);
            disk.fail_at((deaths < 6).then_some(again));
            device.write(second);
        }
        if first == Fault::Error && deaths == 0 && disk.operations() > first_at + 1 {
            disk.fail_at(Some((disk.operations() + below(14)?, Fault::Crash)));
        }
    }
    disk.fail_at(None);
    for minute in 1..100 {
        device.write(SECONDS + 60 * minute);
        device.send(SECONDS + 60 * minute)?;
    }
    device.check_ledger()
}

#[test]
fn many_deaths_in_a_row() -> Result<(), Failure> {
    for seed in 0..400 {
        for first in [Fault::Crash, Fault::Error] {
            many_deaths(seed, first).map_err(|error| format!("seed {seed}, {first:?}: {error}"))?;
        }
    }
    Ok(())
}

#[test]
fn rewards_change_nothing_that_can_be_seen_whenever_the_process_is_killed() -> Result<(), Failure> {
    let patterns: [fn(u64) -> Option<f64>; 4] =
        [|_| None, liked, |_| Some(0.0), |second| Some(f64::from(u8::from(second > 30)))];
    for operation in (0..operations(false)?).step_by(3) {
        let mut before: Option<Vec<(u64, usize, usize)>> = None;
        for pattern in patterns {
            let disk = Disk::new(5, Some((operation, Fault::Crash)));
            let mut device = Device::start(disk, 5, false)?;
            // The wait after a lost answer is random, and other uploads wait with it.
            device.loses_answers = false;
            device.live(pattern)?;
            let first = before.get_or_insert_with(|| device.seen.clone());
            assert_eq!(*first, device.seen, "operation {operation}");
        }
    }
    Ok(())
}
