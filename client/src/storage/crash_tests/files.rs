//! Files of different writes, and missing files.

use bandana_shared::policy::{Policy, Weights};

use super::super::double::Disk;
use super::super::{
    Files, INSTALLED, LEDGER, OPTED_OUT, REWARDS, Restored, SLOT, STATE, StorageError,
};
use super::*;

#[test]
fn files_of_another_time_are_refused() -> Result<(), Failure> {
    let disk = Disk::new(6, None);
    let mut device = Device::start(disk.clone(), 6, false)?;
    let mut versions = Vec::new();
    for second in [0, 30, 60, 90, 120] {
        device.core.draw(&id()?, at(second))?;
        device.write(second);
        // What is handed out is synced.
        device.core.next_task(at(second + 20))?;
        device.write(second + 20);
        versions.push((disk.content(LEDGER), disk.content(STATE)));
    }
    let open =
        |ledger: usize, state: usize| opened(versions[ledger].0.clone(), versions[state].1.clone());
    for (ledger, state) in [(4, 3), (4, 2), (4, 0), (3, 1), (1, 4), (0, 3)] {
        let opened = open(ledger, state)?;
        assert!(matches!(opened, Err(StorageError::Damaged { .. })), "{ledger}, {state}");
    }
    // A failed write and a crash leave the ledger one behind.
    for (ledger, state) in [(4, 4), (3, 4)] {
        let (_, (state, _)) = open(ledger, state)??;
        assert_eq!(state.ledger.lifetime().local.get(), 5_000_000_000);
    }
    // A crash before the number of the completed write is stored leaves the ledger one ahead.
    let (ledger, _) = &mut versions[4];
    ledger.as_mut().ok_or("no ledger")?.truncate(2 * SLOT);
    let (ledger, state) = (versions[4].0.clone(), versions[3].1.clone());
    let (_, (state, _)) = opened(ledger, state)??;
    assert_eq!(state.ledger.lifetime().local.get(), 5_000_000_000, "nothing spent is forgotten");
    Ok(())
}

type Content = Option<Vec<u8>>;

fn opened(
    ledger: Content,
    state: Content,
) -> Result<Result<(Storage, Restored), StorageError>, Failure> {
    let mut files: Box<dyn Files> = Box::new(Disk::new(7, None));
    files.create(LEDGER, &ledger.unwrap_or_default())?;
    files.create(STATE, &state.unwrap_or_default())?;
    Ok(Storage::open(files, true, false))
}

#[test]
fn a_loss_is_no_first_start_wherever_the_first_write_was_cut() -> Result<(), Failure> {
    for operation in 0..14 {
        for seed in 0..4 {
            let disk = Disk::new(seed, Some((operation, Fault::Crash)));
            let mut device = Device::start(disk.clone(), 1, false)?;
            device.write(0);
            disk.fail_at(None);
            if disk.has_crashed() {
                device.restart(1)?;
            }
            device.core.draw(&id()?, at(1))?;
            device.write(1);
            assert!(disk.content(INSTALLED).is_some(), "operation {operation}, seed {seed}");
            let mut files: Box<dyn Files> = Box::new(disk.clone());
            files.remove(LEDGER)?;
            files.remove(STATE)?;
            let opened = Storage::open(files, true, false);
            assert!(matches!(opened, Err(StorageError::Missing { .. })), "{opened:?}");
        }
    }
    Ok(())
}

#[test]
fn ids_are_never_given_twice() -> Result<(), Failure> {
    let mut device = Device::start(Disk::new(1, None), 1, false)?;
    let mut given = BTreeSet::new();
    for start in 0..5 {
        for _ in 0..10 {
            // Most of the assignments never report, and are in no file.
            let chosen = device.core.draw(&id()?, at(start))?;
            assert!(given.insert(chosen.id()), "{:?} was given twice", chosen.id());
        }
        device.write(start);
        device.restart(start + 1)?;
    }
    Ok(())
}

