//! Noise after a fork, as in a zygote or a pre-forking server. Both processes have the same memory.
//! Noise drawn from that memory would be the same on both sides, and two reports with the same
//! noise reveal whether their rewards are equal.
//!
//! A failure of a check on random words of the operating system is a false alarm with a probability
//! of at most `2^-48`; each check says why.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::{
    Acceptance, Bandana, Budget, BulkNoise, Choice, Client, Clock as _, Consent, FetchTask,
    Fetched, NoiseSource, OsNoise, Privatizer, Reporting, Reward, SystemClock, Task, Tasks,
    Timestamp, Unreported, UploadOutcome,
};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::wire::v1::UploadRequest;
use prost::Message as _;
use rustix::process::{Pid, WaitOptions, waitpid};

/// Number of words and reports that each side draws.
const DRAWS: usize = 256;

/// Number of agreeing bits in a row that rules out coincidence.
const RUN: usize = 64;

fn main() -> anyhow::Result<()> {
    type Check = fn() -> anyhow::Result<()>;
    let checks: [(&str, Check); 6] = [
        ("words_of_a_device_never_repeat", words_of_a_device_never_repeat),
        ("private_bits_of_one_reward_never_repeat", private_bits_of_one_reward_never_repeat),
        ("reports_of_a_whole_client_never_repeat", reports_of_a_whole_client_never_repeat),
        ("bulk_noise_repeats_until_its_next_key", bulk_noise_repeats_until_its_next_key),
        ("a_child_that_lives_keeps_no_lock", a_child_that_lives_keeps_no_lock),
        // The last one, since it leaves a second thread.
        (
            "a_handle_in_a_child_never_reports_nor_hangs",
            a_handle_in_a_child_never_reports_nor_hangs,
        ),
    ];
    println!("\nrunning {} tests", checks.len());
    for (name, check) in checks {
        check().with_context(|| format!("test {name} failed"))?;
        println!("test {name} ... ok");
    }
    println!("\ntest result: ok. {} passed; 0 failed\n", checks.len());
    Ok(())
}

/// With ideal randomness a word of the child is one of the parent's with a
/// probability of at most `256 * 256 / 2^64 = 2^-48`.
fn words_of_a_device_never_repeat() -> anyhow::Result<()> {
    let mut noise = OsNoise;
    noise.word()?;
    let (parent, child) = on_both_sides(|| words(&mut noise, DRAWS))?;
    no_common_word(&parent, &child)
}

/// At the smallest epsilon a bit is 1 with a probability within `2^-21` of one
/// half, whatever the reward. So 64 given bits agree with a probability below
/// `1.01 * 2^-64`, and one of the 193 runs does below `2^-56`.
fn private_bits_of_one_reward_never_repeat() -> anyhow::Result<()> {
    let privatizer = Privatizer::new(&specification("forked")?);
    let mut noise = OsNoise;
    bits(&privatizer, &mut noise)?;
    let (parent, child) = on_both_sides(|| bits(&privatizer, &mut noise))?;
    no_common_run(&parent, &child)?;

    // The same check detects the noise that a fork does repeat.
    let mut noise = BulkNoise::new()?;
    let (parent, child) = on_both_sides(|| bits(&privatizer, &mut noise))?;
    ensure!(no_common_run(&parent, &child).is_err(), "the check is blind");
    Ok(())
}

