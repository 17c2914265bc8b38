//! One round: a store, its servers, and all callers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::GetExperimentRequest;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tonic::Code;

use super::analysts::{self, Spent};
use super::attackers::Attacker;
use super::checks;
use super::disclosers::{self, Releases, Rewards};
use super::figures::{Figures, Group};
use super::log::PublicLog;
use super::operators::{self, OperatorBook};
use super::restored::Restored;
use super::server::Server;
use super::trouble::{
    Custodian, FEW_IDS, IDS_MAX, Site, Trouble, strike_database, strike_networks,
};
use super::uploaders::{self, UploadBook};
use super::ways::{Caller, Way};
use crate::authority::Authority;
use crate::disk::Disk;
use crate::postgres::Postgres;

/// Number of servers of one database.
const REPLICAS: usize = 3;

/// Number of devices that upload.
const UPLOADERS: u64 = 6;

/// Number of users who disclose rewards.
const DISCLOSERS: u64 = 3;

/// Number of concurrent attackers.
const ATTACKERS: u64 = 2;

/// The experiments of the devices.
const EXPERIMENTS: [&str; 2] = ["besieged", "encircled"];

/// The experiment of the attackers.
const STRANGERS: &str = "strangers";

/// Time limit for all answers once the trouble is over.
const PATIENCE: Duration = Duration::from_mins(2);

/// The servers' flags, besides those of the store.
const FLAGS: [&str; 8] = [
    "--limit-memory-mib",
    "64",
    "--limit-handshake-seconds",
    "2",
    "--limit-answer-seconds",
    "2",
    "--drain-deadline",
    "20",
];

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A directory, and one server.
    Sqlite,
    /// A database, and three servers.
    Postgres,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        })
    }
}

/// The plan of a round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind of store.
    pub store: Store,
    /// The seed of all choices.
    pub seed: u64,
    /// Duration of the trouble.
    pub time: Duration,
    /// A program that calls [`bandana_aggregator::cli::main`].
    pub program: PathBuf,
    /// Folder for the servers' logs of a failed round.
    pub logs: PathBuf,
}

impl Plan {
    /// A generator for one participant.
    fn random(&self, whose: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(whose);
        random
    }
}

/// The records of the well-behaved callers.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) uploads: Vec<UploadBook>,
    pub(super) rewards: Vec<Rewards>,
    pub(super) releases: Releases,
    /// The debits of each data set.
    pub(super) spent: [Spent; 2],
    pub(super) operator: OperatorBook,
    /// The experiments of the devices.
    pub(super) experiments: Vec<Specification>,
}

/// The parts of a round.
pub(super) struct Ground {
    pub(super) site: Site,
    pub(super) custodian: Custodian,
    log: Option<PublicLog>,
    database: Option<(Arc<Postgres>, String)>,
    folder: Arc<tempfile::TempDir>,
}

/// Besieges servers for the planned time, or until `is_enough`, and checks their counts.
///
/// # Errors
/// When the round can't be run. Failures of the servers are among the figures.
pub async fn besiege(
    plan: &Plan,
    figures: &Arc<Figures>,
    is_enough: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let ground = lay_ground(plan, figures).await?;
    let folder = Arc::clone(&ground.folder);
    let outcome = hold(ground, plan, figures, is_enough).await;
    if outcome.is_err() || !figures.all_wrong().is_empty() {
        keep_logs(folder.path(), plan)?;
    }
    outcome
}

async fn hold(
    mut ground: Ground,
    plan: &Plan,
    figures: &Arc<Figures>,
    mut is_enough: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let (experiments, strangers, day) = prepare(&ground.site).await?;
    let running: Vec<_> = ground.site.servers.iter().map(Server::running).collect();
    let (no_more_trouble, is_calm) = watch::channel(false);
    let (nothing_new, is_over) = watch::channel(false);
    let honest = Honest::begin(plan, figures, &ground.site, &is_over, &experiments, day);
    let mut attackers = JoinSet::new();
    for number in 0..ATTACKERS {
        let attacker = Attacker {
            servers: running.clone(),
            random: plan.random(100 + number),
            figures: Arc::clone(figures),
            experiment: strangers.clone(),
            hello: ground.site.authority.client_hello()?,
            day,
        };
        attackers.spawn(attacker.attack());
    }

    let trouble = |whose| Trouble {
        random: plan.random(whose),
        figures: Arc::clone(figures),
        is_over: is_calm.clone(),
    };
    let servers = &ground.site.servers;
    let networks = servers
        .iter()
        .flat_map(|server| [Arc::clone(&server.device), Arc::clone(&server.operator)]);
    let weather = tokio::spawn(strike_networks(networks.collect(), trouble(200)));
    let watching = tokio::spawn(ground.custodian.clone().watch(trouble(201)));
    let log = ground.log.take().map(|log| tokio::spawn(log.watch(running.clone(), trouble(204))));
    let database = ground.database.clone();
    let database =
        database.map(|(postgres, url)| tokio::spawn(strike_database(postgres, url, trouble(202))));
    let struck = tokio::spawn(ground.site.strike(trouble(203)));
    tokio::time::timeout(plan.time, is_enough.wait_for(|is_enough| *is_enough)).await.ok();

    no_more_trouble.send_replace(true);
    attackers.shutdown().await;
    weather.await?;
    if let Some(database) = database {
        database.await?.context("the database")?;
    }
    ground.site = struck.await?.context("the servers")?;
    let backup = watching.await?.context("backups")?;
    if ground.site.ids_max.is_some() {
        ground.site.end_with_room_for_ids(IDS_MAX).await?;
    }
    nothing_new.send_replace(true);
    if let Some(log) = log {
        log.await?.context("the log")?.check(&running, figures).await?;
    }
    let Some(books) = honest.end(figures).await? else { return Ok(()) };
    let books = Books { experiments, ..books };
    checks::check(&mut ground, &books, plan, figures).await?;
    if let Some(backup) = backup {
        let restored = Restored { books: &books, backup: &backup, figures, plan };
        match ground.database.clone() {
            None => restored.check(&mut ground, day).await?,
            Some((postgres, url)) => restored.check_database(&mut ground, postgres, url).await?,
        }
    }
    Ok(())
}

