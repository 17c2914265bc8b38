//! Floods of frames.

use bandana_tests::attacked::Attacked;
use bandana_tests::raw_http2::{
    END_HEADERS, END_STREAM, Kind, RawConnection, claiming, frame, headers,
};
use tokio::task::JoinSet;

use super::{CALL_BYTES, CONNECTION_BYTES, PROGRAM, STREAM_BYTES, STREAMS};

const CONNECTIONS: u64 = 4;

/// Bytes of flood on each connection, unless it is closed before.
const FLOOD_BYTES: usize = 4 * 1024 * 1024;

const SUBMIT: &str = "/bandana.v1.Device/SubmitUpload";

/// Frames for streams 1, 3, 5 and so on.
fn for_streams(count: u32, of: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(|stream| of(2 * stream + 1)).collect()
}

/// Opens a stream and resets it.
fn opened_and_reset(stream: u32) -> Vec<u8> {
    let block = headers(SUBMIT, &[]);
    let cancel = 8_u32.to_be_bytes();
    let opened = frame(Kind::Headers, END_HEADERS, stream, &block);
    [opened, frame(Kind::ResetStream, 0, stream, &cancel)].concat()
}

/// Floods with `prefix`, and then repeatedly with `bytes`; each connection has `streams` concurrent
/// streams.
async fn flood(prefix: &[u8], bytes: &[u8], streams: u64) -> anyhow::Result<()> {
    let mut attacked = Attacked::begin(PROGRAM, &[]).await?;
    let mut floods = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut connection = RawConnection::open(&attacked.server.device).await?;
        let (prefix, bytes) = (prefix.to_vec(), bytes.to_vec());
        floods.spawn(async move {
            connection.write(&prefix).await.ok();
            connection.flood(&bytes, FLOOD_BYTES).await
        });
    }
    attacked.answered_more(20).await?;
    floods.join_all().await;
    // The overhead of small frames is per connection, for any streams.
    let of_each = CONNECTION_BYTES + STREAM_BYTES + streams * CALL_BYTES;
    attacked.end(CONNECTIONS * of_each).await?;
    Ok(())
}

#[tokio::test]
async fn rapid_resets() -> anyhow::Result<()> {
    // More streams than a connection may have: it may be closed long before.
    let resets = for_streams(50_000, opened_and_reset);
    flood(&resets, &frame(Kind::Ping, 0, 0, &[0; 8]), STREAMS).await
}

#[tokio::test]
async fn more_streams_than_there_may_be() -> anyhow::Result<()> {
    let block = headers(SUBMIT, &[]);
    let open = |stream| frame(Kind::Headers, END_HEADERS, stream, &block);
    flood(&for_streams(20_000, open), &frame(Kind::Ping, 0, 0, &[0; 8]), STREAMS).await
}

#[tokio::test]
async fn pings_settings_windows_and_priorities() -> anyhow::Result<()> {
    for frame in [
        frame(Kind::Ping, 0, 0, &[0; 8]),
        frame(Kind::Settings, 0, 0, &[]),
        frame(Kind::WindowUpdate, 0, 0, &[0, 0, 0, 1]),
        frame(Kind::Priority, 0, 1, &[0, 0, 0, 0, 9]),
    ] {
        flood(&[], &frame.repeat(100), 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn data_in_tiny_frames() -> anyhow::Result<()> {
    let block = headers(SUBMIT, &[]);
    let opened = frame(Kind::Headers, END_HEADERS, 1, &block);
    let message = frame(Kind::Data, 0, 1, &claiming(16_000, 0, &[]));
    for data in [&[][..], &[0]] {
        let tiny = frame(Kind::Data, 0, 1, data);
        flood(&[opened.clone(), message.clone()].concat(), &tiny.repeat(100), 1).await?;
    }
    Ok(())
}

#[tokio::test]
async fn headers_without_an_end() -> anyhow::Result<()> {
    let block = headers(SUBMIT, &[("x", "y")]);
    let opened = frame(Kind::Headers, END_STREAM, 1, &block);
    let header = [&[0, 1, b'x', 100][..], &[b'y'; 100]].concat();
    flood(&opened, &frame(Kind::Continuation, 0, 1, &header.repeat(20)), 1).await
}
