//! Trouble for servers, their database and the network, on a schedule from a seed.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bandana_examples::environment::CleanEnvironment as _;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::Instant;

use super::figures::{Figures, Group};
use super::network::Weather;
use super::server::Server;
use crate::authority::Authority;
use crate::disk::Disk;
use crate::postgres::{Postgres, query};
use crate::process_usage::memory_high_water;

/// Interval of checks that all servers are still running.
const LOOK: Duration = Duration::from_millis(100);

/// Time limit for a full disk to end a server.
const FULL: Duration = Duration::from_secs(20);

/// Initial room for ids, in rounds with little.
pub(super) const FEW_IDS: u64 = 4000;

/// The name of the maximum memory of a server in the figures.
pub(super) const MEMORY: &str = "memory of a server, MiB";

/// Final room for ids.
pub(super) const IDS_MAX: u64 = 1_000_000;

/// The source of trouble.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// The generator of all choices.
    pub(super) random: ChaCha8Rng,
    /// The counts of trouble.
    pub(super) figures: Arc<Figures>,
    /// Whether the trouble is over.
    pub(super) is_over: watch::Receiver<bool>,
}

impl Trouble {
    fn count(&self, name: &str) {
        self.figures.add(Group::Trouble, name, 1);
    }

    /// A random number of milliseconds in this range.
    pub(super) fn time(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.random_range(from..=to))
    }

    /// Waits for this time, or until the trouble is over; whether it is over.
    pub(super) async fn wait(&mut self, time: Duration) -> bool {
        let waiting = self.is_over.wait_for(|is_over| *is_over);
        tokio::time::timeout(time, waiting).await.is_ok()
    }
}

/// A fault of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Kill,
    KillAll,
    Freeze,
    Stop,
    Reload,
    FullDisk,
    MoreIds,
}

/// The servers and their environment.
#[derive(Debug)]
pub(super) struct Site {
    /// All servers.
    pub(super) servers: Vec<Server>,
    /// The disk of the store, if the store has a separate one.
    pub(super) disk: Option<Disk>,
    /// The certificate authority.
    pub(super) authority: Authority,
    /// The folder of certificates.
    pub(super) certificates: PathBuf,
    /// The room for ids, if it is little.
    pub(super) ids_max: Option<u64>,
}

impl Site {
    /// Causes trouble until it is over; then all servers run.
    ///
    /// # Errors
    /// When a server does not start again.
    pub(super) async fn strike(mut self, mut trouble: Trouble) -> anyhow::Result<Self> {
        let mut blows = vec![Blow::Kill, Blow::Kill, Blow::Freeze, Blow::Stop, Blow::Reload];
        if self.servers.len() > 1 {
            blows.push(Blow::KillAll);
        }
        if self.disk.is_some() {
            blows.push(Blow::FullDisk);
        }
        if self.ids_max.is_some() {
            blows.extend([Blow::MoreIds, Blow::MoreIds]);
        }
        loop {
            let next = Instant::now() + trouble.time(200, 3000);
            while Instant::now() < next {
                if trouble.wait(LOOK).await {
                    self.look(&trouble).await?;
                    return Ok(self);
                }
                self.look(&trouble).await?;
            }
            let blow = *blows.choose(&mut trouble.random).context("no trouble")?;
            let place = trouble.random.random_range(0..self.servers.len());
            self.deal(&mut trouble, blow, place).await?;
        }
    }

    /// Restarts servers that have ended unexpectedly.
    async fn look(&mut self, trouble: &Trouble) -> anyhow::Result<()> {
        for server in &mut self.servers {
            if let Some(status) = server.has_ended()? {
                let (name, tail) = (&server.name, server.tail());
                trouble.figures.wrong(format!("{name} ended by itself with {status}: {tail}"));
                server.start(&[]).await?;
            }
        }
        Ok(())
    }

