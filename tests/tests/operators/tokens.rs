//! Tokens control access to the operators' service.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    AddArmRequest, AddSignatureRequest, CreateExperimentRequest, EstimatesRequest, ExperimentName,
    ExportTalliesRequest, GetExperimentRequest, Learner, ListAuditEntriesRequest,
    ListExperimentsRequest, RetireArmRequest,
};
use bandana_tests::harness::three_arms;
use bandana_tests::watched_server::WatchedServer;
use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;
use tokio::process::Command;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// A directory with a tokens file, and a server that requires its tokens.
struct Guarded {
    folder: TempDir,
    anna: String,
    server: WatchedServer,
}

impl Guarded {
    async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let anna = new_token(folder.path(), "anna").await?;
        let file = tokens_file(folder.path());
        let file = file.to_str().context("a path in UTF-8")?;
        let data_dir = folder.path().join("data");
        let arguments = ["--operator-tokens-file", file];
        let server = WatchedServer::start(PROGRAM, &data_dir, &arguments).await?;
        Ok(Self { folder, anna, server })
    }

    fn file(&self) -> PathBuf {
        tokens_file(self.folder.path())
    }

    async fn call(&self, header: Option<&str>) -> Result<(), Status> {
        let mut request = Request::new(ListExperimentsRequest::default());
        if let Some(header) = header {
            let value = header.parse().map_err(|_| Status::internal("not a header"))?;
            request.metadata_mut().insert("authorization", value);
        }
        let channel = self.channel().await.map_err(|error| Status::internal(error.to_string()))?;
        OperatorClient::new(channel).list_experiments(request).await.map(drop)
    }

    async fn channel(&self) -> anyhow::Result<Channel> {
        Ok(Channel::from_shared(format!("http://{}", self.server.operator))?.connect().await?)
    }

    async fn with_token(&self, token: &str) -> anyhow::Result<Client> {
        let value: MetadataValue<Ascii> = format!("Bearer {token}").parse()?;
        Ok(OperatorClient::with_interceptor(
            self.channel().await?,
            Box::new(move |mut request: Request<()>| {
                request.metadata_mut().insert("authorization", value.clone());
                Ok(request)
            }),
        ))
    }
}

type Adding = Box<dyn FnMut(Request<()>) -> Result<Request<()>, Status> + Send>;
type Client = OperatorClient<InterceptedService<Channel, Adding>>;

fn tokens_file(folder: &Path) -> PathBuf {
    folder.join("operator-tokens")
}

async fn bandana(arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<Output> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).clean_environment().envs(variables.iter().copied()).kill_on_drop(true);
    Ok(command.output().await?)
}

async fn token(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let file = tokens_file(folder);
    let mut all = vec!["token"];
    all.extend(arguments);
    all.extend(["--file", file.to_str().context("a path in UTF-8")?]);
    let output = bandana(&all, &[]).await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

async fn new_token(folder: &Path, name: &str) -> anyhow::Result<String> {
    token(folder, &["new", "--name", name, "--role", "administrator"]).await
}

fn code(outcome: Result<(), Status>) -> Code {
    outcome.map_or_else(|status| status.code(), |()| Code::Ok)
}

#[tokio::test]
async fn every_call_of_operators_wants_a_token_and_no_other_call_does() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let mut client = OperatorClient::new(guarded.channel().await?);
    let name = || ExperimentName { experiment_id: "x".to_owned() };
    let estimates = EstimatesRequest { experiment_id: "x".to_owned(), ..Default::default() };
    for (call, outcome) in [
        ("create", client.create_experiment(CreateExperimentRequest::default()).await.map(drop)),
        ("list", client.list_experiments(ListExperimentsRequest::default()).await.map(drop)),
        ("status", client.get_experiment_status(name()).await.map(drop)),
        ("start", client.start_experiment(name()).await.map(drop)),
        ("audit", client.list_audit_entries(ListAuditEntriesRequest::default()).await.map(drop)),
        ("pause", client.pause_experiment(name()).await.map(drop)),
        ("resume", client.resume_experiment(name()).await.map(drop)),
        ("stop", client.stop_experiment(name()).await.map(drop)),
        ("add arm", client.add_arm(AddArmRequest::default()).await.map(drop)),
        ("retire arm", client.retire_arm(RetireArmRequest::default()).await.map(drop)),
        ("sign", client.add_signature(AddSignatureRequest::default()).await.map(drop)),
        ("estimates", client.get_estimates(estimates.clone()).await.map(drop)),
        ("watch", client.watch_estimates(estimates).await.map(drop)),
        ("refresh", client.refresh_policy(name()).await.map(drop)),
        ("export", client.export_tallies(ExportTalliesRequest::default()).await.map(drop)),
    ] {
        assert_eq!(code(outcome), Code::Unauthenticated, "{call}");
    }
    for operator in [true, false] {
        let address = if operator { &guarded.server.operator } else { &guarded.server.device };
        let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
        let request = HealthCheckRequest { service: String::new() };
        HealthClient::new(channel).check(request).await?;
    }
    let mut device = DeviceClient::connect(format!("http://{}", guarded.server.device)).await?;
    let request = GetExperimentRequest { experiment_id: "x".to_owned() };
    assert_eq!(code(device.get_experiment(request).await.map(drop)), Code::NotFound);
    Ok(())
}

