//! The content of the log, and what it must never contain.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    CreateExperimentRequest, ExperimentName, GetExperimentRequest, Learner,
};
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::page;
use bandana_tests::raw_http2::{END_HEADERS, END_STREAM, Kind, RawConnection, frame, headers};
use bandana_tests::watched_server::WatchedServer;
use serde_json::Value;
use tokio::net::TcpSocket;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// An address that occurs only as the peer of the server's connections.
const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 83, 29);

/// The number of an upload, and so its id.
const UPLOAD: u128 = 0x5eed_cafe_f00d_d1ce_a11a_b1ed_1337_beef;

async fn channel(address: &str) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(endpoint.local_address(Some(IpAddr::V4(PEER))).connect().await?)
}

fn request_id(metadata: &MetadataMap) -> anyhow::Result<String> {
    let id = metadata.get("x-request-id").context("no request id")?.to_str()?;
    assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    Ok(id.to_owned())
}

/// Makes some traffic, and returns the request ids of an operator's call, of a failed one, and of a
/// device's call.
async fn traffic(server: &WatchedServer) -> anyhow::Result<[String; 3]> {
    let mut operator = OperatorClient::new(channel(&server.operator).await?);
    let create = CreateExperimentRequest {
        specification: Some(three_arms("observed")),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    let created = operator.create_experiment(create).await?;
    let called = request_id(created.metadata())?;
    let specification = created.into_inner().specification.context("no specification")?;
    let specification = Specification::try_from(&specification)?;
    let name = ExperimentName { experiment_id: "nowhere".to_owned() };
    let failed = operator.pause_experiment(name).await.err().context("nowhere is paused")?;
    let failed = request_id(failed.metadata())?;

    let mut device = DeviceClient::new(channel(&server.device).await?);
    let question = GetExperimentRequest { experiment_id: "observed".to_owned() };
    let day = Day::new(device.get_experiment(question).await?.into_inner().server_day);
    let answer = device.submit_upload(upload(UPLOAD, &specification, day, &[(0, true)])?).await?;
    let uploaded = request_id(answer.metadata())?;

    let socket = TcpSocket::new_v4()?;
    socket.bind((PEER, 0).into())?;
    let stream = socket.connect(server.operator.parse()?).await?;
    let page = page::get_on(stream, &server.operator, "/metrics", &[]).await?;
    assert_eq!(page.status, 200);
    Ok([called, failed, uploaded])
}

#[tokio::test]
async fn operators_calls_are_logged_by_their_ids_and_devices_are_not() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let arguments = ["--log-format", "json"];
    let server = WatchedServer::start(PROGRAM, folder.path(), &arguments).await?;
    let [called, failed, uploaded] = traffic(&server).await?;
    let log = server.stop().await?;
    let lines: Vec<Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for line in &lines {
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    let answered = |id: &str| {
        let of =
            |line: &&Value| line["span"]["request_id"] == id && line["message"] == "call answered";
        lines.iter().find(of).with_context(|| format!("{id} is not in {log}"))
    };
    for (id, method, code) in
        [(&called, "CreateExperiment", "OK"), (&failed, "PauseExperiment", "NOT_FOUND")]
    {
        let line = answered(id)?;
        assert_eq!(line["span"]["method"], format!("bandana.v1.Operator/{method}"));
        assert_eq!((&line["code"], &line["span"]["caller"]), (&code.into(), &"(anybody)".into()));
        assert!(line["seconds"].is_f64(), "{line}");
    }
    let created = lines.iter().find(|line| line["message"] == "experiment created");
    assert_eq!(created.context("no change")?["span"]["request_id"], *called);
    assert!(!log.contains(&uploaded), "{log}");
    Ok(())
}

#[tokio::test]
async fn even_a_talkative_log_names_no_peer_and_no_upload() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for (place, format) in ["text", "json"].iter().enumerate() {
        let arguments = ["--log-filter", "trace", "--log-format", format];
        let data_dir = folder.path().join(place.to_string());
        let server = WatchedServer::start(PROGRAM, &data_dir, &arguments).await?;
        let [_, _, uploaded] = traffic(&server).await?;
        let log = server.stop().await?;
        assert!(log.contains(&uploaded) && log.contains("bandana.v1.Device/SubmitUpload"), "{log}");
        assert!(!log.contains(&PEER.to_string()), "{log}");
        assert!(!log.to_lowercase().contains(&format!("{UPLOAD:032x}")), "{log}");
        assert!(
            !log.contains(&format!("{:?}", &UPLOAD.to_be_bytes()[..4]).replace(['[', ']'], ""))
        );
    }
    Ok(())
}

#[tokio::test]
async fn what_strangers_do_does_not_fill_the_log() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    let first = frame(Kind::Headers, END_HEADERS | END_STREAM, 1, &headers("/x.Y/Z", &[]));
    for address in [&server.device, &server.operator] {
        let mut connection = RawConnection::open(address).await?;
        // Answers to pings that were never sent, and calls of what there is not.
        connection.write(&frame(Kind::Ping, 1, 0, &[7; 8]).repeat(1000)).await?;
        connection.write(&first).await?;
        while connection.next_frame().await?.0 != Kind::Headers as u8 {}
        for call in 1..100 {
            let stream = 2 * call + 1;
            let block = headers("/x.Y/Z", &[]);
            let opened = frame(Kind::Headers, END_HEADERS | END_STREAM, stream, &block);
            connection.write(&opened).await?;
            while connection.next_frame().await?.0 != Kind::Headers as u8 {}
        }
    }
    let log = server.stop().await?;
    assert!(log.lines().count() < 20, "{log}");
    Ok(())
}
