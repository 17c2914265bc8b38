//! A simulated network between clients and a server, with faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The condition of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// No faults.
    Calm,
    /// Each piece is delayed by up to this many milliseconds, so connections overtake each other.
    Slow(u64),
    /// One in this many pieces is truncated, and its connection ends.
    Lossy(u32),
    /// Requests arrive, but responses are lost. Connections end with this condition.
    Deaf,
    /// Connections that are open go silent for good, and nobody closes them. New ones pass.
    Silent,
    /// All connections are refused.
    Cut,
}

/// A proxy to one address of a server, whose target may change with each start.
#[derive(Debug)]
pub(super) struct Network {
    /// The address for clients.
    pub(super) address: String,
    server: watch::Sender<Option<String>>,
    weather: watch::Sender<Weather>,
}

impl Network {
    /// Opens a proxy without a target. It ends with the runtime.
    ///
    /// # Errors
    /// When no port is available.
    pub(super) async fn open(seed: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (server, leads_to) = watch::channel(None::<String>);
        let (weather, is_now) = watch::channel(Weather::Calm);
        let connections = Arc::new(AtomicU64::new(0));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to = leads_to.borrow().clone();
                let Some(to) = to.filter(|_| *is_now.borrow() != Weather::Cut) else { continue };
                let number = connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(pass(client, to, is_now.clone(), seed, number));
            }
        });
        Ok(Self { address, server, weather })
    }

    /// Sets the target of new connections, or none.
    pub(super) fn lead_to(&self, server: Option<String>) {
        self.server.send_replace(server);
    }

    /// Changes the condition of the network.
    pub(super) fn turn(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

async fn pass(
    client: TcpStream,
    to: String,
    weather: watch::Receiver<Weather>,
    seed: u64,
    number: u64,
) -> anyhow::Result<()> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let is_new = *weather.borrow() == Weather::Silent;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(2 * number);
    let saying = carry(from_client, to_server, weather.clone(), random.clone(), (false, is_new));
    random.set_stream(2 * number + 1);
    let hearing = carry(from_server, to_client, weather, random, (true, is_new));
    // A broken connection is closed at both ends.
    tokio::try_join!(saying, hearing).map(drop)
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<Weather>,
    mut random: ChaCha8Rng,
    (is_heard, is_new): (bool, bool),
) -> anyhow::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut cutting = weather.clone();
    loop {
        let length = tokio::select! {
            length = from.read(&mut buffer) => length?,
            _ = cutting.wait_for(|now| *now == Weather::Cut) => bail!("cut"),
        };
        if length == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        let piece = &buffer[..length];
        let now = *weather.borrow_and_update();
        match now {
            Weather::Cut => bail!("cut"),
            Weather::Silent if !is_new => std::future::pending().await,
            Weather::Deaf if is_heard => {
                weather.wait_for(|now| *now != Weather::Deaf).await?;
                bail!("what was said meanwhile is lost");
            }
            Weather::Lossy(one_of) if random.random_range(0..one_of) == 0 => {
                to.write_all(&piece[..random.random_range(0..length)]).await?;
                bail!("broken off");
            }
            Weather::Slow(milliseconds) => {
                let late = Duration::from_millis(random.random_range(0..=milliseconds));
                tokio::time::sleep(late).await;
                to.write_all(piece).await?;
            }
            _ => to.write_all(piece).await?,
        }
    }
}
