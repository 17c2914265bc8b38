//! Simulated users, each with a separate client, against an aggregator.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use bandana_client::grpc::{AppKey, Transport, run_until};
use bandana_client::{Acceptance, Reward, Shuffled, SimulatedClient, Statistics, Timestamp};
use bandana_edge::operator_client::{Client, Connection, TlsSource, Wait};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::cells::{CellsError, Measurement};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::{ExperimentId, Revision};
use bandana_shared::shuffling::{BatchSize, Permille};
use bandana_shared::specification::{
    Arm, ReleaseTiming, Specification, SpecificationParts, smallest_floor,
};
use bandana_shared::wire::v1::{
    self, CreateExperimentRequest, Estimates, EstimatesRequest, ExperimentName,
};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use rand::{RngExt as _, TryRng as _};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use tonic::transport::Endpoint;

use bandana_lab::instance::Instance;

use crate::impression_log::{ImpressionLog, SEGMENTATION};
use crate::population::Population;

/// Time limit of a user's attempts to upload.
const PATIENCE: Duration = Duration::from_mins(2);

/// Calls in flight on one connection.
const CALLS_PER_CONNECTION: usize = 4;

/// Domain separation between the users' reactions and their noise under one seed.
const REACTIONS: u64 = 0x7265_6163_7469_6f6e;

/// Settings of the simulation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of users, each with one report.
    pub users: u64,
    /// Number of users between two policies.
    pub refresh: u64,
    /// Number of shared connections.
    pub connections: usize,
    /// Privacy loss bound of one report.
    pub epsilon: Epsilon,
    /// The mechanism that privatizes rewards.
    pub mechanism: Mechanism,
    /// The learner.
    pub learner: v1::Learner,
    /// The reports of a shuffled batch. None: they are not shuffled.
    pub batch: Option<BatchSize>,
    /// Visits, segments and metrics.
    pub population: Population,
    /// The log that users and rewards are from. None: they are the population's and the arms'.
    pub log: Option<Arc<ImpressionLog>>,
    /// The seed of all randomness, except the names of uploads, and the order in which shuffled
    /// reports arrive: it decides which wait at the end.
    pub seed: u64,
}

impl Settings {
    /// What an experiment for these users measures.
    ///
    /// # Errors
    /// [`CellsError`] for too many segments or metrics.
    pub fn measurement(&self) -> Result<Measurement, CellsError> {
        let measurement = self.population.measurement()?;
        match &self.log {
            None => Ok(measurement),
            Some(log) => Ok(Measurement { segmentations: log.segmentations()?, ..measurement }),
        }
    }

    /// Checks that users can take part in an experiment that was there before.
    ///
    /// # Errors
    /// When it measures something else.
    pub fn check(&self, specification: &Specification) -> anyhow::Result<()> {
        ensure!(
            *specification.measurement() == self.measurement()?,
            "{} has other segments or metrics than the users; leave out --experiment",
            specification.experiment_id()
        );
        Ok(())
    }

    /// The segment of a user; 0 without segments.
    fn segment(&self, user: u64) -> usize {
        self.log.as_ref().map_or_else(|| self.population.segment(user), |log| log.segment(user))
    }

    /// The terms of a user.
    fn terms(&self, acceptance: Acceptance, user: u64) -> Acceptance {
        match &self.log {
            None => self.population.terms(acceptance, user),
            Some(log) => acceptance.segment(SEGMENTATION, log.value(log.segment(user))),
        }
    }

    /// The mean reward of each arm in a segment.
    pub fn means(&self, instance: &Instance, segment: usize) -> Vec<f64> {
        if let Some(log) = &self.log {
            return log.means(segment);
        }
        let (means, arms) = (instance.means(), instance.arms.len());
        (0..arms).map(|arm| means[self.population.taste(segment, arm, arms)]).collect()
    }

    /// The mean of something of each arm over all users, given what it is in each segment.
    pub fn over_all_users(&self, of_segment: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
        let mut users: BTreeMap<usize, f64> = BTreeMap::new();
        for user in 0..self.users {
            *users.entry(self.segment(user)).or_default() += 1.0 / self.users as f64;
        }
        let mut all = Vec::new();
        for (segment, share) in users {
            let own = of_segment(segment);
            all.resize(own.len(), 0.0);
            for (sum, mean) in all.iter_mut().zip(own) {
                *sum += share * mean;
            }
        }
        all
    }

