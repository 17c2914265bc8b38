//! Lists: pages of bounded length, archived experiments, and deleted experiments.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::curator_client::CuratorClient;
use bandana_shared::wire::v1::trusted_operator_client::TrustedOperatorClient;
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    self, AdacGope, CreateExperimentRequest, ExperimentName, ExperimentView, GetExperimentRequest,
    Learner, ListAuditEntriesRequest, ListDataSetsRequest, ListExperimentsRequest,
    ListTrustedExperimentsRequest, RegisterDataSetRequest, TrustedExperimentName,
    TrustedSpecification, UploadStatus, Vector, register_data_set_request,
};
use bandana_tests::harness::{Aggregator, three_arms, upload};
use bandana_tests::page;
use bandana_tests::watched_server::WatchedServer;
use prost::Message as _;
use serde_json::Value;
use tokio::process::Command;
use tonic::Code;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Maximum size of an answer with its envelope; clients accept 4 MiB.
const ANSWER_BYTES_MAX: usize = (1 << 20) + 1024;

/// Number of experiments with the maximum number of arms and maximum labels, which together exceed
/// a client's limit.
const LONG: usize = 32;

async fn bandana(url: &str, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).clean_environment().env("BANDANA_OPERATOR_URL", url).kill_on_drop(true);
    Ok(command.output().await?)
}

async fn object(url: &str, arguments: &[&str]) -> anyhow::Result<Value> {
    let output = bandana(url, arguments).await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {errors}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn name(id: &str) -> ExperimentName {
    ExperimentName { experiment_id: id.to_owned() }
}

fn long(id: &str) -> CreateExperimentRequest {
    let label = |arm: usize| format!("{arm:-<128}");
    let arm = |arm| v1::Arm { label: label(arm), retired: false };
    let specification = v1::Specification { arms: (0..1024).map(arm).collect(), ..three_arms(id) };
    CreateExperimentRequest {
        specification: Some(specification),
        learner: Learner::Uniform.into(),
        draft: true,
        ..Default::default()
    }
}

/// All pages of the list of experiments.
async fn pages(
    aggregator: &mut Aggregator,
    mut request: ListExperimentsRequest,
) -> anyhow::Result<Vec<Vec<v1::ExperimentStatus>>> {
    let mut pages = Vec::new();
    loop {
        let answer = aggregator.operator.list_experiments(request.clone()).await?.into_inner();
        ensure!(answer.encoded_len() <= ANSWER_BYTES_MAX, "{} bytes", answer.encoded_len());
        pages.push(answer.experiments);
        if answer.next_page_token.is_empty() {
            return Ok(pages);
        }
        request.page_token = answer.next_page_token;
    }
}

fn ids(pages: &[Vec<v1::ExperimentStatus>]) -> Vec<String> {
    let id = |status: &v1::ExperimentStatus| {
        status.specification.clone().unwrap_or_default().experiment_id
    };
    pages.iter().flatten().map(id).collect()
}

#[tokio::test]
async fn experiments_are_listed_however_long_they_are() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let all: Vec<String> = (0..LONG).map(|number| format!("long-{number:02}")).collect();
    for id in &all {
        aggregator.operator.create_experiment(long(id)).await?;
    }
    let view = ExperimentView::Full.into();
    let full =
        pages(&mut aggregator, ListExperimentsRequest { view, ..Default::default() }).await?;
    assert_eq!(ids(&full), all);
    let bytes: usize = full.iter().flatten().map(v1::ExperimentStatus::encoded_len).sum();
    assert!(bytes > 4 << 20, "{bytes} bytes are not what breaks a client");
    let arms =
        |status: &v1::ExperimentStatus| status.specification.clone().unwrap_or_default().arms;
    assert!(full.iter().flatten().all(|status| arms(status).len() == 1024));

    let summaries = pages(&mut aggregator, ListExperimentsRequest::default()).await?;
    assert_eq!((summaries.len(), ids(&summaries)), (1, all.clone()));
    for status in &summaries[0] {
        assert!(arms(status).is_empty());
        assert_eq!((status.arm_count, status.arms_in_play), (1024, 1024));
    }
    let small = ListExperimentsRequest { page_size: 5, ..Default::default() };
    let small = pages(&mut aggregator, small).await?;
    assert_eq!((small.len(), small[0].len(), ids(&small)), (7, 5, all.clone()));

    let url = aggregator.process.operator_url.clone();
    let listed = object(&url, &["experiment", "list", "--json"]).await?;
    let listed = listed["experiments"].as_array().context("a list")?;
    assert_eq!((listed.len(), listed[0]["arms"].as_array().map(Vec::len)), (LONG, Some(1024)));
    let table = String::from_utf8(bandana(&url, &["experiment", "list"]).await?.stdout)?;
    assert_eq!(table.lines().count(), LONG + 1, "{table}");
    assert!(table.contains("1024"), "{table}");
    let address = url.trim_start_matches("http://");
    let page = page::get(address, "/api/experiments", &[]).await?;
    let page: Value = serde_json::from_str(&page.body)?;
    assert_eq!(page["experiments"].as_array().map(Vec::len), Some(LONG));
    assert_eq!(
        (&page["next_page_token"], &page["experiments"][0]["arms_in_play"]),
        (&"".into(), &1024.into())
    );
    aggregator.process.stop().await
}

