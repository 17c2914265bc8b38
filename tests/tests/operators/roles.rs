//! Roles of tokens and their permissions: every method of every service and every page, on a real
//! server.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Output;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::wire::v1::curator_client::CuratorClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    AskRequest, Counts, CreateExperimentRequest, EstimatesRequest, Learner, ListDebitsRequest,
    RegisterDataSetRequest, ask_request, register_data_set_request,
};
use bandana_tests::harness::three_arms;
use bandana_tests::page;
use bandana_tests::watched_server::WatchedServer;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tempfile::TempDir;
use tokio::process::Command;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const ROLES: [&str; 6] =
    ["viewer", "experimenter", "analyst", "custodian", "relay", "administrator"];

/// The roles that may call each method, by their initials; an administrator may call all.
const METHODS: &[(&str, &str)] = &[
    ("Operator/CreateExperiment", "e"),
    ("Operator/ListExperiments", "ve"),
    ("Operator/GetExperimentStatus", "ve"),
    ("Operator/StartExperiment", "e"),
    ("Operator/PauseExperiment", "e"),
    ("Operator/ResumeExperiment", "e"),
    ("Operator/StopExperiment", "e"),
    ("Operator/ArchiveExperiment", "e"),
    ("Operator/UnarchiveExperiment", "e"),
    ("Operator/DeleteExperiment", ""),
    ("Operator/AddArm", "e"),
    ("Operator/RetireArm", "e"),
    ("Operator/SetEnrolment", "e"),
    ("Operator/SetRecord", "e"),
    ("Operator/AddSignature", "e"),
    ("Operator/GetEstimates", "ve"),
    ("Operator/WatchEstimates", "ve"),
    ("Operator/ListAuditEntries", "vec"),
    ("Operator/RefreshPolicy", "e"),
    ("Operator/ExportTallies", "ve"),
    ("TrustedOperator/CreateTrustedExperiment", "e"),
    ("TrustedOperator/ListTrustedExperiments", "ve"),
    ("TrustedOperator/GetTrustedStatus", "ve"),
    ("TrustedOperator/PauseTrustedExperiment", "e"),
    ("TrustedOperator/ResumeTrustedExperiment", "e"),
    ("TrustedOperator/StopTrustedExperiment", "e"),
    ("TrustedOperator/ArchiveTrustedExperiment", "e"),
    ("TrustedOperator/UnarchiveTrustedExperiment", "e"),
    ("TrustedOperator/DeleteTrustedExperiment", ""),
    ("TrustedOperator/GetReleased", "ve"),
    ("Curator/RegisterDataSet", "c"),
    ("Curator/WithdrawDataSet", "c"),
    ("Curator/ListDataSets", "ac"),
    ("Curator/ListDebits", "ac"),
    ("Curator/Ask", "a"),
    ("Curator/OpenSession", "c"),
    ("Curator/AskSession", "a"),
    ("Batches/GetShuffled", "r"),
    ("Batches/SubmitBatch", "r"),
];

/// The roles that may request each page.
const PAGES: &[(&str, &str, &str)] = &[
    ("GET", "/metrics", "ve"),
    ("GET", "/api/experiments", "ve"),
    ("POST", "/api/experiments", "e"),
    ("GET", "/api/experiments/x", "ve"),
    ("GET", "/api/experiments/x/watch", "ve"),
    ("GET", "/api/experiments/x/tallies", "ve"),
    ("GET", "/api/experiments/x/over-time", "ve"),
    ("POST", "/api/experiments/x/start", "e"),
    ("POST", "/api/experiments/x/pause", "e"),
    ("POST", "/api/experiments/x/resume", "e"),
    ("POST", "/api/experiments/x/stop", "e"),
    ("POST", "/api/experiments/x/archive", "e"),
    ("POST", "/api/experiments/x/unarchive", "e"),
    ("POST", "/api/experiments/x/delete", ""),
    ("POST", "/api/experiments/x/record", "e"),
    ("GET", "/api/experiments/x/export", "ve"),
    ("GET", "/api/data-sets", "ac"),
    ("GET", "/api/plan", "ve"),
    ("GET", "/api/audit", "vec"),
    ("GET", "/api/trusted", "ve"),
    ("POST", "/api/trusted", "e"),
    ("GET", "/api/trusted/x", "ve"),
    ("POST", "/api/trusted/x/pause", "e"),
    ("POST", "/api/trusted/x/resume", "e"),
    ("POST", "/api/trusted/x/stop", "e"),
    ("POST", "/api/trusted/x/archive", "e"),
    ("POST", "/api/trusted/x/unarchive", "e"),
    ("POST", "/api/trusted/x/delete", ""),
];