    async fn deal(
        &mut self,
        trouble: &mut Trouble,
        blow: Blow,
        place: usize,
    ) -> anyhow::Result<()> {
        let server = &mut self.servers[place];
        match blow {
            Blow::Kill => {
                note_memory(server, &trouble.figures);
                server.kill().await?;
                trouble.count("servers killed");
                let down = trouble.time(0, 500);
                trouble.wait(down).await;
                start_again(server, trouble).await
            }
            Blow::KillAll => {
                for server in &mut self.servers {
                    note_memory(server, &trouble.figures);
                    server.kill().await?;
                    trouble.count("servers killed");
                }
                for server in &mut self.servers {
                    start_again(server, trouble).await?;
                }
                Ok(())
            }
            Blow::Freeze => {
                server.signal(Signal::STOP)?;
                trouble.count("servers frozen");
                let time = trouble.time(1000, 10_000);
                trouble.wait(time).await;
                server.signal(Signal::CONT)
            }
            Blow::Stop => {
                note_memory(server, &trouble.figures);
                server.stop().await?;
                trouble.count("servers ended in order");
                start_again(server, trouble).await
            }
            Blow::Reload => {
                if server.trust.is_some() {
                    self.authority.sign(&self.certificates, "device")?;
                }
                server.signal(Signal::HUP)?;
                trouble.count("files read again");
                Ok(())
            }
            Blow::FullDisk => self.fill_disk(trouble).await,
            Blow::MoreIds if self.ids_max == Some(IDS_MAX) => Ok(()),
            Blow::MoreIds => self.make_room_for_ids(trouble).await,
        }
    }

    /// Fills the disk so that writes fail, until the server has ended.
    async fn fill_disk(&mut self, trouble: &mut Trouble) -> anyhow::Result<()> {
        let disk = self.disk.as_ref().context("no disk")?;
        let filler = disk.path().join("filler");
        let mut file = File::create(&filler)?;
        let piece = vec![1; 64 * 1024];
        while file.write_all(&piece).is_ok() {}
        while file.write_all(&piece[..1]).is_ok() {}
        trouble.count("disks filled");
        let server = &mut self.servers[0];
        note_memory(server, &trouble.figures);
        let until = Instant::now() + FULL;
        let mut ended = None;
        while ended.is_none() && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            ended = server.has_ended()?;
        }
        drop(file);
        std::fs::remove_file(filler)?;
        let Some(status) = ended else {
            trouble.count("disks filled without an end");
            return Ok(());
        };
        if status.code() != Some(1) {
            let tail = server.tail();
            trouble.figures.wrong(format!("a full disk ended a server with {status}: {tail}"));
        }
        start_again(server, trouble).await
    }

    async fn make_room_for_ids(&mut self, trouble: &mut Trouble) -> anyhow::Result<()> {
        let more = (2 * self.ids_max.context("as many as fit")?).min(IDS_MAX);
        self.ids_max = Some(more);
        self.end_with_room_for_ids(more).await?;
        trouble.count("more room for ids");
        Ok(())
    }

    /// Shuts the server down, and starts it with room for this number of ids.
    ///
    /// # Errors
    /// When it does not end with 0, or does not start.
    pub(super) async fn end_with_room_for_ids(&mut self, ids_max: u64) -> anyhow::Result<()> {
        for server in &mut self.servers {
            server.stop().await?;
            server.set_arguments(|arguments| {
                if let Some(place) = arguments.iter().position(|word| word == "--ids-max") {
                    arguments[place + 1] = ids_max.to_string();
                }
            });
            server.start(&[]).await?;
        }
        Ok(())
    }
}

/// Records the peak memory of a server.
pub(super) fn note_memory(server: &Server, figures: &Figures) {
    let running = server.running().borrow().clone();
    // The process may be dead.
    if let Some(most) = running.and_then(|running| memory_high_water(running.process).ok()) {
        figures.at_most(MEMORY, most >> 20);
    }
}