/// Keeps the logs of a failed round.
fn keep_logs(folder: &Path, plan: &Plan) -> anyhow::Result<()> {
    let kept = plan.logs.join(format!("{}-{}", plan.store, plan.seed));
    std::fs::create_dir_all(&kept)?;
    for file in std::fs::read_dir(folder)? {
        let file = file?;
        if file.path().extension().is_some_and(|extension| extension == "log") {
            std::fs::copy(file.path(), kept.join(file.file_name()))?;
        }
    }
    Ok(())
}

impl Ground {
    /// The folder of the round.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Starts servers on an empty store.
async fn lay_ground(plan: &Plan, figures: &Arc<Figures>) -> anyhow::Result<Ground> {
    let folder = Arc::new(tempfile::Builder::new().prefix("bandana-siege-").tempdir()?);
    let sets = folder.path().join("sets");
    std::fs::create_dir(&sets)?;
    analysts::write_files(&sets)?;
    let text = |path: &Path| anyhow::Ok(path.to_str().context("an odd name")?.to_owned());
    let mut flags = FLAGS.map(str::to_owned).to_vec();
    flags.extend(["--data-sets".to_owned(), text(&sets)?]);
    let (authority, certificates) = (Authority::new()?, folder.path().join("certificates"));
    std::fs::create_dir(&certificates)?;
    authority.sign(&certificates, "device")?;
    let trust = plan.random(2).random_bool(0.3).then(|| authority.pem.clone());
    if trust.is_some() {
        for (flag, file) in [("--tls-certificate", "device.pem"), ("--tls-key", "device.key")] {
            flags.extend([flag.to_owned(), text(&certificates.join(file))?]);
        }
        figures.add(Group::Trouble, "rounds with TLS", 1);
    }
    let mut log = None;
    if trust.is_none() && plan.random(3).random_bool(0.6) {
        let begun = PublicLog::begin(&plan.program, folder.path()).await?;
        flags.extend(begun.flags());
        log = Some(begun);
        figures.add(Group::Trouble, "rounds with a public log", 1);
    }
    let (mut disk, mut database, mut ids_max) = (None, None, None);
    let (store, count) = match plan.store {
        Store::Sqlite => {
            match Disk::new(folder.path().join("disk"), "512m") {
                Ok(own) => disk = Some(own),
                Err(_) => figures.add(Group::Trouble, "rounds without a disk of their own", 1),
            }
            let place = disk.as_ref().map_or(folder.path(), Disk::path).join("store");
            ids_max = plan.random(1).random_bool(0.5).then_some(FEW_IDS);
            if let Some(ids_max) = ids_max {
                flags.extend(["--ids-max".to_owned(), ids_max.to_string()]);
            }
            (["--data-dir".to_owned(), text(&place)?], 1)
        }
        Store::Postgres => {
            let started = tokio::task::spawn_blocking(|| {
                let postgres = Postgres::start()?;
                let url = postgres.database()?;
                anyhow::Ok((Arc::new(postgres), url))
            });
            let (postgres, url) = started.await??;
            database = Some((postgres, url.clone()));
            (["--store".to_owned(), url], REPLICAS)
        }
    };
    flags.extend(store.clone());
    let mut servers = Vec::new();
    for number in 0..count {
        let (name, seed) = (format!("server-{number}"), plan.random(10 + number as u64).random());
        let mut server =
            Server::new(name, &plan.program, flags.clone(), folder.path(), seed).await?;
        server.trust.clone_from(&trust);
        server.start(if number == 0 { &["--init"] } else { &[] }).await?;
        servers.push(server);
    }
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups)?;
    let dump = database.as_ref().map(|(postgres, _)| postgres.program("pg_dump"));
    let site = Site { servers, disk, authority, certificates, ids_max };
    let custodian = Custodian { program: plan.program.clone(), store, backups, dump };
    Ok(Ground { site, custodian, log, database, folder })
}

