//! Uploads by the Connect protocol over HTTP/1.1, one call at a time on each connection.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::{UploadRequest, UploadResponse, UploadStatus};
use http_body_util::{BodyExt as _, Full};
use hyper::Uri;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use tokio::net::TcpStream;

type Connection = SendRequest<Full<Bytes>>;

/// A server, and the connections to it that have no call under way.
#[derive(Clone, Debug)]
pub(super) struct Connect {
    address: String,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Connect {
    pub(super) fn to(url: &Uri) -> anyhow::Result<Self> {
        let address = url.authority().context("no address")?.to_string();
        Ok(Self { address, idle: Arc::default() })
    }

    pub(super) async fn upload(&self, upload: UploadRequest) -> anyhow::Result<()> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let request = hyper::Request::post("/bandana.v1.Device/SubmitUpload")
            .header(HOST, &self.address)
            .header(CONTENT_TYPE, "application/proto")
            .header("connect-protocol-version", "1")
            .body(Full::new(Bytes::from(upload.encode_to_vec())))?;
        connection.ready().await?;
        let answer = connection.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        let told = UploadResponse::decode(body)?;
        ensure!(told.status() == UploadStatus::Accepted, "{told:?}");
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(())
    }

    async fn open(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(&self.address).await.context("can't reach the server")?;
        stream.set_nodelay(true)?;
        let (connection, driver) = handshake(TokioIo::new(stream)).await?;
        // It ends with its connection.
        tokio::spawn(driver);
        Ok(connection)
    }
}
