//! Malformed messages.

use anyhow::Context as _;
use bandana_shared::wire::FILE_DESCRIPTOR_SET;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{
    GetExperimentRequest, SelectArmRequest, UploadResponse, UploadStatus,
};
use bandana_tests::attacked::Attacked;
use bandana_tests::harness::upload;
use bandana_tests::raw_http2::claiming;
use h2::client::SendRequest;
use prost::Message as _;
use prost::bytes::Bytes;
use prost_types::FileDescriptorSet;
use tokio::net::TcpStream;
use tonic::Code;
use tonic::codegen::http::{HeaderMap, Request};

use super::{CALL_BYTES, CONNECTION_BYTES, PROGRAM};

/// The outcome of a call: the gRPC status, and the message; None when the stream was reset.
type Outcome = Option<(String, Vec<u8>)>;

async fn connect(address: &str) -> anyhow::Result<SendRequest<Bytes>> {
    let (send, connection) = h2::client::handshake(TcpStream::connect(address).await?).await?;
    tokio::spawn(connection);
    Ok(send)
}

/// Sends a body, and waits for the answer.
async fn call(
    address: &str,
    path: &str,
    more: &[(&str, &str)],
    body: Vec<u8>,
) -> anyhow::Result<Outcome> {
    let mut send = connect(address).await?.ready().await?;
    let mut request = Request::post(format!("http://x{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in more {
        request = request.header(*name, *value);
    }
    let (answer, mut stream) = send.send_request(request.body(())?, false)?;
    stream.send_data(body.into(), true)?;
    let Ok(answer) = answer.await else { return Ok(None) };
    let status = |headers: &HeaderMap| {
        let status = headers.get("grpc-status").and_then(|status| status.to_str().ok());
        status.map(str::to_owned)
    };
    let early = status(answer.headers());
    let mut body = answer.into_body();
    let mut message = Vec::new();
    while let Some(data) = body.data().await {
        let Ok(data) = data else { return Ok(None) };
        message.extend(&data);
        body.flow_control().release_capacity(data.len())?;
    }
    let trailers = body.trailers().await.ok().flatten();
    let status = early.or_else(|| trailers.as_ref().and_then(status)).context("no status")?;
    Ok(Some((status, message)))
}

/// How the paths of methods on the devices' port begin.
const OF_DEVICES: [&str; 4] = [
    "/bandana.v1.Device/",
    "/bandana.v1.Gateway/",
    "/bandana.v1.TransparencyLog/",
    "/bandana.v1.Trusted/",
];

/// The paths of all methods of this project's services.
fn our_methods() -> anyhow::Result<Vec<String>> {
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET)?.file;
    let files = files.iter().filter(|file| file.package() == "bandana.v1");
    let services = files.flat_map(|file| &file.service);
    let methods = services.flat_map(|service| {
        service
            .method
            .iter()
            .map(|method| format!("/bandana.v1.{}/{}", service.name(), method.name()))
    });
    // An aggregator has no shuffler: that is a relay's.
    Ok(methods.filter(|path| !path.starts_with("/bandana.v1.Shuffler/")).collect())
}

/// Most bytes of a batch: of the most reports, each of 76 bytes.
const BATCH_BYTES_MAX: u32 = 16_384 * 76 + 1024;

#[tokio::test]
async fn every_method_has_a_limit_of_its_messages() -> anyhow::Result<()> {
    let attacked = Attacked::begin(PROGRAM, &[]).await?;
    let (device, operator) = (&attacked.server.device, &attacked.server.operator);
    let health = ["Check", "Watch"].map(|method| format!("/grpc.health.v1.Health/{method}"));
    let ours = our_methods()?;
    let (of_devices, of_operators): (Vec<String>, Vec<String>) = ours
        .into_iter()
        .partition(|path| OF_DEVICES.iter().any(|service| path.starts_with(service)));
    let (of_relays, of_operators): (Vec<String>, Vec<String>) =
        of_operators.into_iter().partition(|path| path.starts_with("/bandana.v1.Batches/"));
    assert!(of_devices.len() >= 4 && of_operators.len() >= 15 && of_relays.len() == 2);
    let mut calls = 0;
    for (address, paths, most) in [
        (device, &of_devices[..], 16 * 1024),
        (device, &health, 1024),
        (operator, &health, 1024),
        (operator, &of_operators, 256 * 1024),
        (operator, &of_relays, BATCH_BYTES_MAX),
    ] {
        for path in paths {
            for length in [most + 1, u32::MAX] {
                let body = claiming(length, 0, &[0; 100]);
                let outcome = call(address, path, &[], body).await?;
                // OUT_OF_RANGE
                assert_eq!(outcome.map(|(status, _)| status).as_deref(), Some("11"), "{path}");
                calls += 1;
            }
        }
    }
    attacked.end(calls * CALL_BYTES).await?;
    Ok(())
}

