//! Parts that the embedding examples share: a clock to turn, a server that comes and goes, and
//! the table that they print.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::{
    Acceptance, Budget, Choice, Clock, Consent, DefaultReason, Ready, Status, SystemClock,
    Timestamp, grpc, grpc::AppKey,
};
use bandana_client::{Bandana, Builder};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::rewards::Rewards;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{self, CreateExperimentRequest, Estimates, EstimatesRequest};
use serde::Serialize;
use tonic::transport::Channel;

use crate::aggregator_process::AggregatorProcess;

/// The experiment of the examples.
pub const EXPERIMENT: &str = "front-page-headline";

/// Its arms.
pub const HEADLINES: [&str; 3] = ["markets", "weather", "football"];

/// How long a reader has to react.
const ATTRIBUTION_WINDOW: Duration = Duration::from_hours(1);

/// How long a report waits at most after that.
const RELEASE_DELAY_MAX: Duration = Duration::from_hours(1);

/// After this time every assignment that was open has become a report that may leave.
pub const UNTIL_RELEASED: Duration =
    Duration::from_secs(ATTRIBUTION_WINDOW.as_secs() + RELEASE_DELAY_MAX.as_secs() + 1);

/// A clock that begins at the time of the operating system and moves when it is told.
#[derive(Debug)]
pub struct TurnedClock(AtomicU64);

impl TurnedClock {
    /// A clock that stands at the present.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(SystemClock.now().unix_ms())))
    }

    /// Turns it forward. Whoever uses it must be told to look, see [`Bandana::wake`].
    pub fn forward(&self, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

impl Clock for TurnedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
    }
}

/// A server that comes and goes, always with the same address and store.
#[derive(Debug)]
pub struct ServerPlace {
    program: PathBuf,
    data_dir: PathBuf,
    address: SocketAddr,
}

impl ServerPlace {
    /// A place for a server with its store in this directory, at an address that is free
    /// now. The server will be this program, called with `serve`.
    ///
    /// # Errors
    /// When the operating system gives no address.
    pub fn new(data_dir: PathBuf) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("can't find this program")?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        Ok(Self { program, data_dir, address })
    }

    /// Where the server is, when it is there.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts the server.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(&self) -> anyhow::Result<AggregatorProcess> {
        AggregatorProcess::start_at(self.address, &self.program, &self.data_dir).await
    }
}

/// Creates the experiment: three headlines, a click or none, epsilon 1.
///
/// # Errors
/// When the server refuses it.
pub async fn create(server: &AggregatorProcess) -> anyhow::Result<()> {
    let arm = |label: &str| v1::Arm { label: label.to_owned(), retired: false };
    let specification = v1::Specification {
        experiment_id: EXPERIMENT.to_owned(),
        epsilon: 1.0,
        reward_kind: v1::RewardKind::Binary.into(),
        reward_high: 1.0,
        out_of_range: v1::OutOfRange::Refuse.into(),
        mechanism: Some(v1::specification::Mechanism::RandomizedResponse(v1::RandomizedResponse {
            symbols: 0,
        })),
        arms: HEADLINES.map(arm).to_vec(),
        attribution_window_seconds: u32::try_from(ATTRIBUTION_WINDOW.as_secs())?,
        release_delay_seconds_max: u32::try_from(RELEASE_DELAY_MAX.as_secs())?,
        ..Default::default()
    };
    let request = CreateExperimentRequest {
        specification: Some(specification),
        learner: v1::Learner::LdpTs.into(),
        ..Default::default()
    };
    operator(server).await?.create_experiment(request).await.context("creating the experiment")?;
    Ok(())
}

/// What the server has learned.
///
/// # Errors
/// When it can't be asked.
pub async fn estimates(server: &AggregatorProcess) -> anyhow::Result<Estimates> {
    let request = EstimatesRequest { experiment_id: EXPERIMENT.to_owned(), ..Default::default() };
    Ok(operator(server).await?.get_estimates(request).await?.into_inner())
}

