//! A shell runs the commands of a document.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Block, Step};

/// Timeout of a command.
const PATIENCE: Duration = Duration::from_mins(2);

/// The ports in the pages.
const PORTS: [u16; 4] = [7301, 7302, 7401, 7402];

/// A bash in a separate folder. Dropping it kills all processes that it has started.
#[derive(Debug)]
pub struct Shell {
    bash: Child,
    input: ChildStdin,
    /// The exit status of each command.
    ends: UnboundedReceiver<String>,
    /// The output of background programs.
    background: UnboundedReceiver<String>,
    logged: String,
    ports: [u16; 4],
    folder: TempDir,
}

impl Shell {
    /// Starts a bash that finds these programs under these names, and others in these folders or in
    /// this process's path.
    ///
    /// # Errors
    /// When there is no bash.
    pub fn start(
        programs: &[(&str, &str)],
        folders: &[&Path],
        variables: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let [bin, work] = ["bin", "work"].map(|name| folder.path().join(name));
        std::fs::create_dir(&bin)?;
        std::fs::create_dir(&work)?;
        for (name, program) in programs {
            symlink(program, bin.join(name))?;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = folders.iter().map(|folder| folder.to_path_buf());
        let path = std::env::join_paths(
            std::iter::once(bin).chain(folders).chain(std::env::split_paths(&path)),
        )?;
        let ports = free_ports()?;
        let [device, operator, ..] = ports.map(|port| format!("127.0.0.1:{port}"));
        let mut bash = Command::new("bash")
            .args(["--noprofile", "--norc", "-u", "-o", "pipefail"])
            .clean_environment()
            .env("PATH", path)
            .env("HOME", &work)
            .env("BANDANA_OPERATOR_URL", format!("http://{operator}"))
            .env("BANDANA_LISTEN", device)
            .env("BANDANA_OPERATOR_LISTEN", operator)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(work)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // One signal ends the whole process group.
            .process_group(0)
            .spawn()
            .context("can't start bash")?;
        let input = bash.stdin.take().context("no standard input")?;
        let ends = lines(bash.stdout.take().context("no standard output")?);
        let background = lines(bash.stderr.take().context("no standard error")?);
        Ok(Self { bash, input, ends, background, logged: String::new(), ports, folder })
    }

    /// The free port that replaces a port in the pages.
    ///
    /// # Errors
    /// When the pages don't use that port.
    pub fn port(&self, named: u16) -> anyhow::Result<u16> {
        let place = PORTS.iter().position(|port| *port == named);
        Ok(self.ports[place.with_context(|| format!("{named} is no port of pages"))?])
    }

    fn with_ports(&self, text: &str) -> String {
        PORTS.iter().zip(self.ports).fold(text.to_owned(), |text, (named, port)| {
            text.replace(&format!(":{named}"), &format!(":{port}"))
        })
    }

    /// Runs a command.
    ///
    /// # Errors
    /// When the result differs from the page's expectations.
    pub async fn run(&mut self, step: &Step) -> anyhow::Result<()> {
        let ran = tokio::time::timeout(PATIENCE, self.run_patiently(step)).await;
        let ran = ran.unwrap_or_else(|_| bail!("it takes longer than {PATIENCE:?}"));
        let Step { line, command, .. } = step;
        ran.with_context(|| format!("line {line}: {command}\nin the background:\n{}", self.logged))
    }

    async fn run_patiently(&mut self, step: &Step) -> anyhow::Result<()> {
        while let Ok(line) = self.background.try_recv() {
            self.log(&line);
        }
        let (command, is_in_background) = (self.with_ports(&step.command), step.is_in_background());
        let file = self.folder.path().join("printed");
        let output =
            if is_in_background { ">&2".to_owned() } else { format!(">{} 2>&1", file.display()) };
        // Not in a subshell: variables that it sets must persist.
        let script = format!("{{ {command}\n}} </dev/null {output}\nprintf '%s\\n' $?\n");
        self.input.write_all(script.as_bytes()).await?;
        let end = self.ends.recv().await;
        let printed = if is_in_background { String::new() } else { std::fs::read_to_string(file)? };
        let end = end.with_context(|| format!("the shell has ended: {printed}"))?;
        ensure!(end == step.exits.to_string(), "it exits with {end}: {printed}");
        for text in &step.prints {
            let text = self.with_ports(text);
            if is_in_background {
                self.until(&text, |line| line.starts_with(&text)).await?;
            } else {
                ensure!(printed.contains(&text), "{text:?} is not in what it prints: {printed}");
            }
        }
        for text in &step.logs {
            let text = self.with_ports(text);
            self.until(&text, |line| line.contains(&text)).await?;
        }
        Ok(())
    }

    fn log(&mut self, line: &str) {
        self.logged += line;
        self.logged += "\n";
    }

    /// Waits for output of background programs.
    async fn until(&mut self, text: &str, is_it: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        while let Some(line) = self.background.recv().await {
            self.log(&line);
            if is_it(&line) {
                return Ok(());
            }
        }
        bail!("{text:?} is not printed")
    }

    /// Pastes a whole block at once, as it stands: no command waits for what one in the background
    /// does.
    ///
    /// # Errors
    /// When a command fails, or something that a command in the foreground should print is missing.
    pub async fn paste(&mut self, block: &Block) -> anyhow::Result<()> {
        let file = self.folder.path().join("pasted");
        let text = self.with_ports(&block.text);
        let script = format!(
            "{{ set -e\n{text}\n}} </dev/null >{} 2>&1\nset +e\nprintf '%s\\n' $?\n",
            file.display()
        );
        self.input.write_all(script.as_bytes()).await?;
        let end = tokio::time::timeout(PATIENCE, self.ends.recv()).await?;
        let printed = std::fs::read_to_string(file)?;
        ensure!(end.is_some(), "a command fails: {printed}");
        for step in block.steps.iter().filter(|step| !step.is_in_background()) {
            for text in &step.prints {
                let text = self.with_ports(text);
                ensure!(printed.contains(&text), "{text:?} is not in what is printed: {printed}");
            }
        }
        Ok(())
    }

    /// Runs commands one after the other.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn run_all(&mut self, steps: &[Step]) -> anyhow::Result<()> {
        for step in steps {
            self.run(step).await?;
        }
        Ok(())
    }