#[test]
fn an_opt_out_that_was_cut_off_is_completed_by_the_next_start() -> Result<(), Failure> {
    let mut completed = 0;
    let start = |device: &mut Device, disk: &Disk| -> Result<(), Failure> {
        let opened = Storage::open(Box::new(disk.clone()), true, true)?;
        device.storage = opened.0;
        device.core = Core::restored(SeededNoise::new(4, 9), budget()?, opened.1, true);
        Ok(())
    };
    for operation in 0..16 {
        let disk = Disk::new(u64::from(operation), None);
        let mut device = Device::start(disk.clone(), 1, true)?;
        let chosen = device.core.draw(&id()?, at(0))?;
        device.core.reward(chosen.id(), Reward::new(1.0)?, at(0))?;
        device.write(0);
        device.core.opt_out();
        disk.fail_at(Some((disk.operations() + operation, Fault::Crash)));
        device.write(1);
        disk.fail_at(None);
        disk.revive();
        let is_marked = disk.content(OPTED_OUT).is_some();
        start(&mut device, &disk)?;
        assert_eq!(device.core.is_opted_out(), is_marked);
        if is_marked {
            assert_eq!((device.core.open_assignments(), device.core.waiting_reports()), (0, 0));
            device.write(2);
            assert!(disk.content(REWARDS).is_none(), "operation {operation}");
            device.core.opt_in();
            device.write(3);
            start(&mut device, &disk)?;
            assert_eq!(device.core.open_assignments(), 0, "operation {operation}");
            assert!(device.core.assigned(chosen.id(), at(4)).is_none());
            completed += 1;
        }
    }
    assert!(completed > 4, "{completed}");
    Ok(())
}

#[test]
fn an_opt_out_leaves_a_tombstone_with_what_was_spent() -> Result<(), Failure> {
    let disk = Disk::new(4, None);
    let mut device = Device::start(disk.clone(), 4, true)?;
    for second in 0..3 {
        let chosen = device.core.draw(&id()?, at(second))?;
        device.core.reward(chosen.id(), Reward::new(1.0)?, at(second))?;
    }
    device.write(3);
    let spent = device.core.spent();
    device.core.opt_out();
    device.write(3);
    let left = disk.content(STATE).ok_or("no tombstone")?;
    assert!(!left.windows(7).any(|bytes| bytes == b"crashes"), "the experiment's name is left");
    assert!(disk.content(REWARDS).is_none());
    device.disk.reboot();
    let opened = Storage::open(Box::new(disk), true, true)?;
    let mut core = Core::restored(SeededNoise::new(4, 9), budget()?, opened.1, true);
    assert!(core.is_opted_out());
    assert_eq!(core.spent(), spent);
    core.opt_in();
    assert_eq!(core.spent(), spent, "coming back refills nothing");
    assert_eq!((core.open_assignments(), core.waiting_reports()), (0, 0));
    Ok(())
}

#[test]
fn an_experiment_that_no_server_knows_holds_up_no_other() -> Result<(), Failure> {
    let mut device = Device::start(Disk::new(1, None), 1, false)?;
    let gone = ExperimentId::new("abandoned")?;
    let mut parts = specification()?.to_parts();
    parts.experiment_id = gone.clone();
    let abandoned = Specification::new(parts)?;
    let acceptance = Acceptance::unsigned(abandoned.epsilon(), abandoned.rewards());
    device.core.enroll(gone.clone(), acceptance);
    let weights = Weights::uniform(&[true, true])?;
    let policy = Policy { version: 1, weights, time_to_live_seconds: 1000 };
    let specification = abandoned;
    let (signatures, day, store) = (Vec::new(), at(0).day(), None);
    let fetched = Fetched { specification, signatures, policy, day, store, view: None };
    device.core.on_fetched(&FetchTask::new(gone.clone()), fetched, at(0))?;
    device.core.draw(&gone, at(0))?;
    device.core.draw(&id()?, at(1))?;
    device.write(2);
    // Two hours later the server's day is no longer known.
    let mut sent = 0;
    for second in (7200..86_400).step_by(60) {
        loop {
            let task = device.core.next_task(at(second))?;
            let written = device.write(second);
            match task {
                Task::Fetch(task) if task.experiment_id == gone => {
                    device.core.on_fetch_refused(&FetchTask::new(gone.clone()), at(second))?;
                }
                Task::Fetch(_) => device.enroll(second)?,
                Task::Upload(task) => {
                    sent += 1;
                    device.core.on_upload_result(
                        task.id(),
                        &UploadOutcome::Accepted,
                        at(second),
                    )?;
                }
                Task::Shuffled(task) => return Err(format!("{task:?}").into()),
                Task::Wait(_) | Task::Done if written => {}
                Task::Wait(_) | Task::Done => break,
            }
        }
    }
    assert_eq!(sent, 2);
    Ok(())
}
