//! Relays whose connections to the gateway go silent, or whose gateway says too much.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::Transport;
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::relay_process::{AT_ONCE, RelayProcess, gateway_key};
use bandana_shared::wire::v1::gateway_client::GatewayClient;
use bandana_shared::wire::v1::gateway_server::{Gateway, GatewayServer};
use bandana_shared::wire::v1::{GatewayKeys, GetGatewayKeysRequest};
use bandana_tests::attacked::create;
use bandana_tests::harness::three_arms;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

use super::relay::{address, code_of, program, question};

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// A way to a server whose open connections can be silenced: what is sent on them is lost, and
/// nobody closes them. New ones pass.
struct Way {
    address: SocketAddr,
    silenced: watch::Sender<u32>,
}

impl Way {
    async fn to(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (silenced, told) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, told.clone()));
            }
        });
        Ok(Self { address, silenced })
    }

    fn silence(&self) {
        self.silenced.send_modify(|times| *times += 1);
    }
}

async fn pass(mut client: TcpStream, server: SocketAddr, mut silenced: watch::Receiver<u32>) {
    silenced.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = silenced.changed() => std::future::pending().await,
    }
}

#[tokio::test]
async fn a_relay_whose_connections_went_silent_makes_new_ones() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let key = gateway_key(program(), folder.path()).await?.display().to_string();
    let (flags, data_dir) = (["--gateway-key-file", &*key], folder.path().join("data"));
    let aggregator = AggregatorProcess::start_with(&flags, program(), &data_dir).await?;
    create(&address(&aggregator.operator_url)?.to_string(), three_arms("relayed")).await?;
    let way = Way::to(address(&aggregator.device_url)?).await?;
    let gateway = format!("http://{}", way.address);
    let relay = RelayProcess::start(&AT_ONCE, program(), &gateway).await?;
    let mut transport = Transport::to(&relay.url)?.through_relay_unsigned();
    // All of the relay's connections are open.
    for _ in 0..8 {
        transport.fetch(&question("relayed")?).await?;
    }
    way.silence();
    let recovered = async {
        while transport.fetch(&question("relayed")?).await.is_err() {}
        // On each of the connections.
        for _ in 0..8 {
            while transport.fetch(&question("relayed")?).await.is_err() {}
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, recovered).await.context("the relay does not recover")??;
    relay.stop().await?;
    aggregator.stop().await
}

/// A gateway with this many bytes of keys, or one that refuses to give any.
struct Keys(Result<usize, Code>);

#[tonic::async_trait]
impl Gateway for Keys {
    async fn get_gateway_keys(
        &self,
        _: Request<GetGatewayKeysRequest>,
    ) -> Result<Response<GatewayKeys>, Status> {
        let bytes = self.0.map_err(|code| Status::new(code, "no keys"))?;
        let key_configurations = vec![7; bytes].into();
        Ok(Response::new(GatewayKeys { key_configurations, ..Default::default() }))
    }
}

#[tokio::test]
async fn a_relay_hands_on_no_more_than_keys_and_no_oftener_than_it_may() -> anyhow::Result<()> {
    for (bytes, expected) in [(1000, None), (3_900_000, Some(Code::Unavailable))] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let gateway = format!("http://{}", listener.local_addr()?);
        let server = Server::builder().add_service(GatewayServer::new(Keys(Ok(bytes))));
        let serving = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let once = ["--delay-seconds", "0", "--requests-per-second-per-address", "1"];
        let once = [&once[..], &["--burst-seconds", "1"]].concat();
        let relay = RelayProcess::start(&once, program(), &gateway).await?;
        let mut devices = GatewayClient::connect(relay.url.clone()).await?;
        let mut told = Vec::new();
        for _ in 0..3 {
            let keys = devices.get_gateway_keys(GetGatewayKeysRequest {}).await;
            told.push(keys.err().map(|status| status.code()));
        }
        ensure!(told[0] == expected, "{bytes} bytes: {told:?}");
        ensure!(told.contains(&Some(Code::ResourceExhausted)), "{bytes} bytes: {told:?}");
        relay.stop().await?;
        serving.abort();
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_of_keys_says_nothing_about_the_call() -> anyhow::Result<()> {
    for code in [Code::NotFound, Code::InvalidArgument, Code::PermissionDenied, Code::Unimplemented]
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let relay = format!("http://{}", listener.local_addr()?);
        let server = Server::builder().add_service(GatewayServer::new(Keys(Err(code))));
        let serving = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let mut transport = Transport::to(&relay)?.through_relay_unsigned();
        let told = code_of(transport.fetch(&question("relayed")?).await)?;
        // With these codes an aggregator says that there is no such experiment, or none for this app.
        ensure!(told == Code::Unavailable, "{code:?} was told as {told:?}");
        serving.abort();
    }
    Ok(())
}
