//! Trouble for servers, their database and the network, by a schedule from a seed.

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

/// How often it is looked whether all servers are still there.
const LOOK: Duration = Duration::from_millis(100);

/// How long a full disk is waited for to end a server.
const FULL: Duration = Duration::from_secs(20);

/// Room for ids at first, where there is little.
pub(super) const FEW_IDS: u64 = 4000;

/// What the most memory of a server is counted as.
pub(super) const MEMORY: &str = "memory of a server, MiB";

/// Room for ids at last.
pub(super) const IDS_MAX: u64 = 1_000_000;

/// Whoever makes trouble.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// All choices follow from it.
    pub(super) random: ChaCha8Rng,
    /// Where trouble is counted.
    pub(super) figures: Arc<Figures>,
    /// Whether there has been enough of it.
    pub(super) is_over: watch::Receiver<bool>,
}

impl Trouble {
    fn count(&self, name: &str) {
        self.figures.add(Group::Trouble, name, 1);
    }

    /// Milliseconds within these, drawn by lot.
    fn time(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.random_range(from..=to))
    }

    /// Waits, but no longer than until it is over. Whether it is.
    async fn wait(&mut self, time: Duration) -> bool {
        let waiting = self.is_over.wait_for(|is_over| *is_over);
        tokio::time::timeout(time, waiting).await.is_ok()
    }
}

/// What can befall a server.
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

/// The servers, and what they have.
#[derive(Debug)]
pub(super) struct Site {
    /// All of them.
    pub(super) servers: Vec<Server>,
    /// The disk of the store, if it is one of its own.
    pub(super) disk: Option<Disk>,
    /// Whoever signs certificates.
    pub(super) authority: Authority,
    /// Where certificates are.
    pub(super) certificates: PathBuf,
    /// How many ids there is room for, if that is little.
    pub(super) ids_max: Option<u64>,
}

impl Site {
    /// Makes trouble until it is over; then all servers run.
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

    /// Starts servers again that have ended without a reason.
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

    /// Has writes fail for want of room until the server has ended.
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

    /// Ends the server in order, and starts it with room for so many ids.
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

/// Keeps the most memory that a server has had.
pub(super) fn note_memory(server: &Server, figures: &Figures) {
    let running = server.running().borrow().clone();
    // It may be dead.
    if let Some(most) = running.and_then(|running| memory_high_water(running.process).ok()) {
        figures.at_most(MEMORY, most >> 20);
    }
}

/// Starts a server, however long its database is away.
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

/// Makes trouble for a database until it is over; then it runs.
///
/// # Errors
/// When it does not.
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

/// Has the weather of networks change until it is over; then it is calm.
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
        let (weather, name) = match trouble.random.random_range(0..4) {
            0 => (Weather::Slow(trouble.random.random_range(1..300)), "networks slow"),
            1 => (Weather::Lossy(trouble.random.random_range(2..200)), "networks lossy"),
            2 => (Weather::Deaf, "networks deaf"),
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
    /// When it was begun.
    pub(super) begun: Instant,
}

/// Whoever makes backups and verifies them.
#[derive(Clone, Debug)]
pub(super) struct Custodian {
    /// The program.
    pub(super) program: PathBuf,
    /// The flags that lead to the store.
    pub(super) store: [String; 2],
    /// Where backups go.
    pub(super) backups: PathBuf,
    /// What makes backups of a database: `pg_dump`.
    pub(super) dump: Option<PathBuf>,
}

impl Custodian {
    /// Backs up and verifies until it is over. Returns the last backup.
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

    /// Makes a backup. Whether there is one: a database can be away.
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
        // A database can be away.
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

    /// Runs the program; what it ended with, and said.
    ///
    /// # Errors
    /// When it can't be run.
    pub(super) async fn run(&self, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
        run(&self.program, arguments).await
    }
}

/// Runs a program; what it ended with, and said.
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
