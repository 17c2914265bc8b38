//! Probes on the operators' port, and access to them.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{GetExperimentRequest, ListExperimentsRequest};
use bandana_tests::page::{self, Samples};
use bandana_tests::watched_server::{StartingServer, WatchedServer, hold_up, let_go};
use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio::process::Command;
use tonic::codegen::http;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse as Told};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server that requires a token, and the token.
async fn guarded(folder: &Path) -> anyhow::Result<(WatchedServer, String)> {
    let file = folder.join("tokens");
    let file = file.to_str().context("a path in UTF-8")?;
    let mut command = Command::new(PROGRAM);
    command
        .args(["token", "new", "--name", "anna", "--role", "administrator", "--file", file])
        .clean_environment();
    let token = String::from_utf8(command.output().await?.stdout)?.trim().to_owned();
    let arguments = ["--operator-tokens-file", file];
    let server = WatchedServer::start(PROGRAM, &folder.join("data"), &arguments).await?;
    Ok((server, token))
}

async fn channel(address: &str) -> anyhow::Result<Channel> {
    Ok(Channel::from_shared(format!("http://{address}"))?.connect().await?)
}

#[tokio::test]
async fn metrics_are_for_operators_and_probes_for_everybody() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, token) = guarded(folder.path()).await?;
    let get = async |path: &str, token: &str| {
        page::get(&server.operator, path, &[("authorization", &format!("Bearer {token}"))]).await
    };
    let no_token = page::get(&server.operator, "/metrics", &[]).await?;
    let api = get("/api/experiments", "bndn_x").await?;
    for refused in [&no_token, &api, &get("/metrics", "bndn_x").await?] {
        assert_eq!((refused.status, &*refused.body), (401, "a valid token is needed\n"));
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
        assert!(refused.headers.contains_key("x-request-id"));
    }
    let page = get("/metrics", &token).await?;
    assert_eq!(page.status, 200);
    let samples = Samples::parse(&page.body)?;
    assert_eq!(samples.count("bandana_operator_calls_unauthorised_total")?, 3);
    for (path, said) in [("/healthz", "alive\n"), ("/readyz", "ready\n")] {
        let page = page::get(&server.operator, path, &[]).await?;
        assert_eq!(
            (page.status, &*page.body, &*page.headers["cache-control"]),
            (200, said, "no-store")
        );
    }
    assert_eq!(get("/nowhere", &token).await?.status, 404);
    // HTTP/1.1 offers no gRPC, because web pages can make browsers send such requests.
    let grpc = [("content-type", "application/grpc")];
    let path = "/bandana.v1.Operator/ListExperiments";
    assert_eq!(page::get(&server.operator, path, &grpc).await?.status, 404);
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn without_tokens_pages_are_for_this_host_by_its_own_names() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    for (host, status) in [("localhost", 200), ("[::1]:7302", 200), ("evil.example", 403)] {
        for path in ["/metrics", "/", "/assets/main.js", "/api/experiments"] {
            let page = page::get(&server.operator, path, &[("host", host)]).await?;
            assert_eq!(page.status, status, "{host} {path}");
        }
    }
    server.stop().await?;
    Ok(())
}

/// Lists the services of a port.
async fn services(
    address: &str,
    token: Option<&str>,
) -> anyhow::Result<Result<Vec<String>, Status>> {
    let mut client = ServerReflectionClient::new(channel(address).await?);
    let message = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { message_request: Some(message), ..Default::default() };
    let mut request = Request::new(tokio_stream::once(request));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    }
    let mut answers = match client.server_reflection_info(request).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return Ok(Err(status)),
    };
    let answer = answers.message().await?.and_then(|answer| answer.message_response);
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        anyhow::bail!("no list")
    };
    Ok(Ok(list.service.into_iter().map(|service| service.name).collect()))
}

#[tokio::test]
async fn services_are_described_to_operators() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, token) = guarded(folder.path()).await?;
    let listed = services(&server.operator, Some(&token)).await??;
    for service in ["bandana.v1.Device", "bandana.v1.Operator", "grpc.health.v1.Health"] {
        assert!(listed.iter().any(|name| name == service), "{service} is not in {listed:?}");
    }
    let refused = services(&server.operator, None).await?.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let absent = services(&server.device, Some(&token)).await?.unwrap_err();
    assert_eq!(absent.code(), Code::Unimplemented);
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn devices_are_answered_nothing_but_their_service() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    for path in ["/metrics", "/healthz", "/readyz", "/"] {
        let page = page::get(&server.device, path, &[]).await?;
        assert_eq!((page.status, &*page.body), (404, "there is nothing here\n"), "{path}");
        let mut client = tonic::client::Grpc::new(channel(&server.device).await?);
        client.ready().await?;
        let codec =
            tonic_prost::ProstCodec::<ListExperimentsRequest, ListExperimentsRequest>::default();
        let request = Request::new(ListExperimentsRequest::default());
        let answer = client.unary(request, path.parse()?, codec).await;
        assert_eq!(answer.unwrap_err().code(), Code::Unimplemented, "{path}");
    }
    server.stop().await?;
    Ok(())
}

