//! Devices that call through a relay: a real one, to a real aggregator.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bandana_client::grpc::{AppKey, Transport, TransportError};
use bandana_client::{Acceptance, FetchTask, Signers};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_examples::relay_process::{AT_ONCE, RelayProcess, gateway_key};
use bandana_shared::identity::ExperimentId;
use bandana_shared::rewards::Rewards;
use bandana_shared::signing::{PublicKey, SigningKey};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1;
use bandana_shared::wire::v1::gateway_client::GatewayClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    EstimatesRequest, GetExperimentRequest, GetExperimentResponse, GetGatewayKeysRequest,
};
use bandana_tests::attacked::create;
use bandana_tests::harness::three_arms;
use bandana_tests::page;
use bandana_tests::watched_server::WatchedServer;
use bhttp::{Message, Mode};
use ohttp::ClientRequest;
use prost::Message as _;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::codegen::http;

use super::users::{Crowd, User, kills};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

pub(super) fn program() -> &'static Path {
    Path::new(PROGRAM)
}

/// An aggregator that is a gateway, and a relay to it.
struct Relayed {
    folder: TempDir,
    aggregator: AggregatorProcess,
    relay: RelayProcess,
    experiment: Specification,
}

impl Relayed {
    async fn start(flags: &[&str], of_relay: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = gateway_key(program(), folder.path()).await?.display().to_string();
        let flags = [&["--gateway-key-file", &*key], flags].concat();
        let data_dir = folder.path().join("data");
        let aggregator = AggregatorProcess::start_with(&flags, program(), &data_dir).await?;
        let relay = RelayProcess::start(of_relay, program(), &aggregator.device_url).await?;
        let operator = address(&aggregator.operator_url)?;
        let message = v1::Specification {
            simulation: true,
            attribution_window_seconds: 0,
            ..three_arms("relayed")
        };
        let experiment = create(&operator.to_string(), message).await?;
        Ok(Self { folder, aggregator, relay, experiment })
    }

    fn transport(&self) -> anyhow::Result<Transport> {
        Ok(Transport::to(&self.relay.url)?.through_relay_unsigned())
    }

    /// Reports that the aggregator has counted.
    async fn reports(&self) -> anyhow::Result<u64> {
        let mut operator = OperatorClient::connect(self.aggregator.operator_url.clone()).await?;
        let experiment_id = self.experiment.experiment_id().to_string();
        let request = EstimatesRequest { experiment_id, ..Default::default() };
        Ok(operator.get_estimates(request).await?.into_inner().reports)
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.relay.stop().await?;
        self.aggregator.stop().await
    }
}

pub(super) fn address(url: &str) -> anyhow::Result<SocketAddr> {
    Ok(url.strip_prefix("http://").context("another scheme")?.parse()?)
}

pub(super) fn question(id: &str) -> anyhow::Result<FetchTask> {
    Ok(FetchTask::new(ExperimentId::new(id)?))
}

pub(super) fn code_of<T: std::fmt::Debug>(
    outcome: Result<T, TransportError>,
) -> anyhow::Result<Code> {
    match outcome {
        Err(TransportError::Status(status)) => Ok(status.code()),
        other => bail!("no refusal: {other:?}"),
    }
}

#[tokio::test]
async fn what_the_aggregator_says_comes_back_through_the_relay() -> anyhow::Result<()> {
    let relayed = Relayed::start(&[], &AT_ONCE).await?;
    let mut transport = relayed.transport()?;
    let fetched = transport.fetch(&question("relayed")?).await?;
    let direct =
        Transport::to(&relayed.aggregator.device_url)?.fetch(&question("relayed")?).await?;
    assert_eq!(fetched.specification, direct.specification);
    assert_eq!((fetched.day, fetched.store), (direct.day, direct.store));
    assert_eq!(code_of(transport.fetch(&question("nobody")?).await)?, Code::NotFound);

    let counted = User::new(1, &relayed.experiment, &mut transport).await?;
    assert_eq!((counted.report(&mut transport).await?, relayed.reports().await?), (1, 1));
    // The program that is a relay alone does the same.
    let gateway = &relayed.aggregator.device_url;
    let alone = RelayProcess::start_alone(&AT_ONCE, program(), gateway).await?;
    let mut through = Transport::to(&alone.url)?.through_relay_unsigned();
    let counted = User::new(2, &relayed.experiment, &mut through).await?;
    assert_eq!((counted.report(&mut through).await?, relayed.reports().await?), (1, 2));
    alone.stop().await?;
    // The aggregator itself is not asked for keys by devices, and answers no calls in disguise.
    let mut confused = Transport::to(&relayed.relay.url)?;
    assert_eq!(code_of(confused.fetch(&question("relayed")?).await)?, Code::Unimplemented);
    relayed.stop().await
}

