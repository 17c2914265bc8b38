//! Commands that wait for a server that is starting or not listening yet.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_tests::page;
use bandana_tests::watched_server::{StartingServer, hold_up, let_go};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// A command for these services, and how it ends.
async fn run(device: &str, operator: &str, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(PROGRAM);
    let url = format!("http://{operator}");
    command.args(arguments).clean_environment().env("BANDANA_OPERATOR_URL", url);
    if arguments[0] == "doctor" {
        command.args(["--server", &format!("http://{device}")]);
    }
    let output = tokio::time::timeout(PATIENCE, command.kill_on_drop(true).output()).await;
    output.with_context(|| format!("{arguments:?} does not end"))?.map_err(Into::into)
}

/// A port on which nothing listens.
fn nowhere() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// One command of each client, and the exit code at a server without experiments.
const COMMANDS: [(&[&str], i32); 5] = [
    (&["experiment", "list"], 0),
    (&["trusted", "list"], 0),
    (&["query", "list"], 0),
    (&["estimate", "absent"], 3),
    (&["doctor", "absent"], 4),
];

#[tokio::test]
async fn commands_started_with_the_server_find_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (device, operator) = (nowhere()?, nowhere()?);
    let [at_device, at_operator] = [device, operator].map(|address| address.to_string());
    let commands = COMMANDS.map(|(arguments, code)| {
        let (at_device, at_operator) = (at_device.clone(), at_operator.clone());
        tokio::spawn(async move { Ok((run(&at_device, &at_operator, arguments).await?, code)) })
    });
    let server = AggregatorProcess::start_at_both_with(
        (device, operator),
        &[],
        Path::new(PROGRAM),
        folder.path(),
    );
    let server = server.await?;
    for command in commands {
        let (output, code) = command.await?.map_err(|error: anyhow::Error| error)?;
        ensure!(output.status.code() == Some(code), "{output:?}");
        // Nothing is said where there is no terminal.
        ensure!(!String::from_utf8(output.stderr)?.contains("waiting"), "it says that it waits");
    }
    server.stop().await
}

/// Whether a starting server has refused a call.
async fn has_refused(operator: &str) -> anyhow::Result<bool> {
    let page = page::get(operator, "/metrics", &[]).await?;
    let mut calls = page.body.lines().filter(|line| line.starts_with("bandana_calls_total{"));
    Ok(calls.any(|line| line.to_lowercase().contains("code=\"unavailable\"")))
}

#[tokio::test]
async fn commands_wait_until_the_store_is_open() -> anyhow::Result<()> {
    for (arguments, code) in COMMANDS {
        let folder = tempfile::tempdir()?;
        hold_up(folder.path())?;
        let mut starting = StartingServer::start(PROGRAM, folder.path(), &[])?;
        let (device, operator) = starting.listening().await?;
        let arguments = [arguments, &["--wait-seconds", "60"]].concat();
        let (answer, released) = tokio::join!(run(&device, &operator, &arguments), async {
            while !has_refused(&operator).await? {
                tokio::task::yield_now().await;
            }
            let_go(folder.path()).await
        });
        let (_reader, answer) = (released?, answer?);
        ensure!(answer.status.code() == Some(code), "{arguments:?}: {answer:?}");
        starting.serving().await?.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn commands_give_up_when_nobody_comes() -> anyhow::Result<()> {
    let address = nowhere()?.to_string();
    for (arguments, _) in COMMANDS {
        for (seconds, words) in [("1", " within 1 s; is the server"), ("0", "/; is the server")] {
            let arguments = [arguments, &["--wait-seconds", seconds]].concat();
            let output = run(&address, &address, &arguments).await?;
            let errors = String::from_utf8(output.stderr)?;
            ensure!(output.status.code() == Some(5), "{arguments:?}: {errors}");
            for part in ["can't reach the ", &address, words, "Connection refused"] {
                ensure!(errors.contains(part), "{arguments:?}: {part:?} is not in {errors}");
            }
        }
    }
    // A server that goes on starting.
    let folder = tempfile::tempdir()?;
    hold_up(folder.path())?;
    let mut starting = StartingServer::start(PROGRAM, folder.path(), &[])?;
    let (device, operator) = starting.listening().await?;
    let once = run(&device, &operator, &["experiment", "list", "--wait-seconds", "1"]).await?;
    let errors = String::from_utf8(once.stderr)?;
    ensure!(once.status.code() == Some(5) && errors.contains("is starting"), "{errors}");
    let _reader = let_go(folder.path()).await?;
    starting.serving().await?.stop().await?;
    Ok(())
}

/// A tunnel accepts connections before there is a server behind it, and closes them.
#[tokio::test]
async fn commands_wait_behind_a_tunnel() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = AggregatorProcess::start(Path::new(PROGRAM), folder.path()).await?;
    let tunnel = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = tunnel.local_addr()?.to_string();
    let behind = server.operator_url.trim_start_matches("http://").to_owned();
    let passing = tokio::spawn(async move {
        for _ in 0..3 {
            drop(tunnel.accept().await?);
        }
        let (mut client, mut server) =
            (tunnel.accept().await?.0, TcpStream::connect(behind).await?);
        tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
    });
    let output = run("", &address, &["experiment", "list"]).await?;
    ensure!(output.status.success(), "{output:?}");
    passing.abort();
    server.stop().await
}

#[tokio::test]
async fn a_terminal_is_told_why_nothing_happens() -> anyhow::Result<()> {
    let address = nowhere()?.to_string();
    let line =
        format!("'{PROGRAM}' experiment list --wait-seconds 1 --operator-url http://{address}");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).clean_environment();
    let output = tokio::time::timeout(PATIENCE, command.kill_on_drop(true).output()).await??;
    let shown = String::from_utf8(output.stdout)?;
    let word = format!("waiting up to 1 s for http://{address}/: nothing listens there yet");
    ensure!(shown.matches(&word).count() == 1, "{shown}");
    ensure!(output.status.code() == Some(5), "{shown}");
    Ok(())
}
