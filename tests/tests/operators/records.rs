//! Records of experiments: written, shown, kept, and never sent to devices.

use anyhow::Context as _;
use bandana_shared::wire::v1::{
    Decision, ExperimentName, GetExperimentRequest, ListExperimentsRequest, SetRecordRequest, Texts,
};
use bandana_tests::harness::{Aggregator, three_arms};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use super::operator_commands::{object, printed, refused};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Words that would be found in what devices get if they were there.
const TITLE: &str = "Mauve checkout";
const OWNER: &str = "nobody@example.org";

#[tokio::test]
async fn a_record_is_written_shown_and_kept() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let made = aggregator.create(three_arms("colour")).await?;
    let url = aggregator.process.operator_url.clone();
    let record = ["experiment", "record", "colour"];
    let writes = async |rest: &[&str]| printed(&url, &[&record, rest].concat()).await;
    let label = made.arms()[1].label().to_owned();
    writes(&["--title", TITLE, "--owner", OWNER, "--tag", "web", "--tag", "checkout"]).await?;
    writes(&["--hypothesis", "Mauve sells.\nBlue does not.", "--link", "https://example.org/7"])
        .await?;
    let decided = ["--decision", "ship it", "--reason", "It leads.", "--decided-for", &label];
    writes(&[&decided[..], &["--control", "2"]].concat()).await?;
    let expected = json!({
        "title": TITLE, "hypothesis": "Mauve sells.\nBlue does not.", "owner": OWNER,
        "tags": ["checkout", "web"], "links": ["https://example.org/7"],
        "decision": {"decision": "ship it", "reason": "It leads.", "arm": 1}, "control_arm": 2,
        "on_harm": "stop-arm", "harm_pauses": [], "priors": [], "prior_discount": 0.0, "arm_costs": [],
    });
    let shown = object(&url, &["experiment", "show", "colour", "--json"]).await?;
    assert_eq!((&shown["record"], &shown["revision"]), (&expected, &json!(1)));
    let words = printed(&url, &["experiment", "show", "colour"]).await?;
    for part in [TITLE, "Mauve sells. / Blue does not.", &format!("ship it, for {label}")] {
        assert!(words.contains(part), "{part:?} is not in: {words}");
    }
    let list = printed(&url, &["experiment", "list"]).await?;
    assert!(list.contains(TITLE) && list.contains(OWNER), "{list}");
    let audit = printed(&url, &["audit", "colour"]).await?;
    assert!(audit.contains("set-record") && audit.contains("for arm 1"), "{audit}");

    // It outlasts the server, the end of the experiment, and can be changed after it.
    aggregator = aggregator.kill_and_restart().await?;
    let url = aggregator.process.operator_url.clone();
    printed(&url, &["experiment", "stop", "colour", "--yes"]).await?;
    let taken_back = ["experiment", "record", "colour", "--decision", "", "--tag", "", "--json"];
    let shown = object(&url, &taken_back).await?;
    assert_eq!(
        (&shown["record"]["decision"], &shown["record"]["tags"]),
        (&Value::Null, &json!([]))
    );
    assert_eq!(shown["record"]["title"], TITLE);
    let entries = object(&url, &["audit", "colour", "--json"]).await?["entries"].clone();
    // What changes nothing is no change.
    object(&url, &taken_back).await?;
    assert_eq!(object(&url, &["audit", "colour", "--json"]).await?["entries"], entries);
    aggregator.process.stop().await
}

#[tokio::test]
async fn what_is_beyond_the_limits_is_refused_with_them() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.create(three_arms("colour")).await?;
    let url = aggregator.process.operator_url.clone();
    let long = "x".repeat(201);
    for (rest, code, parts) in [
        (&["--title", &*long][..], 4, &["201 characters", "at most 200"][..]),
        (&["--link", "javascript:alert(1)"], 4, &["https://"]),
        (&["--decision", "ship it"], 4, &["needs a reason"]),
        (&["--control", "3"], 4, &["the arms 0 to 2"]),
        (&["--decision", "x", "--reason", "y", "--decided-for", "violet"], 4, &["no arm in play"]),
        (&[], 2, &["nothing to write"]),
        (&["--reason", "because"], 2, &["--decision"]),
    ] {
        refused(&url, &[&["experiment", "record", "colour"], rest].concat(), code, parts).await?;
    }
    let absent = ["experiment", "record", "absent", "--title", "x"];
    refused(&url, &absent, 3, &["absent"]).await?;
    let shown = object(&url, &["experiment", "show", "colour", "--json"]).await?;
    assert_eq!(shown["record"]["title"], "");
    aggregator.process.stop().await
}

#[tokio::test]
async fn devices_get_nothing_of_a_record_and_lists_only_what_is_short() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.create(three_arms("colour")).await?;
    let question = GetExperimentRequest { experiment_id: "colour".to_owned() };
    let before = aggregator.device.get_experiment(question.clone()).await?.into_inner();
    let texts = |text: &str| Some(Texts { texts: vec![text.to_owned()] });
    let decision = Decision { decision: "ship".to_owned(), reason: "so".to_owned(), arm: None };
    let request = SetRecordRequest {
        experiment_id: "colour".to_owned(),
        title: Some(TITLE.to_owned()),
        hypothesis: Some("It sells.".to_owned()),
        owner: Some(OWNER.to_owned()),
        tags: texts("web"),
        links: texts("https://example.org"),
        decision: Some(decision),
        control_arm: Some(1),
        ..Default::default()
    };
    aggregator.operator.set_record(request.clone()).await?;
    let after = aggregator.device.get_experiment(question).await?.into_inner();
    assert_eq!(before.experiment, after.experiment);
    let bytes = String::from_utf8_lossy(&after.encode_to_vec()).into_owned();
    for secret in [TITLE, OWNER, "It sells.", "web"] {
        assert!(!bytes.contains(secret), "{secret}");
    }
    let listed = aggregator.operator.list_experiments(ListExperimentsRequest::default()).await?;
    let record = listed.into_inner().experiments.remove(0).record.context("no record")?;
    assert_eq!((&*record.title, &*record.owner), (TITLE, OWNER));
    assert!(record.hypothesis.is_empty() && record.links.is_empty());
    assert!(record.decision.is_some_and(|decision| decision.reason.is_empty()));

    // What was deleted keeps none.
    let name = || ExperimentName { experiment_id: "colour".to_owned() };
    aggregator.operator.stop_experiment(name()).await?;
    aggregator.operator.delete_experiment(name()).await?;
    let gone = aggregator.operator.set_record(request).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    aggregator.process.stop().await
}
