//! The file of rewards, the only place where raw rewards are stored.

use std::io;

use bandana_shared::stored;

use super::super::double::Disk;
use super::super::{Files, LEDGER, REWARDS, REWARDS_NEW, STATE};
use super::*;
use crate::core::{PendingReward, PendingRewards};

/// A reward whose bytes are found wherever they rest.
const REWARD: f64 = 0.618_033_988_75;

/// Whether the bytes of the reward are in a file.
fn has_reward(content: Option<Vec<u8>>) -> bool {
    let content = content.unwrap_or_default();
    content.windows(8).any(|window| window == REWARD.to_le_bytes())
}

/// Whether a file has no sums, or is not there.
fn is_erased(content: Option<Vec<u8>>) -> bool {
    content.unwrap_or_default().iter().all(|byte| *byte == 0)
}

#[test]
fn kept_rewards_survive_the_end_of_the_process_and_are_erased_with_the_bit() -> Result<(), Failure>
{
    let disk = Disk::new(3, None);
    let mut device = Device::start(disk.clone(), 3, true)?;
    let chosen = device.core.draw(&id()?, at(0))?;
    device.core.reward(chosen.id(), Reward::new(REWARD)?, at(1))?;
    device.write(1);
    assert!(has_reward(disk.content(REWARDS)));
    device.start_again(2)?;
    assert_eq!(device.core.sum_of(chosen.id()), Some(REWARD));
    device.core.next_task(at(6))?;
    device.write(6);
    assert!(is_erased(disk.content(REWARDS)), "the bit is there, the reward gone");
    // Without the app's setting nothing is kept, and earlier sums are removed.
    let chosen = device.core.draw(&id()?, at(10))?;
    device.core.reward(chosen.id(), Reward::new(REWARD)?, at(10))?;
    device.write(10);
    assert!(has_reward(disk.content(REWARDS)));
    device.keeps_rewards = false;
    device.restart(11)?;
    assert!(disk.content(REWARDS).is_none());
    assert_eq!(device.core.sum_of(chosen.id()), None);
    Ok(())
}

#[test]
fn an_opt_out_removes_the_file_of_rewards() -> Result<(), Failure> {
    for is_open in [true, false] {
        let disk = Disk::new(3, None);
        let mut device = Device::start(disk.clone(), 3, true)?;
        let chosen = device.core.draw(&id()?, at(0))?;
        device.core.reward(chosen.id(), Reward::new(REWARD)?, at(1))?;
        device.write(1);
        if !is_open {
            device.core.next_task(at(6))?;
            device.write(6);
        }
        device.core.opt_out();
        device.write(7);
        assert!(disk.content(REWARDS).is_none() && disk.durable(REWARDS).is_none());
    }
    Ok(())
}

/// Ends a device whose reward was written by a fault at an operation after that, and starts it
/// again.
fn killed_with_a_reward(
    seed: u64,
    operation: u32,
    keeps_rewards: bool,
) -> Result<(Device, AssignmentId), Failure> {
    let disk = Disk::new(seed, None);
    let mut device = Device::start(disk.clone(), 3, true)?;
    let chosen = device.core.draw(&id()?, at(0))?;
    device.write(0);
    disk.fail_at(Some((disk.operations() + operation, Fault::Crash)));
    device.core.reward(chosen.id(), Reward::new(REWARD)?, at(1))?;
    device.write(1);
    disk.write_back();
    device.core.next_task(at(6))?;
    device.write(6);
    disk.fail_at(None);
    device.keeps_rewards = keeps_rewards;
    device.restart(7)?;
    Ok((device, chosen.id()))
}

#[test]
fn nothing_is_left_of_rewards_wherever_the_process_is_killed() -> Result<(), Failure> {
    for (operation, seed) in
        (0..12).flat_map(|operation| (0..16).map(move |seed| (operation, seed)))
    {
        for keeps_rewards in [true, false] {
            let place = format!("operation {operation}, seed {seed}");
            let mut device = killed_with_a_reward(seed, operation, keeps_rewards)?.0;
            let disk = device.disk.clone();
            device.write(7);
            let is_open = device.core.open_assignments() > 0;
            assert!(is_open || is_erased(disk.durable(REWARDS)), "{place}: not after a start");
            device.send(60)?;
            device.write(60);
            for content in [REWARDS, REWARDS_NEW].map(|name| disk.content(name)) {
                assert!(is_erased(content.clone()), "{place}: left");
                assert!(keeps_rewards || content.is_none(), "{place}: not removed");
            }
            device.restart(70)?;
            device.write(70);
            for name in [REWARDS, STATE, LEDGER] {
                assert!(!has_reward(disk.durable(name)), "{place}: {name} has it for good");
            }
        }
    }
    Ok(())
}

