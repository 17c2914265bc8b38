//! Calls that are never completed, and answers that are never read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bandana_shared::identity::Day;
use bandana_shared::wire::v1;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_tests::attacked::{Attacked, create};
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::raw_http2::claiming;
use bandana_tests::watched_server::WatchedServer;
use h2::client::{Builder, SendRequest};
use prost::Message as _;
use prost::bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::codegen::http::{self, Request};

use super::{CALL_BYTES, CONNECTION_BYTES, PROGRAM, STREAM_BYTES, STREAMS};

const SUBMIT_ONE: &str = "/bandana.v1.Device/SubmitUpload";
const SUBMIT_MANY: &str = "/bandana.v1.Device/SubmitUploads";
const CREATE: &str = "/bandana.v1.Operator/CreateExperiment";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// Interval between bytes of a slow sender.
const BETWEEN_BYTES: Duration = Duration::from_millis(50);

fn call(path: &str) -> http::Result<Request<()>> {
    let request = Request::post(format!("http://x{path}"));
    request.header("content-type", "application/grpc").header("te", "trailers").body(())
}

/// A client connection, driven by a background task until the test ends.
async fn connect<T>(settings: &Builder, stream: T) -> anyhow::Result<SendRequest<Bytes>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (send, connection) = settings.handshake(stream).await?;
    tokio::spawn(connection);
    Ok(send)
}

#[tokio::test]
async fn a_body_that_never_ends_is_ended() -> anyhow::Result<()> {
    let mut attacked = Attacked::begin(PROGRAM, &["--limit-request-seconds", "1"]).await?;
    let (device, operator) = (attacked.server.device.clone(), attacked.server.operator.clone());
    let mut calls = JoinSet::new();
    for (address, path) in
        [(&device, SUBMIT_ONE), (&device, HEALTH), (&operator, CREATE), (&operator, HEALTH)]
    {
        for _ in 0..20 {
            let send = connect(&Builder::new(), TcpStream::connect(address).await?).await?;
            let (mut send, request) = (send.ready().await?, call(path)?);
            calls.spawn(async move {
                let (answer, mut body) = send.send_request(request, false)?;
                let mut answer = tokio::spawn(answer);
                body.send_data(claiming(500, 0, &[]).into(), false)?;
                loop {
                    tokio::select! {
                        answer = &mut answer => {
                            let answer = answer??;
                            let status = answer.headers().get("grpc-status").cloned();
                            return anyhow::Ok((path, status));
                        }
                        () = tokio::time::sleep(BETWEEN_BYTES) => {
                            // The answer may be under way.
                            body.send_data(Bytes::from_static(&[0]), false).ok();
                        }
                    }
                }
            });
        }
    }
    while let Some(outcome) = tokio::time::timeout(PATIENCE, calls.join_next()).await? {
        let (path, status) = outcome??;
        // DEADLINE_EXCEEDED
        assert!(status.as_ref().is_some_and(|status| status == "4"), "{path}: {status:?}");
    }
    attacked.answered_more(10).await?;
    attacked.end(80 * (CONNECTION_BYTES + CALL_BYTES)).await?;
    Ok(())
}

/// Streams uploads for as long as the server accepts them.
fn stream_uploads(
    mut send: SendRequest<Bytes>,
    message: Bytes,
) -> anyhow::Result<h2::client::ResponseFuture> {
    let (answer, mut body) = send.send_request(call(SUBMIT_MANY)?, false)?;
    tokio::spawn(async move {
        loop {
            body.reserve_capacity(message.len());
            match std::future::poll_fn(|context| body.poll_capacity(context)).await {
                Some(Ok(capacity)) if capacity >= message.len() => {
                    body.send_data(message.clone(), false)?;
                }
                Some(Ok(_)) => {}
                _ => return anyhow::Ok(()),
            }
        }
    });
    Ok(answer)
}