fn may(role: &str, letters: &str) -> bool {
    role == "administrator" || letters.contains(&role[..1])
}

/// A server with one token per role, named like the role.
struct Guarded {
    folder: TempDir,
    tokens: Vec<String>,
    server: WatchedServer,
}

impl Guarded {
    async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    async fn start_with(more: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("sets"))?;
        std::fs::write(folder.path().join("sets/people.csv"), "age\n20\n30\n40\n")?;
        let mut tokens = Vec::new();
        for role in ROLES {
            tokens.push(new_token(folder.path(), role, role).await?);
        }
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (sets, file) = (path("sets"), path("tokens"));
        let arguments =
            [&["--operator-tokens-file", &*file, "--data-sets", &*sets][..], more].concat();
        let server = WatchedServer::start(PROGRAM, &folder.path().join("data"), &arguments).await?;
        Ok(Self { folder, tokens, server })
    }

    fn token(&self, role: &str) -> anyhow::Result<&str> {
        let place = ROLES.iter().position(|name| *name == role).context("a role")?;
        Ok(&self.tokens[place])
    }

    async fn channel(&self) -> anyhow::Result<Channel> {
        Ok(Channel::from_shared(format!("http://{}", self.server.operator))?.connect().await?)
    }
}

async fn bandana(arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).clean_environment().kill_on_drop(true);
    Ok(command.output().await?)
}

async fn new_token(folder: &Path, name: &str, roles: &str) -> anyhow::Result<String> {
    let file = folder.join("tokens").display().to_string();
    let arguments = ["token", "new", "--name", name, "--role", roles, "--file", &file];
    let output = bandana(&arguments).await?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn with<T>(message: T, token: &str) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    let value: MetadataValue<Ascii> = format!("Bearer {token}").parse()?;
    request.metadata_mut().insert("authorization", value);
    Ok(request)
}

/// Calls a method with an empty message, and reads one answer.
async fn call(channel: &Channel, path: &str, token: &str) -> anyhow::Result<Result<(), Status>> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await?;
    let path = PathAndQuery::try_from(path)?;
    let codec = ProstCodec::<(), ()>::default();
    let answers = match client.server_streaming(with((), token)?, path, codec).await {
        Ok(answers) => answers,
        Err(status) => return Ok(Err(status)),
    };
    Ok(answers.into_inner().message().await.map(drop))
}

/// The paths of all methods of Bandana's services.
fn described() -> anyhow::Result<Vec<String>> {
    let set = FileDescriptorSet::decode(bandana_shared::wire::FILE_DESCRIPTOR_SET)?;
    let services = set.file.iter().flat_map(|file| &file.service);
    let methods = services.flat_map(|service| {
        let path = |method: &str| format!("{}/{method}", service.name());
        service.method.iter().map(move |method| path(method.name()))
    });
    Ok(methods.collect())
}

