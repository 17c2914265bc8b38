//! The least that an app needs around the client. `.ci/size` measures it, with
//! the gRPC transport and without.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bandana_client::{Acceptance, Client, Reward, Timestamp};
use bandana_shared::{epsilon::Epsilon, identity::ExperimentId, rewards::Rewards};

fn main() -> Result<(), Box<dyn Error>> {
    let experiment = ExperimentId::new("button-colour")?;
    let mut client = Client::new();
    client.enroll(experiment.clone(), Acceptance::new(Epsilon::new(1.0)?, Rewards::binary()));
    let mut client = exchange(client)?;
    if let Ok(assignment) = client.choose(&experiment, now()) {
        client.reward(assignment.id(), Reward::new(1.0)?, now())?;
    }
    exchange(client)?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "an app tells the client the time")]
fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_unix_ms(0).after(since_epoch)
}

/// Fetches policies and sends reports over gRPC.
#[cfg(feature = "grpc")]
fn exchange(client: Client) -> Result<Client, Box<dyn Error>> {
    use bandana_client::grpc::{Transport, run_until};
    let client = std::sync::Mutex::new(client);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let channel = tonic::transport::Channel::from_static("http://127.0.0.1:7301");
        let mut transport = Transport::new(channel.connect_lazy());
        let deadline = now().after(Duration::from_secs(10));
        run_until(&client, &mut transport, &now, deadline).await
    })?;
    Ok(client.into_inner()?)
}

/// An app without gRPC carries out tasks over a network of its own. This one
/// gets its answers from itself, and its reports go nowhere.
#[cfg(not(feature = "grpc"))]
fn exchange(mut client: Client) -> Result<Client, Box<dyn Error>> {
    use bandana_client::{Task, UploadOutcome};
    loop {
        match client.next_task(now())? {
            Task::Fetch(task) => {
                let fetched = answer(task.experiment_id.clone())?;
                client.on_fetched(&task.experiment_id, fetched, now())?;
            }
            Task::Upload(task) => {
                std::hint::black_box(task.bytes());
                client.on_upload_result(task.id(), &UploadOutcome::Accepted, now())?;
            }
            Task::Wait(_) | Task::Done => return Ok(client),
        }
    }
}

#[cfg(not(feature = "grpc"))]
fn answer(experiment: ExperimentId) -> Result<bandana_client::Fetched, Box<dyn Error>> {
    use bandana_shared::policy::{Policy, Weights};
    use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
    use bandana_shared::{curve::Mechanism, identity::Day};
    let arms = vec![Arm::new("red")?, Arm::new("green")?];
    let (epsilon, timing) = (Epsilon::new(1.0)?, ReleaseTiming::IMMEDIATE);
    let mechanism = std::hint::black_box(Mechanism::Linear);
    let rewards = Rewards::binary();
    let specification =
        Specification::first(experiment, epsilon, rewards, mechanism, arms, timing)?;
    let weights = Weights::uniform(&specification.active_arms())?;
    let policy = Policy { version: 1, weights, time_to_live_seconds: 3600 };
    let day = Day::of_unix_seconds(now().unix_ms() / 1000);
    Ok(bandana_client::Fetched { specification: Some(specification), policy: Some(policy), day })
}