#[tokio::test]
async fn lies_about_lengths_and_forms_change_nothing() -> anyhow::Result<()> {
    let attacked = Attacked::begin(PROGRAM, &[]).await?;
    let address = attacked.server.device.clone();
    let honest =
        upload(1 << 100, &attacked.experiment, attacked.day, &[(1, true)])?.encode_to_vec();
    let length = u32::try_from(honest.len())?;
    let twice = upload(1 << 101, &attacked.experiment, attacked.day, &[(1, true)])?.encode_to_vec();
    let told = |claimed, bytes: &[u8]| claiming(claimed, 0, bytes);
    let mut cut_in_a_field = honest.clone();
    cut_in_a_field.truncate(30);
    let long_varint = [&[0x18][..], &[0xff; 20]].concat();
    let submit = |more: &[(&'static str, &'static str)], body| {
        let (more, address) = (more.to_vec(), address.clone());
        async move { call(&address, "/bandana.v1.Device/SubmitUpload", &more, body).await }
    };
    let bodies = [
        ("nothing", Vec::new()),
        ("half of a length", vec![0, 0]),
        ("shorter than claimed", told(length + 1, &honest)),
        ("longer than claimed", told(length - 1, &honest)),
        ("two for one", told(length_of(&twice)?, &twice).repeat(2)),
        ("compressed", claiming(length, 1, &honest)),
        ("no such compression", claiming(length, 7, &honest)),
        ("cut in a field", told(30, &cut_in_a_field)),
        ("a number without an end", told(21, &long_varint)),
        ("a field longer than all", told(6, &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f])),
        ("groups in groups", told(16_000, &[0x0b; 16_000])),
        ("zeros", told(16_000, &[0; 16_000])),
    ];
    let calls = bodies.len() as u64;
    for (what, body) in bodies {
        let outcome = submit(&[], body).await?;
        if what == "two for one" {
            // It is a valid upload with another id, and may be counted.
            continue;
        }
        let (status, message) = outcome.with_context(|| format!("{what}: no answer"))?;
        if status == "0" {
            let answer = UploadResponse::decode(message.get(5..).context("no message")?)?;
            assert_eq!(answer.status(), UploadStatus::Malformed, "{what}");
        }
    }
    for length in ["1", "100000", "18446744073709551615", "-1", "1, 2"] {
        let outcome = submit(&[("content-length", length)], told(length_of(&honest)?, &honest));
        let outcome = outcome.await?;
        assert!(outcome.is_none_or(|(status, _)| status != "0"), "content-length {length}");
    }
    let encoded = [("grpc-encoding", "gzip")];
    let (status, _) = submit(&encoded, claiming(length, 1, &honest)).await?.context("reset")?;
    // UNIMPLEMENTED
    assert_eq!(status, "12");

    // None of the malformed uploads was counted; this one is.
    let (status, message) = submit(&[], told(length, &honest)).await?.context("reset")?;
    let answer = UploadResponse::decode(message.get(5..).context("no message")?)?;
    assert_eq!((&*status, answer.status()), ("0", UploadStatus::Accepted));
    attacked.end((calls + 7) * (CONNECTION_BYTES + CALL_BYTES)).await?;
    Ok(())
}

fn length_of(message: &[u8]) -> anyhow::Result<u32> {
    Ok(u32::try_from(message.len())?)
}

/// A field whose length exceeds the message.
const UNDECODABLE: [u8; 3] = [0x0a, 0x7f, 0x00];

#[tokio::test]
async fn what_can_not_be_decoded_is_the_callers_fault() -> anyhow::Result<()> {
    let attacked = Attacked::begin(PROGRAM, &[]).await?;
    let (device, operator) = (&attacked.server.device, &attacked.server.operator);
    let mut methods = our_methods()?;
    methods.push("/grpc.health.v1.Health/Check".to_owned());
    let body = || claiming(3, 0, &UNDECODABLE);
    for path in &methods {
        let is_of_devices = OF_DEVICES.iter().any(|of| path.starts_with(of));
        let address = if is_of_devices { device } else { operator };
        let (status, message) = call(address, path, &[], body()).await?.context("reset")?;
        if path.starts_with("/bandana.v1.Device/SubmitUpload") {
            let answer = UploadResponse::decode(message.get(5..).context("no message")?)?;
            assert_eq!((&*status, answer.status()), ("0", UploadStatus::Malformed), "{path}");
            assert!(answer.upload_id.is_empty() && !answer.message.is_empty(), "{answer:?}");
        } else {
            // INVALID_ARGUMENT
            assert_eq!(status, "3", "{path}");
        }
    }
    let calls = methods.len() as u64;
    attacked.end(calls * (CONNECTION_BYTES + CALL_BYTES)).await?;
    Ok(())
}

/// A valid upload with this number as a message of a stream.
fn framed(attacked: &Attacked, number: u128) -> anyhow::Result<Vec<u8>> {
    let upload = upload(number, &attacked.experiment, attacked.day, &[(1, true)])?.encode_to_vec();
    Ok(claiming(length_of(&upload)?, 0, &upload))
}

/// What became of the uploads of a stream, from all of its answers.
fn statuses(mut answers: Vec<u8>) -> anyhow::Result<Vec<UploadStatus>> {
    let mut statuses = Vec::new();
    while let [_, a, b, c, d, ..] = answers[..] {
        let end = 5 + usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
        let answer = UploadResponse::decode(answers.get(5..end).context("cut short")?)?;
        statuses.push(answer.status());
        answers.drain(..end);
    }
    Ok(statuses)
}

