//! At every failure: no kept disclosure is lost, none is sent under two names, and the ledger forgets
//! none that has left.

use std::collections::{BTreeMap, BTreeSet};

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::wire::v1::disclose_request::Played;
use prost::Message as _;

use super::disclosures::{KeepError, WAITING_DAYS_MAX, WAITING_MAX};
use super::waiting::{Name, Waiting};
use super::{Disclosure, RhoBudget};
use crate::noise::{NoiseSource as _, SeededNoise};
use crate::storage::{Disk, Fault, StorageError};

type Failure = Box<dyn std::error::Error>;

const KEPT: u32 = 20;

const PRICE: NanoNats = NanoNats::new(100_000_000);

fn id() -> Result<ExperimentId, Failure> {
    Ok(ExperimentId::new("crashes")?)
}

/// The disclosure with this number.
fn disclosure(number: u32) -> Result<Disclosure, Failure> {
    let name = SeededNoise::new(7, u64::from(number)).unique_name()?;
    let made = Disclosure::restored(id()?, name, Played::Arm(number), 0.5, None);
    made.ok_or_else(|| "no disclosure".into())
}

/// A device on a faulty disk, and the disclosures that a server received from it.
struct Device {
    disk: Disk,
    waiting: Waiting,
    /// Disclosures that `keep` has acknowledged.
    durable: BTreeSet<Name>,
    /// Disclosures erased after the server's verdict.
    erased: BTreeSet<Name>,
    heard: BTreeMap<Name, Vec<u8>>,
}

impl Device {
    fn start(disk: Disk) -> Result<Self, Failure> {
        let waiting = Waiting::open(Box::new(Disk::new(0, None)), RhoBudget::UNLIMITED)?;
        let (durable, erased, heard) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let mut device = Self { disk, waiting, durable, erased, heard };
        device.open()?;
        Ok(device)
    }

