//! The Connect protocol on the devices' port: calls by plain HTTP, from callers without gRPC.

use anyhow::{Context as _, ensure};
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{
    GetExperimentRequest, GetExperimentResponse, UploadResponse, UploadStatus,
};
use bandana_tests::attacked::create;
use bandana_tests::harness::{submit_one, three_arms, upload};
use bandana_tests::page::{self, Page};
use bandana_tests::watched_server::WatchedServer;
use prost::Message;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const PROTO: (&str, &str) = ("content-type", "application/proto");

const FETCH: &str = "/bandana.v1.Device/GetExperiment";
const UPLOAD: &str = "/bandana.v1.Device/SubmitUpload";

/// A server with an experiment.
struct Served {
    _folder: TempDir,
    server: WatchedServer,
    experiment: Specification,
}

impl Served {
    async fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = WatchedServer::start(PROGRAM, &folder.path().join("data"), arguments).await?;
        let experiment = create(&server.operator, three_arms("plain")).await?;
        Ok(Self { _folder: folder, server, experiment })
    }

    /// The answer to a message, and its bytes.
    async fn post(&self, path: &str, message: &impl Message) -> anyhow::Result<(Page, Vec<u8>)> {
        page::post(&self.server.device, path, &[PROTO], &message.encode_to_vec()).await
    }

    async fn day(&self) -> anyhow::Result<Day> {
        let (page, body) = self.post(FETCH, &question()).await?;
        ensure!(page.status == 200 && page.headers["content-type"] == "application/proto");
        Ok(Day::new(GetExperimentResponse::decode(&body[..])?.server_day))
    }

    async fn upload(&self, number: u128) -> anyhow::Result<UploadStatus> {
        let message = upload(number, &self.experiment, self.day().await?, &[(0, true)])?;
        let (page, body) = self.post(UPLOAD, &message).await?;
        ensure!(page.status == 200, "{page:?}");
        Ok(UploadResponse::decode(&body[..])?.status())
    }
}

fn question() -> GetExperimentRequest {
    GetExperimentRequest { experiment_id: "plain".to_owned() }
}

/// The code of a refusal, and its status.
fn refusal((page, body): (Page, Vec<u8>)) -> anyhow::Result<(u16, String)> {
    ensure!(page.headers["content-type"] == "application/json", "{page:?}");
    let error: serde_json::Value = serde_json::from_slice(&body)?;
    let code = error["code"].as_str().context("no code")?;
    ensure!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    Ok((page.status, code.to_owned()))
}

