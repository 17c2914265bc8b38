//! The public log under siege: its witness, which is killed too, and somebody who watches from outside.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::relay_process::RelayProcess;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::checks::LAG;
use super::figures::{Figures, Group};
use super::server::Running;
use super::trouble::{Trouble, run};

/// Exit codes of `bandana log check`: all is well, and the log is not as it must be.
const WELL: i32 = 0;
const WRONG: i32 = 4;

/// Longest time without trouble until the last epoch is cosigned.
const COSIGNED: Duration = Duration::from_mins(1);

/// The log of all servers of a round.
#[derive(Debug)]
pub(super) struct PublicLog {
    program: PathBuf,
    folder: PathBuf,
    log: String,
    witness: String,
    running: RelayProcess,
    at: SocketAddr,
}

impl PublicLog {
    /// Makes the keys, and starts the witness.
    ///
    /// # Errors
    /// When a program fails.
    pub(super) async fn begin(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let (program, folder) = (program.to_owned(), folder.join("log"));
        std::fs::create_dir(&folder)?;
        let key = async |role: &str| -> anyhow::Result<String> {
            let (name, out) = (format!("{role}.example/1"), text(&folder.join(role))?);
            let made = ["log-key", "generate", "--role", role, "--name", &name, "--out", &out];
            let (code, said) = run(&program, &made).await?;
            ensure!(code == Some(WELL), "{said}");
            Ok(said.lines().next().context("no key")?.to_owned())
        };
        let (log, witness) = (key("log").await?, key("witness").await?);
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let running = start(&program, &folder, &log, anywhere).await?;
        let at = running.url.strip_prefix("http://").context("no address")?.parse()?;
        std::fs::write(folder.join("witnesses"), format!("{witness} {}\n", running.url))?;
        Ok(Self { program, folder, log, witness, running, at })
    }

    /// The flags of a server that keeps it.
    pub(super) fn flags(&self) -> anyhow::Result<Vec<String>> {
        let (key, witnesses) =
            (text(&self.folder.join("log"))?, text(&self.folder.join("witnesses"))?);
        let flags = ["--log-key-file", &key, "--log-witnesses-file", &witnesses];
        Ok(flags
            .iter()
            .chain(&["--log-epoch-seconds", "1"])
            .map(|flag| (*flag).to_owned())
            .collect())
    }

    /// Watches the log, and kills the witness, until the trouble is over.
    ///
    /// # Errors
    /// When the witness does not start again.
    pub(super) async fn watch(
        mut self,
        servers: Vec<watch::Receiver<Option<Running>>>,
        mut trouble: Trouble,
    ) -> anyhow::Result<Self> {
        loop {
            let pause = trouble.time(500, 4000);
            if trouble.wait(pause).await {
                return Ok(self);
            }
            if trouble.random.random_bool(0.2) {
                self.running.kill().await?;
                self.running = start(&self.program, &self.folder, &self.log, self.at).await?;
                trouble.figures.add(Group::Trouble, "witnesses killed", 1);
            }
            let server =
                servers.choose(&mut trouble.random).and_then(|server| server.borrow().clone());
            let Some(server) = server else { continue };
            self.look(&server, &trouble.figures).await?;
        }
    }

    /// Whether the log of this server is whole, and continues what was seen before.
    async fn look(&self, server: &Running, figures: &Figures) -> anyhow::Result<bool> {
        let (url, state) = (format!("http://{}", server.device), text(&self.folder.join("seen"))?);
        let ask =
            ["log", "check", "--server", &url, "--log", &self.log, "--witness", &self.witness];
        let (code, said) = run(&self.program, &[&ask[..], &["--state", &state]].concat()).await?;
        match code {
            Some(WELL) => figures.add(Group::Honest, "looks at the log", 1),
            Some(WRONG) => figures.wrong(format!("the log of {url}: {said}")),
            // It is down, or frozen.
            _ => figures.add(Group::Honest, "looks at the log of a server that is down", 1),
        }
        Ok(code == Some(WELL))
    }

    /// Without trouble every server shows one log, and the witness has signed it.
    ///
    /// # Errors
    /// When a program can't be run.
    pub(super) async fn check(
        &self,
        servers: &[watch::Receiver<Option<Running>>],
        figures: &Figures,
    ) -> anyhow::Result<()> {
        for server in servers {
            let server = server.borrow().clone().context("it is down")?;
            let until = Instant::now() + COSIGNED;
            while !self.look(&server, figures).await? {
                if Instant::now() > until {
                    figures.wrong(format!("the log of {} is not cosigned", server.device));
                    break;
                }
                tokio::time::sleep(LAG / 100).await;
            }
        }
        Ok(())
    }
}

async fn start(
    program: &Path,
    folder: &Path,
    log: &str,
    at: SocketAddr,
) -> anyhow::Result<RelayProcess> {
    let (seen, key) = (folder.join("seen-by-witness"), text(&folder.join("witness"))?);
    let init: &[&str] = if seen.exists() { &[] } else { &["--witness-init"] };
    let seen = text(&seen)?;
    let flags = ["--witness", &seen, "--witness-key", &key, "--witness-log", log];
    let flags = [&flags[..], &["--witness-interval-seconds", "0"], init].concat();
    RelayProcess::witness_at(at, &flags, program).await
}

fn text(path: &Path) -> anyhow::Result<String> {
    Ok(path.to_str().context("an odd name")?.to_owned())
}
