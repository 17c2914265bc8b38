//! Raw HTTP/2 frames, for malformed traffic.

use std::io;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The client's connection preface.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// Types of frames (RFC 9113, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the RFC")]
pub enum Kind {
    Data = 0,
    Headers = 1,
    Priority = 2,
    ResetStream = 3,
    Settings = 4,
    Ping = 6,
    WindowUpdate = 8,
    Continuation = 9,
}

/// The flag of a stream's last frame.
pub const END_STREAM: u8 = 1;

/// The flag of a header block's last frame.
pub const END_HEADERS: u8 = 4;

/// A frame.
pub fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind as u8, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The header block of a call, for [`Kind::Headers`], without indexing.
pub fn headers(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    // POST and http from HPACK's static table, then literal names.
    let mut block = vec![0x83, 0x86];
    let pairs = [
        (":path", path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    for (name, value) in pairs.iter().chain(more) {
        block.push(0);
        for text in [name, value] {
            // Lengths above 126 are encoded differently; they don't occur here.
            block.push(u8::try_from(text.len()).unwrap_or(126).min(126));
            block.extend(text.bytes().take(126));
        }
    }
    block
}

/// A gRPC message with this claimed length.
pub fn claiming(length: u32, compressed: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![compressed];
    message.extend(length.to_be_bytes());
    message.extend(bytes);
    message
}

/// A connection for arbitrary bytes.
#[derive(Debug)]
pub struct RawConnection(TcpStream);

impl RawConnection {
    /// Connects, and sends nothing.
    ///
    /// # Errors
    /// When the address refuses.
    pub async fn silent(address: &str) -> anyhow::Result<Self> {
        Ok(Self(TcpStream::connect(address).await?))
    }

    /// Connects, and sends the preface and settings.
    ///
    /// # Errors
    /// When the address refuses.
    pub async fn open(address: &str) -> anyhow::Result<Self> {
        let mut connection = Self::silent(address).await?;
        connection.write(PREFACE).await?;
        connection.write(&frame(Kind::Settings, 0, 0, &[])).await?;
        Ok(connection)
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// When the peer has closed the connection.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// Reads one frame, and returns its type and flags.
    ///
    /// # Errors
    /// When the peer has closed the connection, or sends nothing.
    pub async fn next_frame(&mut self) -> anyhow::Result<(u8, u8)> {
        let reading = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length)?];
            self.0.read_exact(&mut payload).await?;
            anyhow::Ok((head[3], head[4]))
        };
        tokio::time::timeout(PATIENCE, reading).await?
    }

    /// Waits until the peer closes the connection, and returns the received bytes.
    ///
    /// # Errors
    /// On a timeout.
    pub async fn closed(mut self) -> anyhow::Result<Vec<u8>> {
        let mut said = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut said)).await;
        // With or without a reset, the connection has ended.
        drop(read.context("the connection stays open")?);
        Ok(said)
    }

    /// Writes these bytes repeatedly while reading, until `total` bytes are written or the peer
    /// closes the connection. Returns the number of bytes written.
    pub async fn flood(self, bytes: &[u8], total: usize) -> usize {
        let (mut reader, mut writer) = self.0.into_split();
        let reading = tokio::spawn(async move {
            let mut buffer = vec![0; 16 * 1024];
            while reader.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        });
        let mut written = 0;
        while written < total {
            if writer.write_all(bytes).await.is_err() {
                break;
            }
            written += bytes.len();
        }
        reading.abort();
        written
    }
}