/// A client with 256 experiments, each with a reward that waits for its release, forks. Then both
/// processes release and send. The bits are compared experiment by experiment, as above, since
/// uploads leave in random order. Two of 512 upload ids agree with a probability below `2^-110`.
fn reports_of_a_whole_client_never_repeat() -> anyhow::Result<()> {
    let mut client = Client::new(Budget::UNLIMITED);
    for number in 0..DRAWS {
        let specification = specification(&format!("forked-{number}"))?;
        let id = specification.experiment_id().clone();
        let rewards = specification.rewards();
        let policy =
            Policy { version: 1, weights: Weights::uniform(&[true])?, time_to_live_seconds: 60 };
        client.enroll(
            id.clone(),
            Acceptance::unsigned(specification.epsilon(), rewards)
                .least_attribution_window(Duration::ZERO)
                .least_release_delay(Duration::ZERO),
        );
        client.on_fetched(
            &FetchTask::new(id.clone()),
            Fetched {
                specification,
                signatures: Vec::new(),
                policy,
                day: Day::new(1),
                store: None,
                view: None,
            },
            now(),
        )?;
        let assignment = client.draw(&id, now())?;
        client.reward(assignment.id(), Reward::new(1.0)?, now())?;
    }
    let (parent, child) = on_both_sides(|| {
        let mut uploads = Vec::new();
        while let Task::Upload(task) = client.next_task(now())? {
            client.on_upload_result(task.id(), &UploadOutcome::Accepted, now())?;
            uploads.extend(u8::try_from(task.bytes().len()));
            uploads.extend(task.bytes());
        }
        Ok(uploads)
    })?;
    let (parent, child) = (reports(&parent)?, reports(&child)?);
    let names = |side: &Reports| side.values().map(|(name, _)| name.clone()).collect();
    let (of_parent, of_child): (HashSet<Vec<u8>>, HashSet<Vec<u8>>) =
        (names(&parent), names(&child));
    ensure!(of_parent.is_disjoint(&of_child), "an upload id on both sides");
    ensure!(parent.len() == DRAWS && parent.keys().eq(child.keys()), "a report is missing");
    let bits = |side: &Reports| side.values().map(|(_, bit)| *bit).collect::<Vec<_>>();
    no_common_run(&bits(&parent), &bits(&child))
}

/// The caveat in the documentation of [`BulkNoise`]: both sides draw the same noise until each
/// needs a new key. After that, and with generators made after the fork, they have a word in common
/// with a probability of at most `2^-48`, as above.
fn bulk_noise_repeats_until_its_next_key() -> anyhow::Result<()> {
    let words_per_key = usize::try_from(BulkNoise::WORDS_PER_KEY)?;
    let mut noise = BulkNoise::new()?;
    words(&mut noise, words_per_key - DRAWS)?;
    let (parent, child) = on_both_sides(|| words(&mut noise, 2 * DRAWS))?;
    let half = parent.len() / 2;
    ensure!(parent[..half] == child[..half], "the documentation is too pessimistic");
    no_common_word(&parent[half..], &child[half..])?;

    let (parent, child) = on_both_sides(|| words(&mut BulkNoise::new()?, DRAWS))?;
    no_common_word(&parent, &child)
}

/// A client in `directory`, with the experiment that its server would have.
fn started(directory: &Path) -> anyhow::Result<(Bandana, Tasks)> {
    let specification = specification("forked")?;
    let nats = PrivacyLoss::new(1e6)?;
    let (bandana, mut tasks) = Bandana::builder()
        .host_transport()
        .directory(directory)
        .accept(
            Acceptance::unsigned(specification.epsilon(), specification.rewards())
                .least_attribution_window(Duration::ZERO)
                .least_release_delay(Duration::ZERO),
        )
        .budget(Budget::new(nats, 7, nats)?)
        .consent(Consent::Given)
        .build();
    let experiment = bandana.experiment("forked")?;
    while let Task::Fetch(_) = tasks.next_task()? {
        let weights = Weights::uniform(&[true])?;
        let policy = Policy { version: 1, weights, time_to_live_seconds: 3600 };
        let (specification, day) = (specification.clone(), SystemClock.now().day());
        let signatures = Vec::new();
        let fetched = Fetched { specification, signatures, policy, day, store: None, view: None };
        tasks.on_fetched(&FetchTask::new(experiment.id().clone()), fetched)?;
    }
    Ok((bandana, tasks))
}

