//! Shared parts of the embedding examples: a manual clock, a server that comes and goes, and the
//! printed table.

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

/// The attribution window: the time that a reader has to react.
const ATTRIBUTION_WINDOW: Duration = Duration::from_hours(1);

/// Maximum delay of a report after the attribution window.
const RELEASE_DELAY_MAX: Duration = Duration::from_hours(1);

/// Time after which every open assignment has become a report that is due.
pub const UNTIL_RELEASED: Duration =
    Duration::from_secs(ATTRIBUTION_WINDOW.as_secs() + RELEASE_DELAY_MAX.as_secs() + 1);

/// A clock that starts at the system's time and advances only on command.
#[derive(Debug)]
pub struct TurnedClock(AtomicU64);

impl TurnedClock {
    /// A clock that stands at the present.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(SystemClock.now().unix_ms())))
    }

    /// Advances the clock. Its users must be woken, see [`Bandana::wake`].
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

/// A server that comes and goes, with a fixed address and store.
#[derive(Debug)]
pub struct ServerPlace {
    program: PathBuf,
    data_dir: PathBuf,
    address: SocketAddr,
}

impl ServerPlace {
    /// A place for a server with its store in this directory, at a free address. The server is this
    /// program, called with `serve`.
    ///
    /// # Errors
    /// When the operating system gives no address.
    pub fn new(data_dir: PathBuf) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("can't find this program")?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        Ok(Self { program, data_dir, address })
    }

    /// The URL of the server, running or not.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts the server.
    ///
    /// # Errors
    /// When it does not start.
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

/// The server's estimates.
///
/// # Errors
/// When the server is unreachable.
pub async fn estimates(server: &AggregatorProcess) -> anyhow::Result<Estimates> {
    let request = EstimatesRequest { experiment_id: EXPERIMENT.to_owned(), ..Default::default() };
    Ok(operator(server).await?.get_estimates(request).await?.into_inner())
}

async fn operator(server: &AggregatorProcess) -> anyhow::Result<OperatorClient<Channel>> {
    let url = server.operator_url.clone();
    OperatorClient::connect(url).await.context("can't reach the operator service")
}

/// The configuration of the examples' app: consent, budget and server. An app key is presented if
/// there is one.
///
/// # Errors
/// When the address is invalid.
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
        // At most epsilon 1 per report, whatever a server requests.
        .accept(Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary()))
        // Eight such reports in 7 days, a hundred in all.
        .budget(Budget::new(nats(8.0)?, 7, nats(20.0)?)?)
        .consent(Consent::Given)
        .clock(Arc::<TurnedClock>::clone(clock));
    Ok(match key {
        Some(key) => builder.app_key(key.clone()),
        None => builder,
    })
}

/// The readers' reaction to a headline: they click on football.
pub fn reaction(headline: &str) -> f64 {
    f64::from(u8::from(headline == HEADLINES[2]))
}

/// One row of the table: an event, and the status after it.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The event.
    pub event: String,
    /// The headline that was shown, if any.
    pub shown: Option<String>,
    /// Budget spent in the window that ends today, in nats.
    pub spent_window: f64,
    /// Budget spent since the installation, in nats.
    pub spent_lifetime: f64,
    /// Assignments whose rewards still count.
    pub open: usize,
    /// Private bits that no server has counted yet.
    pub waiting: usize,
    /// Number of uploads counted by the server since this start of the app.
    pub accepted: u64,
    /// The reason why there was no arm, or will be no report.
    pub reason: Option<String>,
}

impl Line {
    /// The header of the table.
    pub const HEAD: &str = concat!(
        "event                                   shown      spent: week  in all",
        "  open  waiting  accepted  reason"
    );

    /// A row for this event.
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

/// The reason why there was no arm, or will be no report, if so.
fn reason(choice: &Choice) -> Option<String> {
    match choice {
        Choice::Default(DefaultReason::Refused(refusal)) => Some(refusal.to_string()),
        Choice::Default(reason) => Some(reason.to_string()),
        Choice::Arm(assignment) => {
            assignment.unreported().map(|unreported| format!("no report: {unreported:?}"))
        }
    }
}

/// Compares the app's reports with the server's counts.
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
