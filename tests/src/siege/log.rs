//! The public log under siege: its witness, which is killed too, and somebody who watches from outside.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bandana_examples::relay_process::RelayProcess;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::checks::LAG;
use super::figures::{Figures, Group};
use super::server::Running;
use super::trouble::{Trouble, run};
use crate::public_log::LogKeys;

/// Exit codes of `bandana log check`: all is well, and the log is not as it must be.
const WELL: i32 = 0;
const WRONG: i32 = 4;

/// Longest time without trouble until the last epoch is cosigned.
const COSIGNED: Duration = Duration::from_mins(1);

/// The log of all servers of a round.
#[derive(Debug)]
pub(super) struct PublicLog {
    program: PathBuf,
    keys: LogKeys,
    witness: RelayProcess,
}

impl PublicLog {
    /// Makes the keys, and starts the witness.
    ///
    /// # Errors
    /// When a program fails.
    pub(super) async fn begin(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join("log");
        std::fs::create_dir(&folder)?;
        let keys = LogKeys::make(program, &folder).await?;
        let witness = keys.new_witness().await?;
        Ok(Self { program: program.to_owned(), keys, witness })
    }

    /// The flags of a server that keeps it.
    pub(super) fn flags(&self) -> Vec<String> {
        self.keys.of_server()
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
                let at = self.witness.url.strip_prefix("http://").context("no address")?.parse()?;
                self.witness.kill().await?;
                self.witness = self.keys.witness_at(at, &[]).await?;
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
        let (url, state) = (format!("http://{}", server.device), self.keys.path("read"));
        let LogKeys { log, witness, .. } = &self.keys;
        let ask = ["log", "check", "--server", &url, "--log", log, "--witness", witness];
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