/// A process with a client forks and is killed. Its child lives, and has a copy of every descriptor.
fn a_child_that_lives_keeps_no_lock() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let (mut is_held, mut holds) = std::io::pipe()?;
    let (mut may_end, ends) = std::io::pipe()?;
    let Some(parent) = fork()? else {
        drop(ends);
        let told = started(directory.path()).and_then(|client| {
            if fork()?.is_none() {
                drop(holds);
                may_end.read_to_end(&mut Vec::new()).ok();
                leave(true);
            }
            holds.write_all(b"held")?;
            drop(holds);
            may_end.read_exact(&mut [0]).ok();
            drop(client);
            Ok(())
        });
        leave(told.is_ok());
    };
    drop((holds, may_end));
    let mut told = [0; 4];
    is_held.read_exact(&mut told)?;
    let reporting =
        || -> anyhow::Result<Reporting> { Ok(started(directory.path())?.0.status().reporting) };
    ensure!(matches!(reporting()?, Reporting::StorageUnusable(_)), "it has no lock");
    rustix::process::kill_process(parent, rustix::process::Signal::KILL)?;
    waitpid(Some(parent), WaitOptions::empty())?;
    let after = reporting()?;
    ensure!(matches!(after, Reporting::On), "the child keeps the lock: {after:?}");
    drop(ends);
    Ok(())
}

/// A process forks while another of its threads draws arms, and may hold any lock of the client.
fn a_handle_in_a_child_never_reports_nor_hangs() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let (bandana, mut tasks) = started(directory.path())?;
    let experiment = bandana.experiment("forked")?;
    let drawing = experiment.clone();
    std::thread::spawn(move || {
        loop {
            drawing.draw().reward(1.0);
        }
    });
    let id = |choice: &Choice| choice.assignment().map(|assignment| assignment.id().get() >> 32);
    let epoch = std::iter::repeat_with(|| id(&experiment.draw())).flatten().next();
    let mut arms = 0;
    for _ in 0..150 {
        let Some(child) = fork()? else {
            end_after(20);
            let choices: Vec<Choice> = (0..3).map(|_| experiment.draw()).collect();
            let unreported = choices.iter().all(|choice| match choice.assignment() {
                // An id of the child is none that the parent gives.
                Some(assignment) => {
                    assignment.unreported() == Some(Unreported::Forked) && id(choice) != epoch
                }
                None => true,
            });
            bandana.wake();
            let idle = matches!(tasks.next_task(), Ok(Task::Done));
            let knows = matches!(bandana.status().reporting, Reporting::Forked);
            let gave = choices.iter().any(|choice| choice.assignment().is_some());
            let ended = bandana.shutdown(Duration::from_secs(1));
            drop((choices, tasks, bandana));
            leave_with(if unreported && idle && knows && !ended { 1 + i32::from(gave) } else { 0 });
        };
        let (_, status) = waitpid(Some(child), WaitOptions::empty())?.context("no child")?;
        match status.exit_status() {
            Some(2) => arms += 1,
            Some(1) => {}
            // A child that hangs is ended by its alarm.
            other => anyhow::bail!("the child failed: {other:?}, {status:?}"),
        }
    }
    ensure!(arms > 0, "no child has drawn an arm");
    ensure!(matches!(bandana.status().reporting, Reporting::On), "the parent does not go on");
    tasks.write();
    ensure!(bandana.status().statistics.writes_failed == 0, "a write of the parent failed");
    Ok(())
}

/// Upload id and bit per specification.
type Reports = BTreeMap<Vec<u8>, (Vec<u8>, u8)>;

fn reports(mut uploads: &[u8]) -> anyhow::Result<Reports> {
    let mut reports = Reports::new();
    while let Some((&length, rest)) = uploads.split_first() {
        let (message, rest) = rest.split_at_checked(length.into()).context("cut off")?;
        let request = UploadRequest::decode(message)?;
        let bit = *request.bits.first().context("an upload without bits")?;
        reports.insert(request.digest.to_vec(), (request.upload_id.to_vec(), bit));
        uploads = rest;
    }
    Ok(reports)
}

/// A constant time: everything due happens at once.
fn now() -> Timestamp {
    Timestamp::from_unix_ms(86_400_000)
}