#[tokio::test]
async fn pages_go_on_where_the_one_before_ended() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    for id in ["a", "c", "e"] {
        aggregator.create(three_arms(id)).await?;
    }
    let request = ListExperimentsRequest { page_size: 2, ..Default::default() };
    let first = aggregator.operator.list_experiments(request.clone()).await?.into_inner();
    let page_token = first.next_page_token.clone();
    assert_eq!(ids(&[first.experiments]), ["a", "c"]);
    // An experiment before the current page causes no gap; one after it is seen.
    aggregator.create(three_arms("b")).await?;
    aggregator.create(three_arms("d")).await?;
    let next = ListExperimentsRequest { page_token: page_token.clone(), ..request.clone() };
    let second = aggregator.operator.list_experiments(next).await?.into_inner();
    assert_eq!(ids(&[second.experiments]), ["d", "e"]);
    assert_eq!(second.next_page_token, "");

    let other =
        ListExperimentsRequest { page_token: page_token.clone(), show_archived: true, ..request };
    let strange = ListExperimentsRequest { page_token: "x".to_owned(), ..Default::default() };
    for wrong in [other, strange] {
        let refused = aggregator.operator.list_experiments(wrong).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("page_token"), "{}", refused.message());
    }
    let mut trusted =
        TrustedOperatorClient::connect(aggregator.process.operator_url.clone()).await?;
    let wrong = ListTrustedExperimentsRequest { page_token, ..Default::default() };
    let refused = trusted.list_trusted_experiments(wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    aggregator.process.stop().await
}

fn gope(id: &str) -> TrustedSpecification {
    let action = |number: u32| Vector {
        coordinates: (0..64).map(|place| if place == number % 64 { 0.5 } else { 0.0 }).collect(),
    };
    let actions = (0..256).map(action).collect();
    TrustedSpecification {
        experiment_id: id.to_owned(),
        rewards_are_disclosed: true,
        rho: 1.0,
        algorithm: Some(Algorithm::AdacGope(AdacGope { actions, delta: 0.1 })),
    }
}

#[tokio::test]
async fn trusted_experiments_are_listed_archived_and_deleted() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let mut trusted = TrustedOperatorClient::connect(url.clone()).await?;
    for id in ["a", "b", "c"] {
        trusted.create_trusted_experiment(gope(id)).await?;
    }
    let request = ListTrustedExperimentsRequest { page_size: 2, ..Default::default() };
    let first = trusted.list_trusted_experiments(request.clone()).await?.into_inner();
    assert_eq!(first.experiments.len(), 2);
    assert_eq!((first.experiments[0].arm_count, first.encoded_len() < 1000), (256, true));
    let page_token = first.next_page_token;
    let view = ExperimentView::Full.into();
    let rest = ListTrustedExperimentsRequest { page_token, view, ..request };
    let rest = trusted.list_trusted_experiments(rest).await?.into_inner();
    let specification = rest.experiments[0].specification.clone().context("a specification")?;
    assert_eq!((rest.experiments.len(), specification), (1, gope("c")));

    let early = bandana(&url, &["trusted", "delete", "b", "--yes"]).await?;
    assert_eq!(early.status.code(), Some(4), "{early:?}");
    for id in ["a", "b"] {
        object(&url, &["trusted", "stop", id, "--yes", "--json"]).await?;
        let archived = object(&url, &["trusted", "archive", id, "--json"]).await?;
        assert_eq!(archived["archived"], true);
        // A repetition changes nothing.
        object(&url, &["trusted", "archive", id, "--json"]).await?;
    }
    let unasked = bandana(&url, &["trusted", "delete", "a"]).await?;
    assert!(String::from_utf8(unasked.stderr)?.contains("--yes"));
    object(&url, &["trusted", "delete", "a", "--yes", "--json"]).await?;
    let listed = async |flags: &[&str]| {
        let listed = object(&url, &[&["trusted", "list", "--json"], flags].concat()).await?;
        let listed = listed["experiments"].as_array().context("a list")?.clone();
        let ids = listed.iter().map(|view| view["experiment_id"].as_str().map(str::to_owned));
        anyhow::Ok(ids.flatten().collect::<Vec<_>>())
    };
    assert_eq!(listed(&[]).await?, ["c"]);
    assert_eq!(listed(&["--archived"]).await?, ["b", "c"]);
    for _ in 0..2 {
        let shown = object(&url, &["trusted", "unarchive", "b", "--json"]).await?;
        assert_eq!(shown["archived"], false);
        assert_eq!(listed(&[]).await?, ["b", "c"]);
    }
    object(&url, &["trusted", "released", "b", "--json"]).await?;
    let gone = TrustedExperimentName { experiment_id: "a".to_owned() };
    let gone = trusted.get_trusted_status(gone).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    let taken = trusted.create_trusted_experiment(gope("a")).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);
    assert!(taken.message().contains("was deleted"), "{}", taken.message());
    let audit = object(&url, &["audit", "a", "--json"]).await?;
    let actions = audit["entries"].as_array().context("entries")?.iter();
    let actions: Vec<_> = actions.map(|entry| entry["action"].as_str()).collect();
    assert_eq!(actions, ["delete", "archive", "stop", "create"].map(Some));
    aggregator.process.stop().await
}

