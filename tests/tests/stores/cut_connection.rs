//! Connections to the database that break at every message, in either direction.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, ensure};
use bandana_aggregator::ingest::Verdict::{Accepted, Duplicate};
use bandana_aggregator::store::{PostgresStore, Store as _};
use bandana_shared::identity::Day;
use bandana_tests::postgres::{Postgres, query};

use super::places::{Place, arrival, commit, create, experiment, reports, settings};
use super::replicas::Case;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_connection_cut_at_any_message_loses_and_doubles_nothing", cut_anywhere),
    ("the_disk_is_waited_for_whatever_the_role_says", durable),
];

/// A way to the database that breaks once, when so many messages have passed.
struct Proxy {
    address: String,
    /// Messages that pass before it breaks; 0 after that.
    left: Arc<AtomicUsize>,
}

const UNBROKEN: usize = usize::MAX / 2;

const FIRST_DAY: u32 = 100;

/// Messages from one cut to the next, where there are many.
const STRIDE: usize = 7;

impl Proxy {
    fn start(socket: PathBuf) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let left = Arc::new(AtomicUsize::new(UNBROKEN));
        let counted = Arc::clone(&left);
        // It ends with the process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client?, UnixStream::connect(&socket)?);
                pass(client, server, &counted)?;
            }
            std::io::Result::Ok(())
        });
        Ok(Self { address, left })
    }
}

/// Counts a message. `false`: it is not passed on, and nothing is any more.
fn passes(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
        Some(if left == 0 { UNBROKEN } else { left - 1 })
    }) != Ok(0)
}

fn pass(client: TcpStream, server: UnixStream, left: &Arc<AtomicUsize>) -> std::io::Result<()> {
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (mut from_server, mut to_client) = (server, client);
    let counted = Arc::clone(left);
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_client.read(&mut buffer) {
            if !passes(&counted) || to_server.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        to_server.shutdown(std::net::Shutdown::Both).ok();
        from_client.shutdown(std::net::Shutdown::Both).ok();
    });
    let counted = Arc::clone(left);
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_server.read(&mut buffer) {
            if !passes(&counted) || to_client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        from_server.shutdown(std::net::Shutdown::Both).ok();
        to_client.shutdown(std::net::Shutdown::Both).ok();
    });
    Ok(())
}

fn cut_anywhere(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let name = url.split(['/', '?']).nth(3).context("no name")?;
    let proxy = Proxy::start(server.socket())?;
    let through = settings(&format!("postgres://bandana@{}/{name}", proxy.address))?;
    let mut direct = place.open()?;
    let only = experiment(&create(&mut *direct, "cut")?)?;
    let mut expected = 0;
    let mut submit = |messages: usize, id: u128, today: u32| -> anyhow::Result<_> {
        let mut store = PostgresStore::open(&through)?;
        if today == FIRST_DAY {
            // Everything is in place, and one round trip is left to do.
            store.commit(&[arrival(&only, id | 8, today, 1)?], Day::new(today))?;
            expected += 1;
        }
        let group = [arrival(&only, id | 1, today, 1)?, arrival(&only, id | 2, today - 1, 1)?];
        proxy.left.store(messages, Ordering::SeqCst);
        let verdicts = store.commit(&group, Day::new(today))?.verdicts;
        let was_cut = proxy.left.swap(UNBROKEN, Ordering::SeqCst) > messages;
        // All or nothing was counted the first time.
        ensure!(verdicts == [Accepted; 2] || verdicts == [Duplicate; 2], "{verdicts:?}");
        expected += 2;
        let counted = reports(&mut *direct)?;
        ensure!(counted == expected, "cut after {messages} messages: {counted}, not {expected}");
        Ok((was_cut, verdicts[0]))
    };
    let mut told = Vec::new();
    for messages in 0..4 {
        told.push(submit(messages, (messages as u128) << 8, FIRST_DAY)?);
    }
    // The statement is lost, its answer is, nothing is.
    let expected = [(true, Accepted), (true, Duplicate), (false, Accepted), (false, Accepted)];
    ensure!(told == expected, "{told:?}");
    // And while the window is moved, and partitions are dropped and made.
    let mut cuts = 0;
    for number in 0..12 {
        let today = FIRST_DAY + 1 + u32::try_from(number)?;
        cuts += usize::from(submit(number * STRIDE, (number as u128) << 32, today)?.0);
    }
    ensure!(cuts > 4, "{cuts} cuts");
    Ok(())
}

fn durable(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let name = url.split(['/', '?']).nth(3).context("no name")?;
    query(url, &format!("ALTER DATABASE {name} SET synchronous_commit = off"))?;
    query(url, &format!("ALTER DATABASE {name} SET default_transaction_isolation = serializable"))?;
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "durable")?)?;
    commit(&mut *store, &[arrival(&only, 1, 100, 1)?], 100)?;
    // What the store's own connection says: it writes it where others can read it.
    query(
        url,
        "CREATE TABLE said (what text);
         CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO said VALUES (current_setting('synchronous_commit')
                 || ' ' || current_setting('transaction_isolation'));
             RETURN NULL;
         END $$;
         CREATE TRIGGER say AFTER UPDATE ON tally FOR EACH STATEMENT EXECUTE FUNCTION say()",
    )?;
    commit(&mut *store, &[arrival(&only, 2, 100, 1)?], 100)?;
    let said = query(url, "SELECT DISTINCT what FROM said")?;
    ensure!(said == [["on read committed"]], "{said:?}");
    Ok(())
}