#[tokio::test]
async fn a_relay_that_is_over_its_rate_or_alone_keeps_reports() -> anyhow::Result<()> {
    let slow = ["--delay-seconds", "0", "--requests-per-second-per-address", "1"];
    let slow = [&slow[..], &["--burst-seconds", "1"]].concat();
    let relayed = Relayed::start(&[], &slow).await?;
    let mut transport = relayed.transport()?;
    let mut refused = 0;
    for _ in 0..3 {
        if let Err(TransportError::Status(status)) = transport.fetch(&question("relayed")?).await {
            assert_eq!(status.code(), Code::Unavailable, "it says nothing about the question");
            let wait = status.metadata().get("grpc-retry-pushback-ms").context("no wait")?;
            assert!(wait.to_str()?.parse::<u64>()? >= 1000);
            refused += 1;
        }
    }
    assert!(refused > 0, "three requests at once, at one in a second");
    let Relayed { aggregator, relay, .. } = relayed;
    aggregator.kill().await?;
    assert_eq!(code_of(transport.fetch(&question("relayed")?).await)?, Code::Unavailable);
    relay.stop().await
}

#[tokio::test]
async fn a_call_that_never_arrives_counts_in_the_rate_of_its_address() -> anyhow::Result<()> {
    let slow = ["--requests-per-second-per-address", "1", "--burst-seconds", "1"];
    let relayed = Relayed::start(&[], &[&AT_ONCE[..2], &slow].concat()).await?;
    let relay = address(&relayed.relay.url)?;
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(relay).await?;
        let head = "POST /bandana.v1.Gateway/GetGatewayKeys HTTP/1.1\r\nhost: relay\r\n\
                    content-type: application/proto\r\ncontent-length: 50\r\n\r\nabc";
        stream.write_all(head.as_bytes()).await?;
        calls.spawn(async move {
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).await.map(|_| begin)
        });
    }
    // The first answer is to one that is over the rate, and not to one that took too long.
    let first = tokio::time::timeout(Duration::from_secs(30), calls.join_next())
        .await?
        .context("no call")??;
    assert_eq!(String::from_utf8_lossy(&first?), "HTTP/1.1 429");
    drop(calls);
    relayed.stop().await
}

#[tokio::test]
async fn an_app_key_goes_with_what_is_sealed() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("app-keys").display().to_string();
    let key = run(&["app-key", "new", "--name", "shop", "--file", &file]).await?;
    let relayed = Relayed::start(&["--app-keys-file", &file], &AT_ONCE).await?;
    let fetched = relayed.transport()?.fetch(&question("relayed")?).await;
    assert_eq!(code_of(fetched)?, Code::Unauthenticated);
    let mut transport = relayed.transport()?.with_app_key(AppKey::new(key.trim())?);
    transport.fetch(&question("relayed")?).await?;
    relayed.stop().await
}