#[tokio::test]
async fn every_method_is_for_its_roles_alone() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let channel = guarded.channel().await?;
    for path in described()? {
        if ["Device/", "Gateway/", "Shuffler/", "TransparencyLog/", "Trusted/"]
            .iter()
            .any(|service| path.starts_with(service))
        {
            let outcome =
                call(&channel, &format!("/bandana.v1.{path}"), &guarded.tokens[4]).await?;
            let code = outcome.unwrap_err().code();
            assert_eq!(code, Code::Unimplemented, "{path} is for devices, on their port");
            continue;
        }
        let (_, letters) = METHODS
            .iter()
            .find(|(known, _)| *known == path)
            .with_context(|| format!("which roles may call {path}?"))?;
        let path = format!("/bandana.v1.{path}");
        for (role, token) in ROLES.iter().zip(&guarded.tokens) {
            let outcome = call(&channel, &path, token).await?;
            let code = outcome.as_ref().map_or_else(Status::code, |()| Code::Ok);
            if may(role, letters) {
                let refusals = [Code::PermissionDenied, Code::Unauthenticated, Code::Unimplemented];
                assert!(!refusals.contains(&code), "{role} may call {path}: {outcome:?}");
            } else {
                let status = outcome.unwrap_err();
                let (code, message) = (status.code(), status.message());
                assert_eq!(code, Code::PermissionDenied, "{role} may not call {path}: {message}");
                let needed: Vec<_> = ROLES.into_iter().filter(|role| may(role, letters)).collect();
                assert!(needed.iter().all(|role| message.contains(role)), "{path}: {message}");
            }
        }
        let outcome = call(&channel, &path, "bndn_other").await?;
        assert_eq!(outcome.unwrap_err().code(), Code::Unauthenticated, "{path}");
    }
    for token in &guarded.tokens {
        let outcome = call(&channel, "/bandana.v1.Operator/Other", token).await?;
        assert_eq!(outcome.unwrap_err().code(), Code::Unimplemented);
        for version in ["v1", "v1alpha"] {
            let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
            let outcome = call(&channel, &path, token).await?;
            let code = outcome.map_or_else(|status| status.code(), |()| Code::Ok);
            assert_ne!(code, Code::PermissionDenied, "{path}");
        }
    }
    for (known, _) in METHODS {
        assert!(described()?.iter().any(|path| path == known), "there is no {known}");
    }
    Ok(())
}

#[tokio::test]
async fn every_page_is_for_its_roles_alone() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let address = &guarded.server.operator;
    for (method, path, letters) in PAGES {
        for (role, token) in ROLES.iter().zip(&guarded.tokens) {
            let bearer = format!("Bearer {token}");
            let headers = [
                ("authorization", &*bearer),
                ("x-bandana-dashboard", "1"),
                ("content-type", "application/json"),
                ("content-length", "2"),
            ];
            let page = page::send(address, method, path, &headers, "{}").await?;
            let is_let_in = !matches!(page.status, 401 | 403 | 405);
            assert_eq!(is_let_in, may(role, letters), "{role} {method} {path}: {page:?}");
            if page.status == 403 {
                assert!(page.body.contains("PERMISSION_DENIED"), "{}", page.body);
                assert!(page.body.contains("administrator"), "{}", page.body);
            }
        }
    }
    // The static pages contain no data, and signing in needs them.
    assert_eq!(page::get(address, "/", &[]).await?.status, 200);
    Ok(())
}

fn count(epsilon: f64) -> AskRequest {
    let counts = Counts { predicates: vec!["age=20".to_owned()] };
    AskRequest {
        data_set: "people".to_owned(),
        price: Some(ask_request::Price::Epsilon(epsilon)),
        question: Some(ask_request::Question::Counts(counts)),
        ..Default::default()
    }
}

/// A server with a data set of a budget of 10, a second analyst, and one who is an analyst and a custodian.
async fn with_people(
    more: &[&str],
) -> anyhow::Result<(Guarded, CuratorClient<Channel>, [String; 2])> {
    let mut guarded = Guarded::start_with(more).await?;
    let ben = new_token(guarded.folder.path(), "ben", "analyst").await?;
    let both = new_token(guarded.folder.path(), "both", "custodian,analyst").await?;
    guarded.server.reload().await?;
    let mut curator = CuratorClient::connect(format!("http://{}", guarded.server.operator)).await?;
    let registration = RegisterDataSetRequest {
        name: "people".to_owned(),
        file: "people.csv".to_owned(),
        columns: vec!["age:0..99".to_owned()],
        budget: Some(register_data_set_request::Budget::Epsilon(10.0)),
        find: None,
    };
    curator.register_data_set(with(registration, &both)?).await?;
    Ok((guarded, curator, [ben, both]))
}