/// Checks that the running experiment "checkout" can be neither archived nor deleted.
async fn only_what_has_ended_leaves(aggregator: &mut Aggregator) -> anyhow::Result<()> {
    let archived = aggregator.operator.archive_experiment(name("checkout")).await.map(drop);
    let deleted = aggregator.operator.delete_experiment(name("checkout")).await.map(drop);
    for told in [archived, deleted] {
        let refused = told.err().context("a running experiment is gone")?;
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("stopped"), "{}", refused.message());
    }
    Ok(())
}

/// Checks the answers about the deleted experiment "checkout".
async fn is_gone_for_good(aggregator: &mut Aggregator) -> anyhow::Result<()> {
    let url = aggregator.process.operator_url.clone();
    let shown = aggregator.operator.get_experiment_status(name("checkout")).await.map(drop);
    let question = GetExperimentRequest { experiment_id: "checkout".to_owned() };
    let fetched = aggregator.device.get_experiment(question).await.map(drop);
    for told in [shown, fetched] {
        assert_eq!(told.err().context("it is still there")?.code(), Code::NotFound);
    }
    let again = bandana(&url, &["experiment", "delete", "checkout", "--yes"]).await?;
    assert_eq!(again.status.code(), Some(3), "{again:?}");
    let request = CreateExperimentRequest {
        specification: Some(three_arms("checkout")),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    let taken = aggregator.operator.create_experiment(request).await;
    let taken = taken.err().context("its id came again")?;
    assert_eq!(taken.code(), Code::AlreadyExists);
    assert!(taken.message().contains("was deleted"), "{}", taken.message());
    Ok(())
}

#[tokio::test]
async fn an_experiment_that_has_ended_leaves_lists_metrics_and_the_store() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let checkout = aggregator.create(three_arms("checkout")).await?;
    aggregator.create(three_arms("other")).await?;
    let day = aggregator.day(&checkout).await?;
    let send = async |aggregator: &mut Aggregator, number, of: &Specification, day: Day| {
        let request = upload(number, of, day, &[(0, true), (1, false)])?;
        anyhow::Ok(aggregator.device.submit_upload(request).await?.into_inner().status())
    };
    assert_eq!(send(&mut aggregator, 1, &checkout, day).await?, UploadStatus::Accepted);
    let shown = async |part: &str| {
        let address = url.trim_start_matches("http://").to_owned();
        anyhow::Ok(page::get(&address, "/metrics", &[]).await?.body.contains(part))
    };
    let label = "experiment=\"checkout\"";
    assert!(shown(label).await?);
    only_what_has_ended_leaves(&mut aggregator).await?;
    aggregator.operator.stop_experiment(name("checkout")).await?;
    assert!(!shown(label).await?, "it has ended, and is counted only");
    assert!(shown("bandana_experiments{state=\"stopped\"} 1").await?);

    let archived = object(&url, &["experiment", "archive", "checkout", "--json"]).await?;
    assert_eq!((&archived["archived"], &archived["state"]), (&true.into(), &"stopped".into()));
    assert_eq!(ids(&pages(&mut aggregator, ListExperimentsRequest::default()).await?), ["other"]);
    let all = ListExperimentsRequest { show_archived: true, ..Default::default() };
    assert_eq!(ids(&pages(&mut aggregator, all.clone()).await?), ["checkout", "other"]);
    for _ in 0..2 {
        let shown = object(&url, &["experiment", "unarchive", "checkout", "--json"]).await?;
        assert_eq!((&shown["archived"], &shown["state"]), (&false.into(), &"stopped".into()));
        let listed = pages(&mut aggregator, ListExperimentsRequest::default()).await?;
        assert_eq!(ids(&listed), ["checkout", "other"]);
    }
    object(&url, &["experiment", "archive", "checkout", "--json"]).await?;
    let table = bandana(&url, &["experiment", "list", "--archived"]).await?;
    assert!(String::from_utf8(table.stdout)?.contains("archived"));
    assert_eq!(send(&mut aggregator, 1, &checkout, day).await?, UploadStatus::Duplicate);
    assert_eq!(send(&mut aggregator, 2, &checkout, day).await?, UploadStatus::Stopped);

    aggregator = aggregator.kill_and_restart().await?;
    let url = aggregator.process.operator_url.clone();
    assert_eq!(ids(&pages(&mut aggregator, ListExperimentsRequest::default()).await?), ["other"]);
    let unasked = bandana(&url, &["experiment", "delete", "checkout"]).await?;
    assert_eq!(unasked.status.code(), Some(1));
    assert!(String::from_utf8(unasked.stderr)?.contains("--yes"));
    let deleted = object(&url, &["experiment", "delete", "checkout", "--yes", "--json"]).await?;
    assert_eq!(
        (&deleted["deleted"], &deleted["experiment_id"]),
        (&true.into(), &"checkout".into())
    );
    for _ in 0..2 {
        assert_eq!(ids(&pages(&mut aggregator, all.clone()).await?), ["other"]);
        is_gone_for_good(&mut aggregator).await?;
        // No alarms are active for these experiments.
        let told = send(&mut aggregator, 3, &checkout, day).await?;
        assert_eq!(told, UploadStatus::Stopped);
        aggregator = aggregator.kill_and_restart().await?;
    }
    let request =
        ListAuditEntriesRequest { experiment_id: "checkout".to_owned(), ..Default::default() };
    let entries = aggregator.operator.list_audit_entries(request).await?.into_inner().entries;
    let actions: Vec<_> = entries.iter().map(v1::AuditEntry::action).collect();
    let action = |name: &str| v1::AuditAction::from_str_name(name).unwrap_or_default();
    let expected = ["DELETE", "ARCHIVE", "UNARCHIVE", "ARCHIVE", "STOP", "CREATE"];
    let expected = expected.map(|name| action(&format!("AUDIT_ACTION_{name}")));
    assert_eq!(actions, expected);
    assert!(entries[0].detail.contains("2 reports"), "{}", entries[0].detail);
    let directory = aggregator.data_dir().to_str().context("a path in UTF-8")?.to_owned();
    let verified = bandana("http://127.0.0.1:1", &["verify", &directory]).await?;
    assert!(verified.status.success(), "{verified:?}");
    aggregator.process.stop().await
}