#[tokio::test]
async fn what_is_not_the_token_is_refused_in_the_same_words() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let anna = &guarded.anna;
    for good in [format!("Bearer {anna}"), format!("bearer {anna}")] {
        assert_eq!(code(guarded.call(Some(&good)).await), Code::Ok);
    }
    let missing = guarded.call(None).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unauthenticated);
    let hash = std::fs::read_to_string(guarded.file())?;
    let hash = hash.split_whitespace().nth(1).context("a hash")?;
    for bad in [
        "",
        "Bearer",
        "Bearer ",
        &format!("Basic {anna}"),
        anna,
        &format!("Bearer  {anna}"),
        &format!("Bearer {anna}x"),
        &format!("Bearer {}", &anna[..47]),
        &format!("Bearer {}", anna.to_uppercase()),
        &format!("Bearer {hash}"),
    ] {
        let status = guarded.call(Some(bad)).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (missing.code(), missing.message()));
    }
    Ok(())
}

#[tokio::test]
async fn tokens_come_and_go_while_the_server_runs() -> anyhow::Result<()> {
    let mut guarded = Guarded::start().await?;
    let folder = guarded.folder.path().to_owned();
    let ben = new_token(&folder, "ben").await?;
    assert_eq!(token(&folder, &["list"]).await?, "anna  administrator\nben  administrator");
    let mode = std::fs::metadata(guarded.file())?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    guarded.server.reload().await?;

    let mut client = guarded.with_token(&ben).await?;
    let create = CreateExperimentRequest {
        specification: Some(three_arms("watched")),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    client.create_experiment(create).await?;
    let request = EstimatesRequest { experiment_id: "watched".to_owned(), ..Default::default() };
    let mut watch = client.watch_estimates(request).await?.into_inner();
    assert!(watch.message().await?.is_some());

    // A broken file changes nothing: the previous tokens remain.
    let whole = std::fs::read(guarded.file())?;
    std::fs::write(guarded.file(), "anna\n")?;
    guarded.server.reload().await?;
    assert!(guarded.server.logged.contains("tokens are left as they were"));
    client.list_experiments(ListExperimentsRequest::default()).await?;
    std::fs::write(guarded.file(), whole)?;

    let entries = client.list_audit_entries(ListAuditEntriesRequest::default()).await?.into_inner();
    let callers: Vec<_> = entries.entries.iter().map(|entry| &*entry.caller).collect();
    assert_eq!(callers, ["ben"]);

    token(&folder, &["revoke", "--name", "ben"]).await?;
    guarded.server.reload().await?;
    let outcome = client.list_experiments(ListExperimentsRequest::default()).await.map(drop);
    assert_eq!(code(outcome), Code::Unauthenticated);
    // Open calls are closed.
    assert_eq!(watch.message().await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(code(guarded.call(Some(&format!("Bearer {}", guarded.anna))).await), Code::Ok);

    let anna = guarded.anna;
    let log = guarded.server.stop().await?;
    assert!(log.contains("experiment created caller=ben experiment=watched"), "{log}");
    for secret in [&anna, &ben] {
        assert!(!log.contains(&secret[5..]), "a token is in the log");
    }
    Ok(())
}

#[tokio::test]
async fn the_command_line_shows_its_token_to_the_right_server_only() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let url = format!("http://{}", guarded.server.operator);
    let list = ["experiment", "list", "--operator-url", &url];
    let output = bandana(&list, &[]).await?;
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let errors = String::from_utf8(output.stderr)?;
    for way in ["--token-file FILE", "$BANDANA_OPERATOR_TOKEN"] {
        assert!(errors.contains(way), "{errors}");
    }
    let variable = ("BANDANA_OPERATOR_TOKEN", &*guarded.anna);
    let output = bandana(&list, &[variable]).await?;
    assert!(output.status.success(), "{output:?}");

    let file = guarded.folder.path().join("token");
    std::fs::write(&file, format!("{}\n", guarded.anna))?;
    let file = file.to_str().context("a path in UTF-8")?;
    let with_file = [&list[..], &["--token-file", file]].concat();
    let output = bandana(&with_file, &[]).await?;
    assert!(output.status.success(), "{output:?}");

    // An invalid token is neither sent nor printed.
    for (content, what) in [(Some(""), "is not a token"), (None, "can't read the token file")] {
        std::fs::remove_file(file)?;
        content.map_or(Ok(()), |content| std::fs::write(file, content))?;
        let output = bandana(&with_file, &[]).await?;
        let errors = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(what) && errors.contains(file), "{errors}");
    }
    let twice = ("BANDANA_OPERATOR_TOKEN", &*format!("{0}\n{0}", guarded.anna));
    let output = bandana(&list, &[twice]).await?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("$BANDANA_OPERATOR_TOKEN is not a token"), "{errors}");
    assert!(!errors.contains(&guarded.anna));

    let elsewhere = ["experiment", "list", "--operator-url", "http://192.0.2.1:7302"];
    let output = bandana(&elsewhere, &[variable]).await?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("use https"), "{errors}");
    assert!(!errors.contains(&guarded.anna));
    Ok(())
}