#[test]
fn a_power_cut_after_the_bit_was_made_lets_one_bit_leave_whatever_it_takes_back()
-> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for seed in 0..64 {
        // No operation fails, and any part of what was not synced is lost.
        let (mut device, id) = killed_with_a_reward(seed, u32::MAX / 2, true)?;
        let is_open = device.core.open_assignments() > 0;
        let is_there = has_reward(device.disk.content(REWARDS));
        let sum = device.core.sum_of(id);
        assert_eq!(sum, (is_open && is_there).then_some(REWARD), "seed {seed}");
        seen.insert((is_open, is_there));
        // The power fails again and again, before and after the report is sealed and has left.
        for (second, operation) in (20..).zip(0..16) {
            let fault = (device.disk.operations() + operation, Fault::Crash);
            device.disk.fail_at(Some(fault));
            device.write(second);
            if !device.disk.has_crashed() {
                device.send(second)?;
            }
            device.disk.fail_at(None);
            device.restart(second)?;
        }
        device.write(40);
        device.send(40)?;
        // Each attempt was compared with the first.
        assert_eq!(device.reported.len(), 1, "seed {seed}");
        device.check_ledger()?;
    }
    assert_eq!(seen.len(), 4, "each of bit and erasure is lost or not: {seen:?}");
    Ok(())
}

#[test]
fn kept_rewards_change_nothing_that_can_be_seen_whenever_the_power_fails() -> Result<(), Failure> {
    for (operation, seed) in (0..30).flat_map(|operation| (0..4).map(move |seed| (operation, seed)))
    {
        let mut seen = Vec::new();
        for reward in [None, Some(REWARD), Some(1.0)] {
            let disk = Disk::new(seed, None);
            let mut device = Device::start(disk.clone(), 5, true)?;
            device.loses_answers = false;
            for second in 0..4 {
                let chosen = device.core.draw(&id()?, at(second))?;
                device.write(second);
                if let Some(reward) = reward {
                    device.core.reward(chosen.id(), Reward::new(reward)?, at(second))?;
                    device.write(second);
                }
            }
            disk.write_back();
            let before = (disk.syncs(), disk.written());
            disk.fail_at(Some((disk.operations() + operation, Fault::Crash)));
            for second in 5..40 {
                device.write(second);
                if !disk.has_crashed() {
                    device.send(second)?;
                }
                if disk.has_crashed() {
                    device.restart(second)?;
                    disk.fail_at(None);
                }
            }
            assert_eq!(device.seen.len(), 4, "operation {operation}, seed {seed}");
            seen.push((device.seen, disk.syncs() - before.0, disk.written() - before.1));
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "operation {operation}, seed {seed}: {seen:?}");
    }
    Ok(())
}

#[test]
fn writes_and_their_sizes_are_the_same_with_and_without_rewards() -> Result<(), Failure> {
    let mut seen = Vec::new();
    for rewarded in [None, Some(0), Some(3)] {
        let disk = Disk::new(1, None);
        let mut device = Device::start(disk.clone(), 1, true)?;
        // The wait after a lost answer is random, and no seed repeats it.
        device.loses_answers = false;
        let mut steps = Vec::new();
        for number in 0..4 {
            let chosen = device.core.draw(&id()?, at(number))?;
            device.write(number);
            let before = (disk.operations(), disk.syncs());
            if rewarded.is_some_and(|last| number <= last) {
                device.core.reward(chosen.id(), Reward::new(1.0)?, at(number))?;
                device.write(number);
                // One write, which is left to the operating system.
                assert_eq!((disk.operations(), disk.syncs()), (before.0 + 1, before.1));
            }
        }
        for second in 4..40 {
            let before = disk.operations();
            device.write(second);
            device.send(second)?;
            let size = disk.content(REWARDS).map(|content| content.len());
            steps.push((disk.syncs(), disk.operations() - before, size));
        }
        seen.push((steps, device.seen.len()));
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].1 > 0 && seen[0].0.iter().any(|step| step.2.is_some()), "{seen:?}");
    Ok(())
}

