//! Storage by the host: nothing leaves before what it follows from is written.

use std::sync::Arc;

use bandana_client::{Bandana, Consent, Kept, Reporting, Slot, Task, Tasks, UploadOutcome};

use super::{Failure, Hands, NAME, acceptance, budget, fetched, specification};

/// A host's store, and how many writes it still makes.
struct Host {
    kept: Kept,
    writes_left: usize,
}

impl Host {
    fn new(writes_left: usize) -> Self {
        Self { kept: Kept::default(), writes_left }
    }

    fn start(&self, clock: &Arc<Hands>) -> Result<(Bandana, Tasks), Failure> {
        Ok(Bandana::builder()
            .host_transport()
            .host_storage(self.kept.clone())
            .accept(acceptance()?)
            .budget(budget(100)?)
            .consent(Consent::Given)
            .clock(Arc::<Hands>::clone(clock))
            .build())
    }

    /// Makes the writes that are due, until it breaks: then they hang. Returns whether there was one.
    fn write(&mut self, tasks: &mut Tasks) -> bool {
        let mut wrote = false;
        while let Some(write) = tasks.next_write() {
            if self.writes_left == 0 {
                return false;
            }
            wrote = true;
            self.writes_left -= 1;
            let bytes = write.bytes().to_vec();
            match write.slot() {
                Slot::State => self.kept.state = Some(bytes),
                Slot::Rewards => self.kept.rewards = Some(bytes),
            }
            tasks.written(write.number(), true);
        }
        wrote
    }

    /// Carries out what is due, with writes before and after each task. Returns the uploads.
    fn serve(&mut self, tasks: &mut Tasks, clock: &Hands) -> Result<u32, Failure> {
        let mut uploads = 0;
        loop {
            self.write(tasks);
            match tasks.next_task()? {
                Task::Fetch(task) => {
                    tasks.on_fetched(&task, fetched(&specification()?, clock.truth())?)?;
                }
                Task::Upload(task) => {
                    uploads += 1;
                    tasks.on_upload_result(task.id(), &UploadOutcome::Accepted)?;
                }
                Task::Shuffled(task) => return Err(format!("{task:?}").into()),
                Task::Wait(_) | Task::Done => {
                    // A report that was sealed just now can leave once it is written.
                    if !self.write(tasks) {
                        return Ok(uploads);
                    }
                }
            }
        }
    }
}

#[test]
fn wherever_a_hosts_writes_end_no_upload_left_that_its_next_start_does_not_count()
-> Result<(), Failure> {
    let mut most = 0;
    for writes in 0..30 {
        let clock = Hands::new();
        let mut host = Host::new(writes);
        let (bandana, mut tasks) = host.start(&clock)?;
        let mut uploads = 0;
        for _ in 0..3 {
            bandana.experiment(NAME)?.choose().reward(1.0);
            uploads += host.serve(&mut tasks, &clock)?;
            bandana.experiment(NAME)?.choose().reward(1.0);
            host.write(&mut tasks);
            clock.forward(600 + 3600);
            uploads += host.serve(&mut tasks, &clock)?;
        }
        drop((bandana, tasks));
        let (bandana, _tasks) = host.start(&clock)?;
        let spent = bandana.status().spent.lifetime.get() / 1_000_000_000;
        assert!(spent >= u64::from(uploads), "{writes} writes: {uploads} left, {spent} paid for");
        most = most.max(uploads);
    }
    assert_eq!(most, 3, "with enough writes all of them leave");
    Ok(())
}

#[test]
fn a_reload_keeps_the_arm_its_rewards_and_the_budget() -> Result<(), Failure> {
    let clock = Hands::new();
    let mut host = Host::new(usize::MAX);
    let (bandana, mut tasks) = host.start(&clock)?;
    bandana.experiment(NAME)?;
    host.serve(&mut tasks, &clock)?;
    let choice = bandana.experiment(NAME)?.choose();
    host.write(&mut tasks);
    choice.reward(1.0);
    host.write(&mut tasks);
    let kept = host.kept.rewards.as_ref().ok_or("no rewards are kept")?;
    assert_eq!(kept.len(), 1024, "a size that tells nothing of a reward");
    let id = choice.assignment().ok_or("no arm")?.id();
    let label = choice.label_or("").to_owned();
    drop((choice, bandana, tasks));

    let (bandana, mut tasks) = host.start(&clock)?;
    let resumed = bandana.experiment(NAME)?.choose();
    assert_eq!(resumed.label_or(""), label);
    assert_eq!(resumed.assignment().map(bandana_client::Assignment::id), Some(id));
    assert_eq!(bandana.status().spent.lifetime.get(), 1_000_000_000);
    clock.forward(600 + 3600);
    assert_eq!(host.serve(&mut tasks, &clock)?, 1);
    assert_eq!(host.kept.rewards.as_deref(), Some(&b""[..]), "the sums are erased");
    assert_eq!(bandana.status().spent.lifetime.get(), 1_000_000_000);
    Ok(())
}

#[test]
fn a_failed_write_is_made_again_and_holds_the_upload_back() -> Result<(), Failure> {
    let clock = Hands::new();
    let mut host = Host::new(usize::MAX);
    let (bandana, mut tasks) = host.start(&clock)?;
    bandana.experiment(NAME)?;
    host.serve(&mut tasks, &clock)?;
    let choice = bandana.experiment(NAME)?.choose();
    clock.forward(600 + 3600);
    let mut failures = 0;
    for _ in 0..5 {
        // Whatever is due, the store is full.
        for _ in 0..3 {
            match tasks.next_task()? {
                Task::Fetch(task) => {
                    tasks.on_fetched(&task, fetched(&specification()?, clock.truth())?)?;
                }
                Task::Upload(_) | Task::Shuffled(_) => return Err("it is not written".into()),
                Task::Wait(_) | Task::Done => {}
            }
        }
        if let Some(write) = tasks.next_write() {
            tasks.written(write.number(), false);
            failures += 1;
            // The other slot may have its turn, and not this one at once.
            assert!(tasks.next_write().is_none_or(|next| next.slot() != write.slot()));
            let reporting = bandana.status().reporting;
            assert!(matches!(reporting, Reporting::StorageFailing(_)), "{reporting:?}");
        }
        clock.forward(300);
    }
    assert!(failures >= 3, "{failures}");
    assert_eq!(host.serve(&mut tasks, &clock)?, 1);
    assert!(matches!(bandana.status().reporting, Reporting::On));
    drop(choice);
    Ok(())
}

#[test]
fn an_opt_out_is_kept_and_what_is_damaged_is_not_used() -> Result<(), Failure> {
    let clock = Hands::new();
    let mut host = Host::new(usize::MAX);
    let (bandana, mut tasks) = host.start(&clock)?;
    bandana.experiment(NAME)?;
    host.serve(&mut tasks, &clock)?;
    bandana.opt_out()?;
    host.write(&mut tasks);
    drop((bandana, tasks));
    let (bandana, tasks) = host.start(&clock)?;
    assert!(matches!(bandana.status().reporting, Reporting::OptedOut));
    drop((bandana, tasks));

    let state = host.kept.state.clone().ok_or("nothing is kept")?;
    for place in 0..state.len() {
        let mut damaged = state.clone();
        damaged[place] ^= 4;
        let kept = Kept { state: Some(damaged), rewards: None };
        let (bandana, _tasks) = Host { kept, writes_left: 0 }.start(&clock)?;
        let reporting = bandana.status().reporting;
        assert!(matches!(reporting, Reporting::StorageUnusable(_)), "{place}: {reporting:?}");
    }
    Ok(())
}
