//! A proxy between app and server, which counts connections and bytes, and can fail.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::thread;

use anyhow::Context as _;

/// The behaviour of a proxy towards new connections.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Answers {
    Open,
    Closed,
    SilentOnce,
}

/// A network between app and server.
pub(crate) struct Network {
    pub(crate) url: String,
    counts: Arc<Counts>,
    mode: Arc<AtomicU8>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU32,
    /// Directions of connections that are open.
    open: AtomicU32,
    up: AtomicU64,
    down: AtomicU64,
}

/// What has passed a network: bytes above TCP, those of TLS included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) connections: u32,
    pub(crate) up: u64,
    pub(crate) down: u64,
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            connections: self.connections - before.connections,
            up: self.up - before.up,
            down: self.down - before.down,
        }
    }
}

impl Network {
    pub(crate) fn to(server: &str) -> anyhow::Result<Self> {
        let (scheme, server) = server.split_once("://").context("no scheme")?;
        let server: SocketAddr = server.parse()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("{scheme}://{}", listener.local_addr()?);
        let (counts, mode) = (Arc::<Counts>::default(), Arc::new(AtomicU8::new(0)));
        let (counted, followed) = (Arc::clone(&counts), Arc::clone(&mode));
        thread::spawn(move || {
            let mut silent = Vec::new();
            for device in listener.incoming().flatten() {
                counted.connections.fetch_add(1, Ordering::SeqCst);
                match followed.load(Ordering::SeqCst) {
                    mode if mode == Answers::Closed as u8 => drop(device),
                    mode if mode == Answers::SilentOnce as u8 => {
                        followed.store(Answers::Open as u8, Ordering::SeqCst);
                        silent.push(device);
                    }
                    _ => drop(forward(&device, server, &counted)),
                }
            }
        });
        Ok(Self { url, counts, mode })
    }

    pub(crate) fn change(&self, mode: Answers) {
        self.mode.store(mode as u8, Ordering::SeqCst);
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            connections: self.counts.connections.load(Ordering::SeqCst),
            up: self.counts.up.load(Ordering::SeqCst),
            down: self.counts.down.load(Ordering::SeqCst),
        }
    }

    pub(crate) fn connections(&self) -> u32 {
        self.traffic().connections
    }

    /// Whether every connection so far has ended.
    pub(crate) fn is_quiet(&self) -> bool {
        self.counts.open.load(Ordering::SeqCst) == 0
    }
}

/// Copies bytes both ways.
fn forward(device: &TcpStream, server: SocketAddr, counts: &Arc<Counts>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [device, &server] {
        stream.set_nodelay(true)?;
    }
    let ways = [
        (device.try_clone()?, server.try_clone()?, true),
        (server.try_clone()?, device.try_clone()?, false),
    ];
    counts.open.fetch_add(2, Ordering::SeqCst);
    for (from, to, is_up) in ways {
        let counts = Arc::clone(counts);
        thread::spawn(move || {
            drop(copy(&from, &to, if is_up { &counts.up } else { &counts.down }));
            drop(to.shutdown(Shutdown::Write));
            counts.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
    Ok(())
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, bytes: &AtomicU64) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        bytes.fetch_add(read as u64, Ordering::SeqCst);
        to.write_all(&buffer[..read])?;
    }
}