async fn health(address: &str) -> anyhow::Result<Vec<ServingStatus>> {
    let mut client = HealthClient::new(channel(address).await?);
    let mut told = Vec::new();
    for service in [
        "",
        "bandana.v1.Device",
        "bandana.v1.Trusted",
        "bandana.v1.Operator",
        "bandana.v1.TrustedOperator",
        "bandana.v1.Curator",
        "grpc.reflection.v1.ServerReflection",
    ] {
        let request = HealthCheckRequest { service: service.to_owned() };
        told.push(client.check(request).await?.into_inner().status());
    }
    Ok(told)
}

#[tokio::test]
async fn probes_are_answered_before_the_store_is_open() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    hold_up(folder.path())?;
    let mut starting = StartingServer::start(PROGRAM, folder.path(), &[])?;
    let (device, operator) = starting.listening().await?;
    assert_eq!(page::get(&operator, "/healthz", &[]).await?.status, 200);
    let page = page::get(&operator, "/readyz", &[]).await?;
    assert_eq!((page.status, &*page.body), (503, "not ready\n"));
    for address in [&device, &operator] {
        assert_eq!(health(address).await?, [ServingStatus::NotServing; 7]);
    }
    let mut devices = DeviceClient::new(channel(&device).await?);
    let mut operators = OperatorClient::new(channel(&operator).await?);
    let question = GetExperimentRequest { experiment_id: "x".to_owned() };
    let told = [
        devices.get_experiment(question.clone()).await.map(drop).unwrap_err(),
        operators.list_experiments(ListExperimentsRequest::default()).await.map(drop).unwrap_err(),
    ];
    for status in told {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.metadata().contains_key("grpc-retry-pushback-ms"), "{status:?}");
    }
    assert_eq!(page::get(&operator, "/", &[]).await?.status, 200);
    assert_eq!(page::get(&operator, "/api/experiments", &[]).await?.status, 503);
    let page = page::get(&operator, "/metrics", &[]).await?;
    assert_eq!(Samples::parse(&page.body)?.count("bandana_ready")?, 0);

    let _reader = let_go(folder.path()).await?;
    let server = starting.serving().await?;
    assert_eq!(page::get(&operator, "/readyz", &[]).await?.status, 200);
    for address in [&device, &operator] {
        assert_eq!(health(address).await?, [ServingStatus::Serving; 7]);
    }
    // On the earlier connections.
    assert_eq!(devices.get_experiment(question).await.unwrap_err().code(), Code::NotFound);
    operators.list_experiments(ListExperimentsRequest::default()).await?;
    drop((devices, operators));
    server.stop().await?;
    Ok(())
}

type Watches = HealthClient<Channel>;

/// A watch of the server's health after its first message, or its refusal.
async fn watch(client: &mut Watches) -> anyhow::Result<Result<Streaming<Told>, Status>> {
    let mut told = match client.watch(HealthCheckRequest::default()).await {
        Ok(told) => told.into_inner(),
        Err(status) => return Ok(Err(status)),
    };
    let first = told.message().await?.context("no health")?;
    anyhow::ensure!(first.status() == ServingStatus::Serving, "{first:?}");
    Ok(Ok(told))
}

#[tokio::test]
async fn watches_of_health_have_few_places_and_questions_have_all() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    for address in [&server.device, &server.operator] {
        let mut clients = Vec::new();
        let mut watches = Vec::new();
        for _ in 0..32 {
            let mut client = HealthClient::new(channel(address).await?);
            for _ in 0..2 {
                watches.push(watch(&mut client).await??);
            }
            clients.push(client);
        }
        // The limits per connection and in total are reached; unary checks are answered on any
        // connection.
        let mut other = HealthClient::new(channel(address).await?);
        for client in [&mut clients[0], &mut other] {
            let refusal = watch(client).await?.err().context("it watches")?;
            assert_eq!(refusal.code(), Code::ResourceExhausted);
            assert!(refusal.metadata().contains_key("grpc-retry-pushback-ms"));
            client.check(HealthCheckRequest::default()).await?;
        }
        // A closed watch frees its slot, but a connection at its limit can't use it.
        drop(watches.pop());
        assert!(watch(&mut clients[0]).await?.is_err());
        let free = async {
            while let Err(refusal) = watch(&mut other).await? {
                assert_eq!(refusal.code(), Code::ResourceExhausted);
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, free).await??;
    }
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_starting_can_be_stopped() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    hold_up(folder.path())?;
    let mut starting = StartingServer::start(PROGRAM, folder.path(), &[])?;
    starting.listening().await?;
    starting.stop().await
}

#[tokio::test]
async fn a_server_that_goes_down_is_not_ready_while_a_call_is_under_way() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    let stream = TcpStream::connect(&server.device).await?;
    let (send, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    let request = http::Request::post("http://x/bandana.v1.Device/GetExperiment")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let (answer, mut body) = send.ready().await?.send_request(request, false)?;
    // The server has received the call once it has answered a later one.
    health(&server.device).await?;
    let open = TcpStream::connect(&server.operator).await?;

    server.signal(Signal::TERM)?;
    server.log_until("draining").await?;
    // Probes that are still answered report "not ready"; most get no answer.
    for probe in [
        page::get_on(open, &server.operator, "/readyz", &[]).await,
        page::get(&server.operator, "/readyz", &[]).await,
    ] {
        assert!(probe.as_ref().map_or(true, |page| page.status == 503), "{probe:?}");
    }
    body.send_data(prost::bytes::Bytes::from_static(&[0; 5]), true)?;
    assert_eq!(answer.await?.status(), 200);
    let (code, log) = server.ended().await?;
    assert_eq!(code, Some(0), "{log}");
    Ok(())
}
