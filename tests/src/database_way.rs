//! A proxy to a database that can pause a connection, as a stopped process would.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// The point at which a connection is paused after certain bytes.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// Before the commit.
    BeforeCommit,
    /// Before the end of the message with these bytes: the database executes the message, and
    /// waits.
    BeforeEnd,
}

/// The commit message.
const COMMIT: &[u8] = b"COMMIT\0";

/// Length of the message that ends a series, in bytes.
const SYNC: usize = 5;

/// A TCP proxy to a database.
#[derive(Debug)]
pub struct DatabaseWay {
    address: String,
    hold: Arc<Hold>,
}

#[derive(Debug)]
struct Hold {
    next: Mutex<Option<(Vec<u8>, Stop)>>,
    is_held: watch::Sender<bool>,
}

impl DatabaseWay {
    /// Opens a proxy to the server with this socket. It ends with the runtime.
    ///
    /// # Errors
    /// When no port is available.
    pub async fn open(socket: PathBuf) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let hold = Arc::new(Hold { next: Mutex::default(), is_held: watch::Sender::new(false) });
        let holding = Arc::clone(&hold);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = UnixStream::connect(&socket).await else { continue };
                tokio::spawn(pass(client, server, Arc::clone(&holding)));
            }
        });
        Ok(Self { address, hold })
    }

    /// The URL of a database through this proxy.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://bandana@{}/{database}", self.address)
    }

    /// Pauses the next connection that sends these bytes.
    pub fn hold(&self, said: impl Into<Vec<u8>>, stop: Stop) {
        *self.hold.next() = Some((said.into(), stop));
    }

    /// Waits until a connection is paused.
    ///
    /// # Errors
    /// Never while the proxy exists.
    pub async fn until_held(&self) -> anyhow::Result<()> {
        self.hold.is_held.subscribe().wait_for(|is_held| *is_held).await?;
        Ok(())
    }

    /// Resumes the connection.
    pub fn release(&self) {
        *self.hold.next() = None;
        self.hold.is_held.send_replace(false);
    }
}

impl Hold {
    fn next(&self) -> MutexGuard<'_, Option<(Vec<u8>, Stop)>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next bytes to forward before the pause, if a pause applies to them.
    fn applies(&self, said: &[u8], is_meant: &mut bool) -> Option<usize> {
        let mut next = self.next();
        let has = |bytes: &[u8]| said.windows(bytes.len()).any(|part| part == bytes);
        let (bytes, stop) = next.as_ref()?;
        *is_meant = *is_meant || has(bytes);
        let passed = match stop {
            _ if !*is_meant => None,
            Stop::BeforeCommit => has(COMMIT).then_some(0),
            Stop::BeforeEnd => Some(said.len().saturating_sub(SYNC)),
        }?;
        (*next, *is_meant) = (None, false);
        Some(passed)
    }
}

async fn pass(client: TcpStream, server: UnixStream, hold: Arc<Hold>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // Whether this connection is the paused one.
    let (here, is_here) = watch::channel(false);
    let holding = Arc::clone(&hold);
    let saying = async move {
        let (mut buffer, mut is_meant) = (vec![0; 65_536], false);
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            let mut said = &buffer[..length];
            if let Some(passed) = holding.applies(said, &mut is_meant) {
                to_server.write_all(&said[..passed]).await?;
                said = &said[passed..];
                here.send_replace(true);
                holding.is_held.send_replace(true);
                holding.is_held.subscribe().wait_for(|is_held| !is_held).await.ok();
                here.send_replace(false);
            }
            to_server.write_all(said).await?;
        }
        to_server.shutdown().await
    };
    let hearing = async move {
        let (mut buffer, mut is_here) = (vec![0; 65_536], is_here);
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            // A paused connection does not receive either.
            is_here.wait_for(|is_here| !is_here).await.ok();
            to_client.write_all(&buffer[..length]).await?;
        }
        to_client.shutdown().await
    };
    // A broken connection is closed at both ends.
    tokio::try_join!(saying, hearing).ok();
}
