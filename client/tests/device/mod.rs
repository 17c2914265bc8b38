//! The client from outside: its decisions, its schedule, and that rewards change only the bit.

mod contexts;
mod judgement;
mod network;
mod rewards;
mod schedule;
#[cfg(feature = "relay")]
mod shuffled;
#[cfg(feature = "relay")]
mod shuffler;
mod signatures;
mod stores;

use bandana_client::{
    Acceptance, Budget, Client, ClientError, FetchTask, Fetched, SimulatedClient, Task, Timestamp,
};
use bandana_shared::cells::Measurement;
use bandana_shared::channel::Floor;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{Day, ExperimentId, Revision, StoreId};
use bandana_shared::participation::Participation;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use bandana_shared::upload::Upload;
use bandana_shared::wire::v1::UploadRequest;
use prost::Message as _;

type Failure = Box<dyn std::error::Error>;

/// Noise so small that a bit equals its reward, except once in `10^13`.
const ALMOST_NO_PRIVACY: f64 = 32.0;

/// The store of the specifications.
const STORE: StoreId = StoreId::new([1; 16]);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_000_000_000_000 + seconds * 1000)
}

fn id() -> Result<ExperimentId, Failure> {
    Ok(ExperimentId::new("colours")?)
}

/// Day 10 is that of second 0.
fn day(number: u32) -> Day {
    at(0).day().forward(number).back(10)
}

/// The fetch of a newer policy that follows a choice at `now`, within five minutes.
fn question<N: bandana_client::NoiseSource>(
    client: &mut bandana_client::Core<N>,
    now: Timestamp,
) -> Result<(FetchTask, Timestamp), Failure> {
    match client.next_task(now)? {
        Task::Fetch(task) => Ok((task, now)),
        Task::Wait(later) if later.since(now).as_secs() <= 300 => match client.next_task(later)? {
            Task::Fetch(task) => Ok((task, later)),
            other => Err(format!("a question was expected, not {other:?}").into()),
        },
        other => Err(format!("a question was expected, not {other:?}").into()),
    }
}

/// Three arms, the first revision, real users.
fn parts(epsilon: f64, rewards: Rewards) -> Result<SpecificationParts, Failure> {
    let epsilon = Epsilon::new(epsilon)?;
    Ok(SpecificationParts {
        experiment_id: id()?,
        revision: Revision::FIRST,
        simulation: false,
        epsilon,
        floor: Floor::for_epsilon(epsilon).get(),
        rewards,
        mechanism: Mechanism::Linear,
        arms: vec![Arm::new("red")?, Arm::new("green")?, Arm::new("blue")?],
        timing: ReleaseTiming::IMMEDIATE,
        batch: None,
        participation: Participation::EVERYONE,
        measurement: Measurement::REWARDS_ONLY,
    })
}

fn policy(arms: usize) -> Result<Policy, Failure> {
    let weights = Weights::uniform(&vec![true; arms])?;
    Ok(Policy { version: 7, weights, time_to_live_seconds: 60 })
}

fn answer(specification: Specification, day: u32) -> Result<Fetched, Failure> {
    let policy = policy(specification.arms().len())?;
    Ok(Fetched {
        specification,
        signatures: Vec::new(),
        policy,
        day: self::day(day),
        store: Some(STORE),
        view: None,
    })
}

fn acceptance(specification: &Specification) -> Acceptance {
    Acceptance::unsigned(specification.epsilon(), specification.rewards())
        .least_attribution_window(std::time::Duration::ZERO)
        .least_release_delay(std::time::Duration::ZERO)
}

/// A client that received an experiment at second 0 of day 10.
fn client(specification: &Specification) -> Result<Client, Failure> {
    let mut client = Client::new(Budget::UNLIMITED);
    client.enroll(id()?, acceptance(specification));
    client.on_fetched(&FetchTask::new(id()?), answer(specification.clone(), 10)?, at(0))?;
    Ok(client)
}

/// The same client with seeded noise.
fn simulated(specification: &Specification, seed: u64) -> Result<SimulatedClient, Failure> {
    let mut client = SimulatedClient::seeded(seed, 0);
    client.enroll(id()?, acceptance(specification));
    client.on_fetched(&FetchTask::new(id()?), answer(specification.clone(), 10)?, at(0))?;
    Ok(client)
}

/// The upload of a task, which must be one.
fn upload(task: Result<Task, ClientError>) -> Result<Upload, Failure> {
    match task? {
        Task::Upload(task) => Ok(Upload::try_from(&UploadRequest::decode(task.bytes())?)?),
        other => Err(format!("an upload was expected, not {other:?}").into()),
    }
}

/// Arm and bit of an upload with one report.
fn report(upload: &Upload) -> Result<(usize, bool), Failure> {
    let (arm, tally) = upload.reports.tallies().next().ok_or("an upload without report")?;
    Ok((arm.get(), tally.ones() == 1))
}
