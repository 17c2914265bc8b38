//! Requests over HTTP/1.1 in pieces of one byte, without an end.

use std::path::Path;

use bandana_examples::relay_process::gateway_key;
use bandana_tests::attacked::Attacked;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::PROGRAM;
use super::answers::until;

const CONNECTIONS: usize = 40;

/// The time to send a request: on a busy host the server reads for long.
const REQUEST_TIME: [&str; 2] = ["--limit-request-seconds", "600"];

/// Pieces of each request: nearly as many as a sealed request may have bytes.
const PIECES: usize = 32_000;

/// Bytes for each connection: thrice those of its request, and a buffer of 2^18 that has all of its 192,000
/// bytes as they came, if a busy server reads late. It is far less than the megabyte and more that pieces
/// would take which are kept as they come.
const BYTES_EACH: u64 = 400_000;

#[tokio::test]
async fn pieces_of_one_byte_take_no_more_than_their_bytes() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let key = gateway_key(Path::new(PROGRAM), folder.path()).await?.display().to_string();
    let arguments = [&["--gateway-key-file", &key][..], &REQUEST_TIME].concat();
    let mut attacked = Attacked::begin(PROGRAM, &arguments).await?;
    let address = &attacked.server.device;
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(address).await?;
        let head = format!("POST /ohttp HTTP/1.1\r\nhost: {address}\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(b"content-type: message/ohttp-req\r\n").await?;
        stream.write_all(b"transfer-encoding: chunked\r\n\r\n").await?;
        stream.write_all(&b"1\r\na\r\n".repeat(PIECES)).await?;
        open.push(stream);
    }
    // Every piece has been read: each byte is charged three times.
    let all = (3 * CONNECTIONS * PIECES) as u64;
    until(&attacked, "bandana_memory_held_bytes", |held| held > all).await?;
    attacked.answered_more(20).await?;
    attacked.end(CONNECTIONS as u64 * BYTES_EACH).await?;
    drop(open);
    Ok(())
}