async fn operator(server: &AggregatorProcess) -> anyhow::Result<OperatorClient<Channel>> {
    let url = server.operator_url.clone();
    OperatorClient::connect(url).await.context("can't reach the operator service")
}

/// What the app of the examples answers to what Bandana can't guess. It shows a key if
/// it has one.
///
/// # Errors
/// When the address is none.
pub fn app(
    url: &str,
    directory: &Path,
    clock: &Arc<TurnedClock>,
    key: Option<&AppKey>,
) -> anyhow::Result<Builder<Ready<grpc::Transport>>> {
    let nats = PrivacyLoss::new;
    let builder = Bandana::builder()
        .endpoint(url)?
        .directory(directory)
        // At most epsilon 1 for a report, whatever a server asks for.
        .accept(Acceptance::new(Epsilon::new(1.0)?, Rewards::binary()))
        // Eight such reports in 7 days, a hundred in all.
        .budget(Budget::new(nats(8.0)?, 7, nats(100.0)?)?)
        .consent(Consent::Given)
        .clock(Arc::<TurnedClock>::clone(clock));
    Ok(match key {
        Some(key) => builder.app_key(key.clone()),
        None => builder,
    })
}

/// Whether these readers click on a headline: they like football.
pub fn reaction(headline: &str) -> f64 {
    f64::from(u8::from(headline == HEADLINES[2]))
}

/// One line of the table: what happened, and how things stand after it.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What happened.
    pub event: String,
    /// The headline that was shown, if one was.
    pub shown: Option<String>,
    /// Spent in the window that ends today, in nats.
    pub spent_window: f64,
    /// Spent since the installation, in nats.
    pub spent_lifetime: f64,
    /// Assignments whose rewards still count.
    pub open: usize,
    /// Private bits that no server has counted yet.
    pub waiting: usize,
    /// Uploads that the server counted since this start of the app.
    pub accepted: u64,
    /// Why there was no arm, or will be no report.
    pub reason: Option<String>,
}

impl Line {
    /// The names of the columns.
    pub const HEAD: &str = concat!(
        "event                                   shown      spent: week  in all",
        "  open  waiting  accepted  reason"
    );

    /// A line about this event.
    pub fn new(event: &str, choice: Option<&Choice>, status: &Status) -> Self {
        let nats = |spent: NanoNats| spent.to_loss().get();
        Self {
            event: event.to_owned(),
            shown: choice.map(|choice| choice.label_or("(default)").to_owned()),
            spent_window: nats(status.spent.window),
            spent_lifetime: nats(status.spent.lifetime),
            open: status.open_assignments,
            waiting: status.waiting_reports,
            accepted: status.statistics.uploads_accepted,
            reason: choice.and_then(reason),
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = format!(
            "{:38}  {:9}  {:>11.1}  {:>6.1}  {:>4}  {:>7}  {:>8}  {}",
            self.event,
            self.shown.as_deref().unwrap_or(""),
            self.spent_window,
            self.spent_lifetime,
            self.open,
            self.waiting,
            self.accepted,
            self.reason.as_deref().unwrap_or("")
        );
        f.write_str(line.trim_end())
    }
}

/// Why there was no arm, or will be no report, if so.
fn reason(choice: &Choice) -> Option<String> {
    match choice {
        Choice::Default(DefaultReason::Refused(refusal)) => Some(refusal.to_string()),
        Choice::Default(reason) => Some(format!("{reason:?}")),
        Choice::Arm(assignment) => {
            assignment.unreported().map(|unreported| format!("no report: {unreported:?}"))
        }
    }
}

/// Compares what the app did with what the server counted.
///
/// # Errors
/// When a report was lost or counted twice.
pub fn check(reports_made: u64, settled: u64, estimates: &Estimates) -> anyhow::Result<()> {
    let counted: u64 = estimates.arms.iter().map(|arm| arm.reports).sum();
    ensure!(
        settled == reports_made && counted == reports_made,
        "{reports_made} reports were made, {settled} uploads answered, {counted} counted"
    );
    Ok(())
}