/// Connections to a server that bypass the simulated network.
pub(super) fn way_to(server: &Server) -> anyhow::Result<Way> {
    let running = server.running().borrow().clone().context("it is down")?;
    running.way()
}

/// Creates experiments and data sets. Returns the devices' experiments, the attackers' experiment,
/// and the day.
async fn prepare(site: &Site) -> anyhow::Result<(Vec<Specification>, Specification, Day)> {
    let mut way = way_to(&site.servers[0])?;
    let mut experiments = Vec::new();
    for id in EXPERIMENTS.iter().chain([&STRANGERS]) {
        let created = way.operator.create_experiment(operators::creation(id)).await?.into_inner();
        let created = created.specification.context("no specification")?;
        experiments.push(Specification::try_from(&created)?);
    }
    let strangers = experiments.pop().context("no experiment")?;
    for experiment in disclosers::experiments() {
        way.trusted_operator.create_trusted_experiment(experiment).await?;
    }
    for name in analysts::DATA_SETS {
        way.curator.register_data_set(analysts::registration(name)).await?;
    }
    let request = GetExperimentRequest { experiment_id: EXPERIMENTS[0].to_owned() };
    let told = async {
        loop {
            match way.device.get_experiment(request.clone()).await {
                // The log does not say it yet.
                Err(status) if status.code() == Code::Unavailable => {}
                other => return other,
            }
        }
    };
    let day = tokio::time::timeout(PATIENCE, told).await??.into_inner().server_day;
    Ok((experiments, strangers, Day::new(day)))
}

/// All well-behaved callers.
struct Honest {
    uploads: JoinSet<anyhow::Result<UploadBook>>,
    rewards: JoinSet<Rewards>,
    releases: JoinHandle<Releases>,
    spent: [JoinHandle<Spent>; 2],
    operator: JoinHandle<OperatorBook>,
    /// The caller that resumes paused experiments.
    resuming: Caller,
}

impl Honest {
    fn begin(
        plan: &Plan,
        figures: &Arc<Figures>,
        site: &Site,
        is_over: &watch::Receiver<bool>,
        experiments: &[Specification],
        day: Day,
    ) -> Self {
        let caller = |whose| {
            let ways = site.servers.iter();
            let ways = ways.map(|server| {
                let (device, operator) = (&server.device.address, &server.operator.address);
                Way::to(device, operator, server.trust.as_deref())
            });
            Caller {
                ways: ways.filter_map(Result::ok).collect(),
                random: plan.random(whose),
                figures: Arc::clone(figures),
                is_over: is_over.clone(),
                tries_again: plan.store == Store::Postgres,
            }
        };
        let (mut uploads, mut rewards) = (JoinSet::new(), JoinSet::new());
        for number in 0..UPLOADERS {
            uploads.spawn(uploaders::upload(caller(20 + number), experiments.to_vec(), day));
        }
        for number in 0..DISCLOSERS {
            rewards.spawn(disclosers::disclose(caller(40 + number), day.get()));
        }
        let shared = EXPERIMENTS.map(str::to_owned).to_vec();
        Self {
            uploads,
            rewards,
            releases: tokio::spawn(disclosers::read_releases(caller(60))),
            spent: [
                tokio::spawn(analysts::ask(caller(61))),
                tokio::spawn(analysts::ask_sessions(caller(62))),
            ],
            operator: tokio::spawn(operators::operate(caller(63), shared)),
            resuming: caller(64),
        }
    }

    /// Waits until all callers have their answers. None: on a timeout.
    async fn end(self, figures: &Figures) -> anyhow::Result<Option<Books>> {
        let shared = EXPERIMENTS.map(str::to_owned).to_vec();
        let resuming = tokio::spawn(operators::resume_all(self.resuming, shared));
        let Self { uploads, rewards, releases, spent: [asked, sessions], operator, .. } = self;
        let all = async {
            let uploads = uploads.join_all().await.into_iter().collect::<anyhow::Result<_>>()?;
            let rewards = rewards.join_all().await;
            let spent = [asked.await?, sessions.await?];
            let (releases, operator) = (releases.await?, operator.await?);
            let experiments = Vec::new();
            anyhow::Ok(Books { uploads, rewards, releases, spent, operator, experiments })
        };
        let books = tokio::time::timeout(PATIENCE, all).await;
        resuming.abort();
        let Ok(books) = books else {
            figures.wrong("without any trouble not all is answered in two minutes");
            return Ok(None);
        };
        books.map(Some)
    }
}