#[tokio::test]
async fn a_caller_without_grpc_fetches_and_uploads_and_is_counted_once() -> anyhow::Result<()> {
    let served = Served::start(&[]).await?;
    let (page, body) = served.post(FETCH, &question()).await?;
    assert_eq!(page.status, 200);
    let mut grpc = DeviceClient::connect(format!("http://{}", served.server.device)).await?;
    let of_grpc = grpc.get_experiment(question()).await?.into_inner();
    assert_eq!(GetExperimentResponse::decode(&body[..])?, of_grpc, "both protocols say the same");

    assert_eq!(served.upload(7).await?, UploadStatus::Accepted);
    assert_eq!(served.upload(7).await?, UploadStatus::Duplicate);
    let day = served.day().await?;
    assert_eq!(submit_one(&mut grpc, &served.experiment, day, 7).await?, UploadStatus::Duplicate);
    assert_eq!(submit_one(&mut grpc, &served.experiment, day, 8).await?, UploadStatus::Accepted);
    assert_eq!(served.upload(8).await?, UploadStatus::Duplicate);
    served.server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn refusals_have_the_codes_of_the_protocol() -> anyhow::Result<()> {
    let served = Served::start(&[]).await?;
    let address = &served.server.device;
    let post = |path, headers: &[(&'static str, &'static str)], body: Vec<u8>| {
        let headers = [&[PROTO], headers].concat();
        async move { refusal(page::post(address, path, &headers, &body).await?) }
    };
    let fetch = question().encode_to_vec();
    let other = GetExperimentRequest { experiment_id: "other".to_owned() }.encode_to_vec();
    let bad = GetExperimentRequest { experiment_id: "Not A Name".to_owned() }.encode_to_vec();
    let refused = |status, code: &str| (status, code.to_owned());
    assert_eq!(post(FETCH, &[], other).await?, refused(404, "not_found"));
    assert_eq!(post(FETCH, &[], bad).await?, refused(400, "invalid_argument"));
    assert_eq!(post(FETCH, &[], vec![0xff; 9]).await?, refused(400, "invalid_argument"));
    assert_eq!(post(UPLOAD, &[], vec![0; 16 * 1024 + 1]).await?, refused(400, "out_of_range"));
    assert_eq!(post(UPLOAD, &[], vec![0; 1_000_000]).await?, refused(400, "out_of_range"));
    let zipped = [("content-encoding", "gzip")];
    assert_eq!(post(FETCH, &zipped, fetch.clone()).await?, refused(501, "unimplemented"));
    let version = [("connect-protocol-version", "2")];
    assert_eq!(post(FETCH, &version, fetch.clone()).await?, refused(400, "invalid_argument"));
    let version = [("connect-protocol-version", "1")];
    let (page, _) = page::post(address, FETCH, &[PROTO, version[0]], &fetch).await?;
    assert_eq!(page.status, 200);
    for stream in ["/bandana.v1.Device/SubmitUploads", "/grpc.health.v1.Health/Watch"] {
        assert_eq!(post(stream, &[], vec![]).await?, refused(501, "unimplemented"), "{stream}");
    }
    for absent in ["/bandana.v1.Device/Other", "/bandana.v1.Operator/ListExperiments", "/"] {
        assert_eq!(post(absent, &[], vec![]).await?, refused(501, "unimplemented"), "{absent}");
    }

    // An upload that can't be decoded is an answer, as in gRPC.
    let (page, body) = page::post(address, UPLOAD, &[PROTO], &[0xff; 9]).await?;
    let answer = UploadResponse::decode(&body[..])?;
    assert_eq!((page.status, answer.status()), (200, UploadStatus::Malformed));
    // What a page of another origin can send without asking is refused.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/grpc"] {
        let (page, _) = page::post(address, FETCH, &[("content-type", kind)], &fetch).await?;
        assert_eq!(page.status, 415, "{kind}");
    }
    let kind = "application/proto";
    let get = page::get(address, FETCH, &[("content-type", kind)]).await?;
    assert_eq!(get.status, 405);
    served.server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_message_in_pieces_is_read_to_its_end() -> anyhow::Result<()> {
    let served = Served::start(&[]).await?;
    let message = question().encode_to_vec();
    let mut stream = TcpStream::connect(&served.server.device).await?;
    let (address, kind) = (&served.server.device, PROTO.1);
    let head = format!("POST {FETCH} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {kind}\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    for byte in message {
        stream.write_all(&[b"1\r\n", &[byte][..], b"\r\n"].concat()).await?;
        stream.flush().await?;
    }
    stream.write_all(b"0\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer));
    served.server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn keys_and_rates_are_those_of_grpc() -> anyhow::Result<()> {
    let served = Served::start(&[
        "--limit-questions-per-second-per-connection",
        "1",
        "--limit-burst-seconds",
        "1",
    ])
    .await?;
    let mut stream = TcpStream::connect(&served.server.device).await?;
    let (address, message) = (&served.server.device, question().encode_to_vec());
    let mut refusals = 0;
    for _ in 0..3 {
        let head = format!(
            "POST {FETCH} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/proto\r\n\
             content-length: {}\r\n\r\n",
            message.len()
        );
        stream.write_all(&[head.as_bytes(), &message].concat()).await?;
        let answer = answer_of(&mut stream).await?;
        if answer.contains("HTTP/1.1 429") {
            assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
            assert!(answer.contains("resource_exhausted"), "{answer}");
            refusals += 1;
        }
    }
    assert!(refusals > 0, "three calls on one connection, at one in a second");
    served.server.stop().await?;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("keys");
    std::fs::write(&file, "")?;
    let file = file.display().to_string();
    let served = Served::start(&["--app-keys-file", &file]).await?;
    let unknown = ("bandana-app-key", "bndk_AbM1pBHC0jRT1SXPrVgFzWAM5dqMKJkdPDo3ueZ8oA0");
    for headers in [vec![PROTO], vec![PROTO, unknown]] {
        let answer = page::post(&served.server.device, FETCH, &headers, &message).await?;
        assert_eq!(refusal(answer)?, (401, "unauthenticated".to_owned()));
    }
    served.server.stop().await?;
    Ok(())
}

/// One answer of an open connection, whose length is stated.
async fn answer_of(stream: &mut TcpStream) -> anyhow::Result<String> {
    let mut answer = Vec::new();
    loop {
        ensure!(stream.read_buf(&mut answer).await? > 0, "closed");
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.context("no length")?.parse()?;
        // An answer with a message is binary: lengths in the text are no shorter.
        if body.len() >= length {
            return Ok(text.into_owned());
        }
    }
}

#[tokio::test]
async fn pages_of_listed_origins_may_call_and_no_others() -> anyhow::Result<()> {
    let shop = ("origin", "https://shop.example");
    let stranger = ("origin", "https://stranger.example");
    let asks = [
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "bandana-app-key,content-type"),
    ];
    let served =
        Served::start(&["--cors-origins", "https://shop.example, http://127.0.0.1"]).await?;
    let at = &served.server.device;
    let preflight = |origin| async move {
        page::send(at, "OPTIONS", UPLOAD, &[&[origin], &asks[..]].concat(), "").await
    };
    let allowed = preflight(shop).await?;
    assert_eq!(allowed.status, 200, "{allowed:?}");
    assert_eq!(allowed.headers["access-control-allow-origin"], "https://shop.example");
    assert_eq!(allowed.headers["access-control-allow-methods"], "POST");
    for name in ["content-type", "bandana-app-key", "connect-protocol-version"] {
        assert!(allowed.headers["access-control-allow-headers"].contains(name), "{allowed:?}");
    }
    // Nothing that a browser adds by itself: no cookies.
    assert!(!allowed.headers.contains_key("access-control-allow-credentials"), "{allowed:?}");
    let refused = preflight(stranger).await?;
    assert!(!refused.headers.contains_key("access-control-allow-origin"), "{refused:?}");

    let message = question().encode_to_vec();
    for (origin, is_allowed) in [(shop, true), (stranger, false)] {
        let (page, _) = page::post(at, FETCH, &[PROTO, origin], &message).await?;
        assert_eq!(page.status, 200, "{page:?}");
        let shown = page.headers.get("access-control-allow-origin").map(String::as_str);
        assert_eq!(shown, is_allowed.then_some(shop.1), "{page:?}");
        assert_eq!(page.headers["vary"], "origin", "{page:?}");
    }
    // The operators' port is not a page's to call.
    let of_operators = page::send(
        &served.server.operator,
        "OPTIONS",
        "/api/experiments",
        &[&[shop], &asks[..]].concat(),
        "",
    )
    .await?;
    assert!(!of_operators.headers.contains_key("access-control-allow-origin"));
    served.server.stop().await?;

    let served = Served::start(&[]).await?;
    let (page, _) = page::post(&served.server.device, FETCH, &[PROTO, shop], &message).await?;
    assert!(!page.headers.keys().any(|name| name.starts_with("access-control")), "{page:?}");
    served.server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_request_names_one_host() -> anyhow::Result<()> {
    let served = Served::start(&[]).await?;
    let address = served.server.device.clone();
    let one = format!("host: {address}\r\n");
    for (hosts, status) in [
        (one.clone(), "200"),
        (String::new(), "400"),
        (format!("{one}{one}"), "400"),
        (format!("{one}host: evil.example\r\n"), "400"),
        ("host: a, b\r\n".to_owned(), "400"),
    ] {
        let body = question().encode_to_vec();
        let mut stream = TcpStream::connect(&address).await?;
        let head = format!(
            "POST {FETCH} HTTP/1.1\r\n{hosts}content-type: application/proto\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{hosts:?}: {answer}");
    }
    served.server.stop().await?;
    Ok(())
}
