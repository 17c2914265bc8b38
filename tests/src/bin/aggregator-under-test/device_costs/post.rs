//! A plain HTTPS post of an event, as a reference: HTTP/1.1 over a TLS session of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// An event with what a report of Bandana says: experiment, arm, reward, and a name.
const EVENT: &str = r#"{"id":"0f5d2c9c-9d5b-4f5e-8d0e-1f1b6a3a7a10","time":"2026-01-01T12:00:00Z","experiment":"costs-0","arm":"green","reward":1}"#;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A server that says yes to every event.
pub(crate) struct Collector {
    pub(crate) url: String,
    certificate: CertificateDer<'static>,
}

impl Collector {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let names = [Ipv4Addr::LOCALHOST.to_string(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let key = key.map_err(|error| anyhow::anyhow!("{error}"))?;
        let certificate = made.cert.der().clone();
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let url = format!("https://{}", listener.local_addr()?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::spawn(move || runtime.block_on(answer_all(&acceptor, listener)));
        Ok(Self { url, certificate })
    }

    /// A client of this server that resumes no session, as Bandana's does not.
    pub(crate) fn client(&self) -> anyhow::Result<TlsConnector> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let mut config =
            ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// Answers one post after the other, until one fails.
async fn answer_all(acceptor: &TlsAcceptor, listener: TcpListener) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        answer(acceptor, listener.accept().await?.0).await?;
    }
}

async fn answer(acceptor: &TlsAcceptor, device: TcpStream) -> anyhow::Result<()> {
    device.set_nodelay(true)?;
    let mut stream = acceptor.accept(device).await?;
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !request.ends_with(EVENT.as_bytes()) {
        let read = stream.read(&mut buffer).await?;
        anyhow::ensure!(read > 0, "a post that was cut off");
        request.extend_from_slice(&buffer[..read]);
    }
    stream.write_all(ANSWER).await?;
    Ok(stream.shutdown().await?)
}

/// Posts an event to the proxy at this URL.
pub(crate) async fn post(client: &TlsConnector, url: &str) -> anyhow::Result<()> {
    let address: SocketAddr = url.strip_prefix("https://").context("no TLS")?.parse()?;
    let server = TcpStream::connect(address).await?;
    server.set_nodelay(true)?;
    let mut stream = client.connect(ServerName::try_from("localhost")?, server).await?;
    let length = EVENT.len();
    let request = format!(
        "POST /events HTTP/1.1\r\nhost: {address}\r\nuser-agent: app/1.0\r\naccept: */*\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{EVENT}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "not accepted");
    Ok(stream.shutdown().await?)
}