#[tokio::test]
async fn a_server_without_its_tokens_does_not_start() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = tokens_file(folder.path());
    let arguments = ["--operator-tokens-file", file.to_str().context("a path in UTF-8")?];
    let error = WatchedServer::start(PROGRAM, folder.path(), &arguments).await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("tokens file") && error.contains("bandana token new"), "{error}");
    Ok(())
}

fn make_pipe(path: &Path) -> anyhow::Result<()> {
    Ok(mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?)
}

/// Opening a pipe blocks until another process writes to it.
#[tokio::test]
async fn a_pipe_in_the_place_of_the_tokens_keeps_nobody_waiting() -> anyhow::Result<()> {
    let mut guarded = Guarded::start().await?;
    let anna = format!("Bearer {}", guarded.anna);
    std::fs::remove_file(guarded.file())?;
    make_pipe(&guarded.file())?;
    guarded.server.reload().await?;
    assert!(guarded.server.logged.contains("tokens are left as they were"));
    assert!(guarded.server.logged.contains("no regular file"), "{}", guarded.server.logged);
    assert_eq!(code(guarded.call(Some(&anna)).await), Code::Ok);
    guarded.server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_server_starts_with_no_pipe_in_the_place_of_its_tokens() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = tokens_file(folder.path());
    make_pipe(&file)?;
    let arguments = ["--operator-tokens-file", file.to_str().context("a path in UTF-8")?];
    let error = WatchedServer::start(PROGRAM, folder.path(), &arguments).await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("tokens file") && error.contains("no regular file"), "{error}");
    Ok(())
}
