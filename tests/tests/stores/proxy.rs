//! A proxy to a database, controlled by a test.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use bandana_store::PostgresSettings;
use bandana_tests::postgres::Postgres;

use super::places::{Place, settings};

/// A rule called for every message, which may block. `false`: the message is dropped, and its
/// connection ends.
pub(crate) type Rule = dyn Fn() -> bool + Send + Sync;

/// Settings that lead to the database at `place` through a proxy with this rule, in both
/// directions.
pub(crate) fn through(
    server: &Postgres,
    place: &Place,
    rule: Arc<Rule>,
) -> anyhow::Result<PostgresSettings> {
    let Place::Postgres(url) = place else { anyhow::bail!("not a database") };
    let name = url.split(['/', '?']).nth(3).context("no name")?;
    let address = start(server.socket(), rule)?;
    settings(&format!("postgres://bandana@{address}/{name}"))
}

fn start(socket: PathBuf, rule: Arc<Rule>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    // The thread ends with the process.
    thread::spawn(move || {
        for client in listener.incoming() {
            pass(client?, UnixStream::connect(&socket)?, &rule)?;
        }
        std::io::Result::Ok(())
    });
    Ok(address)
}

fn pass(client: TcpStream, server: UnixStream, rule: &Arc<Rule>) -> std::io::Result<()> {
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (mut from_server, mut to_client) = (server, client);
    let of_this = Arc::clone(rule);
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_client.read(&mut buffer) {
            if !of_this() || to_server.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        to_server.shutdown(Shutdown::Both).ok();
        from_client.shutdown(Shutdown::Both).ok();
    });
    let of_this = Arc::clone(rule);
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_server.read(&mut buffer) {
            if !of_this() || to_client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        from_server.shutdown(Shutdown::Both).ok();
        to_client.shutdown(Shutdown::Both).ok();
    });
    Ok(())
}