pub(super) async fn run(arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(PROGRAM);
    let output = command.args(arguments).clean_environment().kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Signs the gateway's public keys, and returns the file of the signed ones.
async fn sign(key: &Path, folder: &Path) -> anyhow::Result<(PathBuf, PublicKey)> {
    let signer = folder.join("operator-key").display().to_string();
    let public = run(&["keys", "generate", "--out", &signer]).await?.trim().parse()?;
    let (input, out) = (key.with_added_extension("pub"), key.with_added_extension("signed"));
    let (input, signed) = (input.display().to_string(), out.display().to_string());
    let sign = ["gateway-key", "sign", "--in", &input, "--key", &signer, "--expires-days", "30"];
    run(&[&sign[..], &["--out", &signed, "--yes"]].concat()).await?;
    Ok((out, public))
}

#[tokio::test]
async fn keys_are_taken_when_they_are_signed_as_the_app_demands() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let key = gateway_key(program(), folder.path()).await?;
    let (signed, operator) = sign(&key, folder.path()).await?;
    let (key, signed) = (key.display().to_string(), signed.display().to_string());
    let unsigned = Relayed::start(&[], &AT_ONCE).await?;
    let through = |relayed: &Relayed, key| -> anyhow::Result<Transport> {
        Ok(Transport::to(&relayed.relay.url)?.through_relay(Signers::key(key)))
    };
    let mut transport = through(&unsigned, operator)?;
    let refused = transport.fetch(&question("relayed")?).await;
    assert_eq!(code_of(refused)?, Code::FailedPrecondition);
    unsigned.stop().await?;

    // A server that has signatures of another gateway's keys does not start.
    let other = tempfile::tempdir()?;
    let other_key = gateway_key(program(), other.path()).await?.display().to_string();
    let data_dir = other.path().join("data");
    let flags = ["--gateway-key-file", &other_key, "--gateway-signed-keys-file", &signed];
    let started = AggregatorProcess::start_with(&flags, program(), &data_dir).await;
    assert!(started.is_err(), "it was told keys of another gateway");

    let flags = ["--gateway-key-file", &key, "--gateway-signed-keys-file", &signed];
    let data_dir = folder.path().join("data");
    let aggregator = AggregatorProcess::start_with(&flags, program(), &data_dir).await?;
    let relay = RelayProcess::start(&AT_ONCE, program(), &aggregator.device_url).await?;
    create(&address(&aggregator.operator_url)?.to_string(), three_arms("relayed")).await?;
    let stranger = SigningKey::generate()?.public_key();
    for (signer, is_taken) in [(operator, true), (stranger, false)] {
        let mut transport = Transport::to(&relay.url)?.through_relay(Signers::key(signer));
        let fetched = transport.fetch(&question("relayed")?).await;
        assert_eq!(fetched.is_ok(), is_taken, "{fetched:?}");
    }
    relay.stop().await?;
    aggregator.stop().await
}

#[tokio::test]
async fn devices_go_on_when_the_gateway_gets_another_key() -> anyhow::Result<()> {
    let relayed = Relayed::start(&[], &AT_ONCE).await?;
    let mut transport = relayed.transport()?;
    let user = User::new(1, &relayed.experiment, &mut transport).await?;
    let Relayed { folder, aggregator, relay, experiment } = relayed;
    let (device, data_dir) = (address(&aggregator.device_url)?, folder.path().join("data"));
    aggregator.stop().await?;
    std::fs::remove_file(folder.path().join("gateway-key"))?;
    std::fs::remove_file(folder.path().join("gateway-key.pub"))?;
    let key = gateway_key(program(), folder.path()).await?.display().to_string();
    let flags = ["--gateway-key-file", &key];
    let aggregator = AggregatorProcess::start_at_with(device, &flags, program(), &data_dir).await?;
    assert_eq!(user.report(&mut transport).await?, 1);
    let relayed = Relayed { folder, aggregator, relay, experiment };
    assert_eq!(relayed.reports().await?, 1);
    relayed.stop().await
}

/// The answer to a sealed call: its status and its content.
async fn sealed_call(
    relayed: &Relayed,
    path: &str,
    headers: &[(&str, &str)],
    content: &[u8],
) -> anyhow::Result<(u16, Vec<u8>)> {
    let mut gateway = GatewayClient::connect(relayed.relay.url.clone()).await?;
    let keys = gateway.get_gateway_keys(GetGatewayKeysRequest {}).await?.into_inner();
    let client = ClientRequest::from_encoded_config_list(&keys.key_configurations)?;
    let mut message = Message::request(
        b"POST".to_vec(),
        b"https".to_vec(),
        b"aggregator".to_vec(),
        path.as_bytes().to_vec(),
    );
    for (name, value) in headers {
        message.put_header(*name, *value);
    }
    message.write_content(content);
    let mut request = Vec::new();
    message.write_bhttp(Mode::KnownLength, &mut request)?;
    let (sealed, waiting) = client.encapsulate(&request)?;
    let relay = address(&relayed.relay.url)?.to_string();
    let (page, body) =
        page::post(&relay, "/ohttp", &[("content-type", "message/ohttp-req")], &sealed).await?;
    ensure!(page.status == 200, "{page:?}");
    let answer = Message::read_bhttp(&mut Cursor::new(waiting.decapsulate(&body)?))?;
    let status = answer.control().status().context("no status")?.code();
    Ok((status, answer.content().to_vec()))
}