#[tokio::test]
async fn a_stream_goes_on_after_an_upload_that_can_not_be_decoded() -> anyhow::Result<()> {
    let attacked = Attacked::begin(PROGRAM, &[]).await?;
    let good = |number| framed(&attacked, number);
    let bad = claiming(3, 0, &UNDECODABLE);
    let body = [good(1 << 100)?, bad.clone(), bad, good(1 << 101)?].concat();
    let path = "/bandana.v1.Device/SubmitUploads";
    let (status, answers) =
        call(&attacked.server.device, path, &[], body).await?.context("reset")?;
    assert_eq!(status, "0");
    let (accepted, malformed) = (UploadStatus::Accepted, UploadStatus::Malformed);
    assert_eq!(statuses(answers)?, [accepted, malformed, malformed, accepted]);
    attacked.end(CONNECTION_BYTES + super::STREAM_BYTES).await?;
    Ok(())
}

#[tokio::test]
async fn a_refused_message_of_a_stream_has_no_uploads_in_it() -> anyhow::Result<()> {
    let attacked = Attacked::begin(PROGRAM, &[]).await?;
    let good = |number| framed(&attacked, number);
    let path = "/bandana.v1.Device/SubmitUploads";
    // OUT_OF_RANGE, as of a call: too long. INVALID_ARGUMENT: compressed, without an encoding.
    let lies = [("11", 20_000, 0), ("11", u32::MAX, 0), ("3", 1000, 1), ("3", 1000, 7)];
    let streams = lies.len() as u64;
    for (place, (expected, length, compressed)) in (1u128..).zip(lies) {
        let number = place << 100;
        let inside = [good(number + 1)?, good(number + 2)?].concat();
        let body = [good(number)?, claiming(length, compressed, &inside)].concat();
        let (status, answers) =
            call(&attacked.server.device, path, &[], body).await?.context("reset")?;
        assert_eq!((&*status, &*statuses(answers)?), (expected, &[UploadStatus::Accepted][..]));
        let (_, answers) =
            call(&attacked.server.device, path, &[], inside).await?.context("reset")?;
        assert_eq!(statuses(answers)?, [UploadStatus::Accepted; 2], "{length} {compressed}");
    }
    attacked.end(2 * streams * (CONNECTION_BYTES + super::STREAM_BYTES)).await?;
    Ok(())
}

#[tokio::test]
async fn errors_that_quote_a_request_are_still_heard() -> anyhow::Result<()> {
    let attacked = Attacked::begin(PROGRAM, &[]).await?;
    let mut device = DeviceClient::connect(format!("http://{}", attacked.server.device)).await?;
    let experiment_id = "\u{1}".repeat(16_000);
    let question = GetExperimentRequest { experiment_id: experiment_id.clone() };
    let refused = device.get_experiment(question).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("is not 1 to 64 characters"), "{refused}");
    let question = SelectArmRequest { experiment_id, segment_values: Vec::new() };
    let refused = device.select_arm(question).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    attacked.end(2 * CONNECTION_BYTES).await?;
    Ok(())
}

/// The HTTP status of a call with an empty message and these headers.
async fn status_of(address: &str, path: &str, declared: &[&str]) -> anyhow::Result<u16> {
    let mut send = connect(address).await?.ready().await?;
    let mut request = Request::post(format!("http://x{path}"));
    for value in declared {
        request = request.header("content-type", *value);
    }
    let (answer, mut stream) = send.send_request(request.body(())?, false)?;
    stream.send_data(claiming(0, 0, &[]).into(), true)?;
    Ok(answer.await?.status().as_u16())
}

#[tokio::test]
async fn no_call_is_what_a_web_page_could_send() -> anyhow::Result<()> {
    let attacked = Attacked::begin(PROGRAM, &[]).await?;
    let (device, operator) = (&attacked.server.device, &attacked.server.operator);
    let mut methods = our_methods()?;
    methods.push("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".to_owned());
    let mut calls = 0;
    for path in &methods {
        let is_of_devices = OF_DEVICES.iter().any(|of| path.starts_with(of));
        let address = if is_of_devices { device } else { operator };
        for declared in [
            &[][..],
            &["text/plain"],
            &["text/plain;charset=UTF-8"],
            &["application/x-www-form-urlencoded"],
            &["multipart/form-data; boundary=application/grpc"],
            &["application/grpcs"],
            &["text/plain", "application/grpc"],
            &["application/grpc", "text/plain"],
        ] {
            assert_eq!(status_of(address, path, declared).await?, 415, "{path} {declared:?}");
            calls += 1;
        }
    }
    for declared in ["application/grpc", "application/grpc+proto", "Application/gRPC; x=y"] {
        let path = "/bandana.v1.Operator/ListExperiments";
        assert_eq!(status_of(operator, path, &[declared]).await?, 200, "{declared}");
    }
    attacked.end((calls + 3) * (CONNECTION_BYTES + CALL_BYTES)).await?;
    Ok(())
}