    /// The reward that a user gives an arm.
    fn reward(&self, instance: &Instance, user: u64, arm: usize, rng: &mut ChaCha20Rng) -> f64 {
        match &self.log {
            None => {
                let arms = instance.arms.len();
                let taste = self.population.taste(self.segment(user), arm, arms);
                instance.arms[taste].rewards.draw(rng)
            }
            Some(log) => log.reward(user, arm, rng),
        }
    }
}

/// Progress after a round.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Number of visits of users so far.
    pub users: u64,
    /// Number of plays of each arm so far.
    pub plays: Vec<u64>,
    /// Pseudo-regret so far, in the true means.
    pub regret: f64,
    /// The arm that is certainly best, as far as it is asked: in a replay.
    pub verdict: Option<u32>,
}

/// The outcome of the simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The experiment's specification on the server.
    pub specification: Specification,
    /// Sum of all clients' counts.
    pub statistics: Statistics,
    /// State after every round.
    pub rounds: Vec<Progress>,
    /// The server's estimates at the end.
    pub estimates: Estimates,
}

/// An aggregator's addresses and credentials.
#[derive(Clone, Debug)]
pub struct Server {
    /// URL of the device service.
    pub device: String,
    /// URL of a relay to it, which devices call instead. None: they call it directly.
    pub relay: Option<String>,
    /// The key of the relay, if it shuffles.
    pub shuffler: Option<GatewayKeys>,
    /// Root certificates for the device service.
    pub device_tls: TlsSource,
    /// The connection to the operators' service.
    pub operator: Connection,
}

/// Connections to an aggregator.
#[derive(Debug)]
pub struct Connections {
    devices: Vec<Transport>,
    operator: Client,
    shuffler: Option<GatewayKeys>,
}

impl Connections {
    /// Connects to both services.
    ///
    /// # Errors
    /// When one of them is unreachable.
    pub async fn open(server: &Server, count: usize) -> anyhow::Result<Self> {
        ensure!(count > 0, "at least one connection is needed");
        let device = server.relay.as_ref().unwrap_or(&server.device);
        let endpoint = Endpoint::from_shared(device.clone())?.tcp_nodelay(true);
        let endpoint = server.device_tls.apply(endpoint)?;
        let unreachable = || format!("can't reach the device service at {device}");
        let devices: Vec<Transport> = stream::iter(0..count)
            .then(|_| Wait::default().connect(&endpoint))
            .map_ok(|channel| {
                let transport = Transport::new(channel.into_channel());
                // The relay and the gateway are processes of this machine.
                if server.relay.is_some() { transport.through_relay_unsigned() } else { transport }
            })
            .try_collect()
            .await
            .with_context(unreachable)?;
        let operator = server.operator.connect().await?;
        Ok(Self { devices, operator, shuffler: server.shuffler.clone() })
    }

    /// Presents this key with every call of a device.
    #[must_use]
    pub fn with_app_key(mut self, key: &AppKey) -> Self {
        let transports = self.devices.into_iter();
        self.devices = transports.map(|device| device.with_app_key(key.clone())).collect();
        self
    }

    /// Fetches an existing experiment and its learner.
    ///
    /// # Errors
    /// When it does not exist, or when users of this instance can't take part in it.
    pub async fn find(
        &mut self,
        experiment_id: &ExperimentId,
        instance: &Instance,
    ) -> anyhow::Result<(Specification, v1::Learner)> {
        let name = ExperimentName { experiment_id: experiment_id.to_string() };
        let status = self.operator.get_experiment_status(name).await?.into_inner();
        let learner = status.learner();
        let specification = status.specification.context("an answer without experiment")?;
        let specification = Specification::try_from(&specification)?;
        check(&specification, instance)?;
        Ok((specification, learner))
    }
}

