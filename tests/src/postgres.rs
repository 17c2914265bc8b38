//! A temporary PostgreSQL server for tests.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::suite::{Missing, Requirement};

/// A server that listens on a socket of its own. Dropping it stops the server.
#[derive(Debug)]
pub struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    owner: Option<(u32, u32)>,
    options: String,
    databases: AtomicU32,
}

impl Postgres {
    /// Starts a server.
    ///
    /// # Errors
    /// When it does not start; [`Missing`] when none is installed.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with("-c listen_addresses=''", |_| Ok(()))
    }

    /// As [`Self::start`] with these options, after `prepare` has changed its data folder.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(
        options: &str,
        prepare: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let programs = programs()
            .ok_or_else(|| Requirement::Postgres.missing("no PostgreSQL is installed"))?;
        let folder = tempfile::Builder::new().prefix("bandana-pg-").tempdir()?;
        let owner = unprivileged()?;
        if let Some((user, group)) = owner {
            chown(folder.path(), Some(user), Some(group))?;
        }
        // Durability at a power cut is irrelevant here, so commits need not reach the disk, and
        // need not stay in a log of a gigabyte.
        let options = format!(
            "-c fsync=off -c max_wal_size=160MB -c unix_socket_directories={} -c max_connections=200 {options}",
            folder.path().display()
        );
        let server = Self { folder, programs, owner, options, databases: AtomicU32::new(0) };
        let data = server.data();
        let [user, trust] = ["--username=bandana", "--auth=trust"];
        server.run(
            "initdb",
            &[
                "--pgdata".as_ref(),
                data.as_os_str(),
                user.as_ref(),
                trust.as_ref(),
                "--no-sync".as_ref(),
            ],
        )?;
        prepare(&data)?;
        server.resume()?;
        Ok(server)
    }

    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// User and group of the server's files, if they differ from this process's.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.owner
    }

    /// The folder of `pg_dump` and similar programs.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// One of these programs: beside the target of a link in that folder, or in the path.
    pub fn program(&self, name: &str) -> PathBuf {
        let server = self.programs.join("initdb").canonicalize().unwrap_or_default();
        let beside = [self.programs.join(name), server.with_file_name(name)];
        let mut beside = beside.into_iter();
        beside.find(|program| program.exists()).unwrap_or_else(|| Path::new("/usr/bin").join(name))
    }

    /// The URL of a new, empty database.
    ///
    /// # Errors
    /// When the database can't be created.
    pub fn database(&self) -> anyhow::Result<String> {
        self.database_for("test")
    }

    /// As [`Self::database`], with this word at the beginning of the database's name.
    ///
    /// # Errors
    /// As there.
    pub fn database_for(&self, what: &str) -> anyhow::Result<String> {
        let name = format!("{what}{}", self.databases.fetch_add(1, Ordering::Relaxed));
        query(&self.url("postgres"), &format!("CREATE DATABASE {name} TEMPLATE template0"))?;
        Ok(self.url(&name))
    }

    /// The URL of a database over the socket.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://bandana@/{database}?host={}", self.folder.path().display())
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(".s.PGSQL.5432")
    }

    /// Stops all of the server's processes (SIGSTOP), until the result is dropped.
    ///
    /// # Errors
    /// When they can't be found.
    pub fn freeze(&self) -> anyhow::Result<Frozen> {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid"))?;
        let first = file.lines().next().context("no process")?.parse()?;
        // The postmaster is stopped first, so that no processes are added.
        let mut frozen = Frozen(vec![process(first)?]);
        signal(frozen.0[0], Signal::STOP)?;
        for child in children(first)? {
            let child = process(child)?;
            // The process may have ended by now.
            if signal(child, Signal::STOP).is_ok() {
                frozen.0.push(child);
            }
        }
        Ok(frozen)
    }

    /// Stops the server as a crash would.
    ///
    /// # Errors
    /// When it does not stop.
    pub fn crash(&self) -> anyhow::Result<()> {
        let data = self.data();
        let words = ["--mode=immediate", "--wait", "stop"].map(OsStr::new);
        self.run("pg_ctl", &["--pgdata".as_ref(), data.as_os_str(), words[0], words[1], words[2]])
    }

    /// Restarts the server.
    ///
    /// # Errors
    /// When it does not start.
    pub fn resume(&self) -> anyhow::Result<()> {
        let (data, log) = (self.data(), self.folder.path().join("log"));
        let words: [&OsStr; 10] = [
            "--pgdata".as_ref(),
            data.as_os_str(),
            "--log".as_ref(),
            log.as_os_str(),
            "--options".as_ref(),
            self.options.as_ref(),
            "--wait".as_ref(),
            "--timeout".as_ref(),
            "60".as_ref(),
            "start".as_ref(),
        ];
        self.run("pg_ctl", &words).with_context(|| std::fs::read_to_string(log).unwrap_or_default())
    }

    fn run(&self, program: &str, arguments: &[&OsStr]) -> anyhow::Result<()> {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).env_clear().env("LC_ALL", "C").current_dir(self.folder.path());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        // Not to pipes: the server would keep these open.
        let said = self.folder.path().join(format!("{program}.out"));
        let file = std::fs::File::create(&said)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = command.status()?;
        let said = || std::fs::read_to_string(&said).unwrap_or_default();
        ensure!(status.success(), "{program} ended with {status}: {}", said());
        Ok(())
    }
}

