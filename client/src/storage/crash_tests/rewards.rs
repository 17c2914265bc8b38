//! The file of rewards, the only place where raw rewards are stored.

use std::io;

use bandana_shared::stored;

use super::super::double::Disk;
use super::super::{Files, REWARDS, REWARDS_NEW};
use super::*;
use crate::core::{PendingReward, PendingRewards};

#[test]
fn kept_rewards_survive_the_end_of_the_process_and_are_erased_with_the_bit() -> Result<(), Failure>
{
    // The noise is so small that the bit equals the reward.
    let disk = Disk::new(3, None);
    let mut device = Device::start(disk.clone(), 3, true)?;
    let chosen = device.core.draw(&id()?, at(0))?;
    device.core.reward(chosen.id(), Reward::new(1.0)?, at(1))?;
    device.write(1);
    assert!(disk.content(REWARDS).is_some());
    device.start_again(2)?;
    assert_eq!(device.core.sum_of(chosen.id()), Some(1.0));
    device.core.next_task(at(6))?;
    device.write(6);
    assert!(disk.content(REWARDS).is_none(), "the bit is there, the reward gone");
    // Without the app's setting nothing is kept, and earlier sums are removed.
    let chosen = device.core.draw(&id()?, at(10))?;
    device.core.reward(chosen.id(), Reward::new(1.0)?, at(10))?;
    device.write(10);
    assert!(disk.content(REWARDS).is_some());
    device.keeps_rewards = false;
    device.restart(11)?;
    assert!(disk.content(REWARDS).is_none());
    assert_eq!(device.core.sum_of(chosen.id()), None);
    Ok(())
}

#[test]
fn nothing_is_left_of_rewards_wherever_the_process_is_killed() -> Result<(), Failure> {
    for operation in 0..24 {
        for keeps_rewards in [true, false] {
            let disk = Disk::new(u64::from(operation), None);
            let mut device = Device::start(disk.clone(), 3, true)?;
            let chosen = device.core.draw(&id()?, at(0))?;
            device.write(0);
            disk.fail_at(Some((disk.operations() + operation, Fault::Crash)));
            device.core.reward(chosen.id(), Reward::new(1.0)?, at(1))?;
            device.write(1);
            device.core.next_task(at(6))?;
            device.write(6);
            disk.fail_at(None);
            device.keeps_rewards = keeps_rewards;
            device.restart(7)?;
            device.write(7);
            device.send(60)?;
            for name in [REWARDS, REWARDS_NEW] {
                assert!(disk.content(name).is_none(), "operation {operation}: {name} is left");
            }
        }
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
fn what_is_not_there_is_not_removed_again() -> Result<(), Failure> {
    let disk = Disk::new(1, None);
    let mut device = Device::start(disk.clone(), 1, true)?;
    device.core.draw(&id()?, at(0))?;
    device.write(0);
    device.core.next_task(at(6))?;
    device.write(6);
    assert!(disk.content(REWARDS).is_none());
    let before = disk.operations();
    device.storage.keep_rewards(&PendingRewards::none())?;
    assert_eq!(disk.operations(), before);
    Ok(())
}

/// A disk without room for the file of the rewards.
#[derive(Debug)]
struct Full(Disk);

impl Files for Full {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.read(name)
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if name == REWARDS {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_at(name, offset, bytes)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
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
        device.storage = Storage::open(Box::new(Full(disk)), true, true)?.0;
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