/// Restarts a server, waiting as long as its database is down.
async fn start_again(server: &mut Server, trouble: &mut Trouble) -> anyhow::Result<()> {
    let patience = Instant::now() + Duration::from_secs(90);
    loop {
        match server.start(&[]).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > patience => return Err(error),
            Err(_) => {
                trouble.count("starts in vain");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// Causes trouble for a database until the trouble is over; then the database runs.
///
/// # Errors
/// When the database does not start.
pub(super) async fn strike_database(
    database: Arc<Postgres>,
    url: String,
    mut trouble: Trouble,
) -> anyhow::Result<()> {
    loop {
        let pause = trouble.time(2000, 12_000);
        if trouble.wait(pause).await {
            return Ok(());
        }
        let postgres = Arc::clone(&database);
        match trouble.random.random_range(0..4) {
            0 => {
                tokio::task::spawn_blocking(move || postgres.crash()).await??;
                trouble.count("databases crashed");
                let down = trouble.time(0, 6000);
                trouble.wait(down).await;
                let postgres = Arc::clone(&database);
                tokio::task::spawn_blocking(move || postgres.resume()).await??;
            }
            1 => {
                let frozen = postgres.freeze()?;
                trouble.count("databases frozen");
                let time = trouble.time(500, 8000);
                trouble.wait(time).await;
                drop(frozen);
            }
            _ => {
                let url = url.clone();
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE pid <> pg_backend_pid() AND datname = current_database()";
                tokio::task::spawn_blocking(move || query(&url, end)).await??;
                trouble.count("connections to databases ended");
            }
        }
    }
}

/// Changes the condition of networks until the trouble is over; then it is calm.
pub(super) async fn strike_networks(
    networks: Vec<Arc<super::network::Network>>,
    mut trouble: Trouble,
) {
    loop {
        let pause = trouble.time(200, 4000);
        let is_over = trouble.wait(pause).await;
        if is_over {
            break;
        }
        let place = trouble.random.random_range(0..networks.len());
        let (weather, name) = match trouble.random.random_range(0..5) {
            0 => (Weather::Slow(trouble.random.random_range(1..300)), "networks slow"),
            1 => (Weather::Lossy(trouble.random.random_range(2..200)), "networks lossy"),
            2 => (Weather::Deaf, "networks deaf"),
            3 => (Weather::Silent, "connections silent"),
            _ => (Weather::Cut, "networks cut"),
        };
        trouble.count(name);
        networks[place].turn(weather);
        let time = trouble.time(100, 4000);
        trouble.wait(time).await;
        networks[place].turn(Weather::Calm);
    }
    for network in networks {
        network.turn(Weather::Calm);
    }
}

/// A backup.
#[derive(Clone, Debug)]
pub(super) struct Backup {
    /// The file.
    pub(super) file: PathBuf,
    /// The time of its start.
    pub(super) begun: Instant,
}

/// The maker of backups, which also verifies them.
#[derive(Clone, Debug)]
pub(super) struct Custodian {
    /// The program.
    pub(super) program: PathBuf,
    /// The flags that select the store.
    pub(super) store: [String; 2],
    /// The folder of backups.
    pub(super) backups: PathBuf,
    /// The path of `pg_dump`, for a database.
    pub(super) dump: Option<PathBuf>,
}

impl Custodian {
    /// Backs up and verifies until the trouble is over. Returns the last backup.
    ///
    /// # Errors
    /// When the program can't be run.
    pub(super) async fn watch(self, mut trouble: Trouble) -> anyhow::Result<Option<Backup>> {
        let mut last: Option<Backup> = None;
        for number in 0.. {
            let pause = trouble.time(2000, 15_000);
            if trouble.wait(pause).await {
                break;
            }
            let [flag, store] = &self.store;
            let file = self.backups.join(format!("{number}.backup"));
            let begun = Instant::now();
            if self.back_up(&file, &trouble).await?
                && let Some(before) = last.replace(Backup { file, begun })
            {
                std::fs::remove_file(before.file)?;
            }
            self.verify(&["verify", flag, store], &trouble).await?;
        }
        Ok(last)
    }

    /// Makes a backup; whether that succeeded. A database may be down.
    async fn back_up(&self, file: &Path, trouble: &Trouble) -> anyhow::Result<bool> {
        let ([flag, store], name) = (&self.store, file.to_str().context("an odd name")?);
        let (code, said) = match &self.dump {
            Some(dump) => {
                run(dump, &["--format=custom", "--file", name, "--dbname", store]).await?
            }
            None => self.run(&["backup", flag, store, "--out", name]).await?,
        };
        let is_there = code == Some(0);
        trouble.count(if is_there { "backups made" } else { "backups that could not be made" });
        if self.dump.is_none() {
            if !is_there {
                trouble.figures.wrong(format!("a backup ended with {code:?}: {said}"));
                return Ok(false);
            }
            self.verify(&["verify", name], trouble).await?;
        }
        Ok(is_there)
    }

    async fn verify(&self, arguments: &[&str], trouble: &Trouble) -> anyhow::Result<()> {
        let (code, said) = self.run(arguments).await?;
        // The database may be down.
        let is_away = self.dump.is_some() && matches!(code, Some(1 | 5));
        trouble.count(if is_away {
            "stores that could not be verified"
        } else {
            "stores verified"
        });
        if code != Some(0) && !is_away {
            trouble.figures.wrong(format!("{arguments:?} ended with {code:?}: {said}"));
        }
        Ok(())
    }

    /// Runs the program; returns its exit code and output.
    ///
    /// # Errors
    /// When it can't be run.
    pub(super) async fn run(&self, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
        run(&self.program, arguments).await
    }
}

/// Runs a program; returns its exit code and output.
///
/// # Errors
/// When it can't be run.
pub(super) async fn run(
    program: &Path,
    arguments: &[&str],
) -> anyhow::Result<(Option<i32>, String)> {
    let mut command = Command::new(program);
    command.args(arguments).clean_environment();
    command.stdin(Stdio::null()).kill_on_drop(true).process_group(0);
    let output = command.output().await?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
}
