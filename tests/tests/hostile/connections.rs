//! Connections that never complete a handshake.

use std::time::Duration;

use anyhow::Context as _;
use bandana_shared::wire::v1::GetExperimentRequest;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_tests::attacked::Attacked;
use bandana_tests::attacks::take_no_answers;
use bandana_tests::authority::Authority;
use bandana_tests::raw_http2::{Kind, PREFACE, RawConnection, frame};
use bandana_tests::watched_server::WatchedServer;
use tokio::task::JoinSet;
use tonic::Code;

use super::{CONNECTION_BYTES, NEWCOMERS_BYTES, PROGRAM};

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// Interval between bytes of a slow sender.
const BETWEEN_BYTES: Duration = Duration::from_millis(250);

#[tokio::test]
async fn who_does_not_begin_in_time_is_closed() -> anyhow::Result<()> {
    let mut attacked = Attacked::begin(PROGRAM, &["--limit-handshake-seconds", "1"]).await?;
    let mut connections = JoinSet::new();
    for address in [&attacked.server.device, &attacked.server.operator] {
        for _ in 0..50 {
            connections.spawn(silence(address.clone()));
            connections.spawn(slow_preface(address.clone()));
        }
    }
    while let Some(closed) = connections.join_next().await {
        closed??;
    }
    attacked.answered_more(10).await?;

    // A client that continues byte by byte delays no one.
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut connection = RawConnection::open(&attacked.server.device).await?;
        for byte in &frame(Kind::Ping, 0, 0, &[0; 8])[..5] {
            connection.write(&[*byte]).await?;
        }
        slow.push(connection);
    }
    attacked.answered_more(50).await?;
    attacked.end(250 * CONNECTION_BYTES).await?;
    drop(slow);
    Ok(())
}

async fn silence(address: String) -> anyhow::Result<()> {
    RawConnection::silent(&address).await?.closed().await.map(drop)
}

/// Sends the preface one byte at a time, in six times the time limit.
async fn slow_preface(address: String) -> anyhow::Result<()> {
    let mut connection = RawConnection::silent(&address).await?;
    for byte in PREFACE {
        if connection.write(&[*byte]).await.is_err() {
            return Ok(());
        }
        tokio::time::sleep(BETWEEN_BYTES).await;
    }
    connection.closed().await.map(drop)
}

#[tokio::test]
async fn a_flood_of_connections_keeps_nobody_out_who_is_in() -> anyhow::Result<()> {
    let mut attacked = Attacked::begin(PROGRAM, &["--limit-connections", "40"]).await?;
    let mut floods = JoinSet::new();
    for _ in 0..20 {
        let address = attacked.server.device.clone();
        floods.spawn(async move {
            for _ in 0..200 {
                // Beyond the limit a connection is closed at once, which the client may notice here
                // or later.
                let Ok(mut connection) = RawConnection::open(&address).await else { continue };
                connection.write(&frame(Kind::Ping, 0, 0, &[0; 8])).await.ok();
            }
        });
    }
    attacked.answered_more(20).await?;
    floods.join_all().await;
    attacked.end(40 * CONNECTION_BYTES + NEWCOMERS_BYTES).await?;
    Ok(())
}

/// Ways to hold a place and do nothing with it.
#[derive(Clone, Copy, Debug)]
enum Holding {
    AnswersUntaken,
    Idle,
    Silent,
    PartOfARequest,
}

impl Holding {
    /// Takes a place, if there is one.
    async fn take(self, address: &str) -> anyhow::Result<Vec<RawConnection>> {
        Ok(match self {
            Self::AnswersUntaken => take_no_answers(address, "attacked", 1, 8).await?.connections,
            Self::Idle => vec![RawConnection::open(address).await?],
            Self::Silent => vec![RawConnection::silent(address).await?],
            Self::PartOfARequest => {
                let mut connection = RawConnection::silent(address).await?;
                connection
                    .write(b"POST /bandana.v1.Device/GetExperiment HTTP/1.1\r\nhost:")
                    .await?;
                vec![connection]
            }
        })
    }
}

