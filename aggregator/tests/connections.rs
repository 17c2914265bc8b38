//! What happens to connections on which nothing is said.

use std::time::Duration;

use bandana_aggregator::network::{ConnectionLimits, Listener};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_stream::StreamExt as _;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 1,
    streams_per_connection: 1,
    header_bytes: 1024,
    handshakes: 1,
    handshake_time: Duration::from_secs(10),
    idle_time: Duration::from_mins(2),
};

// Time stands still while there is something to do, and otherwise goes on to the next
// alarm.
#[tokio::test(start_paused = true)]
async fn silence_ends_a_connection_and_words_do_not() -> anyhow::Result<()> {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), None, LIMITS).await?;
    let address = listener.address()?;
    let mut incoming = listener.incoming();
    let mut client = TcpStream::connect(address).await?;
    let Some(Ok(mut connection)) = incoming.next().await else { anyhow::bail!("no connection") };
    let start = tokio::time::Instant::now();
    for _ in 0..3 {
        tokio::time::sleep(LIMITS.idle_time / 2).await;
        client.write_all(b"x").await?;
        assert_eq!(connection.read_u8().await?, b'x');
    }
    let error = connection.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(start.elapsed() >= LIMITS.idle_time * 5 / 2);

    // Its place is free again.
    drop((connection, client));
    let _client = TcpStream::connect(address).await?;
    assert!(matches!(incoming.next().await, Some(Ok(_))));
    Ok(())
}