    /// Ends the shell, and all processes that it has started.
    ///
    /// # Errors
    /// On a timeout.
    pub async fn end(mut self) -> anyhow::Result<()> {
        self.kill();
        tokio::time::timeout(PATIENCE, self.bash.wait()).await??;
        Ok(())
    }

    fn kill(&self) {
        let id = self.bash.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            kill_process_group(id, Signal::KILL).ok();
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The lines of a pipe, which is always drained.
fn lines(pipe: impl AsyncRead + Unpin + Send + 'static) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        let mut lines = BufReader::new(pipe).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            // The test may be over.
            sender.send(line).ok();
        }
    });
    receiver
}

/// Free ports on loopback. They are below the range of ephemeral ports, and no other test uses
/// them.
fn free_ports() -> anyhow::Result<[u16; 4]> {
    const FIRST: u16 = 12_000;
    const PLACES: u16 = 4_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % u32::from(PLACES))?;
    for _ in 0..PLACES {
        let place = (start + 64 * NEXT.fetch_add(1, Ordering::Relaxed) % PLACES) % PLACES;
        let ports = [0, 1, 2, 3].map(|i| FIRST + 4 * place + i);
        if ports.iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()) {
            return Ok(ports);
        }
    }
    bail!("no ports are free")
}

#[cfg(test)]
mod tests {
    use super::super::chapters;
    use super::*;

    #[tokio::test]
    async fn what_is_not_as_the_page_says_is_noticed() -> anyhow::Result<()> {
        let mut shell = Shell::start(&[], &[], &[])?;
        for (block, complaint) in [
            ("echo a", None),
            ("echo a   # prints: a", None),
            ("echo a   # prints: b", Some("\"b\" is not in what it prints: a")),
            ("false", Some("it exits with 1")),
            ("true     # exits: 1", Some("it exits with 0")),
            ("echo \"$sleeper\"; cat", None),
            ("(echo up; exec sleep 60) & sleeper=$!   # prints: up", None),
            ("kill \"$sleeper\"; wait \"$sleeper\"    # exits: 143", None),
            ("echo \"$unheard\"", Some("the shell has ended")),
        ] {
            let block = format!("## C\n```sh\nsleeper=${{sleeper-}}\n{block}\n```\n");
            let ran = shell.run_all(&chapters(&block)?[0].steps).await;
            match (ran, complaint) {
                (Ok(()), None) => {}
                (Err(error), Some(complaint)) => {
                    let error = format!("{error:#}");
                    assert!(error.contains(complaint), "{error}");
                }
                (ran, _) => panic!("{block}: {ran:?}"),
            }
        }
        shell.end().await
    }
}
