//! A throw-away PostgreSQL server for tests.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::suite::{Missing, Requirement, Suite};

/// A server that listens on a socket of its own. It is stopped when this is dropped.
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

    /// Starts a server for tests to share, unless they are only listed. None: none is
    /// installed, and nobody requires one.
    ///
    /// # Errors
    /// When it does not start, or one is required.
    pub fn for_all(suite: &Suite) -> anyhow::Result<Shared> {
        if suite.is_listed() {
            return Ok(Shared(None));
        }
        match Self::start() {
            Ok(server) => Ok(Shared(Some(Arc::new(server)))),
            Err(error) if error.is::<Missing>() => Ok(Shared(None)),
            Err(error) => Err(error),
        }
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
        // What a commit needs of the disk is the operating system's business here: it is
        // not the power that is cut.
        let options = format!(
            "-c fsync=off -c unix_socket_directories={} -c max_connections=200 {options}",
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

    /// Its data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// User and group that own its files, if they are not this process's.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.owner
    }

    /// Where `pg_dump` and its like are.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// One of those, which may be beside what a link there leads to, or in the path.
    pub fn program(&self, name: &str) -> PathBuf {
        let server = self.programs.join("initdb").canonicalize().unwrap_or_default();
        let beside = [self.programs.join(name), server.with_file_name(name)];
        let mut beside = beside.into_iter();
        beside.find(|program| program.exists()).unwrap_or_else(|| Path::new("/usr/bin").join(name))
    }

    /// The URL of a new, empty database.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn database(&self) -> anyhow::Result<String> {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
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

    /// Stops all of its processes where they are, until this is dropped.
    ///
    /// # Errors
    /// When they can't be found.
    pub fn freeze(&self) -> anyhow::Result<Frozen> {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid"))?;
        let first = file.lines().next().context("no process")?.parse()?;
        // The one that starts others is the first, so that there are no more of them.
        let mut frozen = Frozen(vec![process(first)?]);
        signal(frozen.0[0], Signal::STOP)?;
        for child in children(first)? {
            let child = process(child)?;
            // It may have ended by now.
            if signal(child, Signal::STOP).is_ok() {
                frozen.0.push(child);
            }
        }
        Ok(frozen)
    }

    /// Stops it as a crash would.
    ///
    /// # Errors
    /// When it does not stop.
    pub fn crash(&self) -> anyhow::Result<()> {
        let data = self.data();
        let words = ["--mode=immediate", "--wait", "stop"].map(OsStr::new);
        self.run("pg_ctl", &["--pgdata".as_ref(), data.as_os_str(), words[0], words[1], words[2]])
    }

    /// Starts it again.
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
        // Not to pipes: the server would keep them open.
        let said = self.folder.path().join(format!("{program}.out"));
        let file = std::fs::File::create(&said)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = command.status()?;
        let said = || std::fs::read_to_string(&said).unwrap_or_default();
        ensure!(status.success(), "{program} ended with {status}: {}", said());
        Ok(())
    }
}

/// A server that tests share, if there is one. It ends with the last of them.
#[derive(Clone, Debug)]
pub struct Shared(Option<Arc<Postgres>>);

impl Shared {
    /// The server.
    ///
    /// # Errors
    /// [`Missing`] when there is none.
    pub fn server(&self) -> anyhow::Result<&Postgres> {
        Ok(self.0.as_deref().ok_or(Missing(Requirement::Postgres))?)
    }
}

/// Processes of a server that are stopped; they go on when this is dropped.
#[derive(Debug)]
pub struct Frozen(Vec<Pid>);

impl Drop for Frozen {
    fn drop(&mut self) {
        for process in &self.0 {
            // It may have been killed.
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

/// The processes that a process has started.
fn children(of: i32) -> anyhow::Result<Vec<i32>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // Others come and go.
        let Ok(line) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { continue };
        // After the program's name, in brackets, there are a state and the parent.
        let parent = line.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if parent.and_then(|parent| parent.parse().ok()) == Some(of) {
            children.push(id);
        }
    }
    Ok(children)
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It may have been stopped already.
        self.crash().ok();
    }
}

/// Where the server's programs are: in the path, or where distributions put them.
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

/// A user to run the server as, which does not run as root.
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

/// Has a database do something, and returns the rows of its last answer.
///
/// # Errors
/// When it can't.
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