/// A server that tests share. It starts with the first that asks for it, and ends with its last owner.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<OnceLock<anyhow::Result<Postgres>>>);

impl Shared {
    /// The server.
    ///
    /// # Errors
    /// When it does not start; [`Missing`] when none is installed.
    pub fn server(&self) -> anyhow::Result<&Postgres> {
        self.0.get_or_init(Postgres::start).as_ref().map_err(|error| {
            let missing = error.downcast_ref::<Missing>().copied();
            missing.map_or_else(|| anyhow::anyhow!("{error:?}"), Into::into)
        })
    }
}

/// Stopped processes of a server. Dropping this resumes them.
#[derive(Debug)]
pub struct Frozen(Vec<Pid>);

impl Drop for Frozen {
    fn drop(&mut self) {
        for process in &self.0 {
            // The process may have been killed.
            signal(*process, Signal::CONT).ok();
        }
    }
}

fn process(id: i32) -> anyhow::Result<Pid> {
    Pid::from_raw(id).context("no process has id 0")
}

fn signal(process: Pid, signal: Signal) -> anyhow::Result<()> {
    Ok(kill_process(process, signal)?)
}

/// The child processes of a process.
fn children(of: i32) -> anyhow::Result<Vec<i32>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes come and go.
        let Ok(line) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { continue };
        // After the program's name, in parentheses, come a state and the parent.
        let parent = line.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if parent.and_then(|parent| parent.parse().ok()) == Some(of) {
            children.push(id);
        }
    }
    Ok(children)
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The server may be stopped already.
        self.crash().ok();
    }
}

/// The folder of the server's programs: in the path, or at a distribution's location.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.push("/usr/local/pgsql/bin".into());
    folders
        .into_iter()
        .find(|folder| folder.join("pg_ctl").exists() && folder.join("initdb").exists())
}

/// An unprivileged user for the server, which refuses to run as root.
fn unprivileged() -> anyhow::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    for wanted in ["postgres", "nobody"] {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        for user in fields.filter(|fields| fields.first() == Some(&wanted)) {
            if let [_, _, id, group, ..] = user[..] {
                return Ok(Some((id.parse()?, group.parse()?)));
            }
        }
    }
    bail!("there is no user `postgres` or `nobody` to run a server as")
}

/// Executes SQL, and returns the rows of the last result.
///
/// # Errors
/// When a statement fails.
pub fn query(url: &str, sql: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let connection = tokio::spawn(connection);
        let messages = client.simple_query(sql).await?;
        drop(client);
        connection.await??;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|i| row.get(i).unwrap_or("").to_owned()).collect())
            }
            _ => None,
        };
        Ok(messages.into_iter().filter_map(row).collect())
    })
}