/// Checks that simulated users can take part.
fn check(specification: &Specification, instance: &Instance) -> anyhow::Result<()> {
    let id = specification.experiment_id();
    ensure!(
        specification.is_simulation() && specification.timing() == ReleaseTiming::IMMEDIATE,
        "{id} is for users who are not simulated; create one with --simulation and \
         --attribution-window-seconds 0"
    );
    let arms: Vec<&str> = specification.arms().iter().map(Arm::label).collect();
    let wanted: Vec<&str> = instance.arms.iter().map(|arm| arm.label.as_str()).collect();
    ensure!(arms == wanted, "{id} has the arms {arms:?}, and the users know {wanted:?}");
    let (rewards, given) = (specification.rewards(), instance.rewards());
    ensure!(rewards == given, "{id} takes rewards of {rewards:?}, and the users give {given:?}");
    Ok(())
}

/// Creates an experiment, runs all users through it, calls `on_round` after every round, and stops
/// it.
///
/// # Errors
/// When the server refuses the experiment or can't be reached, or when a user's
/// report is not counted.
pub async fn run(
    settings: &Settings,
    instance: &Instance,
    connections: &mut Connections,
    on_round: impl FnMut(&Progress),
) -> anyhow::Result<Outcome> {
    let specification = create(settings, instance, &mut connections.operator).await?;
    let experiment_id = specification.experiment_id().to_string();
    let outcome = run_in(specification, settings, instance, connections, on_round).await?;
    connections.operator.stop_experiment(ExperimentName { experiment_id }).await?;
    Ok(outcome)
}

/// Runs all users through an existing experiment, and calls `on_round` after every round. Epsilon,
/// mechanism and learner are the experiment's.
///
/// # Errors
/// When the server can't be reached, or when a user's report is not counted.
pub async fn run_in(
    specification: Specification,
    settings: &Settings,
    instance: &Instance,
    connections: &mut Connections,
    mut on_round: impl FnMut(&Progress),
) -> anyhow::Result<Outcome> {
    let experiment_id = specification.experiment_id().clone();
    let mut gaps = Gaps { settings, instance, of_segments: HashMap::new() };
    let mut statistics = Statistics::default();
    let (mut plays, mut regret) = (vec![0; instance.arms.len()], 0.0);
    let mut rounds = Vec::new();
    let refresh = usize::try_from(settings.refresh.max(1))?;
    let all: Vec<u64> = (0..settings.users).collect();
    let visits = settings.population.visits.max(1);
    let turns = (0..visits).flat_map(|visit| all.chunks(refresh).map(move |users| (visit, users)));
    // The clients of those who will come again.
    let mut clients: HashMap<u64, SimulatedClient> = HashMap::new();
    for (visit, users) in turns {
        let round = Round { settings, instance, specification: &specification, connections, visit };
        for user in round.run(users, &mut clients).await? {
            plays[user.arm] += 1;
            regret += gaps.gap(settings.segment(user.number), user.arm);
            if visit + 1 == visits {
                add(&mut statistics, user.statistics);
            } else {
                clients.insert(user.number, user.client);
            }
        }
        if let Some(batch) = settings.batch {
            await_batches(&mut connections.operator, &experiment_id, batch, &plays).await?;
        }
        let name = ExperimentName { experiment_id: experiment_id.to_string() };
        connections.operator.refresh_policy(name).await.context("refreshing the policy")?;
        let users = u64::from(visit) * settings.users + users.last().map_or(0, |last| last + 1);
        let verdict = match settings.log {
            Some(_) => estimates(&mut connections.operator, &experiment_id).await?.best_arm,
            None => None,
        };
        let progress = Progress { users, plays: plays.clone(), regret, verdict };
        on_round(&progress);
        rounds.push(progress);
    }
    let estimates = estimates(&mut connections.operator, &experiment_id).await?;
    Ok(Outcome { specification, statistics, rounds, estimates })
}

async fn estimates(
    operator: &mut Client,
    experiment_id: &ExperimentId,
) -> anyhow::Result<Estimates> {
    let request =
        EstimatesRequest { experiment_id: experiment_id.to_string(), ..Default::default() };
    Ok(operator.get_estimates(request).await?.into_inner())
}