#[test]
fn a_file_of_an_older_version_is_read() -> Result<(), Failure> {
    let mut disk = Disk::new(2, None);
    let mut device = Device::start(disk.clone(), 2, true)?;
    let chosen = device.core.draw(&id()?, at(0))?;
    device.write(0);
    let older = PendingReward { assignment: chosen.id().get(), sum: 1.0, is_negative: None };
    disk.create(REWARDS, &stored::to_bytes(&PendingRewards(vec![older]))?)?;
    device.start_again(1)?;
    assert_eq!(device.core.sum_of(chosen.id()), Some(1.0));
    // It is written over in the form of today.
    device.write(1);
    device.start_again(2)?;
    assert_eq!(device.core.sum_of(chosen.id()), Some(1.0));
    Ok(())
}

#[test]
fn what_is_erased_is_not_written_again() -> Result<(), Failure> {
    let disk = Disk::new(1, None);
    let mut device = Device::start(disk.clone(), 1, true)?;
    device.core.draw(&id()?, at(0))?;
    device.write(0);
    device.core.next_task(at(6))?;
    device.write(6);
    assert!(is_erased(disk.content(REWARDS)));
    let before = disk.operations();
    device.storage.keep_rewards(&PendingRewards::none())?;
    assert_eq!(disk.operations(), before);
    Ok(())
}

#[test]
fn a_long_table_is_written_over_once_and_costs_nothing_after_that() -> Result<(), Failure> {
    let disk = Disk::new(1, None);
    let mut device = Device::start(disk.clone(), 1, true)?;
    let sums = |number: u64| {
        let sum = |assignment| PendingReward { assignment, sum: REWARD, is_negative: None };
        PendingRewards((1..=number).map(sum).collect())
    };
    let mut written = |rewards: &PendingRewards| {
        let before = disk.written();
        device.storage.keep_rewards(rewards).map(|()| disk.written() - before)
    };
    let long = written(&sums(500))?;
    assert!(long > 5000, "{long}");
    assert_eq!((written(&sums(1))?, written(&sums(1))?), (long, 1024));
    let content = disk.content(REWARDS).ok_or("no file")?;
    assert!(is_erased(Some(content[1024..].to_vec())), "the others are written over");
    Ok(())
}

/// A disk without room for one of the files.
#[derive(Debug)]
struct Full(Disk, &'static str);

impl Full {
    fn make_room(&self, name: &str) -> io::Result<()> {
        if name == self.1 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Files for Full {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.read(name)
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.make_room(name)?;
        self.0.write_at(name, offset, bytes)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.make_room(name)?;
        self.0.append(name, bytes)
    }

    fn create(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.create(name, bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.0.sync(name)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.0.sync_directory()
    }
}

#[test]
fn rewards_that_can_not_be_kept_hold_nothing_up() -> Result<(), Failure> {
    let mut seen = Vec::new();
    for reward in [None, Some(1.0)] {
        let disk = Disk::new(1, None);
        let mut device = Device::start(disk.clone(), 1, true)?;
        device.write(0);
        device.storage = Storage::open(Box::new(Full(disk, REWARDS)), true, true)?.0;
        device.core.draw(&id()?, at(0))?;
        device.write(0);
        let later = device.core.draw(&id()?, at(19))?;
        device.write(19);
        if let Some(reward) = reward {
            device.core.reward(later.id(), Reward::new(reward)?, at(20))?;
        }
        for second in 20..40 {
            device.write(second);
            device.send(second)?;
        }
        seen.push(device.seen.clone());
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].len(), 2);
    Ok(())
}

#[test]
fn a_sum_is_not_erased_before_its_bit_is_written() -> Result<(), Failure> {
    let disk = Disk::new(1, None);
    let mut device = Device::start(disk.clone(), 1, true)?;
    let chosen = device.core.draw(&id()?, at(0))?;
    device.core.reward(chosen.id(), Reward::new(REWARD)?, at(1))?;
    device.write(1);
    device.storage = Storage::open(Box::new(Full(disk.clone(), STATE)), true, true)?.0;
    device.core.next_task(at(6))?;
    device.write(6);
    device.start_again(7)?;
    assert_eq!(device.core.sum_of(chosen.id()), Some(REWARD));
    Ok(())
}

#[test]
fn nothing_printed_tells_whether_there_was_a_reward() -> Result<(), Failure> {
    let mut printed = BTreeSet::new();
    for reward in [None, Some(1.0), Some(0.0), Some(5.0)] {
        let disk = Disk::new(1, None);
        let mut device = Device::start(disk, 1, true)?;
        let chosen = device.core.draw(&id()?, at(0))?;
        device.write(0);
        if let Some(reward) = reward {
            device.core.reward(chosen.id(), Reward::new(reward)?, at(1)).ok();
        }
        printed.insert(format!("{:?}", device.core));
    }
    assert_eq!(printed.len(), 1, "{printed:?}");
    Ok(())
}