#[tokio::test]
async fn nothing_but_a_call_of_a_device_is_carried_out_sealed() -> anyhow::Result<()> {
    let relayed = Relayed::start(&[], &AT_ONCE).await?;
    let fetch = GetExperimentRequest { experiment_id: "relayed".to_owned() }.encode_to_vec();
    let (proto, grpc) =
        (("content-type", "application/proto"), ("content-type", "application/grpc"));
    let of_device = "/bandana.v1.Device/GetExperiment";
    let (status, content) = sealed_call(&relayed, of_device, &[proto], &fetch).await?;
    assert_eq!(status, 200);
    assert!(GetExperimentResponse::decode(&content[..])?.policy.is_some());
    // gRPC would lose its status, and be a stream where nobody counts its uploads.
    for (path, headers) in [
        (of_device, &[grpc][..]),
        ("/bandana.v1.Device/SubmitUploads", &[grpc]),
        (of_device, &[]),
        (of_device, &[proto, proto]),
        ("/bandana.v1.Operator/ListExperiments", &[proto]),
        ("/bandana.v1.Trusted/Disclose", &[proto]),
        ("/ohttp", &[proto]),
    ] {
        let (status, content) = sealed_call(&relayed, path, headers, &fetch).await?;
        assert_eq!((status, content), (400, vec![]), "{path} {headers:?}");
    }
    let (status, _) =
        sealed_call(&relayed, "/bandana.v1.Device/SubmitUploads", &[proto], &fetch).await?;
    assert_eq!(status, 501);
    let relay = address(&relayed.relay.url)?.to_string();
    for path in ["/", "/metrics", "/bandana.v1.Device/GetExperiment"] {
        assert_eq!(page::get(&relay, path, &[]).await?.status, 404, "{path}");
    }
    relayed.stop().await
}

const SEALED: (&str, &str) = ("content-type", "message/ohttp-res");

/// Headers of an answer.
type Headers = &'static [(&'static str, &'static str)];

/// A gateway that answers everything with this status, these headers and this body.
async fn marking_gateway(status: u16, headers: Headers, body: Vec<u8>) -> anyhow::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let body = body.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await?;
                while let Some(request) = connection.accept().await {
                    let (_, mut respond) = request?;
                    let mut answer = http::Response::builder().status(status);
                    for (name, value) in headers {
                        answer = answer.header(*name, *value);
                    }
                    let mut sending = respond.send_response(answer.body(())?, false)?;
                    sending.send_data(body.clone().into(), true)?;
                }
                anyhow::Ok(())
            });
        }
    });
    Ok(url)
}

