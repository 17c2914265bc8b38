//! Syncs and bytes that an assignment costs the disk, counted.

use super::*;

/// Syncs of the median assignment at most: one of the ledger, one of the state.
const SYNCS_MEDIAN_MAX: u32 = 2;

/// Syncs of an assignment at most whose report comes with a whole state: of the ledger, of the new
/// file, and of the directory.
const SYNCS_MAX: u32 = 3;

/// Bytes that a reward writes, where the app keeps pending rewards: a block.
const REWARD_BYTES: u64 = 1024;

/// Assignments, enough for a whole state among them.
const ASSIGNMENTS: u64 = 98;

/// Seconds between two assignments: each is reported before the next.
const APART: u64 = 60;

/// The syncs and the bytes of each assignment from its choice to the answer about its upload.
fn costs(keeps_rewards: bool, rewarded: bool) -> Result<Vec<(u32, u64)>, Failure> {
    let disk = Disk::new(1, None);
    let mut device = Device::start(disk.clone(), 1, keeps_rewards)?;
    device.loses_answers = false;
    // Its budget pays for a report of each.
    let (storage, restored) = Storage::open(Box::new(disk.clone()), true, keeps_rewards)?;
    device.storage = storage;
    let noise = SeededNoise::new(1, 1);
    device.core = Core::restored(noise, Budget::UNLIMITED, restored, keeps_rewards);
    let mut costs = Vec::new();
    for number in 0..ASSIGNMENTS {
        let begin = number * APART;
        device.enroll(begin)?;
        device.write(begin);
        let before = (disk.syncs(), disk.written());
        let chosen = device.core.draw(&id()?, at(begin))?;
        device.write(begin);
        if rewarded {
            let rewarded = device.core.reward(chosen.id(), Reward::new(1.0)?, at(begin + 1));
            rewarded.map_err(|error| format!("number {number}: {error}"))?;
        }
        device.write(begin + 1);
        for second in begin + 2..begin + 40 {
            device.write(second);
            device.send(second)?;
        }
        assert_eq!(device.reported.len() as u64, number + 1, "each has its report");
        costs.push((disk.syncs() - before.0, disk.written() - before.1));
    }
    Ok(costs)
}

fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[test]
fn the_median_assignment_takes_two_syncs_and_none_many_more() -> Result<(), Failure> {
    for keeps_rewards in [false, true] {
        let costs = costs(keeps_rewards, true)?;
        let syncs = median(costs.iter().map(|cost| cost.0)).ok_or("none")?;
        assert!(syncs <= SYNCS_MEDIAN_MAX, "kept: {keeps_rewards}, {costs:?}");
        let bytes = median(costs.iter().map(|cost| cost.1)).ok_or("none")?;
        println!("rewards kept: {keeps_rewards}; medians: {syncs} syncs, {bytes} bytes written");
        // Before there is a whole state to write: exactly these.
        assert!(costs[1..7].iter().all(|cost| cost.0 == SYNCS_MEDIAN_MAX), "{costs:?}");
        // The first makes the files.
        let most = costs.iter().skip(1).map(|cost| cost.0).max().ok_or("none")?;
        assert!(most <= SYNCS_MAX, "kept: {keeps_rewards}, {costs:?}");
    }
    Ok(())
}

#[test]
fn an_assignment_costs_the_disk_the_same_with_and_without_a_reward() -> Result<(), Failure> {
    assert_eq!(costs(false, true)?, costs(false, false)?);
    let (with, without) = (costs(true, true)?, costs(true, false)?);
    for (with, without) in with.iter().zip(&without) {
        // A reward is written, and what follows is the same.
        assert_eq!((with.0, with.1), (without.0, without.1 + REWARD_BYTES));
    }
    Ok(())
}
