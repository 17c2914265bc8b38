//! Silent connections.

use std::time::Duration;

use bandana_edge::transport::{ConnectionLimits, Incoming, Listener};
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
    answer_time: Duration::from_mins(1),
};

// A paused clock advances to the next timer whenever there is nothing to do, also while what was
// sent is on its way. So it is paused only when a connection is there.
#[tokio::test]
async fn silence_ends_a_connection_and_words_do_not() -> anyhow::Result<()> {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), None, LIMITS)?;
    let address = listener.address()?;
    let Incoming { http1: mut incoming, http2: _kept } = listener.incoming();
    let mut client = TcpStream::connect(address).await?;
    // As long as the preface of HTTP/2.
    client.write_all(&[b'x'; 24]).await?;
    let Some(Ok(mut connection)) = incoming.next().await else { anyhow::bail!("no connection") };
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    connection.read_exact(&mut [0; 24]).await?;
    for _ in 0..3 {
        tokio::time::sleep(LIMITS.idle_time / 2).await;
        client.write_all(b"x").await?;
        assert_eq!(connection.read_u8().await?, b'x');
    }
    let error = connection.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(start.elapsed() >= LIMITS.idle_time * 5 / 2);

    // The connection's slot is free again.
    drop((connection, client));
    tokio::time::resume();
    let mut client = TcpStream::connect(address).await?;
    client.write_all(b"x").await?;
    let Some(Ok(mut connection)) = incoming.next().await else { anyhow::bail!("no connection") };
    // Partial data does not extend the time limit for the preface.
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let read = async {
        loop {
            connection.read_u8().await?;
        }
    };
    let speak = async {
        loop {
            tokio::time::sleep(LIMITS.handshake_time / 10).await;
            if client.write_all(b"x").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let outcome: std::io::Result<()> = tokio::select! { read = read => read, () = speak => Ok(()) };
    assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    assert!((LIMITS.handshake_time..LIMITS.handshake_time * 2).contains(&start.elapsed()));
    Ok(())
}

#[tokio::test]
async fn who_reads_nothing_is_silent() -> anyhow::Result<()> {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), None, LIMITS)?;
    let address = listener.address()?;
    let Incoming { http1: mut incoming, http2: _kept } = listener.incoming();
    let mut client = TcpStream::connect(address).await?;
    client.write_all(&[b'x'; 24]).await?;
    let Some(Ok(mut connection)) = incoming.next().await else { anyhow::bail!("no connection") };
    tokio::time::pause();
    connection.read_exact(&mut [0; 24]).await?;
    let start = tokio::time::Instant::now();
    // Like a protocol that must write before it can read on.
    let error = loop {
        if let Err(error) = connection.write_all(&[b'x'; 8192]).await {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!((LIMITS.idle_time..LIMITS.idle_time * 2).contains(&start.elapsed()));
    // Closing the connection does not wait for it either.
    let start = tokio::time::Instant::now();
    connection.shutdown().await?;
    // Timers end with a whole millisecond.
    assert!(start.elapsed() <= Duration::from_millis(1002));
    Ok(())
}
