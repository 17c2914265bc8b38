//! An audit from outside. The real client, with the operating system's noise, talks to a server
//! that records everything. The records of users who all had one reward, and of users who all had
//! another, may differ in the private bit only, and there by at most epsilon.
//!
//! Each statistical check fails by chance with a probability of 2e-9 at most; there are
//! about 700 of them.

use std::collections::BTreeMap;
use std::time::Duration;

use bandana_client::grpc::{AppKey, Transport};
use bandana_client::{Acceptance, Budget, Client, Reward, Task, Timestamp};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::tally::Tally;
use bandana_shared::wire::read_upload;
use bandana_shared::wire::v1::UploadRequest;
use bandana_tests::fake_server::Recorder;
use prost::Message as _;

const EPSILON: f64 = 1.0;

/// Number of users of each reward, and of those who share a client.
const USERS: u64 = 4500;
const USERS_PER_CLIENT: u64 = 500;

/// Quantile of the normal distribution that is exceeded with a probability of 1e-9.
const QUANTILE: f64 = 5.998;

const WINDOW_SECONDS: u32 = 60;
const DELAY_SECONDS: u32 = 100;

/// Interval between two readings of the clock, in seconds.
const STEP_SECONDS: usize = 10;

/// An observer's records of the users of one reward.
#[derive(Clone, Debug, Default)]
struct Records {
    /// Number of uploads in each step of the clock, by its end.
    times: BTreeMap<u64, u64>,
    /// Lengths of the messages.
    lengths: BTreeMap<usize, u64>,
    /// The messages without the upload's name and the private bit, with the metadata.
    rest: BTreeMap<(Vec<u8>, String), u64>,
    /// The number of ones of each bit of the uploads' names.
    name_bits: Vec<u64>,
    /// The number of private bits that were 1, or of symbols that were the last one.
    ones: u64,
    questions: usize,
}

fn specification(mechanism: Mechanism) -> anyhow::Result<Specification> {
    let rewards = match mechanism {
        Mechanism::RandomizedResponse => Rewards::binary(),
        _ => Rewards::bounded(RewardRange::UNIT),
    };
    Ok(Specification::first(
        ExperimentId::new("audit")?,
        Epsilon::new(EPSILON)?,
        rewards,
        mechanism,
        vec![Arm::new("only")?],
        ReleaseTiming {
            attribution_window_seconds: WINDOW_SECONDS,
            release_delay_seconds_max: DELAY_SECONDS,
        },
    )?)
}

/// Runs the client's tasks that are due at this time.
async fn carry_out(
    client: &mut Client,
    transport: &mut Transport,
    now: Timestamp,
) -> anyhow::Result<()> {
    loop {
        match client.next_task(now)? {
            Task::Fetch(task) => {
                let fetched = transport.fetch(&task).await?;
                client.on_fetched(&task, fetched, now)?;
            }
            Task::Upload(task) => {
                let outcome = transport.upload(&task).await;
                client.on_upload_result(task.id(), &outcome, now)?;
            }
            Task::Shuffled(task) => {
                let outcome = transport.upload_shuffled(&task).await;
                client.on_upload_result(task.id(), &outcome, now)?;
            }
            Task::Wait(_) | Task::Done => return Ok(()),
        }
    }
}

/// Runs users who all react with `reward`, `reactions` times each, and records them.
async fn record(
    specification: &Specification,
    reward: f64,
    reactions: u32,
) -> anyhow::Result<Records> {
    let start = Timestamp::from_unix_ms(1_700_000_000_000);
    let recorder = Recorder::start(start.day())?;
    let weights = Weights::uniform(&[true])?;
    recorder.serve(specification, &Policy { version: 1, weights, time_to_live_seconds: 3600 });
    // The app key, which every installation shares.
    let key = AppKey::new("bndk_audit")?;
    let mut transport = Transport::new(recorder.channel()?).with_app_key(key);
    let mut records = Records { name_bits: vec![0; 128], ..Records::default() };
    for _ in 0..USERS / USERS_PER_CLIENT {
        let id = specification.experiment_id();
        let mut client = Client::new(Budget::UNLIMITED);
        let acceptance = Acceptance::unsigned(specification.epsilon(), specification.rewards())
            .least_release_delay(Duration::ZERO);
        client.enroll(id.clone(), acceptance);
        carry_out(&mut client, &mut transport, start).await?;
        for _ in 0..USERS_PER_CLIENT {
            let assignment = client.draw(id, start)?;
            for _ in 0..reactions {
                client.reward(assignment.id(), Reward::new(reward)?, start)?;
            }
        }
        for second in (STEP_SECONDS as u64..300).step_by(STEP_SECONDS) {
            // Reports of one client in one slot of time leave together. A step has whole slots: what
            // leaves as a slot begins is of the step that begins with it.
            let now = start.after(Duration::from_millis(second * 1000 - 1));
            let before = recorder.uploads().len();
            carry_out(&mut client, &mut transport, now).await?;
            let came = (recorder.uploads().len() - before) as u64;
            *records.times.entry(second).or_default() += came;
        }
    }
    records.questions = recorder.questions().len();
    for upload in recorder.uploads() {
        let message = UploadRequest::decode(upload.bytes.clone())?;
        let alphabet = specification.channel().alphabet();
        let reports = read_upload(&message, alphabet)?.reports;
        let highest = |(_, tally): (_, Tally)| tally.count(alphabet.last());
        records.ones += reports.tallies().map(highest).sum::<u64>();
        for (bit, count) in records.name_bits.iter_mut().enumerate() {
            *count += u64::from(message.upload_id[bit / 8] >> (bit % 8) & 1);
        }
        *records.lengths.entry(upload.bytes.len()).or_default() += 1;
        let zeroed = [vec![0; message.upload_id.len()], vec![0; message.bits.len()]];
        let [upload_id, bits] = zeroed.map(Into::into);
        let rest = UploadRequest { upload_id, bits, ..message }.encode_to_vec();
        *records.rest.entry((rest, format!("{:?}", upload.metadata))).or_default() += 1;
    }
    Ok(records)
}

