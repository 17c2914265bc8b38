//! The reference of a load: the same calls on a bare server, in turns with those on ours.
//!
//! Machines are shared and noisy, so a rate by itself says little. Each round measures the reference
//! and every kind of call, one after the other; what is told are ratios within a round.

mod bare;
mod calls;
mod connect;
mod table;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bandana_shared::wire::v1::device_client::DeviceClient;
use tonic::transport::Endpoint;

use bare::BareServer;
pub use bare::serve;
pub use calls::Measured;
pub(super) use calls::{Caller, at_rate, in_flight};
pub use table::{Comparison, Row};

use super::{PATIENCE, Servers};
use crate::process_usage::processor_time;

/// A kind of call, in the order in which a round has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A health check of a bare server: the reference.
    Bare,
    /// A health check through the port for devices.
    Health,
    /// A draw of an arm.
    SelectArm,
    /// A durable upload.
    Upload,
    /// A durable upload on a stream.
    Stream,
    /// A durable upload by the Connect protocol over HTTP/1.1.
    Connect,
}

impl Kind {
    /// All kinds; the reference is the first.
    pub const ALL: [Self; 6] =
        [Self::Bare, Self::Health, Self::SelectArm, Self::Upload, Self::Stream, Self::Connect];

    /// Its name in tables and as JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare health check",
            Self::Health => "health check",
            Self::SelectArm => "SelectArm",
            Self::Upload => "SubmitUpload",
            Self::Stream => "SubmitUploads",
            Self::Connect => "SubmitUpload over HTTP/1.1",
        }
    }
}

/// What is measured, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Connections of each measurement.
    pub connections: usize,
    /// Calls under way at once, on all of them together.
    pub in_flight: usize,
    /// Time of one measurement.
    pub time: Duration,
    /// How often each kind is measured.
    pub rounds: usize,
}

/// Measures these kinds in turns, the reference first, on a server of our own. `program` must have the
/// hidden command `bare`. `show` is told what begins.
///
/// # Errors
/// When a server can't be started or a call fails.
pub async fn compare(
    servers: &Servers,
    program: &Path,
    (kinds, plan): (&[Kind], Plan),
    mut show: impl FnMut(usize, Kind),
) -> anyhow::Result<Comparison> {
    let bare = BareServer::start(program).await?;
    let mut rows: Vec<Row> = kinds.iter().copied().map(Row::new).collect();
    for round in 0..plan.rounds {
        for row in &mut rows {
            show(round, row.kind());
            row.add(measure(servers, &bare, row.kind(), plan).await?);
        }
    }
    bare.stop().await?;
    Ok(Comparison::new(plan, &rows))
}

/// Latencies of calls that come at a rate, whether or not others are answered; on our server. `None`
/// stands for half of the rate that it takes.
///
/// # Errors
/// When a call fails.
pub async fn open_loop(
    servers: &Servers,
    program: &Path,
    (kind, rate): (Kind, Option<f64>),
    plan: Plan,
) -> anyhow::Result<(f64, Measured)> {
    let bare = BareServer::start(program).await?;
    let rate = match rate {
        Some(rate) => rate,
        None => measure(servers, &bare, kind, plan).await?.calls_per_second() / 2.0,
    };
    let callers = callers(servers, &bare, kind, plan.connections).await?;
    let measured = at_rate(callers, rate, plan.time).await?;
    bare.stop().await?;
    Ok((rate, measured))
}

async fn measure(
    servers: &Servers,
    bare: &BareServer,
    kind: Kind,
    plan: Plan,
) -> anyhow::Result<Measured> {
    let callers = callers(servers, bare, kind, plan.connections).await?;
    let process = if kind == Kind::Bare { bare.id()? } else { servers.only_process()? };
    let before = processor_time(process)?;
    let measured = in_flight(callers, plan.in_flight, plan.time).await?;
    Ok(measured.with_processor_time(processor_time(process)?.saturating_sub(before)))
}

async fn callers(
    servers: &Servers,
    bare: &BareServer,
    kind: Kind,
    connections: usize,
) -> anyhow::Result<Vec<Caller>> {
    let mut callers = Vec::with_capacity(connections);
    let device = servers.endpoint().context("a server of our own is needed")?;
    for _ in 0..connections {
        let endpoint = match kind {
            Kind::Bare => {
                Endpoint::from_shared(bare.url.clone())?.tcp_nodelay(true).timeout(PATIENCE)
            }
            _ => device.clone(),
        };
        callers.push(match kind {
            Kind::Bare | Kind::Health => Caller::health(endpoint.connect().await?),
            Kind::SelectArm => {
                Caller::select_arm(endpoint.connect().await?, servers.experiment_id())
            }
            Kind::Upload => {
                let device = DeviceClient::new(endpoint.connect().await?);
                let make = servers.uploads(&device, 1).await?;
                Caller::upload(device, make)
            }
            Kind::Stream => {
                let channel = endpoint.connect().await?;
                Caller::stream(
                    channel.clone(),
                    servers.uploads(&DeviceClient::new(channel.clone()), 1).await?,
                )
                .await?
            }
            Kind::Connect => {
                let channel = endpoint.connect().await?;
                let make = servers.uploads(&DeviceClient::new(channel.clone()), 1).await?;
                Caller::connect(endpoint.uri(), make)?
            }
        });
    }
    Ok(callers)
}
