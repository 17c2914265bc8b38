//! A headless Chromium for a test.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::common::log::LoggingPrefsLogLevel;
use thirtyfour::{
    BrowserLogEntry, ChromiumLikeCapabilities as _, DesiredCapabilities, TypingData, WebDriver,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Set to 1 where a test that is skipped for want of a browser must fail.
const REQUIRED: &str = "BANDANA_REQUIRE_BROWSER";

/// How long a page may take for anything.
const PATIENCE: Duration = Duration::from_mins(1);

/// What keeps a browser to this host, and lets it run as any user.
const ARGUMENTS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
];

/// A browser with one tab. [`Self::quit`] ends it; one that is dropped ends a moment later.
#[derive(Debug)]
pub struct Browser {
    tab: WebDriver,
    driver: Driver,
    _folder: TempDir,
}

/// The program between WebDriver and the browser.
#[derive(Debug)]
struct Driver(Child);

impl Driver {
    fn end(&self) {
        // With this signal it ends its browser too.
        let id = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            kill_process(id, Signal::TERM).ok();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end();
    }
}

impl Browser {
    /// Starts one. None: none is installed, and nobody requires one.
    ///
    /// # Errors
    /// When it does not start, or one is required.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        let spawned = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = match spawned {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let required = std::env::var_os(REQUIRED).is_some_and(|value| value == "1");
                ensure!(!required, "no chromedriver is installed, and {REQUIRED} is set");
                return Ok(None);
            }
            spawned => spawned?,
        };
        let stdout = child.stdout.take().context("no standard output")?;
        let driver = Driver(child);
        let mut lines = BufReader::new(stdout).lines();
        let port = async {
            while let Some(line) = lines.next_line().await? {
                if let Some((_, port)) = line.split_once("started successfully on port ") {
                    return Ok(port.trim_end_matches('.').to_owned());
                }
            }
            anyhow::bail!("chromedriver ended")
        };
        let port = tokio::time::timeout(PATIENCE, port).await??;
        // Whoever writes must not wait for us.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let folder = tempfile::tempdir()?;
        let mut capabilities = DesiredCapabilities::chrome();
        for argument in ARGUMENTS {
            capabilities.add_arg(argument)?;
        }
        capabilities.add_arg(&format!("--user-data-dir={}", folder.path().display()))?;
        capabilities.set_browser_log_level(LoggingPrefsLogLevel::All)?;
        let tab = WebDriver::new(format!("http://127.0.0.1:{port}"), capabilities).await?;
        tab.set_script_timeout(PATIENCE).await?;
        Ok(Some(Self { tab, driver, _folder: folder }))
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn quit(self) -> anyhow::Result<()> {
        let Self { tab, mut driver, _folder } = self;
        tab.quit().await?;
        driver.end();
        tokio::time::timeout(PATIENCE, driver.0.wait()).await??;
        Ok(())
    }

    /// Opens an address.
    ///
    /// # Errors
    /// When it can't be opened.
    pub async fn open(&self, url: &str) -> anyhow::Result<()> {
        Ok(self.tab.goto(url).await?)
    }

    /// What the body of a function returns, which gets these arguments.
    ///
    /// # Errors
    /// When it throws.
    pub async fn run(&self, body: &str, arguments: &[Value]) -> anyhow::Result<Value> {
        let returned = self.tab.execute(body, Arc::from(arguments)).await;
        Ok(returned.with_context(|| format!("running {body}"))?.json().clone())
    }

    /// What the body of a function hands to `done`, its last argument after these.
    ///
    /// # Errors
    /// When it throws, or does not in time.
    pub async fn run_async(&self, body: &str, arguments: &[Value]) -> anyhow::Result<Value> {
        let returned = self.tab.execute_async(body, Arc::from(arguments)).await;
        Ok(returned.with_context(|| format!("running {body}"))?.json().clone())
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// When it throws.
    pub async fn value(&self, expression: &str) -> anyhow::Result<Value> {
        self.run(&format!("return {expression}"), &[]).await
    }

    /// Waits until an expression holds; one that throws does not. It is tried with every
    /// picture that the browser would show.
    ///
    /// # Errors
    /// When it does not in time; with what the page says instead.
    pub async fn until(&self, expression: &str) -> anyhow::Result<()> {
        let script = format!(
            "const done = arguments[0]; const end = Date.now() + 20000;
             const holds = () => {{ try {{ return {expression} }} catch {{ return false }} }};
             const look = () => {{ if (holds()) done(null);
                 else if (Date.now() > end) done(document.body.innerText);
                 else requestAnimationFrame(look) }}; look();"
        );
        let outcome = self.tab.execute_async(script, Vec::new()).await;
        let outcome = outcome.with_context(|| format!("waiting for {expression}"))?;
        let shown = outcome.json();
        ensure!(shown.is_null(), "never: {expression}; the page says: {shown}");
        Ok(())
    }

    /// Presses these keys, whatever has the focus.
    ///
    /// # Errors
    /// When that fails.
    pub async fn press(&self, keys: impl Into<TypingData>) -> anyhow::Result<()> {
        Ok(self.tab.action_chain().send_keys(keys).perform().await?)
    }

    /// Has the screen prefer light or dark.
    ///
    /// # Errors
    /// When that fails.
    pub async fn prefer(&self, scheme: &str) -> anyhow::Result<()> {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.tab.cdp().send_raw("Emulation.setEmulatedMedia", features).await?;
        Ok(())
    }

    /// Has the screen be so large.
    ///
    /// # Errors
    /// When that fails.
    pub async fn resize(&self, width: u64, height: u64) -> anyhow::Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.tab.cdp().send_raw("Emulation.setDeviceMetricsOverride", size).await?;
        Ok(())
    }

    /// A picture of the screen (PNG).
    ///
    /// # Errors
    /// When that fails.
    pub async fn screenshot(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.tab.screenshot_as_png().await?)
    }

    /// What is in the console since this was last asked: errors, warnings and all else.
    ///
    /// # Errors
    /// When that fails.
    pub async fn console(&self) -> anyhow::Result<Vec<String>> {
        let line = |BrowserLogEntry { level, message, .. }: BrowserLogEntry| {
            format!("{level} {message}")
        };
        Ok(self.tab.browser_log().await?.into_iter().map(line).collect())
    }
}