#[tokio::test]
async fn an_analyst_spends_a_part_of_a_budget_and_a_custodian_all() -> anyhow::Result<()> {
    let (guarded, mut curator, [ben, both]) = with_people(&["--analyst-percent", "15"]).await?;
    let analyst = &guarded.tokens[2];
    curator.ask(with(count(1.25), analyst)?).await?;
    let refused = curator.ask(with(count(0.5), analyst)?).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("0.25 of 1.5 is left to you"), "{refused}");
    // What others spend takes nothing of that part.
    curator.ask(with(count(1.5), &ben)?).await?;
    curator.ask(with(count(3.0), &both)?).await?;
    curator.ask(with(count(0.25), analyst)?).await?;
    assert!(curator.ask(with(count(0.001), analyst)?).await.is_err());
    let refused = curator.ask(with(count(5.0), &both)?).await.unwrap_err();
    assert!(refused.message().contains("4 of 10 is left;"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn an_analyst_sees_its_own_debits_and_a_custodian_all() -> anyhow::Result<()> {
    let (guarded, mut curator, [ben, both]) = with_people(&[]).await?;
    let analyst = &guarded.tokens[2];
    for (token, epsilon) in [(analyst, 0.25), (&ben, 0.5), (analyst, 1.0), (&both, 2.0)] {
        curator.ask(with(count(epsilon), token)?).await?;
    }
    for (token, limit, before, expected) in [
        (analyst, 0, 0, &[1_000_000_000_u64, 250_000_000][..]),
        (analyst, 1, 0, &[1_000_000_000]),
        (analyst, 0, 3, &[250_000_000]),
        (&ben, 0, 0, &[500_000_000]),
        (&guarded.tokens[3], 0, 0, &[2_000_000_000, 1_000_000_000, 500_000_000, 250_000_000]),
        (&both, 1, 3, &[500_000_000]),
    ] {
        let request = ListDebitsRequest { data_set: "people".to_owned(), limit, before };
        let debits = curator.list_debits(with(request, token)?).await?.into_inner().debits;
        let prices: Vec<_> = debits.iter().map(|debit| debit.price_nanos).collect();
        assert_eq!(prices, expected);
    }
    Ok(())
}

#[tokio::test]
async fn a_role_that_is_taken_away_ends_what_it_was_needed_for() -> anyhow::Result<()> {
    let mut guarded = Guarded::start().await?;
    let channel = guarded.channel().await?;
    let mut client = OperatorClient::new(channel);
    let experimenter = guarded.token("experimenter")?.to_owned();
    let create = CreateExperimentRequest {
        specification: Some(three_arms("watched")),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    client.create_experiment(with(create, &experimenter)?).await?;
    let request = EstimatesRequest { experiment_id: "watched".to_owned(), ..Default::default() };
    let mut watches = Vec::new();
    for role in ["viewer", "experimenter"] {
        let request = with(request.clone(), guarded.token(role)?)?;
        let mut watch = client.watch_estimates(request).await?.into_inner();
        assert!(watch.message().await?.is_some());
        watches.push(watch);
    }
    // A manual change of the role in the file.
    let file = guarded.folder.path().join("tokens");
    let text = std::fs::read_to_string(&file)?;
    let lines = text.lines().map(|line| match line.split(' ').next() {
        Some("viewer") => line.replace(" viewer", " analyst") + "\n",
        Some("experimenter") => line.replace(" experimenter", " viewer,custodian") + "\n",
        _ => line.to_owned() + "\n",
    });
    std::fs::write(&file, lines.collect::<String>())?;
    guarded.server.reload().await?;
    let ended = watches[0].message().await.unwrap_err();
    assert_eq!(ended.code(), Code::PermissionDenied);
    assert!(ended.message().contains("viewer"), "{}", ended.message());
    // The other token still has a sufficient role.
    let create = CreateExperimentRequest {
        specification: Some(three_arms("another")),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    let refused = client.create_experiment(with(create, &experimenter)?).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(
        refused.message(),
        "this needs a token with the role experimenter or administrator; that of experimenter has \
         viewer,custodian"
    );
    client.get_estimates(with(request, &experimenter)?).await?;
    Ok(())
}

#[tokio::test]
async fn tokens_of_an_old_file_keep_their_power_and_the_log_warns() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let file = guarded.folder.path().join("tokens");
    let text = std::fs::read_to_string(&file)?;
    let old = text.lines().map(|line| match line.rsplit_once(' ') {
        Some((start, "analyst" | "viewer")) => format!("{start}\n"),
        _ => format!("{line}\n"),
    });
    std::fs::write(&file, old.collect::<String>())?;
    let path = file.display().to_string();
    let listed = bandana(&["token", "list", "--file", &path]).await?;
    let listed = String::from_utf8(listed.stdout)?;
    assert!(listed.contains("analyst  administrator (no role in its line)\n"), "{listed}");
    assert!(listed.contains("custodian  custodian\n"), "{listed}");

    let mut server = guarded.server;
    server.reload().await?;
    assert!(server.logged.contains("tokens without a role may do everything"), "{}", server.logged);
    assert!(server.logged.contains("tokens=2 names=\"viewer analyst\""), "{}", server.logged);
    let channel = Channel::from_shared(format!("http://{}", server.operator))?.connect().await?;
    for path in ["Operator/StopExperiment", "Curator/OpenSession"] {
        let outcome = call(&channel, &format!("/bandana.v1.{path}"), &guarded.tokens[2]).await?;
        assert_eq!(outcome.unwrap_err().code(), Code::InvalidArgument, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn the_command_line_wants_a_role_and_names_the_roles() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tokens").display().to_string();
    let new = ["token", "new", "--name", "anna", "--file", &file];
    for (more, expected) in [
        (&[][..], "--role <ROLE>"),
        (&["--role", "boss"], "viewer, experimenter, analyst, custodian, relay, administrator"),
    ] {
        let output = bandana(&[&new[..], more].concat()).await?;
        let errors = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    }
    ensure!(!Path::new(&file).exists(), "nothing was made");
    let both = ["--role", "analyst", "--role", "viewer"];
    ensure!(bandana(&[&new[..], &both].concat()).await?.status.success());
    let listed = bandana(&["token", "list", "--file", &file]).await?;
    assert_eq!(String::from_utf8(listed.stdout)?, "anna  viewer,analyst\n");
    Ok(())
}

#[tokio::test]
async fn a_token_is_revoked_in_a_file_of_a_hundred_thousand() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let file = guarded.folder.path().join("tokens");
    let mut text = std::fs::read_to_string(&file)?;
    for i in 0..100_000_u32 {
        writeln!(text, "app-{i} {i:064x} viewer")?;
    }
    std::fs::write(&file, &text)?;
    let mut server = guarded.server;
    server.reload().await?;
    ensure!(!server.logged.contains("ERROR"), "{}", server.logged);
    let channel = Channel::from_shared(format!("http://{}", server.operator))?.connect().await?;
    let list = "/bandana.v1.Operator/ListExperiments";
    let (viewer, boss) = (&guarded.tokens[0], &guarded.tokens[5]);
    call(&channel, list, viewer).await??;

    let path = file.display().to_string();
    let revoked = bandana(&["token", "revoke", "--name", "viewer", "--file", &path]).await?;
    ensure!(revoked.status.success(), "{revoked:?}");
    server.reload().await?;
    assert_eq!(call(&channel, list, viewer).await?.unwrap_err().code(), Code::Unauthenticated);

    // Even in a file that is too long; the entry added there is ignored.
    let late = new_token(guarded.folder.path(), "late", "viewer").await?;
    let long = std::fs::read_to_string(&file)? + "#" + &"-".repeat(16 << 20) + "\n";
    std::fs::write(&file, long)?;
    let new = ["token", "new", "--name", "x", "--role", "viewer", "--file", &path];
    let refused = String::from_utf8(bandana(&new).await?.stderr)?;
    ensure!(refused.contains("more than 16 MiB"), "{refused}");
    let revoked = bandana(&["token", "revoke", "--name", "experimenter", "--file", &path]).await?;
    ensure!(revoked.status.success(), "{revoked:?}");
    server.reload().await?;
    ensure!(server.logged.contains("some were revoked, none added"), "{}", server.logged);
    for gone in [&guarded.tokens[1], &late] {
        assert_eq!(call(&channel, list, gone).await?.unwrap_err().code(), Code::Unauthenticated);
    }
    call(&channel, list, boss).await??;
    Ok(())
}