async fn curator(
    folder: &Path,
) -> anyhow::Result<(WatchedServer, CuratorClient<tonic::transport::Channel>)> {
    let sets = folder.join("sets");
    std::fs::create_dir(&sets)?;
    std::fs::write(sets.join("people.csv"), "age\n20\n30\n")?;
    let sets = sets.to_str().context("a path in UTF-8")?;
    let server =
        WatchedServer::start(PROGRAM, &folder.join("data"), &["--data-sets", sets]).await?;
    let curator = CuratorClient::connect(format!("http://{}", server.operator)).await?;
    Ok((server, curator))
}

#[tokio::test]
async fn data_sets_are_listed_in_pages() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, mut curator) = curator(folder.path()).await?;
    let mut sizes = BTreeMap::new();
    for number in 0..3 {
        // Each server has separate rows and budgets.
        std::fs::write(folder.path().join("sets/people.csv"), format!("age\n{number}\n"))?;
        let request = RegisterDataSetRequest {
            name: format!("set-{number}"),
            file: "people.csv".to_owned(),
            columns: vec!["age:0..99".to_owned()],
            budget: Some(register_data_set_request::Budget::Epsilon(1.0)),
            find: None,
        };
        let registered = curator.register_data_set(request).await?.into_inner();
        sizes.insert(registered.name.clone(), registered.encoded_len());
    }
    let mut request = ListDataSetsRequest { page_size: 2, ..Default::default() };
    let first = curator.list_data_sets(request.clone()).await?.into_inner();
    request.page_token = first.next_page_token;
    let second = curator.list_data_sets(request).await?.into_inner();
    assert_eq!((first.data_sets.len(), second.data_sets.len()), (2, 1));
    assert_eq!((&*second.data_sets[0].name, &*second.next_page_token), ("set-2", ""));
    assert_eq!(sizes.len(), 3);
    let url = format!("http://{}", server.operator);
    let listed = object(&url, &["query", "list", "--json"]).await?;
    assert_eq!(listed["data_sets"].as_array().map(Vec::len), Some(3));
    server.stop().await?;
    Ok(())
}
