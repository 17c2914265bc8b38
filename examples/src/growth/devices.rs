//! Devices that are connected and say nothing.

use anyhow::Context as _;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{UploadRequest, UploadStatus};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tonic::transport::Channel;

use crate::aggregator_process::AggregatorProcess;

/// Descriptors of the program for anything else.
const OTHERS: u64 = 256;

/// Connects this many devices, shared out among the servers. Each has made an upload, as one that
/// keeps its connection has.
pub(super) async fn connect(
    servers: &[AggregatorProcess],
    count: usize,
    upload: impl Fn(u64) -> anyhow::Result<UploadRequest>,
) -> anyhow::Result<Vec<DeviceClient<Channel>>> {
    allow_descriptors(count)?;
    let mut devices = Vec::with_capacity(count);
    for (number, server) in (0..).zip(servers.iter().cycle().take(count)) {
        let mut device = DeviceClient::connect(server.device_url.clone())
            .await
            .with_context(|| format!("device {number} of {count} got no connection"))?;
        let answer = device.submit_upload(upload(number)?).await?.into_inner();
        anyhow::ensure!(
            answer.status() == UploadStatus::Accepted,
            "the upload of device {number} was not counted: {}",
            answer.status().as_str_name()
        );
        devices.push(device);
    }
    Ok(devices)
}

/// Raises this process's limit on descriptors to what so many connections need.
fn allow_descriptors(connections: usize) -> anyhow::Result<()> {
    let needed = OTHERS + u64::try_from(connections)?;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // None: no limit.
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })
        .with_context(|| format!("{connections} connections need {needed} open files (ulimit -Hn)"))
}