/// By how much arms are worse than the best one, in each segment.
struct Gaps<'a> {
    settings: &'a Settings,
    instance: &'a Instance,
    of_segments: HashMap<usize, Vec<f64>>,
}

impl Gaps<'_> {
    fn gap(&mut self, segment: usize, arm: usize) -> f64 {
        let of_segment = self.of_segments.entry(segment).or_insert_with(|| {
            let means = self.settings.means(self.instance, segment);
            let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            means.into_iter().map(|mean| best - mean).collect()
        });
        of_segment[arm]
    }
}

/// Waits until the aggregator has every full batch.
async fn await_batches(
    operator: &mut Client,
    experiment_id: &ExperimentId,
    batch: BatchSize,
    plays: &[u64],
) -> anyhow::Result<()> {
    let batch = u64::from(batch.get());
    let expected: u64 = plays.iter().map(|reports| reports / batch * batch).sum();
    let arrived = async {
        loop {
            let reports = estimates(operator, experiment_id).await?.reports;
            ensure!(reports <= expected, "{reports} reports are counted; {expected} can be");
            if reports == expected {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let arrived = tokio::time::timeout(PATIENCE, arrived).await;
    arrived.with_context(|| format!("{expected} reports in full batches did not arrive"))?
}

/// The terms of every user.
fn acceptance(
    specification: &Specification,
    instance: &Instance,
    connections: &Connections,
) -> Acceptance {
    let acceptance = Acceptance::unsigned(specification.epsilon(), instance.rewards());
    let Some(relay) = &connections.shuffler else { return acceptance };
    // Nobody is behind a simulated user: all may collude, and nothing has to be certified.
    let terms = Shuffled::by(relay.clone(), PrivacyLoss::UNBOUNDED, Delta::VACUOUS);
    let all = Permille::new(1000).unwrap_or_default();
    acceptance.shuffled(terms.with_colluders(all))
}

/// Creates the experiment under a unique name.
async fn create(
    settings: &Settings,
    instance: &Instance,
    operator: &mut Client,
) -> anyhow::Result<Specification> {
    let suffix = rand::rngs::SysRng.try_next_u64().context("no randomness for a name")?;
    let arms = instance.arms.iter().map(|arm| Arm::new(arm.label.clone()));
    let wanted = Specification::new(SpecificationParts {
        experiment_id: ExperimentId::new(format!("simulated-{}-{suffix:016x}", settings.seed))?,
        revision: Revision::FIRST,
        simulation: true,
        epsilon: settings.epsilon,
        floor: smallest_floor(settings.mechanism, settings.epsilon),
        rewards: instance.rewards(),
        mechanism: settings.mechanism,
        arms: arms.collect::<Result<_, _>>()?,
        timing: ReleaseTiming::IMMEDIATE,
        batch: settings.batch,
        participation: settings.population.participation(),
        measurement: settings.measurement()?,
    })?;
    let request = CreateExperimentRequest {
        specification: Some(v1::Specification { floor: 0, ..(&wanted).into() }),
        learner: settings.learner.into(),
        // The simulation's output names the estimand.
        accept_nonlinear_estimand: true,
        ..Default::default()
    };
    let created = operator.create_experiment(request).await.context("creating the experiment")?;
    let created = created.into_inner().specification.context("an answer without experiment")?;
    Ok(Specification::try_from(&created)?)
}

/// A user after choice and reaction.
struct User {
    number: u64,
    client: SimulatedClient,
    arm: usize,
    statistics: Statistics,
}

/// A visit of some users.
#[derive(Clone, Copy)]
struct Round<'a> {
    settings: &'a Settings,
    instance: &'a Instance,
    specification: &'a Specification,
    connections: &'a Connections,
    /// The visit, from 0.
    visit: u32,
}

impl Round<'_> {
    /// Lets every user of a round choose, then lets every user report.
    ///
    /// The steps are separate so that all users of a round choose by the same policy, whatever the
    /// order of uploads. So the outcome depends on the seed only.
    async fn run(
        self,
        users: &[u64],
        clients: &mut HashMap<u64, SimulatedClient>,
    ) -> anyhow::Result<Vec<User>> {
        let connections = self.connections;
        let in_flight = connections.devices.len() * CALLS_PER_CONNECTION;
        let transport = |user: u64| {
            let place = user % connections.devices.len() as u64;
            connections.devices[usize::try_from(place).unwrap_or(0)].clone()
        };
        let acceptance = acceptance(self.specification, self.instance, connections);
        let clients: Vec<(u64, SimulatedClient)> = users
            .iter()
            .map(|&user| {
                let client = clients.remove(&user);
                let mut client =
                    client.unwrap_or_else(|| SimulatedClient::seeded(self.settings.seed, user));
                // At a later visit too: the policy is fetched then.
                let terms = self.settings.terms(acceptance.clone(), user);
                client.enroll(self.specification.experiment_id().clone(), terms);
                (user, client)
            })
            .collect();
        let choosing =
            clients.into_iter().map(|(user, client)| self.choose(user, client, transport(user)));
        let chosen: Vec<User> = stream::iter(choosing).buffered(in_flight).try_collect().await?;
        let reporting = chosen.into_iter().map(|user| {
            let transport = transport(user.number);
            report(user, transport, self.visit)
        });
        stream::iter(reporting).buffered(in_flight).try_collect().await
    }

    async fn choose(
        self,
        number: u64,
        client: SimulatedClient,
        mut transport: Transport,
    ) -> anyhow::Result<User> {
        let Self { settings, instance, specification, visit, .. } = self;
        let experiment_id = specification.experiment_id();
        let client = Mutex::new(client);
        let clock = || at_visit(visit);
        // The only task at first is to fetch the policy.
        run_until(&client, &mut transport, &clock, clock().after(PATIENCE)).await?;
        let mut client = client.into_inner()?;
        let time = clock();
        let assignment = client.draw(experiment_id, time)?;
        let arm = assignment.arm().get();
        let mut rng = ChaCha20Rng::seed_from_u64(settings.seed ^ REACTIONS);
        rng.set_stream(number);
        rng.set_word_pos(u128::from(visit) << 32);
        let reward = Reward::new(settings.reward(instance, number, arm, &mut rng))?;
        if assignment.unreported().is_none() {
            client.reward(assignment.id(), reward, time)?;
            for metric in settings.population.metric_names() {
                let is_one = rng.random_bool(Population::metric_mean(arm, instance.arms.len()));
                let value = Reward::new(f64::from(u8::from(is_one)))?;
                client.measure(assignment.id(), &metric, value, time)?;
            }
        }
        Ok(User { number, client, arm, statistics: Statistics::default() })
    }
}

async fn report(mut user: User, mut transport: Transport, visit: u32) -> anyhow::Result<User> {
    let client = Mutex::new(user.client);
    let clock = || at_visit(visit);
    run_until(&client, &mut transport, &clock, clock().after(PATIENCE)).await?;
    user.client = client.into_inner()?;
    user.statistics = user.client.statistics();
    let counted = user.statistics.uploads_accepted + user.statistics.uploads_duplicate;
    if counted != 1 {
        bail!("the report of user {} was not counted: {:?}", user.number, user.statistics);
    }
    Ok(user)
}

fn add(sum: &mut Statistics, one: Statistics) {
    sum.assignments += one.assignments;
    sum.assignments_without_report += one.assignments_without_report;
    sum.reports_made += one.reports_made;
    sum.reports_expired += one.reports_expired;
    sum.rewards_refused += one.rewards_refused;
    sum.writes_failed += one.writes_failed;
    sum.days_refused += one.days_refused;
    sum.uploads_accepted += one.uploads_accepted;
    sum.uploads_duplicate += one.uploads_duplicate;
    sum.uploads_refused += one.uploads_refused;
    sum.uploads_postponed += one.uploads_postponed;
    sum.fetches_failed += one.fetches_failed;
    sum.answers_refused += one.answers_refused;
}

/// The time of a visit, by the users' clocks: each visit is a second later, so that the window of the
/// assignment before is over.
fn at_visit(visit: u32) -> Timestamp {
    now().after(Duration::from_secs(u64::from(visit)))
}

/// The system's time.
#[expect(clippy::disallowed_methods, reason = "the host of a client tells it the time")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