#[tokio::test]
async fn whoever_does_nothing_with_a_place_keeps_nobody_out() -> anyhow::Result<()> {
    const PLACES: usize = 40;
    // Nobody is closed for its silence before the end of the test.
    let arguments = ["--limit-connections", "40", "--limit-handshake-seconds", "300"];
    let longest = ["--limit-idle-seconds", "86400", "--limit-answer-seconds", "3600"];
    let mut attacked = Attacked::begin(PROGRAM, &[arguments, longest].concat()).await?;
    let device = attacked.server.device.clone();
    for holding in
        [Holding::AnswersUntaken, Holding::Idle, Holding::Silent, Holding::PartOfARequest]
    {
        let mut held = Vec::new();
        while held.len() < PLACES - 1 {
            held.extend(holding.take(&device).await?);
        }
        // As many newcomers as there are places.
        let mut newcomers = Vec::new();
        let arriving = async {
            while newcomers.len() < PLACES - 1 {
                let Ok(mut device) = DeviceClient::connect(format!("http://{device}")).await else {
                    continue;
                };
                let question = GetExperimentRequest { experiment_id: "attacked".to_owned() };
                if device.get_experiment(question).await.is_ok() {
                    newcomers.push(device);
                }
            }
        };
        let arriving = tokio::time::timeout(PATIENCE, arriving).await;
        arriving.with_context(|| format!("{holding:?} keeps newcomers out"))?;
        attacked.answered_more(10).await?;
    }
    attacked.end(2 * 40 * CONNECTION_BYTES).await?;
    Ok(())
}

#[tokio::test]
async fn garbage_is_closed() -> anyhow::Result<()> {
    let mut attacked = Attacked::begin(PROGRAM, &[]).await?;
    let mut state = 1_u64;
    // SplitMix64 with a fixed seed, so that a failure is reproducible.
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut garbage = |bytes: usize| -> Vec<u8> {
        std::iter::repeat_with(|| random().to_le_bytes()).flatten().take(bytes).collect()
    };
    for address in [&attacked.server.device, &attacked.server.operator] {
        for round in 0..50 {
            let mut connection = RawConnection::silent(address).await?;
            let bytes = garbage(10_000);
            // Some connections continue after a valid preface, or after a frame header.
            let bytes = match round % 3 {
                0 => bytes,
                1 => [PREFACE, &frame(Kind::Settings, 0, 0, &[]), &bytes].concat(),
                _ => {
                    let settings = frame(Kind::Settings, 0, 0, &[]);
                    let headers = frame(Kind::Headers, 5, 1, &bytes);
                    [PREFACE, &settings, &headers].concat()
                }
            };
            // The connection may be closed before all is written.
            connection.write(&bytes).await.ok();
            connection.closed().await?;
        }
        let mut http1 = RawConnection::silent(address).await?;
        http1.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        http1.closed().await?;
    }
    attacked.answered_more(10).await?;
    attacked.end(100 * CONNECTION_BYTES).await?;
    Ok(())
}

#[tokio::test]
async fn silent_handshakes_keep_nobody_waiting() -> anyhow::Result<()> {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new()?);
    authority.sign(folder.path(), "server")?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (certificate, key) = (path("server.pem"), path("server.key"));
    // No handshake times out before the end of the test.
    let arguments = ["--limit-handshakes", "2", "--limit-handshake-seconds", "300"];
    let arguments = [&["--tls-certificate", &certificate, "--tls-key", &key], &arguments[..]];
    let arguments = arguments.concat();
    let server = WatchedServer::start(PROGRAM, &folder.path().join("data"), &arguments).await?;
    let hello = authority.client_hello()?;
    let mut silent = Vec::new();
    for place in 0..100 {
        let mut connection = RawConnection::silent(&server.device).await?;
        // Some send nothing, some half a ClientHello, and some a whole one and nothing more.
        let said = match place % 3 {
            0 => &[][..],
            1 => &hello[..hello.len() / 2],
            _ => &hello,
        };
        connection.write(said).await?;
        silent.push(connection);
    }
    let question = GetExperimentRequest { experiment_id: "x".to_owned() };
    for _ in 0..10 {
        let connected = authority.connect(&server.device);
        let mut honest = DeviceClient::new(tokio::time::timeout(PATIENCE, connected).await??);
        let answer = honest.get_experiment(question.clone()).await;
        assert_eq!(answer.unwrap_err().code(), Code::NotFound);
    }
    server.stop().await?;
    drop(silent);
    Ok(())
}

#[tokio::test]
async fn clear_and_tls_do_not_mix() -> anyhow::Result<()> {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new()?);
    authority.sign(folder.path(), "server")?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (certificate, key) = (path("server.pem"), path("server.key"));
    let arguments = ["--tls-certificate", &certificate, "--tls-key", &key];
    let server = WatchedServer::start(PROGRAM, &folder.path().join("data"), &arguments).await?;
    let mut honest = DeviceClient::new(authority.connect(&server.device).await?);
    let question = GetExperimentRequest { experiment_id: "x".to_owned() };
    for _ in 0..20 {
        let clear = RawConnection::open(&server.device).await?;
        clear.closed().await?;
        // The operators' port has no TLS.
        assert!(authority.connect(&server.operator).await.is_err());
        let answer = honest.get_experiment(question.clone()).await;
        assert_eq!(answer.unwrap_err().code(), Code::NotFound);
    }
    drop(honest);
    server.stop().await?;
    Ok(())
}