/// Whether two shares among [`USERS`] each differ significantly.
fn differ(one: u64, other: u64) -> bool {
    let users = USERS as f64;
    let pooled = (one + other) as f64 / (2.0 * users);
    let deviation = (2.0 * pooled * (1.0 - pooled) / users).sqrt();
    (one as f64 - other as f64).abs() / users > QUANTILE * deviation.max(1e-9)
}

/// A lower confidence bound on |ln(P(outcome | one) / P(outcome | other))|, from its frequency
/// among [`USERS`] each (the delta method).
fn loss_at_least(one: u64, other: u64) -> f64 {
    let share = |count: u64| count as f64 / USERS as f64;
    let variance = |count: u64| (1.0 - share(count)) / count as f64;
    let ratio = (share(one) / share(other)).ln().abs();
    ratio - QUANTILE * (variance(one) + variance(other)).sqrt()
}

/// The significant differences between the two records beyond what is allowed.
fn compare(low: &Records, high: &Records) -> Vec<String> {
    let mut found = Vec::new();
    for (what, same) in [
        ("lengths", low.lengths == high.lengths),
        ("other bytes or metadata", low.rest == high.rest),
        ("questions", low.questions == high.questions),
    ] {
        if !same {
            found.push(what.to_owned());
        }
    }
    let steps = low.times.keys().chain(high.times.keys());
    for step in steps {
        let count = |records: &Records| records.times.get(step).copied().unwrap_or(0);
        if differ(count(low), count(high)) {
            found.push(format!("uploads {step} s after the choice"));
        }
    }
    for bit in 0..128 {
        if differ(low.name_bits[bit], high.name_bits[bit]) {
            found.push(format!("bit {bit} of the names"));
        }
    }
    for (outcome, low, high) in
        [("1", low.ones, high.ones), ("0", USERS - low.ones, USERS - high.ones)]
    {
        if loss_at_least(low, high) > EPSILON {
            found.push(format!("outcome {outcome}: {low} and {high} of {USERS}"));
        }
    }
    found
}

#[tokio::test]
async fn rewards_differ_in_the_private_bit_and_in_nothing_else() -> anyhow::Result<()> {
    for mechanism in [
        Mechanism::Linear,
        Mechanism::Quadratic(Curvature::new(0.5)?),
        Mechanism::Exponential,
        Mechanism::RandomizedResponse,
        Mechanism::Kary(Alphabet::new(5)?),
    ] {
        let specification = specification(mechanism)?;
        // The pair that is easiest to distinguish. One user reacts once, the other three times.
        let low = record(&specification, 0.0, 1).await?;
        let high = record(&specification, 1.0, 3).await?;
        for records in [&low, &high] {
            assert_eq!(records.lengths.values().sum::<u64>(), USERS, "one report for each");
            assert_eq!((records.lengths.len(), records.rest.len()), (1, 1), "{records:?}");
            let early =
                records.times.iter().filter(|(time, _)| **time <= u64::from(WINDOW_SECONDS));
            assert_eq!(early.map(|(_, count)| count).sum::<u64>(), 0, "{:?}", records.times);
        }
        assert_eq!(compare(&low, &high), [""; 0], "{mechanism:?}");
        // The bits do carry information: these are the records of two rewards.
        assert!(loss_at_least(low.ones, high.ones) > EPSILON / 2.0, "{mechanism:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_audit_would_find_what_it_looks_for() -> anyhow::Result<()> {
    let specification = specification(Mechanism::Linear)?;
    let honest = record(&specification, 1.0, 1).await?;
    let others = record(&specification, 0.0, 1).await?;
    let altered = |change: fn(&mut Records)| {
        let mut records = others.clone();
        change(&mut records);
        compare(&records, &honest)
    };
    assert_eq!(compare(&others, &honest), [""; 0]);
    // Randomized response with 1.8 epsilon reports 1 for a 0 in 14.2% of all cases.
    let less_noise = altered(|records| records.ones = USERS * 142 / 1000);
    assert!(!less_noise.is_empty());
    let a_longer_message = altered(|records| *records.lengths.entry(48).or_default() += 1);
    assert_eq!(a_longer_message, ["lengths"]);
    // A tenth of the users reports 20 seconds earlier.
    let earlier = altered(|records| {
        *records.times.entry(140).or_default() -= USERS / 20;
        *records.times.entry(120).or_default() += USERS / 20;
    });
    assert!(!earlier.is_empty());
    let marked_names = altered(|records| records.name_bits[5] = USERS * 6 / 10);
    assert_eq!(marked_names, ["bit 5 of the names"]);
    Ok(())
}
