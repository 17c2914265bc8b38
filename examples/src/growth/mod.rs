//! Costs of a server as experiments, arms, days, ids, devices and replicas grow.

mod devices;
mod filled;
mod lists;
mod place;
mod table;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::device_client::DeviceClient;
use serde::Serialize;
use tokio::time::Instant;

pub use table::table;

use crate::aggregator_process::AggregatorProcess;
use crate::load::{Database, Load, Manners};
use crate::process_usage::{processor_time, resident_bytes};
use crate::stop::Stop;
use filled::Filled;
use place::Place;

/// Connections of the load, shared out among the replicas.
const CONNECTIONS: usize = 8;

/// Uploads under way at once.
const IN_FLIGHT: usize = 64;

/// How large a store and its servers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Experiments, all of them running.
    pub experiments: usize,
    /// Arms of each.
    pub arms: usize,
    /// Days of the window.
    pub days: u32,
    /// Ids within the window before the load, on its days alike.
    pub ids: u64,
    /// Connections of devices that stay open and say nothing.
    pub devices: usize,
    /// Servers on the same store.
    pub replicas: usize,
}

/// What servers of a size cost.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The size.
    pub size: Size,
    /// Mean time in which the store makes an experiment.
    pub creation_ms: f64,
    /// From the start of the first server until it listens.
    pub start_ms: f64,
    /// Resident memory of a server, without callers.
    pub resident_mib: f64,
    /// Share of a core that all servers use without callers.
    pub idle_share: f64,
    /// Acknowledged uploads per second.
    pub uploads_per_second: f64,
    /// Processor time of the servers for an upload, without what they use anyway.
    pub server_us_per_upload: f64,
    /// Processor time of the database for an upload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_us_per_upload: Option<f64>,
    /// Bytes on disk for a million reports, each an upload of its own.
    pub bytes_per_million: f64,
    /// `bandana experiment list`, the start of the program included.
    pub list_ms: f64,
    /// All pages of the dashboard's list.
    pub dashboard_ms: f64,
}

/// Where the stores of a study are.
#[derive(Clone, Debug)]
pub enum Stores {
    /// In temporary directories.
    Directories,
    /// In databases of their own, which are made through the one with this URL and removed again.
    Database(String),
}

/// Measures a size, and leaves nothing behind; none if a signal ended it. `program` must call
/// [`bandana_aggregator::cli::main`] for its commands.
///
/// # Errors
/// When the store can't be filled, or a server does not start or answer.
pub async fn measure(
    program: &Path,
    stores: &Stores,
    size: Size,
    time: Duration,
    stop: &mut Stop,
) -> anyhow::Result<Option<Cost>> {
    ensure!(
        size.replicas == 1 || matches!(stores, Stores::Database(_)),
        "replicas need a database"
    );
    let place = Place::new(stores).await?;
    let cost = tokio::select! {
        cost = measure_in(&place, program, size, time) => cost.map(Some),
        () = stop.wanted() => Ok(None),
    };
    let removed = place.remove().await;
    let cost = cost?;
    removed?;
    Ok(cost)
}

async fn measure_in(
    place: &Place,
    program: &Path,
    size: Size,
    time: Duration,
) -> anyhow::Result<Cost> {
    let filled = Arc::new(filled::fill(place.folder(), place.url(), size).await?);
    let bytes_before = place.bytes().await?;
    let begin = Instant::now();
    let mut servers = vec![place.start(program, size).await?];
    let start = begin.elapsed();
    for _ in 1..size.replicas {
        servers.push(place.start(program, size).await?);
    }
    let database = match place.url() {
        None => None,
        Some(url) => Database::find(&url).await.ok(),
    };
    let first = servers.first().context("no server")?;
    let (list, dashboard) = lists::times(program, &first.operator_url, size.experiments).await?;
    // Their uploads' numbers are none of the load's.
    let upload = |number| filled.upload(u64::MAX / 2 + number);
    let devices = devices::connect(&servers, size.devices, upload).await?;
    let used = || servers.iter().map(|server| processor_time(server.id()?)).sum::<Result<_, _>>();
    let of_database = || database.and_then(|database| database.processor_time().ok());
    let resident: u64 =
        servers.iter().map(|server| resident_bytes(server.id()?)).sum::<anyhow::Result<u64>>()?;
    let (before, database_before): (Duration, _) = (used()?, of_database());
    tokio::time::sleep(time).await;
    let (idle, database_idle): (Duration, _) = (used()?, of_database());
    let begin = Instant::now();
    let acknowledged = uploads(&servers, &filled, time).await?;
    let took = begin.elapsed();
    let (after, database_after): (Duration, _) = (used()?, of_database());
    drop(devices);
    for server in servers {
        server.stop().await?;
    }
    let bytes_after = place.bytes().await?;
    let count = acknowledged as f64;
    let stored = count + size.devices as f64;
    // What servers use without callers is not the uploads' part.
    let part = |before: Duration, idle: Duration, after: Duration| {
        let anyway = (idle.saturating_sub(before)).as_secs_f64() * took.as_secs_f64();
        (after.saturating_sub(idle).as_secs_f64() - anyway / time.as_secs_f64()) * 1e6 / count
    };
    let of_database = database_before.zip(database_idle).zip(database_after);
    Ok(Cost {
        size,
        creation_ms: filled.creation.as_secs_f64() * 1e3,
        start_ms: start.as_secs_f64() * 1e3,
        resident_mib: resident as f64 / (size.replicas as f64 * 1024.0 * 1024.0),
        idle_share: (idle.saturating_sub(before)).as_secs_f64() / time.as_secs_f64(),
        uploads_per_second: count / took.as_secs_f64(),
        server_us_per_upload: part(before, idle, after),
        database_us_per_upload: of_database
            .map(|((before, idle), after)| part(before, idle, after)),
        bytes_per_million: (bytes_after as f64 - bytes_before as f64) / stored * 1e6,
        list_ms: list.as_secs_f64() * 1e3,
        dashboard_ms: dashboard.as_secs_f64() * 1e3,
    })
}

/// Uploads to all experiments in turn, for some time, and the number of those acknowledged.
async fn uploads(
    servers: &[AggregatorProcess],
    filled: &Arc<Filled>,
    time: Duration,
) -> anyhow::Result<u64> {
    let mut devices = Vec::new();
    for server in servers.iter().cycle().take(CONNECTIONS) {
        devices.push(DeviceClient::connect(server.device_url.clone()).await?);
    }
    let manners = Manners { lose: 0.0, repeat: 0.0, wander: false, seed: 1 };
    let of = Arc::clone(filled);
    let load = Load::new(devices, u64::MAX, manners, Box::new(move |number| of.upload(number)));
    let mut workers = load.start(IN_FLIGHT);
    tokio::time::sleep(time).await;
    load.stop();
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    ensure!(load.refused() == 0, "uploads were refused: {:?}", load.complaints().first());
    ensure!(load.acknowledged() > 0, "no upload was acknowledged");
    Ok(load.acknowledged())
}
