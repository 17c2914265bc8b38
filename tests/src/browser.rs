//! A headless Chromium for a test, driven through WebDriver (W3C).

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::page;
use crate::suite::Requirement;

/// Timeout for a browser to start and to end.
const PATIENCE: Duration = Duration::from_mins(1);

/// Timeout for pages, in milliseconds.
const PATIENCE_OF_PAGES: u64 = 55_000;

/// Arguments that confine the browser to this host, and let it run as any user.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,900",
];

/// Keys without a letter.
pub mod keys {
    /// Backspace.
    pub const BACKSPACE: &str = "\u{e003}";
    /// Tab.
    pub const TAB: &str = "\u{e004}";
    /// Enter.
    pub const ENTER: &str = "\u{e007}";
    /// Escape.
    pub const ESCAPE: &str = "\u{e00c}";
    /// End.
    pub const END: &str = "\u{e010}";
}

/// A browser with one tab. [`Self::quit`] ends it; a dropped one ends a moment later.
#[derive(Debug)]
pub struct Browser {
    address: String,
    session: String,
    driver: Driver,
    _folder: TempDir,
}

/// The WebDriver server process.
#[derive(Debug)]
struct Driver(Child);

impl Driver {
    /// Starts the process, and returns its address.
    async fn start() -> anyhow::Result<(Self, String)> {
        let spawned = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = match spawned {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Requirement::Browser.missing("no chromedriver is installed"));
            }
            spawned => spawned?,
        };
        let stdout = child.stdout.take().context("no standard output")?;
        let driver = Self(child);
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
        // The process must not block on its output.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok((driver, format!("127.0.0.1:{port}")))
    }

    fn end(&self) {
        // This signal ends the browser too.
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

async fn command(address: &str, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
    let body = if method == "POST" { body.to_string() } else { String::new() };
    let length = body.len().to_string();
    let headers = [("content-type", "application/json"), ("content-length", &length)];
    let page = page::send(address, method, path, &headers, &body).await?;
    let mut answer: Value = serde_json::from_str(&page.body)?;
    let value = answer["value"].take();
    ensure!(page.status == 200, "{path}: {}", value["message"]);
    Ok(value)
}

impl Browser {
    /// Starts a browser.
    ///
    /// # Errors
    /// When it does not start; [`Missing`](crate::suite::Missing) when none is installed.
    pub async fn start() -> anyhow::Result<Self> {
        let (driver, address) = Driver::start().await?;
        let folder = tempfile::tempdir()?;
        let mut arguments: Vec<_> = ARGUMENTS.map(str::to_owned).into();
        arguments.push(format!("--user-data-dir={}", folder.path().display()));
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "acceptInsecureCerts": true,
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": PATIENCE_OF_PAGES, "pageLoad": PATIENCE_OF_PAGES},
        }}});
        let session = command(&address, "POST", "/session", &capabilities).await?;
        let session = session["sessionId"].as_str().context("no session")?.to_owned();
        Ok(Self { address, session, driver, _folder: folder })
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let path = format!("/session/{}{path}", self.session);
        command(&self.address, "POST", &path, body).await
    }

    /// Ends the browser.
    ///
    /// # Errors
    /// On a timeout.
    pub async fn quit(mut self) -> anyhow::Result<()> {
        let path = format!("/session/{}", self.session);
        command(&self.address, "DELETE", &path, &Value::Null).await?;
        self.driver.end();
        tokio::time::timeout(PATIENCE, self.driver.0.wait()).await??;
        Ok(())
    }

    /// Opens an address.
    ///
    /// # Errors
    /// When it can't be opened.
    pub async fn open(&self, url: &str) -> anyhow::Result<()> {
        self.post("/url", &json!({"url": url})).await.map(drop)
    }

    /// Calls a function with this body and these arguments, and returns its result.
    ///
    /// # Errors
    /// When it throws.
    pub async fn run(&self, body: &str, arguments: &[Value]) -> anyhow::Result<Value> {
        let body = json!({"script": body, "args": arguments});
        self.post("/execute/sync", &body).await
    }

    /// Calls a function with this body, these arguments and a callback `done`, and returns the
    /// value passed to `done`.
    ///
    /// # Errors
    /// When the function throws, or on a timeout.
    pub async fn run_async(&self, body: &str, arguments: &[Value]) -> anyhow::Result<Value> {
        let body = json!({"script": body, "args": arguments});
        self.post("/execute/async", &body).await
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// When it throws.
    pub async fn value(&self, expression: &str) -> anyhow::Result<Value> {
        self.run(&format!("return {expression}"), &[]).await
    }

    /// Waits until an expression is true; an exception counts as false. It is evaluated with every
    /// frame of the browser.
    ///
    /// # Errors
    /// On a timeout, with the page's text.
    pub async fn until(&self, expression: &str) -> anyhow::Result<()> {
        let script = format!(
            "const done = arguments[0]; const end = Date.now() + {PATIENCE_OF_PAGES} - 2000;
             const holds = () => {{ try {{ return {expression} }} catch {{ return false }} }};
             const look = () => {{ if (holds()) done(null);
                 else if (Date.now() > end) done(document.body.innerText);
                 else requestAnimationFrame(look) }}; look();"
        );
        let shown = self.run_async(&script, &[]).await;
        let shown = shown.with_context(|| format!("waiting for {expression}"))?;
        ensure!(shown.is_null(), "never: {expression}; the page says: {shown}");
        Ok(())
    }

    /// Sends these keys to the focused element.
    ///
    /// # Errors
    /// When that fails.
    pub async fn press(&self, keys: &str) -> anyhow::Result<()> {
        let press = |key| {
            let step = |kind| json!({"type": kind, "value": String::from(key)});
            [step("keyDown"), step("keyUp")]
        };
        let steps: Vec<_> = keys.chars().flat_map(press).collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": steps});
        self.post("/actions", &json!({"actions": [keyboard]})).await.map(drop)
    }

    async fn emulate(&self, what: &str, how: Value) -> anyhow::Result<()> {
        let command = json!({"cmd": format!("Emulation.{what}"), "params": how});
        self.post("/goog/cdp/execute", &command).await.map(drop)
    }

    /// Sets the preferred colour scheme, light or dark.
    ///
    /// # Errors
    /// When that fails.
    pub async fn prefer(&self, scheme: &str) -> anyhow::Result<()> {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.emulate("setEmulatedMedia", features).await
    }

    /// Sets the size of the viewport.
    ///
    /// # Errors
    /// When that fails.
    pub async fn resize(&self, width: u64, height: u64) -> anyhow::Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.emulate("setDeviceMetricsOverride", size).await
    }

    /// A screenshot (PNG).
    ///
    /// # Errors
    /// When that fails.
    pub async fn screenshot(&self) -> anyhow::Result<Vec<u8>> {
        let path = format!("/session/{}/screenshot", self.session);
        let picture = command(&self.address, "GET", &path, &Value::Null).await?;
        Ok(BASE64_STANDARD.decode(picture.as_str().context("no picture")?)?)
    }

    /// The console messages since the last call: errors, warnings and all others.
    ///
    /// # Errors
    /// When that fails.
    pub async fn console(&self) -> anyhow::Result<Vec<String>> {
        let lines = self.post("/se/log", &json!({"type": "browser"})).await?;
        let line = |line: &Value| format!("{} {}", line["level"], line["message"]);
        Ok(lines.as_array().context("no lines")?.iter().map(line).collect())
    }
}
