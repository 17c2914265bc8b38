//! Answers that are not read, and requests that are aborted.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1;
use bandana_tests::attacked::{Attacked, create};
use bandana_tests::attacks::{
    begin_requests, send_and_take_nothing, take_no_answers, take_nothing,
};
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::page::{self, Samples};
use bandana_tests::process_usage::memory_now;
use bandana_tests::raw_http2::{Kind, RawConnection, claiming, frame};
use prost::Message as _;
use tokio::task::JoinSet;

use super::{CALL_BYTES_UNTAKEN, CONNECTION_BYTES, PROGRAM, STREAM_BYTES, STREAMS};

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// Memory that the allocator may retain after everything was freed.
const KEPT_BYTES: u64 = 12 * 1024 * 1024;

/// Number of connections of an attack, unless the environment sets it.
fn connections(few: usize) -> anyhow::Result<usize> {
    match std::env::var("BANDANA_ATTACK_CONNECTIONS") {
        Ok(many) => many.parse().context("BANDANA_ATTACK_CONNECTIONS is not a number"),
        Err(_) => Ok(few),
    }
}

/// An experiment with the largest possible answer.
fn large() -> v1::Specification {
    let arm = |place| v1::Arm { label: format!("{place:0128}"), retired: false };
    v1::Specification { arms: (0..1024).map(arm).collect(), ..three_arms("large") }
}

/// Current metrics of a server.
async fn metrics(attacked: &Attacked) -> anyhow::Result<Samples> {
    Samples::parse(&page::get(&attacked.server.operator, "/metrics", &[]).await?.body)
}

/// Waits until a metric has an expected value.
pub(super) async fn until(
    attacked: &Attacked,
    name: &str,
    good: impl Fn(u64) -> bool,
) -> anyhow::Result<()> {
    let waiting = async {
        while !good(metrics(attacked).await?.count(name).unwrap_or(0)) {}
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, waiting).await.with_context(|| format!("{name} stays"))?
}

#[tokio::test]
async fn answers_about_one_experiment_are_not_copied() -> anyhow::Result<()> {
    let mut attacked = Attacked::begin(PROGRAM, &[]).await?;
    create(&attacked.server.operator, large()).await?;
    let many = connections(40)?;
    let untaken = take_no_answers(&attacked.server.device, "large", many, 128).await?;
    assert_eq!(untaken.refused + untaken.closed, 0, "there is room for all of them");
    attacked.answered_more(20).await?;
    attacked.end(many as u64 * (CONNECTION_BYTES + STREAMS * CALL_BYTES_UNTAKEN)).await?;
    drop(untaken);
    Ok(())
}

