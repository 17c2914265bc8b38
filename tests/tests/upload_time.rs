//! The time of an upload against its reward: the real driver, disk and network, with and without
//! rewards.
//!
//! The pauses here stand for minutes: the client has written by then what it writes at once. A busy
//! disk can hold a write up for longer than they last, so a pause begins once the file of rewards
//! has what the test waits for, and the test is a program of its own, with none beside it.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use bandana_client::grpc::Transport;
use bandana_tests::driven_app::{Hands, app, recorder, uploads_answered};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

/// Uploads with a reward, and as many without. Where rewards are written they are enough to find
/// two syncs more for a reward, of a fifth of a millisecond each.
fn uploads(keeps: bool) -> usize {
    if keeps { 1000 } else { 300 }
}

/// Time of the user before a late reward, and before the report is due.
const PAUSE: Duration = Duration::from_millis(3);

/// Maximum for the absolute value of the rank sum, in its standard deviations: equal distributions
/// exceed it with probability 7e-6.
const Z_MAX: f64 = 4.5;

/// The Mann-Whitney statistic of two samples of equal size, in standard deviations.
fn rank_test(one: &[Duration], other: &[Duration]) -> f64 {
    let wins: f64 = one
        .iter()
        .flat_map(|a| other.iter().map(move |b| a.cmp(b)))
        .map(|order| f64::from(order as i8) / 2.0)
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "hundreds of uploads")]
    let (n, m) = (one.len() as f64, other.len() as f64);
    wins / (n * m * (n + m + 1.0) / 12.0).sqrt()
}

/// Waits until the file of rewards is as wished, if there is one, and returns it.
fn rewards_when(directory: &Path, wished: impl Fn(&[u8]) -> bool) -> anyhow::Result<Vec<u8>> {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        match std::fs::read(directory.join("rewards")) {
            Ok(content) if !wished(&content) => {}
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            found => return Ok(found.unwrap_or_default()),
        }
        ensure!(Instant::now() < deadline, "the rewards were not written within a minute");
        std::thread::yield_now();
    }
}

/// The times from the moment at which a report is due to its arrival: with and without a reward, in
/// an order drawn at random.
fn times(keeps: bool, is_late: bool, directory: &Path) -> anyhow::Result<[Vec<Duration>; 2]> {
    let (recorder, clock) = (recorder()?, Hands::new());
    let builder = app(Transport::to(&recorder.url())?, directory, &clock)?;
    let builder = builder.keep_pending_rewards(keeps);
    let bandana = builder.start()?;
    let experiment = bandana.experiment("driven")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let arrival = |number: usize| {
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_mins(1), recorder.arrived(number)).await
        })
    };
    experiment.wait_until_ready(Duration::from_mins(1))?;
    // Another app of the device, which writes into a file of fixed size, as the client does.
    let file = tempfile::tempfile()?;
    let other_app = || {
        file.write_all_at(&[7; 4096], 0)?;
        file.sync_data()
    };
    other_app()?;
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut times = [Vec::new(), Vec::new()];
    while times.iter().any(|times| times.len() < uploads(keeps)) {
        let is_rewarded = random.random_bool(0.5);
        let is_erased = |content: &[u8]| content.iter().all(|byte| *byte == 0);
        rewards_when(directory, is_erased)?;
        let choice = experiment.draw();
        ensure!(choice.assignment().is_some(), "{:?}", bandana.status());
        if is_late {
            let drawn = rewards_when(directory, |content| !is_erased(content))?;
            std::thread::sleep(PAUSE);
            if is_rewarded {
                choice.reward(1.0);
            }
            rewards_when(directory, |content| !is_rewarded || content != drawn)?;
        } else {
            if is_rewarded {
                choice.reward(1.0);
            }
            rewards_when(directory, |content| !is_erased(content))?;
        }
        std::thread::sleep(PAUSE);
        // A reward of milliseconds ago, which stand for minutes, leaves threads and caches awake, and the
        // report would come some microseconds sooner. So the last use of both is the same.
        other_app()?;
        bandana.wake();
        std::thread::sleep(5 * PAUSE);
        let sent = recorder.uploads().len();
        clock.forward(26);
        let begin = Instant::now();
        bandana.wake();
        arrival(sent + 1)?;
        times[usize::from(is_rewarded)].push(begin.elapsed());
        uploads_answered(&bandana, u64::try_from(sent)? + 1)?;
    }
    Ok(times)
}

#[test]
fn the_time_of_an_upload_does_not_tell_whether_there_was_a_reward() -> anyhow::Result<()> {
    // They mostly sleep, and hold each other up at random moments only.
    std::thread::scope(|scope| {
        let settings = [(false, false), (false, true), (true, false), (true, true)];
        let tests = settings.map(|(keeps, is_late)| scope.spawn(move || rank_sum(keeps, is_late)));
        for ((keeps, is_late), test) in settings.into_iter().zip(tests) {
            let z = test.join().map_err(|_| anyhow!("a test has panicked"))??;
            let setting = if keeps { "kept" } else { "not kept" };
            let moment = if is_late { "later" } else { "at once" };
            ensure!(z.abs() < Z_MAX, "rewards {setting}, {moment}: z = {z:.2}");
        }
        Ok(())
    })
}

fn rank_sum(keeps: bool, is_late: bool) -> anyhow::Result<f64> {
    let directory = tempfile::tempdir()?;
    let [without, with] = times(keeps, is_late, directory.path())?;
    Ok(rank_test(&with, &without))
}