#[tokio::test]
async fn answers_that_are_not_taken_stop_the_stream() -> anyhow::Result<()> {
    let mut attacked = Attacked::begin(PROGRAM, &[]).await?;
    let request =
        upload(1 << 100, &attacked.experiment, attacked.day, &[(1, true)])?.encode_to_vec();
    // Many messages per frame: single unread ones would soon end the connection.
    let message = claiming(u32::try_from(request.len())?, 0, &request).repeat(16);
    let message = Bytes::from(message);
    let mut kept = Vec::new();
    for _ in 0..10 {
        let mut settings = Builder::new();
        // A window of 0 blocks all bytes of answers.
        settings.initial_window_size(0);
        let stream = TcpStream::connect(&attacked.server.device).await?;
        let send = connect(&settings, stream).await?;
        for _ in 0..STREAMS {
            let send = send.clone().ready().await?;
            kept.push(stream_uploads(send, message.clone())?);
        }
    }
    attacked.answered_more(300).await?;
    let of_each = CONNECTION_BYTES + STREAMS * (STREAM_BYTES + CALL_BYTES);
    attacked.end(10 * of_each).await?;
    drop(kept);
    Ok(())
}

#[tokio::test]
async fn a_stream_whose_answers_are_not_taken_gives_up_its_place() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let arguments =
        ["--limit-calls", "1", "--limit-stream-idle-seconds", "5", "--drain-deadline", "10"];
    let server = WatchedServer::start(PROGRAM, folder.path(), &arguments).await?;
    let experiment = create(&server.operator, three_arms("stalled")).await?;
    let mut settings = Builder::new();
    settings.initial_window_size(0);
    let stream = TcpStream::connect(&server.device).await?;
    let mut send = connect(&settings, stream).await?.ready().await?;
    // The server's settings arrive with the first answer.
    send.send_request(call(HEALTH)?, true)?.0.await?;
    let send = send.ready().await?;
    let mut other = DeviceClient::connect(format!("http://{}", server.device)).await?;
    // Any day will do: a refusal is an answer too.
    let request = upload(1, &experiment, Day::new(1), &[(1, true)])?.encode_to_vec();
    let message = Bytes::from(claiming(u32::try_from(request.len())?, 0, &request));
    let answer = stream_uploads(send, message)?;
    // The headers have arrived, so the call is under way.
    let answer = answer.await?;

    let question = || v1::GetExperimentRequest { experiment_id: "stalled".to_owned() };
    let refused = other.get_experiment(question()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let served = async { while other.get_experiment(question()).await.is_err() {} };
    tokio::time::timeout(PATIENCE, served).await?;
    drop(other);
    server.stop().await?;
    drop(answer);
    Ok(())
}

/// A TCP stream that is never read.
struct Deaf(TcpStream);

impl AsyncRead for Deaf {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Deaf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[tokio::test]
async fn who_reads_nothing_at_all_is_read_no_further() -> anyhow::Result<()> {
    let mut attacked = Attacked::begin(PROGRAM, &[]).await?;
    // The largest possible answers.
    let arm = |place| v1::Arm { label: format!("{place:0128}"), retired: false };
    let arms = (0..1024).map(arm).collect();
    let large = v1::Specification { arms, ..three_arms("large") };
    let large = create(&attacked.server.operator, large).await?;
    let question = v1::GetExperimentRequest { experiment_id: large.experiment_id().to_string() };
    let question = question.encode_to_vec();
    let message = Bytes::from(claiming(u32::try_from(question.len())?, 0, &question));
    let mut kept = Vec::new();
    for _ in 0..10 {
        let mut settings = Builder::new();
        settings
            .initial_window_size(i32::MAX as u32)
            .initial_connection_window_size(i32::MAX as u32);
        settings.initial_max_send_streams(100_000).max_send_buffer_size(1 << 30);
        let stream = Deaf(TcpStream::connect(&attacked.server.device).await?);
        let mut send = connect(&settings, stream).await?;
        for _ in 0..3_000 {
            send = send.ready().await?;
            let (answer, mut body) =
                send.send_request(call("/bandana.v1.Device/GetExperiment")?, false)?;
            body.send_data(message.clone(), true)?;
            kept.push((answer, body));
        }
    }
    attacked.answered_more(100).await?;
    // Only answers to requests read before the first blocked write are held. All that the
    // connections could request is four times as much.
    let largest_answer = 160 * 1024;
    attacked.end(10 * (CONNECTION_BYTES + STREAMS / 4 * largest_answer)).await?;
    drop(kept);
    Ok(())
}