#[tokio::test]
async fn a_gateway_can_mark_no_answer_but_by_what_is_sealed() -> anyhow::Result<()> {
    let cases: [(u16, Headers, usize, u16, Option<&str>); 8] = [
        (200, &[SEALED, ("set-cookie", "u=7"), ("x-mark", "7")], 2096, 200, None),
        (200, &[SEALED], 2097, 502, None),
        (200, &[("content-type", "text/html")], 2096, 502, None),
        (299, &[SEALED], 2096, 502, None),
        (301, &[("location", "/7")], 7, 502, None),
        (400, &[("content-type", "application/problem+json")], 77, 400, None),
        (429, &[("retry-after", "17")], 7, 503, Some("60")),
        (503, &[("retry-after", "u7-mark")], 7, 503, Some("1")),
    ];
    let mut looks = BTreeMap::new();
    for (status, headers, bytes, wanted, wait) in cases {
        let gateway = marking_gateway(status, headers, vec![7; bytes]).await?;
        let relay = RelayProcess::start(&AT_ONCE, program(), &gateway).await?;
        let at = address(&relay.url)?.to_string();
        let kind = [("content-type", "message/ohttp-req")];
        let (page, body) = page::post(&at, "/ohttp", &kind, &[0; 567]).await?;
        assert_eq!(page.status, wanted, "{status} {headers:?}: {page:?}");
        assert_eq!(page.headers.get("retry-after").map(String::as_str), wait, "{page:?}");
        let known = ["content-type", "content-length", "date", "retry-after", "connection"];
        assert!(page.headers.keys().all(|name| known.contains(&&**name)), "{page:?}");
        if wanted != 200 {
            let words = looks.entry(wanted).or_insert_with(|| body.clone());
            assert_eq!(*words, body, "the gateway's words came through");
        }
        relay.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn signatures_that_are_false_are_refused_at_the_start_and_later() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let key = gateway_key(program(), folder.path()).await?;
    let (signed, _) = sign(&key, folder.path()).await?;
    let good = std::fs::read(&signed)?;
    let unsigned = std::fs::read(key.with_added_extension("pub"))?;
    let mut broken = good.clone();
    broken[good.len() - 1] ^= 1;
    let twice = [&good[..], &good].concat();
    let (key, file) = (key.display().to_string(), signed.display().to_string());
    let flags = ["--gateway-key-file", &*key, "--gateway-signed-keys-file", &file];
    let data_dir = folder.path().join("data");
    for bad in [&unsigned, &broken, &twice] {
        std::fs::write(&signed, bad)?;
        let started = AggregatorProcess::start_with(&flags, program(), &data_dir).await;
        assert!(started.is_err());
    }
    std::fs::write(&signed, &good)?;
    let mut server = WatchedServer::start(PROGRAM, &data_dir, &flags).await?;
    let mut gateway = GatewayClient::connect(format!("http://{}", server.device)).await?;
    let before = gateway.get_gateway_keys(GetGatewayKeysRequest {}).await?.into_inner();
    assert_eq!(before.signatures.len(), 1);
    for bad in [&unsigned, &broken, &twice] {
        std::fs::write(&signed, bad)?;
        server.reload().await?;
        let after = gateway.get_gateway_keys(GetGatewayKeysRequest {}).await?.into_inner();
        assert_eq!(after, before, "the good signature stays");
    }
    // What can't be a gateway's key is not signed either.
    let nonsense = folder.path().join("nonsense");
    let mut other = unsigned.clone();
    other[6] ^= 1;
    std::fs::write(&nonsense, other)?;
    let out = folder.path().join("out").display().to_string();
    let (nonsense, signer) =
        (nonsense.display().to_string(), folder.path().join("operator-key").display().to_string());
    let sign = ["gateway-key", "sign", "--in", &nonsense, "--key", &signer, "--expires-days", "3"];
    assert!(run(&[&sign[..], &["--out", &out, "--yes"]].concat()).await.is_err());
    assert!(!Path::new(&out).exists());
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn reports_are_counted_once_though_relay_and_aggregator_are_killed() -> anyhow::Result<()> {
    let Relayed { folder, mut aggregator, mut relay, experiment } =
        Relayed::start(&[], &AT_ONCE).await?;
    let key = folder.path().join("gateway-key").display().to_string();
    let (data_dir, relay_url) = (folder.path().join("data"), relay.url.clone());
    let (of_devices, of_relay) = (address(&aggregator.device_url)?, address(&relay_url)?);
    let acceptance = Acceptance::unsigned(experiment.epsilon(), Rewards::binary());
    let crowd = Crowd::start(&experiment, &acceptance, &relay_url);
    for kill in 0..kills()? {
        crowd.report_more().await?;
        if kill % 2 == 0 {
            relay.kill().await?;
            let gateway = aggregator.device_url.clone();
            relay = RelayProcess::start_at(of_relay, &AT_ONCE, program(), &gateway).await?;
        } else {
            aggregator.kill().await?;
            let flags = ["--gateway-key-file", &key];
            aggregator =
                AggregatorProcess::start_at_with(of_devices, &flags, program(), &data_dir).await?;
        }
    }
    let counted = crowd.end().await?;
    let relayed = Relayed { folder, aggregator, relay, experiment };
    assert_eq!(relayed.reports().await?, counted);
    relayed.stop().await
}