    /// Opens the directory, with a reboot after each power cut.
    fn open(&mut self) -> Result<(), Failure> {
        loop {
            match Waiting::open(Box::new(self.disk.clone()), RhoBudget::UNLIMITED) {
                Ok(waiting) => {
                    self.waiting = waiting;
                    let counted = self.waiting.spent_on(&id()?);
                    assert!(counted.rewards >= self.heard.len() as u64, "a debit was forgotten");
                    assert!(self.heard.is_empty() || counted.price == PRICE);
                    return Ok(());
                }
                Err(StorageError::Io { .. }) => self.disk.reboot(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn keep(&mut self, number: u32) -> Result<(), Failure> {
        let disclosure = disclosure(number)?;
        let name = disclosure.name();
        match self.waiting.keep(disclosure) {
            Ok(()) => drop(self.durable.insert(name)),
            Err(KeepError::NotDurable(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Sends the waiting disclosures to a server that sends this day. Its first answer about every
    /// second disclosure is lost.
    fn send(&mut self, day: u32) -> Result<(), Failure> {
        let mut tried = BTreeSet::new();
        loop {
            let Ok(batch) = self.waiting.batch(&id()?, PRICE, Some(Day::new(day)), &tried) else {
                return Ok(());
            };
            let batch = batch.messages;
            if batch.is_empty() {
                break;
            }
            let mut settled = BTreeSet::new();
            for (name, message) in batch {
                tried.insert(name);
                assert!(!self.erased.contains(&name), "it came back after the verdict");
                let bytes = message.encode_to_vec();
                let first = self.heard.insert(name, bytes.clone());
                assert!(first.as_ref().is_none_or(|first| *first == bytes), "two names");
                if first.is_some() || name[0].is_multiple_of(2) {
                    self.waiting.settle(&name);
                    settled.insert(name);
                }
            }
            if self.waiting.write().is_ok() {
                self.erased.append(&mut settled);
            }
        }
        Ok(())
    }

    /// Keeps twenty disclosures, and sends at intervals, on a faulty disk. Then the disk works.
    fn live(&mut self) -> Result<(), Failure> {
        for number in 0..KEPT {
            self.keep(number)?;
            if number % 3 == 2 && !self.disk.has_crashed() {
                self.send(number)?;
            }
            if self.disk.has_crashed() {
                self.disk.reboot();
                self.open()?;
            }
        }
        self.disk.fail_at(None);
        self.open()?;
        for day in 0..3 {
            self.send(KEPT + day)?;
        }
        for name in &self.durable {
            assert!(self.heard.contains_key(name), "what was kept was lost");
        }
        for file in ["disclosures", "disclosures.new"] {
            assert!(self.disk.content(file).is_none(), "{file} is left");
        }
        Ok(())
    }
}

fn operations() -> Result<u32, Failure> {
    let mut device = Device::start(Disk::new(1, None))?;
    device.live()?;
    assert_eq!(device.heard.len(), device.durable.len());
    // Without a failure each costs once, although the first answer about every second was lost.
    assert_eq!(device.waiting.spent_on(&id()?).rewards, u64::from(KEPT));
    Ok(device.disk.operations())
}

#[test]
fn killed_at_any_operation_nothing_kept_is_lost_and_nothing_has_two_names() -> Result<(), Failure> {
    let operations = operations()?;
    assert!(operations > 100, "{operations}");
    for operation in 0..operations {
        for seed in 0..16 {
            let disk = Disk::new(seed, Some((operation, Fault::Crash)));
            let mut device = Device::start(disk)?;
            device.live().map_err(|error| format!("{operation}, seed {seed}: {error}"))?;
            assert!(device.durable.len() + 1 >= KEPT as usize, "{operation}, seed {seed}");
            // Name and debit are one write: a crash wastes nothing that is still kept.
            let counted = device.waiting.spent_on(&id()?).rewards;
            assert!(counted <= u64::from(KEPT), "{operation}, seed {seed}: {counted}");
        }
    }
    Ok(())
}

#[test]
fn a_disk_that_fails_for_a_while_costs_nothing() -> Result<(), Failure> {
    for operation in 2..operations()? {
        for (seed, fault) in [(0, Fault::Error), (1, Fault::Error), (2, Fault::Errors(10))] {
            let mut device = Device::start(Disk::new(seed, Some((operation, fault))))?;
            for number in 0..KEPT {
                device.keep(number)?;
                device.send(number)?;
            }
            device.disk.fail_at(None);
            device.send(KEPT)?;
            device.send(KEPT)?;
            let heard = device.heard.len();
            assert_eq!(heard, KEPT as usize, "operation {operation}, seed {seed}");
        }
    }
    Ok(())
}

#[test]
fn killed_again_and_again_and_then_a_power_cut() -> Result<(), Failure> {
    // A start may read data that only the operating system's cache holds.
    for first in 0..10 {
        for again in 0..6 {
            for seed in 0..16 {
                let disk = Disk::new(seed, None);
                let mut device = Device::start(disk.clone())?;
                device.keep(0)?;
                for (start, operation) in [(1, first), (2, again)] {
                    disk.fail_at(Some((disk.operations() + operation, Fault::Crash)));
                    device.send(start)?;
                    disk.fail_at(None);
                    disk.revive();
                    disk.fail_at(Some((disk.operations() + again, Fault::Crash)));
                    if let Ok(waiting) = Waiting::open(Box::new(disk.clone()), RhoBudget::UNLIMITED)
                    {
                        device.waiting = waiting;
                        device.send(start + 10)?;
                    }
                    disk.fail_at(None);
                    disk.revive();
                    device.open()?;
                }
                device.send(30)?;
                disk.reboot();
                device.open()?;
                device.send(40)?;
                device.send(41)?;
                assert_eq!(device.heard.len(), 1, "{first}, {again}, seed {seed}");
            }
        }
    }
    Ok(())
}

#[test]
fn no_half_written_file_stays() -> Result<(), Failure> {
    for operation in 2..6 {
        let mut device = Device::start(Disk::new(1, Some((operation, Fault::Crash))))?;
        device.keep(0)?;
        device.disk.fail_at(None);
        device.disk.revive();
        device.open()?;
        assert!(device.disk.content("disclosures.new").is_none(), "operation {operation}");
    }
    Ok(())
}

#[test]
fn many_deaths_in_a_row() -> Result<(), Failure> {
    for seed in 0..400 {
        let mut chance = SeededNoise::new(seed, 1000);
        let mut below = |bound: u32| -> Result<u32, Failure> {
            Ok(u32::try_from(chance.word()? % u64::from(bound))?)
        };
        let disk = Disk::new(seed, Some((below(40)?, Fault::Crash)));
        let mut device = Device::start(disk.clone())?;
        for number in 0..KEPT {
            device.keep(number)?;
            device.send(number)?;
            let mut deaths = 0;
            while disk.has_crashed() {
                disk.reboot();
                deaths += 1;
                let again = (disk.operations() + below(8)?, Fault::Crash);
                disk.fail_at((deaths < 5).then_some(again));
                device.open()?;
                device.send(number)?;
            }
        }
        device.live().map_err(|error| format!("seed {seed}: {error}"))?;
    }
    Ok(())
}

#[test]
fn no_more_are_taken_than_there_is_room_for() -> Result<(), Failure> {
    let disk = Disk::new(1, None);
    let mut waiting = Waiting::open(Box::new(disk.clone()), RhoBudget::UNLIMITED)?;
    for number in 0..u32::try_from(WAITING_MAX)? {
        waiting.keep(disclosure(number)?)?;
    }
    let before = disk.operations();
    let next = disclosure(100_000)?;
    let name = next.name();
    let Err(KeepError::Full(given_back)) = waiting.keep(next) else {
        return Err("it was taken".into());
    };
    assert_eq!((given_back.name(), disk.operations()), (name, before));
    // Few disclosures have a day at a time: a server that was away too long refuses only those.
    let batch = waiting.batch(&id()?, PRICE, Some(Day::new(2)), &BTreeSet::new())?.messages;
    assert_eq!(batch.len(), 32);
    let tried = batch.iter().map(|(name, _)| *name).collect();
    assert_eq!(waiting.batch(&id()?, PRICE, Some(Day::new(3)), &tried)?.messages, []);
    // After a verdict there is room again.
    assert!(waiting.settle(&batch[0].0) && !waiting.settle(&batch[0].0));
    waiting.keep(*given_back)?;
    assert_eq!(Waiting::open(Box::new(disk), RhoBudget::UNLIMITED)?.len(), WAITING_MAX);
    Ok(())
}

#[test]
fn nothing_rests_for_ever() -> Result<(), Failure> {
    let disk = Disk::new(1, None);
    let mut waiting = Waiting::open(Box::new(disk.clone()), RhoBudget::UNLIMITED)?;
    waiting.keep(disclosure(0)?)?;
    waiting.hear(Day::new(100));
    waiting.keep(disclosure(1)?)?;
    waiting.hear(Day::new(101));
    waiting.write()?;
    // The age is durable.
    let mut waiting = Waiting::open(Box::new(disk.clone()), RhoBudget::UNLIMITED)?;
    waiting.hear(Day::new(100 + WAITING_DAYS_MAX));
    assert_eq!(waiting.take_dropped(), []);
    waiting.hear(Day::new(101 + WAITING_DAYS_MAX));
    assert_eq!(waiting.take_dropped(), [id()?]);
    waiting.write()?;
    let mut again = Waiting::open(Box::new(disk.clone()), RhoBudget::UNLIMITED)?;
    assert_eq!(again.len(), 1);
    assert_eq!(again.withdraw()?, 1);
    assert!(disk.content("disclosures").is_none());
    Ok(())
}

#[test]
fn a_day_beyond_the_servers_is_none_and_age_begins_anew() -> Result<(), Failure> {
    // The clocks of server and device both stood in 2099.
    let disk = Disk::new(1, None);
    let mut waiting = Waiting::open(Box::new(disk.clone()), RhoBudget::UNLIMITED)?;
    waiting.keep(disclosure(0)?)?;
    waiting.hear(Day::new(47_000));
    waiting.hear(Day::new(20_000));
    waiting.write()?;
    let mut waiting = Waiting::open(Box::new(disk), RhoBudget::UNLIMITED)?;
    waiting.hear(Day::new(20_000 + WAITING_DAYS_MAX));
    assert_eq!((waiting.len(), waiting.take_dropped()), (1, vec![]));
    waiting.hear(Day::new(20_001 + WAITING_DAYS_MAX));
    assert_eq!((waiting.len(), waiting.take_dropped()), (0, vec![id()?]));
    Ok(())
}
