//! Connections beyond the server's capacity.

use std::time::Duration;

use bandana_shared::wire::v1::GetExperimentRequest;
use bandana_shared::wire::v1::ListExperimentsRequest;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_tests::page;
use bandana_tests::watched_server::WatchedServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::{Code, Request, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

fn question() -> GetExperimentRequest {
    GetExperimentRequest { experiment_id: "x".to_owned() }
}

/// Waits until the server has closed a connection.
async fn closed(mut stream: TcpStream) -> anyhow::Result<()> {
    let mut said = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said));
    // Closed with or without a reset: both are an end.
    drop(read.await?);
    Ok(())
}

#[tokio::test]
async fn connections_beyond_the_limit_displace_those_that_do_nothing() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let arguments = ["--limit-connections", "3", "--limit-handshake-seconds", "300"];
    let mut server = WatchedServer::start(PROGRAM, folder.path(), &arguments).await?;
    let url = format!("http://{}", server.device);
    let mut first = DeviceClient::connect(url.clone()).await?;
    assert_eq!(first.get_experiment(question()).await.unwrap_err().code(), Code::NotFound);
    let (one, other) =
        (TcpStream::connect(&server.device).await?, TcpStream::connect(&server.device).await?);
    let newcomer = async {
        loop {
            let Ok(mut client) = DeviceClient::connect(url.clone()).await else { continue };
            let answer = client.get_experiment(question()).await;
            if answer.is_err_and(|status| status.code() == Code::NotFound) {
                return client;
            }
        }
    };
    let newcomer = tokio::time::timeout(PATIENCE, newcomer).await?;
    server.log_until("all connections are taken").await?;
    // One that had not begun went, whichever was seen first, and whoever had begun did not.
    let (one, other) = (Box::pin(closed(one)), Box::pin(closed(other)));
    let (gone, silent) = futures_util::future::select(one, other).await.factor_first();
    gone?;
    assert_eq!(first.get_experiment(question()).await.unwrap_err().code(), Code::NotFound);
    // Devices don't crowd out operators.
    let mut operator = OperatorClient::connect(format!("http://{}", server.operator)).await?;
    operator.list_experiments(ListExperimentsRequest::default()).await?;
    drop((first, silent, newcomer, operator));
    let log = server.stop().await?;
    assert_eq!(log.matches("all connections are taken").count(), 1, "{log}");
    Ok(())
}

#[tokio::test]
async fn calls_with_too_many_headers_are_refused() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let arguments = ["--limit-header-bytes", "2048"];
    let server = WatchedServer::start(PROGRAM, folder.path(), &arguments).await?;
    let mut client = DeviceClient::connect(format!("http://{}", server.device)).await?;
    let mut ask = async |bytes: usize| -> anyhow::Result<Status> {
        let mut request = Request::new(question());
        request.metadata_mut().insert("x-long", "y".repeat(bytes).parse()?);
        Ok(client.get_experiment(request).await.unwrap_err())
    };
    assert_eq!(ask(100).await?.code(), Code::NotFound);
    assert_ne!(ask(4000).await?.code(), Code::NotFound);
    assert_eq!(ask(100).await?.code(), Code::NotFound);
    Ok(())
}

#[tokio::test]
async fn pages_have_the_same_limits() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let arguments = ["--limit-header-bytes=2048", "--limit-handshake-seconds=1"];
    let server = WatchedServer::start(PROGRAM, folder.path(), &arguments).await?;
    let address = &server.operator;
    for (bytes, status) in [(100, 200), (4000, 431)] {
        let headers = [("x-long", &*"y".repeat(bytes))];
        assert_eq!(page::get(address, "/healthz", &headers).await?.status, status);
    }
    // Heads that do not go on, or do not begin, end.
    for said in ["", "P", "PRI * HTTP/2", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"] {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(said.as_bytes()).await?;
        closed(stream).await?;
    }
    // An answered request does not keep a connection open either.
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    closed(stream).await?;
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_request_that_names_two_hosts_is_refused() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    let ask = async |target: &str, hosts: &[&str]| -> anyhow::Result<String> {
        let hosts: Vec<_> = hosts.iter().map(|host| format!("host: {host}\r\n")).collect();
        let hosts = hosts.concat();
        let mut stream = TcpStream::connect(&server.operator).await?;
        let request = format!("GET {target} HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await??;
        Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
    };
    for page in ["/metrics", "/", "/api/experiments", "/healthz"] {
        assert_eq!(ask(page, &["localhost"]).await?, "200", "{page}");
        for hosts in [["localhost", "localhost"], ["localhost", "evil.example"]] {
            assert_eq!(ask(page, &hosts).await?, "400", "{page} {hosts:?}");
        }
        let absolute = format!("http://localhost{page}");
        assert_eq!(ask(&absolute, &["localhost"]).await?, "200", "{absolute}");
        assert_eq!(ask(&absolute, &["evil.example"]).await?, "400", "{absolute}");
    }
    server.stop().await?;
    Ok(())
}