/// An experiment at the smallest epsilon, where a bit is almost a fair coin.
fn specification(name: &str) -> anyhow::Result<Specification> {
    Ok(Specification::first(
        ExperimentId::new(name)?,
        Epsilon::new(2_f64.powi(-20))?,
        Rewards::binary(),
        Mechanism::RandomizedResponse,
        vec![Arm::new("only")?],
        ReleaseTiming::IMMEDIATE,
    )?)
}

/// Draws private bits of the same reward, one a byte.
fn bits(privatizer: &Privatizer, noise: &mut impl NoiseSource) -> anyhow::Result<Vec<u8>> {
    let reward = Reward::new(1.0)?;
    let mut bit = || Ok(privatizer.privatize(&reward, noise)?.get().get());
    (0..DRAWS).map(|_| bit()).collect()
}

/// Draws words, eight bytes each.
fn words(noise: &mut impl NoiseSource, count: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count * 8);
    for _ in 0..count {
        bytes.extend(noise.word()?.to_le_bytes());
    }
    Ok(bytes)
}

fn no_common_word(parent: &[u8], child: &[u8]) -> anyhow::Result<()> {
    let (of_parent, of_child) = (parent.as_chunks::<8>().0, child.as_chunks::<8>().0);
    ensure!(of_parent.len() == DRAWS && of_child.len() == DRAWS, "words are missing");
    let of_parent: HashSet<_> = of_parent.iter().collect();
    ensure!(!of_child.iter().any(|word| of_parent.contains(word)), "a word on both sides");
    Ok(())
}

fn no_common_run(parent: &[u8], child: &[u8]) -> anyhow::Result<()> {
    ensure!(parent.len() == DRAWS && child.len() == DRAWS, "bits are missing");
    let same = |(of_parent, of_child)| of_parent == of_child;
    let runs = parent.windows(RUN).zip(child.windows(RUN));
    ensure!(!runs.into_iter().any(same), "{RUN} bits in a row on both sides");
    Ok(())
}

/// Forks, lets both processes `draw` from the same state, and returns what the
/// parent and what the child drew.
fn on_both_sides(
    mut draw: impl FnMut() -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let (mut reader, mut writer) = std::io::pipe()?;
    let Some(child) = fork()? else {
        let told = draw().and_then(|drawn| Ok(writer.write_all(&drawn)?));
        leave(told.is_ok());
    };
    drop(writer);
    let mut from_child = Vec::new();
    reader.read_to_end(&mut from_child)?;
    let status = waitpid(Some(child), WaitOptions::empty())?;
    let ended_well = status.is_some_and(|(_, status)| status.exit_status() == Some(0));
    ensure!(ended_well, "the child failed: {status:?}");
    Ok((draw()?, from_child))
}

/// The child's id in the parent, `None` in the child.
fn fork() -> anyhow::Result<Option<Pid>> {
    #[expect(unsafe_code, reason = "to fork is what this crate is for")]
    // SAFETY: the C library takes its own locks, those of its allocator among them, before it copies
    // the memory of a process. Other locks that a thread holds stay locked in the child, which is what
    // the last test is about; the others have one thread.
    let id = unsafe { libc::fork() };
    match id {
        -1 => Err(std::io::Error::last_os_error()).context("forking"),
        0 => Ok(None),
        id => Ok(Some(Pid::from_raw(id).context("a process id below zero")?)),
    }
}

/// Ends the child at once, without exit handlers: it must not repeat the parent's cleanup, such as
/// flushing output.
fn leave(well: bool) -> ! {
    leave_with(i32::from(!well))
}

/// Has the kernel end this process after so many seconds.
fn end_after(seconds: u32) {
    #[expect(unsafe_code, reason = "nothing else ends a process that waits for ever")]
    // SAFETY: `alarm` has no preconditions.
    unsafe {
        libc::alarm(seconds);
    }
}

fn leave_with(status: i32) -> ! {
    #[expect(unsafe_code, reason = "std::process::exit would run the parent's handlers")]
    // SAFETY: `_exit` has no preconditions.
    unsafe {
        libc::_exit(status)
    }
}
