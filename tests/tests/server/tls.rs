//! Both services behind TLS.

use std::path::PathBuf;
use std::process::Output;

use anyhow::Context as _;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{GetExperimentRequest, ListExperimentsRequest, UploadStatus};
use bandana_tests::authority::Authority;
use bandana_tests::harness::{create, keep_uploading, tallies, three_arms};
use bandana_tests::page;
use bandana_tests::watched_server::WatchedServer;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;
use tonic::Code;
use tonic::transport::Endpoint;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// A folder with the certificates of a server and of its callers.
struct Files {
    folder: TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> anyhow::Result<Self> {
        let (folder, authority) = (tempfile::tempdir()?, Authority::new()?);
        authority.sign(folder.path(), "server")?;
        std::fs::write(folder.path().join("ca.pem"), &authority.pem)?;
        Ok(Self { folder, authority })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `FLAG PATH` for each flag and name.
    fn flags(&self, flags: &[(&str, &str)]) -> Vec<String> {
        let of = |&(flag, name): &(&str, &str)| {
            [format!("--{flag}"), self.path(name).display().to_string()]
        };
        flags.iter().flat_map(of).collect()
    }

    async fn server(&self, more: &[(&str, &str)]) -> anyhow::Result<WatchedServer> {
        let mut flags = self.flags(&[
            ("tls-certificate", "server.pem"),
            ("tls-key", "server.key"),
            ("operator-tls-certificate", "server.pem"),
            ("operator-tls-key", "server.key"),
        ]);
        flags.extend(self.flags(more));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        WatchedServer::start(PROGRAM, &self.path("data"), &flags).await
    }

    /// Lists the experiments from the command line.
    async fn list(&self, url: &str, flags: &[(&str, &str)]) -> anyhow::Result<Output> {
        self.run(&["experiment", "list", "--operator-url", url], flags).await
    }

    async fn run(&self, words: &[&str], flags: &[(&str, &str)]) -> anyhow::Result<Output> {
        let mut command = Command::new(PROGRAM);
        command.args(words).args(self.flags(flags)).clean_environment().kill_on_drop(true);
        Ok(command.output().await?)
    }
}

#[tokio::test]
async fn devices_and_operators_are_answered_behind_tls_only() -> anyhow::Result<()> {
    let files = Files::new()?;
    let server = files.server(&[]).await?;
    let mut device = DeviceClient::new(files.authority.connect(&server.device).await?);
    let request = GetExperimentRequest { experiment_id: "x".to_owned() };
    assert_eq!(device.get_experiment(request.clone()).await.unwrap_err().code(), Code::NotFound);
    let mut operator = OperatorClient::new(files.authority.connect(&server.operator).await?);
    operator.list_experiments(ListExperimentsRequest::default()).await?;

    for address in [&server.device, &server.operator] {
        let stranger = Authority::new()?;
        assert!(stranger.connect(address).await.is_err(), "a client trusts anybody");
        let clear = Endpoint::from_shared(format!("http://{address}"))?.connect_lazy();
        let outcome = DeviceClient::new(clear).get_experiment(request.clone()).await;
        assert_ne!(outcome.unwrap_err().code(), Code::NotFound);
    }

    let url = format!("https://{}", server.operator);
    let output = files.list(&url, &[("ca", "ca.pem")]).await?;
    assert!(output.status.success(), "{output:?}");
    // The system does not trust this authority.
    assert_eq!(files.list(&url, &[]).await?.status.code(), Some(5));
    let clear = format!("http://{}", server.operator);
    let output = files.list(&clear, &[("ca", "ca.pem")]).await?;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn pages_are_answered_behind_tls_only() -> anyhow::Result<()> {
    let files = Files::new()?;
    let server = files.server(&[]).await?;
    for path in ["/healthz", "/readyz", "/metrics"] {
        let stream = files.authority.connect_http1(&server.operator).await?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let answer = page::get_on(stream, &server.operator, path, &[]).await?;
        assert_eq!(answer.status, 200, "{path}");
        let clear = page::get(&server.operator, path, &[]).await;
        assert!(clear.is_err(), "{path} in the clear: {clear:?}");
    }
    assert!(Authority::new()?.connect_http1(&server.operator).await.is_err());
    // The devices' port has no pages.
    for path in ["/healthz", "/metrics"] {
        let stream = files.authority.connect_http1(&server.device).await?;
        assert_eq!(page::get_on(stream, &server.device, path, &[]).await?.status, 404, "{path}");
    }
    let clear = page::get(&server.device, "/", &[]).await;
    assert!(clear.is_err(), "in the clear: {clear:?}");
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn operators_show_certificates_where_they_are_asked_to() -> anyhow::Result<()> {
    let files = Files::new()?;
    let folder = files.folder.path();
    files.authority.sign(folder, "anna")?;
    Authority::new()?.sign(folder, "stranger")?;
    let server = files.server(&[("operator-client-ca", "ca.pem")]).await?;
    let url = format!("https://{}", server.operator);
    let list = async |flags: &[(&str, &str)]| {
        let output = files.list(&url, &[&[("ca", "ca.pem")], flags].concat()).await?;
        anyhow::Ok(output.status.code())
    };
    let shown = |certificate, key| [("client-certificate", certificate), ("client-key", key)];
    assert_eq!(list(&shown("anna.pem", "anna.key")).await?, Some(0));
    assert_eq!(list(&[]).await?, Some(5));
    assert_eq!(list(&shown("stranger.pem", "stranger.key")).await?, Some(5));
    // Devices present no client certificate.
    files.authority.connect(&server.device).await?;

    let words = [
        ["experiment", "create", "x", "--epsilon", "1", "--arm", "a", "--arm", "b"].as_slice(),
        &["--attribution-window-seconds", "3600", "--json", "--operator-url", &url],
    ];
    let flags = [&[("ca", "ca.pem")][..], &shown("anna.pem", "anna.key")].concat();
    let output = files.run(&words.concat(), &flags).await?;
    assert!(output.status.success(), "{output:?}");
    let log = server.stop().await?;
    assert!(log.contains("experiment created caller=certificate "), "{log}");
    Ok(())
}

#[tokio::test]
async fn certificates_are_replaced_while_the_server_runs() -> anyhow::Result<()> {
    let files = Files::new()?;
    let mut server = files.server(&[]).await?;
    let mut before = OperatorClient::new(files.authority.connect(&server.operator).await?);
    before.list_experiments(ListExperimentsRequest::default()).await?;

    // The key of another certificate: the previous pair remains.
    let next = Authority::new()?;
    let key = std::fs::read(files.path("server.key"))?;
    next.sign(files.folder.path(), "server")?;
    let next_key = std::fs::read(files.path("server.key"))?;
    std::fs::write(files.path("server.key"), key)?;
    server.reload().await?;
    assert!(server.logged.contains("certificates are left as they were"), "{}", server.logged);
    files.authority.connect(&server.operator).await?;

    std::fs::write(files.path("server.key"), next_key)?;
    server.reload().await?;
    for address in [&server.device, &server.operator] {
        next.connect(address).await?;
        assert!(files.authority.connect(address).await.is_err());
    }
    // Open connections stay open.
    before.list_experiments(ListExperimentsRequest::default()).await?;
    drop(before);
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn certificates_are_replaced_under_load() -> anyhow::Result<()> {
    let files = Files::new()?;
    let mut server = files.server(&[]).await?;
    let mut operator = OperatorClient::new(files.authority.connect(&server.operator).await?);
    let experiment = create(&mut operator, three_arms("rotated")).await?;
    let mut device = DeviceClient::new(files.authority.connect(&server.device).await?);
    let experiment_id = experiment.experiment_id().to_string();
    let request = GetExperimentRequest { experiment_id };
    let day = Day::new(device.get_experiment(request).await?.into_inner().server_day);
    let mut acknowledgements = keep_uploading(&device, &experiment, day);
    let mut accepted = 0;
    let mut go_on = async |uploads| {
        for _ in 0..uploads {
            let (_, status) = acknowledgements.recv().await.context("all workers failed")?;
            assert_eq!(status, UploadStatus::Accepted);
            accepted += 1;
        }
        anyhow::Ok(())
    };
    go_on(100).await?;

    // A file that is not a certificate.
    let certificate = std::fs::read(files.path("server.pem"))?;
    std::fs::write(files.path("server.pem"), "-----BEGIN CERTIFICATE-----\n")?;
    server.reload().await?;
    assert!(server.logged.contains("certificates are left as they were"), "{}", server.logged);
    assert!(server.logged.contains("server.pem"), "{}", server.logged);
    files.authority.connect(&server.device).await?;
    std::fs::write(files.path("server.pem"), certificate)?;
    go_on(100).await?;

    let next = Authority::new()?;
    next.sign(files.folder.path(), "server")?;
    server.reload().await?;
    next.connect(&server.device).await?;
    assert!(files.authority.connect(&server.device).await.is_err());
    // The uploads are still on the connection with the old one.
    go_on(500).await?;
    server.stop().await?;
    while let Some((_, status)) = acknowledgements.recv().await {
        assert_eq!(status, UploadStatus::Accepted);
        accepted += 1;
    }
    let server = files.server(&[]).await?;
    let mut operator = OperatorClient::new(next.connect(&server.operator).await?);
    assert_eq!(tallies(&mut operator, &experiment).await?[0], (accepted, accepted));
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn silent_handshakes_end_and_do_not_keep_others_out_for_long() -> anyhow::Result<()> {
    let files = Files::new()?;
    let mut flags = files.flags(&[("tls-certificate", "server.pem"), ("tls-key", "server.key")]);
    flags.extend(["--limit-handshakes=1", "--limit-handshake-seconds=1"].map(str::to_owned));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = WatchedServer::start(PROGRAM, &files.path("data"), &flags).await?;
    let mut silent = TcpStream::connect(&server.device).await?;
    let patience = std::time::Duration::from_mins(1);
    let mut said = Vec::new();
    let read = tokio::time::timeout(patience, silent.read_to_end(&mut said));
    assert_eq!(read.await??, 0, "the server says nothing to who says nothing");
    files.authority.connect(&server.device).await?;
    Ok(())
}

#[tokio::test]
async fn a_server_without_its_key_does_not_start() -> anyhow::Result<()> {
    let files = Files::new()?;
    std::fs::copy(files.path("ca.pem"), files.path("server.key"))?;
    let error = files.server(&[]).await.err().context("it starts")?;
    let error = format!("{error:#}");
    assert!(error.contains("server.key") && error.contains("no private key in PEM"), "{error}");
    Ok(())
}