#[tokio::test]
async fn answers_that_nobody_takes_have_a_bound_and_give_their_memory_back() -> anyhow::Result<()> {
    let budget = 64;
    let arguments = ["--limit-memory-mib", &budget.to_string()];
    let mut attacked = Attacked::begin(PROGRAM, &arguments).await?;
    create(&attacked.server.operator, large()).await?;
    let process = attacked.server.id()?;
    let before = memory_now(process)?;
    let untaken = take_no_answers(&attacked.server.device, "large", connections(100)?, 128).await?;
    ensure!(untaken.waiting > 1000 && untaken.refused > 1000, "{untaken:?}");
    // A caller with few calls under way is answered meanwhile.
    attacked.answered_more(50).await?;
    let shown = metrics(&attacked).await?;
    assert_eq!(shown.count("bandana_calls_without_memory_total")?, untaken.refused);
    assert!(shown.count("bandana_memory_held_bytes")? > 8 << 20);

    drop(untaken);
    until(&attacked, "bandana_memory_held_bytes", |held| held < 1 << 20).await?;
    let given_back = async {
        while memory_now(process)? > before + KEPT_BYTES {
            attacked.answered_more(1).await?;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, given_back).await.context("the memory is kept")??;
    attacked.end(budget << 20).await?;
    Ok(())
}

/// Keeps a connection active until it is closed.
async fn stay_lively(mut connection: RawConnection) {
    let ping = frame(Kind::Ping, 0, 0, &[0; 8]);
    while connection.write(&ping).await.is_ok() {
        if connection.next_frame().await.is_err() {
            break;
        }
    }
}

#[tokio::test]
async fn who_watches_and_takes_nothing_is_closed() -> anyhow::Result<()> {
    let attacked = Attacked::begin(PROGRAM, &["--limit-answer-seconds", "1"]).await?;
    let (device, operator) = (&attacked.server.device, &attacked.server.operator);
    let question =
        v1::EstimatesRequest { experiment_id: "attacked".to_owned(), ..Default::default() };
    let watch = "/bandana.v1.Operator/WatchEstimates";
    let connection = take_nothing(operator, watch, &question).await?;
    tokio::time::timeout(PATIENCE, stay_lively(connection)).await.context("it stays open")?;
    let connection = take_nothing(device, "/grpc.health.v1.Health/Watch", &()).await?;
    tokio::time::timeout(PATIENCE, stay_lively(connection)).await.context("it stays open")?;
    for service in ["operator", "device"] {
        let closed = format!("bandana_connections_not_taking_total{{service=\"{service}\"}}");
        assert_eq!(metrics(&attacked).await?.count(&closed)?, 1, "{service}");
    }
    attacked.end(CONNECTION_BYTES + CALL_BYTES_UNTAKEN).await?;
    Ok(())
}

#[tokio::test]
async fn who_takes_no_answer_is_closed_however_lively() -> anyhow::Result<()> {
    let mut attacked = Attacked::begin(PROGRAM, &["--limit-answer-seconds", "1"]).await?;
    let untaken = take_no_answers(&attacked.server.device, "attacked", 10, 8).await?;
    assert_eq!(untaken.waiting, 80);
    let mut closing = JoinSet::new();
    for connection in untaken.connections {
        closing.spawn(stay_lively(connection));
    }
    tokio::time::timeout(PATIENCE, closing.join_all()).await.context("they stay open")?;
    let closed = "bandana_connections_not_taking_total{service=\"device\"}";
    assert_eq!(metrics(&attacked).await?.count(closed)?, 10);
    attacked.answered_more(10).await?;
    attacked.end(10 * (CONNECTION_BYTES + 8 * CALL_BYTES_UNTAKEN)).await?;
    Ok(())
}

/// Both a stream that its caller has ended, and one that was ended since no answer was taken.
#[tokio::test]
async fn who_takes_no_answers_to_a_stream_is_closed_after_its_end() -> anyhow::Result<()> {
    let limits = ["--limit-answer-seconds", "1", "--limit-stream-idle-seconds", "1"];
    let attacked = Attacked::begin(PROGRAM, &limits).await?;
    let path = "/bandana.v1.Device/SubmitUploads";
    let upload = upload(1 << 100, &attacked.experiment, attacked.day, &[(1, true)])?;
    let ended = take_nothing(&attacked.server.device, path, &upload).await?;
    let message = upload.encode_to_vec();
    // More than are answered ahead.
    let messages = claiming(u32::try_from(message.len())?, 0, &message).repeat(200);
    let open = send_and_take_nothing(&attacked.server.device, path, &messages, 0).await?;
    for connection in [ended, open] {
        tokio::time::timeout(PATIENCE, stay_lively(connection)).await.context("it stays open")?;
    }
    let closed = "bandana_connections_not_taking_total{service=\"device\"}";
    assert_eq!(metrics(&attacked).await?.count(closed)?, 2);
    attacked.end(2 * (CONNECTION_BYTES + STREAM_BYTES)).await?;
    Ok(())
}

#[tokio::test]
async fn requests_that_are_broken_off_are_counted_and_not_logged() -> anyhow::Result<()> {
    // On a busy host they are begun for long, and none may be given up meanwhile.
    let attacked = Attacked::begin(PROGRAM, &["--limit-request-seconds", "600"]).await?;
    let (device, operator) = (attacked.server.device.clone(), attacked.server.operator.clone());
    let held = "bandana_memory_held_bytes";
    // The uploads of the client that behaves hold memory for moments: there are some between them.
    let least_held = async || {
        let enough = attacked.answered() + 20;
        let waiting = async {
            let (mut least, mut reads) = (u64::MAX, 0);
            while attacked.answered() < enough || reads < 50 {
                least = least.min(metrics(&attacked).await?.count(held)?);
                reads += 1;
            }
            anyhow::Ok(least)
        };
        tokio::time::timeout(PATIENCE, waiting).await.context("the client gets no answers")?
    };
    let idle = least_held().await?;
    let mut broken = 0;
    for (address, path) in [
        (&device, "/bandana.v1.Device/SubmitUpload"),
        (&device, "/bandana.v1.Device/SubmitUploads"),
        (&device, "/grpc.health.v1.Health/Check"),
        (&operator, "/bandana.v1.Operator/CreateExperiment"),
    ] {
        // Whoever leaves before a request has reached the service has broken off nothing. What one
        // request holds tells when 500 have: their few bytes of data hold less than one more request.
        let mut held_for_each = 0;
        for requests in [1_u64, 500] {
            let mut connections = Vec::new();
            for _ in 0..requests.div_ceil(100) {
                let calls = u32::try_from(requests.min(100))?;
                connections.push(begin_requests(address, path, calls).await?);
            }
            let all = idle + (requests * held_for_each).max(1);
            let waiting = async {
                while least_held().await? < all {}
                anyhow::Ok(())
            };
            let waited = tokio::time::timeout(PATIENCE, waiting).await;
            let found = least_held().await?;
            waited.with_context(|| {
                format!("{path}: {requests} requests hold {found} and not {all} bytes; {idle} idle")
            })??;
            held_for_each = found - idle;
            drop(connections);
            broken += requests;
            until(&attacked, "bandana_requests_broken_off_total", |count| count == broken).await?;
            until(&attacked, held, |held| held <= idle).await?;
        }
    }
    let cancelled = "bandana_calls_total{service=\"bandana.v1.Device\",\
                     method=\"SubmitUpload\",code=\"CANCELLED\"}";
    until(&attacked, cancelled, |count| count == broken / 4).await?;
    let shown = metrics(&attacked).await?;
    let unknown = cancelled.replace("CANCELLED", "UNKNOWN");
    assert!(shown.count(&unknown).is_err(), "no such line");
    let log = attacked.end(5 * (CONNECTION_BYTES + 100 * STREAM_BYTES)).await?;
    assert!(!log.contains("ERROR"), "{log}");
    assert!(log.len() < 8 * 1024, "{} bytes for {broken} requests", log.len());
    Ok(())
}
