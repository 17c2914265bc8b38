//! Users who disclose their rewards to an aggregator, each through the real client.

pub mod outcome;
pub mod world;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::danger;
use bandana_client::grpc::Transport;
use bandana_client::trusted::{Agreement, Disclosure, RhoBudget, TrustedError, TrustedExperiment};
use bandana_edge::operator_client::{TrustedClient, Wait};
use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::{
    ReleasedStatistics, TrustedExperimentName, TrustedSpecification, TrustedStatus,
};
use futures_util::stream::{self, StreamExt as _};
use rand::TryRng as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use tonic::transport::Endpoint;

use crate::simulation::Server;
use world::{Algorithm, World};

/// Maximum number of attempts per user.
const ATTEMPTS: usize = 60;

/// Pause between two attempts, unless the server names one.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// Settings of the simulation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Number of users, each with one reward.
    pub users: u64,
    /// Number of concurrent users.
    pub at_once: usize,
    /// The zCDP parameter ρ of each reward.
    pub rho: Rho,
    /// The seed of worlds and reactions, but not of the server's noise.
    pub seed: u64,
}

/// A user's play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Play {
    arm: usize,
    is_best: bool,
}

/// The outcome of the simulation.
#[derive(Clone, Debug)]
pub struct Disclosed {
    /// Number of plays of each arm; with contexts, arms have no fixed meaning.
    pub plays: Vec<u64>,
    /// Share of users who played the best arm or action.
    pub best_share: f64,
    /// Share of users who played the best one, in the last half.
    pub best_share_late: f64,
    /// The experiment's final status.
    pub status: TrustedStatus,
    /// The released statistics.
    pub released: ReleasedStatistics,
}

/// Creates an experiment, discloses one reward per user, and ends the experiment. `seen` is called
/// with the number of users done.
///
/// # Errors
/// When the server refuses something or can't be reached, or its count differs from its
/// acknowledgements.
pub async fn run(
    settings: &Settings,
    world: &World,
    server: &Server,
    mut seen: impl FnMut(u64),
) -> anyhow::Result<Disclosed> {
    let device = &server.device;
    let endpoint = Endpoint::from_shared(device.clone())?.tcp_nodelay(true);
    let channel = Wait::default().connect(&server.device_tls.apply(endpoint)?).await;
    let channel =
        channel.with_context(|| format!("can't reach the devices' service at {device}"))?;
    let mut operator = server.operator.connect_trusted().await?;
    let id = create(settings, world, &mut operator).await?;
    let agreement = Agreement::users_disclose_rewards(settings.rho);
    let experiment =
        TrustedExperiment::open(Transport::new(channel.into_channel()), id.clone(), agreement)
            .await?;

    let users = stream::iter(0..settings.users)
        .map(|number| user(&experiment, world, settings, number))
        .buffered(settings.at_once.max(1));
    let mut users = std::pin::pin!(users);
    let mut plays = Vec::new();
    while let Some(play) = users.next().await {
        plays.push(play?);
        seen(plays.len() as u64);
    }

    let name = TrustedExperimentName { experiment_id: id.to_string() };
    let released = operator.get_released(name.clone()).await?.into_inner();
    let status = operator.stop_trusted_experiment(name).await?.into_inner();
    ensure!(
        released.rewards == settings.users,
        "{} rewards were acknowledged, and {} count",
        settings.users,
        released.rewards
    );
    Ok(summed(world, &plays, status, released))
}

/// Creates the experiment under a unique name.
async fn create(
    settings: &Settings,
    world: &World,
    operator: &mut TrustedClient,
) -> anyhow::Result<ExperimentId> {
    let suffix = rand::rngs::SysRng.try_next_u64().context("no randomness for a name")?;
    let id = ExperimentId::new(format!("trusted-{}-{suffix:016x}", settings.seed))?;
    let specification = TrustedSpecification {
        experiment_id: id.to_string(),
        rewards_are_disclosed: true,
        rho: settings.rho.get(),
        algorithm: Some(world.message(settings.algorithm)),
    };
    let created = operator.create_trusted_experiment(specification).await;
    created.context("creating the experiment")?;
    Ok(id)
}

/// Fetches a recommendation, plays it, and discloses the reward.
async fn user(
    experiment: &TrustedExperiment,
    world: &World,
    settings: &Settings,
    number: u64,
) -> anyhow::Result<Play> {
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    rng.set_stream(number);
    let actions = world.actions_of_today(&mut rng);
    let arm = patiently(async || experiment.recommend_among(&actions).await).await?;
    let arm = usize::try_from(arm)?;
    let means = world.means(&actions);
    let mean = *means.get(arm).context("the server recommends an arm that does not exist")?;
    let reward = world.react(mean, &mut rng)?;
    let disclosure: Disclosure = match actions.get(arm) {
        Some(action) => experiment.disclosure_of(action.clone(), reward)?,
        None => experiment.disclosure(u32::try_from(arm)?, reward)?,
    };
    // Each user has a device, and discloses one reward: with its price rounded up to billionths.
    let cap = settings.rho.plus(Rho::new(1e-9)?);
    let device = danger::disclosures_in_memory(RhoBudget::new(cap, 1, cap)?)?;
    patiently(async || experiment.disclose(&disclosure, &device).await).await?;
    ensure!(device.spent().rewards == 1, "a reward was counted more than once");
    let is_best = means.iter().all(|other| *other <= mean);
    Ok(Play { arm, is_best })
}

/// Retries after temporary errors. A disclosure counts once, however often it is sent.
async fn patiently<T>(attempt: impl AsyncFn() -> Result<T, TrustedError>) -> anyhow::Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => match error.retry_after() {
                Some(wait) => tokio::time::sleep(wait).await,
                None if is_passing(&error) => tokio::time::sleep(BETWEEN_ATTEMPTS).await,
                None => return Err(error.into()),
            },
        }
    }
    Ok(attempt().await?)
}

fn is_passing(error: &TrustedError) -> bool {
    matches!(error, TrustedError::Call(status) if status.code() == tonic::Code::Unavailable)
}

fn summed(
    world: &World,
    plays: &[Play],
    status: TrustedStatus,
    released: ReleasedStatistics,
) -> Disclosed {
    let share = |plays: &[Play]| {
        let best = plays.iter().filter(|play| play.is_best).count();
        best as f64 / plays.len().max(1) as f64
    };
    let mut counts = vec![0; world.choices()];
    for play in plays {
        counts[play.arm] += 1;
    }
    Disclosed {
        plays: counts,
        best_share: share(plays),
        best_share_late: share(&plays[plays.len() / 2..]),
        status,
        released,
    }
}
