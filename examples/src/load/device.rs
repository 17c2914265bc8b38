//! A device's connection: to a server, or to a relay in front of it.

use bandana_client::grpc::Transport;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{UploadRequest, UploadResponse};
use tonic::Status;
use tonic::transport::Channel;

/// A connection that many uploads share.
#[derive(Clone, Debug)]
pub enum Device {
    /// To a server.
    Direct(DeviceClient<Channel>),
    /// To a relay.
    Relayed(Transport),
}

impl Device {
    /// Sends an upload, and returns the server's answer.
    ///
    /// # Errors
    /// The status when there is none.
    pub async fn submit_upload(&mut self, upload: UploadRequest) -> Result<UploadResponse, Status> {
        match self {
            Self::Direct(device) => Ok(device.submit_upload(upload).await?.into_inner()),
            Self::Relayed(transport) => transport.submit_upload(upload).await,
        }
    }
}

impl From<DeviceClient<Channel>> for Device {
    fn from(device: DeviceClient<Channel>) -> Self {
        Self::Direct(device)
    }
}
